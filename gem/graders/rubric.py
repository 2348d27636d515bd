"""Rubric: several graders with names and weights as one grader."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from gem.errors import BadArgument, NoVerdict, check_argument, reason
from gem.files import read_toml
from gem.graders import MADE
from gem.graders.base import DataGrader, Grader, Score, check_score, grade_with
from gem.graders.functions import FunctionGrader, JudgeByName, class_of, named_grader
from gem.naming import fix_name
from gem.specs import Rebuildable, Unwritable, check_accepted, write_value

SETTINGS = ("correct", "passing")
"""The keys of a table that are no part."""

LIMITS = ("at_once", "seconds", "retries")
"""The keys of a part that is an ``async def`` function; the first is a judge's too."""

JUDGE_KEYS = ("rubric", "prompt", "passing", "at_once")

PART_KEYS = ("grader", "weight", *JUDGE_KEYS, *LIMITS[1:])
"""The keys of a part."""


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
            BadArgument: for a part that is no grader, an unknown part, or weights of which none is positive.
        """
        self.graders = {name: _open_grader(name, grader) for name, grader in graders.items()}
        check_accepted([*self.graders], weights or {}, "the rubric")
        self.weights = dict.fromkeys(self.graders, 1.0) | dict(weights or {})
        for name, weight in self.weights.items():
            is_number = isinstance(weight, int | float) and abs(weight) <= 1e300  # whose sum is finite
            check_argument(f"the weight of {name}", weight, is_number, "a number of at most 1e300")
        total = sum(weight for weight in self.weights.values() if weight > 0)
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
                scores[name] = _grade_part(grader, answer, reference, question)
            except NoVerdict as error:
                if self.weights[name] or name == self.correct:
                    raise NoVerdict(f"the part {name} of the rubric gave no verdict: {error}") from error
                missing[name] = str(error)
        value = math.fsum(self.weights[name] * score.value for name, score in scores.items()) / self._total
        value = min(max(value, 0.0), 1.0)
        lead = next(iter(scores.values())) if self.correct is None else scores[self.correct]
        info: dict[str, Any] = {
            "rewards": {name: float(score.value) for name, score in scores.items()},
            "parts": {name: dict(score.info) for name, score in scores.items() if score.info},
            "no_verdict": missing,
        }
        return Score(
            value,
            value >= self.passing if self.correct is None else lead.correct,
            lead.parsed,
            "; ".join(_describe(name, score) for name, score in scores.items()),
            {key: each for key, each in info.items() if each},
        )

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


def _open_grader(name: str, grader: Any) -> Grader:
    if isinstance(grader, str):
        check_argument(f"the part {name}", grader, grader in MADE, f"{', '.join(MADE)}, or a grader")
        return cast(Grader, class_of(grader)())
    return cast(Grader, grader if callable(grader) and hasattr(grader, "name") else FunctionGrader(grader))


def _grade_part(grader: Grader, answer: str, reference: Any, question: str | None) -> Score:
    if isinstance(grader, DataGrader):
        return type(grader).grade_row(grader, answer, reference, question or "")
    return check_score(grade_with(grader, answer, reference, question))


def _describe(name: str, score: Score) -> str:
    return f"{name} {score.value:.3g}" + (f" ({score.why})" if score.why else "")


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table of a TOML file that this user named, with the Python files of its functions fixed.

    Raises:
        BadArgument: for a file that is no TOML, or names a Python file that is not there.
    """
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise BadArgument(f"the rubric's file {str(path)!r} cannot be read: {reason(error)}.") from error
    return fix_table(table, Path(path).parent)


def fix_table(table: Mapping[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table of a rubric, in which a function's file has its digest in place of its path.

    Raises:
        BadArgument: see `gem.naming.fix_name`.
    """
    fixed: dict[str, Any] = {}
    for name, part in table.items():
        named = isinstance(part, Mapping) and isinstance(part.get("grader"), str)
        fixed[name] = {**part, "grader": fix_name(part["grader"], "grader", folder)} if named else part
    return fixed


def read_rubric(table: Mapping[str, Any]) -> tuple[str, Rubric]:
    """Return the rubric of a table, and the kind of grader that says how rows are read and answers look.

    Each table in it is a part, with the keys of `PART_KEYS`; beside them stand `SETTINGS`. The kind is that
    of the first part of `gem.graders.MADE`. Only a table that this user gave, or that the rule of trust
    accepted, may come here: the module of a function is executed.

    Raises:
        BadArgument: for another form.
    """
    graders: dict[str, Grader] = {}
    weights, kinds = {}, []
    parts = {name: part for name, part in table.items() if name not in SETTINGS or isinstance(part, Mapping)}
    for name, part in parts.items():
        if not isinstance(part, Mapping) or not isinstance(part.get("grader"), str):
            raise BadArgument(
                f"{name} of the rubric is {part!r:.80}; accepted: a table with a grader, as "
                f'{name} = {{grader = "math", weight = 0.5}}, and the settings {" and ".join(SETTINGS)}.'
            )
        check_accepted(PART_KEYS, part, f"the part {name}")
        try:
            kind, grader = named_grader(part["grader"])
        except RecursionError:
            raise BadArgument(f"the part {name} names a rubric that names itself.") from None
        is_judge, is_function = isinstance(grader, JudgeByName), isinstance(grader, FunctionGrader)
        given = {key: part[key] for key in PART_KEYS[2:] if key in part}
        accepted = JUDGE_KEYS if is_judge else LIMITS if is_function else ()
        if extra := [key for key in given if key not in accepted]:
            takes = "a judge" if extra[0] in JUDGE_KEYS[:-1] else "an async def function"
            also = " or a judge" if extra[0] == "at_once" else ""
            raise BadArgument(f"the part {name} has {', '.join(extra)}, which only {takes}{also} takes.")
        if isinstance(grader, JudgeByName):
            grader = JudgeByName(grader.model, **given)
        elif isinstance(grader, FunctionGrader) and given:
            grader = FunctionGrader(grader.function, **given)
        graders[name] = _open_grader(name, kind if grader is None else grader)
        weights[name] = part.get("weight", 1.0)
        kinds.append(kind)
    settings = {key: table[key] for key in SETTINGS if key in table and key not in parts}
    kind = next((each for each in kinds if each in MADE), "judge" if "judge" in kinds else "function")
    return kind, Rubric(graders, weights, **settings)
