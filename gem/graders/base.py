"""The Grader protocol and the Score that a grader returns."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gem.errors import BadArgument, NoVerdict
from gem.plugins import declares
from gem.specs import Rebuildable
from gem.tasks.files import scan
from gem.tasks.sources import cell, is_empty

if TYPE_CHECKING:
    from gem.tasks.columns import Columns
    from gem.tasks.sources import Read

BOXED = "Give your final answer inside \\boxed{}."

UNDECIDED = "undecided"
"""The value of `Score.why` when a budget ran out before a decision; a larger budget may decide."""


@dataclass(frozen=True, slots=True)
class Score:
    """A grader's verdict on one answer.

    `value` is in [0, 1]; `correct` is whether the answer counts as solved; `parsed` is the answer that the
    grader extracted, or None; `why` is a word or sentence with the reason; `info` holds further data.
    """

    value: float
    correct: bool
    parsed: str | None = None
    why: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


class Grader(Protocol):
    """A function that scores an answer against a reference.

    One that has a parameter `question` gets the task's question too; see `grade_with`.

    It is pure and may be called from any thread and any process. A hostile answer gives a Score; only a
    failure of the grader itself raises NoVerdict.
    """

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer`, the agent's whole reply, against the task's `reference`."""


def takes_question(grader: Any) -> bool:
    """Return whether a grader has a parameter `question`."""
    call = getattr(type(grader), "__call__", None)  # noqa: B004 - of its class, which is looked at once
    return declares(call if inspect.isfunction(call) else grader, "question")


def grade_with(grader: Grader, answer: str, reference: Any, question: str | None) -> Score:
    """Score `answer` by a grader, which gets the question if it has a parameter for it.

    Environments, `gem-gym regrade` and graders that are made of others all grade by this function, so that
    their verdicts agree.

    Raises:
        NoVerdict: when the grader fails, or returns no valid Score.
    """
    if question is not None and takes_question(grader):
        return check_score(grader(answer, reference, question=question))  # type: ignore[call-arg]
    return check_score(grader(answer, reference))


def check_score(score: Any) -> Score:
    """Return `score` if it is a valid Score.

    Raises:
        NoVerdict: if it is not: the grader is broken, whatever the answer was.
    """
    if not isinstance(score, Score):
        raise NoVerdict(
            f"the grader returned {score!r:.80}, which is not a Score; accepted: Score(value, correct)."
        )
    value: Any = score.value  # an annotation keeps nobody from giving something else
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    fits = (
        is_number and 0 <= value <= 1,
        isinstance(score.correct, bool),
        score.parsed is None or isinstance(score.parsed, str),
        isinstance(score.why, str),
        isinstance(score.info, Mapping),
    )
    if not all(fits):
        raise NoVerdict(f"the grader returned {score!r:.200}; a score's value is a number from 0 to 1.")
    return score


def same_in_all_runs(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score's info without ``spent``, the times of a run."""
    return {key: value for key, value in info.items() if key != "spent"}


def read_list(value: Any) -> Any:
    """Return the list that a cell is as JSON text, as in a CSV file; another cell unchanged.

    For other rows see `check_lists`.

    It begins with a text in quotes, because a list of numbers is more often a single answer.

    >>> read_list('["Oslo", "Kristiania"]'), read_list("[1, 2]")
    (['Oslo', 'Kristiania'], '[1, 2]')

    Raises:
        BadArgument: for a list in another notation, as Python's, or of other values.
    """
    if not isinstance(value, str) or not _LIST.fullmatch(value):
        return value
    texts: Any = None
    with suppress(ValueError, RecursionError):
        texts = json.loads(value)
    if texts is None or not all(isinstance(text, str | int | float) for text in texts):
        raise BadArgument(
            f"the answer is {value!r:.80}, which is no JSON list of texts and numbers. If any value of it "
            'is right, write it as JSON, such as ["Oslo", "Kristiania"]; if the whole is one answer, write '
            "\\boxed{} around it"
        )
    return texts


def check_lists(rows: Any, columns: Columns, where: str) -> None:
    """Refuse lists as texts where rows can hold lists, unless all answers are such texts.

    Rows of a CSV file hold nothing but texts. Elsewhere a text such as ``["a", "b"]`` among other answers may
    be the one right answer, as the output of a program is.

    Raises:
        BadArgument: with what to write.
    """
    memory, key = getattr(rows, "checked", set[Any]()), ("lists", columns.answer)
    if columns.answer is None or getattr(rows, "delimiter", None) or key in memory:
        return
    kinds: dict[bool, Any] = {}
    for row in scan(rows, columns.images):
        if isinstance(row, Mapping) and not is_empty(value := cell(row, columns.answer)):
            kinds.setdefault(isinstance(value, str) and _LIST.fullmatch(value) is not None, value)
    if len(kinds) == 2:
        raise BadArgument(
            f"{where}: the answer {kinds[True]!r:.60} is a text that looks like a list, and "
            f"{kinds[False]!r:.60} is none: are its values alternatives, or is the whole one answer? Write a "
            "list of JSON without quotes around it, or \\boxed{} around the text."
        )
    memory.add(key)


_LIST = re.compile(r"\s*\[\s*['\"].*\]\s*", re.DOTALL)


class DataGrader(Rebuildable):
    """A grader over the rows of a data set, to which `gem.graders.MADE` gives a name.

    Beside its verdict, a subclass says how a row is read and how an answer is asked for. ``data:NAME``,
    ``--grader NAME`` and all lists of graders follow from the name and these.
    """

    answer_form: ClassVar[str] = ""
    """The sentence after a question that says what an answer looks like."""

    criterion: ClassVar[str] = ""
    """What is right, for messages."""

    @classmethod
    def reader(cls, columns: Columns, rows: Sequence[Any], where: str) -> Read:
        """Return the function that makes the reference of a row.

        Args:
            columns: the columns that were found.
            rows: all rows; a bad one may be anything.
            where: the data set's name, for messages.

        Raises:
            BadArgument: when a column is missing, and as of `check_lists`.
        """
        if cls.answer_form:
            check_lists(rows, columns, where)
        return cls.read_reference

    @staticmethod
    def read_golds(reference: Any) -> Sequence[Any]:
        """Return the right answers that a reference stands for, of which any is accepted.

        Raises:
            BadArgument: when this grader cannot read it.
        """
        return [reference]

    @classmethod
    def read_reference(cls, value: Any, row: Mapping[str, Any]) -> Any:
        """Return the reference of a row from the cell of its answer.

        Raises:
            BadArgument: when this grader cannot read it.
        """
        if cls.answer_form:  # a judge or a function gets the cell as it is
            value = read_list(value)
        cls.read_golds(value)
        return value

    @classmethod
    def write_answer(cls, reference: Any) -> str:
        """Return a reference as an answer in the required form."""
        return str(reference)


class BoxedGrader(DataGrader):
    """A DataGrader of answers in a box."""

    @classmethod
    def write_answer(cls, reference: Any) -> str:
        """Return the first right answer of a reference in a box."""
        return f"\\boxed{{{cls.read_golds(reference)[0]}}}"
