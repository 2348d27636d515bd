"""Normalise scores to 0 for random play and 1 for a solver, to compare environments of different scales."""

from __future__ import annotations

import math

from gem.statistics.combining import sum_of
from gem.statistics.intervals import Interval

FARTHEST = 1e6
"""A bound farther away than this counts as infinite."""


def normalised(score: Interval, random: Interval, solver: Interval) -> Interval | None:
    """Return ``(score - random) / (solver - random)``, 0 for random play, 1 for the solver, with interval.

    The interval has the ratios r for which ``score - r * solver - (1 - r) * random`` may be 0: Fieller's
    method (J. Royal Statistical Society B 16, 1954). "May be 0" means that 0 is in the interval of that sum,
    by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27 (2008)); this
    keeps asymmetric bounds, such as those of rates near 0 and 1. The three scores are assumed independent; if
    they were played on the same tasks, the interval is wider than necessary. A reference that is known, not
    estimated, has the interval of `exact()`.

    None: undefined, because random play and the solver are not shown to differ, so the divisor may be 0.

    Args:
        score: the score of the agent.
        random: the score of random play.
        solver: the score of a solver; all three have intervals of the same level.
    """
    _, low, high = sum_of((1.0, solver), (-1.0, random))
    if not (low > 0 or high < 0):
        return None
    ratio = (score.mean - random.mean) / (solver.mean - random.mean)

    def may_be(r: float) -> bool:
        _, low, high = sum_of((1.0, score), (-r, solver), (r - 1, random))
        return low <= 0 <= high

    def bound(direction: int) -> float:
        near, step = 0.0, 1e-3
        while may_be(ratio + direction * (near + step)):
            near, step = near + step, 2 * step
            if near > FARTHEST:
                return direction * math.inf
        far = near + step
        for _ in range(80):
            middle = (near + far) / 2
            near, far = (middle, far) if may_be(ratio + direction * middle) else (near, middle)
        return ratio + direction * near

    every = (score, random, solver)
    return Interval(
        ratio, bound(-1), bound(1), score.n, score.clusters, exact=all(each.exact for each in every)
    )
