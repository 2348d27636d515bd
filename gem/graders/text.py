"""TextGrader: exact match and F1 for question answering, as in SQuAD and HotpotQA."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Literal

from gem.errors import BadArgument, check_argument
from gem.graders.base import BOXED, DataGrader, Score
from gem.graders.mathematics import number_words
from gem.graders.stated import PIECE, PREDICATE, Reply, drop_contrast, drop_label, read_reply
from gem.parsing import APART_SIGN, boxed, drop_invisible, strip_markup, strip_styles

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_NO_MARKS = {code: None for code in _NO_PUNCTUATION if chr(code) not in "()[]{}"}
_CLOSED = ("yes", "no", "noanswer")
_GROUPED = re.compile(  # by hundreds too, as in India
    r"(?<![\d,.])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d,])|(?<![\d,.'’])\d{1,3}(?:['’]\d{3})+(?![\d'’])"
)
_SCALED = re.compile(
    r"(?<![\d.])(?P<number>\d{1,15}(?:\.\d{1,15})?)\s+(?P<scale>thousand|million|billion|trillion)\b",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"(?<=\d) ?(?:percent|per cent)\b", re.IGNORECASE)
_DASHES = "-‐‑–"
_OTHERS = string.punctuation.translate(dict.fromkeys(map(ord, "-./:,*^{}\\")))  # braces are LaTeX's layout
_BETWEEN = re.compile(
    rf"(?<=\d)\^(?=[{{( \x04]+\d)|(?<=\d)[{re.escape('./:,*^' + _DASHES + _OTHERS)}]+(?=\d)"
)
_BETWEEN_NAMES = str.maketrans("./:,*^" + _DASHES, "\x01\x02\x03\x0e\x0f\x10" + "\x05" * len(_DASHES))
# characters that no text has, and nothing removes
_BETWEEN_NAMES |= {ord(sign): 0xE000 + ord(sign) for sign in _OTHERS}
_EXPONENT = re.compile(r"(?<=\d)[eE]([-−–+])(?=\d)")
_MINUS = re.compile(r"([=^]\s?\{?)[-−]\s?(?=[^\W\d_])")  # of a formula: y = -x
_RAISED = re.compile("(?<=\\d)[⁻⁰¹²³⁴-⁹]+")
_RAISED_NAMES = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_COMPARISON = re.compile(r"[<>!]=|[≤≥≠]|(?<=\w)\s?[<>]\s?(?=[\w.])")
_COMPARISON_NAMES = {"<=": "\x11", "≤": "\x11", ">=": "\x12", "≥": "\x12", "!=": "\x13", "≠": "\x13"} | {
    "<": "\x14",
    ">": "\x15",
}
# no article: "Hepatitis A", "A, C"; but "A. Oslo" has a label
_LETTER_A = re.compile(r"(?:(?<=\A)|(?<=[\s,;/(\[{+]))[aA]\b(?!\s*\w|[.):]\s*\w|['’-])")
_BLANK_GROUPED = re.compile(r"(?<![\d,.] )(?<![\d,.])\d{1,3}(?: \d{3})+(?![\d,.]| \d)")
_OPERATOR = re.compile(r"->|=>|<-(?!\s?[\w.$])|([<>=!]=|[<>=≤≥≠])|(?<=[\w)])\s?([+−-])\s?(?=[\w(])")
_OPERATOR_NAMES = {"≤": "<=", "≥": ">=", "≠": "!=", "==": "="}
# Marks that many leave out: of Latin and Greek letters, and vowels of Hebrew and Arabic. Other scripts' marks
# make other letters.
_LETTER_MARKS = str.maketrans(
    {"ø": "o\u0338", "ł": "l\u0335", "đ": "d\u0335", "ħ": "h\u0335", "ı": "i", "æ": "ae", "œ": "oe"}
)
_LATIN_MARKS = "(?<=[\x00-\u03ff])[\u0300-\u036f]+"
_MARKS = re.compile(
    rf"{_LATIN_MARKS}|\u0301|(?<=е)\u0308"
    "|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc]"
)
_MARKED_LETTER = re.compile(r"[^\W\d_][\u0300-\u036f]*")
_SEPARATOR = re.compile(r"[,;](?!\d{3}(?!\d))|[,;](?=\s)")
_SYMBOL = re.compile(  # C++, C#, Canal+, the grade B-, Cl-, ~p, f'(x)
    r"(?<=\w)\++|(?<=[A-Za-z])#(?![\w#])|(?<![\w-])(?:[A-Z][a-z]?\d{0,2}){1,4}[-−](?![\w>-])"
    r"|(?<![^\s=(])[-−~!](?=[A-Za-z]\b(?!\.))|(?<=[A-Za-z])['’]+(?=\()"
)
_SYMBOLS = str.maketrans(
    {"+": "\x06", "#": "\x07", "-": "\x08", "−": "\x08", "~": "\x17", "!": "\x17", "'": "\x18", "’": "\x18"}
)
_HYPHEN = re.compile(rf"(?<=\w)[{_DASHES}](?=\w)")
_ROMAN = re.compile(r"(?=..)(x{0,3})(ix|iv|v?i{0,3})")
_YEAR = re.compile(r"(?:in )?(\d{4})\.?", re.IGNORECASE)
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_HEDGED = re.compile(  # behind an answer: "But it could be Bergen."
    r"[.!?;\n][\s*_]*+(?:but|however|although)\b[^.!?\n]{0,60}"
    r"\b(?:may|might|could|also|answer|correct|think|sure)\b",
    re.IGNORECASE,
)
_ITEM = re.compile(r"(?:[-*•]|\d{1,2}[.)])\s")
_REASONED = re.compile(r"(yes|no)[,.;]? because\b.*", re.IGNORECASE | re.DOTALL)


class TextGrader(DataGrader):
    r"""A grader that compares an answer with one or more gold answers, any of which is accepted.

    The answer is the content of the last ``\boxed{}``, else of the last ``<answer>``, else the whole reply
    without its thinking, or what it says is its answer; see `gem.graders.stated`. Styles around its words, as
    ``\text{}`` and ``\textbf{}``, make no difference.
    """

    name = "text/3"
    answer_form: ClassVar[str] = BOXED
    criterion: ClassVar[str] = "the words of an answer, but for case, articles and punctuation"

    def __init__(self, metric: Literal["em", "f1"] = "em", official: bool = False) -> None:
        """Choose the metric of `value`: exact match or word F1; `correct` is always exact match.

        Args:
            metric: ``em`` or ``f1``.
            official: compare exactly as the SQuAD script does. Then number words, dates, accents and
                typographic characters make a difference; signs, decimal points and the ends of C++ do not.
        """
        check_argument("metric", metric, metric in ("em", "f1"), "em, f1")
        self.metric, self.official = metric, official

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer` against `reference`; see `unboxed_references`."""
        golds = unboxed_references(reference)
        readings = read_answers(read_reply(answer))
        given = readings[0]
        right = answer.strip() in golds  # a text may look like a field of JSON, or end like a turn
        right = right or any(exact_match(each, gold, self.official) for each in readings for gold in golds)
        why = "exact match" if right else "different" if given else "no answer"
        value = float(right)
        if self.metric == "f1" and not right:
            value = max(f1(each, gold, self.official) for each in readings for gold in golds)
        return Score(value, right, given[:200] or None, why)

    @staticmethod
    def read_golds(reference: Any) -> Sequence[str]:
        """Return the texts of a reference; see `references`."""
        texts = references(reference)
        if not any(text.strip() for text in texts):
            raise BadArgument(f"the reference is {reference!r:.80}, which is empty")
        return texts

    @classmethod
    def write_answer(cls, reference: Any) -> str:
        """Return the first text of a reference: in a box, or in tags if its braces would break the box."""
        text = unboxed_references(reference)[0]
        box = f"\\boxed{{{text}}}"
        return box if boxed(box) == text.strip() else f"<answer>{text}</answer>"


def read_answers(reply: Reply) -> list[str]:
    """Return the readings of the answer in a reply: of its box, or of all of it and of what it states.

    A gold answer may be LaTeX, so that a reading with its commands is among them.
    """
    if (inside := reply.inside) is not None:
        return list(dict.fromkeys((inside, strip_styles(inside), strip_markup(inside), drop_label(inside))))
    reasoned = _REASONED.fullmatch(reply.text)
    stated = [reasoned[1]] if reasoned else [reply.closing] if reply.closing else []
    for statement in reply.statements[:1]:
        stated = []
        hedged = _HEDGED.search(f"-{statement.text}\n{statement.behind[:PIECE]}")
        if not hedged and not _begins_with_item(statement.behind):
            stated = [text for each in statement.readings() for text in (each, strip_markup(each))]
    texts = (reply.text, strip_styles(reply.text), strip_markup(reply.text), *stated)
    return list(dict.fromkeys((*texts, *(drop_contrast(text[-PIECE:]) for text in texts))))


def _begins_with_item(behind: str) -> bool:
    """Return whether an item of a list, or a few words that are no sentence, follow an answer."""
    lines = (line.strip() for line in behind[:PIECE].splitlines())
    first = next((line for line in lines if any(map(str.isalnum, line))), ".")
    if ":" not in first and _ITEM.match(first):
        return True
    return (
        ":" not in first
        and not first.endswith((".", "!", "?", ")"))
        and (len(first.split()) < 6 or not PREDICATE.search(first))
    )


def references(reference: Any) -> list[str]:
    """Return the texts of a reference, any of which is accepted.

    It is text, a number, or a sequence of them; a truth value, whose texts are yes and true, or no and false;
    SQuAD's ``{"text": [...]}``; or TriviaQA's ``{"value": ..., "aliases": [...]}``.

    Raises:
        BadArgument: when it is anything else, or has no text.
    """
    texts = list(dict.fromkeys(_texts(reference, reference)))
    if not texts:
        raise _reference_error(reference)
    return [text for text in texts if text.strip()] or texts


def unboxed_references(reference: Any) -> list[str]:
    """Return the texts of a reference without boxes; see `references`."""
    return [text if (inside := boxed(text)) is None else inside for text in references(reference)]


def _texts(part: Any, whole: Any) -> list[str]:
    part = part.tolist() if hasattr(part, "tolist") else part
    if isinstance(part, str):
        return [part]
    if isinstance(part, bool):
        return ["yes", "true"] if part else ["no", "false"]
    if isinstance(part, int | float | Decimal):
        return [str(part)]
    if isinstance(part, Mapping) and (known := [part[name] for name in _GIVEN if name in part]):
        return [text for each in known for text in _texts(each, whole)]
    if isinstance(part, Sequence) and not isinstance(part, bytes):
        return [text for each in part for text in _texts(each, whole)]
    raise _reference_error(whole)


_GIVEN = ("text", "value", "aliases", "target")  # SQuAD, TriviaQA, Search-R1


def _reference_error(reference: Any) -> BadArgument:
    return BadArgument(
        f"the reference is {reference!r:.80}; accepted: text, a number, a truth value, a non-empty sequence "
        "of them, or the answers of SQuAD and TriviaQA"
    )


def exact_match(answer: str, gold: str, official: bool = False) -> bool:
    """Return whether both are equal except for case, punctuation, articles and spaces.

    Unless `official`, number words, dates, ordinals, accents, typographic and invisible characters make no
    difference either, but the sign of a number, characters between two digits and the ends of C++, C# and B-
    do. If either side is only punctuation and articles, both are compared unchanged.

    >>> exact_match("The twenty-one pilots!", "21 Pilots"), exact_match("14 December 1972", "Dec. 14th, 1972")
    (True, True)
    """
    if not official:
        day = number_words.date(gold)
        if day is not None and day == number_words.date(answer):
            return True
        years = _YEAR.fullmatch(gold.strip()), _YEAR.fullmatch(answer.strip())
        if years[0] and years[1]:
            return years[0][1] == years[1][1]
        if _signs_differ(answer, gold):
            return False
        blanks = [_BLANK_GROUPED.search(text) is not None for text in (answer, gold)]
        if blanks[0] != blanks[1] and re.search(
            r"\d{4}", (answer, gold)[blanks[0]]
        ):  # no list: 12 000 is 12000
            answer, gold = (_BLANK_GROUPED.sub(_join_digits, text) for text in (answer, gold))
    lists = () if official or not _SEPARATOR.search(answer + gold) else (_list_items,)
    for reading in (*_readings(official), *lists):
        left, right = reading(answer), reading(gold)
        if left or right:
            if left == right:
                return True
        elif (given := answer.strip(" .()").casefold()) == gold.strip(" .()").casefold():
            # an article may be the answer: blood of the type A; and so may a full stop
            return given != "" or answer.strip() == gold.strip() != ""
    return False


def f1(answer: str, gold: str, official: bool = False) -> float:
    """Return the F1 score of the common words, as HotpotQA computes it.

    >>> f1("the red house", "house"), f1("yes", "no")
    (0.6666666666666666, 0.0)
    """
    return max(_f1(reading(answer), reading(gold)) for reading in _readings(official))


def _f1(left: str, right: str) -> float:
    if left != right and (left in _CLOSED or right in _CLOSED):
        return 0.0
    words, wanted = left.split(), right.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def normalise(text: str) -> str:
    """Convert to lower case, remove ASCII punctuation and articles, and join the words by single spaces.

    This is the normalisation of the SQuAD script.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _readings(official: bool) -> tuple[Callable[[str], str], ...]:
    return (normalise,) if official else (_keep_signs, _drop_punctuation, _alike)


def _keep_signs(text: str) -> str:
    """Normalise as the script does, but keep what `_protect` keeps."""
    return normalise(_protect(text))


def _drop_punctuation(text: str) -> str:
    """Normalise like `_keep_signs`, and remove the punctuation of all scripts."""
    text = _protect(text)
    return normalise("".join(c for c in text if c.isascii() or unicodedata.category(c)[0] != "P"))


def _protect(text: str) -> str:
    """Write signs of numbers, characters between two digits and symbols after a letter in other characters.

    The point of a decimal is no punctuation, nor is what makes a time, a fraction or a range, or C++ of C.
    """
    text = _write_signs(text)
    text = _EXPONENT.sub(lambda sign: "e" if sign[1] == "+" else "e\x04", text)
    text = _SYMBOL.sub(lambda mark: mark[0].translate(_SYMBOLS), text)
    text = APART_SIGN.sub(" \x04\\g<money>", _MINUS.sub("\\1 \x04", _join_groups(text)))
    text = _LETTER_A.sub("\x16", text).replace("**", "^").replace("$", "").replace("\\,", "")
    return _BETWEEN.sub(lambda mark: mark[0].translate(_BETWEEN_NAMES), text)


def _write_signs(text: str) -> str:
    """Write powers such as 10³ as 10^3, and comparisons of two characters as one that stays."""
    text = _RAISED.sub(lambda power: "^" + power[0].translate(_RAISED_NAMES), text)
    return _COMPARISON.sub(lambda sign: f" {_COMPARISON_NAMES[sign[0].strip()]} ", text)


def _list_items(text: str) -> str:
    """Normalise, with blanks for commas and semicolons; keep brackets, and articles, which may be items."""
    text = _protect(_SEPARATOR.sub(" ", _join_groups(text)))
    return " ".join(text.lower().translate(_NO_MARKS).split())


def _signs_differ(answer: str, gold: str) -> bool:
    """Return whether both have comparisons, or sums, with other signs, or letters with other marks."""
    for signs in zip(_read_operators(answer), _read_operators(gold), strict=True):
        if len(signs[0]) == len(signs[1]) and signs[0] != signs[1]:
            return True
    if answer.isascii() or gold.isascii():
        return False
    letters = [_MARKED_LETTER.findall(_decompose(text)) for text in (answer, gold)]
    pairs = list(zip(*letters, strict=False))
    same = len(letters[0]) == len(letters[1]) and all(one[0] == other[0] for one, other in pairs)
    return same and any(one != other and one[1:] and other[1:] for one, other in pairs)


def _read_operators(text: str) -> tuple[list[str], list[str]]:
    """Return the signs of comparisons and of sums in a text, in their order."""
    comparisons, sums = [], []
    for comparison, sign in _OPERATOR.findall(text):
        comparisons += [_OPERATOR_NAMES.get(comparison, comparison)] * bool(comparison)
        sums += ["+" if sign == "+" else "-"] * bool(sign)
    return comparisons, sums


def _decompose(text: str) -> str:
    """Return a text in small letters, with marks behind them."""
    return unicodedata.normalize("NFKD", text.casefold()).translate(_LETTER_MARKS)


def _join_digits(number: re.Match[str]) -> str:
    return number[0].replace(" ", "")


def _join_groups(text: str) -> str:
    """Write 1,000 as 1000."""
    return _GROUPED.sub(lambda number: re.sub("[,'’]", "", number[0]), text.replace("{,}", ","))


def _alike(text: str) -> str:
    """Normalise, and write numbers, ordinals and accented letters in one way."""
    text = _write_signs(drop_invisible(text))
    text = _VULGAR.sub(lambda part: f" {part[0]}", text).replace("°", " ")
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/")
    text = _SYMBOL.sub(lambda mark: mark[0].translate(_SYMBOLS), text)
    text = _join_groups(text)
    text = _PERCENT.sub("", _SCALED.sub(number_words.write_out_scale, text)).replace(" & ", " and ")
    text = _HYPHEN.sub(" ", text)
    words = [_shorter(word) for word in _drop_punctuation(_MARKS.sub("", _decompose(text))).split()]
    parts: list[str] = []
    at = 0
    while at < len(words):
        ordinal = _ORDINAL.fullmatch(words[at])
        if ordinal:
            parts.append(ordinal[1])
            at += 1
            continue
        for end in range(min(len(words), at + 8), at, -1):
            number = (
                number_words.number(" ".join(words[at:end])) if words[end - 1] not in ("and", "a") else None
            )
            if number is not None:
                parts.append(str(number).replace("-", "\x04"))
                at = end
                break
        else:
            parts.append(words[at])
            at += 1
    return " ".join(parts)


def _shorter(word: str) -> str:
    """Write 5.00 as 5, and ii as 2."""
    whole, point, decimals = word.partition("\x01")
    if point and decimals.isdecimal():
        decimals = decimals.rstrip("0")
        return whole + (point + decimals if decimals else "")
    roman = _ROMAN.fullmatch(word)
    if roman is None:
        return word
    ones = {"ix": 9, "iv": 4}.get(roman[2], 5 * ("v" in roman[2]) + roman[2].count("i"))
    return str(10 * len(roman[1]) + ones)
