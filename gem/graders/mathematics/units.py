"""Units and nouns: the words that may follow a number without changing it.

The lists are closed on purpose. A word outside them may be "squared", "thousand" or "short of x", so an
answer with such a word is not read as its number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

Measure: TypeAlias = tuple[tuple[tuple[str, int], ...], Fraction]
"""A unit: what it measures, as powers of measures, and its size in base units."""

UNITS: dict[str, tuple[str, Fraction]] = {}
"""The known units: what they measure, and their sizes in base units."""

for _measure, _names in {
    "length": {
        "mm": "1/1000", "cm": "1/100", "m": "1", "meter": "1", "metre": "1", "km": "1000", "inch": "127/5000",
        "inche": "127/5000", "ft": "381/1250", "feet": "381/1250", "foot": "381/1250", "mile": "201168/125",
        "centimeter": "1/100", "centimetre": "1/100", "kilometre": "1000", "millimetre": "1/1000",
        "kilometer": "1000", "millimeter": "1/1000", "yard": "1143/1250", "yd": "1143/1250",
        "megam": "1000000",
    },
    "mass": {
        "mg": "1/1000000", "g": "1/1000", "gram": "1/1000", "kg": "1", "kilogram": "1", "ton": "1000",
        "megag": "1000", "lb": "45359237/100000000",
        "pound": "45359237/100000000", "ounce": "45359237/1600000000",
        "oz": "45359237/1600000000",
    },
    "time": {
        "s": "1", "sec": "1", "second": "1", "min": "60", "minute": "60", "h": "3600", "hr": "3600",
        "hour": "3600", "day": "86400", "week": "604800",
    },
    "calendar": {"month": "1", "year": "12", "yr": "12"},
    "money": {
        "cent": "1/100", "penny": "1/100", "pennie": "1/100", "dollar": "1", "buck": "1", "usd": "1",
    },
    "euro": {"euro": "1", "eur": "1"},
    "sterling": {"sterling": "1", "gbp": "1"},
    "yen": {"yen": "1"},
    "rupee": {"rupee": "1", "rs": "1"},
    "volume": {
        "ml": "1/1000", "milliliter": "1/1000", "liter": "1", "litre": "1", "l": "1", "megal": "1000000",
    },
    "cups": {"cup": "1", "pint": "2", "quart": "4", "gallon": "16"},
    "angle": {"degree": "1", "deg": "1", "arcsecond": "1/3600", "arcminute": "1/60"},
    "radian": {"radian": "1", "rad": "1"},
    "unit": {"unit": "1"},
    "morning": {"am": "1"},
    "afternoon": {"pm": "1"},
}.items():  # fmt: skip
    for _name, _size in _names.items():
        UNITS[_name] = (_measure, Fraction(_size))

_SHORT = "mm cm km kg mg ml ft hr sec min mph kph yd lb lbs oz hrs mins secs cc deg"
SHORT_UNITS = frozenset(_SHORT.split())
_COMBINED = {
    "mph": "mile per hour", "kph": "km per hour", "kmh": "km per hour", "cc": "cm^3", "lbs": "pound",
    "hrs": "hour", "mins": "minute", "secs": "second",
}  # fmt: skip
_EXPONENTS = {"square": 2, "sq": 2, "sq.": 2, "cubic": 3}

_NOUNS_LIST = """
acre action adult album animal answer ant apartment apple arm arrangement artist aunt award baby badge bag
bagel ball balloon banana band bar barrel base basket bat batch bead bean bear beaver bed bee beetle bell
bike bill bird birthday biscuit bit blanket block blouse boat body book bookcase boot bottle bouquet bow
bowl box boy bracelet branch bread brick bridge brother brownie brush bucket bug building bulb bun bunch bus
bush business butterfly button cabbage cabin cake calculator calorie camel camera camper can candle candy
cap car carat card carrot cart case cat caterpillar cell chair chapter character chicken child chip
chocolate choice circle class classmate classroom client clip clock clove club coat coin color colour column
combination comic company computer container cookie corner course cousin cow coyote crab crate crayon credit
crew cricket cucumber cupcake curtain customer cut cycle dancer daughter deer desk diagonal diamond die
dinner dish divisor doctor dog doll dolphin donkey donut door dot doughnut drawer drawing dress drink driver
duck eagle ear earring edge egg element elephant employee engine envelope episode equation eraser error
event exam exercise eye face family fan farm farmer father feather fence file film finger fish flag flavor
floor flower fold folder foot forest fork fowl frame friend frog fruit function game garden gem gift giraffe
girl glass glove goal goat goldfish goose grade grain grandchild grape graph grid group guest guitar gumball
hair hamburger hamster hand handshake hat head heart hen hike hole home homework hook horse hospital hotdog
hotel house human instrument integer invitation item jacket jar jelly job joke journey juice jump kernel key
kick kid king kitchen kite kitten knife lamp language lap laptop layer leaf leg lemon lesson letter level
library light lighter line lion list litter loaf lollipop lunch machine magazine magnet man map marble mark
marker marshmallow mask match material meal measure meatball medal member message mile milk minnow mistake
mitten mole monkey moose mosquito mother motorcycle mouse movie muffin mug mushroom musician nail name
napkin necklace neighbor nest newspaper nickel night noodle note notebook nugget nurse nut object octopus
office onion option orange orchid order outcome outfit owl ox pack package packet page painter painting
pancake panda paper paperclip parent park part participant party passenger pastry patch path patient peach
peanut pear pebble pen pencil penguin people performer period permutation person pet photo photograph piano
pickle picture pie piece pig pigeon pillow pilot pin pineapple pizza place plan plane planet plant plate
player plum pocket poem point pond pony popsicle portion position possibility postcard poster pot potato
present president prize problem program project puddle pumpkin pupil puppy puzzle question rabbit raccoon
race radish raisin rectangle region reptile result reward ribbon rice ring river road robot rock role roll
room rose row ruler runner salad salmon sandwich sausage scarf school screw seal seashell seat section seed
seedling segment sentence sequence series serving set shape share shark sheep sheet shelf shell ship shirt
shoe shop shot shovel show shrimp side sign sister skirt skittle slice slide snack snail snake snowball sock
sofa soldier solution son song soup species spider sponge spoon squirrel stair stamp star state station stem
step stick sticker stitch stone store story straw strawberry street string student subject subset suit
sunflower swan sweater swimmer system table tablespoon tablet tank task taxi teacher team teaspoon teenager
term test text ticket tie tiger tile toad toe toffee token tomato tooth topping toucan tournament towel
tower town toy track train treat tree triangle trip truck tub tulip turkey turn turtle twig umbrella uncle
utensil value van vase vegetable vertex video view visit visitor volunteer vote voter wagon holder cd dvd tv
wall watch watermelon way whale wheel window wing wolf woman word worker world worm zebra zoo
"""
_NOUNS = frozenset(_NOUNS_LIST.split())
_UNCHANGED_LIST = """
children men women mice geese teeth oxen knives leaves loaves wolves halfpence shelves thieves vertices dice
pence lives wives deer
"""
_UNCHANGED = frozenset(_UNCHANGED_LIST.split())
_NO_NOUNS_LIST = """
dozens scores pairs couples tens hundreds thousands millions billions trillions halves thirds fourths fifths
sixths sevenths eighths ninths tenths hundredths thousandths squares cubes plus minus less times this thus
percents modulus unless perhaps always cross does previous various
"""
_NO_NOUNS = frozenset(_NO_NOUNS_LIST.split())
"""Words with the ending of a plural that may change the number before them, or are no nouns."""
_KINDS_LIST = """
red green blue yellow white black brown pink purple orange gold silver big small large little long short
tall new whole full different distinct total possible extra additional fresh square sq cubic fluid hot cold
sweet math reading easter homeless dangerous miniature medieval art recycled bug baseball soccer basketball
unique real drawing chewing pet duck pop popsicle ice cream sheet
"""
_KINDS = frozenset(_KINDS_LIST.split())
_TAILS = (
    "in total", "in all", "altogether", "each", "left", "old", "long", "tall", "high", "wide", "deep", "away",
    "total", "profit", "remaining", "left over", "apart", "today", "a day", "a week", "an hour", "a month",
    "a year",
)  # fmt: skip


def is_unit_or_noun(words: str) -> bool:
    """Return whether words after a number certainly do not change it: a unit, or a counted thing.

    >>> is_unit_or_noun("dollars per day"), is_unit_or_noun("red apples"), is_unit_or_noun("or more")
    (True, True, False)
    >>> is_unit_or_noun("squared")
    False
    """
    text = " ".join(words.casefold().replace("/", " per ").split())
    if not text or len(text) > 60:
        return False
    for tail in _TAILS:
        if text.endswith(" " + tail):
            text = text.removesuffix(" " + tail)
            break
    expects = True  # a noun, after kinds of it
    for word in text.split():
        if word in ("of", "per", "a", "an"):
            if expects:
                return False
            expects = True
        elif expects and word in _KINDS and word not in _NOUNS:
            continue
        elif _is_noun(word):
            expects = False
        elif word not in _KINDS:
            return False
    return not expects


def _is_noun(word: str) -> bool:
    word = word.partition("^")[0].strip(".")
    if word in UNITS or word in SHORT_UNITS or word in _COMBINED or word in _UNCHANGED or word in _NOUNS:
        return True
    if any(one in UNITS or one in _NOUNS for one in _singular(word)):
        return True
    return len(word) > 3 and word.isalpha() and word.endswith("s") and word not in _NO_NOUNS


def _singular(word: str) -> tuple[str, ...]:
    if not word.endswith("s"):
        return ()
    if word.endswith("ies"):
        return (word[:-3] + "y", word[:-1])
    return (word[:-1], word[:-2]) if word.endswith("es") else (word[:-1],)


def fold_case(words: str) -> str:
    """Return words in lower case, except where only a capital makes a difference: Mg is not mg."""
    return re.sub(r"\bM(?=[gmlL]\b)", "mega", words).casefold()


@lru_cache(maxsize=512)
def measure(words: str) -> Measure | None:
    """Return what a unit measures, with exponents and quotients, or None if a word of it is unknown.

    >>> measure("km per hour") == measure("kph"), measure("square feet") == measure("ft^2"), measure("apples")
    (True, True, None)
    """
    powers: dict[str, int] = {}
    scale = Fraction(1)
    exponent, side = 1, 1
    for word in fold_case(words).replace("/", " per ").split():
        if word == "per":
            side = -1
            continue
        if word in _EXPONENTS:
            exponent = _EXPONENTS[word]
            continue
        name, _, power = word.rstrip(".").partition("^")
        if name in _COMBINED and not power and exponent == 1:
            below = measure(_COMBINED[name])
            parts = dict(below[0]) if below else {}
            size = below[1] if below else Fraction(1)
        else:
            known = UNITS.get(name) or next((UNITS[one] for one in _singular(name) if one in UNITS), None)
            if known is None or (power and not re.fullmatch(r"-?\d", power)):
                return None
            raised = exponent * int(power or 1)
            parts, size = {known[0]: raised}, known[1] ** raised
        for base, count in parts.items():
            powers[base] = powers.get(base, 0) + side * count
        scale *= size**side
        exponent = 1
    kept = tuple(sorted((base, count) for base, count in powers.items() if count))
    return (kept, scale) if kept and exponent == 1 else None


def same_things(one: str, other: str) -> bool:
    """Return whether two nouns mean the same: equal except for plural, or one is a known kind of the other.

    >>> same_things("red apples", "apple"), same_things("inches of snow", "inches")
    (True, True)
    >>> same_things("packs of cookies", "cookies"), same_things("dozen eggs", "eggs")
    (False, False)
    """
    left, right = _phrase(one), _phrase(other)
    if left == right:
        return True
    if (
        not left
        or not right
        or left[0][-1:] != right[0][-1:]
        or (left[1] and right[1] and left[1] != right[1])
    ):
        return False
    kinds = set(left[0]) ^ set(right[0])
    return all(word in _KINDS or _is_noun(word) for word in kinds)


def _phrase(words: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the words of "pink boxes of candy" in the singular: the counted thing and its content."""
    plain_words = [word.strip(".()") for word in fold_case(words).replace("-", " ").split()]
    stems = tuple(_stem(word) for word in plain_words if word)
    if not stems or "per" in stems:
        return (stems, ()) if stems else None
    at = stems.index("of") if "of" in stems else len(stems)
    head, rest = stems[:at], stems[at + 1 :]
    return (rest, ()) if head == ("piece",) and rest else (head, rest)


def _stem(word: str) -> str:
    options = _singular(word)
    return next((one for one in options if one in _NOUNS or one in UNITS), options[-1] if options else word)
