"""The decision whether two answers are equal: their texts in; True, False or None (sympy may say) out.

Texts that are no mathematics are compared by what they are, each in a function of its own here: options,
times, named values, residues, phrases. All others are compared as trees (`gem.graders.mathematics.algebra`)
and as quantities (`gem.graders.mathematics.quantities`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from itertools import permutations

from gem.graders.base import UNDECIDED
from gem.graders.mathematics import number_words
from gem.graders.mathematics.algebra import same
from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import LENGTH, english, read
from gem.graders.mathematics.notation import (
    INLINE,
    Unread,
    canonical,
    normalise_text,
    prepare_text,
    strip_to_words,
)
from gem.graders.mathematics.nouns import is_unit_or_noun
from gem.graders.mathematics.quantities import given_unit, read_quantity, same_quantity
from gem.graders.mathematics.replies import ANSWER, SPOKEN
from gem.graders.mathematics.scalars import constant
from gem.graders.mathematics.statements import stated_answer
from gem.graders.mathematics.trees import Node, bare, rename_variables, subtrees, symbols
from gem.graders.mathematics.units import asked_unit
from gem.graders.mathematics.values import is_unevaluated
from gem.parsing import STYLED, strip_styles

_INTEGER = re.compile(r"([+-]?)(\d+|0*[1-9]\d{0,2}(?:,\d{3})+)", re.ASCII)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?\(?([A-Z])\)?(?:[.:)]?$|(?:[.:)]\s*|(?<=\))\s*)(?:[\dA-Z$\"'\\]|\s-\d)"
    r"(?:(?!\([A-Z]\)).)*$)",
    re.DOTALL,
)
_OPTION = re.compile(
    r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*:?\s+)?"
    r"\(?((?-i:[A-Z]))(?:\.\s+(\S.*)|\)\.?\s*(\S.*)|\)?[.:]?)",
    re.IGNORECASE | re.DOTALL,
)
"""A letter, alone or as the label of a value: ``B``, ``(B) 42``, ``Option B``."""
_VALUE_BESIDE = re.compile(r"[a-z] ?=|[\d$\\A-Z(.\u2212-]|(?:none|all|both|neither|the|an?)\b")
_NAMED_EXTREME = re.compile(r"\s*([a-zA-Z])_\s*\{?\s*\\?(?:text\s*\{|mathrm\s*\{)?\s*(?:min|max)[\s}]*=")
_RESIDUE = re.compile(
    r"(?:[a-z]\s*\\equiv\s*)?(?P<residue>-?\d+)\s*\(?\s*\\?[bp]?mod\s*\{?\s*(?P<modulus>\d+)\s*\}?\s*\)?"
    r"|[a-z]\s*=\s*(?:(?P<step>\d+)\s*(?P<i>[i-nt])\s*(?P<added>[+-]\s*\d+)?|(?P<first>-?\d+)\s*\+\s*(?P<by>\d+)\s*(?P<j>[i-nt]))"
    r"(?:\s*,?\s*(?:\(|\\text\s*\{\s*(?:for|where|with)?\s*\}\s*)?\s*(?:(?P=i)|(?P=j))\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?\s*\)?)?"
)
_ASSIGNED = re.compile(r"\s*([a-zA-Z](?:_\w)?)\s*=\s*([^=,;<>]+)")
_GROUPS = re.compile(r"\s*(?:;|,?\s*\\text\s*\{\s*(?:or|and)\s*\}|,?\s*\bor\b|\n)\s*")
_JOINED = re.compile(r"(?<=[)\]}])\s*\\text\s*\{\s*(?:and|or)\s*\}\s*(?=[(\[]|\\\{)")  # (1, 2) and (3, 4)
_SCALED_LETTER = re.compile(r"\$?\s*(\d[\d.,]*)\s?k\s*(\\text\s*\{\s*dollars\s*\}\s*)?")
_LONG_NAME = re.compile(
    r"\A\s*(?:[A-Za-z]{2,8}(?:_\{?\w+\}?)?|[A-Za-z]_\s*\{?\s*\\?[A-Za-z]+\s*\}?)\s*=(?!=)\s*(?=[-+\d.\\(]+[^=]*$)"
)
_ARGUMENT = re.compile(r"\s*([a-zA-Z])\s*\(\s*(?:[a-z]|\\math[a-z]+\s*\{?\s*\w\s*\}?)\s*\)\s*=(?=[^=]+\Z)")
_LABELLED = re.compile(
    r"\s*(?:\\text\s*\{)?\s*(?P<name>[A-Za-z][A-Za-z ]{0,30}?)\s*(?::|=)\s*\}?\s*(?P<value>[^=:]+)"
)
_COUNTED = re.compile(
    r"\s*(?P<value>[-+]?[\d.,/]+)\s*(?:\\text\s*\{)?\s*(?P<name>[A-Za-z][A-Za-z ]{1,30}?)\s*\}?"
)
_PARTED = re.compile(r"\s*(?:,(?!\d{3}(?!\d))|;|\\text\s*\{\s*and\s*\}|\band\b|\\cr)(?:\s*and\b)?\s*")
_ARBITRARY = re.compile(r"[Cc](?:_?\w)?")
_ANY_CONSTANT = re.compile(r"(?:[A-Z]|[ck])(?:_?\w)?")
_TIME = re.compile(r"(?:at )?(\d{1,2}) ?:(\d\d)(?:\s*([ap])\.? ?m)?\b\.?", re.IGNORECASE)
_HOURS = re.compile(r"(?i)(?<=\d) ?(?:uhr|h)\b\.?\Z")  # behind a time of the day
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th)")
_SAID = re.compile(
    r"(?!.*\b(?:not|never|if|no|or|either|maybe|might|could|would|was)\b)[A-Z][\w' ]{0,60}"
    r" (?:is|are|will be|on)(?: an?| the)? ([\w' -]+)\.?",
    re.IGNORECASE,
)
_IT_IS = re.compile(r"^(?:it(?:'s| is| was)|they are)\s+", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")
_WORDS_ALONE = re.compile(r"[^\W\d_](?:[^\W\d_]|[\s.,:;'\"!?-])*")
_ROMAN = re.compile(r"[IVX]{2,}")
_CAPITALS = re.compile(r"(?<![A-Z])[A-Z]{3}(?![A-Z])")
_LETTERS_ALONE = re.compile(
    rf"(?=.*{_CAPITALS.pattern})(?:[A-Z\s,;.()\[\]{{}}]|\\[{{}}]|\b(?:and|or)\b|\\text(?=\s*\{{\s*(?:and|or)\b))+"
)
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


SAME_TEXT = "same text"
"""The reason where the answer is the reference's own text."""

NOT_EVALUATED = "not evaluated"
"""The reason where an answer is equal but leaves a sum, product or quotient of numbers to do."""
Verdict = tuple[bool | None, str]
"""True, False, or None if undecided, and the reason."""


def decide(gold: str, answer: str, question: str = "") -> Verdict:
    """Compare without sympy: return True, False, or None if undecided, and the reason.

    A unit in which `question` asks for the answer is that of a reference without one. It never raises and
    takes at most some milliseconds, whatever the texts are.
    """
    if gold == answer:
        return bool(gold), SAME_TEXT
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
    if number_words.is_notation(gold):
        return _compare_notations(left, right), "text"
    if question and _lacks_base(gold, answer, question):
        return True, "equal"
    asked = (asked_unit(question) or given_unit(question, right)) if question else None
    best: Verdict | None = None
    for text in _readings(left, right, question):
        measured = same_quantity(left, text, asked) if asked is not None and right != left else None
        if measured is not None:
            return measured, "equal" if measured else "different"
        verdict = _compare_texts(left, text)
        if verdict[0]:
            return verdict
        if best is None or (best[0] is False and verdict[0] is None):
            best = verdict
    spoken = SPOKEN.fullmatch(answer)
    value = stated_answer(spoken[1])[0] if spoken else None
    if spoken and value and value != spoken[1]:
        return decide(gold, value, question)
    return best or (False, "no answer")


_BASED = re.compile(r"\$?([0-9a-zA-Z]+)_\{?(\d+)\}?\$?")
_BASE = re.compile(r"\bbase\W{0,3}(\d+|[a-z]+)|\b(binary|octal|hexadecimal)\b")
_NAMED_BASES = {"binary": 2, "octal": 8, "hexadecimal": 16}


def _lacks_base(gold: str, answer: str, question: str) -> bool:
    """Return whether an answer is a reference without its base, which the question names: 66 for 66_7."""
    match = _BASED.fullmatch(gold)
    if match is None or match[1].lower() != answer.strip("$ ").lower():
        return False
    names = [named or word for word, named in _BASE.findall(question.lower())]
    bases = [_NAMED_BASES.get(name) or number_words.number(name) or name for name in names]
    return match[2] in map(str, bases)


def _readings(gold: str, answer: str, question: str) -> Iterator[str]:
    """Yield an answer, the value that it states in words, and the same with its numbers in digits.

    Then the value behind a left side that is no unknown, and the answer with the reference's parameter.
    """
    answer = _drop_name(gold, answer) if "=" in answer else answer
    answer = _JOINED.sub(r" \\cup ", answer) if "\\cup" in gold else answer
    yield answer
    if _TALK.search(answer):
        plain = strip_to_words(answer)
        value = number_words.extract_value(plain)
        if value is not None and value != answer:
            yield prepare_text.__wrapped__(value)
        if number_words.has_number_word(answer):
            amount = number_words.quantity(plain) if plain != answer else None
            in_digits = number_words.numerals(plain) if amount is None else str(amount)
            if in_digits != answer and any(letter.isdigit() for letter in in_digits):
                yield in_digits
                value = number_words.extract_value(in_digits)
                if value is not None:
                    yield prepare_text.__wrapped__(value)
    scaled = _SCALED_LETTER.fullmatch(answer) if "k" in answer else None
    if scaled and not re.search("[a-z]", gold):
        yield f"{scaled[1]}*1000 {scaled[2] or ''}"
    for text in (_drop_left_side(gold, answer, question), _rename_parameter(gold, answer, question)):
        if text:
            yield text


def _drop_name(gold: str, answer: str) -> str:
    """Return an answer without a long name before its value, or an argument that the reference leaves out."""
    extreme, argument = _NAMED_EXTREME.match(answer), _ARGUMENT.match(answer)
    if "=" not in gold:
        named = argument and "\\" in argument[0]
        return answer[argument.end() :] if argument and named else _LONG_NAME.sub("", answer, count=1)
    if extreme and gold.startswith(extreme[1]) and "_" not in gold:
        return f"{extreme[1]} = {answer[extreme.end() :]}"
    if argument and re.match(rf"{argument[1]}\s*=", gold):
        return f"{argument[1]} ={answer[argument.end() :]}"
    return answer


def _drop_left_side(gold: str, answer: str, question: str) -> str | None:
    """Return the last side of an equation whose left side is a quantity, and cannot be an unknown.

    It is an operation (an integral, a probability), holds two unknowns, or is what the question asks for:
    x^2 = 9 does not say that x is 9, a^2 + b^2 = 9 says what a^2 + b^2 is.
    """
    residue = _REDUCED.fullmatch(answer) if "\\equiv" in answer and gold.isdigit() else None
    if residue:
        left, rest, modulus = residue[1], int(residue[2]), int(residue[3])
        power = _POWER.fullmatch(left)
        true = (
            pow(int(power[1]), int(power[2] or 1), modulus) == rest if power and modulus else rest < modulus
        )
        known = power is not None or (_squeeze(left) in _squeeze(question) and residue[3] in question)
        return residue[2] if true and known else None
    sides = _SIDES.fullmatch(answer) if "=" in answer and "=" not in gold and len(answer) < LENGTH else None
    if sides is None:
        return None
    side, value = sides.groups()
    several = len(_unknowns(side)) > 1 and not _unknowns(gold) and not _WORD_IN_IT.search(side)
    named = several or _QUANTITY.match(side) or ("\\begin" in gold and _MATRIX_NAME.fullmatch(side))
    asked = (_squeeze("".join(groups)) for groups in _FORMULAS.findall(question[-ANSWER:]))
    if not (named and _squeeze(answer) not in _squeeze(question)) and _squeeze(side) not in asked:
        return None
    return _drop_left_side(gold, value, question) or value  # an integral = its bounds put in = its value


def _squeeze(text: str) -> str:
    return re.sub(r"\s", "", canonical(normalise_text(text)))


_FORMULAS = re.compile(
    r"(?i:find|determine|compute|evaluate|calculate|simplify|what is|value of)\b[^.?!$\\]{0,80}"
    r"(?:\$\$?([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])"
)
"""What a question asks for."""


_NESTED = r"\{[^{}]*+(?:\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}[^{}]*+)*+\}|\([^()]*+(?:\([^()]*+\)[^()]*+)*+\)"
# the left side of an equation, in which every bracket is closed, and the rest
_SIDES = re.compile(
    rf"((?:{_NESTED}|[^\\{{}}()=<>,;:!?~]|:(?!=)|!(?!=)|\\(?!(?:ne|neq|le|leq|lt|ge|geq|gt|approx|equiv|in|sim|text)"
    r"(?![a-zA-Z]))(?:[a-zA-Z]+|[^a-zA-Z])|\\text\s*\{[^{}]*\})++)=(?!=)\s*(.+)",
    re.DOTALL,
)
# how a left side begins that is an operation, or names a quantity in words
_QUANTITY = re.compile(
    r"\s*(?:\\(?:i*int|oint|sum|prod|lim|limsup|liminf|Pr|det|dim|deg|gcd|max|min|sup|binom|nabla|overline|bar"
    r"|mathcal)(?![a-zA-Z])|.*\\[lc]?dots(?![a-zA-Z])"
    r"|(?:\\mathbb\s*\{?\s*)?[PE]\s*\}?\s*[(\[]|\\(?:text|operatorname|mathrm)\s*\{\s*"
    r"(?!(?i:(?:[^{}]*\s)?(?:not|no|never|if|half|twice|double|or|and|than|at|over|under|more|less)\b))"
    r"[a-zA-Z][a-zA-Z :()]{1,40}\}"
    r"|(?:\||\\[lr]?vert ?)\s*(?:[A-Zz]|\\(?:vec|mathbf)\s*\{?\s*\w\s*\}?)\s*(?:\||\\[lr]?vert)\s*$"
    r"|\\(?:\||[lr]?Vert).*(?:\\\||\\[lr]?Vert)\s*$|\[[A-Z]{3,}\]\s*$|\\#"
    r"|\(\s*[fgh]\s*\\circ\s*[fgh]\s*\)|\\d?frac\s*\{\s*(?:d|\\partial)(?![a-z])|\[.*\]\s*_"
    r"|\\(?:sin|cos|tan|cot|sec|csc)\s*\(?\s*(?:\\(?:angle ?[A-Z]+|theta|alpha|beta|gamma|phi)|[A-D])"
    r"\s*\)?\s*$)"
)
_MATRIX_NAME = re.compile(r"\s*[A-Z]{1,3}\s*(?:\^\s*(?:\{[^{}]*\}|\w))?\s*")
# a number and its residue
_REDUCED = re.compile(
    r"((?:\d|[-+*!\s^{}()]|\\(?:cdot|times)(?![a-zA-Z]))+)\\equiv\s*(\d{1,9})\s*\(?\s*\\[bp]?mod\s*\{?\s*(\d{1,9})\s*\}?\s*\)?"
)
_POWER = re.compile(r"\s*(\d{1,9})\s*(?:\^\s*\{?\s*(\d{1,9})\s*\}?\s*)?")
_WORD_IN_IT = re.compile(r"\\text|(?<![\\a-zA-Z])[a-zA-Z]{4,}|(?<![\\a-zA-Z])[a-z]{3,}")
_NAMES = re.compile(
    r"\\(?:(alpha|beta|gamma|delta|theta|lambda|mu|phi|omega)|[a-zA-Z]+)|([a-zA-Z](?:_\{?\w+\}?)?)"
)


def _unknowns(text: str) -> set[str]:
    """Return the letters of a formula that are no constants."""
    return {name for match in _NAMES.finditer(text) if (name := match[1] or match[2])} - {"e", "i"}


def _rename_parameter(gold: str, answer: str, question: str) -> str | None:
    """Return a point with one parameter with the name that the parameter has in the reference.

    None if the question names that parameter.
    """
    point = _TUPLE.match(gold) is not None
    answer = _write_points(gold, answer) or answer.rpartition("=")[2] if point else answer
    ours, theirs = _unknowns(gold), _unknowns(answer)
    pair = [*(ours - theirs), *(theirs - ours)]
    two = (point or gold.count("=") > 1) and len(pair) == 2 and len(ours) == len(theirs)
    if not two or not _PARAMETERS.issuperset(pair) or re.search(rf"\b{pair[0]}\b", question):
        return None
    if pair[0] in _unknowns(" ".join(match[0] for match in INLINE.finditer(question[-ANSWER:]))):
        return None
    name, plain = (rf"\{x} " if len(x) > 1 else x for x in pair)
    return re.sub(
        r"\\[a-zA-Z]+ ?|[a-zA-Z]", lambda m: name if m[0].strip() == plain.strip() else m[0], answer
    )


_PARAMETERS = frozenset(("r", "s", "t", "u", "v", "k", "m", "n", "p", "lambda", "mu"))


def _compare_texts(left: str, right: str) -> Verdict:
    """Compare two normalised texts."""
    if left == right or (STYLED.search(left + right) and _flatten_words(left) == _flatten_words(right)):
        return bool(left), SAME_TEXT
    if "=" in right and left.lstrip("\\{ ").startswith("("):
        right = _write_points(left, right) or right
    for mark, compare in _COMPARERS:
        verdict = compare(left, right) if mark in left else None
        if verdict is not None:
            return verdict, "text"
    if "\\mathbb" in right and _compare_families(left, right):
        return True, "equal"
    if _LETTERS_ALONE.fullmatch(left) and _LETTERS_ALONE.fullmatch(right):
        left, right = (_CAPITALS.sub(r"W_{\g<0>}", text) for text in (left, right))  # HTT is no product
    verdict, why = _compare_trees(left, right)
    measured = None if verdict else same_quantity(left, right)
    return (verdict, why) if measured is None else (measured, "equal" if measured else "different")


def readable(gold: str) -> bool | None:
    """Return whether this process reads a reference whole; None if only sympy could."""
    text = prepare_text(gold)
    plain = strip_styles(text).strip()
    if not text or (number_words.is_notation(gold) and not number_words.date(plain)):
        return False
    words = _WORD.search(plain) and (_PHRASE.fullmatch(plain) or _WORDS_ALONE.fullmatch(plain))
    if read_quantity(text) or _CHOICE.fullmatch(plain) or words or number_words.date(plain):
        return True
    family = _FAMILY.fullmatch(text) if "\\in" in text else None
    for form in (family[1] if family else text, number_words.extract_value(strip_to_words(text))):
        with contextlib.suppress(Unread):
            if form is not None and _has_known_unit(read(form)):
                return True
    return None if formula(gold) is not None else False


def _has_known_unit(tree: Node) -> bool:
    """Return whether the words after a number are known to be a unit or a counted thing."""
    return tree[0] != "unit" or tree[2][0] == "(" or is_unit_or_noun(tree[2])


def formula(text: str) -> str | None:
    """Return a text in the form for sympy's parser; None if a part of it is not a plain formula.

    Undefined function names, primes, indices, sets and inequalities are excluded, because that parser
    misreads some of them.
    """
    text = prepare_text.__wrapped__(text) if len(text) <= ANSWER else ""
    if not 0 < len(text) <= LENGTH or not _FORMULA.fullmatch(text):
        return None
    if ("\\cr" in text and "\\begin" not in text) or (_TO.search(text) and "\\lim" not in text):
        return None
    words = re.findall(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}", text)
    return None if any(english(word.lower()) for word in words) else text.replace("\\cr ", r"\\ ")


def _digits(match: re.Match[str]) -> tuple[bool, str]:
    digits = match[2].replace(",", "").lstrip("0")
    return match[1] == "-" and bool(digits), digits


# -- texts that are no mathematics


def _compare_notations(gold: str, answer: str) -> bool:
    """Compare dates by the day, and all else that is no calculation word for word: 2-1 is not 1-0."""
    day = number_words.date(gold)
    same_day = day is not None and day == number_words.date(strip_to_words(answer))
    left, right = (_NUMERAL_MARK.sub("", _flatten_words(text)) for text in (gold, answer))
    right, _, unit = right.partition(" ")
    bare = not unit or is_unit_or_noun(unit)
    return same_day or (bare and left.replace("--", "-") == right.replace("--", "-"))  # a dash of LaTeX


_NUMERAL_MARK = re.compile(r"[{}]|(?<=\d)[ ,](?=\d{3}(?!\d))")  # 1,000 is 1000


def _compare_residues(gold: str, answer: str) -> bool | None:
    """Compare classes of integers, as 3 (mod 7) and x = 7k + 3."""
    wanted = _read_residue(gold)
    return None if wanted is None or "mod" not in gold + answer else wanted == _read_residue(answer)


def _read_residue(text: str) -> tuple[int, int] | None:
    """Return the residue and the modulus of a class of integers."""
    match = _RESIDUE.fullmatch(text)
    if match is None:
        return None
    modulus = int(match["modulus"] or match["step"] or match["by"])
    residue = int((match["residue"] or match["added"] or match["first"] or "0").replace(" ", ""))
    return (residue % modulus, modulus) if modulus else None


def _compare_families(gold: str, answer: str) -> bool | None:
    """Compare formulas with an integer or real parameter, which may have another name: k pi and n pi."""
    wanted, given = _FAMILY.fullmatch(gold), _FAMILY.fullmatch(answer)
    if given is None or (wanted and wanted[3] != given[3]):
        return None
    try:
        left = read(prepare_text(wanted[1]) if wanted else gold)
        right = read.__wrapped__(prepare_text.__wrapped__(given[1]))
        free = given[3] == "Z" and (left[0] == "rel" or ("const", "pi") in subtrees(left))
        integers = {wanted[2]} if wanted else symbols(left) & set("klmn") if free else set()
        ours, theirs = ("sym", *integers), ("sym", given[2])
        if len(integers) != 1 or (ours != theirs and ours[1] in symbols(right)):
            return None
        return same(left, rename_variables(right, {theirs: ours})) or None
    except (Unread, TooBig, RecursionError):
        return None


_FAMILY = re.compile(
    r"(.+?)\s*[,;]?\s*\(?\s*(?:\\text\s*\{\s*(?:where|with|for)?\s*\}\s*)?([a-z])\s*\\in\s*\\mathbb\s*\{?\s*([ZNR])\s*\}?\s*\)?"
)


def _write_points(gold: str, answer: str) -> str | None:
    """Return groups such as "x = 1, y = 2 or x = 3, y = 0" as tuples in the order of the alphabet.

    None where the reference is no tuple, or list of tuples, of as many numbers.
    """
    width = _TUPLE.match(gold)
    if width is None or "=" in gold:
        return None
    points: list[dict[str, str]] = []
    for group in _GROUPS.split(answer):
        items = [item for item in _COMMA_OR_AND.split(group) if item.strip()]
        pairs = [pair for item in items if (pair := _ASSIGNED.fullmatch(item))]
        points.append({pair[1]: pair[2].strip() for pair in pairs})
        if (
            not len(points[-1]) == len(items) == width[1].count(",") + 1
            or points[-1].keys() != points[0].keys()
        ):
            return None
    return ", ".join(f"({', '.join(point[name] for name in sorted(point))})" for point in points)


_COMMA_OR_AND = re.compile(r",|\band\b|\\text\s*\{\s*and\s*\}")
_TUPLE = re.compile(r"\s*(?:\\\{\s*)?\(([^()]*,[^()]*)\)")


def _compare_options(gold: str, answer: str) -> bool | None:
    """Compare multiple-choice letters, if the reference is one, and the values beside them."""
    plain = strip_styles(answer).strip()
    letter = _OPTION.fullmatch(strip_styles(gold).strip())
    if letter is None:
        given = _OPTION.fullmatch(plain) if plain.startswith("(") and len(plain) < LENGTH else None
        beside = prepare_text.__wrapped__((given[3] or given[2] or "") if given else "")
        # "(B) 42" where 42 is asked for
        return (_compare_texts(gold, beside)[0] or None) if beside and not beside.startswith("(") else None
    value = letter[2] or letter[3]
    if len(re.findall(r"\([A-J]\)", plain)) > 1:
        return False  # two options
    given = _OPTION.fullmatch(plain) or (None if value else _CHOICE.fullmatch(plain))
    if given is None:
        lone = plain.strip("()")
        return lone.upper() == letter[1] if letter[1] <= "J" and len(lone) == 1 and lone.isalpha() else None
    beside = given[2] or given[3] if given.re is _OPTION else ""
    if given[1] != letter[1]:
        return False
    if value and beside:
        return decide(value, beside)[0]
    return not beside or _VALUE_BESIDE.match(beside) is not None


def _compare_times(gold: str, answer: str) -> bool | None:
    """Compare times of the day: 3:45 pm is 15:45; None unless one side says which half of the day."""
    wanted = _TIME.fullmatch(strip_to_words(gold))
    given = _TIME.fullmatch(_HOURS.sub("", strip_to_words(answer).replace("{:}", ":")))
    if wanted is None or given is None:
        return None
    if wanted[3] or int(wanted[1]) > 12:
        return _minutes(wanted) == _minutes(given)
    return _minutes(wanted) % 720 == _minutes(given) % 720 if given[3] else None  # 12:50 may be either half


def _minutes(time: re.Match[str]) -> int:
    """Return the minutes since midnight."""
    hours = int(time[1])
    if time[3]:
        hours = hours % 12 + 12 * (time[3].casefold() == "p") if hours <= 12 else -1
    return 60 * hours + int(time[2])


def _compare_named(gold: str, answer: str) -> bool | None:
    """Compare values with names, as ``apples: 12, pears: 7``, in any order.

    The answer may count instead: 12 apples and 7 pears.
    """
    wanted = _read_named(gold, _LABELLED)
    if wanted is None or any(name.isdigit() for name in wanted):
        return None
    given = _read_named(answer, _LABELLED) or _read_named(strip_to_words(answer), _COUNTED)
    if given is None:
        return False if len(wanted) > 1 else _compare_texts(next(iter(wanted.values())), answer)[0]
    return wanted.keys() == given.keys() and all(
        _compare_texts(wanted[name], given[name])[0] is True for name in wanted
    )


def _read_named(text: str, pattern: re.Pattern[str]) -> dict[str, str] | None:
    """Return the values of a list by their names, in the singular; None for another text."""
    values: dict[str, str] = {}
    for part in _PARTED.split(text[:400]):
        item = pattern.fullmatch(part)
        name = item["name"].strip() if item else ""
        name = name if len(name) == 1 else name.casefold().removesuffix("s")
        if item is None or name in values:
            return None
        values[name] = item["value"].strip(" }")
    return values if len(text) < 400 else None


def _compare_phrases(gold: str, answer: str) -> bool | None:
    """Compare words, if the reference is words and not a formula."""
    plain = strip_styles(gold).strip()
    if not _PHRASE.fullmatch(plain) or not _WORD.search(plain) or plain in ("pi", "infinity", "inf", "oo"):
        return None
    given = _IT_IS.sub("", strip_styles(answer).strip(), count=1)
    sentence = _SAID.fullmatch(given)
    if _flatten(plain) in (_flatten(given), _flatten(sentence[1]) if sentence else None):
        return True
    if _ROMAN.fullmatch(plain):
        return plain == given
    letters = given.replace("*", "").replace(" ", "")
    if len(plain) <= 3 and not english(plain.lower()) and sorted(plain) == sorted(letters):
        word = (len(plain) > 2 and plain.isupper()) or len(set(plain)) < len(plain)
        return plain == letters if word and "*" not in given else None  # xy and yx may be products
    amount = number_words.quantity(plain)
    if amount is not None and (amount.denominator > 1 or number_words.number(plain) is not None):
        return amount == number_words.quantity(given) or decide(str(amount), given)[0]
    truth = [_TRUTHS.get(_flatten(text)) for text in (plain, given)]
    if None not in truth:
        return truth[0] == truth[1]
    return False if "\\" not in plain else None


_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}
_COMPARERS: tuple[tuple[str, Callable[[str, str], bool | None]], ...] = (
    ("mod", _compare_residues),
    ("\\mathbb", _compare_residues),
    ("", _compare_options),
    (":", _compare_times),
    (":", _compare_named),
    ("", _compare_phrases),
)
"""What a reference must contain, and the comparison, which gives None for a reference of another kind."""


def _flatten(text: str) -> str:
    """Return only the words, without case and punctuation; signs and operators stay."""
    text = re.sub(r"(?<=\w)[-–](?=[^\W\d])", " ", text)
    return " ".join(re.sub(r"(?<!\d)[.,](?!\d)|[.,](?!\d)|[:;'\"!?()\[\]{}_]", " ", text).split()).casefold()


def _flatten_words(text: str) -> str:
    """Return a text without styles, spaces beside signs and stops at its end, and words without case."""
    text = " ".join(re.sub(r"[`$]|\\[,;: ]", "", strip_styles(text, " ")).split()).replace("\\%", "%")
    text = re.sub(r" ?([^\w\s]) ?", r"\1", text)
    text = text if text.endswith("..") else text.strip(".,;: ")
    return text.casefold() if "\\" not in text and re.search(r"[^\W\d_]{3,}", text) else text


# -- mathematics


def _compare_trees(gold: str, answer: str) -> Verdict:
    try:
        left = _read_gold(gold)
    except Unread:
        return _compare_unread(gold, answer)
    if answer[:1].isalpha() and "\\" not in answer and not number_words.ordinal(answer) and constant(left):
        answer = str(number_words.quantity(answer) or answer)  # a fifth, not the fifth
    try:
        right: Node = read.__wrapped__(answer)
    except Unread as unread:
        if unread.hopeless or "\\" not in answer:
            return False, UNDECIDED if _BURST.search(answer) and not unread.hopeless else "unreadable"
        return _ask_sympy(gold, answer, "unread")
    try:
        verdict = same(left, right)
        if not verdict:
            verdict = any(same(left, renamed) for renamed in _rename_constants(gold, left, right)) or verdict
        if not verdict and "," in answer:
            verdict = _compare_decimal_comma(gold, left, answer) or verdict
    except TooBig:
        return False, UNDECIDED  # too big for sympy as well: no worker's time is spent on it
    except RecursionError:
        return None, "deep"
    undone = verdict is not False and is_unevaluated(left, right, answer)
    why = NOT_EVALUATED if undone else "equal" if verdict else "different"
    return _ask_sympy(gold, answer, why) if verdict is None else (verdict, why)


def _rename_constants(text: str, gold: Node, answer: Node) -> Iterator[Node]:
    """Yield the answer with the arbitrary constants of the reference, C or C_1, instead of its own."""
    if answer[0] == "rel" and answer[1] == ("=",) and gold[0] != "rel":
        answer = answer[2][1]  # y(x) = ...
    ours, theirs = symbols(gold), symbols(answer)
    missing, others = sorted(ours - theirs), sorted(theirs - ours)
    if not 0 < len(missing) == len(others) < 4 or not ours & theirs or read_quantity(text) is not None:
        return
    if any(tree[0] == "seq" and all(x[0] == "sym" for x in tree[3]) for tree in (gold, answer)):
        return  # letters of choices
    if all(map(_ARBITRARY.fullmatch, missing)) and all(map(_ANY_CONSTANT.fullmatch, others)):
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


def _compare_parts(gold: str, answer: str) -> bool | None:
    """Compare with a list of values that words name: by these names, or without names in that order."""
    texts = (strip_to_words(text) if len(text) <= LENGTH else "" for text in (gold, answer))
    golds, parts = (
        [part.strip() for part in re.split(r"[,;](?![^()]*\))|\band\b", text) if part.strip()]
        for text in texts
    )
    wanted = [part for part in map(_NAMED_PART.fullmatch, golds) if part]
    if not 1 < len(wanted) == len(golds) == len(parts):
        return None
    values = {part[1].casefold(): part[2] for part in wanted}
    named = [part for part in map(_NAMED_PART.fullmatch, parts) if part]
    given = {x[1].casefold(): x[2] for x in named} if named else dict(zip(values, parts, strict=False))
    return values.keys() == given.keys() and all(
        _compare_texts(values[x], given[x])[0] is True for x in values
    )


_NAMED_PART = re.compile(
    r"(?:the )?(?!sin|cos|tan|log|ln|not)([A-Za-z]{3,}(?: [A-Za-z]+)?)\s*(?:[:=]|\bis\b|\bat\b)?"
    r"\s*([-+(\[\\$\d].*)"
)


def _ask_sympy(gold: str, answer: str, why: str) -> Verdict:
    """Return None if a worker may be asked, which needs two plain formulas."""
    if _BURST.search(answer):
        return False, UNDECIDED
    return (False if formula(gold) is None or formula(answer) is None else None), why


def _compare_decimal_comma(text: str, gold: Node, answer: str) -> bool | None:
    """Compare 1,5 with a reference of 1.5; a number with groups of thousands is never a decimal."""
    number = bare(gold)
    exact = re.match(r"[+-]?\d+,00(?!\d)", answer) is not None
    if number[0] == "num" and (exact or number[2] is not None) and _COMMA.fullmatch(answer):
        with contextlib.suppress(Unread):
            answer = answer.replace(",", ".")
            return same(gold, read(answer)) or same_quantity(text, answer)
    return None


def _compare_unread(gold: str, answer: str) -> Verdict:
    """Compare with a reference that is not read: as a formula, by its parts, as a date, or word for word."""
    if _flatten_words(gold) == _flatten_words(answer):
        return True, "same words"
    if _WORDS_ALONE.fullmatch(gold) and _flatten(gold) == _flatten(answer):
        return True, "same words"
    main, rest = _CLAUSE.sub("", gold), _CLAUSE.sub("", answer)
    if main and main != gold and rest != answer:  # "2n, where n is odd": both halves count
        conditions = _flatten_words(gold[len(main) :]) == _flatten_words(answer[len(rest) :])
        return (_compare_texts(main, rest)[0] is True and conditions), "formula and condition"
    parts = _compare_parts(gold, answer)
    if parts is not None:
        return parts, "text"
    day = number_words.date(gold) if _WORD.search(gold) else None
    if day is not None:
        return day == number_words.date(answer), "text"
    if len(answer) > LENGTH:
        return False, "too long"
    why = "the reference is no plain formula"
    return _ask_sympy(gold, answer, why) if "\\" in gold else (False, why)
