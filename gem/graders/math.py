r"""MathGrader: decides whether two answers are mathematically equal.

Most pairs are decided here in microseconds, as fractions or at sample points
(`gem.graders.mathematics.algebra`). The others go to sympy in a worker process that is killed when its CPU
budget runs out. Such an answer scores 0 with ``why="undecided"``, because otherwise a policy could avoid a
verdict with ``9^9^9^9``.

Both sides are read whole or not at all. Words are removed from an answer only if they are in lists of words
that do not change its value. A reference that cannot be read is compared word for word (`unread`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gem.errors import BadArgument, NoVerdict, missing_extra
from gem.graders.base import BOXED, UNDECIDED, BoxedGrader, Score
from gem.graders.mathematics.decision import NOT_EVALUATED, SAME_TEXT, decide, formula, readable
from gem.graders.mathematics.questions import copied, formed
from gem.graders.mathematics.replies import final_answer, is_written, references
from gem.graders.pool import Missing, WorkerLost, WorkerPool
from gem.parsing import boxed

if TYPE_CHECKING:
    from gem.tasks.columns import Columns
    from gem.tasks.sources import Read

__all__ = [
    "MathGrader",
    "boxed_reward_fn",
    "check_correct",
    "copied",
    "decide",
    "final_answer",
    "formed",
    "readable",
    "references",
    "workers",
]

WORKER = Path(__file__).with_name("mathematics") / "worker.py"
CONTROL = {"gold": r"\frac{1}{2} + x", "answer": r"x + \frac{2}{4}"}


@cache
def workers() -> WorkerPool:
    """Return this process's pool of grading workers; workers start at the first question."""
    return WorkerPool(WORKER)


class MathGrader(BoxedGrader):
    r"""A grader that compares a final answer with a reference, as mathematics.

    The answer is the content of the last ``\boxed{}``, and of the boxes that belong to the same statement
    (see `final_answer`). Without a box it is the reply itself if that is one line, else the text after
    "answer is", else the last sentence if that is of a simple kind such as "There are 12 ways.". A reference
    is text, a number, or a sequence of these, any of which is accepted. A reference that cannot be read whole
    is compared word for word; `reads` and `unread` find these.
    """

    name = "math/5"
    answer_form: ClassVar[str] = BOXED
    criterion: ClassVar[str] = "what is mathematically equal to the answer"

    def __init__(self, cpu_s: float = 2.0, wall_s: float = 60.0, simplified: bool = False) -> None:
        """Set the budgets of one undecided pair, and whether an answer must be fully evaluated.

        Args:
            cpu_s: CPU seconds, independent of the machine's load; when they run out, the answer is undecided
                and scores 0.
            wall_s: wall-clock seconds, a safety limit for a worker that hangs without computing.
            simplified: whether 30/2 and 9 + 6 are refused for 15, with ``why="not evaluated"``, because the
                task asks for the calculation.
        """
        if not (cpu_s > 0 and wall_s > 0):
            raise BadArgument(f"cpu_s is {cpu_s} and wall_s is {wall_s}; both must be more than 0.")
        self.cpu_s, self.wall_s, self.simplified = cpu_s, wall_s, simplified

    def __call__(self, answer: str, reference: Any, question: str | None = None) -> Score:
        """Score `answer` against `reference`.

        A `question` may say in which unit the answer is wanted. An equal answer is wrong if it copies the
        question (`copied`) or lacks the form that this asks for (`formed`).

        Raises:
            NoVerdict: when the workers also fail on a known good pair.
            MissingExtra: when a pair needs sympy, and the extra `math` is not installed.
        """
        score = self._compare(answer, reference, question or "")
        if question is None or not score.correct or score.why == SAME_TEXT:
            return score
        if copied(answer, reference, question):
            return Score(0.0, False, score.parsed, "copied from the question")
        if not formed(answer, reference, question):
            return Score(0.0, False, score.parsed, "not in the form that the question asks for")
        return score

    def _compare(self, answer: str, reference: Any, question: str) -> Score:
        golds = references(reference)
        given, _ = final_answer(answer)
        excerpt = given[:200] if given is not None else None
        if given is None:
            return Score(0.0, False, None, "no answer")
        undecided: list[str] = []
        why = "different"
        for gold in golds:
            verdict, reason = decide(gold, given, question)
            if self.simplified and reason == NOT_EVALUATED:
                verdict = False
            if verdict:
                return Score(1.0, True, excerpt, reason)
            if verdict is None:
                undecided.append(gold)
            elif len(golds) == 1:
                why = reason
        if is_written(answer, given, reference):
            return Score(1.0, True, excerpt, SAME_TEXT)
        for gold in undecided:
            verdict, reason = self._ask(gold, given)
            if verdict:
                return Score(1.0, True, excerpt, reason)
            why = reason
        return Score(0.0, False, excerpt, why)

    @classmethod
    def reader(cls, columns: Columns, rows: Sequence[Any], where: str) -> Read:
        """Return the reader of references; in a file with semicolons it refuses ``3,5 m``, a pair or 3.5."""
        read = super().reader(columns, rows, where)
        return _read_with_points if getattr(rows, "delimiter", None) == ";" else read

    @staticmethod
    def read_golds(reference: Any) -> list[str]:
        """Return the texts of a reference; see `references`."""
        return references(reference)

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
                return self._question({"read": formula(gold) or ""}).get("readable") is True
            except WorkerLost:
                return False
        return known

    def _ask(self, gold: str, answer: str) -> tuple[bool, str]:
        """Ask a worker to compare; a crash is the answer's fault only if a known good pair does not crash."""
        question = {"gold": formula(gold) or "", "answer": formula(answer) or ""}
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


def _read_with_points(value: Any, row: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and (comma := _DECIMAL_COMMA.fullmatch(value.strip())):
        raise BadArgument(
            f"the answer is {value!r:.80}, in a file with semicolons: is it one number or two? Write "
            f"{comma[1].replace('.', '')}.{comma[2]} or ({comma[1]}, {comma[2]})"
        )
    return MathGrader.read_reference(value, row)


_DECIMAL_COMMA = (
    re.compile(  # all but a name before and a unit behind; no 1,234, and no list of three numbers
        r"(?:[a-zA-Z]\w*\s*=\s*)?(?:[€£]|\\?\$)?\s*"
        r"([-+−]?(?:\d{1,3}(?:\.\d{3})+|(?![1-9]\d{0,2},\d{3}(?!\d))\d++)),(\d++)"
        r"\s*(?:(?!(?:and|or)\b)(?:[^\W\d_]|[%€$£°(]|\\[a-zA-Z%,;: ])[^,]{0,40})?"
    )
)


def check_correct(answer: str, truth: Any) -> bool:
    r"""Return whether `answer`, boxed or bare, is mathematically equal to `truth`.

    >>> check_correct(r"so it is \boxed{\frac{2}{4}}", "0.5"), check_correct("0.51", "0.5")
    (True, False)
    """
    return MathGrader()(answer, truth).correct


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
