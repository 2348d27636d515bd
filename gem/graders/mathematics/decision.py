"""The decision whether two answers are equal, as far as it needs no sympy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations

from gem.graders.base import UNDECIDED
from gem.graders.mathematics import number_words
from gem.graders.mathematics.algebra import rename_variables, same, symbols
from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import LENGTH, Node, english, read
from gem.graders.mathematics.notation import Unread, prepare_text, strip_styles, strip_to_words
from gem.graders.mathematics.nouns import is_unit_or_noun
from gem.graders.mathematics.quantities import read_quantity, same_quantity
from gem.graders.mathematics.replies import ANSWER
from gem.graders.mathematics.scalars import constant
from gem.graders.mathematics.units import asked_unit
from gem.graders.mathematics.values import bare, is_unevaluated

_INTEGER = re.compile(r"([+-]?)(\d+|0*[1-9]\d{0,2}(?:,\d{3})+)", re.ASCII)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?\(?([A-Z])\)?(?:[.:)]?$|(?:[.:)]\s*|(?<=\))\s*)(?:[\dA-Z$\"'\\]|\s-\d)"
    r"(?:(?!\([A-Z]\)).)*$)",
    re.DOTALL,
)
_BRACKETED = re.compile(r"\([A-J]\)")
_OPTION = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*:?\s+)?"
    r"\(?((?-i:[A-Z]))(?:\.\s+(\S.*)|\)\.?\s*(\S.*)|\)?[.:]?)",
    re.IGNORECASE | re.DOTALL,
)
"""A letter, alone or as the label of a value: ``B``, ``(B) 42``, ``Option B``."""
_VALUE_BESIDE = re.compile(r"[\d$\\A-Z(.\u2212-]|(?:none|all|both|neither|the|an?)\b")
_NAMED_EXTREME = re.compile(r"\s*([a-zA-Z])_\s*\{?\s*\\?(?:text\s*\{|mathrm\s*\{)?\s*(?:min|max)[\s}]*=")
_CLASS = re.compile(r"(?:[a-z]\s*\\equiv\s*)?(-?\d+)\s*\(?\s*\\?[bp]?mod\s*\{?\s*(\d+)\s*\}?\s*\)?")
_RESIDUES = re.compile(
    r"[a-z]\s*=\s*(?:(\d+)\s*([i-nt])\s*([+-]\s*\d+)?|(-?\d+)\s*\+\s*(\d+)\s*([i-nt]))"
    r"(?:\s*,?\s*(?:\(|\\text\s*\{\s*(?:for|where|with)?\s*\}\s*)?\s*[i-nt]\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?\s*\)?)?"
)
_ASSIGNED = re.compile(r"\s*([a-zA-Z](?:_\w)?)\s*=\s*([^=,;<>]+)")
_GROUPS = re.compile(r"\s*(?:;|,?\s*\\text\s*\{\s*(?:or|and)\s*\}|,?\s*\bor\b|\n)\s*")
_SCALED_LETTER = re.compile(r"\$?\s*(\d[\d.,]*)\s?k\s*(\\text\s*\{\s*dollars\s*\}\s*)?")
_LONG_NAME = re.compile(
    r"\s*(?:[A-Za-z]{2,8}(?:_\{?\w+\}?)?|[A-Za-z]_\s*\{?\s*\\?[A-Za-z]+\s*\}?)\s*=(?!=)\s*(?=[-+\d.\\(]+[^=]*$)"
)
_ARGUMENT = re.compile(r"\s*([a-zA-Z])\s*\([a-z]\)\s*=")
_LABELLED = re.compile(r"\s*(?:\\text\s*\{)?\s*([A-Za-z][A-Za-z ]{0,30}?)\s*(?::|=)\s*\}?\s*([^=:]+)")
_COUNTED = re.compile(r"\s*([-+]?[\d.,/]+)\s*(?:\\text\s*\{)?\s*([A-Za-z][A-Za-z ]{1,30}?)\s*\}?")
_PARTED = re.compile(r"\s*(?:,(?!\d{3}(?!\d))|;|\\text\s*\{\s*and\s*\}|\band\b|\\cr)(?:\s*and\b)?\s*")
_ARBITRARY = re.compile(r"[Cc](?:_?\w)?")
_ANY_CONSTANT = re.compile(r"(?:[A-Z]|[ck])(?:_?\w)?")
_TIME = re.compile(r"(?:at )?(\d{1,2}) ?:(\d\d)(?:\s*([ap])\.? ?m)?\b\.?", re.IGNORECASE)
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")
_SAID = re.compile(
    r"(?!.*\b(?:not|never|if|no|or|either|maybe|might|could|would|was)\b)[A-Z][\w' ]{0,60}"
    r" (?:is|are|will be|on)(?: an?| the)? ([\w' -]+)\.?",
    re.IGNORECASE,
)
_IT_IS = re.compile(r"^(?:it(?:'s| is| was)|they are)\s+", re.IGNORECASE)
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
_COMMA = re.compile(
    r"[+-]?(?:\d+(?:\{,\}|,)00(?!\d)|0,\d+|[1-9]\d{0,2},(?!\d{3}(?!\d))\d+|[1-9]\d{3,},\d+)[^\d,;]*", re.ASCII
)
_BURST = re.compile(  # towers and factorials of what sympy would only burst on
    r"(?:\^|\*\*)[\s{(]*[\d.]+[\s})]*(?:\^|\*\*)|(?<!\d)\d{5,}[\s})]*!"
    r"|![\s})]*!|\^[\s{(]*\d{2,}[\s})]*!|(?:\^|\*\*)[\s{(]*-?\d{5,}|\\d?binom\s*\{\d{6,}"
)


NOT_EVALUATED = "not evaluated"
"""The reason where an answer is equal but leaves a sum, product or quotient of numbers to do."""


def decide(gold: str, answer: str, question: str = "") -> tuple[bool | None, str]:
    """Compare without sympy: return True, False, or None if undecided, and the reason.

    A unit in which `question` asks for the answer is that of a reference without one. It never raises and
    takes at most some milliseconds, whatever the texts are.
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
    asked = asked_unit(question) if question else None
    if asked is not None and right != left:
        measured = same_quantity(left, right, asked)
        if measured is not None:
            return measured, "equal" if measured else "different"
    if "=" in right:
        right = _without_name(left, right)
    verdict, why = _compare_texts(left, right)
    if not verdict and _TALK.search(right):
        value = number_words.extract_value(strip_to_words(right))
        if value is not None and value != right:
            equal, reason = _compare_texts(left, prepare_text.__wrapped__(value))
            if equal is not False:
                return equal, reason
        if number_words.has_number_word(right):
            plain = strip_to_words(right)
            amount = number_words.quantity(plain) if plain != right else None
            in_digits = number_words.numerals(plain) if amount is None else str(amount)
            if in_digits != right and any(letter.isdigit() for letter in in_digits):
                equal, reason = _in_digits(left, in_digits)
                if equal:
                    return equal, reason
    if (
        not verdict
        and "k" in right
        and (scaled := _SCALED_LETTER.fullmatch(right))
        and not re.search("[a-z]", left)
    ):
        return _compare_texts(left, f"{scaled[1]}*1000 {scaled[2] or ''}")
    return verdict, why


def _without_name(gold: str, answer: str) -> str:
    """Return an answer without a long name before its value, or an argument that the reference leaves out."""
    if "=" not in gold:
        name = _LONG_NAME.match(answer)
        return answer[name.end() :] if name else answer
    extreme = _NAMED_EXTREME.match(answer)
    if extreme and gold.startswith(extreme[1]) and "_" not in gold:
        return f"{extreme[1]} = {answer[extreme.end() :]}"
    argument = _ARGUMENT.match(answer)
    return (
        f"{argument[1]} ={answer[argument.end() :]}"
        if argument and gold[:2].strip("=") == argument[1] + " "
        else answer
    )


def _in_digits(left: str, spoken: str) -> tuple[bool | None, str]:
    """Compare with an answer whose number words are now digits, including phrases such as "half of 2"."""
    equal, reason = _compare_texts(left, spoken)
    value = None if equal else number_words.extract_value(spoken)
    return (equal, reason) if value is None else _compare_texts(left, prepare_text.__wrapped__(value))


def _compare_texts(left: str, right: str) -> tuple[bool | None, str]:
    """Compare two normalised texts."""
    if left == right or ("\\" in left + right and _plain(left) == _plain(right)):
        return bool(left), "same text"
    if "mod" in left and (wanted := _residues(left)) is not None:
        return wanted == _residues(right), "residues"
    if "=" in right and left.lstrip("\\{ ").startswith("("):
        right = _points(left, right) or right
    verdict = _choice(left, right)
    if verdict is None and ":" in left:
        verdict = _time(left, right)
    if verdict is None and (":" in left or "=" in left):
        verdict = _named_values(left, right)
    if verdict is None:
        verdict = _phrase(left, right)
    if verdict is not None:
        return verdict, "text"
    verdict, why = _trees(left, right)
    if not verdict:
        measured = same_quantity(left, right)
        if measured is not None:
            return measured, "equal" if measured else "different"
    return verdict, why


def readable(gold: str) -> bool | None:
    """Return whether this process reads a reference whole; None if only sympy could."""
    text = prepare_text(gold)
    if not text:
        return False
    plain = strip_styles(text).strip()
    if read_quantity(text):
        return True
    words = _PHRASE.fullmatch(plain) or _WORDS_ALONE.fullmatch(plain)
    if _CHOICE.fullmatch(plain) or (words and _WORD.search(plain)) or number_words.date(plain):
        return True
    for form in (text, number_words.extract_value(strip_to_words(text))):
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


def _residues(text: str) -> tuple[int, int] | None:
    """Return the residue and the modulus of a class of integers, as 3 (mod 7) or x = 7k + 3."""
    match = _CLASS.fullmatch(text)
    if match:
        residue, modulus = int(match[1]), int(match[2])
    else:
        match = _RESIDUES.fullmatch(text)
        if match is None:
            return None
        modulus = int(match[1] or match[5])
        residue = int((match[3] or "0").replace(" ", "")) if match[1] else int(match[4])
    return (residue % modulus, modulus) if modulus else None


def _points(gold: str, answer: str) -> str | None:
    """Return groups such as "x = 1, y = 2 or x = 3, y = 0" as tuples in the order of the alphabet.

    None where the reference is no tuple, or list of tuples, of as many numbers.
    """
    width = _TUPLE.match(gold)
    if width is None or "=" in gold:
        return None
    points, names = [], list[str]()
    for group in _GROUPS.split(answer):
        pairs = [
            _ASSIGNED.fullmatch(item)
            for item in re.split(r",|\band\b|\\text\s*\{\s*and\s*\}", group)
            if item.strip()
        ]
        if len(pairs) != width[1].count(",") + 1 or None in pairs:
            return None
        values = {pair[1]: pair[2].strip() for pair in pairs if pair}
        if len(values) != len(pairs) or (names and sorted(values) != names):
            return None
        names = sorted(values)
        points.append(f"({', '.join(values[name] for name in names)})")
    return ", ".join(points)


_TUPLE = re.compile(r"\s*(?:\\\{\s*)?\(([^()]*,[^()]*)\)")


def _choice(gold: str, answer: str) -> bool | None:
    """Compare multiple-choice letters, if the reference is one, and the values beside them."""
    plain = strip_styles(answer).strip()
    letter = _OPTION.fullmatch(strip_styles(gold).strip())
    if letter is None:
        given = _OPTION.fullmatch(plain) if plain.startswith("(") and len(plain) < LENGTH else None
        value = prepare_text.__wrapped__((given[3] or given[2] or "") if given else "")
        if value and not value.startswith("("):  # "(B) 42" where 42 is asked for
            return _compare_texts(gold, value)[0] or None
        return None
    value = letter[2] or letter[3]
    if len(_BRACKETED.findall(plain)) > 1:
        return False  # two options
    given = _OPTION.fullmatch(plain) or (None if value else _CHOICE.fullmatch(plain))
    if given is None and len(plain.strip("()")) == 1 and letter[1] in "ABCDEFGHIJ":
        return plain.strip("()").upper() == letter[1] if plain.strip("()").isalpha() else None
    if given is None:
        return None
    beside = given[2] or given[3] if given.re is _OPTION else None
    if value and beside:
        return given[1] == letter[1] and decide(value, beside)[0]
    return given[1] == letter[1] and (not beside or _VALUE_BESIDE.match(beside) is not None)


def _time(gold: str, answer: str) -> bool | None:
    """Compare times of the day: 3:45 pm is 15:45; None unless the reference says which half of the day."""
    wanted = _TIME.fullmatch(strip_to_words(gold))
    given = _TIME.fullmatch(strip_to_words(answer).replace("{:}", ":"))
    if wanted is None or given is None:
        return None
    if not (wanted[3] or int(wanted[1]) > 12):  # 12:50 may be either half of the day
        return _minutes(wanted) % 720 == _minutes(given) % 720 if given[3] else None
    return _minutes(wanted) == _minutes(given)


def _minutes(time: re.Match[str]) -> int:
    """Return the minutes since midnight."""
    hours = int(time[1])
    if time[3]:
        if hours > 12:
            return -1
        hours = hours % 12 + 12 * (time[3].casefold() == "p")
    return 60 * hours + int(time[2])


def _named_values(gold: str, answer: str) -> bool | None:
    """Compare values with names, as ``apples: 12, pears: 7``, in any order.

    The answer may count instead: 12 apples and 7 pears. None unless the reference has colons.
    """
    wanted = _read_named(gold, ":=") if len(gold) < 400 else None
    if wanted is None or ":" not in gold or any(name.isdigit() for name in wanted):
        return None
    given = _read_named(answer, ":=") or _read_named(strip_to_words(answer), "") if len(answer) < 400 else None
    if given is None:
        only = next(iter(wanted.values()))
        return False if len(wanted) > 1 else _compare_texts(only, answer)[0]
    return wanted.keys() == given.keys() and all(
        _compare_texts(wanted[name], given[name])[0] is True for name in wanted
    )


def _read_named(text: str, signs: str) -> dict[str, str] | None:
    """Return the values of a list by their names, in the singular; None for another text."""
    values = {}
    for part in _PARTED.split(text):
        item = (_LABELLED if signs else _COUNTED).fullmatch(part)
        if item is None:
            return None
        name, value = (item[1], item[2]) if signs else (item[2], item[1])
        name = name.strip() if len(name.strip()) == 1 else name.strip().casefold().removesuffix("s")
        if name in values:
            return None
        values[name] = value.strip(" }")
    return values or None


def _phrase(gold: str, answer: str) -> bool | None:
    """Compare words, if the reference is words and not a formula."""
    plain = strip_styles(gold).strip()
    if not _PHRASE.fullmatch(plain) or not _WORD.search(plain) or plain in ("pi", "infinity", "inf", "oo"):
        return None
    given = _IT_IS.sub("", strip_styles(answer).strip(), count=1)
    if _flat(plain) == _flat(given):
        return True
    sentence = _SAID.fullmatch(given)
    if sentence and _flat(sentence[1]) == _flat(plain):
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
    plain = " ".join(strip_styles(text).split())
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
    try:
        verdict = same(left, right)
        if verdict is not True:
            verdict = any(same(left, renamed) for renamed in _rename_constants(gold, left, right)) or verdict
        if verdict is not True and "," in answer:
            verdict = _decimal_comma(left, answer) or verdict
    except TooBig:
        return False, UNDECIDED  # too big for sympy as well: no worker's time is spent on it
    except RecursionError:
        return None, "deep"
    undone = verdict is not False and is_unevaluated(left, right, answer)
    if verdict is None:
        return _for_sympy(gold, answer, NOT_EVALUATED if undone else "different")
    return verdict, NOT_EVALUATED if undone else "equal" if verdict else "different"


def _rename_constants(text: str, gold: Node, answer: Node) -> Iterator[Node]:
    """Yield the answer with the arbitrary constants of the reference, C or C_1, instead of its own."""
    if answer[0] == "rel" and answer[1] == ("=",) and gold[0] != "rel":
        answer = answer[2][1]  # y(x) = ...
    ours, theirs = set(symbols(gold)), set(symbols(answer))
    missing, others = sorted(ours - theirs), sorted(theirs - ours)
    if any(tree[0] == "seq" and all(x[0] == "sym" for x in tree[3]) for tree in (gold, answer)):
        return  # letters of choices
    if not 0 < len(missing) == len(others) < 4 or not ours & theirs or read_quantity(text) is not None:
        return
    if not all(map(_ARBITRARY.fullmatch, missing)) or not all(map(_ANY_CONSTANT.fullmatch, others)):
        return
    for order in permutations(missing):
        names = {("sym", other): ("sym", one) for other, one in zip(others, order, strict=True)}
        yield rename_variables(answer, names)


def _read_gold(gold: str) -> Node:
    """Read a reference; "5 dollars is the price" or "at least 5" is read as the value it states."""
    try:
        tree: Node = read(gold)
    except Unread:
        value = number_words.extract_value(strip_to_words(gold)) if _TALK.search(gold) else None
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
    exact = re.match(r"[+-]?\d+,00(?!\d)", answer) is not None
    if number[0] == "num" and (exact or number[2] is not None) and _COMMA.fullmatch(answer):
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
    text = " ".join(re.sub(r"[`$]|\\[,;: ]", "", strip_styles(text, " ")).split()).replace("\\%", "%")
    text = re.sub(r" ?([^\w\s]) ?", r"\1", text)
    text = text if text.endswith("..") else text.strip(".,;: ")
    return text.casefold() if re.search(r"[^\W\d_]{3,}", text) and "\\" not in text else text
