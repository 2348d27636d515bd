"""Whether two trees mean the same: True, False, or None where this module cannot tell.

Numbers are compared as fractions. Expressions are evaluated at a few fixed points: as fractions where that
works (two different polynomials or rational functions agree at random points with a chance of about 1e-9 a
point), else as floating-point numbers, where a difference decides, and, where these agree, to 50 digits with
mpmath. True and False are said only where every step was sound; the rest is sympy's business.
"""

from __future__ import annotations

import cmath
import math
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from gem.graders._latex import UNITS, Node

BITS = 1 << 16
"""Size of the numbers that are computed exactly."""

HUGE = 2_000_000
"""Bits from which on a number is nobody's business: sympy is not asked either."""

SETS = 40  # members of a finite set that are compared one by one
FLOAT_PLACES = 6  # decimals that an approximation of a fraction must have: math-verify's float_rounding
FULL_DIGITS = 12  # digits that an approximation of an irrational number must have


class Undefined(Exception):
    """The value does not exist at this point."""


class Inexact(Exception):
    """The value is no fraction."""


class TooBig(Exception):
    """The number is too big to compute; `hopeless` when anybody else would burst on it too."""

    def __init__(self, hopeless: bool = False) -> None:
        super().__init__()
        self.hopeless = hopeless


class Opaque(Exception):
    """The tree holds what this module does not compute."""


# -- evaluation

Number = Any  # Fraction, complex or mpmath's mpc


def value(node: Node, field: _Field) -> Number:
    """Return the value of a scalar tree in a field.

    Raises:
        Undefined, Inexact, TooBig, Opaque.
    """
    tag = node[0]
    if tag == "num":
        return field.number(node[1])
    if tag == "sym":
        return field.symbol(node[1])
    if tag == "+":
        total = value(node[1][0], field)
        for term in node[1][1:]:
            total = total + value(term, field)
        return field.checked(total)
    if tag == "*":
        product = value(node[1][0], field)
        for factor in node[1][1:]:
            product = field.checked(product * value(factor, field))
        return product
    if tag == "-":
        return -value(node[1], field)
    if tag == "/":
        top, below = value(node[1], field), value(node[2], field)
        if below == 0:
            raise Undefined
        return field.checked(top / below)
    if tag == "^":
        base = value(node[1], field)
        odd = _odd_root_of(node[2]) if node[2][0] in ("/", "-") else None
        if odd is not None:  # x^{2/3} is the square of the real root, as with a root sign
            root = field.function("root", [base, field.number(Fraction(odd.denominator))])
            return field.power(root, field.number(Fraction(odd.numerator)))
        return field.power(base, value(node[2], field))
    if tag == "const":
        return field.constant(node[1])
    if tag == "%":
        return value(node[1], field) / field.number(Fraction(100))
    if tag == "fn":
        return field.function(node[1], [value(argument, field) for argument in node[2]])
    if tag == "unit" and node[2] in ("degree", "degrees"):
        return value(node[1], field) * field.constant("pi") / field.number(Fraction(180))
    raise Opaque


def _odd_root_of(exponent: Node) -> Fraction | None:
    """Return an exponent such as 2/3, a fraction over an odd number."""
    sign = 1
    while exponent[0] == "-":
        sign, exponent = -sign, exponent[1]
    if exponent[0] != "/" or exponent[1][0] != "num" or exponent[2][0] != "num" or not exponent[2][1]:
        return None
    number = sign * exponent[1][1] / exponent[2][1]
    return Fraction(number) if 1 < number.denominator < 10 and number.denominator % 2 else None


class _Field:
    """Where trees are evaluated: a kind of number, and values for the variables."""

    def __init__(self, point: int = 0, kind: str = "rational") -> None:
        self.point, self.kind = point, kind

    def symbol(self, name: str) -> Number:
        return self.number(sample(name, self.point, self.kind))

    def number(self, number: Fraction) -> Number:
        raise NotImplementedError

    def constant(self, name: str) -> Number:
        raise NotImplementedError

    def power(self, base: Number, exponent: Number) -> Number:
        raise NotImplementedError

    def function(self, name: str, arguments: list[Number]) -> Number:
        raise NotImplementedError

    def checked(self, number: Number) -> Number:
        return number


class Exact(_Field):
    """Fractions."""

    def number(self, number: Fraction) -> Fraction:
        return number

    def constant(self, name: str) -> Fraction:
        raise Undefined if name == "inf" else Inexact

    def checked(self, number: Fraction) -> Fraction:
        if number.numerator.bit_length() > BITS or number.denominator.bit_length() > BITS:
            raise TooBig
        return number

    def power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1:
            return _root(self.power(base, Fraction(exponent.numerator)), exponent.denominator)
        n = exponent.numerator
        if base == 0 and n < 0:
            raise Undefined
        if base in (0, 1, -1):
            return base ** (n % 2 + 2) if n else Fraction(1)
        size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if abs(n) * max(size, 1) > BITS:
            raise TooBig(hopeless=abs(n) * max(size, 1) > HUGE)
        return base**n

    def function(self, name: str, arguments: list[Fraction]) -> Fraction:
        exact = _EXACT.get(name)
        if exact is None:
            raise Inexact if name in _FLOAT else Opaque
        try:
            return exact(*arguments)
        except TypeError as error:  # another number of arguments
            raise Opaque from error


def _root(number: Fraction, degree: int) -> Fraction:
    if number < 0 or not 0 < degree <= 64:
        raise Inexact
    top, below = _integer_root(number.numerator, degree), _integer_root(number.denominator, degree)
    return Fraction(top, below)


def _odd_root(number: Fraction, degree: int) -> Fraction:
    """An odd root of a negative number is taken to be the real one."""
    return -_root(-number, degree) if number < 0 and degree % 2 else _root(number, degree)


def _integer_root(number: int, degree: int) -> int:
    if number < 2:
        return number
    root = math.isqrt(number) if degree == 2 else round(number ** (1 / degree)) if number < 1 << 900 else 0
    if root**degree != number:
        raise Inexact
    return root


def _whole(number: Fraction) -> int:
    if number.denominator != 1:
        raise Inexact
    return number.numerator


def _factorial(number: Fraction) -> Fraction:
    n = _whole(number)
    if n < 0:
        raise Undefined
    if n > 4000:
        raise TooBig(hopeless=n > 100_000)
    return Fraction(math.factorial(n))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    top, below = _whole(n), _whole(k)
    if top < 0 or below < 0:
        raise Inexact
    if min(below, top - below) > 4000 or top > 1 << 64:
        raise TooBig(hopeless=min(below, top - below) > 100_000)
    return Fraction(math.comb(top, below))


def _exact_log(number: Fraction, base: Fraction) -> Fraction:
    """Compute log_2 8 and the like; the logarithms of other numbers are no fractions."""
    if number <= 0 or base <= 0 or base == 1:
        raise Undefined if number == 0 else Inexact
    size = math.log(number.numerator) - math.log(number.denominator)
    guess = round(size / (math.log(base.numerator) - math.log(base.denominator)))
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(guess) * bits > BITS or base**guess != number:
        raise Inexact
    return Fraction(guess)


def _modulo(number: Fraction, by: Fraction) -> Fraction:
    if by == 0:
        raise Undefined
    return number % by


_EXACT: dict[str, Callable[..., Fraction]] = {
    "sqrt": lambda x: _root(x, 2),
    "cbrt": lambda x: _odd_root(x, 3),
    "root": lambda x, n: _odd_root(x, _whole(n)),
    "abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceil": lambda x: Fraction(math.ceil(x)),
    "factorial": _factorial,
    "binom": _binomial,
    "mod": _modulo,
    "gcd": lambda *xs: Fraction(math.gcd(*map(_whole, xs))),
    "lcm": lambda *xs: Fraction(math.lcm(*map(_whole, xs))),
    "max": lambda *xs: max(xs),
    "min": lambda *xs: min(xs),
    "log": lambda x, base=None: _one_only(x) if base is None else _exact_log(x, base),
    "ln": lambda x: _one_only(x),
    "log10": lambda x: _exact_log(x, Fraction(10)),
}


def _one_only(number: Fraction) -> Fraction:
    if number == 1:
        return Fraction(0)
    raise Undefined if number == 0 else Inexact


class Float(_Field):
    """Complex floating-point numbers: good enough to see that two values differ."""

    def number(self, number: Fraction) -> complex:
        try:
            return complex(number.numerator / number.denominator)
        except OverflowError as error:
            raise TooBig from error

    def constant(self, name: str) -> complex:
        if name == "inf":
            raise Undefined
        return {"e": complex(math.e), "pi": complex(math.pi), "i": 1j}[name]

    def power(self, base: complex, exponent: complex) -> complex:
        if base == 0 and exponent.real < 0:
            raise Undefined
        try:
            return self.checked(complex(base**exponent))
        except OverflowError as error:
            raise TooBig from error
        except ZeroDivisionError as error:  # 0 to an imaginary power
            raise Undefined from error

    def checked(self, number: complex) -> complex:
        if not cmath.isfinite(number):
            raise TooBig
        return number

    def function(self, name: str, arguments: list[complex]) -> complex:
        function = _FLOAT.get(name)
        if function is None:
            raise Opaque
        try:
            return self.checked(complex(function(*arguments)))
        except (OverflowError, TypeError) as error:
            raise TooBig from error
        except (ValueError, ZeroDivisionError) as error:
            raise Undefined from error


def _real(number: complex) -> float:
    if abs(number.imag) > 1e-12 * (1 + abs(number.real)):
        raise Opaque
    return number.real


def _count(number: complex) -> int:
    real = _real(number)
    if real != int(real) or not 0 <= real <= 1000:
        raise Opaque
    return int(real)


def _near_integer(number: complex, rounded: Callable[[float], int]) -> float:
    real = _real(number)
    if abs(real - round(real)) < 1e-9:
        raise TooBig  # too near to a step for these digits
    return rounded(real)


_FLOAT: dict[str, Callable[..., Any]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda x: 1 / cmath.tan(x),
    "sec": lambda x: 1 / cmath.cos(x),
    "csc": lambda x: 1 / cmath.sin(x),
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "arccot": lambda x: cmath.atan(1 / x),
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "exp": cmath.exp,
    "ln": cmath.log,
    "log": lambda x, base=None: cmath.log(x) if base is None else cmath.log(x) / cmath.log(base),
    "log10": lambda x: cmath.log(x) / math.log(10),
    "sqrt": cmath.sqrt,
    "cbrt": lambda x: _real_root(x, 3),
    "root": lambda x, n: _real_root(x, n),
    "abs": abs,
    "floor": lambda x: _near_integer(x, math.floor),
    "ceil": lambda x: _near_integer(x, math.ceil),
    "max": lambda *xs: max(map(_real, xs)),
    "min": lambda *xs: min(map(_real, xs)),
    "factorial": lambda x: math.gamma(_real(x) + 1),
    "binom": lambda n, k: math.comb(_count(n), _count(k)),
}


def _real_root(number: complex, degree: complex) -> complex:
    """An odd root of a negative number is taken to be the real one."""
    if number.imag == 0 and number.real < 0 and degree in (3, 5, 7, 9):
        return complex(-((-number.real) ** (1 / degree.real if isinstance(degree, complex) else 1 / degree)))
    return number ** (1 / degree)


class Precise(_Field):
    """mpmath's complex numbers of about 60 digits; a context per thread."""

    def __init__(self, point: int = 0, kind: str = "rational") -> None:
        super().__init__(point, kind)
        self.context = _context()

    def number(self, number: Fraction) -> Any:
        context = self.context
        return context.mpc(context.mpf(number.numerator) / number.denominator)

    def constant(self, name: str) -> Any:
        if name == "inf":
            raise Undefined
        context = self.context
        return {"e": +context.e, "pi": +context.pi, "i": context.mpc(0, 1)}[name] * context.mpc(1)

    def power(self, base: Any, exponent: Any) -> Any:
        context = self.context
        if base == 0:
            if exponent.real < 0:
                raise Undefined
            return context.mpc(1 if exponent == 0 else 0)
        if abs(exponent) * (abs(context.mag(base)) + 4) > BITS:
            raise TooBig(hopeless=abs(exponent) * abs(context.mag(base)) > HUGE)
        if exponent.imag == 0 and exponent.real == int(exponent.real):
            return base ** int(exponent.real)
        return base**exponent

    def checked(self, number: Any) -> Any:
        if abs(self.context.mag(number)) > 2 * BITS and number != 0:
            raise TooBig
        return number

    def function(self, name: str, arguments: list[Any]) -> Any:
        function = _precise(name)
        context = self.context
        if function is None:
            raise Opaque
        if name not in ("ln", "log", "log10", "sqrt", "abs", "root", "cbrt") and any(
            x != 0 and context.mag(x) > 16 for x in arguments
        ):
            raise TooBig
        try:
            return context.mpc(function(context, *arguments))
        except TypeError as error:
            raise Opaque from error
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise Undefined from error


_local = threading.local()


def _context() -> Any:
    """This thread's context; mpmath's own is global, and changing its precision is everybody's business."""
    context = getattr(_local, "context", None)
    if context is None:
        try:
            import mpmath
        except ImportError:  # the caller's undecided case: with sympy absent this module only knows fractions
            raise Opaque from None
        context = _local.context = mpmath.MPContext()
        context.prec = 220
    return context


@lru_cache(maxsize=64)
def _precise(name: str) -> Callable[..., Any] | None:
    simple = {
        "arcsin": "asin",
        "arccos": "acos",
        "arctan": "atan",
        "arccot": "acot",
        "ln": "log",
        "binom": "binomial",
    }
    if name in ("floor", "ceil", "max", "min") or name not in _FLOAT:
        return None
    if name == "log10":
        return lambda c, x: c.log(x) / c.log(10)
    if name == "log":
        return lambda c, x, base=None: c.log(x) if base is None else c.log(x) / c.log(base)
    if name == "abs":
        return lambda c, x: abs(x)
    if name == "root":
        return _precise_root
    if name == "cbrt":
        return lambda c, x: _precise_root(c, x, c.mpc(3))
    called = simple.get(name, name)
    return lambda c, *xs: getattr(c, called)(*xs)


def _precise_root(context: Any, number: Any, degree: Any) -> Any:
    if number.imag == 0 and number.real < 0 and degree in (3, 5, 7, 9):
        return -((-number) ** (context.mpc(1) / degree))
    return number ** (context.mpc(1) / degree)


@lru_cache(maxsize=4096)
def sample(name: str, point: int, kind: str) -> Fraction:
    """Return the value of a variable at a point: the same in every process."""
    drawn = int.from_bytes(
        blake2b(f"{name} {point} {kind}".encode("utf-8", "replace"), digest_size=8).digest(), "big"
    )
    if kind == "small":  # for exponents, factorials and binomials
        return Fraction(2 + drawn % 19)
    if kind == "whole":  # for floors: of every magnitude
        return Fraction(1 + drawn % (10 ** (1 + point % 6)))
    top, below = 10_007 + drawn % 1_000_003, 1_009 + drawn // 1_000_003 % 10_007
    size = Fraction(top, below * (1 if point % 2 else 97))
    return -size if point in (2, 3) else size


# -- expressions


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
        if node[1] not in _FLOAT and node[1] not in _EXACT:
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
        if _infinite(a) or _infinite(b):
            return approximately(a) == approximately(b)
        verdict = _same_at(a, b, 0, "rational")
        return False if verdict is None and _undefined(a) != _undefined(b) else verdict
    kind, points = ("small", 10) if exponent else ("whole", 24) if floor else ("rational", 6)
    agreed, telling = 0, 0
    for point in range(points):
        verdict = _same_at(a, b, point, kind)
        if verdict is False:
            # at a negative value two expressions of roots and logarithms may take different branches
            return False if kind != "rational" or point not in (2, 3) else None
        agreed += verdict is True
        telling += 1
        if kind == "rational" and agreed >= 4 and point >= 3:
            break
    return True if agreed >= min(4, telling) else None


def _same_at(a: Node, b: Node, point: int, kind: str) -> bool | None:
    """Whether both have the same value at a point; None where it is undefined or cannot be told."""
    undefined = 0
    try:
        exact = Exact(point, kind)
        return bool(value(a, exact) == value(b, exact))
    except (Inexact, Opaque):
        pass
    except Undefined:
        undefined = 1
    except TooBig as big:
        if big.hopeless:
            raise
    if undefined:
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


def _scalar(node: Node) -> bool:
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
        return None if number is None else _real(number)
    except (TooBig, Opaque, Undefined):
        return None


# -- whole answers

Compare = Callable[[Node, Node], "bool | None"]


def same(gold: Node, answer: Node) -> bool | None:
    """Whether an answer's tree means what the reference's does.

    Raises:
        TooBig: for numbers that nobody computes.
    """
    if gold == answer:
        return True
    gold, answer = _relations(gold, answer)
    if gold == answer:
        return True
    if gold[0] == "rel" or answer[0] == "rel":
        if gold[0] == answer[0]:
            return _same_relation(gold, answer)
        if gold[0] == "seq" or answer[0] == "seq":
            return _relation_and_list(gold, answer)
        if _equation(gold) and len(gold[1]) == 1 and _scalar(answer):
            return False  # an equation that is no definition, and an expression
        return _relation_and_set(gold, answer)
    if gold[0] == "seq" and len(gold[3]) == 1 and gold[1] in ("", "{"):
        gold = gold[3][0]
    if answer[0] == "seq" and len(answer[3]) == 1 and answer[1] in ("", "{"):
        answer = answer[3][0]
    kinds = gold[0], answer[0]
    if kinds == ("seq", "seq"):
        return _same_sequence(gold, answer)
    if "union" in kinds or "without" in kinds:
        return _same_set(gold, answer)
    if kinds == ("matrix", "matrix"):
        if len(gold[1]) != len(answer[1]) or len(gold[1][0]) != len(answer[1][0]):
            return False
        pairs = [
            (x, y)
            for left, right in zip(gold[1], answer[1], strict=True)
            for x, y in zip(left, right, strict=True)
        ]
        return _all(same(x, y) for x, y in pairs)
    if "matrix" in kinds:
        return None if "seq" in kinds or gold[0] not in ("num", "const") else False
    if "seq" in kinds:
        return False if _scalar(answer if kinds[0] == "seq" else gold) else None
    if "base" in kinds or "ratio" in kinds:
        return _same_notation(gold, answer)
    return _same_scalar(gold, answer)


def _all(verdicts: Any) -> bool | None:
    """True when all are; False when one is; else None."""
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown = unknown or verdict is None
    return None if unknown else True


def _same_notation(gold: Node, answer: Node) -> bool | None:
    if gold[0] == answer[0] == "ratio" and len(gold[1]) == len(answer[1]):
        verdict = _all(same(x, y) for x, y in zip(gold[1], answer[1], strict=True))
        if verdict is False and len(gold[1]) == 2:  # 2:4 may be 1:2, but 12:00 is not 1:00
            left, right = (("/", *tree[1]) for tree in (gold, answer))
            equal = exactly(left) is not None and exactly(left) == exactly(right)
            return None if equal else False
        return verdict
    if gold[0] == answer[0] == "base":
        return gold == answer if gold[2] == answer[2] else None
    ratio, other = (gold, answer) if gold[0] == "ratio" else (answer, gold)
    if ratio[0] == "ratio" and _scalar(other):
        quotient = exactly(("/", *ratio[1])) if len(ratio[1]) == 2 else None
        return None if quotient is not None and quotient == exactly(other) else False
    return None


def _same_scalar(gold: Node, answer: Node) -> bool | None:
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
        verdict = _scalars(gold, answer)
        radians = _scalars(
            ("unit", gold, "degree") if gold_unit else gold,
            ("unit", answer, "degree") if answer_unit else answer,
        )
        return True if verdict or radians else verdict
    return _scalars(gold, answer)


def _letter_unit(node: Node) -> bool:
    """Whether it is a number times one letter that is also a unit."""
    if node[0] != "*" or len(node[1]) != 2 or node[1][1][0] != "sym":
        return False
    return node[1][1][1] in ("m", "g", "s", "h", "L", "l") and constant(node[1][0])


def _unit(name: str) -> tuple[str, Fraction] | None:
    return UNITS.get(name) or UNITS.get(name.rstrip("s"))


def _scalars(gold: Node, answer: Node) -> bool | None:
    if gold[0] == "%" and answer[0] == "%":
        return _scalars(gold[1], answer[1])
    if gold[0] == "%" or answer[0] == "%":
        face = _scalars(gold[1] if gold[0] == "%" else gold, answer[1] if answer[0] == "%" else answer)
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


# -- sets and sequences


def _same_sequence(gold: Node, answer: Node) -> bool | None:
    _, opened, closed, members = gold
    _, opened_too, closed_too, others = answer
    kinds = opened + closed, opened_too + closed_too
    finite = [kind in ("", "{}") for kind in kinds]
    if all(finite):
        return _same_members(members, others)
    if len(members) != len(others):
        return False
    if len(members) == 2 and not any(finite) and kinds[0] != kinds[1]:
        return False  # intervals with other ends
    return _all(same(x, y) for x, y in zip(members, others, strict=True))


def _same_members(members: Sequence[Node], others: Sequence[Node]) -> bool | None:
    """Whether two finite sets are equal, in any order; doubles count once where the numbers differ."""
    if len(members) > SETS or len(others) > SETS:
        return None
    if len(members) != len(others):
        members, others = _distinct(members), _distinct(others)
        if len(members) != len(others):
            return False
    left = list(others)
    unknown = False
    for member in members:
        for i, other in enumerate(left):
            verdict = same(member, other)
            if verdict:
                del left[i]
                break
            unknown = unknown or verdict is None
        else:
            return None if unknown else False
    return True


def _distinct(members: Sequence[Node]) -> list[Node]:
    kept: list[Node] = []
    for member in members:
        if not any(same(member, other) for other in kept):
            kept.append(member)
    return kept


Piece = tuple[Node, Node, bool, bool]  # low, high, low open, high open


def _pieces(node: Node) -> list[Piece] | None:
    """Return a set of real numbers as intervals in order; a point is a closed one."""
    if node[0] == "union":
        found: list[Piece] = []
        for part in node[1]:
            pieces = _pieces(part)
            if pieces is None:
                return None
            found.extend(pieces)
        return _ordered(found)
    if node[0] == "without":
        whole, out = _pieces(node[1]), _pieces(node[2])
        if whole is None or out is None:
            return None
        for low, high, _, _ in out:
            if low != high:
                return None
            whole = _punched(whole, low)
            if whole is None:
                return None
        return whole
    if node[0] == "rel":
        return _from_inequality(node)
    if node[0] != "seq":
        return [(node, node, False, False)] if approximately(node) is not None else None
    _, opened, closed, members = node
    if opened in ("{", ""):
        if any(approximately(member) is None for member in members):
            return None
        return _ordered([(member, member, False, False) for member in members])
    if len(members) != 2 or any(approximately(member) is None for member in members):
        return None
    low, high = members
    return [(low, high, opened == "(" or _infinite(low), closed == ")" or _infinite(high))]


def _infinite(node: Node) -> bool:
    return math.isinf(approximately(node) or 0.0)


def _ordered(pieces: list[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (approximately(piece[0]) or 0.0, approximately(piece[1]) or 0.0))


def _punched(pieces: list[Piece], hole: Node) -> list[Piece] | None:
    at = approximately(hole)
    if at is None:
        return None
    found: list[Piece] = []
    for low, high, low_open, high_open in pieces:
        left, right = approximately(low), approximately(high)
        if left is None or right is None:
            return None
        if left < at < right:
            found += [(low, hole, low_open, True), (hole, high, True, high_open)]
        elif at == left and left < right:
            found.append((low, high, True, high_open))
        elif at == right and left < right:
            found.append((low, high, low_open, True))
        elif not at == left == right:
            found.append((low, high, low_open, high_open))
    return found


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Join pieces that touch or overlap; their ends are told apart as floats."""
    found: list[Piece] = []
    for piece in pieces:
        if found:
            low, high, low_open, high_open = found[-1]
            end, start = approximately(high) or 0.0, approximately(piece[0]) or 0.0
            if start < end or (start == end and not (high_open and piece[2])):
                further = approximately(piece[1]) or 0.0
                if further > end:
                    high, high_open = piece[1], piece[3]
                elif further == end:
                    high_open = high_open and piece[3]
                found[-1] = (
                    low,
                    high,
                    low_open and (piece[2] or start > (approximately(low) or 0.0)),
                    high_open,
                )
                continue
        found.append(piece)
    return found


def _same_set(gold: Node, answer: Node) -> bool | None:
    left, right = _pieces(gold), _pieces(answer)
    if left is None or right is None:
        return None
    left, right = _joined(left), _joined(right)
    if len(left) != len(right):
        return False
    return _all(
        False if (a[2], a[3]) != (b[2], b[3]) else _all((_same_end(a[0], b[0]), _same_end(a[1], b[1])))
        for a, b in zip(left, right, strict=True)
    )


def _same_end(a: Node, b: Node) -> bool | None:
    if _infinite(a) or _infinite(b):
        return approximately(a) == approximately(b)
    return _scalars(a, b)


# -- equations and inequalities

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}


def _settled(node: Node) -> Node:
    """Drop what an equation says only roughly: x = 1/3 ~ 0.33 is x = 1/3, x ~ 11 is x = 11."""
    if node[0] != "rel":
        return node
    _, operators, sides = node
    if operators == ("=",) and sides[1][0] == "sym" and constant(sides[0]):
        return ("rel", operators, sides[::-1])  # 3 = x
    if "~" not in operators:
        return node
    if operators[0] == "~":
        return ("rel", tuple("=" if op == "~" else op for op in operators), sides)
    first = operators.index("~")
    return ("rel", operators[:first], sides[: first + 1])


def _equation(node: Node) -> bool:
    return node[0] == "rel" and all(op == "=" for op in node[1])


def _name(node: Node) -> Node | None:
    """Return the left side of a definition: a variable, or a function of variables."""
    left: Node = node[2][0]
    if left[0] == "sym" or (left[0] == "fn" and left[1] in "fghFG" and all(x[0] == "sym" for x in left[2])):
        return left
    if left[0] == "*" and all(x[0] == "sym" for x in left[1]):  # P(x), ABC
        return left
    if left[0] == "seq" and all(x[0] == "sym" for x in left[3]):  # (x, y) = (1, 2)
        return left
    return None


def _relations(gold: Node, answer: Node) -> tuple[Node, Node]:
    """Take off names: the answer's when the reference has none, the reference's when the answer has none."""
    gold, answer = _settled(gold), _settled(answer)
    if gold[0] == "seq" and answer[0] == "seq":
        gold_named, answer_named = (any(_equation(x) for x in tree[3]) for tree in (gold, answer))
        if gold_named and answer_named:
            # n = 1, 2, 3 on both sides: the name holds for the whole list
            gold_first, answer_first = gold[3][0], answer[3][0]
            listed = all(not _equation(x) for tree in (gold, answer) for x in tree[3][1:])
            if (
                listed
                and _equation(gold_first)
                and _equation(answer_first)
                and gold_first[2][0] == answer_first[2][0]
            ):
                return _unnamed(gold), _unnamed(answer)
            return gold, answer
        if answer_named:
            return gold, _unnamed(answer)
        if gold_named:
            return _unnamed(gold), answer
        return gold, answer
    if _equation(answer) and not _equation(gold):
        if gold[0] == "seq" and not gold[1]:
            return _unnamed(gold), answer[2][-1]
        return gold, answer[2][-1]
    if _equation(gold) and answer[0] != "rel" and _name(gold) is not None:
        return gold[2][-1], _unnamed(answer)
    return gold, answer


def _unnamed(tree: Node) -> Node:
    if tree[0] != "seq":
        return tree
    return (*tree[:3], tuple(x[2][-1] if _equation(x) and _single(_name(x)) else x for x in tree[3]))


def _single(name: Node | None) -> bool:
    return name is not None and name[0] != "seq"


def _same_relation(gold: Node, answer: Node) -> bool | None:
    if _equation(gold) and _equation(answer):
        left, right = _name(gold), _name(answer)
        if left is not None and right is not None:
            if left == right:
                return same(gold[2][-1], answer[2][-1])
            if left[0] == right[0] == "fn" and left[1] == right[1] and len(left[2]) == len(right[2]):
                bound = [("sym", f"argument {i}") for i in range(len(left[2]))]
                return same(
                    _renamed(gold[2][-1], dict(zip(left[2], bound, strict=True))),
                    _renamed(answer[2][-1], dict(zip(right[2], bound, strict=True))),
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
    left_set, right_set = _from_inequality(gold), _from_inequality(answer)
    if left_set is None or right_set is None:
        return None
    if _variable(gold) != _variable(answer):
        return False
    return _same_set(gold, answer)


def _renamed(node: Any, names: dict[Node, Node]) -> Any:
    if isinstance(node, tuple):
        if node in names:
            return names[node]
        return tuple(_renamed(part, names) for part in node)
    return node


def _ratio(a: Node, b: Node) -> Fraction | None:
    """Return a / b when it is the same nonzero fraction at several points."""
    found: set[Fraction] = set()
    try:
        for point in range(4):
            field = Exact(point)
            top, below = value(a, field), value(b, field)
            if below == 0 or top == 0:
                return None
            found.add(top / below)
    except (Inexact, Undefined, Opaque):
        return None
    except TooBig as big:
        if big.hopeless:
            raise
        return None
    return found.pop() if len(found) == 1 else None


def _same_equation(gold: Node, answer: Node) -> bool | None:
    """Whether two equations are multiples of each other; that they are not only sympy can say, or a root."""
    a, b = gold[2]
    c, d = answer[2]
    left, right = ("+", (a, ("-", b))), ("+", (c, ("-", d)))
    if _ratio(left, right) is not None:
        return True
    if _has_other_root(left, right) or _has_other_root(right, left):
        return False
    return None


def _has_other_root(a: Node, b: Node) -> bool:
    """Whether a root of `a`, found by the secant method in one of its variables, is clearly none of `b`."""
    try:
        names = sorted(facts(a)[0])
        facts(b)
    except Opaque:
        return False
    for name in names[:2]:
        field = _At(name)
        try:
            x, y = complex(0.7, 0.3), complex(1.3, -0.2)
            fx, fy = field.at(a, x), field.at(a, y)
            for _ in range(40):
                if fx == fy or abs(fy) < 1e-13:
                    break
                x, y, fx = y, y - fy * (y - x) / (fy - fx), fy
                fy = field.at(a, y)
            scale = 1 + abs(y)
            if abs(fy) < 1e-10 and abs(field.at(b, y)) > 1e-4 * scale and abs(y) < 1e4:
                return True
        except (TooBig, Opaque, Undefined):
            continue
    return False


class _At(Float):
    """Floats with one variable set by hand."""

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name
        self.set = 0j

    def at(self, node: Node, number: complex) -> complex:
        self.set = number
        return complex(value(node, self))

    def symbol(self, name: str) -> complex:
        if name == self.name:
            return self.set
        return complex(1.1 + float(sample(name, 1, "small")) / 7)


def _variable(node: Node) -> Node | None:
    variables = [side for side in node[2] if side[0] == "sym"]
    return variables[0] if len(variables) == 1 else None


def _from_inequality(node: Node) -> list[Piece] | None:
    """Return the real numbers that an inequality such as 1 < x <= 2 allows one variable."""
    _, operators, sides = node
    variable = _variable(node)
    if variable is None or len(sides) > 3 or any(op not in ("<", ">", "<=", ">=") for op in operators):
        return None
    at = sides.index(variable)
    low: Node = ("-", ("const", "inf"))
    high: Node = ("const", "inf")
    low_open = high_open = True
    if len(sides) == 3 and at != 1:
        return None
    for i, op in enumerate(operators):
        bound = sides[i + 1] if sides[i] == variable else sides[i]
        if approximately(bound) is None:
            return None
        below = (op in ("<", "<=")) == (sides[i] == variable)  # the variable is below the bound
        if below:
            high, high_open = bound, op in ("<", ">")
        else:
            low, low_open = bound, op in ("<", ">")
    if len(sides) == 3 and (approximately(low) or 0.0) >= (approximately(high) or 0.0):
        return None
    return [(low, high, low_open, high_open)]


def _relation_and_list(gold: Node, answer: Node) -> bool | None:
    relation, listing = (gold, answer) if gold[0] == "rel" else (answer, gold)
    named = _equation(relation) and len(relation[1]) == 1 and _name(relation) is not None
    definitions = not listing[1] and any(_equation(member) for member in listing[3])
    if (named and not listing[1]) or (definitions and not _equation(relation)):
        return False if len(listing[3]) > 1 else None
    return _relation_and_set(gold, answer)


def _relation_and_set(gold: Node, answer: Node) -> bool | None:
    relation, other = (gold, answer) if gold[0] == "rel" else (answer, gold)
    if _equation(relation):
        return None
    if other[0] in ("seq", "union", "without") and _from_inequality(relation) is not None:
        return _same_set(gold, answer)
    return None
