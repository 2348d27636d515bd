"""Evaluation of an expression at a point: as a fraction, as a float, or with mpmath to many digits.

A `Field` is a kind of number and a value for every variable. `value` computes a tree in it, or raises
`Undefined`, `Inexact`, `TooBig` or `Opaque`.
"""

from __future__ import annotations

import cmath
import math
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from gem.graders.mathematics.trees import Node

BITS = 1 << 16
"""The largest size in bits of numbers that are computed exactly."""

HUGE = 2_000_000
"""The size in bits from which on a number is too big even for sympy."""


class Undefined(Exception):
    """The value does not exist at this point."""


class Inexact(Exception):
    """The value is not a fraction."""


USERS = frozenset(["f", "g", "h", "F", "G", "f⁻", "g⁻", "h⁻", "F⁻", "G⁻"])
"""Undefined functions and their inverses: two of their values are equal if name and arguments are."""


class TooBig(Exception):
    """The number is too big to compute, for sympy too."""


class TooBigHere(TooBig):
    """The number is too big to compute here; sympy may."""


class Opaque(Exception):
    """The tree holds something that this module cannot compute."""


Number = Any  # Fraction, complex or mpmath's mpc


def value(node: Node, field: Field) -> Number:
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
        return field.check_size(total)
    if tag == "*":
        product = value(node[1][0], field)
        for factor in node[1][1:]:
            product = field.check_size(product * value(factor, field))
        return product
    if tag == "const":
        return field.constant(node[1])
    if tag == "fn":
        return field.function(node[1], [value(argument, field) for argument in node[2]])
    if tag == "unit" and node[2] not in ("degree", "degrees"):
        raise Opaque
    read = _VALUES.get(tag)
    if read is None:
        raise Opaque
    return read(node, field)


def _quotient(node: Node, field: Field) -> Number:
    top, below = value(node[1], field), value(node[2], field)
    if below == 0:
        raise Undefined
    return field.check_size(top / below)


def _power(node: Node, field: Field) -> Number:
    base = value(node[1], field)
    odd = _odd_root_of(node[2]) if node[2][0] in ("/", "-") else None
    if odd is None:
        return field.power(base, value(node[2], field))
    # x^{2/3} is the square of the real root, as with a root sign
    root = field.function("root", [base, field.number(Fraction(odd.denominator))])
    return field.power(root, field.number(Fraction(odd.numerator)))


_VALUES: dict[str, Callable[[Node, Field], Number]] = {
    "/": _quotient,
    "^": _power,
    "-": lambda node, field: -value(node[1], field),
    "%": lambda node, field: value(node[1], field) / field.number(Fraction(100)),
    "unit": lambda node, field: value(node[1], field) * field.constant("pi") / field.number(Fraction(180)),
}


def _odd_root_of(exponent: Node) -> Fraction | None:
    """Return an exponent such as 2/3, a fraction with an odd denominator."""
    sign = 1
    while exponent[0] == "-":
        sign, exponent = -sign, exponent[1]
    if exponent[0] != "/" or exponent[1][0] != "num" or exponent[2][0] != "num" or not exponent[2][1]:
        return None
    number = sign * exponent[1][1] / exponent[2][1]
    return Fraction(number) if 1 < number.denominator < 10 and number.denominator % 2 else None


class Field:
    """A kind of number, and values for the variables, in which trees are evaluated."""

    def __init__(
        self, point: int = 0, kind: str = "rational", given: dict[str, Number] | None = None
    ) -> None:
        self.point, self.kind, self.given = point, kind, given or {}

    def symbol(self, name: str) -> Number:
        """Return the value of a variable: the given one, or else a drawn one at the point."""
        if name in self.given:
            return self.given[name]
        return self.number(sample(name, self.point, self.kind))

    def number(self, number: Fraction) -> Number:
        """Return a fraction as a number of this kind."""
        raise NotImplementedError

    def constant(self, name: str) -> Number:
        """Return e, pi, i or inf; Undefined or Inexact: where this kind has none."""
        raise NotImplementedError

    def power(self, base: Number, exponent: Number) -> Number:
        """Return a power."""
        raise NotImplementedError

    def function(self, name: str, arguments: list[Number]) -> Number:
        """Return the value of a function."""
        raise NotImplementedError

    def check_size(self, number: Number) -> Number:
        """Return a number, unless it is too big."""
        return number


class Exact(Field):
    """Fractions."""

    def number(self, number: Fraction) -> Fraction:
        return number

    def constant(self, name: str) -> Fraction:
        raise Undefined if name == "inf" else Inexact

    def check_size(self, number: Fraction) -> Fraction:
        if number.numerator.bit_length() > BITS or number.denominator.bit_length() > BITS:
            raise TooBigHere
        return number

    def power(self, base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1:
            if base not in (0, 1) and exponent.denominator > 64:  # no root: what its power is does not matter
                raise Inexact
            return _root(self.power(base, Fraction(exponent.numerator)), exponent.denominator)
        n = exponent.numerator
        if base == 0 and n < 0:
            raise Undefined
        if base in (0, 1, -1):
            return base ** (n % 2 + 2) if n else Fraction(1)
        size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if abs(n) * max(size, 1) > BITS:
            raise TooBig if abs(n) * max(size, 1) > HUGE else TooBigHere
        return base**n

    def function(self, name: str, arguments: list[Fraction]) -> Fraction:
        if name.rstrip("'") in USERS:
            argument_list = ", ".join(map(str, arguments))
            if len(argument_list) > 1000:
                raise Opaque
            return sample(f"{name}({argument_list})", 0, "rational")
        exact = EXACT.get(name)
        if exact is None:
            raise Inexact if name in FLOAT else Opaque
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


def _factorial(number: Fraction, step: Fraction = Fraction(1)) -> Fraction:
    """Return 7! and, by other steps, 7 * 5 * 3 of 7!!, 7 * 4 of 7!!!."""
    n, by = _whole(number), _whole(step)
    if n < 0:
        raise Undefined
    if n > 4000:
        raise TooBig if n > 100_000 else TooBigHere
    return Fraction(math.factorial(n) if by == 1 else math.prod(range(n, 0, -by)))


def _binomial(n: Fraction, k: Fraction) -> Fraction:
    top, below = _whole(n), _whole(k)
    if top < 0 or below < 0:
        raise Inexact
    if min(below, top - below) > 4000 or top > 1 << 64:
        raise TooBig if min(below, top - below) > 100_000 else TooBigHere
    return Fraction(math.comb(top, below))


def _exact_log(number: Fraction, base: Fraction) -> Fraction:
    """Compute log_2 8 and the like; other logarithms are not fractions."""
    if number <= 0 or base <= 0 or base == 1:
        raise Undefined if number == 0 else Inexact
    sizes = [math.log(x.numerator) - math.log(x.denominator) for x in (number, base)]
    guess = round(sizes[0] / sizes[1])
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(guess) * bits > BITS or base**guess != number:
        raise Inexact
    return Fraction(guess)


def _modulo(number: Fraction, by: Fraction) -> Fraction:
    if by == 0:
        raise Undefined
    return number % by


EXACT: dict[str, Callable[..., Fraction]] = {
    "sqrt": lambda x: _root(x, 2),
    "cbrt": lambda x: _odd_root(x, 3),
    "root": lambda x, n: _odd_root(x, _whole(n)),
    "abs": abs,
    "floor": lambda x: Fraction(math.floor(x)),
    "ceil": lambda x: Fraction(math.ceil(x)),
    "factorial": _factorial,
    "factorials": _factorial,
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


class Float(Field):
    """Complex floating-point numbers: good enough to see that two values differ."""

    def number(self, number: Fraction) -> complex:
        try:
            return complex(number.numerator / number.denominator)
        except OverflowError as error:
            raise TooBigHere from error

    def constant(self, name: str) -> complex:
        if name == "inf":
            raise Undefined
        return {"e": complex(math.e), "pi": complex(math.pi), "i": 1j}[name]

    def power(self, base: complex, exponent: complex) -> complex:
        if base == 0 and exponent.real < 0:
            raise Undefined
        try:
            return self.check_size(complex(base**exponent))
        except OverflowError as error:
            raise TooBigHere from error
        except ZeroDivisionError as error:  # 0 to an imaginary power
            raise Undefined from error

    def check_size(self, number: complex) -> complex:
        if not cmath.isfinite(number):
            raise TooBigHere
        return number

    def function(self, name: str, arguments: list[complex]) -> complex:
        function = FLOAT.get(name)
        if function is None:
            raise Opaque
        try:
            return self.check_size(complex(function(*arguments)))
        except (OverflowError, TypeError) as error:
            raise TooBigHere from error
        except (ValueError, ZeroDivisionError) as error:
            raise Undefined from error


def as_real(number: complex) -> float:
    """Return the real part of a number; Opaque: it has an imaginary part."""
    if abs(number.imag) > 1e-12 * (1 + abs(number.real)):
        raise Opaque
    return number.real


def _count(number: complex) -> int:
    real = as_real(number)
    if real != int(real) or not 0 <= real <= 1000:
        raise Opaque
    return int(real)


def _near_integer(number: complex, rounded: Callable[[float], int]) -> float:
    real = as_real(number)
    if abs(real - round(real)) < 1e-9:
        raise TooBigHere  # too near to a step for these digits
    return rounded(real)


FLOAT: dict[str, Callable[..., Any]] = {
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
    "max": lambda *xs: max(map(as_real, xs)),
    "min": lambda *xs: min(map(as_real, xs)),
    "factorial": lambda x: math.gamma(as_real(x) + 1),
    "binom": lambda n, k: math.comb(_count(n), _count(k)),
}


def _real_root(number: complex, degree: complex) -> complex:
    """An odd root of a negative number is taken to be the real one."""
    if number.imag == 0 and number.real < 0 and degree in (3, 5, 7, 9):
        return complex(-((-number.real) ** (1 / degree.real if isinstance(degree, complex) else 1 / degree)))
    return number ** (1 / degree)


class FloatAt(Float):
    """Floats of which one near an integer becomes that integer before it is rounded."""

    def function(self, name: str, arguments: list[complex]) -> complex:
        if name in ("floor", "ceil") and abs(arguments[0] - round(as_real(arguments[0]))) < 1e-9:
            return complex(round(arguments[0].real))
        return super().function(name, arguments)


class Precise(Field):
    """mpmath's complex numbers with `bits` bits; each thread has its own context.

    `top` is the size in bits of the largest number so far, `widest` that of the largest or smallest, `total`
    the sum of all sizes. They bound how small a difference the numbers of an expression can have.
    """

    def __init__(self, point: int = 0, kind: str = "rational", bits: int = 220) -> None:
        super().__init__(point, kind)
        self.context = _context()
        self.context.prec = bits
        self.top = 0
        self.widest = 0
        self.total = 0

    def check_size(self, number: Any) -> Any:
        if number != 0:
            size = int(self.context.mag(number))
            if abs(size) > 2 * BITS:
                raise TooBigHere
            self.top = max(self.top, size)
            self.widest = max(self.widest, abs(size))
            self.total += abs(size)
        return number

    def number(self, number: Fraction) -> Any:
        context = self.context
        self.total += number.denominator.bit_length()
        return self.check_size(context.mpc(context.mpf(number.numerator) / number.denominator))

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
            raise TooBig if abs(exponent) * abs(context.mag(base)) > HUGE else TooBigHere
        if exponent.imag == 0 and exponent.real == int(exponent.real):
            return self.check_size(base ** int(exponent.real))
        return self.check_size(base**exponent)

    def function(self, name: str, arguments: list[Any]) -> Any:
        context = self.context
        if name not in _MPMATH:
            raise Opaque
        if name not in ("ln", "log", "log10", "sqrt", "abs", "root", "cbrt") and any(
            x != 0 and context.mag(x) > 16 for x in arguments
        ):
            raise TooBigHere
        try:
            if name in _PRECISE:
                return self.check_size(context.mpc(_PRECISE[name](context, *arguments)))
            return self.check_size(context.mpc(getattr(context, _MPMATH[name])(*arguments)))
        except TypeError as error:
            raise Opaque from error
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise Undefined from error


def separation(node: Node) -> int | None:
    """Return bits such that a number made of integers, roots and field operations is 0 or at least 2**-bits.

    It is the bound of Burnikel, Funke, Mehlhorn, Schirra and Schmitt, "A separation bound for real algebraic
    expressions". None if the tree holds anything else, or the bound is too large to use.
    """
    roots: dict[Node, int] = {}
    try:
        top, below = _bounds(node, roots)
    except Opaque:
        return None
    degree = math.prod(roots.values())
    bits = (degree - 1) * top + below
    return math.ceil(bits) + 8 if bits < BITS else None


def _bounds(node: Node, roots: dict[Node, int]) -> tuple[float, float]:
    """Return log bounds of a numerator and a denominator and of all their conjugates."""
    tag = node[0]
    if tag == "num":
        return _log2(node[1].numerator), _log2(node[1].denominator)
    if tag == "^":
        return _bounds_of_power(node, roots)
    if tag == "fn" and node[1] in ("sqrt", "cbrt", "root"):
        degree = {"sqrt": 2, "cbrt": 3}.get(node[1]) or _small(node[2][1])
        return _bounds_of_root(node[2][0], degree, roots)
    if node == ("const", "i"):
        roots[node] = 2
        return 0.0, 0.0
    if tag not in ("-", "%", "+", "*", "/"):
        raise Opaque
    (top, below), *rest = (_bounds(part, roots) for part in (node[1] if tag in ("+", "*") else node[1:]))
    for more, under in rest:
        if tag == "+":
            top, below = max(top + under, more + below) + 1, below + under
        else:
            top, below = (top + more, below + under) if tag == "*" else (top + under, below + more)
    return top, below + 7 * (tag == "%")


def _bounds_of_power(node: Node, roots: dict[Node, int]) -> tuple[float, float]:
    exponent = _fraction(node[2])
    if abs(exponent.numerator) > BITS or exponent.denominator > 64:
        raise Opaque
    inside = node[1]
    top, below = (
        _bounds(inside, roots)
        if exponent.denominator == 1
        else _bounds_of_root(inside, exponent.denominator, roots)
    )
    top, below = top * abs(exponent.numerator), below * abs(exponent.numerator)
    return (top, below) if exponent > 0 else (below, top)


def _bounds_of_root(inside: Node, degree: int, roots: dict[Node, int]) -> tuple[float, float]:
    top, below = _bounds(inside, roots)
    roots[("fn", "root", (inside, degree))] = degree
    if top >= below:
        return (top + (degree - 1) * below) / degree, below
    return top, ((degree - 1) * top + below) / degree


def _log2(number: int) -> float:
    return math.log2(abs(number)) if number else 0.0


def _small(node: Node) -> int:
    if node[0] == "num" and node[1].denominator == 1 and 1 < node[1] <= 64:
        return int(node[1])
    raise Opaque


def _fraction(node: Node) -> Fraction:
    try:
        return Fraction(value(node, Exact()))
    except (Inexact, Undefined, TooBig) as error:
        raise Opaque from error


_local = threading.local()


def _context() -> Any:
    """Return this thread's context; mpmath's own is global, and its precision is shared by all threads."""
    context = getattr(_local, "context", None)
    if context is None:
        try:
            import mpmath
        except ImportError:  # the caller's undecided case: with sympy absent this module only knows fractions
            raise Opaque from None
        context = _local.context = mpmath.MPContext()
        context.prec = 220
    return context


def _precise_root(context: Any, number: Any, degree: Any) -> Any:
    if number.imag == 0 and number.real < 0 and degree in (3, 5, 7, 9):
        return -((-number) ** (context.mpc(1) / degree))
    return number ** (context.mpc(1) / degree)


_PRECISE: dict[str, Callable[..., Any]] = {
    "log10": lambda c, x: c.log(x) / c.log(10),
    "log": lambda c, x, base=None: c.log(x) if base is None else c.log(x) / c.log(base),
    "abs": lambda c, x: abs(x),
    "root": _precise_root,
    "cbrt": lambda c, x: _precise_root(c, x, c.mpc(3)),
}
_MPMATH = {name: name for name in FLOAT if name not in ("floor", "ceil", "max", "min")} | {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
    "ln": "log",
    "binom": "binomial",
}
"""The names of the other functions in mpmath."""


@lru_cache(maxsize=4096)
def sample(name: str, point: int, kind: str) -> Fraction:
    """Return the value of a variable at a point: the same in every process."""
    drawn = int.from_bytes(
        blake2b(f"{name} {point} {kind}".encode("utf-8", "replace"), digest_size=8).digest(), "big"
    )
    if kind == "small":  # for exponents, factorials and binomials
        return Fraction(2 + drawn % 19)
    if kind == "near":  # for a search of roots
        return Fraction(11, 10) + Fraction(2 + drawn % 19, 7)
    if kind == "whole":  # for floors: of every magnitude
        return Fraction(1 + drawn % (10 ** (1 + point % 6)))
    top, below = 10_007 + drawn % 1_000_003, 1_009 + drawn // 1_000_003 % 10_007
    size = Fraction(top, below * (1 if point % 2 else 97))
    return -size if point in (2, 3) else size
