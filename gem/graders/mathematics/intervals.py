"""Sets of real numbers: trees of intervals, unions, holes and inequalities in; whether two are equal out."""

from __future__ import annotations

from fractions import Fraction
from operator import itemgetter

from gem.graders.mathematics.evaluation import USERS, Opaque
from gem.graders.mathematics.scalars import all_of, approximately, constant, facts, infinite, same_number
from gem.graders.mathematics.trees import Node

Cut = tuple[float, bool, Node]
"""A place between numbers: before the number, or (True) behind it; and the number as it is written."""
Piece = tuple[Cut, Cut]
_place = itemgetter(0, 1)
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_INF: Node = ("const", "inf")


class _NotASet(Exception):
    """The tree is no set of real numbers in one variable."""


def _piece(low: Node, high: Node, low_open: bool = False, high_open: bool = False) -> Piece:
    """Return an interval as the two places where it begins and ends."""
    start, stop = approximately(low), approximately(high)
    if start is None or stop is None:
        raise _NotASet
    return (start, low_open, low), (stop, not high_open, high)


def _pieces(node: Node) -> list[Piece]:
    """Return a set of real numbers as intervals; a point is a closed interval."""
    tag = node[0]
    if tag == "union":
        return [piece for part in node[1] for piece in _pieces(part)]
    if tag == "without":
        pieces = _pieces(node[1])
        for start, stop in _pieces(node[2]):
            halves = [
                half
                for low, high in pieces
                for half in ((low, min(high, start, key=_place)), (max(low, stop, key=_place), high))
            ]
            pieces = [half for half in halves if _place(half[0]) < _place(half[1])]
        return pieces
    if tag == "rel":
        return _from_inequality(node)
    if tag != "seq":
        return [_piece(node, node)]
    _, opened, closed, members = node
    if opened in ("{", ""):
        return [_piece(member, member) for member in members]
    if len(members) != 2:
        raise _NotASet
    low, high = members
    return [_piece(low, high, opened == "(" or infinite(low), closed == ")" or infinite(high))]


def _join_pieces(pieces: list[Piece]) -> list[Piece]:
    """Join pieces that touch or overlap."""
    spans: list[Piece] = []
    for low, high in sorted(pieces, key=lambda piece: (_place(piece[0]), _place(piece[1]))):
        if spans and _place(low) <= _place(spans[-1][1]):
            spans[-1] = (spans[-1][0], max(spans[-1][1], high, key=_place))
        else:
            spans.append((low, high))
    return spans


def same_set(gold: Node, answer: Node) -> bool | None:
    """Compare two sets of real numbers; None: one is not such a set."""
    try:
        left, right = _pieces(gold), _pieces(answer)
    except _NotASet:
        return None
    if _names_variable(gold) and _names_variable(answer) and variable(gold) != variable(answer):
        return False
    left, right = _join_pieces(left), _join_pieces(right)
    if len(left) != len(right):
        return False
    ends = [pair for a, b in zip(left, right, strict=True) for pair in zip(a, b, strict=True)]
    return all_of(a[1] == b[1] and _same_end(a[2], b[2]) for a, b in ends)


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


def is_inequality(node: Node) -> bool:
    """Return whether a relation such as 1 < x <= 2 gives a set of values of its variable."""
    try:
        return bool(_from_inequality(node))
    except _NotASet:
        return False


def _from_inequality(node: Node) -> list[Piece]:
    """Return the values that an inequality allows for its variable."""
    _, operators, sides = node
    name = variable(node)
    if name is None or len(sides) > 3 or not set(operators) <= set(_FLIPPED):
        raise _NotASet
    if name not in sides and len(sides) == 2:
        return _from_distance(*operators, *sides)
    if name not in sides or (len(sides) == 3 and sides[1] != name):
        raise _NotASet
    low: tuple[Node, bool] = (("-", _INF), True)
    high: tuple[Node, bool] = (_INF, True)
    for i, operator in enumerate(operators):
        bound = sides[i + 1] if sides[i] == name else sides[i]
        if (operator in ("<", "<=")) == (sides[i] == name):  # the variable is below the bound
            high = bound, operator in ("<", ">")
        else:
            low = bound, operator in ("<", ">")
    start, stop = _piece(low[0], high[0], low[1], high[1])
    if len(sides) == 3 and start[0] >= stop[0]:
        raise _NotASet
    return [(start, stop)]


def _from_distance(operator: str, left: Node, right: Node) -> list[Piece]:
    """Return the values of x that |x - a| < b, or another comparison with a positive b, allows."""
    if left[:2] != ("fn", "abs"):
        left, right, operator = right, left, _FLIPPED[operator]
    if (approximately(right) or 0.0) <= 0 or infinite(right):
        raise _NotASet
    inside: Node = left[2][0]
    middle: Node = ("num", Fraction(0), None) if inside[0] == "sym" else ("-", inside[1][1])
    low, high = ("+", (middle, ("-", right))), ("+", (middle, right))
    is_open = operator in ("<", ">")
    if operator in ("<", "<="):
        return [_piece(low, high, is_open, is_open)]
    return [_piece(("-", _INF), low, True, is_open), _piece(high, _INF, is_open, True)]
