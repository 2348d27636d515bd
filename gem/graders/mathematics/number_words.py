"""Numbers and dates written in words, and the sentences around a value.

Only words in closed lists are removed from a sentence, because any other word may change the value.
"""

from __future__ import annotations

import re
from fractions import Fraction

from gem.graders.mathematics.languages import word_set
from gem.graders.mathematics.nouns import is_unit_or_noun

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
    """Return the number that English words mean (``twenty-one``, ``three hundred and five``), or None.

    >>> number("two thousand and twelve")
    2012
    """
    text = words.casefold()
    parts = [part for part in re.split(r"[\s,-]+", text) if part not in ("", "and")]
    if _SIGN.search(text) or not 0 < len(parts) <= 30 or parts == ["second"]:
        return None
    negative = parts[0] in ("minus", "negative")
    total, group, last = 0, 0, "start"
    for part in parts[negative:]:
        word = _ORDINALS.get(part, part)
        if word not in _UNITS and word.endswith("th"):
            word = word[:-4] + "y" if word.endswith("ieth") else word[:-2]
        amount = _UNITS.get(word, 0)
        small = last not in ("ones", "tens") or (last == "tens" and 0 < amount < 10)
        if word in _UNITS and small:
            group, last = group + amount, "tens" if amount >= 20 else "ones"
        elif word == "hundred" and (0 < group < 100 or last == "start"):
            group, last = (group or 1) * 100, "scale"
        elif word in SCALES and group:
            total, group, last = total + group * SCALES[word], 0, "scale"
        elif word != "a" or last != "start":
            return None
    if last == "start":
        return None
    return -(total + group) if negative else total + group


_SIGN = re.compile(r"(?<![^\W\d_])-|-(?![^\W\d_])")


CARDINAL = "|".join(sorted([*_UNITS, "hundred", *SCALES], key=len, reverse=True))
_CARDINALS = re.compile(
    rf"\b(?:(?:a|one)(?=[\s-]+(?:hundred|thousand|million))|{CARDINAL})(?:(?:[\s-]+(?:and\s+)?)(?:{CARDINAL}))*\b",
    re.IGNORECASE,
)


_SPOKEN = re.compile(rf"(?<![a-z])(?:{CARDINAL}|half|quarter)", re.IGNORECASE)


def has_number_word(text: str) -> bool:
    """Return whether a text contains a word for a number."""
    return _SPOKEN.search(text) is not None


def numerals(text: str) -> str:
    """Return a text with its cardinal number words in digits; unchanged if they are parts of other numbers.

    >>> numerals("x = twenty-one"), numerals("two and three"), numerals("one half")
    ('x = 21', '2 and 3', 'one half')
    """
    if not _CARDINALS.search(text) or _NO_CARDINAL.search(text):
        return text
    return _CARDINALS.sub(lambda match: _digits_of(match[0]), text)


_NO_CARDINAL = re.compile(
    r"\b(?:hal(?:f|ves)|thirds?|quarters?|dozens?|point|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand)ths?)\b",
    re.IGNORECASE,
)


def _digits_of(words: str) -> str:
    whole, (first, joined, second) = number(words), words.partition(" and ")
    left, right = number(first), number(second)
    both = f"{left} and {right}" if joined and left is not None and right is not None else words
    return both if whole is None else str(whole)


def ordinal(words: str) -> bool:
    """Return whether words are an ordinal number: fifth, twenty-first."""
    last = re.split(r"[\s-]+", words.casefold())[-1]
    return (last in _ORDINALS or last.endswith("th") or last == "third") and number(words) is not None


def write_out_scale(match: re.Match[str]) -> str:
    """Return "2.5 million" in digits, as it is if that is no integer.

    The groups of the pattern are `number` and `scale`, and perhaps `between`, which stays.
    """
    parts = match.groupdict()
    amount = Fraction(parts["number"]) * SCALES[parts["scale"].casefold()]
    return f"{amount} {parts.get('between') or ''}".rstrip() if amount.denominator == 1 else match[0]


_PARTS = {"half": 2, "third": 3, "fourth": 4, "quarter": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
          "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000}  # fmt: skip


def quantity(words: str) -> Fraction | None:
    """Return the value of a number in words: alone, as a fraction, or before one noun; None for other words.

    >>> quantity("two thirds"), quantity("three apples")
    (Fraction(2, 3), Fraction(3, 1))
    """
    rest, _, last = words.strip().casefold().replace("-", " ").rpartition(" ")
    part = _PARTS.get("half" if last == "halves" else last.removesuffix("s"))
    one = rest in ("a", "one")
    whole = None if _SIGN.search(words) or (one and part) else number(words)  # "one hundredth" is no ordinal
    count = 1 if one else number(rest)
    if _SIGN.search(words) or whole is not None or count is None:
        return None if whole is None else Fraction(whole)
    noun = part or (rest != "a" and is_unit_or_noun(last))
    return Fraction(count, part or 1) if noun else None


_DATES = [
    re.compile(pattern.replace("DAY", r"(?P<d>\d{1,2})(?:st|nd|rd|th)?").replace("NAME", "(?P<m>[a-z]+)"))
    for pattern in (
        r"DAY(?: of)? NAME\.?,? (?P<y>\d{4})",
        r"NAME\.? (?:the )?DAY,? (?P<y>\d{4})",
        r"(?P<y>\d{4})[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})",
        r"NAME\.?,? (?P<y>\d{4})",
        r"NAME\.? (?:the )?DAY",
        r"DAY(?: of)? NAME",
    )
]


def date(words: str) -> str | None:
    """Return an ISO-like form of a date that has a month's name or a four-digit year first, or None.

    >>> date("December 14th, 1972")
    '1972-12-14'
    """
    text = re.sub(r"^(?:on|in) | (?:utc|gmt|ad|ce)$", "", " ".join(words[:200].casefold().split()))
    for match in (pattern.fullmatch(text) for pattern in _DATES) if len(text) <= 40 else ():
        parts = match.groupdict() if match else {}
        name = parts.get("m", "")
        month = int(name) if name.isdigit() else _MONTHS.get(name, 0)
        if 1 <= month <= 12 and 1 <= int(parts.get("d", 1)) <= 31:
            return f"{parts.get('y', '----')}-{month:02}" + (f"-{int(parts['d']):02}" if "d" in parts else "")
    return None


_NUMERAL = r"[$€£]?\d+(?:,\d{3})*(?:\.\d+)?"
_NOTATION = re.compile(
    rf"\+?(?:\(\d{{3}}\) ?)?{_NUMERAL}(?:(?:--?|–){_NUMERAL})+"
    r"|\d+/\d+/\d+|(?!\d{1,3}(?:\.\d{3})+\Z)\d+(?:\.\d+){2,}"
)


def is_notation(text: str) -> bool:
    """Return whether numerals are no calculation: a date, a range, a score, a telephone or version number.

    >>> is_notation("1994-03-14"), is_notation("1914–1918"), is_notation("10 - 3"), is_notation("1.234.567")
    (True, True, False, False)
    """
    return _NOTATION.fullmatch(text.strip()) is not None


# -- what a sentence says

_OPENINGS = re.compile(
    r"\A(?:(?:so|thus|hence|therefore|then|finally|overall|altogether|consequently|adding up"
    r"|in (?:total|all|conclusion|summary)"
    r"|(?:this|that|which) (?:means|gives|yields)"
    r"|we (?:get|have|find|obtain|conclude|see)|it follows|and so)\b[,:]?\s*"
    r"(?:that\s+)?)+",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\A(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|result|solution|value)\s*(?::|=)\s*", re.IGNORECASE
)
_VERBS = frozenset(
    ["is", "are", "was", "were", "equals", "equal", "be", "makes", "has", "takes", "costs", "leaves"]
)
_SUBJECTS = word_set("""
it this that they there these he she we you the our its their his her my a an of for in final correct right
numerical exact required desired possible total whole number amount answer result solution value sum product
difference quotient remainder area perimeter circumference volume length width height distance time speed
rate price cost profit income probability chance slope ratio radius diameter angle measure mean average
median mode maximum minimum max min largest smallest greatest least lowest highest limit integral
determinant coefficient degree age weight mass count equation function expression set interval domain range
coordinates point vertex center centre term must will would distinct different integer numbers values
solutions ways people apples dollars now only
""")
_VARIABLE = re.compile(
    r"\$?\\?[A-Za-z](?:_\{?\w+\}?|\([a-z]\))?\$?|\\?(?:alpha|beta|theta|lambda|mu|sigma|phi)|[A-Z]{2,3}"
)
_HEDGES = re.compile(
    r"\A(?:(?:equal to|given by|exactly|precisely|simply|just|only|approximately|:)\s*)+", re.IGNORECASE
)
_SIGNS = (r"\ge", r"\le", r"\ne", "> ", "< ")
_TURNED = {
    "at least": r"\ge {}", "no less than": r"\ge {}", "not less than": r"\ge {}", "at most": r"\le {}",
    "greater than or equal to": r"\ge {}", "less than or equal to": r"\le {}", "no more than": r"\le {}",
    "not more than": r"\le {}", "more than": "> {}", "greater than": "> {}", "less than": "< {}",
    "not equal to": r"\ne {}", "minus": "-({})", "negative": "-({})", "the opposite of": "-({})",
    "half of": "({})/2", "twice": "2({})", "double": "2({})", "the square root of": r"\sqrt{{{}}}",
    "square root of": r"\sqrt{{{}}}",
}  # fmt: skip
_RAISED = {"squared": "({})^{{2}}", "cubed": "({})^{{3}}"}


def extract_value(text: str) -> str | None:
    r"""Return the value that a sentence states, without the sentence; None if nothing is removed.

    >>> extract_value("Therefore the answer is 5 apples")
    '5 apples'
    >>> extract_value("minus 5"), extract_value("at least 5")
    ('-(5)', '\\ge 5')
    >>> extract_value("the answer is not 5"), extract_value("the wrong answer is 5")
    ('not 5', None)
    """
    if len(text) > 400:
        return None
    name, rest = _after_subject(_LABEL.sub("", _OPENINGS.sub("", text.strip(), count=1), count=1))
    rest = _write_formula(_HEDGES.sub("", rest, count=1).strip(), 0)
    if name and rest:
        rest = f"{name} {rest}" if rest.startswith(_SIGNS) else f"{name} = {rest}"
    return None if rest == text.strip() or not rest else rest


def _after_subject(text: str) -> tuple[str, str]:
    """Return the variable and the text after "is", if every word before it is known."""
    words = text.split(" ", 12)
    for i, word in enumerate(words[:12]):
        lower, before = word.casefold().rstrip(":,"), words[i - 1].rstrip(",") if i else ""
        behind = " ".join(words[i + 1 :])
        if before and lower in _VERBS and words[i + 1 : i + 2] != ["="]:
            return (before.strip("$,") if _VARIABLE.fullmatch(before) else ""), behind
        if word == "=" and len(before) > 2 and words[i - 1].casefold() in _SUBJECTS:
            return "", behind
        if lower not in _SUBJECTS and not _VARIABLE.fullmatch(word.rstrip(",")):
            break
    return "", text


def _write_formula(text: str, depth: int) -> str:
    """Write "half of 10" and the like as formulas."""
    lower = text.casefold() if depth < 3 else ""
    for phrase, formula in _TURNED.items():
        if lower.startswith(phrase + " "):
            return formula.format(_write_formula(text[len(phrase) + 1 :].strip(), depth + 1))
    for phrase, formula in _RAISED.items():
        if lower.endswith(" " + phrase):
            return formula.format(_write_formula(text[: -len(phrase) - 1].strip(), depth + 1))
    return text
