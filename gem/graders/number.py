r"""NumberGrader: compares one number in an answer with one number in a reference, exactly.

Units, currency signs, words around the number and the way it is written (``1,234.50``, ``1 234.5``,
``1.2345 \times 10^3``, ``\frac12``, ``0.5``, ``2½``, ``2 1/2``, ``2.5 million``, ``5k``, ``eighteen``,
``minus 3``) make no difference. Calculations (``2^5``, ``3 \cdot 4``) are not carried out, and a number that
is a part of something else (``2x``, ``5!``, ``\sqrt{5}``, ``12.10.2020``) is not read. For formulas see
`gem.graders.math`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from gem.errors import BadArgument, check_argument
from gem.graders.base import BoxedGrader, Score
from gem.graders.mathematics import languages, number_words
from gem.graders.mathematics.nouns import is_unit_or_noun
from gem.graders.mathematics.replies import final_answer
from gem.graders.mathematics.units import read_unit
from gem.graders.stated import LONGEST, NOT_RIGHT, Reply, find_corrections, read_reply
from gem.parsing import APART_SIGN, boxed, drop_invisible, strip_styles

DIGITS = 400  # of one number; a longer one is not read
_OTHER_SCRIPT = r"[^\W\d_\x00-\u058f\u2000-\u2bff]"  # a letter of one without capitals, as in 答案是18元
_JOINED = re.compile(rf"(?<={_OTHER_SCRIPT})(?=[-+−]?[$€£]?\d)|(?<=\d)(?={_OTHER_SCRIPT})")
_SUPERSCRIPT = re.compile("(?<=\\d)[⁻⁰¹²³⁴-⁹]+")
_DIGITS_OF = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_GROUPS = re.compile(  # 1 000, 1'000, 1_000; not within other numbers, where the gap may part two of them
    r"(?<![\w.,/^'’])(?<!\d[\s~])[1-9]\d{0,2}(?P<gap>[ \u00a0\u2009\u202f~'’_]|\\[ ;:_])\d{3}"
    r"(?:(?P=gap)\d{3})*(?![\d_]|[\s~]?[\d/]|[,'’]\d|\\[ ;:_]\d)"
)
_SPACES = re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!|,)(?=\d{3}(?!\d))")
_POWER = re.compile(  # of ten, after a factor or alone; other powers are calculations
    r"(?:(?<![\w.^/])(?P<factor>\d+(?:\.\d+)?|\.\d+)\s*(?:\\times|\\cdot|[×·⋅*x])\s*|(?<![\w.^]))10\s*(?:\^|\*\*)\s*"
    r"(?:\{\s*(?P<braced>[-−+]?\d{1,3})\s*\}|(?P<bare>[-−+]?\d{1,3}))(?!\d|\.\d|\s*\^|\s*\*\*)"
)
_FRACTION = re.compile(r"\\[cdt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))(?!\d)")
_RAISED = re.compile(r"\s*\^\s*(?:\{\s*[-−+]?\d\s*\}|[-−+]?\d(?!\d))")
_UNITS = re.compile(  # up to the last that is raised
    rf"(?<=\d)\$?(?:\\[,;:! ]|[\s~])+(?:[A-Za-zµΩÅ]{{1,20}}(?:{_RAISED.pattern})?"
    rf"(?:\s*(?:/|\*|·|⋅|\\cdot(?![a-z])|\\,)\s*|[\s~]+)){{0,6}}[A-Za-zµΩÅ]{{1,20}}{_RAISED.pattern}(?!\s*[-+−=^])"
)
_MINUS = re.compile(  # behind other words it may be a difference
    r"(\A\s*|[:=(,$*]\s*|\b(?:is|are|was|were|be|equals?|of|to|at|or|about|exactly|approximately)\s+)minus\s+(?=[({]?[$€£]?\.?\d)"
    r"|\bnegative\s+(?=[({]?[$€£]?\.?\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?\s{0,2}[$€£]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"(?:\s?/\s?[1-9]\d*(?!\d|\.\d|[eE][-+]?\d|\s*\^\s*\{?\s*[-−\w(]))?"
)

_VULGAR = re.compile("[¼-¾⅐-⅞]")
_DOTTED = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d,]|\.\d)")  # 1.234.567
_MIXED = re.compile(r"(?<![\w.,/^])(?<!\d[\s~])(\d{1,30}) {1,2}(\d{1,2})/(\d{1,2})(?![\d/]|[.,]\d)")
_AND_PART = re.compile(
    r"(?<![\w.,/^])(\d{1,30}) and ((?:an?|one|two|three) (?:half|thirds?|quarters?|fifths?|eighths?))\b",
    re.IGNORECASE,
)
_SCALES = number_words.SCALES | {"hundred": 100, "dozen": 12, "mn": 10**6, "bn": 10**9}
_SCALED = re.compile(
    r"(?<![\w.,/^])(?P<number>\d{1,30}(?:\.\d{1,30}|/[1-9]\d{0,9})?)"
    rf"(?:[\s~-]{{1,2}}(?P<scale>(?i:{'|'.join(_SCALES)}))s?\b(?!-)|(?P<short>k)(?![\w^$]|\s*[-+*/=]))"
    r"|(?<=[$€£])(?P<price>\d{1,30}(?:\.\d{1,30})?) ?(?P<of>[kKmMbBtT])(?![\w^$]|\s*[-+*/=])"
)
_SHORT = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_ASKED = re.compile(rf"\b(?:how many|number of|in) (?:the )?({'|'.join(_SCALES)})s?\b", re.IGNORECASE)
_FUNCTION = r"(?:sqrt|log|ln|lg|exp|sin|cos|tan|cot)"
_GREEK = r"\\(?:pi|theta|alpha|beta|lambda|phi|omega)(?![a-z])"
_LETTER = r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])"
_BEFORE = re.compile(  # a number behind these is a part of something else
    rf"(?:\d[:.]|(?<![\d(,.])\d+,|frac\s*\{{(?:[^{{}}]{{0,24}}\}}\s*\{{)?\s*|(?:[\^√_±]|\\pm)\s*[({{]?\s*"
    rf"|\b{_FUNCTION}\s*(?:\[\d*\]|_\s*\{{?\w{{1,4}}\}}?)?\s*[({{]?\s*"
    rf"|(?:[\d)}}!π]|{_GREEK}|{_LETTER})"
    r"(?:[-+−]\s*|[ \t]+[-+−]\s+|[ \t]*(?:[*/×·⋅]|\\(?:cdot|times|div)(?![a-z]))\s*)"
    r"(?:(?:\\left)?[({]\s*)?|[-−]\s*[({]\s*[-−]\s*)\Z"
)
_OTHER_THAN = re.compile(  # a number behind these is not the one that is meant
    r"(?<!no )(?<!not )\b(?:more|less|fewer|greater|larger|smaller|higher|lower|bigger) than"
    r"(?: (?:exactly|just))?[\s$(*:\\]*\Z",
    re.IGNORECASE,
)
_CONTRASTED = re.compile(  # nor is one behind these: "18, not 17", "18 instead of the 17"
    r"(?:\b(?:rather than|instead of|as opposed to|unlike)"
    r"|\d(?:\*\*)?(?:[^.;:=\n\d]{0,30}(?:,| and| but|[(–—]))?\s?"
    r"(?:(?:certainly|definitely|clearly|surely) )?(?:not|never))"
    r"(?:,? (?:the|an?|about|around|say|exactly|just|only)\b){0,3}(?:,? [a-z] ?= ?)?[\s,$€£(*\\≈~'\"‘“]{1,5}"
    r"(?:[\d.,]{1,20} (?:or|and|nor) )?\Z",
    re.IGNORECASE,
)
_LINKS = re.compile(r"(?:[\s({*\\]|\b(?:be|equal|to|exactly|just|the|an?)(?=\W))*\Z")
_NOT_OF_IT = re.compile(  # "18 is not sold"
    r"\W{0,3}(?:\w{1,14} )?is(?: not|n['’]t) (?!(?:the|an?|correct|right|true|it|possible|valid)\b)[a-z]"
)
_CLAUSE_END = re.compile(r"[,;:.。，]\s?")
_BEHIND = re.compile(  # and so is one before these
    r"[:.]\d|\.{2,}\s?\d|[\u0300-\u036f]|(?<=\b0)[xob][\da-f]| ?[万亿億만]|"  # 0.3̅, 0x1f, 5万
    r"_\{?\w|[₀-₉]|[ \t~]*(?:\\[,;:! ][ \t]*)*(?:\^(?!\s*\{?\s*\\circ)|[√π]"
    rf"|(?:squared|cubed|factorial)\b|\\(?:{_FUNCTION}|cdot(?!s)|times(?!\W*\Z)|div|[tdc]?frac|binom|infty)(?![a-z])|{_GREEK}"
    rf"|[-+−*×·⋅]\s*(?:(?![aAI]){_LETTER}|\\(?!text)[a-z]))"
)
_LETTERS = re.compile(r"((?:[ \t~]|\\[,;:! ])*)([A-Za-z]+)([.'’]?[A-Za-z])?")
_RATIO = re.compile(r"\\[cdt]?frac\s*\{\s*([a-zA-Z]+)\s*\}\s*\{\s*([a-zA-Z]+)\s*\}")
_DIVIDED = re.compile(rf"\d\s?[/⁄]\s?\d|frac|{_VULGAR.pattern}")
_NUMBER_FIRST = re.compile(r"[^\w=]*(?:[cdt]?frac\W*)?\d")
_CALCULATION = re.compile(
    r"\W*\d[\d.,]*\s*(?:[x×*·+]|\\(?:times|cdot)|times|plus|divided by)\s*\W?\d", re.IGNORECASE
)
_MOST_WORDS = 6  # of an answer before a calculation; a longer sentence begins one
_ENDINGS = ("st", "nd", "rd", "th", "am", "pm")


class NumberGrader(BoxedGrader):
    r"""A grader that compares a number with the number of a reference.

    The answer's number is the only one in the last ``\boxed{}`` or ``<answer>``, else the one that the reply
    says is its answer ("The answer is 18."; see `gem.graders.stated`), else the last one of the reply. One
    that is denied ("not 18", "more than 18") is none, and so are several ("18 or 19").
    The reference is a number, a text with one number (``9 (apples)``), the end of a solution after ``####``,
    or a list of these, any of which is accepted.
    """

    name = "number/4"
    answer_form: ClassVar[str] = "Give your final answer as a number inside \\boxed{}."
    criterion: ClassVar[str] = "the same number"

    def __init__(self, tolerance: float = 0.0) -> None:
        """Set the accepted relative error; 0: the numbers are exactly equal.

        Raises:
            BadArgument: for a tolerance outside 0 to 1.
        """
        check_argument("tolerance", tolerance, 0 <= tolerance < 1, "0 to 1, such as 0.001")
        self.tolerance = tolerance

    def __call__(self, answer: str, reference: Any, question: str = "") -> Score:
        """Score `answer` against `reference`; dozens that `question` asks for are a unit."""
        golds = read_numbers(reference)
        given, text = answered_number(answer, question)
        if given is None:
            return Score(0.0, False, None, "no number" if text is None else f"not one number: {text[:100]}")
        pairs = [(given, gold) for gold in golds]
        if asked := _ASKED.search(question):
            given, _ = answered_number(answer, question, asked[1])
            pairs += [(given, gold) for gold in read_numbers(reference, asked[1]) if given is not None]
        close = Fraction(self.tolerance)
        right = any(abs(given - gold) <= close * abs(gold) for given, gold in pairs)
        return Score(float(right), right, (text or "")[:200], "equal" if right else "another number")

    @staticmethod
    def read_golds(reference: Any) -> Sequence[Fraction]:
        """Return the numbers of a reference; see `read_numbers`."""
        return read_numbers(reference)

    @classmethod
    def write_answer(cls, reference: Any) -> str:
        """Return the first number of a reference in a box: a decimal, or a fraction if it is one."""
        number = read_numbers(reference)[0]
        decimal = Decimal(number.numerator) / number.denominator
        exact = Fraction(decimal) == number and not _DIVIDED.search(str(reference).rpartition("####")[2])
        return f"\\boxed{{{f'{decimal:f}' if exact else number}}}"


def answered_number(reply: str, question: str = "", unit: str = "") -> tuple[Fraction | None, str | None]:
    """Return the number of a reply and the text that it was read from; None where there is none."""
    parts = read_reply(reply)
    text, rest = _find_statement(parts) if parts.inside is None else (parts.inside, "")
    if text is not None:
        numbers = find_numbers(languages.write_numbers(text), question, unit)
        return (numbers[0] if len(numbers) == 1 else None), text
    numbers = find_numbers(rest, question, unit)
    if not numbers and not NOT_RIGHT.search(rest.rpartition("\n")[2]):
        numbers = find_numbers(final_answer(rest)[0] or "", question, unit)  # in words
    return (numbers[-1], str(numbers[-1])) if numbers and numbers[-1] is not None else (None, None)


def _find_statement(parts: Reply) -> tuple[str | None, str]:
    """Return the text in which a reply states its number, and if it states none what may end with it.

    Where a calculation, or a sentence with no number in front, follows "Answer:", that only begins there.
    """
    for statement in parts.statements[:1]:
        sentence = statement.find_sentence()
        rest = f"{statement.text[len(sentence) :]}\n{statement.behind}"
        numbers = find_numbers(sentence)
        if _is_corrected(numbers, rest):
            return None, rest
        if "=" in sentence or _CALCULATION.match(sentence):
            break
        if len(numbers) > 1 and languages.TOTAL.search(rest):
            break
        if "=" in rest and len(sentence.split()) > _MOST_WORDS:
            break
        if _NUMBER_FIRST.match(sentence):
            return (final_answer(parts.text)[0] if len(numbers) > 1 else None) or sentence, ""
        if len(numbers) == 1 >= len(find_numbers(sentence + rest)):
            return sentence, ""
    return None, parts.text


def _is_corrected(numbers: list[Fraction | None], rest: str) -> bool:
    """Return whether what stands behind numbers takes them back, or states another."""
    texts = find_corrections(rest)
    stated = filter(_NUMBER_FIRST.match, texts)
    read = [numbers_of_text[0] for text in stated if (numbers_of_text := find_numbers(text))]
    return "" in texts or (bool(read) and read[-1] not in numbers)


def find_numbers(text: str, question: str = "", unit: str = "") -> list[Fraction | None]:
    """Return all numbers of a text, or the one that it is in words; the last is None if it is a part of more.

    Args:
        text: the text.
        question: a capital letter K, M or B of it may be a unit behind a number.
        unit: a scale, such as ``dozen``, that is a unit in this text.
    """
    plain = _write_plainly(strip_styles(drop_invisible(text[:LONGEST]), " "), unit.casefold())
    read = [(number, match) for match in _NUMBER.finditer(plain) if (number := _value(match[0])) is not None]
    read = [each for each in read if not _is_contrasted(plain, each[1].start())] or read
    numbers: list[Fraction | None] = [number for number, _ in read]
    if read and _is_part(plain, read[-1][1], question):
        numbers[-1] = None
    word = None if numbers else number_words.quantity(plain.strip(" .!").casefold()[:100])
    return numbers if word is None else [word]


def _is_contrasted(text: str, start: int) -> bool:
    """Return whether a number is named as the one that is not meant."""
    return _CONTRASTED.search(text, max(0, start - 60), start) is not None


def _is_part(text: str, match: re.Match[str], question: str) -> bool:
    """Return whether a number is a part of a formula, a date, a time or the like."""
    end = match.end()
    start = end - len(match[0].lstrip("-+−").lstrip())
    before = text[max(0, start - 40) : start]
    if _BEFORE.search(before) or _BEHIND.match(text, end) or _is_denied(before, text[end : end + 40]):
        return True
    if "." in match[0] and text.startswith(("..", "…"), end):
        return True  # 0.333...; behind other numbers dots end a sentence
    if text.startswith("!", end) and not re.search("[A-Za-z]", text[max(0, start - 40) : start]):
        return True  # a factorial; behind words it ends the sentence
    letters = _LETTERS.match(text, end)
    if letters is None or len(letters[2]) > 3:
        return False
    space, word, more = letters.groups()
    if len(word) == 1:
        known = word in "KMB" and not space and not re.search(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])", question)
        return known or not (more or (space and word in "aAI") or read_unit(word))
    return not (space or word.casefold() in _ENDINGS or read_unit(word) or is_unit_or_noun(word))


def _is_denied(before: str, behind: str) -> bool:
    """Return whether a number is the one that a value is not, or is more or less than."""
    clause = _CLAUSE_END.split(before.rstrip("-+−$€£ "))[-1] + " "
    # A verb behind a negation has another object: "not sold is 18".
    last = _LINKS.sub("", clause).split()[-1:]
    denied = languages.NEGATED.search("".join(last)) or (
        languages.DENIED_AFTER.match(behind.lstrip(")*$ ")) and not _NOT_OF_IT.match(behind)
    )
    return bool(denied) or _OTHER_THAN.search(clause) is not None


def _write_plainly(text: str, unit: str) -> str:
    """Write digits in groups, powers of ten, fractions and signs in one way, and units without powers."""
    text = text if text.isascii() else _JOINED.sub(" ", text)
    text = _VULGAR.sub(lambda match: f" {unicodedata.normalize('NFKC', match[0])}", text).replace("⁄", "/")
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_DIGITS_OF), text)
    text = _GROUPS.sub(lambda match: match[0].replace(match["gap"], ""), text)
    text = _POWER.sub(_write_power, _SPACES.sub("", text))
    text = _DOTTED.sub(lambda match: match[0].replace(".", ""), text)
    text = _UNITS.sub(_drop_powers, _FRACTION.sub(_write_fraction, _RATIO.sub(r" \1/\2", text)))
    text = _AND_PART.sub(lambda match: f"{int(match[1]) + (number_words.quantity(match[2]) or 0)}", text)
    text = _MIXED.sub(_write_mixed, text)
    for _ in range(2):  # 2 hundred thousand
        text = _SCALED.sub(lambda match: _write_scaled(match, unit), text)
    return APART_SIGN.sub("-", _MINUS.sub(r"\1-", text)).replace("\\$", "$")


def _write_mixed(match: re.Match[str]) -> str:
    whole, top, bottom = map(int, match.groups())
    return str(whole + Fraction(top, bottom)) if top < bottom else match[0]


def _write_scaled(match: re.Match[str], unit: str) -> str:
    scale = (match["scale"] or match["short"] or match["of"]).casefold()
    if scale == unit:
        return match[0]
    factor = _SCALES.get(scale) or _SHORT[scale]
    return str(Fraction(match["number"] or match["price"]) * factor)


def _write_power(match: re.Match[str]) -> str:
    exponent = (match["braced"] or match["bare"]).replace("−", "-")
    if match["factor"] or exponent.startswith("-"):
        return f"{match['factor'] or 1}e{exponent}"
    return "1" + "0" * int(exponent)  # in digits, because it may be a denominator


def _write_fraction(match: re.Match[str]) -> str:
    at = match.start()
    apart = " " * match.string[max(0, at - 1) : at].isalnum()  # 3\frac{1}{2} is not 31/2
    return f"{apart}{match[1] or match[2]}/{match[3] or match[4]} "


def _drop_powers(match: re.Match[str]) -> str:
    plain = _RAISED.sub("", match[0])
    return plain if all(map(read_unit, re.findall(r"(?<!\\)\b[A-Za-zµΩÅ]+", plain))) else match[0]


def _value(text: str) -> Fraction | None:
    text = re.sub(r"[\s$€£]", "", text).replace("−", "-")
    top, _, bottom = text.partition("/")
    exponent = top.casefold().partition("e")[2].lstrip("+-0")
    if len(text) > DIGITS or len(exponent) > 3:
        return None
    return Fraction(top) / (int(bottom) if bottom else 1)


def read_numbers(reference: Any, unit: str = "") -> list[Fraction]:
    """Return the numbers of a reference, any of which is accepted; `unit` as in `find_numbers`.

    Raises:
        BadArgument: when it has none, or a text has more than one.
    """
    if isinstance(reference, int | float) and not isinstance(reference, bool):
        if isinstance(reference, int) and abs(reference) >= 10**DIGITS:
            raise BadArgument(f"the reference has more than {DIGITS} digits, which no answer may have")
        try:
            return [Fraction(str(reference))]
        except ValueError:  # NaN and infinity
            raise _reference_error(reference) from None
    if isinstance(reference, str):
        text = reference.rpartition("####")[2] if "####" in reference else reference
        inside = boxed(text)
        numbers = find_numbers(text if inside is None else inside, unit=unit)
        if len(numbers) == 1 and numbers[0] is not None:
            return [numbers[0]]
    elif isinstance(reference, Sequence) and reference and not isinstance(reference, bytes):
        return [number for part in reference for number in read_numbers(part, unit)]
    raise _reference_error(reference)


def _reference_error(reference: Any) -> BadArgument:
    return BadArgument(
        f"the reference is {reference!r:.80}; accepted by the number grader: a number, a text with one "
        "number, or a list of these"
    )
