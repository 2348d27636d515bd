r"""MathGrader: decides whether two answers are mathematically equal.

Most pairs are decided here in microseconds, as fractions or at sample points
(`gem.graders.mathematics.algebra`). The others go to sympy in a worker process that is killed when its CPU
budget runs out. Such an answer scores 0 with ``why="undecided"``, because otherwise a policy could avoid a
verdict with ``9^9^9^9``.

Both sides are read whole or not at all. Words are removed from an answer only if they are in lists of words
that do not change its value. A reference that cannot be read is compared word for word (`unread`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, NoVerdict, missing_extra
from gem.graders.base import UNDECIDED, Score
from gem.graders.mathematics import number_words
from gem.graders.mathematics.algebra import same
from gem.graders.mathematics.corrections import corrected
from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.latex import LENGTH, Node, Unread, english, normalised, read
from gem.graders.mathematics.scalars import constant
from gem.graders.mathematics.units import counted
from gem.graders.mathematics.values import bare, in_form, leaves, unevaluated, worked_out
from gem.graders.pool import Missing, WorkerLost, WorkerPool
from gem.parsing import boxed
from gem.specs import Rebuildable

WORKER = Path(__file__).with_name("mathematics") / "worker.py"
ANSWER = 20_000  # characters of a boxed or bare answer that are looked at
LONGEST = 200_000  # characters at the end of a reply in which a box is looked for
REPLY = 8_000  # characters at the end of an unboxed reply that a worker looks through
CONTROL = {"gold": r"\frac{1}{2} + x", "answer": r"x + \frac{2}{4}"}

_INTEGER = re.compile(r"([+-]?)(\d+|0*[1-9]\d{0,2}(?:,\d{3})+)", re.ASCII)
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s+)?\(?([A-Z])\)?(?:[.:)]?$|(?:[.:)]\s*|(?<=\))\s*)(?:[\dA-Z$\"'\\]|\s-\d)"
    r"(?:(?!\([A-Z]\)).)*$)",
    re.DOTALL,
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
_WORDS_ALONE = re.compile(r"[^\W\d_](?:[^\W\d_]|[\s.,:;'\"!?-])*")
_ROMAN = re.compile(r"[IVX]{2,}")
_PHRASE = re.compile(r"[^\W\d_][^\W\d_'. -]*(?:[ -][^\W\d_]['\w.]*)*")
_ITEM = re.compile(r"[-*•]|(?<!\w)\(?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.):]")
_JOINING = re.compile(r"\b(?:and|or|either|maybe|perhaps|also|both|as well as)\b", re.IGNORECASE)
_CONCLUDING = re.compile(
    r"\b(?:so|thus|hence|therefore|finally|final|answers?|no|not|wrong|wait|correction|corrected|mistake|instead|rather|actually|now"
    r"|which (?:gives|means|makes))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_PERCENT = re.compile(r"[}\s$]*(?:\\[)\]])?\s*(?:\\?%|percent\b|percentage\b|pct\b)", re.IGNORECASE)
_ANCHOR = re.compile(
    r"(?:####|(?:final\s+)?answer(?:\s+is|\s*:)(?:\s*:)?|\banswer\b[^.\n]{0,40}?\bis\b:?)\s*", re.IGNORECASE
)
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
    rf"(?:\\(?:{'|'.join(_COMMANDS.split())})(?![a-zA-Z])|\\(?:begin|end)\{{[bp]?matrix\}}|\d+(?:\.\d+)?(?!\s*_)"
    r"|(?<![a-zA-Z\\])(?:[a-eh-zA-Z]|[a-eh-zA-Z]{2,3}|[fgh](?!\s*\())(?![a-zA-Z])|[-+*/^=_{}()|&!\s])+"
)
_COMMA = re.compile(r"[+-]?(?:0,\d+|[1-9]\d{0,2},(?!\d{3}(?!\d))\d+|[1-9]\d{3,},\d+)[^\d,;]*", re.ASCII)
_BURST = re.compile(  # towers and factorials of what sympy would only burst on
    r"(?:\^|\*\*)[\s{(]*[\d.]+[\s})]*(?:\^|\*\*)|(?<!\d)\d{5,}[\s})]*!"
    r"|![\s})]*!|\^[\s{(]*\d{2,}[\s})]*!|(?:\^|\*\*)[\s{(]*-?\d{5,}|\\d?binom\s*\{\d{6,}"
)
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z]|\$(?=\S)|\\[(\[])|\n\s*\n|(?<=[\]$])\s*\n(?=[A-Z])")
_ASSURANCE = re.compile(
    r"(?:done|qed|i (?:hope|am sure|believe|think)[a-z ]{0,30}|that is all|good luck)[.!]*", re.IGNORECASE
)
_SEGMENT = re.compile(r"(?<!\\)\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


@cache
def workers() -> WorkerPool:
    """Return this process's pool of grading workers; workers start at the first question."""
    return WorkerPool(WORKER)


class MathGrader(Rebuildable):
    r"""A grader that compares a final answer with a reference, as mathematics.

    The answer is the content of the last ``\boxed{}``, and of the boxes that belong to the same statement
    (see `final_answer`). Without a box it is the reply itself if that is one line, else the text after
    "answer is", else the last sentence if that is of a simple kind such as "There are 12 ways.". A reference
    is text, a number, or a sequence of these, any of which is accepted. A reference that cannot be read whole
    is compared word for word; `reads` and `unread` find these.
    """

    name = "math/2"

    def __init__(self, cpu_s: float = 2.0, wall_s: float = 60.0) -> None:
        """Set the budgets of one undecided pair.

        Args:
            cpu_s: CPU seconds, independent of the machine's load; when they run out, the answer is undecided
                and scores 0.
            wall_s: wall-clock seconds, a safety limit for a worker that hangs without computing.
        """
        if not (cpu_s > 0 and wall_s > 0):
            raise BadArgument(f"cpu_s is {cpu_s} and wall_s is {wall_s}; both must be more than 0.")
        self.cpu_s, self.wall_s = cpu_s, wall_s

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer` against `reference`.

        Raises:
            NoVerdict: when the workers also fail on a known good pair.
            MissingExtra: when a pair needs sympy, and the extra `math` is not installed.
        """
        golds = references(reference)
        given, _ = final_answer(answer)
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
        for gold in undecided:
            verdict, said = self._ask(gold, given)
            if verdict:
                return Score(1.0, True, shown, said)
            why = said
        return Score(0.0, False, shown, why)

    def reads(self, reference: Any) -> bool:
        """Return whether every text of a reference is read whole, so that other notations of it are accepted.

        Raises:
            BadArgument: for a reference of an unsupported type.
            MissingExtra: when only sympy could decide, and the extra `math` is not installed.
        """
        return not self.unread(reference)

    def unread(self, reference: Any) -> list[str]:
        """Return the texts of a reference that can only be compared word for word.

        Raises:
            BadArgument: for a reference of an unsupported type.
            MissingExtra: when only sympy could decide, and the extra `math` is not installed.
        """
        return [gold for gold in references(reference) if not self._readable(gold)]

    def _readable(self, gold: str) -> bool:
        known = readable(gold)
        if known is None:
            try:
                return self._question({"read": _formula(gold) or ""}).get("readable") is True
            except WorkerLost:
                return False
        return known

    def _ask(self, gold: str, answer: str) -> tuple[bool, str]:
        """Ask a worker to compare; a crash is the answer's fault only if a known good pair does not crash."""
        question = {"gold": _formula(gold) or "", "answer": _formula(answer) or ""}
        for _ in range(2):
            try:
                verdict = self._question(question)
            except WorkerLost as lost:
                if lost.spent:
                    return False, UNDECIDED
                self._control()
                continue
            if "equal" in verdict:
                return verdict["equal"], "equal by sympy" if verdict["equal"] else "different"
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
    r"""Return whether `answer`, boxed or bare, is mathematically equal to `truth`.

    >>> check_correct(r"so it is \boxed{\frac{2}{4}}", "0.5"), check_correct("0.51", "0.5")
    (True, False)
    """
    return _default()(answer, truth).correct


@cache
def _default() -> MathGrader:
    return MathGrader()


def references(reference: Any) -> list[str]:
    """Return the texts of a reference, any of which is accepted.

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
    r"""Return the final answer in `text`, and whether that is certain: it is boxed or is the whole text.

    Several boxes form one answer if they belong to the same statement. They do if only list marks, "and",
    "or" and commas are between them, if they are in one sentence, or if only a few words on the same or the
    next line are between them. They do not if a blank line with words, a longer text, or a concluding or
    correcting word ("so", "therefore", "the answer", "no", "wait") is between them: then the last box counts.
    "and" and "or" join even then.

    Text after the answer may correct it ("No, it is 3") or withdraw it ("That is wrong"): see
    `gem.graders.mathematics.corrections`.

    >>> final_answer(r"thus \boxed{1} and \boxed{2}.")
    ('1, 2', True)
    >>> final_answer(r"With x = \boxed{3} found, the answer is \boxed{5}.")
    ('5', True)
    >>> final_answer("The answer is 2. Actually, it is 3.")
    ('3', True)
    """
    text = text[-LONGEST:]
    inside = boxed(text) if "\\boxed" in text else None
    if inside is not None:
        given = _joined_boxes(text, inside)
        behind = text[text.find(inside, text.rfind("\\boxed")) + len(inside) + 1 :]
        return given if len(behind) < 4 else corrected(given, behind), True
    stripped = text.strip()
    if not stripped:
        return None, True
    anchors = list(_ANCHOR.finditer(stripped[-REPLY:]))
    if anchors:
        return _anchored(stripped[-REPLY:][anchors[-1].end() :]), len(stripped) < 40
    if "\n" not in stripped and (len(stripped) <= 200 or " " not in stripped):
        return _unassured(stripped), True
    return _sentences(stripped[-REPLY:])[-1].strip()[-ANSWER:], False


def _anchored(rest: str) -> str | None:
    """Return the text after "answer is": the sentence, or a formula on its own line."""
    rest = rest.strip().removeprefix("}").strip()  # the end of \text{The answer is }
    segment = _SEGMENT.match(rest)
    behind = rest[segment.end() :].partition("\n")[0] if segment else ""
    if segment and (not behind.strip(" .!*") or _SENTENCE_END.match(behind.lstrip())):
        return corrected(next(group for group in segment.groups() if group), rest[segment.end() :])
    line = rest.partition("\n")[0]
    said = re.split(r"\.\s|\.$", line, maxsplit=1)[0]
    return corrected(_REASON.sub("", said), rest[len(said) :]) if said else None


_REASON = re.compile(
    r"\s*,?\s+(?:since|because)\b.*"
    r"|\s*(?:,\s*(?:and )?not\s+\$?-?\d[\d.,/]*\$?|\(not\s+\$?-?\d[\d.,/]*\$?\))$",
    re.DOTALL,
)


def _sentences(text: str) -> list[str]:
    """Return the sentences of a reply, without closing assurances."""
    found = [part for part in _SENTENCES.split(text) if part.strip()]
    while len(found) > 1 and _ASSURANCE.fullmatch(found[-1].strip()):
        found.pop()
    return found or [text]


def _unassured(line: str) -> str:
    last = _SENTENCES.split(line)[-1].strip()
    return line[: -len(last)].strip() if len(last) < len(line) and _ASSURANCE.fullmatch(last) else line


def _joined_boxes(text: str, last: str) -> str:
    """Join the boxes that belong to the last one's statement, or a single box and a percent sign after it."""
    found = [last]
    start = text.rfind("\\boxed")
    tail = text[start:]
    while start > 0 and len(found) < 20 and text.find("\\boxed", 0, start) >= 0:
        before = text[:start]
        earlier = boxed(before[-ANSWER:])
        if earlier is None:
            break
        opened = before.rfind("\\boxed")
        closed = before.find(earlier, opened) + len(earlier)
        closed = before.find("}", closed) + 1
        if not closed or not _belongs(before[closed:]):
            break
        found.append(earlier)
        start = opened
    if len(set(found)) == 1:
        sign = _PERCENT.match(tail, tail.find(last) + len(last)) if len(tail) < ANSWER else None
        return last + "%" if sign and "%" not in last else last
    return ", ".join(reversed(found))


def _belongs(gap: str) -> bool:
    """Return whether the text between two boxes makes them one answer."""
    if len(gap) > 300:
        return False
    words = _STYLED.sub(r" \1 ", gap)
    words = re.sub(r"\\[a-zA-Z]+|[\\$\[\](){},;:|/]|(?<=\s)[-*•](?=\s)", " ", _ITEM.sub(" ", words))
    plain = re.findall(r"[^\W\d_]{2,}", words)
    if all(word.casefold() in ("and", "or", "with", "also") for word in plain):
        return True
    if _JOINING.search(words) and "\n\n" not in gap:
        return True
    if re.search(r"\n\s*\n", gap) or _CONCLUDING.search(words):
        return False
    if not _SENTENCE_END.search(words.rstrip(". ")) and "\n" not in gap.strip():
        return True
    return len(plain) <= 8


def copied(reply: str, reference: Any, question: str) -> bool:
    r"""Return whether the final answer of a reply copies a formula of the question instead of answering it.

    "Expand $(x+1)^2$" and "Find $\binom{5}{2}$" are not answered by repeating the formula. Evaluated numbers,
    words, sets and intervals are never copies, except a number of the question that must be written in
    another way: 0.75 does not answer "Convert 0.75 to a fraction".

    >>> copied(r"\boxed{\dbinom{5}{2}}", "10", r"Find $\binom{5}{2}$."), copied("10", "10", "Is 10 even?")
    (True, False)
    """
    given = _prepared.__wrapped__((final_answer(reply)[0] or "")[:LENGTH])
    short = re.sub(r"\s", "", _canonical(given))
    wanted = r"\s*".join(map(re.escape, short))
    question = question[:ANSWER]
    there = re.search(rf"(?<![\w.]){wanted}(?!\w|\.\d)", _canonical(normalised(question))) is not None
    try:
        tree = read.__wrapped__(given)
    except Unread:
        return there and "\\" in short and given not in map(_prepared, references(reference))
    if tree[0] not in _LEFT_TO_DO or worked_out(tree, given):
        return there and _CONVERT.search(question) is not None and _rewritten(tree, given, reference)
    if not there and tree not in _formulas(question):
        return False
    for gold in references(reference):
        try:
            if leaves(read(_prepared(gold))) == leaves(tree):
                return False
        except Unread:
            return False
    return True


_CONVERT = re.compile(
    r"\b(?:convert|express|(?:re)?write)\b[^.?!]*(?:\.\d[^.?!]*)*\b(?:to|as|in|into)\b"
    r"|\bhow many [a-z]+ (?:is|are|equal|equals|make) \$?\d",
    re.IGNORECASE,
)


def _formulas(question: str) -> list[Node]:
    """Return the formulas of a question as trees, which are equal for different notations."""
    found = []
    for text in re.findall(r"\$\$?([^$]+)\$|\\[(\[](.+?)\\[)\]]", question)[:20]:
        with contextlib.suppress(Unread):
            found.append(read.__wrapped__(_prepared.__wrapped__((text[0] or text[1]).rstrip(" .,;?"))))
    return found


def _rewritten(tree: Node, given: str, reference: Any) -> bool:
    """Return whether every reference is a number in a notation or unit that differs from the answer's."""
    for gold in references(reference):
        text = _prepared(gold)
        try:
            wanted, wanted_unit = _notation(read(text), text)
            got, unit = _notation(tree, given)
            if wanted == got and (wanted_unit == unit or not (wanted_unit and unit)):
                return False
        except Unread:
            return False
    return True


def _notation(tree: Node, text: str) -> tuple[list[Any], str]:
    """Return the notation of a number, and its unit."""
    number, unit = (tree[1], tree[2]) if tree[0] == "unit" else (tree, "")
    marks = (r"\d\.\d", r"_", r"overline|\.\(|\.\.\.", r"\d[eE]\d")
    return [number[0], *(re.search(mark, text) is not None for mark in marks)], unit


def formed(reply: str, reference: Any, question: str) -> bool:
    r"""Return whether a right answer has the form that the question asks for: expanded, factored, simplified.

    If the reference is a number, the answer must not contain an integral, an indexed sum or product, a limit
    or a determinant. If it is another formula without these, the answer must not contain an integral, a sum,
    a limit or a derivative.

    >>> tuple(formed(answer, "x^2+2x+1", "Expand $(x+1)^2$.") for answer in ("(x+1)(x+1)", "1+2x+x^2"))
    (False, True)
    """
    given = _prepared.__wrapped__((final_answer(reply)[0] or "")[:LENGTH])
    return any(_formed(_prepared(gold), given, question) for gold in references(reference))


def _formed(gold: str, given: str, question: str) -> bool:
    try:
        tree = read(gold)
    except Unread:
        return True
    try:
        return gold == given or in_form(tree, read.__wrapped__(given), question)
    except Unread:
        if constant(bare(tree)):
            return not _UNDONE.search(given)
        return "=" in given or not (_ASKED_FOR.search(given) and not _ASKED_FOR.search(gold))


_ASKED_FOR = re.compile(r"\\(?:int|sum|prod|lim)(?![a-zA-Z])|\\d?frac\s*\{?d\}?\s*\{?d[a-z]")
_UNDONE = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|det|begin)(?![a-zA-Z])")
_LEFT_TO_DO = ("+", "*", "/", "^", "-", "%", "fn", "unit", "rel")


def _canonical(text: str) -> str:
    """Return a text with one notation for fractions, products and powers."""
    text = re.sub(r"\\[dt](?=frac|binom)", r"\\", text)
    text = re.sub(r"\\(?:cdot|times)(?![a-zA-Z])|[×·]", "*", text)
    text = re.sub(r"\\b?(?=(?:mod|gcd|lcm|min|max)(?![a-zA-Z]))", "", text)
    return re.sub(r"\{\s*(\w)\s*\}", r"\1", re.sub(r"\^\s*\{\s*(\w+)\s*\}", r"^\1", text))


# -- the fast verdict


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
    left, right = _prepared(gold), _prepared.__wrapped__(answer)
    if not right:
        return False, "no answer"
    verdict, why = _compared(left, right)
    if not verdict and _TALK.search(right):
        value = number_words.stated(_untexted(right))
        if value is not None and value != right:
            told, reason = _compared(left, _prepared.__wrapped__(value))
            if told is not False:
                return told, reason
        if number_words.spoken(right):
            plain = _untexted(right)
            amount = number_words.quantity(plain) if plain != right else None
            spoken = number_words.numerals(plain) if amount is None else str(amount)
            if spoken != right and any(letter.isdigit() for letter in spoken):
                told, reason = _in_digits(left, spoken)
                if told:
                    return told, reason
    return verdict, why


def _in_digits(left: str, spoken: str) -> tuple[bool | None, str]:
    """Compare with an answer whose number words are now digits, including phrases such as "half of 2"."""
    told, reason = _compared(left, spoken)
    value = None if told else number_words.stated(spoken)
    return (told, reason) if value is None else _compared(left, _prepared.__wrapped__(value))


def _compared(left: str, right: str) -> tuple[bool | None, str]:
    """Compare two normalised texts."""
    if left == right or (_STYLED.search(left + right) and _plain(left) == _plain(right)):
        return bool(left), "same text"
    verdict = _choice(left, right)
    if verdict is None:
        verdict = _phrase(left, right)
    if verdict is not None:
        return verdict, "text"
    return _trees(left, right)


def _untexted(text: str) -> str:
    return " ".join(_STYLED.sub(r" \1 ", text).split())


def readable(gold: str) -> bool | None:
    """Return whether this process reads a reference whole; None if only sympy could."""
    text = _prepared(gold)
    if not text:
        return False
    plain = _STYLED.sub(r"\1", text).strip()
    words = _PHRASE.fullmatch(plain) or _WORDS_ALONE.fullmatch(plain)
    if _CHOICE.fullmatch(plain) or (words and _WORD.search(plain)) or number_words.date(plain):
        return True
    for form in (text, number_words.stated(_untexted(text))):
        if form is None:
            continue
        try:
            if _measured(read(form)):
                return True
        except Unread:
            pass
    return None if _formula(gold) is not None else False


def _measured(tree: Node) -> bool:
    """Return whether the words after a number are known to be a unit or a counted thing."""
    return tree[0] != "unit" or tree[2][0] == "(" or counted(tree[2])


def _formula(text: str) -> str | None:
    """Return a text in the form for sympy's parser; None if a part of it is not a plain formula.

    Undefined function names, primes, indices, sets and inequalities are excluded, because that parser
    misreads some of them.
    """
    if len(text) > ANSWER:
        return None
    text = _prepared.__wrapped__(text)
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
    """Rewrite the few phrases that mean a number or a set."""
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
    amount = Fraction(match[1]) * number_words.SCALES[match[2].casefold()]
    return str(amount) if amount.denominator == 1 else match[0]


def _choice(gold: str, answer: str) -> bool | None:
    """Compare multiple-choice letters, if the reference is one."""
    letter = _CHOICE.fullmatch(_STYLED.sub(r"\1", gold).strip())
    if letter is None:
        return None
    plain = _STYLED.sub(r"\1", answer).strip()
    given = _CHOICE.fullmatch(plain)
    if given is None and len(plain.strip("()")) == 1 and letter[1] in "ABCDEFGHIJ":
        return plain.strip("()").upper() == letter[1] if plain.strip("()").isalpha() else None
    return given[1] == letter[1] if given else None


def _phrase(gold: str, answer: str) -> bool | None:
    """Compare words, if the reference is words and not a formula."""
    plain = _STYLED.sub(r"\1", gold).strip()
    if not _PHRASE.fullmatch(plain) or not _WORD.search(plain) or plain in ("pi", "infinity", "inf", "oo"):
        return None
    given = _IT_IS.sub("", _STYLED.sub(r"\1", answer).strip(), count=1)
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
    said = number_words.quantity(plain)
    if said is not None and (said.denominator > 1 or number_words.number(plain) is not None):
        return said == number_words.quantity(given) or decide(str(said), given)[0]
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
    if unevaluated(left, right, answer):
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
        value = number_words.stated(_untexted(gold)) if _TALK.search(gold) else None
        if value is None:
            raise
        tree = read(value)
    if not _measured(tree):
        raise Unread("words")
    return tree


def _for_sympy(gold: str, answer: str, why: str) -> tuple[bool | None, str]:
    """Return None if a worker may be asked, which needs two plain formulas."""
    if _BURST.search(answer):
        return False, UNDECIDED
    if _formula(gold) is None or _formula(answer) is None:
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
    if _spelled(gold) == _spelled(answer):
        return True, "same words"
    if _WORDS_ALONE.fullmatch(gold) and _flat(gold) == _flat(answer):
        return True, "same words"
    main, rest = _CLAUSE.sub("", gold), _CLAUSE.sub("", answer)
    if main and main != gold and rest != answer:  # "2n, where n is odd": both halves count
        conditions = _spelled(gold[len(main) :]) == _spelled(answer[len(rest) :])
        return (_compared(main, rest)[0] is True and conditions), "formula and condition"
    if _WORD.search(gold):
        left, right = number_words.date(gold), number_words.date(answer)
        if left is not None:
            return left == right, "text"
    if len(answer) > LENGTH:
        return False, "too long"
    if "\\" not in gold:
        return False, "the reference is no plain formula"
    return _for_sympy(gold, answer, "the reference is no plain formula")


def _spelled(text: str) -> str:
    """Return a text without styles, spaces beside signs and stops at its end, and words without case."""
    text = " ".join(re.sub(r"[`$]|\\[,;: ]", "", _STYLED.sub(r" \1 ", text)).split()).replace("\\%", "%")
    text = re.sub(r" ?([^\w\s]) ?", r"\1", text)
    text = text if text.endswith("..") else text.strip(".,;: ")
    return text.casefold() if re.search(r"[^\W\d_]{3,}", text) and "\\" not in text else text


# -- names that upstream's users bring


def boxed_reward_fn(
    model_response: str,
    gt_answer: Any,
    fast: bool = False,
    correct_reward: float = 1.0,
    incorrect_reward: float = 0.0,
) -> tuple[dict[str, bool], float]:
    r"""Return ``{"formatted": ...}`` and the reward of a reply whose answer must be in ``\boxed{}``.

    With `fast`, an answer that cannot be decided without sympy counts as wrong.
    """
    inside = boxed(model_response)
    if inside is None:
        return {"formatted": False}, incorrect_reward
    if fast:
        right = any(decide(gold, inside)[0] for gold in references(gt_answer))
    else:
        right = check_correct(model_response, gt_answer)
    return {"formatted": True}, correct_reward if right else incorrect_reward
