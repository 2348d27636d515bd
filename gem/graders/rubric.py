"""Rubric: several graders with names and weights as one grader."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from gem.errors import BadArgument, NoVerdict, check_argument
from gem.graders import MADE
from gem.graders.base import DataGrader, Grader, Score, grade_with, same_in_all_runs
from gem.graders.functions import FunctionGrader, JudgeByName, class_of
from gem.specs import Rebuildable, Unwritable, check_accepted, write_value

if TYPE_CHECKING:
    from gem.tasks.sources import Read

ROUNDING = 1e-12
"""What rounding may take from a value: 0.6 of 0.1 + 0.1 + 0.6 is 0.7499999999999999."""


class Rubric(Rebuildable):
    """A grader of several parts. Its value is their weighted sum over the sum of the positive weights.

    A part of negative weight takes away; what falls below 0 counts as 0. A part of weight 0 is only measured.
    The score of each part, from 0 to 1 and before its weight, is in ``info["rewards"]``, and so among the
    turn's `rewards`; what a part adds of its own is in ``info["parts"]``.

    A part without a verdict leaves the answer without one (NoVerdict), whatever the others say. If its weight
    is 0 and it does not decide what is correct, only its score is missing.
    """

    def __init__(
        self,
        graders: Mapping[str, Grader | Callable[..., Any] | str],
        weights: Mapping[str, float] | None = None,
        *,
        correct: str | None = None,
        passing: float = 1.0,
    ) -> None:
        """Set the parts.

        Args:
            graders: the parts by name, in the order in which they grade: a grader, a function as
                `gem.graders.functions.FunctionGrader` takes it, or a name of `gem.graders.MADE`.
            weights: the weights that are not 1.
            correct: the part that decides whether an answer is correct. None: the value does, by `passing`.
            passing: the lowest value that is correct.

        Raises:
            BadArgument: for no part, a part that is no grader, an unknown part, or weights of which none is
                positive.
        """
        known = isinstance(graders, Mapping) and len(graders) > 0
        check_argument("graders", graders, known, 'one grader or more by name, as {"exact": "math"}')
        self.graders = {name: _open_grader(name, grader) for name, grader in graders.items()}
        check_accepted([*self.graders], weights or {}, "the rubric")
        self.weights = dict.fromkeys(self.graders, 1.0) | dict(weights or {})
        for name, weight in self.weights.items():
            is_number = isinstance(weight, int | float) and abs(weight) <= 1e300  # whose sum is finite
            check_argument(f"the weight of {name}", weight, is_number, "a number of at most 1e300")
        total = math.fsum(weight for weight in self.weights.values() if weight > 0)
        check_argument("the sum of the positive weights", total, 0 < total < math.inf, "above 0, and finite")
        known = correct is None or correct in self.graders
        check_argument("correct", correct, known, f"a part of the rubric ({', '.join(self.graders)})")
        check_argument("passing", passing, 0 < passing <= 1, "more than 0, at most 1")
        self.correct, self.passing, self._total = correct, passing, total

    @property
    def name(self) -> str:
        """The names of the parts, and a digest of what they are, for caches."""
        settings: Any = [self.graders, self.weights, self.correct, self.passing]
        try:
            settings = json.dumps(write_value(settings))
        except Unwritable:  # such as a lambda
            names = [getattr(grader, "name", name) for name, grader in self.graders.items()]
            settings = repr([names, *settings[1:]])
        digest = blake2b(settings.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"rubric:{'+'.join(self.graders)}#{digest}"

    @property
    def about(self) -> str:
        """Its parts and what is correct, as a sentence without its full stop."""
        parts = ", ".join(f"{name} (weight {weight:g})" for name, weight in self.weights.items())
        decides = f"from {self.passing:g} on" if self.correct is None else f"by {self.correct}"
        return f"Rubric: {parts}; right {decides}"

    @property
    def waits(self) -> bool:
        """Whether a part waits for a server, so that many answers are best graded at the same time."""
        return any(getattr(grader, "waits", False) for grader in self.graders.values())

    def __call__(self, answer: str, reference: Any, question: str | None = None) -> Score:
        """Score `answer` by all parts.

        Raises:
            NoVerdict: when a part gives none.
        """
        scores: dict[str, Score] = {}
        missing: dict[str, str] = {}
        for name, grader in self.graders.items():
            try:
                scores[name] = grade_with(grader, answer, reference, question)
            except (NoVerdict, BadArgument) as error:  # the latter for a reference that it cannot read
                if self.weights[name] or name == self.correct:
                    raise NoVerdict(f"the part {name} of the rubric gave no verdict: {error}") from error
                missing[name] = str(error)
        value = math.fsum(self.weights[name] * score.value for name, score in scores.items()) / self._total
        value = min(max(value, 0.0), 1.0)
        lead = next(iter(scores.values())) if self.correct is None else scores[self.correct]
        info: dict[str, Any] = {
            "rewards": {name: float(score.value) for name, score in scores.items()},
            "parts": {name: same_in_all_runs(score.info) for name, score in scores.items() if score.info},
            "no_verdict": missing,
        }
        return Score(
            value,
            value >= self.passing - ROUNDING if self.correct is None else lead.correct,
            lead.parsed,
            "; ".join(_describe(name, score) for name, score in scores.items()),
            {key: each for key, each in info.items() if each},
        )

    def check_reader(self, read: Read) -> Read:
        """Return a function that reads references as `read`, and refuses what a part cannot read.

        It raises BadArgument with the part's name; a judge and a function read anything.
        """
        parts = ((name, type(part)) for name, part in self.graders.items() if isinstance(part, DataGrader))
        return _CheckedReader(read, tuple(parts))

    def ping(self) -> None:
        """Ask each judge among the parts one plain question; see `JudgeByName.ping`."""
        for grader in self.graders.values():
            if isinstance(grader, JudgeByName):
                grader.ping()

    def close(self) -> None:
        """Close the parts that hold connections."""
        for grader in self.graders.values():
            if (close := getattr(grader, "close", None)) is not None:
                close()


@dataclass(frozen=True)
class _CheckedReader:
    """See `Rubric.check_reader`; of parts it has the classes, so that equal rubrics have equal ones."""

    read: Read
    parts: tuple[tuple[str, type[DataGrader]], ...]

    def __call__(self, value: Any, row: Mapping[str, Any]) -> Any:
        reference = self.read(value, row)
        for name, part in self.parts:
            try:
                part.read_golds(reference)
            except BadArgument as error:
                raise BadArgument(f"the part {name} of the rubric cannot read it: {error}") from error
        return reference


def _open_grader(name: str, grader: Any) -> Grader:
    if isinstance(grader, str):
        check_argument(f"the part {name}", grader, grader in MADE, f"{', '.join(MADE)}, or a grader")
        return cast(Grader, class_of(grader)())
    return cast(Grader, grader if callable(grader) and hasattr(grader, "name") else FunctionGrader(grader))


def _describe(name: str, score: Score) -> str:
    return f"{name} {score.value:.3g}" + (f" ({score.why})" if score.why else "")
