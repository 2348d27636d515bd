"""Whether two numbers or expressions are equal: True, False, or None where sampling cannot tell.

Expressions are evaluated at a few fixed points: as fractions where that works (two different polynomials or
rational functions agree at random points with a chance of about 1e-9 a point), else as floating-point
numbers, where a difference decides, and, where these agree, to 50 digits with mpmath. Units, percent and
rounded decimals are compared by the rules in docs/graders.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from gem.graders._evaluation import (
    EXACT,
    FLOAT,
    Exact,
    Float,
    Inexact,
    Opaque,
    Precise,
    TooBig,
    Undefined,
    as_real,
    value,
)
from gem.graders._latex import UNITS, Node

FLOAT_PLACES = 6  # decimals that an approximation of a fraction must have: math-verify's float_rounding
FULL_DIGITS = 12  # digits that an approximation of an irrational number must have


@lru_cache(maxsize=4096)
def facts(node: Node) -> tuple[frozenset[str], bool, bool, bool]:
    """Return a scalar tree's variables, and whether one is an exponent, stands in a floor, and in a root.

    Raises:
        Opaque: when it is no scalar, or holds a function that nobody knows.
    """
    tag = node[0]
    if tag == "sym":
        return frozenset([node[1]]), False, False, False
    if tag in ("num", "const"):
        return frozenset(), False, False, False
    if tag == "fn":
        if node[1] not in FLOAT and node[1] not in EXACT:
            raise Opaque
        below = node[2]
    elif tag in ("+", "*"):
        below = node[1]
    elif tag in ("-", "%"):
        below = (node[1],)
    elif tag in ("/", "^"):
        below = (node[1], node[2])
    elif tag == "unit" and node[2] in ("degree", "degrees"):
        below = (node[1],)
    else:
        raise Opaque
    parts = [facts(part) for part in below]
    names = frozenset().union(*(part[0] for part in parts))
    exponent, floor, root = (any(part[i] for part in parts) for i in (1, 2, 3))
    if (tag == "^" and parts[1][0]) or (
        tag == "fn" and node[1] in ("factorial", "binom", "mod", "gcd", "lcm") and names
    ):
        exponent = True
    if tag == "fn" and node[1] in ("floor", "ceil") and names:
        floor = True
    if (tag == "fn" and node[1] not in ("floor", "ceil", "factorial", "binom")) or (tag == "^" and names):
        root = True
    return names, exponent, floor, root


def same_value(a: Node, b: Node) -> bool | None:
    """Whether two scalar trees are equal wherever both are defined.

    Raises:
        TooBig: for numbers that nobody computes.
    """
    if a == b:
        return True
    try:
        names_a, *kinds_a = facts(a)
        names_b, *kinds_b = facts(b)
    except Opaque:
        return None
    names = names_a | names_b
    exponent, floor, _ = (x or y for x, y in zip(kinds_a, kinds_b, strict=True))
    if not names:
        if infinite(a) or infinite(b):
            return approximately(a) == approximately(b)
        verdict = _same_at(a, b, 0, "rational")
        return False if verdict is None and _undefined(a) != _undefined(b) else verdict
    kind, points = ("small", 10) if exponent else ("whole", 24) if floor else ("rational", 6)
    agreed = 0
    for point in range(points):
        verdict = _same_at(a, b, point, kind)
        if verdict is False:
            # at a negative value two expressions of roots and logarithms may take different branches
            return False if kind != "rational" or point not in (2, 3) else None
        agreed += verdict is True
        if kind == "rational" and agreed >= 4:
            break
    return True if agreed >= 4 else None


def _same_at(a: Node, b: Node, point: int, kind: str) -> bool | None:
    """Whether both have the same value at a point; None where it is undefined or cannot be told."""
    try:
        exact = Exact(point, kind)
        return bool(value(a, exact) == value(b, exact))
    except (Inexact, Opaque):
        pass
    except Undefined:
        return None
    except TooBig as big:
        if big.hopeless:
            raise
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
        precise = Precise(point, kind)
        x, y = value(a, precise), value(b, precise)
    except (Undefined, Opaque):
        return None
    except TooBig as big:
        if big.hopeless:
            raise
        return None
    size = max(abs(x), abs(y))
    gap = abs(x - y)
    if gap <= size * precise.context.mpf(10) ** -48 or gap < precise.context.mpf(10) ** -50:
        return True
    return False if gap > size * precise.context.mpf(10) ** -20 else None


def _undefined(node: Node) -> bool:
    for field in (Exact(), Float()):
        try:
            value(node, field)
        except Undefined:
            return True
        except (Inexact, Opaque, TooBig):
            continue
        return False
    return False


def constant(node: Node) -> bool:
    """Whether a tree is a scalar without variables."""
    try:
        return not facts(node)[0]
    except Opaque:
        return False


def is_scalar(node: Node) -> bool:
    """Whether a tree is a number or an expression that can be evaluated."""
    try:
        facts(node[1] if node[0] == "unit" else node)
    except Opaque:
        return False
    return True


def exactly(node: Node) -> Fraction | None:
    """Return a constant's value when it is a fraction that can be computed."""
    try:
        return value(node, Exact()) if constant(node) else None
    except (Inexact, Undefined, Opaque):
        return None
    except TooBig as big:
        if big.hopeless:
            raise
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
    return math.isinf(approximately(node) or 0.0)


# -- numbers as they are written: units, percent, decimals


def same_scalar(gold: Node, answer: Node) -> bool | None:
    gold_unit, answer_unit = "", ""
    if gold[0] == "unit":
        _, gold, gold_unit = gold
    if answer[0] == "unit":
        _, answer, answer_unit = answer
    if not answer_unit and _letter_unit(answer) and constant(gold):  # "5 m" where 5 is asked for
        answer = answer[1][0]
    elif not gold_unit and _letter_unit(gold) and answer_unit and _unit(answer_unit):
        gold, gold_unit = gold[1][0], gold[1][1][1]
    if gold_unit and answer_unit:
        left, right = _unit(gold_unit), _unit(answer_unit)
        if left and right and left != right:
            if left[0] != right[0]:
                return False
            scale = left[1] / right[1]
            gold = ("*", (("num", scale, None), gold))
    elif {gold_unit, answer_unit} & {"degree", "degrees", "deg"} and not (gold_unit and answer_unit):
        verdict = same_number(gold, answer)
        radians = same_number(
            ("unit", gold, "degree") if gold_unit else gold,
            ("unit", answer, "degree") if answer_unit else answer,
        )
        return True if verdict or radians else verdict
    return same_number(gold, answer)


def _letter_unit(node: Node) -> bool:
    """Whether it is a number times one letter that is also a unit."""
    if node[0] != "*" or len(node[1]) != 2 or node[1][1][0] != "sym":
        return False
    return node[1][1][1] in ("m", "g", "s", "h", "L", "l") and constant(node[1][0])


def _unit(name: str) -> tuple[str, Fraction] | None:
    return UNITS.get(name) or UNITS.get(name.rstrip("s"))


def same_number(gold: Node, answer: Node) -> bool | None:
    if gold[0] == "%" and answer[0] == "%":
        return same_number(gold[1], answer[1])
    if gold[0] == "%" or answer[0] == "%":
        face = same_number(gold[1] if gold[0] == "%" else gold, answer[1] if answer[0] == "%" else answer)
        plain = answer if gold[0] == "%" else gold
        number = exactly(plain)
        written = plain[1] if plain[0] == "-" else plain  # 12.5 may stand for 12.5%, 25/2 does not
        if (
            face is True
            and number is not None
            and (gold[0] == "%" or (written[0] == "num" and abs(number) > 1))
        ):
            return True
        return _numbers(gold, answer)
    return _numbers(gold, answer)


def _numbers(gold: Node, answer: Node) -> bool | None:
    places = _places(gold), _places(answer)
    if places == (None, None):
        return same_value(gold, answer)
    if not (constant(gold) and constant(answer)):
        return same_value(gold, answer)
    left, right = exactly(gold), exactly(answer)
    if left is not None and right is not None:
        return left == right or _rounded(left, right, places)
    if (left is None) == (right is None):
        return same_value(gold, answer)
    verdict = same_value(gold, answer)
    if verdict is not False:
        return verdict
    # an irrational number and a decimal: all the digits of a double, or it is not the number
    decimal, other = (left, answer) if left is not None else (right, gold)
    digits = places[0] if left is not None else places[1]
    if (
        decimal is None
        or digits is None
        or len(str(abs(decimal.numerator * 10**digits // decimal.denominator))) < FULL_DIGITS
    ):
        return False
    near = approximately(other)
    return near is not None and abs(near - float(decimal)) <= max(10.0**-digits, 4e-16 * abs(near)) * 1.01


def _places(node: Node) -> int | None:
    """The decimals of a number that was written as one, signs and percent aside."""
    while node[0] in ("-", "%"):
        node = node[1]
    return node[2] if node[0] == "num" else None


def _rounded(left: Fraction, right: Fraction, places: tuple[int | None, int | None]) -> bool:
    """Whether the shorter decimal is the other number rounded to its own, six or more, decimals."""
    known = [count for count in places if count is not None]
    count = min(known)
    if len(known) == 2 and max(known) >= 15 and abs(left - right) <= Fraction(4, 10**16) * abs(left):
        return True  # 0.30000000000000004 is how a program says 0.3
    if count < FLOAT_PLACES:
        return False
    short = (left, right) if places[0] == count else (right, left)
    if len(known) == 2 and known[0] == known[1]:
        return False
    digits = len(str(abs(short[0].numerator * 10**count // short[0].denominator)).lstrip("0"))
    return digits >= 4 and round(short[1], count) == short[0]


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """True when all are; False when one is; else None."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True
