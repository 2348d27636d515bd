"""The interquartile mean of scores over several tasks, and its stratified bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gem.errors import BadArgument, check_argument
from gem.statistics.intervals import Interval, check_level, check_resamples

RESAMPLES = 10_000
"""Number of bootstrap resamples."""


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half: the lowest and the highest quarter are left out, rounded down.

    Unlike the mean, it is not moved by a few outliers, and it uses more of the runs than the median. Source:
    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, arXiv 2108.13264,
    section 4.3; the rounding is that of their library (``scipy.stats.trim_mean`` of 0.25).

    Raises:
        BadArgument: without values, or for values that are not finite.
    """
    _check([values])
    return float(_interquartile(np.array([values], dtype=float))[0])


def stratified_interval(
    strata: Sequence[Sequence[float]], level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the interquartile mean of all runs of all tasks, and a percentile bootstrap interval.

    For each task, its runs are resampled with replacement; the tasks themselves are fixed. Source: Agarwal et
    al., arXiv 2108.13264, section 4.1. With few runs per task the coverage is below `level`: they had 3 to
    10, and recommend more.

    Args:
        strata: for each task, the scores of its runs.
        level: the coverage, in (0, 1).
        resamples: the number of bootstrap resamples.
        seed: the same seed gives the same bounds.

    Raises:
        BadArgument: without scores, for scores that are not finite, an invalid level, or fewer resamples than
            the bounds need.
    """
    check_level(level)
    _check(strata)
    check_resamples(resamples, level)
    rng = np.random.default_rng(seed)
    own = [np.array(scores, dtype=float) for scores in strata]
    drawn = [scores[rng.integers(0, len(scores), (resamples, len(scores)))] for scores in own]
    means = _interquartile(np.concatenate(drawn, axis=1))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    mean = float(_interquartile(np.concatenate(own)[None])[0])
    return Interval(mean, float(low), float(high), sum(map(len, strata)), len(strata))


def _interquartile(scores_BN: np.ndarray) -> np.ndarray:
    """Return the interquartile mean of each of B rows of N scores."""
    cut = scores_BN.shape[1] // 4
    middle: np.ndarray = np.sort(scores_BN, axis=1)[:, cut : scores_BN.shape[1] - cut].mean(axis=1)
    return middle


def _check(strata: Sequence[Sequence[float]]) -> None:
    if not strata or not all(len(scores) for scores in strata):
        raise BadArgument("no scores; an interquartile mean needs at least one score per task.")
    for scores in strata:
        for score in scores:
            check_argument("a score", score, math.isfinite(score), "finite numbers")
