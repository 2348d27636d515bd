"""Numbers and dates that are written in words."""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS = {word: number for number, word in enumerate(_ONES.split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), 2)
}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {
    "first": "one", "second": "two", "third": "three", "fifth": "five", "eighth": "eight", "ninth": "nine",
    "twelfth": "twelve",
}  # fmt: skip
_MONTH_NAMES = (
    "january jan,february feb,march mar,april apr,may,june jun,july jul,august aug,september sep sept,"
    "october oct,november nov,december dec"
)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split(","), 1) for name in names.split()}


def number(words: str) -> int | None:
    """Return the number that English words say (``twenty-one``, ``three hundred and five``), or None.

    >>> number("two thousand and twelve")
    2012
    """
    parts = [
        word for word in re.split(r"[\s-]+", words.casefold().replace(",", " ")) if word not in ("", "and")
    ]
    if not parts or len(parts) > 30 or (len(parts) == 1 and parts[0] == "second"):
        return None
    negative = parts[0] in ("minus", "negative")
    total, group, last = 0, 0, "start"
    for part in parts[negative:]:
        word = _ORDINALS.get(part, part)
        if word not in _UNITS and word.endswith("th"):
            word = word[:-4] + "y" if word.endswith("ieth") else word[:-2]
        if word in _UNITS:
            size = "tens" if _UNITS[word] >= 20 else "ones"
            if last == "ones" or (last == "tens" and (size == "tens" or not 0 < _UNITS[word] < 10)):
                return None
            group += _UNITS[word]
            last = size
        elif word == "hundred" and 0 < group < 100:
            group *= 100
            last = "scale"
        elif word in ("hundred", "a") and not group and last == "start":
            group = 100 if word == "hundred" else 0
            last = "scale" if word == "hundred" else "start"
        elif word in SCALES and group:
            total += group * SCALES[word]
            group, last = 0, "scale"
        else:
            return None
    if last == "start":
        return None
    return -(total + group) if negative else total + group


_PARTS = {"half": 2, "third": 3, "fourth": 4, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
          "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000}  # fmt: skip
_NO_NOUNS = ("dozen", "dozens", "score", "pair", "pairs", "percent", "point", "times", "squared", "cubed",
             "in", "out", "of", "to")  # fmt: skip


def quantity(words: str) -> Fraction | None:
    """Return what a number in words says, alone, as a fraction, or before one noun; None for other words.

    >>> quantity("two thirds"), quantity("three apples")
    (Fraction(2, 3), Fraction(3, 1))
    """
    rest, _, last = words.strip().casefold().replace("-", " ").rpartition(" ")
    part = _PARTS.get("half" if last == "halves" else last.removesuffix("s"))
    one = rest in ("a", "one")
    whole = None if one and part else number(words)  # "one hundredth" is no ordinal
    if whole is not None:
        return Fraction(whole)
    count = 1 if one else number(rest)
    if count is None or part:
        return Fraction(count, part) if count and part else None
    noun = last.isalpha() and not last.endswith("ths") and last not in _NO_NOUNS and last not in SCALES
    return Fraction(count) if noun and rest != "a" and number(last) is None else None


_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATES = [
    (re.compile(rf"{_DAY}(?: of)? ([a-z]+)\.?,? (\d{{4}})"), "dmy"),
    (re.compile(rf"([a-z]+)\.? (?:the )?{_DAY},? (\d{{4}})"), "mdy"),
    (re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})"), "ymd"),
    (re.compile(r"([a-z]+)\.?,? (\d{4})"), "my"),
    (re.compile(rf"([a-z]+)\.? (?:the )?{_DAY}"), "md"),
    (re.compile(rf"{_DAY}(?: of)? ([a-z]+)"), "dm"),
]


def date(words: str) -> str | None:
    """Return an ISO-like form of a date with a month's name or a four-digit year first, or None.

    >>> date("December 14th, 1972")
    '1972-12-14'
    """
    text = " ".join(words.casefold().split())
    if not 4 <= len(text) <= 40:
        return None
    text = re.sub(r"^(?:on|in) | (?:utc|gmt|ad|ce)$", "", text)
    for pattern, order in _DATES:
        found = pattern.fullmatch(text)
        if not found:
            continue
        parts = dict(zip(order, found.groups(), strict=True))
        month = _MONTHS.get(parts["m"], 0) if not parts["m"].isdigit() else int(parts["m"])
        day = int(parts.get("d", 1))
        if 1 <= month <= 12 and 1 <= day <= 31:
            year = parts.get("y", "----")
            return f"{year}-{month:02}" + (f"-{day:02}" if "d" in parts else "")
    return None
