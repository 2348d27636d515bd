r"""Quantities of physics: a number with a unit of measurement, as ``2.3 \times 10^{-4} \mathrm{~J/K}``.

Only the units of the tables below are read, with SI prefixes, powers, products and quotients. Conversions are
exact fractions of SI base units (those of 2019); only degrees and radians differ by a float. Nouns, money and
the units of a household are in `gem.graders.mathematics.units`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import Node, Unread, read
from gem.graders.mathematics.scalars import approximately, constant, exactly

LENGTH = 160  # characters of a text that may be a quantity
_TOLERANCE = 1e-9  # of what a float may hide
_ROUNDED = 0.02  # of what the steps of a calculation may round

_PREFIXES = {
    "Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "da": 1, "d": -1, "c": -2,
    "m": -3, "µ": -6, "u": -6, "n": -9, "p": -12, "f": -15, "a": -18, "z": -21, "y": -24,
}  # fmt: skip
_PREFIX_WORDS = {
    "tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3,
    "micro": -6, "nano": -9, "pico": -12, "femto": -15,
}  # fmt: skip

# A unit: its symbols, its names, its size, and the powers of the bases. Those before the bar take prefixes.
_TABLE = """
m | meter metre | 1 | m
g | gram gramme | 1/1000 | kg
s | second | 1 | s
A | ampere amp | 1 | A
K | kelvin | 1 | K
mol | mole | 1 | mol
N | newton | 1 | kg m s-2
J | joule | 1 | kg m2 s-2
W | watt | 1 | kg m2 s-3
V | volt | 1 | kg m2 s-3 A-1
C | coulomb | 1 | s A
F | farad | 1 | kg-1 m-2 s4 A2
Ω ohm | ohm | 1 | kg m2 s-3 A-2
S | siemens | 1 | kg-1 m-2 s3 A2
H | henry henrie | 1 | kg m2 s-2 A-2
T | tesla | 1 | kg s-2 A-1
Wb | weber | 1 | kg m2 s-2 A-1
Hz | hertz | 1 | s-1
Bq | becquerel | 1 | s-1
Pa | pascal | 1 | kg m-1 s-2
bar | | 100000 | kg m-1 s-2
eV | electronvolt electron-volt | 1.602176634e-19 | kg m2 s-2
cal | calorie | 4.184 | kg m2 s-2
Wh | watt-hour | 3600 | kg m2 s-2
L l | liter litre | 1/1000 | m3
M | molar | 1000 | mol m-3
rad | radian | 1 | rad
pc | parsec | 3.0856775814913673e16 | m
B | byte | 8 | bit
b bit | | 1 | bit
Da u | dalton | 1.66053906660e-27 | kg
"""
_UNPREFIXED = """
min | minute | 60 | s
h hr | hour | 3600 | s
d | day | 86400 | s
yr | year | 31557600 | s
rev | revolution | 6.283185307179586 | rad
° deg degrees | degree | 0.017453292519943295 | rad
Å | angstrom ångström ångstrom | 1e-10 | m
amu | | 1.66053906660e-27 | kg
erg | | 1e-7 | kg m2 s-2
dyn | dyne | 1e-5 | kg m s-2
G | gauss | 1e-4 | kg s-2 A-1
atm | atmosphere | 101325 | kg m-1 s-2
torr Torr | | 20265/152 | kg m-1 s-2
mmHg | | 20265/152 | kg m-1 s-2
psi | | 6894.757293168 | kg m-1 s-2
t | tonne | 1000 | kg
in | inch inche | 0.0254 | m
ft | foot feet | 0.3048 | m
yd | yard | 0.9144 | m
mi | mile | 1609.344 | m
ly | lightyear light-year | 9460730472580800 | m
AU au | | 149597870700 | m
ha | hectare | 10000 | m2
lb lbs | pound | 0.45359237 | kg
oz | ounce | 0.028349523125 | kg
dollars USD | dollar buck | 1 | USD
cents ¢ | cent penny pennie | 1/100 | USD
mph | | 0.44704 | m s-1
kph kmh | | 5/18 | m s-1
rpm | | 0.10471975511965977 | rad s-1
hp | horsepower | 745.69987158227022 | kg m2 s-3
cc | | 1e-6 | m3
dB | decibel | 1 | dB
°C | celsius | 1 | K
°F | fahrenheit | 5/9 | K
"""
_ZERO = {"°C": Fraction("273.15"), "celsius": Fraction("273.15"), "°F": Fraction("459.67") * 5 / 9,
         "fahrenheit": Fraction("459.67") * 5 / 9}  # fmt: skip
"""Where a scale of temperature begins, in kelvin."""

Dimension = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A size in SI units, powers of the bases, and where its scale begins."""

    size: Fraction
    powers: Dimension
    zero: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it is written, and its unit; a bare number has none."""

    number: str
    tree: Node
    unit: Unit | None


def _read_table(table: str) -> dict[str, Unit]:
    units = {}
    for line in table.strip().splitlines():
        symbols, names, size, bases = (part.strip() for part in line.split("|"))
        powers = tuple(
            sorted((base, int(power or 1)) for base, power in re.findall(r"([A-Za-z]+)(-?\d+)?", bases))
        )
        for name in (*symbols.split(), *names.split()):
            units[name] = Unit(Fraction(size), powers, _ZERO.get(name, Fraction(0)))
    return units


_PREFIXED, _PLAIN = _read_table(_TABLE), _read_table(_UNPREFIXED)
_ALONE = frozenset("msghdtlLAKNJWVCFSHTGMBbu")
"""Letters that may be variables too: units where a space or a style stands before them."""

_STYLE = re.compile(r"\\(?:text|mathrm|textrm|mathsf|operatorname|mbox|textbf|mathbf|rm)(?![a-zA-Z])\s*")
_WRITTEN: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\\(?:d|t)?frac\s*\{([^{}]{1,30})\}\s*\{([^{}]{1,30})\}(?=[\s^}]*$)"), r"\1/(\2)"),
    (re.compile(r"\\mu(?![a-zA-Z])\s*|μ"), "µ"),
    (re.compile(r"\\Omega(?![a-zA-Z])|Ω"), "Ω"),
    (re.compile(r"\\AA(?![a-zA-Z])|\\(?:r|mathring)\s*\{?A\}?|Å"), "Å"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])|°"), "°"),
    (re.compile(r"°\s*(?=[CF](?![a-zA-Z]))|\bdegrees?\s+(?=celsius|fahrenheit)", re.IGNORECASE), "°"),
    (re.compile(r"°(?=celsius|fahrenheit)", re.IGNORECASE), ""),
    (re.compile(r"\\(?:cdot|times)(?![a-zA-Z])\s*(?=[A-Za-zµΩÅ°(])|[·⋅]\s*(?=[A-Za-zµΩÅ°(])"), "*"),
    (re.compile(r"\belectron volts?\b", re.IGNORECASE), "eV"),
    (re.compile(r"(?<=\d)\s*\(\s*([A-Za-z ]+)\s*\)$"), r" \1"),
    (re.compile(r"\s+(?:of|per mole of)\s+\S+\s*$"), ""),
    (re.compile(r"\\,|~|\\[;:! ]"), " "),
]  # fmt: skip
_FACTOR = re.compile(
    r"\s*(?P<op>[*/]|\bper\b|)\s*(?P<open>\(?)\s*(?P<name>[A-Za-zµΩÅ°å-]+)\s*(?:\^\s*\{?\s*\(?\s*(?P<power>[-+]?\d)\s*\)?\s*\}?)?"
    r"\s*(?P<close>\)?)"
)
_SPLIT = re.compile(r"(?<=[\d)}\].πi])\s*(?=[A-Za-zµΩÅ°])|(?<=\s)(?=[A-Za-zµΩÅ°])")
_NUMBER = re.compile(
    r"[-+]?\s*(?:\d[\d,\s]*(?:\.\d*)?|\.\d+)(?:\s*(?:\*|\\times|\\cdot|[xX×])\s*10\s*\^\s*(?:\{\s*[-+]?\s*\d+\s*\}|[-+]?\d+)|[eE][-+]?\d+)?"
)


@lru_cache(maxsize=1024)
def read_unit(text: str) -> Unit | None:
    """Return the unit that a whole text names, such as ``kg m^2/s^2``; None for another text.

    >>> read_unit("kJ/mol").size, read_unit("N*m") == read_unit("J"), read_unit("apples")
    (Fraction(1000, 1), True, None)
    """
    at, sign, in_brackets = 0, 1, False
    size, powers, zero = Fraction(1), dict[str, int](), Fraction(0)
    text = text.strip()
    count = 0
    while at < len(text):
        factor = _FACTOR.match(text, at)
        if factor is None or factor.end() == at or count > 8:
            return None
        unit = _find_unit(factor["name"])
        if unit is None:
            return None
        if factor["op"] in ("/", "per"):
            sign = -1
        elif not in_brackets:
            sign = 1
        in_brackets = (in_brackets or bool(factor["open"])) and not factor["close"]
        power = sign * int(factor["power"] or 1)
        size *= unit.size**power
        zero = unit.zero
        for base, exponent in unit.powers:
            powers[base] = powers.get(base, 0) + power * exponent
        at = factor.end()
        count += 1
    if not count or in_brackets:
        return None
    kept = tuple(sorted((base, power) for base, power in powers.items() if power))
    return Unit(size, kept, zero if count == 1 and kept == (("K", 1),) else Fraction(0))


def _find_unit(name: str) -> Unit | None:
    if name in _PLAIN or name in _PREFIXED:
        return _PLAIN.get(name) or _PREFIXED[name]
    for prefix, power in _PREFIXES.items():
        if name.startswith(prefix) and name[len(prefix) :] in _PREFIXED:
            unit = _PREFIXED[name[len(prefix) :]]
            return Unit(unit.size * Fraction(10) ** power, unit.powers)
    word = name.casefold()
    for singular in (word, word.removesuffix("s"), word.removesuffix("es")):
        if len(singular) > 2:
            if singular in _PLAIN or singular in _PREFIXED:
                return _PLAIN.get(singular) or _PREFIXED[singular]
            for prefix, power in _PREFIX_WORDS.items():
                if singular.startswith(prefix) and singular[len(prefix) :] in _PREFIXED:
                    unit = _PREFIXED[singular[len(prefix) :]]
                    return Unit(unit.size * Fraction(10) ** power, unit.powers)
    return None


def read_quantity(text: str) -> Quantity | None:
    r"""Return the quantity that a whole normalised text is; None for another text.

    >>> read_quantity(r"2.5\times 10^{3} \mathrm{~m/s}").unit == read_unit("m/s"), read_quantity("x + 1")
    (True, None)
    """
    if len(text) > LENGTH or not any(character.isdigit() or character == "π" for character in text):
        return None
    plain = _remove_styles(text)
    styled = plain != text
    for pattern, written in _WRITTEN:
        plain = pattern.sub(written, plain)
    plain = plain.strip(" .$")
    for split in _SPLIT.finditer(plain):
        number, name = plain[: split.start()].strip(), plain[split.end() :].strip()
        unit = read_unit(name) if number else None
        apart = styled or split.start() < split.end() or plain[split.start() - 1].isspace()
        if unit is None or (name in _ALONE and not apart):
            continue
        tree = _read_number(number)
        if tree is not None:
            return Quantity(number, tree, unit)
    tree = _read_number(plain)
    return _read_sum(plain) if tree is None else Quantity(plain, tree, None)


_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?(?:\s*,?\s*and\s+|\s*,\s*|\s+|$)")


def _read_sum(text: str) -> Quantity | None:
    """Return the sum of quantities from large to small, as 2 hours and 15 minutes; None for another text."""
    total, at, units = Fraction(0), 0, list[Unit]()
    while at < len(text):
        part = _PART.match(text, at)
        unit = read_unit(part[2]) if part else None
        if (
            part is None
            or unit is None
            or (units and (unit.powers, True) != (units[-1].powers, unit.size < units[-1].size))
        ):
            return None
        units.append(unit)
        total += Fraction(part[1]) * unit.size
        at = part.end()
    if len(units) < 2:
        return None
    value = total / units[-1].size
    return Quantity(str(value), ("num", value, None), units[-1])


def _remove_styles(text: str) -> str:
    """Return a short text without its styles; their braces are blank."""
    for _ in range(8):
        style = _STYLE.search(text)
        if style is None:
            break
        opened = style.end() if text[style.end() : style.end() + 1] == "{" else -1
        depth, end = 0, opened
        while 0 <= end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                break
            end += 1
        if opened < 0 or end >= len(text):
            text = f"{text[: style.start()]} {text[style.end() :]}"
        else:
            text = f"{text[: style.start()]} {text[opened + 1 : end]} {text[end + 1 :]}"
    return text


def _read_number(text: str) -> Node | None:
    try:
        tree = read(text.strip())
    except Unread:
        return None
    return tree if constant(tree) else None


_ASKED = re.compile(
    r"\b(?:in|how many|nearest|number of|express(?:ed)? as)\s+(?:the\s+)?((?:[\w°µ/^*·-]+ ?){1,5})"
    r"(?!.{0,40}\bper\b)|,\s*([\w°µ/^*·-]+)$",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def asked_unit(question: str) -> Unit | None:
    """Return the unit in which a question wants its answer; None if it names none, or more than one.

    >>> asked_unit("What is its speed in m/s?") == read_unit("m/s"), asked_unit("How many apples are left?")
    (True, None)
    """
    units = set()
    for match in _ASKED.finditer(question[-2000:]):
        words = re.split(r"\s(?:in|of|at|a|as|does|is)\s", f"{match[1] or match[2]} ")[0].split()
        for count in range(len(words), 0, -1):
            name = " ".join(words[:count])
            last = match[2] or question[match.start(1) + len(name) :].strip(" .?") == ""
            unit = read_unit(name) if last or name not in _ALONE else None
            if unit is not None:
                units.add(unit)
                break
    return units.pop() if len(units) == 1 else None


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
    if left is None or right is None or (left.unit is None and right.unit is None):
        return None
    if left.unit is None:
        left = Quantity(left.number, left.tree, asked)
    if left.unit is None or right.unit is None:
        return _same_number(left, right, Fraction(1), measured=right.unit is not None)
    if left.unit is asked and set(asked.powers) < set(right.unit.powers):
        return None  # dollars are asked for, and the answer is in dollars per day
    if left.unit.powers != right.unit.powers:
        angles = [dict(unit.powers).pop("rad", 0) for unit in (left.unit, right.unit)]
        plain = [tuple(p for p in unit.powers if p[0] != "rad") for unit in (left.unit, right.unit)]
        if plain[0] != plain[1] or not plain[0] or 0 not in angles:
            return False
    if left.unit.zero != right.unit.zero:
        value = exactly(right.tree)
        if value is None:
            return False
        kelvin = value * right.unit.size + right.unit.zero
        converted = (kelvin - left.unit.zero) / left.unit.size
        return converted == exactly(left.tree) or _agrees(left, converted, _digits(right.number) + 3)
    return _same_number(left, right, right.unit.size / left.unit.size, measured=True)


_CHAIN = re.compile(r"\\approx(?![a-zA-Z])|\\simeq(?![a-zA-Z])|(?<![<>!\\])=")


def _last_side(text: str) -> str:
    """Return the last side of a chain of equations whose numbers agree, or the whole text."""
    if len(text) > 4 * LENGTH:
        return text
    sides = _CHAIN.split(text)
    last = read_quantity(sides[-1].strip()) if len(sides) > 1 else None
    if last is None:
        return text
    read = [quantity for side in sides if (quantity := read_quantity(side.strip())) is not None]
    values = [(approximately(one.tree), one.unit) for one in read]
    sizes = [float(unit.size) if unit else 1.0 for _, unit in values]
    wanted = (values[-1][0] or 0.0) * sizes[-1]
    written = [value for value, unit in values if value is not None and unit is not None]
    for (value, unit), size in zip(values, sizes, strict=True):
        if value is None:
            continue
        if unit is None:  # a step that leaves out the units
            agrees = any(_near(value, other) for other in (wanted, values[-1][0] or 0.0, *written))
        else:
            agrees = last.unit is None or unit.powers != last.unit.powers or _near(value * size, wanted)
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
    if wanted is None or not written or "USD" in bases or not 2 <= precision <= digits or not wanted:
        return False
    if gold.unit is None and precision < 3 and "10" not in gold.number:
        return False
    step = Fraction(10) ** (math.floor(math.log10(abs(float(wanted)))) + 1 - precision)
    return -step / 2 <= value - wanted < step / 2
