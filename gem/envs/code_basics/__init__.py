"""Basics: small programming tasks of our own, each with a reference solution and hidden tests.

They need no download: statements and solutions are the functions in `easy`, `medium` and `hard`, and the
tests are drawn from them when they are first asked for.
"""

from __future__ import annotations

import functools
from typing import Any

from gem.envs.code_basics import easy, hard, medium  # noqa: F401  they enter their problems
from gem.envs.code_basics.problem import PROBLEMS, Level, Problem

__all__ = ["PROBLEMS", "Level", "Problem", "rows"]


@functools.cache
def rows(level: Level | None = None) -> tuple[dict[str, Any], ...]:
    """Return the problems of a level, or all, as rows of a data set: id, problem, tests, solution."""
    return tuple(
        {
            "id": each.name,
            "problem": each.statement,
            "tests": each.tests(),
            "solution": each.source,
            "level": each.level,
        }
        for each in PROBLEMS.values()
        if level in (None, each.level)
    )
