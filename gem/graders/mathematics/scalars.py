"""Comparison of two numbers or expressions: equal (True), different (False), or undecided (None).

Expressions are evaluated at a few fixed points. If possible they are evaluated as fractions (two different
polynomials or rational functions agree at a random point with a chance of about 1e-9). Otherwise they are
evaluated as floating-point numbers, where a difference decides. If these agree, mpmath evaluates them:
numbers made of integers and roots to so many digits that equality is proved (`separation`), and those with e,
pi and functions to several times the digits that all sizes in the expression can hide. Units, percent and
rounded decimals are compared by the rules in docs/guides/grader_mathematics.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from gem.graders.mathematics.evaluation import (
    EXACT,
    FLOAT,
    USERS,
    Exact,
    Float,
    FloatAt,
    Inexact,
    Opaque,
    Precise,
    TooBig,
    TooBigHere,
    Undefined,
    as_real,
    separation,
    value,
)
from gem.graders.mathematics.nouns import is_unit_or_noun, same_things
from gem.graders.mathematics.trees import Node, bare, subtrees
from gem.graders.mathematics.units import measure

FLOAT_PLACES = 6  # decimals that an approximation of a fraction must have: math-verify's float_rounding
FULL_DIGITS = 12  # digits that an approximation of an irrational number must have


@lru_cache(maxsize=4096)
def facts(node: Node) -> tuple[frozenset[str], bool, bool, bool]:
    """Return a scalar tree's variables, and whether one is in an exponent, in a floor, or in a bent function.

    A bent function has more than one piece, such as a root or an absolute value.

    Raises:
        Opaque: when it is not a scalar, or holds an unknown function, or 0 to a power with a variable, which
            is 0 except at one point.
    """
    tag = node[0]
    if tag == "sym":
        return frozenset([node[1]]), False, False, False
    if tag in ("num", "const"):
        return frozenset(), False, False, False
    known = tag == "fn" and (node[1] in FLOAT or node[1] in EXACT or node[1].rstrip("'") in USERS)
    degrees = tag == "unit" and node[2] in ("degree", "degrees")
    if not (known or degrees or tag in ("+", "*", "/", "^", "-", "%")):
        raise Opaque
    parts = [facts(part) for part in ([node[1]] if degrees else _parts(node))]
    names = frozenset().union(*(part[0] for part in parts))
    exponent, floor, bend = (any(part[i] for part in parts) for i in (1, 2, 3))
    raised = tag == "^" and bool(parts[1][0])
    if raised and not parts[0][0] and exactly(node[1]) == 0:
        raise Opaque
    called = node[1] if tag == "fn" and names else ""
    root = tag == "^" and node[2][0] == "/" and bool(names)
    return (
        names,
        exponent or raised or called in _OF_INTEGERS,
        floor or called in ("floor", "ceil"),
        bend or root or called in _BENT,
    )


_OF_INTEGERS = frozenset(("factorial", "factorials", "binom", "mod", "gcd", "lcm"))
_BENT = frozenset(("abs", "max", "min", "sqrt", "cbrt", "root"))


def same_value(a: Node, b: Node) -> bool | None:
    """Return whether two scalar trees are equal wherever both are defined.

    Raises:
        TooBig: for numbers that are too big to compute.
    """
    if a == b:
        return True
    try:
        names_a, *kinds_a = facts(a)
        names_b, *kinds_b = facts(b)
    except Opaque:
        return None
    names = names_a | names_b
    exponent, floor, bend = (x or y for x, y in zip(kinds_a, kinds_b, strict=True))
    if not names:
        if infinite(a) or infinite(b):
            return approximately(a) == approximately(b)
        verdict = _same_at(a, b, 0, "rational")
        return False if verdict is None and _is_undefined(a) != _is_undefined(b) else verdict
    kind, points = ("small", 10) if exponent else ("whole", 24) if floor else ("rational", 6)
    continuous = any(name[0] in _REAL for name in names)
    if floor and (continuous or _idle(a) or _idle(b)):
        kind, points = "rational", 6
    agreed = 0
    for point in range(points):
        verdict = _same_at(a, b, point, kind, quick=agreed > 0)
        if verdict is False:
            # at a negative value two expressions of roots and logarithms may take different branches
            return False if kind != "rational" or point not in (2, 3) else None
        agreed += verdict is True
        if kind == "rational" and agreed >= 4:
            break
    if kind == "small" and continuous and any(_same_at(a, b, point, "rational") is False for point in (0, 1)):
        return False
    if agreed >= 4 and (exponent or floor or bend):
        return _same_where_they_turn(a, b, sorted(names), continuous or kind == "rational")
    return True if agreed >= 4 else None


TURNS = 12  # numbers of an expression at which it is looked at


def _same_where_they_turn(a: Node, b: Node, names: list[str], continuous: bool) -> bool | None:
    """Return whether two expressions that agree at drawn points also agree where one may jump or bend.

    These points are small integers and halves, and the numbers in the expressions and next to them.
    """
    turns = sorted({abs(number) for tree in (a, b) for number in _numerals(tree)})[:TURNS]
    places = {Fraction(n) for n in (0, 1, -1, 2, 3)}
    places |= {turn + step for turn in turns for step in (-1, 0, 1)} | {
        sign - turn for turn in turns for sign in (0, 1)
    }
    if continuous:
        places |= {Fraction(n, 2) for n in (1, -1, 3)} | {turn + Fraction(1, 2) for turn in turns}
    else:
        places = {place for place in places if place.denominator == 1}
    alone = names if len(names) < 4 else []
    return all_of(
        _same_with(a, b, values, place < 0)
        for place in sorted(places)
        for values in (*({name: place} for name in alone), dict.fromkeys(names, place))
    )


def _numerals(node: Node) -> Iterable[Fraction]:
    for part in subtrees(node):
        number = exactly(part) if part[0] in ("num", "^") and constant(part) else None
        if number is not None and abs(number) <= 10**12:
            yield number


def _same_with(a: Node, b: Node, values: dict[str, Fraction], negative: bool) -> bool | None:
    """Return whether both have the same value, or none, at a point; None if they take different branches."""
    for kind in (Exact, FloatAt):
        field = kind(1, "small")
        field.given = {name: field.number(number) for name, number in values.items()}
        try:
            x, y = value(a, field), value(b, field)
        except (Inexact, TooBig):
            continue
        except (Undefined, Opaque):
            return True
        near = kind is FloatAt and abs(x - y) <= 1e-6 * max(abs(x), abs(y), 1.0)
        return x == y or near or (None if negative and kind is FloatAt else False)
    return True


_REAL = frozenset("xyztuvwθ?")
"""First letters of variables that are not integers, which a floor changes."""


def _idle(node: Node) -> bool:
    """Return whether a floor in the tree does not change integers; then its variables are not integers."""
    with contextlib.suppress(Inexact, Undefined, Opaque, TooBig):
        for part in subtrees(node):
            rounded = part[2][0] if part[:2] in (("fn", "floor"), ("fn", "ceil")) else None
            if rounded and all(value(rounded, Exact(point, "whole")).denominator == 1 for point in range(8)):
                return True
    return False


def _parts(node: Node) -> tuple[Node, ...]:
    tag = node[0]
    if tag in ("+", "*"):
        return tuple(node[1])
    if tag == "fn":
        return tuple(node[2])
    return tuple(node[1:]) if tag in ("/", "^", "-", "%") else ()


def _same_at(a: Node, b: Node, point: int, kind: str, quick: bool = False) -> bool | None:
    """Return whether both have the same value at a point; None if it is undefined or undecided.

    `quick`: agreement to some 40 digits is enough, because an earlier point was checked closely.
    """
    try:
        exact = Exact(point, kind)
        return bool(value(a, exact) == value(b, exact))
    except (Inexact, Opaque, TooBigHere):
        pass
    except Undefined:
        return None
    try:
        floating = Float(point, kind)
        x, y = value(a, floating), value(b, floating)
        if abs(x - y) > 1e-6 * max(abs(x), abs(y), 1e-30) and max(abs(x), abs(y)) > 1e-6:
            return False
    except (TooBig, Opaque):
        pass
    except Undefined:
        return None
    try:
        return _agree(a, b, point, kind, quick)
    except (Undefined, Opaque, TooBigHere):
        return None


MOST_BITS = 12_000
"""The most bits to which two numbers are computed before the comparison is undecided."""


def _agree(a: Node, b: Node, point: int, kind: str, quick: bool) -> bool | None:
    """Compare with mpmath, first to some 60 digits, then to as many as the expression can hide."""
    field = Precise(point, kind)
    gap = abs(value(a, field) - value(b, field))
    if gap > field.context.ldexp(1, field.top - 100):
        return False
    if quick:
        return True if gap < field.context.ldexp(1, field.top - 140) else None
    # with variables, a point that nobody chose: no digits were made to agree there
    bits = 160 + 2 * (field.widest if facts(a)[0] or facts(b)[0] else field.total)
    if not (facts(a)[0] or facts(b)[0]):
        bits = separation(("+", (a, ("-", b)))) or bits
    if bits > MOST_BITS:
        raise TooBigHere
    exact = Precise(point, kind, 2 * bits + field.top + 64)
    return bool(abs(value(a, exact) - value(b, exact)) < exact.context.ldexp(1, -bits))


def _is_undefined(node: Node) -> bool:
    for field in (Exact(), Float()):
        try:
            value(node, field)
            return False
        except Undefined:
            return True
        except (Inexact, Opaque, TooBig):
            continue
    return False


def constant(node: Node) -> bool:
    """Return whether a tree is a scalar without variables."""
    try:
        return not facts(node)[0]
    except Opaque:
        return False


def is_scalar(node: Node) -> bool:
    """Return whether a tree is a number or an expression that can be evaluated."""
    try:
        facts(node[1] if node[0] == "unit" else node)
    except Opaque:
        return False
    return True


def exactly(node: Node) -> Fraction | None:
    """Return a constant's value if it is a fraction that can be computed, else None."""
    try:
        return value(node, Exact()) if constant(node) else None
    except (Inexact, Undefined, Opaque, TooBigHere):
        return None


def approximately(node: Node) -> float | None:
    """Return a real constant's value as a float; infinities for themselves."""
    if node == ("const", "inf"):
        return math.inf
    if node == ("-", ("const", "inf")):
        return -math.inf
    try:
        number = value(node, Float()) if constant(node) else None
        return None if number is None else as_real(number)
    except (TooBig, Opaque, Undefined):
        return None


def infinite(node: Node) -> bool:
    """Return whether the value is infinite."""
    return math.isinf(approximately(node) or 0.0)


# -- numbers as they are written: units, percent, decimals


def same_scalar(gold: Node, answer: Node) -> bool | None:
    """Compare two values, each with its unit if it has one."""
    gold, gold_unit = gold[1:] if gold[0] == "unit" else (gold, "")
    answer, answer_unit = answer[1:] if answer[0] == "unit" else (answer, "")
    if not answer_unit and _letter_unit(answer) and constant(gold):  # "5 m" where 5 is asked for
        answer, answer_unit = answer[1][0], answer[1][1][1] if gold_unit else ""
    elif not gold_unit and _letter_unit(gold) and answer_unit and measure(answer_unit):
        gold, gold_unit = gold[1][0], gold[1][1][1]
    if "%" in (gold[0], answer[0]) and (gold_unit or answer_unit):
        return same_number(gold, answer) if gold_unit == answer_unit else False
    if {gold_unit, answer_unit} & {"degree", "degrees", "deg"} and not (gold_unit and answer_unit):
        turned = [
            ("unit", x, "degree") if unit else x for x, unit in ((gold, gold_unit), (answer, answer_unit))
        ]
        return same_number(*turned) or same_number(gold, answer)
    if not _units_agree(gold_unit, answer_unit):
        return False
    left, right = (measure(unit.strip("()")) for unit in (gold_unit, answer_unit))
    if left and right and left != right:
        gold = ("*", (("num", left.size / right.size, None), gold))
    return same_number(gold, answer)


def _units_agree(gold: str, answer: str) -> bool:
    """Return whether the words after two numbers agree, or certainly change nothing if one has none."""
    if not gold or not answer:
        return gold == answer or gold[:1] == "(" or is_unit_or_noun((gold or answer).strip("()"))
    gold, answer = gold.strip("()"), answer.strip("()")
    left, right = measure(gold), measure(answer)
    return left.powers == right.powers if left and right else same_things(gold, answer)


def _letter_unit(node: Node) -> bool:
    """Return whether it is a number times one letter that is also a unit."""
    if node[0] != "*" or len(node[1]) != 2 or node[1][1][0] != "sym":
        return False
    return node[1][1][1] in ("m", "g", "s", "h", "L", "l") and constant(node[1][0])


def same_number(gold: Node, answer: Node) -> bool | None:
    """Compare two values without units; percentages are compared as such."""
    percents = gold[0] == "%", answer[0] == "%"
    if all(percents):
        return same_number(gold[1], answer[1])
    if any(percents):
        face = same_number(gold[1], answer) if percents[0] else same_number(gold, answer[1])
        plain = answer if percents[0] else gold
        number = exactly(plain)
        # 12.5 may stand for 12.5%, 25/2 does not
        if (
            face is True
            and number is not None
            and (percents[0] or (bare(plain)[0] == "num" and abs(number) > 1))
        ):
            return True
    return _numbers(gold, answer)


def _numbers(gold: Node, answer: Node) -> bool | None:
    places = [tree[2] if tree[0] == "num" else None for tree in map(bare, (gold, answer))]
    if places == [None, None] or not (constant(gold) and constant(answer)):
        return same_value(gold, answer)
    left, right = exactly(gold), exactly(answer)
    if left is not None and right is not None:
        return left == right or _is_rounding(left, right, places)
    verdict = same_value(gold, answer)
    if verdict is not False or (left is None) == (right is None):
        return verdict
    # an irrational number and a decimal: all the digits of a double, or it is not the number
    decimal, digits, other = (right, places[1], gold) if left is None else (left, places[0], answer)
    if decimal is None or digits is None or len(str(abs(int(decimal * 10**digits)))) < FULL_DIGITS:
        return False
    near = approximately(other)
    return near is not None and abs(near - float(decimal)) <= max(10.0**-digits, 4e-16 * abs(near)) * 1.01


def _is_rounding(left: Fraction, right: Fraction, places: list[int | None]) -> bool:
    """Return whether the shorter decimal is the other number rounded to its own six or more decimals."""
    known = [count for count in places if count is not None]
    count = min(known)
    if len(known) == 2 and max(known) >= 15 and abs(left - right) <= Fraction(4, 10**16) * abs(left):
        return True  # 0.30000000000000004 is how a program says 0.3
    if count < FLOAT_PLACES or known == [count, count]:
        return False
    short, long = (left, right) if places[0] == count else (right, left)
    return len(str(abs(int(short * 10**count)))) >= 4 and round(long, count) == short


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Return True if all are true, False if one is false, else None."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True
