"""Scores between random play and a solver's, so that environments of other scales can be put side by side."""

from __future__ import annotations

import math

from gem.statistics.intervals import Interval

FARTHEST = 1e6
"""A bound that lies farther away than this is none."""


def normalised(score: Interval, random: Interval, solver: Interval) -> Interval | None:
    """Return ``(score - random) / (solver - random)``: 0 for random play, 1 for the solver; and its interval.

    The interval holds the ratios r for which ``score - r * solver - (1 - r) * random`` may be 0: Fieller's
    argument (J. Royal Statistical Society B 16, 1954). May be means that 0 lies in the interval of that sum,
    by the method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27 (2008)), so that
    bounds that lie unevenly, as those of rates near 0 and 1 do, stay so. The three are taken to be
    independent; where they were played on the same tasks the interval is wider than need be. A reference that
    is known and not estimated has the interval of `exact()`.

    None: undefined, since random play and the solver are not shown to differ: 0 may be the difference that is
    divided by.

    Args:
        score: of the agent.
        random: of random play.
        solver: of a solver; all three with intervals of one level.
    """
    if not _apart(random, solver):
        return None
    ratio = (score.mean - random.mean) / (solver.mean - random.mean)

    def may_be(r: float) -> bool:
        low, high = _sum((1.0, score), (-r, solver), (r - 1, random))
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


def _apart(random: Interval, solver: Interval) -> bool:
    low, high = _sum((1.0, solver), (-1.0, random))
    return low > 0 or high < 0


def _sum(*terms: tuple[float, Interval]) -> tuple[float, float]:
    """Return the bounds of a sum of independent estimates, each times a factor."""
    mean = math.fsum(factor * each.mean for factor, each in terms)
    down = math.hypot(*(f * (e.mean - (e.low if f > 0 else e.high)) if f else 0.0 for f, e in terms))
    up = math.hypot(*(f * ((e.high if f > 0 else e.low) - e.mean) if f else 0.0 for f, e in terms))
    return mean - down, mean + up
