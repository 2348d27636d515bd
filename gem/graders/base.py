"""Grader and Score: how good an answer is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

from gem.errors import NoVerdict

UNDECIDED = "undecided"
"""`Score.why` where a budget was spent before the answer was decided: another budget may decide it."""


@dataclass(frozen=True, slots=True)
class Score:
    """A grader's judgement.

    `value` lies in [0, 1]; `correct` says whether it counts as solved; `parsed` is what the grader read out
    of the answer, None when it found none; `why` is a word or sentence for the record; `info` holds more.
    """

    value: float
    correct: bool
    parsed: str | None = None
    why: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


class Grader(Protocol):
    """Scores an answer against a reference.

    Pure, from any thread and any process. A hostile answer gives a Score; only a grader that fails on its own
    raises NoVerdict.
    """

    def __call__(self, answer: str, reference: Any) -> Score:
        """Score `answer`, the agent's whole reply, against `reference`, the task's."""
        ...


def checked(score: Any) -> Score:
    """Return a score that is one.

    Raises:
        NoVerdict: for what no grader returns: the grader is broken, whatever the answer was.
    """
    if not isinstance(score, Score):
        raise NoVerdict(f"the grader returned {score!r:.80}, which is no Score.")
    value: Any = score.value  # an annotation keeps nobody from giving something else
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    fits = (
        is_number and math.isfinite(value) and 0 <= value <= 1,
        isinstance(score.correct, bool),
        score.parsed is None or isinstance(score.parsed, str),
        isinstance(score.why, str),
        isinstance(score.info, Mapping),
    )
    if not all(fits):
        raise NoVerdict(f"the grader returned {score!r:.200}; a score's value is a number from 0 to 1.")
    return score
