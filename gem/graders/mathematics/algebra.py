"""Comparison of two answers as trees: equal (True), different (False), or undecided (None).

Equations, sets, sequences and matrices are compared by their parts, numbers and expressions in
`gem.graders.mathematics.scalars`, intervals in `gem.graders.mathematics.intervals`. It returns True and False
only if every step was sound; sympy decides the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain

from gem.graders.mathematics.evaluation import (
    USERS,
    Exact,
    Float,
    Inexact,
    Opaque,
    TooBig,
    TooBigHere,
    Undefined,
    value,
)
from gem.graders.mathematics.intervals import is_inequality, same_set, variable
from gem.graders.mathematics.latex import ASKED
from gem.graders.mathematics.scalars import (
    all_of,
    approximately,
    constant,
    exactly,
    facts,
    is_scalar,
    same_scalar,
    same_value,
)
from gem.graders.mathematics.trees import Node, rename_variables

SETS = 40  # members of a finite set that are compared one by one


def same(gold: Node, answer: Node) -> bool | None:
    """Return whether an answer's tree means the same as the reference's.

    Raises:
        TooBig: for numbers that are too big to compute.
    """
    if gold == answer:
        return True
    gold, answer = _excluding(gold, answer), _excluding(answer, gold)
    answer = _split_chain(answer) if gold[0] == "seq" else answer
    if "in" in (gold[0], answer[0]):
        names = {name for name in map(_member, (gold, answer)) if name is not None}
        return len(names) < 2 and same(_set(gold), _set(answer))
    if "logic" in (gold[0], answer[0]):  # propositions: the same except for the order of their parts
        return gold[:2] == answer[:2] and sorted(map(repr, gold[2])) == sorted(map(repr, answer[2]))
    named = _relations(gold, _give_variable(gold, answer))
    if named is None or named[0] == named[1]:
        return named is not None
    gold, answer = named
    if "rel" in (gold[0], answer[0]):
        return _compare_relation(gold, answer)
    gold, answer = _lone(gold), _lone(answer)
    kinds = gold[0], answer[0]
    if "union" in kinds or "without" in kinds:
        return same_set(gold, answer)
    if "matrix" in kinds:
        return _same_matrix(gold, answer)
    if kinds == ("seq", "seq"):
        return _same_sequence(gold, answer)
    if kinds[1] == "seq" and not answer[1] and is_scalar(gold) and len(answer[3]) < 4:
        return all_of(same(gold, member) for member in answer[3])  # 3/4, or 75%
    if "seq" in kinds:
        return False if is_scalar(answer if kinds[0] == "seq" else gold) else None
    return _same_notation(gold, answer) if "ratio" in kinds else same_scalar(gold, answer)


def _same_matrix(gold: Node, answer: Node) -> bool | None:
    """Compare matrices; one of a single column or row is also a tuple."""
    if gold[0] == answer[0]:
        shapes = [(len(tree[1]), len(tree[1][0])) for tree in (gold, answer)]
        return shapes[0] == shapes[1] and all_of(map(same, chain(*gold[1]), chain(*answer[1])))
    left, right = _vector(gold) or gold, _vector(answer) or answer
    if left[0] == right[0] == "seq" and left[1] and right[1]:
        return _same_sequence(left, right)
    return False if gold[0] in ("num", "const") and answer[0] != "seq" else None


def _compare_relation(gold: Node, answer: Node) -> bool | None:
    """Compare an equation or inequality with another one, or with what is none."""
    if answer[0] == "rel" and is_scalar(gold):
        return False  # x > 5, x^2 = 5 and 5 != x are no 5
    if gold[0] == answer[0]:
        return _same_relation(gold, answer)
    relation, other = (gold, answer) if gold[0] == "rel" else (answer, gold)
    simple = _equation(relation) and len(relation[1]) == 1
    if other[0] == "seq" and not other[1]:
        named = simple and _name(relation) is not None
        if named or (any(map(_equation, other[3])) and not _equation(relation)):
            return False if len(other[3]) > 1 else None
    if simple and is_scalar(other):
        return False  # an equation that is no definition, and an expression
    is_set = other[0] in ("seq", "union", "without") and not _equation(relation) and is_inequality(relation)
    return same_set(gold, answer) if is_set else None


def _vector(tree: Node) -> Node | None:
    """Return a matrix of one column or row as a tuple; None for another tree."""
    if tree[0] == "matrix" and (len(tree[1]) == 1 or len(tree[1][0]) == 1):
        return ("seq", "(", ")", tuple(chain(*tree[1])))
    return None


def _excluding(tree: Node, other: Node) -> Node:
    """Return "x is not 1, x is not -1" as the real numbers without these."""
    members = tree[3] if tree[0] == "seq" and not tree[1] and len(tree[3]) > 1 else ()
    members = (tree,) if tree[0] == "rel" and other[0] in ("without", "union") else members
    name = members[0][2][0] if members and members[0][0] == "rel" else ("",)
    if name[0] != "sym" or any(
        x[0] != "rel" or x[1] != ("!=",) or x[2][0] != name or not constant(x[2][1]) for x in members
    ):
        return tree
    reals: Node = ("seq", "(", ")", (("-", ("const", "inf")), ("const", "inf")))
    return ("without", reals, ("seq", "{", "}", tuple(x[2][1] for x in members)))


def _split_chain(tree: Node) -> Node:
    """Return x = y = 2 as x = 2, y = 2."""
    names = tree[2][:-1] if _equation(tree) else ()
    if len(names) < 2 or any(name[0] != "sym" for name in names) or not is_scalar(tree[2][-1]):
        return tree
    return ("seq", "", "", tuple(("rel", ("=",), (name, tree[2][-1])) for name in names))


def _lone(tree: Node) -> Node:
    """Return the only member of a list or set; a set in a set stays a set."""
    if tree[0] == "seq" and len(tree[3]) == 1 and tree[1] in ("", "{") and tree[3][0][0] != "seq":
        member: Node = tree[3][0]
        return member
    return tree


def _member(tree: Node) -> Node | None:
    """Return the variable of a statement "x is in a set" or of an inequality."""
    if tree[0] == "in":
        return tree[1] if tree[1] != ASKED else None
    named = tree[0] == "rel" or (tree[0] == "union" and all(part[0] == "rel" for part in tree[1]))
    return variable(tree) if named else None


def _set(tree: Node) -> Node:
    """Return the set of a statement "x is in a set"; there (1, 2) is an interval, not a list."""
    if tree[0] != "in":
        return tree
    members: Node = tree[2]
    if members[0] != "seq" or members[1] in ("", "{") or len(members[3]) != 2:
        return members
    low, high = map(approximately, members[3])
    return members if low is None or high is None or low >= high else ("union", (members,))


def _give_variable(gold: Node, answer: Node) -> Node:
    """Give "at least 5", which names no variable, the variable of the reference."""
    unnamed = answer[0] == "rel" and answer[2][0] == ASKED and gold[0] in ("rel", "union")
    name = variable(gold) if unnamed else None
    return answer if name is None else ("rel", answer[1], (name, *answer[2][1:]))


def _same_notation(gold: Node, answer: Node) -> bool | None:
    """Compare ratios: 2:4 may be 1:2 and 1/2, but 12:00 is not 1:00, and 5 is no ratio."""
    ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
    quotient = exactly(("/", *ratio[1])) if len(ratio[1]) == 2 else None
    if other[0] == "ratio":
        pairs = list(zip(gold[1], answer[1], strict=False))
        verdict = all_of(same(x, y) for x, y in pairs) if len(gold[1]) == len(answer[1]) else None
        if verdict is not False or len(pairs) != 2:
            return verdict
        return (
            quotient is not None
            and quotient == exactly(("/", *other[1]))
            and not any(map(_clock, (gold, answer)))
        )
    if not is_scalar(other):
        return None
    if other[0] in ("num", "unit") or _clock(ratio):
        return bool(other == ("/", *ratio[1]))
    return quotient is not None and quotient == exactly(other)


def _clock(ratio: Node) -> bool:
    """Whether a ratio of two may be a time of the day: 12:00 is not 1:00."""
    hours, minutes = map(exactly, ratio[1]) if len(ratio[1]) == 2 else (None, None)
    return hours is not None and minutes is not None and hours <= 24 and (minutes >= 10 or minutes == 0)


# -- sets and sequences


def _same_sequence(gold: Node, answer: Node) -> bool | None:
    _, opened, closed, members = gold
    _, opened_too, closed_too, others = answer
    kinds = opened + closed, opened_too + closed_too
    finite = [kind in ("", "{}") for kind in kinds]
    no_interval = "[]" in kinds and all(constant(x) and approximately(x) is None for x in (*members, *others))
    if all(finite) or (any(finite) and no_interval):  # [2i, -2i] is no interval
        return _same_members(members, others)
    if len(members) != len(others):
        return False
    if len(members) == 2 and kinds[0] != kinds[1] and (not any(finite) or {"[]", "[)", "(]"} & set(kinds)):
        return False  # intervals with other ends; an interval and its two ends
    return all_of(same(x, y) for x, y in zip(members, others, strict=True))


def _same_members(members: Sequence[Node], others: Sequence[Node]) -> bool | None:
    """Return whether two finite sets are equal, in any order; duplicates count once if the sizes differ."""
    if len(members) > SETS or len(others) > SETS:
        return None
    if len(members) != len(others):
        members, others = _distinct(members), _distinct(others)
        if len(members) != len(others):
            return False
    left = list(others)
    for member in members:
        verdicts = []
        for i, other in enumerate(left):
            verdicts.append(same(member, other))
            if verdicts[-1]:
                del left[i]
                break
        else:
            return None if None in verdicts else False
    return True


def _distinct(members: Sequence[Node]) -> list[Node]:
    kept: list[Node] = []
    for member in members:
        if not any(same(member, other) for other in kept):
            kept.append(member)
    return kept


# -- equations and inequalities

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def _drop_approximations(node: Node) -> Node:
    """Drop approximations from an equation: x = 1/3 ~ 0.33 becomes x = 1/3, x ~ 11 becomes x = 11."""
    if node[0] != "rel":
        return node
    _, operators, sides = node
    exact: Node = sides[0]
    if operators == ("=",) and sides[1][0] == "sym" and constant(exact):
        return ("rel", operators, sides[::-1])  # 3 = x
    bounded = operators[0] in ("<", ">", "<=", ">=") and set(operators[1:]) == {"="}
    if bounded and all(constant(side) and same(sides[-1], side) for side in sides[1:]):
        return ("rel", operators[:1], (exact, sides[-1]))  # a < 4/8 = 1/2
    if "~" not in operators:
        return node
    aim, *others = map(approximately, sides)
    if aim is not None and all(x is not None and abs(x - aim) <= 0.01 * abs(aim) for x in others):
        return exact  # 2 sqrt(3) ~ 3.46
    first = operators.index("~")
    kept = operators[:first] or ["=" if op == "~" else op for op in operators]
    return ("rel", tuple(kept), sides[: len(kept) + 1])


def _equation(node: Node) -> bool:
    return node[0] == "rel" and all(op == "=" for op in node[1])


def _name(node: Node) -> Node | None:
    """Return the left side of a definition: a variable, or a function of variables or numbers."""
    left: Node = _vector(node[2][0]) or node[2][0]
    parts = {"sym": (left,), "*": left[1], "seq": left[-1], "fn": left[-1]}.get(
        left[0]
    )  # x, P(x), (x, y), f(2)
    numbers = left[0] == "fn" and left[1].rstrip("'") in USERS
    if parts is None or (left[0] == "fn" and not numbers):
        return None
    return left if all(x[0] == "sym" or (numbers and constant(x)) for x in parts) else None


def _says(answer: Node) -> Node | None:
    """Return the value that a chain of equations states, or None.

    The left side must be a name, a sum of several unknowns, or a number that equals the last one: x^2 = 5
    states no value of x.
    """
    sides: tuple[Node, ...] = answer[2]
    first, last = sides[0], sides[-1]
    summed = first[0] == "+" and len(set(first[1])) == len(first[1]) and all(x[0] == "sym" for x in first[1])
    length = (
        first[:2] == ("fn", "abs") and first[2][0][0] == "*" and all(x[0] == "sym" for x in first[2][0][1])
    )
    if any(constant(side) and constant(last) and same(side, last) is False for side in sides[1:-1]):
        return None  # 2 + 2 = 5 = 4
    if _name(answer) is not None or summed or length:
        return last
    comparable = is_scalar(first) or first[0] in ("seq", "union", "rel")
    return last if comparable and same(first, last) else None


def _relations(gold: Node, answer: Node) -> tuple[Node, Node] | None:
    """Remove names: the answer's if the reference has none, the reference's if the answer has none.

    Return None if the reference is a value and the answer is an equation that states no value.
    """
    gold, answer = _drop_approximations(gold), _drop_approximations(answer)
    if gold[0] == "seq" and answer[0] == "seq":
        firsts = [tree[3][0] for tree in (gold, answer) if tree[3] and _equation(tree[3][0])]
        if all(any(map(_equation, tree[3])) for tree in (gold, answer)):
            # n = 1, 2, 3 on both sides: the name holds for the whole list
            listed = not any(_equation(x) for tree in (gold, answer) for x in tree[3][1:])
            if not (listed and len(firsts) == 2 and firsts[0][2][0] == firsts[1][2][0]):
                return gold, answer
        return _remove_names(gold), _remove_names(answer)
    if _equation(answer) and not _equation(gold):
        stated = _says(answer)
        if stated is None:
            return (gold, answer) if gold[0] == "seq" else None
        return (_remove_names(gold) if gold[0] == "seq" and not gold[1] else gold), stated
    if _equation(gold) and answer[0] != "rel" and _name(gold) is not None:
        return gold[2][-1], _remove_names(answer)
    return gold, answer


def _remove_names(tree: Node) -> Node:
    if tree[0] != "seq":
        return tree
    members = (x[2][-1] if _equation(x) and (_name(x) or ("seq",))[0] != "seq" else x for x in tree[3])
    return (*tree[:3], tuple(members))


def _bound(name: Node) -> bool:
    """Return whether it is like f(x, y), whose variables may be renamed; f(2) is one value."""
    return name[0] == "fn" and all(x[0] == "sym" for x in name[2]) and len(set(name[2])) == len(name[2])


def _same_relation(gold: Node, answer: Node) -> bool | None:
    if _equation(gold) and _equation(answer):
        left, right = _name(gold), _name(answer)
        if left is not None and right is not None:
            if left == right:
                return same(gold[2][-1], answer[2][-1])
            if _bound(left) and _bound(right) and left[1] == right[1] and len(left[2]) == len(right[2]):
                bound = [("sym", f"argument {i}") for i in range(len(left[2]))]
                return same(
                    rename_variables(gold[2][-1], dict(zip(left[2], bound, strict=True))),
                    rename_variables(answer[2][-1], dict(zip(right[2], bound, strict=True))),
                )
            if constant(gold[2][-1]) and constant(answer[2][-1]) and left[0] == right[0] == "sym":
                return False  # x = 1 and y = 1
            if "fn" in (left[0], right[0]):  # f(x) = 2x and y = 2x may be the same: sympy may say
                return None if same(gold[2][-1], answer[2][-1]) is not False else False
        return _same_equation(gold, answer) if len(gold[1]) == len(answer[1]) == 1 else None
    if len(gold[1]) == len(answer[1]) == 1 and gold[1] != ("in",) and answer[1] != ("in",):
        operator, (a, b) = gold[1][0], gold[2]
        other, (c, d) = answer[1][0], answer[2]
        ratio = _ratio(("+", (a, ("-", b))), ("+", (c, ("-", d))))
        if ratio is not None and (operator == other if ratio > 0 else _FLIPPED[operator] == other):
            return True
        if operator == "!=" or other == "!=":
            return None if ratio is None else operator == other
    return same_set(gold, answer) if is_inequality(gold) and is_inequality(answer) else None


def _ratio(a: Node, b: Node) -> Fraction | None:
    """Return a / b if it is the same nonzero fraction at several points."""
    ratios: set[Fraction] = set()
    try:
        for point in range(4):
            field = Exact(point)
            ratios.add(value(a, field) / value(b, field))
    except (Inexact, Undefined, Opaque, TooBigHere, ZeroDivisionError):
        return None
    ratio = ratios.pop()
    if ratios or not ratio:
        return None
    try:
        turns = any(facts(a)[1:] + facts(b)[1:])
    except Opaque:
        return ratio
    return ratio if not turns or same_value(a, ("*", (("num", ratio, None), b))) else None


def _same_equation(gold: Node, answer: Node) -> bool | None:
    """Return whether two equations have the same solutions, as multiples do; sympy may decide others."""
    left, right = (("+", (a, ("-", b))) for a, b in (gold[2], answer[2]))
    try:
        if facts(left)[0] != facts(right)[0]:
            return False  # 1 = 1, or an equation of other unknowns
    except Opaque:
        return None
    if _ratio(left, right) is not None:
        return True
    return False if _has_other_root(left, right) or _has_other_root(right, left) else None


def _value_at(node: Node, name: str, number: complex) -> complex:
    return complex(value(node, Float(1, "near", {name: number})))


def _has_other_root(a: Node, b: Node) -> bool:
    """Return whether a root of `a`, found by the secant method in one variable, is clearly not one of `b`."""
    try:
        names = sorted(facts(a)[0])
        facts(b)
    except Opaque:
        return False
    for name in names[:2]:
        try:
            x, y = complex(0.7, 0.3), complex(1.3, -0.2)
            fx, fy = _value_at(a, name, x), _value_at(a, name, y)
            for _ in range(40):
                if fx == fy or abs(fy) < 1e-13:
                    break
                x, y, fx = y, y - fy * (y - x) / (fy - fx), fy
                fy = _value_at(a, name, y)
            if abs(fy) < 1e-10 and abs(_value_at(b, name, y)) > 1e-4 * (1 + abs(y)) and abs(y) < 1e4:
                return True
        except (TooBig, Opaque, Undefined):
            continue
    return False
