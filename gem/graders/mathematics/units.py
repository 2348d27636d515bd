"""Units of measurement: the name of a unit in, its size and its dimension out.

Only the units of the tables below are read, with SI prefixes, powers, products and quotients. Sizes are exact
fractions of SI base units (those of 2019); only degrees and radians differ by a float.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from gem.graders.mathematics.languages import word_set

UNITS = word_set("""
mm cm m meter metre km inch inche ft feet foot mile centimeter centimetre kilometre millimetre kilometer
millimeter yard yd megam mg g gram kg kilogram ton megag lb lbs pound ounce oz s sec secs second min mins
minute h hr hrs hour day week month year yr cent penny pennie dollar buck usd euro eur sterling gbp yen rupee
rs ml milliliter liter litre l megal cup pint quart gallon degree deg arcsecond arcminute radian rad unit am
pm mph kph kmh cc
""")
"""The units that need no sign beside a number: anything else there may be a product of letters."""

_PREFIXES = {
    "": 0, "Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "da": 1, "d": -1,
    "c": -2, "m": -3, "µ": -6, "u": -6, "n": -9, "p": -12, "f": -15, "a": -18, "z": -21, "y": -24,
}  # fmt: skip
_PREFIX_WORDS = {
    "": 0, "tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3,
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
h hr hrs | hour | 3600 | s
sec secs | | 1 | s
d | day | 86400 | s
 | week | 604800 | s
 | month | 2629800 | s
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
t | tonne ton | 1000 | kg
in | inch inche | 0.0254 | m
ft | foot feet | 0.3048 | m
yd | yard | 0.9144 | m
mi | mile | 1609.344 | m
ly | lightyear light-year | 9460730472580800 | m
AU au | | 149597870700 | m
ha | hectare | 10000 | m2
lb lbs | pound | 0.45359237 | kg
oz | ounce | 0.028349523125 | kg
dollars USD usd | dollar buck | 1 | USD
cents ¢ | cent penny pennie | 1/100 | USD
mph | | 0.44704 | m s-1
kph kmh | | 5/18 | m s-1
rpm | | 0.10471975511965977 | rad s-1
hp | horsepower | 745.69987158227022 | kg m2 s-3
cc | | 1e-6 | m3
€ | euro eur | 1 | EUR
 | sterling gbp | 1 | GBP
 | yen | 1 | JPY
 | rupee rs | 1 | INR
 | cup | 1 | cup
 | pint | 2 | cup
 | quart | 4 | cup
 | gallon | 16 | cup
 | unit | 1 | unit
 | arcminute | 0.0002908882086657216 | rad
 | arcsecond | 0.00000484813681109536 | rad
dB | decibel | 1 | dB
°C | celsius | 1 | K
°F | fahrenheit | 5/9 | K
"""
_ZERO = {"°C": Fraction("273.15"), "celsius": Fraction("273.15"), "°F": Fraction("459.67") * 5 / 9,
         "fahrenheit": Fraction("459.67") * 5 / 9}  # fmt: skip
"""Where a scale of temperature begins, in kelvin."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A size in SI units, powers of the bases, and where its scale begins."""

    size: Fraction
    powers: tuple[tuple[str, int], ...]
    zero: Fraction = Fraction(0)


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
ALONE = frozenset("msghdtlLAKNJWVCFSHTGMBbu")
"""Letters that may be variables too: units where a space or a style stands before them."""
_FACTOR = re.compile(
    r"\s*(?P<op>[*/]|\bper\b|)\s*(?P<open>\(?)\s*(?P<name>[A-Za-zµΩÅ°å-]+)\s*(?:\^\s*\{?\s*(?P<power>[-+]?\d|\(\s*[-+]?\d\s*\))\s*\}?)?"
    r"\s*(?P<close>\)?)"
)
_RAISED = re.compile(r"\b(square|sq|cubic) (\w+)", re.IGNORECASE)


@lru_cache(maxsize=1024)
def read_unit(text: str) -> Unit | None:
    """Return the unit that a whole text names, such as ``kg m^2/s^2``; None for another text.

    >>> read_unit("kJ/mol").size, read_unit("N*m") == read_unit("J"), read_unit("apples")
    (Fraction(1000, 1), True, None)
    """
    text = text.replace("light year", "light-year")
    factors = list(_FACTOR.finditer(text.strip()))
    units = [unit for factor in factors[:10] if (unit := _find_unit(factor["name"]))]
    if not 0 < len(units) == len(factors) or "".join(factor[0] for factor in factors) != text.strip():
        return None
    sign, in_brackets, size = 1, False, Fraction(1)
    powers: Counter[str] = Counter()
    for factor, unit in zip(factors, units, strict=True):
        sign = -1 if factor["op"] in ("/", "per") else sign if in_brackets else 1
        in_brackets = (in_brackets or bool(factor["open"])) and not factor["close"]
        power = sign * int((factor["power"] or "1").strip("() "))
        size *= unit.size**power
        for base, exponent in unit.powers:
            powers[base] += power * exponent
    kept = tuple(sorted((base, power) for base, power in powers.items() if power))
    zero = units[0].zero if len(units) == 1 and kept == (("K", 1),) else Fraction(0)
    return None if in_brackets else Unit(size, kept, zero)


@lru_cache(maxsize=512)
def _find_unit(name: str) -> Unit | None:
    """Return the unit of a symbol or a name, with a prefix or without."""
    word = name.casefold()
    stems = [stem for stem in (word, word.removesuffix("s"), word.removesuffix("es")) if len(stem) > 2]
    for spelling, prefixes in ((name, _PREFIXES), *((stem, _PREFIX_WORDS) for stem in stems)):
        for prefix, power in prefixes.items():
            rest = spelling.removeprefix(prefix)
            unit = _PREFIXED.get(rest) or (None if prefix else _PLAIN.get(rest))
            if unit is not None and spelling.startswith(prefix):
                return Unit(unit.size * Fraction(10) ** power, unit.powers, unit.zero)
    return None


def fold_case(words: str) -> str:
    """Return words in lower case, except where only a capital makes a difference: Mg is not mg."""
    return re.sub(r"\bM(?=[gmlL]\b)", "mega", words).casefold()


@lru_cache(maxsize=512)
def measure(words: str) -> Unit | None:
    """Return the unit that words name, whatever their case, or None if a word of it is unknown.

    >>> measure("km per hour") == measure("kph"), measure("square feet") == measure("ft^2"), measure("apples")
    (True, True, None)
    """
    plain = _RAISED.sub(lambda m: f"{m[2]}^{3 if m[1][0] in 'cC' else 2}", words.replace(".", ""))
    return read_unit(plain) or read_unit(fold_case(plain))


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
            unit = read_unit(name) if last or name not in ALONE else None
            if unit is not None:
                units.add(unit)
                break
    return units.pop() if len(units) == 1 else None
