"""Compare two agents on the same tasks: McNemar's test, and intervals of the mean difference."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from gem.errors import BadArgument, check_argument
from gem.statistics import student_t
from gem.statistics.intervals import (
    ROUNDING,
    Interval,
    check_level,
    check_resamples,
    design,
    mean_interval,
    members_of,
    normal_quantile,
    sum_deviations,
)

RESAMPLES = 2000
"""Number of bootstrap resamples; bounds at 95% then vary by about 2% of the width."""

AT_ONCE = 1 << 22
"""Number of values that a bootstrap draws at a time."""


def mcnemar(lost: int, won: int) -> float:
    """Return the exact two-sided p-value of `won` pairs against `lost` ones.

    A pair is won if only the second agent succeeds, and lost if only the first one does; pairs with equal
    outcomes do not count. If both agents are equally good, each counted pair is a fair coin. Source: McNemar,
    Psychometrika 12 (1947), in the exact form: the binomial test. For several samples per task see
    sign_flips().

    Raises:
        BadArgument: for counts below 0.
    """
    if lost < 0 or won < 0:
        raise BadArgument(f"got {lost} and {won} pairs; accepted: 0 or more.")
    n = lost + won
    logs, log = [], -n * math.log(2)
    for k in range(min(lost, won) + 1):
        logs.append(log)
        log += math.log((n - k) / (k + 1)) if k < n else 0.0
    top = logs[-1]
    return min(1.0, 2 * math.exp(top) * math.fsum(math.exp(each - top) for each in logs))


def sign_flips(differences: Sequence[int]) -> float:
    """Return the exact two-sided p-value of differences by task: McNemar's test for tasks of several samples.

    A difference is the number of samples of a task that the second agent solves, minus that of the first. If
    both are equally good, either sign is equally likely, independently for each task. The p-value is the
    share of all 2^tasks choices of signs whose sum is at least as far from 0. With one sample per task it is
    mcnemar(). Correlated samples of a task are allowed. Source: Fisher, The Design of Experiments (1935),
    section 21.

    The shares are the coefficients of ``prod (x^d + x^-d) / 2``, found by a Fourier transform; p-values
    below about 1e-12 are not accurate.
    """
    total, span = abs(sum(differences)), sum(map(abs, differences))
    sizes, counts = np.unique(np.abs(np.asarray(differences, dtype=np.int64)), return_counts=True)
    if set(sizes.tolist()) <= {0, 1}:
        return mcnemar((span - total) // 2, (span + total) // 2)
    # A grid with more points than possible sums, which are between -span and span.
    points = 1 << (2 * span + 1).bit_length()
    angles = 2 * np.pi / points * np.arange(points // 2 + 1)
    transformed = np.ones(len(angles))
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        transformed *= np.cos(size * angles) ** count
    share = np.fft.irfft(transformed, points)  # at s, and of negative sums at points + s
    within = share[0] + 2 * share[1:total].sum() if total else 0.0
    return float(min(1.0, max(1 - within, 1e-12)))


def sign_flip_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the exact two-sided p-value of numbers in pairs, such as the scores of two methods by seed.

    The share of all 2^n choices of signs of ``second - first`` whose sum is at least as far from 0; see
    sign_flips(), which counts samples. With n pairs it is at least 2^(1 - n).

    Raises:
        BadArgument: for unequal lengths, or more than 20 pairs.
    """
    differences = np.array(subtract_pairs(first, second))
    check_argument("the number of pairs", len(differences), len(differences) <= 20, "at most 20")
    sums = np.zeros(1)
    for each in differences:
        sums = np.concatenate((sums - each, sums + each))
    least = abs(differences.sum()) - 1e-9 * np.abs(differences).sum()  # equal sums differ by rounding
    return float(np.mean(np.abs(sums) >= least))


def score_difference(
    lost: Sequence[int], won: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval:
    """Return the difference of two rates over paired samples, with an interval corrected for tasks.

    It is Tango's score interval, which is not a single point if no pair or every pair differs. Source: Tango,
    Statistics in Medicine 17 (1998), equation 13. Samples of a task are correlated, so n pairs count as
    ``n / deff``. The design effect and t are those of clustered_rate(), with differences in place of
    successes: the rarer outcome is a pair that differs. With one pair per task it is Tango's interval itself.
    For a single task the interval is [-1, 1].

    A 95% interval covers at least 95%; for few tasks with many samples it is wide. ``python -m
    bench.intervals differences`` prints its coverage and width.

    Args:
        lost: for each task, the number of pairs that only the first agent solves.
        won: for each task, the number of pairs that only the second agent solves.
        sizes: for each task, the number of all pairs.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without pairs, for impossible counts, unequal lengths or an invalid level.
    """
    check_level(level)
    if not len(lost) == len(won) == len(sizes) or not sizes:
        raise BadArgument(f"got {len(lost)}, {len(won)} and {len(sizes)} counts; pass one of each per task.")
    for a, b, size in zip(lost, won, sizes, strict=True):
        if min(a, b) < 0 or a + b > size or not size:
            raise BadArgument(
                f"a task has {a} pairs lost and {b} won of {size}; accepted: 0 to n of 1 or more."
            )
    n, g, down, up = sum(sizes), len(sizes), sum(lost), sum(won)
    mean = (up - down) / n
    if g == 1:
        return Interval(mean, -1.0, 1.0, n, g)
    deff, quantile = 1.0, normal_quantile(level)
    if n > g:
        deviations = [b - a - size * mean for a, b, size in zip(lost, won, sizes, strict=True)]
        worst = sum(size * size for size in sizes) / n
        rare = sum(a + b > 0 for a, b in zip(lost, won, strict=True))
        deff, df = design(deviations, n, worst, rare, (up + down) / n - mean**2)
        quantile = student_t.quantile((1 + level) / 2, df)
    low, high = _tango(down / deff, up / deff, n / deff, quantile)
    return Interval(mean, min(low, mean), max(high, mean), n, g)


def _tango(lost: float, won: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the differences at which the score statistic is `quantile` and its negative."""

    def score(difference: float) -> float:
        # The maximum-likelihood rate of lost pairs, given this difference, is the root of a quadratic.
        b = (2 * n - won + lost) * difference - lost - won
        c = -lost * difference * (1 - difference)
        rate = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * rate + difference * (1 - difference))
        off = won - lost - n * difference
        return off / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, off) if off else 0.0

    def where(target: float, low: float, high: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if score(middle) > target else (low, middle)
        return (low + high) / 2

    mean = (won - lost) / n
    return where(quantile, -1.0, mean), where(-quantile, mean, 1.0)


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> Interval:
    """Return the mean of ``second - first`` over pairs, with an interval by Student's t, tasks as clusters.

    The variance that both agents share on a task cancels in the difference. Source: Miller, Adding Error Bars
    to Evals, arXiv 2411.00640, section 4.2. See mean_interval(): where all tasks differ alike, but for
    rounding, it is a single point. For successes, score_difference() has better coverage.

    Args:
        first: one number per sample.
        second: those of the other agent, parallel to `first`.
        clusters: the task of each pair, parallel to both; None: each its own.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths or an invalid level.
    """
    return mean_interval(subtract_pairs(first, second), clusters, level)


def paired_p(interval: Interval, level: float = 0.95) -> float:
    """Return the two-sided p-value of no difference, by Student's t, for a result of paired_difference().

    For a single task it is 1. If all tasks differ alike (a single point), there is no variance to compare
    with: it is the exact p-value of that many equal signs, ``2^(1 - tasks)`` (see sign_flips()).
    """
    if interval.clusters < 2:
        return 1.0
    df = interval.clusters - 1
    half = (interval.high - interval.low) / 2
    if not half:
        return 1.0 if interval.mean == 0 else 2.0 ** (1 - interval.clusters)
    t = abs(interval.mean) / half * student_t.quantile((1 + level) / 2, df)
    return min(1.0, 2 * student_t.upper_tail(t, df))


def paired_bootstrap(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the mean of ``second - first`` over pairs, with a studentised bootstrap interval over tasks.

    Tasks are resampled with all their pairs. Each resample gives ``t = (mean* - mean) / se*``, with its own
    cluster-robust standard error; the quantiles of t replace those of Student. So the interval follows the
    skew of the differences. Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section
    12.5.

    If few tasks differ, there is little to resample: a bound is infinite if too many resamples have no
    spread, and both are infinite if there is no spread at all. For successes near 0 and 1 its coverage is
    below `level`; that of score_difference() is not.

    Args:
        first: one number per sample.
        second: those of the other agent, parallel to `first`.
        clusters: the task of each pair, parallel to both; None: each its own.
        level: the coverage, in (0, 1).
        resamples: the number of bootstrap resamples.
        seed: the same seed gives the same bounds.

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths, an invalid level, or
            fewer resamples than the bounds need.
    """
    differences = subtract_pairs(first, second)
    classical = mean_interval(differences, clusters, level)
    check_resamples(resamples, level)
    mean, g, n = classical.mean, classical.clusters, classical.n
    # One task, squares that overflow, or no spread.
    if classical.low == classical.high or not math.isfinite(classical.high):
        return classical._replace(low=-math.inf, high=math.inf)
    # For each task: the sum of its pairs' deviations from the mean, and the number of its pairs.
    off = np.array(sum_deviations(differences, mean, clusters))
    sizes = np.array([float(len(own)) for own in members_of(differences, clusters)])
    error = math.sqrt(g / (g - 1) * float(off @ off)) / n
    rng = np.random.default_rng(seed)
    ts = []
    for begin in range(0, resamples, step := max(1, AT_ONCE // g)):
        drawn = rng.integers(0, g, (min(step, resamples - begin), g))
        d, m = off[drawn], sizes[drawn]
        shift = d.sum(1) / m.sum(1)
        spread = np.sqrt(g / (g - 1) * ((d - m * shift[:, None]) ** 2).sum(1)) / m.sum(1)
        known = spread > 1e-9 * error
        t = np.full(len(drawn), np.inf) * np.where(shift == 0, 1.0, np.sign(shift))
        ts.append(np.divide(shift, spread, out=t, where=known))
    low, high = np.quantile(np.concatenate(ts), [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return classical._replace(low=mean - float(high) * error, high=mean - float(low) * error)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests, which keeps the family-wise error rate.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected, least = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = least
    return corrected


def subtract_pairs(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return ``second - first``; 0 where they differ by rounding alone, which would seem certain.

    Raises:
        BadArgument: for unequal lengths.
    """
    if len(first) != len(second):
        raise BadArgument(f"got {len(first)} and {len(second)} values; accepted: equal numbers.")
    return [
        0.0 if math.isclose(a, b, rel_tol=ROUNDING) else b - a for a, b in zip(first, second, strict=True)
    ]
