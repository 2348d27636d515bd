"""Sets of real numbers as sorted intervals: unions, holes, and inequalities in one variable."""

from __future__ import annotations

from fractions import Fraction

from gem.graders.mathematics.evaluation import USERS, Opaque
from gem.graders.mathematics.latex import Node
from gem.graders.mathematics.scalars import all_of, approximately, constant, facts, infinite, same_number

Piece = tuple[Node, Node, bool, bool]  # low, high, low open, high open


def _pieces(node: Node) -> list[Piece] | None:
    """Return a set of real numbers as sorted intervals; a point is a closed interval."""
    if node[0] == "union":
        pieces: list[Piece] = []
        for part in node[1]:
            more = _pieces(part)
            if more is None:
                return None
            pieces.extend(more)
        return _sort_pieces(pieces)
    if node[0] == "without":
        whole, out = _pieces(node[1]), _pieces(node[2])
        if whole is None or out is None:
            return None
        for low, high, low_open, high_open in out:
            if low != high:
                whole = _cut_out(whole, (low, high, low_open, high_open))
                continue
            whole = _punch_hole(whole, low)
            if whole is None:
                return None
        return whole
    if node[0] == "rel":
        return from_inequality(node)
    if node[0] != "seq":
        return [(node, node, False, False)] if approximately(node) is not None else None
    _, opened, closed, members = node
    if opened in ("{", ""):
        if any(approximately(member) is None for member in members):
            return None
        return _sort_pieces([(member, member, False, False) for member in members])
    if len(members) != 2 or any(approximately(member) is None for member in members):
        return None
    low, high = members
    return [(low, high, opened == "(" or infinite(low), closed == ")" or infinite(high))]


def _sort_pieces(pieces: list[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (approximately(piece[0]) or 0.0, approximately(piece[1]) or 0.0))


def _cut_out(pieces: list[Piece], hole: Piece) -> list[Piece]:
    """Return intervals without an interval; ends are compared as floats."""
    low, high, low_open, high_open = hole
    kept: list[Piece] = []
    for start, end, start_open, end_open in pieces:
        left, right = approximately(start) or 0.0, approximately(end) or 0.0
        below, above = approximately(low) or 0.0, approximately(high) or 0.0
        if right < below or left > above:
            kept.append((start, end, start_open, end_open))
            continue
        if left < below or (left == below and low_open and not start_open):
            kept.append((start, low, start_open, not low_open))
        if right > above or (right == above and high_open and not end_open):
            kept.append((high, end, not high_open, end_open))
    return kept


def _punch_hole(pieces: list[Piece], hole: Node) -> list[Piece] | None:
    at = approximately(hole)
    if at is None:
        return None
    remaining: list[Piece] = []
    for low, high, low_open, high_open in pieces:
        left, right = approximately(low), approximately(high)
        if left is None or right is None:
            return None
        if left < at < right:
            remaining += [(low, hole, low_open, True), (hole, high, True, high_open)]
        elif at == left and left < right:
            remaining.append((low, high, True, high_open))
        elif at == right and left < right:
            remaining.append((low, high, low_open, True))
        elif not at == left == right:
            remaining.append((low, high, low_open, high_open))
    return remaining


def _join_pieces(pieces: list[Piece]) -> list[Piece]:
    """Join pieces that touch or overlap; their ends are compared as floats."""
    spans: list[Piece] = []
    for piece in pieces:
        if spans:
            low, high, low_open, high_open = spans[-1]
            end, start = approximately(high) or 0.0, approximately(piece[0]) or 0.0
            if start < end or (start == end and not (high_open and piece[2])):
                further = approximately(piece[1]) or 0.0
                if further > end:
                    high, high_open = piece[1], piece[3]
                elif further == end:
                    high_open = high_open and piece[3]
                spans[-1] = (
                    low,
                    high,
                    low_open and (piece[2] or start > (approximately(low) or 0.0)),
                    high_open,
                )
                continue
        spans.append(piece)
    return spans


def same_set(gold: Node, answer: Node) -> bool | None:
    """Compare two sets of real numbers; None: one is not such a set."""
    left, right = _pieces(gold), _pieces(answer)
    if left is None or right is None:
        return None
    if _names_variable(gold) and _names_variable(answer) and variable(gold) != variable(answer):
        return False
    left, right = _join_pieces(left), _join_pieces(right)
    if len(left) != len(right):
        return False
    return all_of(
        False if (a[2], a[3]) != (b[2], b[3]) else all_of((_same_end(a[0], b[0]), _same_end(a[1], b[1])))
        for a, b in zip(left, right, strict=True)
    )


def _names_variable(node: Node) -> bool:
    """Return whether a set is given by inequalities, which name a variable."""
    return node[0] == "rel" or (node[0] == "union" and all(part[0] == "rel" for part in node[1]))


def _same_end(a: Node, b: Node) -> bool | None:
    if infinite(a) or infinite(b):
        return approximately(a) == approximately(b)
    return same_number(a, b)


def variable(node: Node) -> Node | None:
    """Return the variable of an inequality, or the common variable of a union of inequalities."""
    if node[0] == "union":
        names = {variable(part) if part[0] == "rel" else None for part in node[1]}
        return names.pop() if len(names) == 1 else None
    variables = [side for side in map(_within, node[2]) if side[0] == "sym" or _is_expression(side)]
    return variables[0] if len(variables) == 1 else None


def _is_expression(side: Node) -> bool:
    """Return whether a side is one value of a function, or holds several variables: nothing to solve for."""
    if side[0] == "fn" and side[1].rstrip("'") in USERS:
        return True
    try:
        return len(facts(side)[0]) > 1
    except Opaque:
        return side[0] == "*" and len(side[1]) == 2 and side[1][0][0] == "sym" and constant(side[1][1])


def _within(side: Node) -> Node:
    """Return the content of absolute-value bars, without an added constant."""
    if side[:2] != ("fn", "abs"):
        return side
    inside: Node = side[2][0]
    if inside[0] == "+" and len(inside[1]) == 2 and approximately(inside[1][1]) is not None:
        inside = inside[1][0]
    return inside


def _from_distance(node: Node) -> list[Piece] | None:
    """Return the values of x that |x - a| < b, or another comparison with a positive b, allows."""
    _, (op,), (left, right) = node
    if left[:2] != ("fn", "abs"):
        left, right, op = right, left, {"<": ">", ">": "<", "<=": ">=", ">=": "<="}[op]
    if (approximately(right) or 0.0) <= 0 or infinite(right):
        return None
    inside: Node = left[2][0]
    middle: Node = ("num", Fraction(0), None) if inside[0] == "sym" else ("-", inside[1][1])
    low, high = ("+", (middle, ("-", right))), ("+", (middle, right))
    inf: Node = ("const", "inf")
    if op in ("<", "<="):
        return [(low, high, op == "<", op == "<")]
    return [(("-", inf), low, True, op == ">"), (high, inf, op == ">", True)]


def from_inequality(node: Node) -> list[Piece] | None:
    """Return the values that an inequality such as 1 < x <= 2 allows for its variable."""
    _, operators, sides = node
    name = variable(node)
    if name is None or len(sides) > 3 or any(op not in ("<", ">", "<=", ">=") for op in operators):
        return None
    if name not in sides:
        return _from_distance(node) if len(sides) == 2 else None
    at = sides.index(name)
    low: Node = ("-", ("const", "inf"))
    high: Node = ("const", "inf")
    low_open = high_open = True
    if len(sides) == 3 and at != 1:
        return None
    for i, op in enumerate(operators):
        bound = sides[i + 1] if sides[i] == name else sides[i]
        if approximately(bound) is None:
            return None
        below = (op in ("<", "<=")) == (sides[i] == name)  # the variable is below the bound
        if below:
            high, high_open = bound, op in ("<", ">")
        else:
            low, low_open = bound, op in ("<", ">")
    if len(sides) == 3 and (approximately(low) or 0.0) >= (approximately(high) or 0.0):
        return None
    return [(low, high, low_open, high_open)]
