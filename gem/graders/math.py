r"""Mathematics: whether two answers mean the same.

Most pairs are decided here in microseconds, as fractions or at sample points (`gem.graders._algebra`). What
is left goes to math-verify and sympy in a worker process that is killed when it has spent its CPU budget:
such an answer scores 0 with ``why="undecided"``, because else a policy could hide behind ``9^9^9^9``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, NoVerdict, missing_extra
from gem.graders import _words
from gem.graders._algebra import same
from gem.graders._evaluation import TooBig
from gem.graders._latex import LENGTH, Node, Unread, normalised, read
from gem.graders._scalars import constant
from gem.graders.base import UNDECIDED, Score
from gem.graders.pool import Missing, Pool, WorkerLost
from gem.parsing import boxed
from gem.specs import Rebuildable

WORKER = Path(__file__).with_name("_math_worker.py")
ANSWER = 20_000  # characters of a boxed or bare answer that are looked at
LONGEST = 200_000  # characters at the end of a reply in which a box is looked for
REPLY = 8_000  # characters at the end of an unboxed reply that a worker looks through
CONTROL = {"gold": r"$\frac{1}{2} + x$", "answer": r"$x + \frac{2}{4}$"}

_INTEGER = re.compile(r"([+-]?)(\d+|0*[1-9]\d{0,2}(?:,\d{3})+)", re.ASCII)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?\(?([A-Z])\)?(?:[.:)]?$|[.:)]\s*\S.*|(?<=\))\s*\S.*)", re.DOTALL
)
_STYLED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|rm|bf)\s*\{([^{}]*)\}")
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
_PHRASE = re.compile(r"[^\W\d_][^\W\d_'. -]*(?:[ -][^\W\d_]['\w.]*)*")
_GAP = re.compile(r"(?:[ \t$,]|\\[()]|\\quad|\\,|\\;|and|or|\\text\s*\{\s*(?:and|or)\s*\})*")
_PERCENT = re.compile(r"[}\s$]*(?:\\[)\]])?\s*(?:\\?%|percent\b|percentage\b|pct\b)", re.IGNORECASE)
_ANCHOR = re.compile(
    r"(?:####|(?:final\s+)?answer(?:\s+is|\s*:)(?:\s*:)?|\banswer\b[^.\n]{0,40}?\bis\b:?)\s*", re.IGNORECASE
)
_CLAUSE = re.compile(
    r",?\s*(?:\\text\s*\{)?\s*\b(?:where|for all|for any|with|such that|if|when)\b.*", re.DOTALL
)
_BURST = re.compile(  # towers and factorials of what sympy would only burst on
    r"(?:\^|\*\*)[\s{(]*[\d.]+[\s})]*(?:\^|\*\*)|\d{5,}[\s})]*!|![\s})]*!|\^[\s{(]*\d{2,}[\s})]*!|(?:\^|\*\*)[\s{(]*-?\d{5,}|\\d?binom\s*\{\d{6,}"
)
_SEGMENT = re.compile(r"(?<!\\)\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


@cache
def workers() -> Pool:
    """Return this process's pool of grading workers; it starts none before it is asked."""
    return Pool(WORKER)


class MathGrader(Rebuildable):
    r"""Compares a final answer with a reference, as mathematics.

    The answer is the content of the last ``\boxed{}``; without a box it is the reply itself when that is one
    line, else what stands after "answer is", in the last formula, or what math-verify finds. A reference is
    text, a number, or a sequence of either of which any will do.
    """

    name = "math/1"

    def __init__(self, cpu_s: float = 2.0, wall_s: float = 60.0) -> None:
        """Set the budgets of one undecided pair.

        Args:
            cpu_s: CPU time, whatever the machine's load; spending it makes the answer undecided, so 0.
            wall_s: wall clock, a net for a worker that hangs without computing.
        """
        if not (cpu_s > 0 and wall_s > 0):
            raise BadArgument(f"cpu_s is {cpu_s} and wall_s is {wall_s}; both must be more than 0.")
        self.cpu_s, self.wall_s = cpu_s, wall_s

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer` against `reference`.

        Raises:
            NoVerdict: when the workers fail on a known good pair too.
            MissingExtra: when a pair needs sympy, and the `math` extra is absent.
        """
        golds = references(reference)
        given, found = final_answer(answer)
        shown = given[:200] if given is not None else None
        if given is None:
            return Score(0.0, False, None, "no answer")
        undecided: list[str] = []
        why = "different"
        for gold in golds:
            verdict, said = decide(gold, given)
            if verdict:
                return Score(1.0, True, shown, said)
            if verdict is None:
                undecided.append(gold)
            elif len(golds) == 1:
                why = said
        if not found:  # the reading of an unboxed reply is a guess; math-verify has its own
            undecided = golds
            given = answer[-REPLY:]
        for gold in undecided:
            verdict, said = self._ask(gold, given)
            if verdict:
                return Score(1.0, True, shown, said)
            why = said
        return Score(0.0, False, shown, why)

    def _ask(self, gold: str, answer: str) -> tuple[bool, str]:
        """Have a worker compare; a crash is the answer's doing only when a known good pair does not crash."""
        for _ in range(2):
            try:
                verdict = self._question({"gold": gold, "answer": answer})
            except WorkerLost as lost:
                if lost.spent:
                    return False, UNDECIDED
                self._control()
                continue
            if "equal" in verdict:
                return verdict["equal"], "equal by math-verify" if verdict["equal"] else "different"
            return False, UNDECIDED
        return False, UNDECIDED

    def _question(self, question: dict[str, str]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = workers().ask(question, self.cpu_s, self.wall_s)
        except Missing as missing:
            raise missing_extra("grading this pair of answers", missing.package, "math") from missing
        return answer

    def _control(self) -> None:
        try:
            right = self._question(CONTROL).get("equal") is True
        except WorkerLost as lost:
            raise NoVerdict(f"the mathematics grader fails on a known good pair too: {lost}") from lost
        if not right:
            raise NoVerdict("the mathematics grader is wrong on a known good pair.")


def check_correct(answer: str, truth: Any) -> bool:
    r"""Return whether `answer`, boxed or bare, is the mathematical equal of `truth`.

    >>> check_correct(r"so it is \boxed{\frac{2}{4}}", "0.5"), check_correct("0.51", "0.5")
    (True, False)
    """
    return _default()(answer, truth).correct


@cache
def _default() -> MathGrader:
    return MathGrader()


def references(reference: Any) -> list[str]:
    """Return the texts of which any will do.

    Raises:
        BadArgument: when the reference is neither text nor a number nor a sequence of them.
    """
    if isinstance(reference, str):
        return [_reference(reference)]
    if isinstance(reference, bool) or reference is None:
        raise BadArgument(f"the reference is {reference!r}; accepted: text, a number, or a sequence of them.")
    if isinstance(reference, int | float | Fraction):
        return [str(reference)]
    if isinstance(reference, Sequence) and reference:
        return [text for part in reference for text in references(part)]
    try:
        return [str(reference.item())]  # a number of numpy
    except (AttributeError, ValueError):
        raise BadArgument(
            f"the reference is {reference!r:.80}; accepted: text, a number, or a sequence of them."
        ) from None


def _reference(text: str) -> str:
    inside = boxed(text) if "\\boxed" in text else None
    if inside is not None:
        return _joined_boxes(text, inside)
    return text.rpartition("####")[2].strip() if "####" in text else text.strip()


# -- what was answered


def final_answer(text: str) -> tuple[str | None, bool]:
    r"""Return the final answer in `text`, and whether it is surely that: boxed, or all there is.

    >>> final_answer(r"thus \boxed{1} and \boxed{2}.")
    ('1, 2', True)
    """
    text = text[-LONGEST:]
    inside = boxed(text) if "\\boxed" in text else None
    if inside is not None:
        return _joined_boxes(text, inside), True
    stripped = text.strip()
    if not stripped:
        return None, True
    anchors = list(_ANCHOR.finditer(stripped[-REPLY:]))
    if anchors:
        rest = stripped[-REPLY:][anchors[-1].end() :]
        line = rest.partition("\n")[0].strip() or rest.strip().partition("\n")[0]
        segment = _SEGMENT.match(line)
        if segment:
            line = next(group for group in segment.groups() if group)
        else:
            line = re.split(r"\.\s|\.$", line, maxsplit=1)[0]
        return line or None, len(stripped) < 40
    if "\n" not in stripped and (len(stripped) <= 200 or " " not in stripped):
        return stripped, True
    segments = _SEGMENT.findall(stripped[-REPLY:])
    if segments:
        return next(group for group in segments[-1] if group).strip(), False
    return stripped[-200:], False


def _joined_boxes(text: str, last: str) -> str:
    """Join the boxes that stand side by side before the last one, and a percent sign behind it."""
    found = [last]
    start = text.rfind("\\boxed")
    tail = text[start:]
    while start > 0 and len(found) < 20:
        before = text[:start]
        gap = re.search(r"[^{}]{0,30}\Z", before)
        at = gap.start() if gap else start
        if not before[:at].endswith("}") or not _GAP.fullmatch(before[at:]):
            break
        earlier = boxed(before)
        if earlier is None or not before[:at].rstrip("} \t").endswith(earlier.rstrip("} \t")):
            break
        found.append(earlier)
        start = before.rfind("\\boxed")
    if len(set(found)) == 1:
        sign = _PERCENT.match(tail, tail.find(last) + len(last)) if len(tail) < ANSWER else None
        return last + "%" if sign and "%" not in last else last
    return ", ".join(reversed(found))


# -- the fast verdict


def decide(gold: str, answer: str) -> tuple[bool | None, str]:
    """Compare without sympy: True, False, or None where that does not suffice; and why.

    Never raises and takes no more than some milliseconds, whatever the texts are.
    """
    if gold == answer:
        return bool(gold), "same text"
    whole = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(answer)
    if whole[0] and whole[1]:
        return _digits(whole[0]) == _digits(whole[1]), "integers"
    if len(answer) > ANSWER or len(gold) > ANSWER:
        return False, "too long"
    left, right = _prepared(gold), _prepared.__wrapped__(answer)
    if left == right or (_STYLED.search(left + right) and _plain(left) == _plain(right)):
        return bool(left), "same text"
    if not right:
        return False, "no answer"
    verdict = _choice(left, right)
    if verdict is None:
        verdict = _phrase(left, right)
    if verdict is not None:
        return verdict, "text"
    return _trees(left, right)


def _digits(match: re.Match[str]) -> tuple[bool, str]:
    digits = match[2].replace(",", "").lstrip("0")
    return match[1] == "-" and bool(digits), digits


@lru_cache(maxsize=2048)
def _prepared(text: str) -> str:
    emphasised = _EMPHASIS.fullmatch(text)
    text = normalised(emphasised[2] if emphasised else text)
    if "," in text:
        text = _LETTERS.sub(r"\1", text)
    if len(text) < 60:
        text = _said(text)
    if ":" in text:
        text = _CLOCK.sub(r"\1 \2m", text)
    return _ORDINAL.sub(r"\1", text) if "th" in text or "st" in text or "nd" in text or "rd" in text else text


def _said(text: str) -> str:
    """Rewrite the few phrases that stand for a number or a set."""
    if _PHRASED.fullmatch(text):
        words = _STYLED.sub(r"\1", text).strip().casefold()
        for meaning, phrase in _SAYINGS.items():
            if phrase.fullmatch(words):
                return meaning
    between = _BETWEEN.fullmatch(text)
    if between:
        return f"{between[1]}:{between[2]}"
    return _SCALED.sub(_scaled, text) if "illion" in text or "thousand" in text else text


def _scaled(match: re.Match[str]) -> str:
    amount = Fraction(match[1]) * _words.SCALES[match[2].casefold()]
    return str(amount) if amount.denominator == 1 else match[0]


def _choice(gold: str, answer: str) -> bool | None:
    """Compare letters of a multiple choice, where the reference is one."""
    letter = _CHOICE.fullmatch(_STYLED.sub(r"\1", gold).strip())
    if letter is None:
        return None
    plain = _STYLED.sub(r"\1", answer).strip()
    given = _CHOICE.fullmatch(plain)
    if given is None and len(plain.strip("()")) == 1 and letter[1] in "ABCDEFGHIJ":
        return plain.strip("()").upper() == letter[1] if plain.strip("()").isalpha() else None
    return given[1] == letter[1] if given else None


def _phrase(gold: str, answer: str) -> bool | None:
    """Compare words, where the reference is words and no formula."""
    plain = _STYLED.sub(r"\1", gold).strip()
    if not _PHRASE.fullmatch(plain) or not _WORD.search(plain) or plain in ("pi", "infinity", "inf", "oo"):
        return None
    given = _IT_IS.sub("", _STYLED.sub(r"\1", answer).strip(), count=1)
    if _flat(plain) == _flat(given):
        return True
    if len(plain) <= 3 and sorted(plain) == sorted(given.replace("*", "").replace(" ", "")):
        return None  # xy and yx may be products
    said = _words.quantity(plain)
    if said is not None and (said.denominator > 1 or _words.number(plain) is not None):
        return said == _words.quantity(given) or decide(str(said), given)[0]
    if _flat(given) in ("true", "false", "yes", "no") and _flat(plain) in ("true", "false", "yes", "no"):
        return {"true": "yes", "false": "no"}.get(_flat(plain), _flat(plain)) == {
            "true": "yes",
            "false": "no",
        }.get(_flat(given), _flat(given))
    return False if "\\" not in plain else None


def _plain(text: str) -> str:
    """Return a text without its styles and case, for words in formulas."""
    plain = " ".join(_STYLED.sub(r"\1", text).split())
    return plain.casefold() if _WORD.search(plain) and "\\" not in plain else plain


def _flat(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text).strip().casefold()


def _trees(gold: str, answer: str) -> tuple[bool | None, str]:
    try:
        left: Node = read(gold)
    except Unread:
        main, rest = _CLAUSE.sub("", gold), _CLAUSE.sub("", answer)
        if main != gold and decide(main, rest)[0] is False:
            return False, "different"  # already without what holds under "where"
        return _unread_gold(gold, answer)
    number = _words.quantity(answer) if answer[:1].isalpha() and "\\" not in answer else None
    if number is not None and constant(left):
        answer = str(number)
    try:
        right: Node = read.__wrapped__(answer)
    except Unread as unread:
        if unread.hopeless:
            return False, "unreadable"
        if _BURST.search(answer):
            return False, UNDECIDED
        if left[0] == "ratio" or _words.date(answer) is not None:
            return False, "text"  # a time, or a date: numbers in words around them are no answer
        main = _CLAUSE.sub("", answer)
        if main != answer and decide(gold, main)[0] is False:
            return False, "different"
        if "\\" not in answer and not any(c.isdigit() for c in answer) and _PLAIN.fullmatch(answer):
            return False, "text"
        return None, "unread"
    try:
        verdict = same(left, right)
        if verdict is not True and "," in gold + answer:
            verdict = _decimal_comma(gold, answer) or verdict
    except TooBig:
        return False, UNDECIDED  # too big for sympy as well: no worker's time is spent on it
    except RecursionError:
        return None, "deep"
    if verdict is None and _BURST.search(answer):
        return False, UNDECIDED
    return verdict, "equal" if verdict else "different"


def _decimal_comma(gold: str, answer: str) -> bool | None:
    """Compare 1,5 with 1.5, where only one side has the comma."""
    pattern = re.compile(r"[+-]?\d+,\d+")
    for one, other in ((gold, answer), (answer, gold)):
        if pattern.fullmatch(one) and "." in other:
            try:
                return same(read(one.replace(",", ".")), read(other))
            except Unread:
                return None
    return None


def _unread_gold(gold: str, answer: str) -> tuple[bool | None, str]:
    if _flat(gold) == _flat(answer) and _WORD.search(gold) and "\\" not in gold + answer:
        return True, "same words"
    if _WORD.search(gold) and _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        left, right = _words.date(gold), _words.date(answer)
        return left is not None and left == right, "text"
    if len(answer) > LENGTH:
        return False, "too long"
    return None, "the reference is no plain formula"


# -- names that upstream's users bring


def boxed_reward_fn(
    model_response: str,
    gt_answer: Any,
    fast: bool = False,
    correct_reward: float = 1.0,
    incorrect_reward: float = 0.0,
) -> tuple[dict[str, bool], float]:
    r"""Return ``{"formatted": ...}`` and the reward of a reply whose answer must be in ``\boxed{}``.

    With `fast`, what cannot be decided without sympy counts as wrong.
    """
    inside = boxed(model_response)
    if inside is None:
        return {"formatted": False}, incorrect_reward
    if fast:
        right = any(decide(gold, inside)[0] for gold in references(gt_answer))
    else:
        right = check_correct(model_response, gt_answer)
    return {"formatted": True}, correct_reward if right else incorrect_reward
