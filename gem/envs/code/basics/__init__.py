"""Basics: gem's own small programming problems, each with a reference solution and hidden tests.

They need no download. The functions in `easy`, `medium` and `hard` are the statements and the solutions, and
the tests are drawn from them when first needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from gem.envs.code.basics import easy, hard, medium  # noqa: F401  importing them registers their problems
from gem.envs.code.basics.problem import PROBLEMS, CodeProblem, Level
from gem.errors import BadArgument
from gem.tasks.base import Task
from gem.tasks.order import Ordered

__all__ = ["PROBLEMS", "Basics", "CodeProblem", "Level"]


@dataclass(frozen=True)
class Basics(Ordered):
    """The problems of one level, or all, as a TaskSet; a task's info holds solution and level."""

    level: Level | None = None
    name: str = field(default="code:Basics", init=False)

    def __post_init__(self) -> None:
        """Check the level.

        Raises:
            BadArgument: for an unknown level, with the known ones.
        """
        if self.level is not None and self.level not in get_args(Level):
            raise BadArgument(
                f"level is {self.level!r}; accepted: {', '.join(get_args(Level))}, or None for all."
            )

    @property
    def problems(self) -> list[CodeProblem]:
        """The problems of the level."""
        return [each for each in PROBLEMS.values() if self.level in (None, each.level)]

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self.problems)

    def __getitem__(self, index: int) -> Task:
        """Return one problem as a task."""
        each = self.problems[index]
        return Task(each.name, each.statement, each.tests, {"solution": each.source, "level": each.level})
