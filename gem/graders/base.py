"""Grader and Score: how good an answer is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

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
