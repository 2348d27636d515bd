"""The decision whether two answers are equal, as far as it needs no sympy."""

from __future__ import annotations

import re
from functools import lru_cache

from gem.graders.base import UNDECIDED
from gem.graders.mathematics import number_words
from gem.graders.mathematics.algebra import same
from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import LENGTH, Node, Unread, english, normalise_text, read
from gem.graders.mathematics.replies import ANSWER, STYLED
from gem.graders.mathematics.scalars import constant
from gem.graders.mathematics.units import is_unit_or_noun
from gem.graders.mathematics.values import bare, is_unevaluated

_INTEGER = re.compile(r"([+-]?)(\d+|0*[1-9]\d{0,2}(?:,\d{3})+)", re.ASCII)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?\(?([A-Z])\)?(?:[.:)]?$|(?:[.:)]\s*|(?<=\))\s*)(?:[\dA-Z$\"'\\]|\s-\d)"
    r"(?:(?!\([A-Z]\)).)*$)",
    re.DOTALL,
)
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
_CLOCK = re.compile(r"(\d:\d\d)\s*([apAP])\.?\s?[mM]\b\.?")
_EMPHASIS = re.compile(r"\s*(\*\*|__|`{1,3})([^*`]+)\1[\s.]*")
_LETTERS = re.compile(r"\\(?:text|mathrm|textbf)\s*\{\s*([A-Z](?:\s*,\s*[A-Z])+)\s*\}")
_SCALED = re.compile(r"(\d+(?:\.\d+)?)\s+(thousand|million|billion|trillion)\b", re.IGNORECASE)
_BETWEEN = re.compile(r"(\d+)\s+to\s+(\d+)")
_IT_IS = re.compile(r"^(?:it(?:'s| is| was)|they are)\s+", re.IGNORECASE)
_PHRASED = re.compile(r"(?:\\[a-z]+\s*\{)?[A-Za-z' ]{3,}\}?")
_SAYINGS = {
    r"\mathbb{R}": re.compile(r"(?:all |any |every |the )*(?:reals|real numbers?)"),
    r"\emptyset": re.compile(
        r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?)|(?:the )?empty set|none"
    ),
    "does not exist": re.compile(r"dne|(?:the )?(?:limit )?does(?: not|n't) exist"),
    "infinitely many": re.compile(
        r"(?:there are )?(?:infinitely many|an infinite number of)(?: solutions?)?"
    ),
}
_WORD = re.compile(r"[^\W\d_]{2,}")
_PLAIN = re.compile(r"[\w\s.,:;'\"!?()&/%-]*")
_WORDS_ALONE = re.compile(r"[^\W\d_](?:[^\W\d_]|[\s.,:;'\"!?-])*")
_ROMAN = re.compile(r"[IVX]{2,}")
_PHRASE = re.compile(r"[^\W\d_][^\W\d_'. -]*(?:[ -][^\W\d_]['\w.]*)*")
_CLAUSE = re.compile(
    r",?\s*(?:\\text\s*\{)?\s*\b(?:where|for all|for any|with|such that|if|when)\b.*", re.DOTALL
)
_TALK = re.compile(r"(?<![\\a-zA-Z])[A-Za-z]{2,}|\\text")
_COMMANDS = (
    "frac dfrac tfrac sqrt sum prod int lim infty to rightarrow cdot times div pi alpha beta gamma theta "
    "lambda mu sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp binom lfloor rfloor "
    "lceil rceil det cr partial"
)
_TO = re.compile(r"\\(?:to|rightarrow)(?![a-zA-Z])")
_FORMULA = re.compile(
    rf"(?:\\(?:{'|'.join(_COMMANDS.split())})(?![a-zA-Z])|\\(?:begin|end)\{{[bp]?matrix\}}|\d++(?:\.\d++)?+(?!\s*_)"
    r"|(?<![a-zA-Z\\])(?:[a-eh-zA-Z]|[a-eh-zA-Z]{2,3}|[fgh](?!\s*\())(?![a-zA-Z])|[-+*/^=_{}()|&!\s])+"
)
_COMMA = re.compile(r"[+-]?(?:0,\d+|[1-9]\d{0,2},(?!\d{3}(?!\d))\d+|[1-9]\d{3,},\d+)[^\d,;]*", re.ASCII)
_BURST = re.compile(  # towers and factorials of what sympy would only burst on
    r"(?:\^|\*\*)[\s{(]*[\d.]+[\s})]*(?:\^|\*\*)|(?<!\d)\d{5,}[\s})]*!"
    r"|![\s})]*!|\^[\s{(]*\d{2,}[\s})]*!|(?:\^|\*\*)[\s{(]*-?\d{5,}|\\d?binom\s*\{\d{6,}"
)


def decide(gold: str, answer: str) -> tuple[bool | None, str]:
    """Compare without sympy: return True, False, or None if undecided, and the reason.

    It never raises and takes at most some milliseconds, whatever the texts are.
    """
    if gold == answer:
        return bool(gold), "same text"
    whole = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(answer)
    if whole[0] and whole[1]:
        return _digits(whole[0]) == _digits(whole[1]), "integers"
    if len(answer) > ANSWER or len(gold) > ANSWER:
        return False, "too long"
    if _ORDINAL.fullmatch(gold) and number_words.ordinal(answer.strip(" .")):
        return number_words.number(answer.strip(" .")) == int(gold[:-2]), "text"
    left, right = prepare_text(gold), prepare_text.__wrapped__(answer)
    if not right:
        return False, "no answer"
    verdict, why = _compare_texts(left, right)
    if not verdict and _TALK.search(right):
        value = number_words.extract_value(_strip_styles(right))
        if value is not None and value != right:
            equal, reason = _compare_texts(left, prepare_text.__wrapped__(value))
            if equal is not False:
                return equal, reason
        if number_words.has_number_word(right):
            plain = _strip_styles(right)
            amount = number_words.quantity(plain) if plain != right else None
            in_digits = number_words.numerals(plain) if amount is None else str(amount)
            if in_digits != right and any(letter.isdigit() for letter in in_digits):
                equal, reason = _in_digits(left, in_digits)
                if equal:
                    return equal, reason
    return verdict, why


def _in_digits(left: str, spoken: str) -> tuple[bool | None, str]:
    """Compare with an answer whose number words are now digits, including phrases such as "half of 2"."""
    equal, reason = _compare_texts(left, spoken)
    value = None if equal else number_words.extract_value(spoken)
    return (equal, reason) if value is None else _compare_texts(left, prepare_text.__wrapped__(value))


def _compare_texts(left: str, right: str) -> tuple[bool | None, str]:
    """Compare two normalised texts."""
    if left == right or (STYLED.search(left + right) and _plain(left) == _plain(right)):
        return bool(left), "same text"
    verdict = _choice(left, right)
    if verdict is None:
        verdict = _phrase(left, right)
    if verdict is not None:
        return verdict, "text"
    return _trees(left, right)


def _strip_styles(text: str) -> str:
    return " ".join(STYLED.sub(r" \1 ", text).split())


def readable(gold: str) -> bool | None:
    """Return whether this process reads a reference whole; None if only sympy could."""
    text = prepare_text(gold)
    if not text:
        return False
    plain = STYLED.sub(r"\1", text).strip()
    words = _PHRASE.fullmatch(plain) or _WORDS_ALONE.fullmatch(plain)
    if _CHOICE.fullmatch(plain) or (words and _WORD.search(plain)) or number_words.date(plain):
        return True
    for form in (text, number_words.extract_value(_strip_styles(text))):
        if form is None:
            continue
        try:
            if _has_known_unit(read(form)):
                return True
        except Unread:
            pass
    return None if formula(gold) is not None else False


def _has_known_unit(tree: Node) -> bool:
    """Return whether the words after a number are known to be a unit or a counted thing."""
    return tree[0] != "unit" or tree[2][0] == "(" or is_unit_or_noun(tree[2])


def formula(text: str) -> str | None:
    """Return a text in the form for sympy's parser; None if a part of it is not a plain formula.

    Undefined function names, primes, indices, sets and inequalities are excluded, because that parser
    misreads some of them.
    """
    if len(text) > ANSWER:
        return None
    text = prepare_text.__wrapped__(text)
    if len(text) > LENGTH or not _FORMULA.fullmatch(text):
        return None
    if ("\\cr" in text and "\\begin" not in text) or (_TO.search(text) and "\\lim" not in text):
        return None
    if any(english(word.lower()) for word in re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}", text)):
        return None
    return text.replace("\\cr ", r"\\ ")


def _digits(match: re.Match[str]) -> tuple[bool, str]:
    digits = match[2].replace(",", "").lstrip("0")
    return match[1] == "-" and bool(digits), digits


@lru_cache(maxsize=2048)
def prepare_text(text: str) -> str:
    """Return a text as it is read: without emphasis, with phrases, clocks and lists as mathematics."""
    emphasised = _EMPHASIS.fullmatch(text)
    text = normalise_text(emphasised[2] if emphasised else text)
    if "," in text:
        text = _LETTERS.sub(r"\1", text)
    if len(text) < 60:
        text = _rewrite_phrase(text)
    if ":" in text:
        text = _CLOCK.sub(r"\1 \2m", text)
    return _ORDINAL.sub(r"\1", text) if "th" in text or "st" in text or "nd" in text or "rd" in text else text


def _rewrite_phrase(text: str) -> str:
    """Rewrite the few phrases that mean a number or a set."""
    if _PHRASED.fullmatch(text):
        words = STYLED.sub(r"\1", text).strip().casefold()
        for meaning, phrase in _SAYINGS.items():
            if phrase.fullmatch(words):
                return meaning
    between = _BETWEEN.fullmatch(text)
    if between:
        return f"{between[1]}:{between[2]}"
    return _SCALED.sub(number_words.write_out_scale, text) if "illion" in text or "thousand" in text else text


def _choice(gold: str, answer: str) -> bool | None:
    """Compare multiple-choice letters, if the reference is one."""
    letter = _CHOICE.fullmatch(STYLED.sub(r"\1", gold).strip())
    if letter is None:
        return None
    plain = STYLED.sub(r"\1", answer).strip()
    given = _CHOICE.fullmatch(plain)
    if given is None and len(plain.strip("()")) == 1 and letter[1] in "ABCDEFGHIJ":
        return plain.strip("()").upper() == letter[1] if plain.strip("()").isalpha() else None
    return given[1] == letter[1] if given else None


def _phrase(gold: str, answer: str) -> bool | None:
    """Compare words, if the reference is words and not a formula."""
    plain = STYLED.sub(r"\1", gold).strip()
    if not _PHRASE.fullmatch(plain) or not _WORD.search(plain) or plain in ("pi", "infinity", "inf", "oo"):
        return None
    given = _IT_IS.sub("", STYLED.sub(r"\1", answer).strip(), count=1)
    if _flat(plain) == _flat(given):
        return True
    if _ROMAN.fullmatch(plain):
        return plain == given
    if (
        len(plain) <= 3
        and not english(plain.lower())
        and sorted(plain) == sorted(given.replace("*", "").replace(" ", ""))
    ):
        return None  # xy and yx may be products
    amount = number_words.quantity(plain)
    if amount is not None and (amount.denominator > 1 or number_words.number(plain) is not None):
        return amount == number_words.quantity(given) or decide(str(amount), given)[0]
    if _flat(given) in ("true", "false", "yes", "no") and _flat(plain) in ("true", "false", "yes", "no"):
        return {"true": "yes", "false": "no"}.get(_flat(plain), _flat(plain)) == {
            "true": "yes",
            "false": "no",
        }.get(_flat(given), _flat(given))
    return False if "\\" not in plain else None


def _plain(text: str) -> str:
    """Return a text without its styles and case, for words in formulas."""
    plain = " ".join(STYLED.sub(r"\1", text).split())
    return plain.casefold() if _WORD.search(plain) and "\\" not in plain else plain


def _flat(text: str) -> str:
    """Return only the words, without case and punctuation; signs and operators stay."""
    text = re.sub(r"(?<=\w)[-–](?=[^\W\d])", " ", text)
    return " ".join(re.sub(r"(?<!\d)[.,](?!\d)|[.,](?!\d)|[:;'\"!?()\[\]{}_]", " ", text).split()).casefold()


def _trees(gold: str, answer: str) -> tuple[bool | None, str]:
    try:
        left: Node = _read_gold(gold)
    except Unread:
        return _unread_gold(gold, answer)
    spoken = (
        answer[:1].isalpha() and "\\" not in answer and not number_words.ordinal(answer)
    )  # a fifth, or the fifth?
    number = number_words.quantity(answer) if spoken else None
    if number is not None and constant(left):
        answer = str(number)
    try:
        right: Node = read.__wrapped__(answer)
    except Unread as unread:
        if unread.hopeless or "\\" not in answer:
            return False, UNDECIDED if _BURST.search(answer) and not unread.hopeless else "unreadable"
        return _for_sympy(gold, answer, "unread")
    if is_unevaluated(left, right, answer):
        return False, "not evaluated"
    try:
        verdict = same(left, right)
        if verdict is not True and "," in answer:
            verdict = _decimal_comma(left, answer) or verdict
    except TooBig:
        return False, UNDECIDED  # too big for sympy as well: no worker's time is spent on it
    except RecursionError:
        return None, "deep"
    if verdict is None:
        return _for_sympy(gold, answer, "different")
    return verdict, "equal" if verdict else "different"


def _read_gold(gold: str) -> Node:
    """Read a reference; "5 dollars is the price" or "at least 5" is read as the value it states."""
    try:
        tree: Node = read(gold)
    except Unread:
        value = number_words.extract_value(_strip_styles(gold)) if _TALK.search(gold) else None
        if value is None:
            raise
        tree = read(value)
    if not _has_known_unit(tree):
        raise Unread("words")
    return tree


def _for_sympy(gold: str, answer: str, why: str) -> tuple[bool | None, str]:
    """Return None if a worker may be asked, which needs two plain formulas."""
    if _BURST.search(answer):
        return False, UNDECIDED
    if formula(gold) is None or formula(answer) is None:
        return False, why
    return None, why


def _decimal_comma(gold: Node, answer: str) -> bool | None:
    """Compare 1,5 with a reference of 1.5; a number with groups of thousands is never a decimal."""
    number = bare(gold)
    if number[0] == "num" and number[2] is not None and _COMMA.fullmatch(answer):
        try:
            return same(gold, read(answer.replace(",", ".")))
        except Unread:
            return None
    return None


def _unread_gold(gold: str, answer: str) -> tuple[bool | None, str]:
    """Compare with a reference that is not read: as a formula, by its parts, as a date, or word for word."""
    if _normalise_spelling(gold) == _normalise_spelling(answer):
        return True, "same words"
    if _WORDS_ALONE.fullmatch(gold) and _flat(gold) == _flat(answer):
        return True, "same words"
    main, rest = _CLAUSE.sub("", gold), _CLAUSE.sub("", answer)
    if main and main != gold and rest != answer:  # "2n, where n is odd": both halves count
        conditions = _normalise_spelling(gold[len(main) :]) == _normalise_spelling(answer[len(rest) :])
        return (_compare_texts(main, rest)[0] is True and conditions), "formula and condition"
    if _WORD.search(gold):
        left, right = number_words.date(gold), number_words.date(answer)
        if left is not None:
            return left == right, "text"
    if len(answer) > LENGTH:
        return False, "too long"
    if "\\" not in gold:
        return False, "the reference is no plain formula"
    return _for_sympy(gold, answer, "the reference is no plain formula")


def _normalise_spelling(text: str) -> str:
    """Return a text without styles, spaces beside signs and stops at its end, and words without case."""
    text = " ".join(re.sub(r"[`$]|\\[,;: ]", "", STYLED.sub(r" \1 ", text)).split()).replace("\\%", "%")
    text = re.sub(r" ?([^\w\s]) ?", r"\1", text)
    text = text if text.endswith("..") else text.strip(".,;: ")
    return text.casefold() if re.search(r"[^\W\d_]{3,}", text) and "\\" not in text else text
