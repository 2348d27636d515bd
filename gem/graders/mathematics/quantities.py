r"""Quantities: two texts in, whether they are the same number with its unit out.

A quantity is written as ``2.3 \times 10^{-4} \mathrm{~J/K}``. Numbers with nouns and with the units of a
household, where no text says more, are compared in `gem.graders.mathematics.scalars`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import read
from gem.graders.mathematics.notation import Unread, apply_rules, make_rules
from gem.graders.mathematics.scalars import approximately, constant, exactly
from gem.graders.mathematics.trees import Node
from gem.graders.mathematics.units import ALONE, Unit, read_unit
from gem.parsing import strip_styles

LENGTH = 160  # characters of a text that may be a quantity
_TOLERANCE = 1e-9  # of what a float may hide
_ROUNDED = 0.02  # of what the steps of a calculation may round
_COUNTED = frozenset(["USD", "EUR", "GBP", "JPY", "INR", "cup", "unit"])  # of which nobody rounds a number


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it is written, and its unit; a bare number has none."""

    number: str
    tree: Node
    unit: Unit | None


_WRITTEN = make_rules(
    ("\\", r"\\(?:rm|bf|text|mathrm|operatorname)(?![a-zA-Z])", " "),
    (
        "frac",
        r"\\(?:d|t)?frac\s*\{(?!\s*\d+\s*\})([^{}]{1,30})\}\s*\{((?:[^{}]|\{\d\}){1,30})\}(?=[\s^}]*$)",
        r"\1/(\2)",
    ),
    ("\\mu", r"\\mu(?![a-zA-Z])\s*", "µ"),
    ("μ", "μ", "µ"),
    ("\\Omega", r"\\Omega(?![a-zA-Z])", "Ω"),
    ("Ω", "Ω", "Ω"),
    ("A", r"\\AA(?![a-zA-Z])|\\(?:r|mathring)\s*\{?A\}?|Å", "Å"),
    ("Å", "Å", "Å"),
    ("\\", r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])", "°"),
    ("°", r"(?i)°\s*(?=[CF](?![a-zA-Z]))", "°"),
    ("egree", r"(?i)\bdegrees?\s+(?=celsius|fahrenheit)", "°"),
    ("°", r"(?i)°(?=celsius|fahrenheit)", ""),
    ("\\", r"\\(?:cdot|times)(?![a-zA-Z])\s*(?=[A-Za-zµΩÅ°(])", "*"),
    ("", r"[·⋅]\s*(?=[A-Za-zµΩÅ°(])", "*"),
    ("olt", r"(?i)\belectron volts?\b", "eV"),
    ("(", r"(?<=\d)\s*\(\s*([A-Za-z ]+)\s*\)$", r" \1"),
    (" ", r"\s+(?:of|per mole of)\s+\S+\s*$", ""),
    ("\\", r"\\[,;:! ]", " "),
    ("~", "~", " "),
)
_STYLE = re.compile(r"\\(?:text|math|operatorname|mbox|rm(?![a-zA-Z])|bf(?![a-zA-Z]))")
_SPLIT = re.compile(r"(?<=[\d)}\].πi])\s*(?=[A-Za-zµΩÅ°])|(?<=\s)(?=[A-Za-zµΩÅ°])")
_NUMBER = re.compile(
    r"[-+]?\s*(?:\d[\d,\s]*(?:\.\d*)?|\.\d+)(?:\s*(?:\*|\\times|\\cdot|[xX×])\s*10\s*\^\s*(?:\{\s*[-+]?\s*\d+\s*\}|[-+]?\d+)|[eE][-+]?\d+)?"
)


def read_quantity(text: str) -> Quantity | None:
    r"""Return the quantity that a whole normalised text is; None for another text.

    >>> read_quantity(r"2.5\times 10^{3} \mathrm{~m/s}").unit == read_unit("m/s"), read_quantity("x + 1")
    (True, None)
    """
    if len(text) > LENGTH or not any(character.isdigit() or character == "π" for character in text):
        return None
    styled = _STYLE.search(text) is not None
    plain = apply_rules(_WRITTEN, strip_styles(text, " ")).strip(" .$")
    for split in _SPLIT.finditer(plain):
        number, name = plain[: split.start()].strip(), plain[split.end() :].strip()
        unit = read_unit(name) if number else None
        apart = styled or split.start() < split.end() or plain[split.start() - 1].isspace()
        if unit is None or (name in ALONE and not apart):
            continue
        tree = _read_number(number)
        if tree is not None:
            return Quantity(number, tree, unit)
    tree = _read_number(plain)
    return _read_sum(plain) if tree is None else Quantity(plain, tree, None)


_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?(?:\s*,?\s*and\s+|\s*,\s*|\s+|$)")


def _read_sum(text: str) -> Quantity | None:
    """Return the sum of quantities from large to small, as 2 hours and 15 minutes; None for another text."""
    parts = list(_PART.finditer(text))
    units = [unit for part in parts if (unit := read_unit(part[2]))]
    if "".join(part[0] for part in parts) != text or not 1 < len(units) == len(parts):
        return None
    if any(x.powers != y.powers or x.size <= y.size for x, y in pairwise(units)):
        return None
    total = (
        sum(Fraction(part[1]) * unit.size for part, unit in zip(parts, units, strict=True)) / units[-1].size
    )
    return Quantity(str(total), ("num", total, None), units[-1])


def _read_number(text: str) -> Node | None:
    try:
        tree = read(text.strip())
    except Unread:
        return None
    return tree if constant(tree) else None


def same_quantity(gold: str, answer: str, asked: Unit | None = None) -> bool | None:
    """Return whether two texts are the same quantity; None unless one has a unit of these tables.

    A reference without a unit has the one that is `asked`; without that it takes any, because the problem
    states it. A number with more digits than the reference is right if it rounds to it, where the reference
    is measured: it has a unit, a decimal point or a power of ten.
    """
    try:
        return _same_quantity(gold, answer, asked)
    except (TooBig, RecursionError):
        return None


def _same_quantity(gold: str, answer: str, asked: Unit | None) -> bool | None:
    right = read_quantity(_last_side(answer))
    left = read_quantity(gold) if right is not None else None
    if left is None or right is None or left.unit is right.unit is None:
        return None
    left = Quantity(left.number, left.tree, left.unit or asked)
    if left.unit is None or right.unit is None:
        return _same_number(left, right, Fraction(1), measured=right.unit is not None)
    if left.unit is asked and set(asked.powers) < set(right.unit.powers):
        return None  # dollars are asked for, and the answer is in dollars per day
    if left.unit.powers != right.unit.powers:  # 5 rad/s and 5 1/s may be the same
        angles = ["rad" in dict(unit.powers) for unit in (left.unit, right.unit)]
        plain = [tuple(p for p in unit.powers if p[0] != "rad") for unit in (left.unit, right.unit)]
        if plain[0] != plain[1] or not plain[0] or all(angles):
            return False
    if left.unit.zero == right.unit.zero:
        return _same_number(left, right, right.unit.size / left.unit.size, measured=True)
    value = exactly(right.tree)
    if value is None:
        return False
    converted = (value * right.unit.size + right.unit.zero - left.unit.zero) / left.unit.size
    return converted == exactly(left.tree) or _agrees(left, converted, _digits(right.number) + 3)


_MEASURED = re.compile(r"\d\s*-?\s*([a-zA-Z]+)\b(?!\s*(?:per\b|/|an?\b|each\b|every\b))")


def given_unit(question: str, answer: str) -> Unit | None:
    """Return the only unit in which a question gives what an answer measures, if it names no other such unit.

    >>> given_unit("It takes 18 minutes there. How long is it back?", "45 hours") == read_unit("min")
    True
    """
    written = answer[:1].isdigit() and not answer[-1:].isdigit()
    unit = quantity.unit if written and (quantity := read_quantity(answer)) else None
    if unit is None or _COUNTED.intersection(base for base, _ in unit.powers):
        return None
    question = strip_styles(question[-2000:], " ")
    words, measured = re.findall("[a-zA-Z]{2,}", question), _MEASURED.findall(question)
    given = {one for word in measured if (one := read_unit(word)) and one.powers == unit.powers}
    return given.pop() if len(given) == 1 and unit not in map(read_unit, words) else None


_CHAIN = re.compile(r"\\approx(?![a-zA-Z])|\\simeq(?![a-zA-Z])|(?<![<>!\\])=")


def _last_side(text: str) -> str:
    """Return the last side of a chain of equations whose numbers agree, or the whole text."""
    sides = _CHAIN.split(text[: 4 * LENGTH + 1])
    last = read_quantity(sides[-1].strip()) if len(sides) > 1 and len(text) <= 4 * LENGTH else None
    if last is None:
        return text
    read = [quantity for side in sides if (quantity := read_quantity(side.strip())) is not None]
    values = [(x, one.unit) for one in read if (x := approximately(one.tree)) is not None]
    size = float(last.unit.size) if last.unit else 1.0
    end = approximately(last.tree) or 0.0
    written = [end * size, end, *(value for value, unit in values if unit is not None)]
    for value, unit in values:
        if unit is None:  # a step that leaves out the units
            agrees = any(_near(value, other) for other in written)
        else:
            same = last.unit is not None and unit.powers == last.unit.powers
            agrees = not same or _near(value * float(unit.size), end * size)
        if not agrees:
            return text
    return sides[-1].strip()


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _ROUNDED * max(abs(one), abs(other))


def _same_number(gold: Quantity, answer: Quantity, scale: Fraction, *, measured: bool) -> bool:
    value, wanted = exactly(answer.tree), exactly(gold.tree)
    if value is not None and wanted is not None:
        if value * scale == wanted:
            return True
        return measured and _agrees(gold, value * scale, _digits(answer.number))
    near, aim = approximately(answer.tree), approximately(gold.tree)
    if near is None or aim is None:
        return False
    if abs(near * float(scale) - aim) <= _TOLERANCE * abs(aim):
        return True
    return measured and math.isfinite(near) and _agrees(gold, Fraction(near) * scale, 99)


def _digits(number: str) -> int:
    """Return the significant digits of a number as it is written; many for an expression."""
    if not _NUMBER.fullmatch(number.strip()):
        return 99
    mantissa = re.split(r"[*xX×eE\\]", number)[0]
    digits = re.sub(r"[^\d.]", "", mantissa)
    return len(digits.replace(".", "").lstrip("0"))


def _agrees(gold: Quantity, value: Fraction, digits: int) -> bool:
    """Return whether a value with so many digits rounds to a measured reference."""
    wanted, precision = exactly(gold.tree), _digits(gold.number)
    bases = [name for name, _ in gold.unit.powers] if gold.unit else []
    counted = bases in ([], ["s"])  # 18 hours are counted
    written = not counted or re.search(r"[.eE]|10", gold.number) is not None
    if (
        wanted is None
        or not written
        or _COUNTED.intersection(bases)
        or not 2 <= precision <= digits
        or not wanted
    ):
        return False
    if gold.unit is None and precision < 3 and "10" not in gold.number:
        return False
    step = Fraction(10) ** (math.floor(math.log10(abs(float(wanted)))) + 1 - precision)
    return -step / 2 <= value - wanted < step / 2
