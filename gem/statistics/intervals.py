"""Confidence intervals of means and rates."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from gem.errors import BadArgument
from gem.statistics import student_t


class Interval(NamedTuple):
    """A mean and the interval around it, of `n` values in `clusters` independent clusters."""

    mean: float
    low: float
    high: float
    n: int
    clusters: int


def mean_interval(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, level: float = 0.95
) -> Interval:
    """Return the mean and its cluster-robust Student-t interval.

    Samples of one task resemble each other, so tasks are drawn and not samples: with g clusters and
    deviations e from the mean, ``se^2 = g / (g - 1) * sum over clusters of (sum of e)^2 / n^2``, with
    g - 1 degrees of freedom. Sources: Miller, Adding Error Bars to Evals, arXiv 2411.00640 (clustered
    standard errors); Cameron and Miller, J. Human Resources 50 (2015) (the correction for few clusters).
    Each value a cluster of its own gives the classical interval. One cluster alone says nothing about
    others: its interval is unbounded.

    Args:
        values: one number per sample.
        clusters: what each sample belongs to (its task, its secret), parallel to `values`; None: itself.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths or another level.
    """
    _check_level(level)
    mean = _mean(values)
    if clusters is None:
        clusters = range(len(values))
    if len(clusters) != len(values):
        raise BadArgument(f"got {len(values)} values and {len(clusters)} clusters; one cluster per value.")
    members: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value - mean)
    n, g = len(values), len(members)
    if g == 1:
        return Interval(mean, -math.inf, math.inf, n, g)
    squares = math.fsum(math.fsum(deviations) ** 2 for deviations in members.values())
    half = student_t.quantile((1 + level) / 2, g - 1) * math.sqrt(g / (g - 1) * squares) / n
    return Interval(mean, mean - half, mean + half, n, g)


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return the rate of success and its Wilson score interval; the trials are independent.

    Unlike an interval around the mean it stays in [0, 1] and has a width where all or none succeed.
    Source: Wilson, J. American Statistical Association 22 (1927).

    Raises:
        BadArgument: without trials, for more successes than trials, or another level.
    """
    _check_level(level)
    if not 0 <= successes <= n or n == 0:
        raise BadArgument(f"wilson got {successes} successes of {n}; accepted: 0 to n of at least 1.")
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    rate = successes / n
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (rate * (1 - rate) + z2 / (4 * n)) / n) / (1 + z2 / n)
    # At the ends the bound is the rate itself; rounding may miss it by an ulp.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(rate, low, high, n, n)


def exact(values: Sequence[float]) -> Interval:
    """Return the mean over a whole population: every case was counted, so the interval is the mean.

    Raises:
        BadArgument: without values, or for values that are not finite.
    """
    mean = _mean(values)
    return Interval(mean, mean, mean, len(values), len(values))


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise BadArgument("no values; a mean needs at least one.")
    for value in values:
        if not math.isfinite(value):
            raise BadArgument(
                f"a value is {value}; leave out episodes without a verdict and report how many they are."
            )
    return math.fsum(values) / len(values)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadArgument(f"level is {level}; accepted: between 0 and 1, such as 0.95.")
