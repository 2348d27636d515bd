"""Two agents on the same tasks: McNemar's test, and intervals of the mean difference."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from gem.errors import BadArgument
from gem.statistics import student_t
from gem.statistics.intervals import Interval, check_level, design, mean_interval, normal_quantile

RESAMPLES = 2000
"""How often a bootstrap draws; bounds at 95% then vary by some 2% of the width."""

AT_ONCE = 1 << 22
"""Values that a bootstrap draws at a time."""


def mcnemar(lost: int, won: int) -> float:
    """Return the exact two-sided p-value of `won` pairs against `lost` ones.

    A pair is won where the second agent alone succeeds, and lost where the first alone does; pairs that end
    alike say nothing. Are both agents equally good, each of the others is a fair coin. Source: McNemar,
    Psychometrika 12 (1947), in the exact form: the binomial test. Of several samples of a task see
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

    A difference is how many more samples of a task the second agent solves than the first. Are both equally
    good, it is as likely to be turned round, and the tasks are independent: the p-value is the share of all
    2^tasks choices of signs whose sum is as far from 0. Where each task has one sample it is mcnemar(). That
    samples of a task resemble each other does no harm. Source: Fisher, The Design of Experiments (1935),
    section 21.

    The shares are the coefficients of ``prod (x^d + x^-d) / 2``, found by a Fourier transform; p-values
    below some 1e-12 are that and no more.
    """
    total, span = abs(sum(differences)), sum(map(abs, differences))
    sizes, counts = np.unique(np.abs(np.asarray(differences, dtype=np.int64)), return_counts=True)
    if set(sizes.tolist()) <= {0, 1}:
        return mcnemar((span - total) // 2, (span + total) // 2)
    # A grid of more points than there are sums: they lie from -span to span.
    points = 1 << (2 * span + 1).bit_length()
    angles = 2 * np.pi / points * np.arange(points // 2 + 1)
    transformed = np.ones(len(angles))
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        transformed *= np.cos(size * angles) ** count
    share = np.fft.irfft(transformed, points)  # at s, and of negative sums at points + s
    within = share[0] + 2 * share[1:total].sum() if total else 0.0
    return float(min(1.0, max(1 - within, 1e-12)))


def score_difference(
    lost: Sequence[int], won: Sequence[int], sizes: Sequence[int], level: float = 0.95
) -> Interval:
    """Return the difference of two rates over paired samples, and an interval that allows for tasks.

    Tango's score interval, which has a width where no pair or every pair differs; source: Tango, Statistics
    in Medicine 17 (1998), equation 13. Samples of a task resemble each other, so n pairs count as
    ``n / deff``, as in clustered_rate(), whose rules for the design effect and for t hold here with
    differences in place of successes: the rarer outcome is a pair that differs. With one pair per task it is
    Tango's interval itself. One task alone says nothing about others: its interval is [-1, 1].

    It covers 95% and more; of few tasks with many samples it is wide. ``python -m bench.intervals
    differences`` prints how often, and how wide.

    Args:
        lost: of each task, the pairs that the first agent alone solves.
        won: of each task, the pairs that the second agent alone solves.
        sizes: of each task, all pairs.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without pairs, for counts that cannot be, unequal lengths or another level.
    """
    check_level(level)
    if not len(lost) == len(won) == len(sizes) or not sizes:
        raise BadArgument(f"got {len(lost)}, {len(won)} and {len(sizes)} counts; one of each per task.")
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
        # The likeliest rate of lost pairs, were the difference this one, is the root of a quadratic.
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

    What the agents share by playing the same task drops out of the difference. Source: Miller, Adding Error
    Bars to Evals, arXiv 2411.00640, section 4.2. See mean_interval(); for successes score_difference() covers
    better.

    Args:
        first: one number per sample.
        second: those of the other agent, parallel to `first`.
        clusters: the task of each pair, parallel to both; None: each its own.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths or another level.
    """
    return mean_interval(_differences(first, second), clusters, level)


def paired_p(interval: Interval, level: float = 0.95) -> float:
    """Return the two-sided p-value of no difference, by Student's t, of what paired_difference() returned.

    One task alone says nothing: 1.
    """
    if interval.clusters < 2:
        return 1.0
    df = interval.clusters - 1
    half = (interval.high - interval.low) / 2
    if not half:
        return 1.0 if interval.mean == 0 else 0.0
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

    Tasks are drawn with all their pairs. Of each draw ``t = (mean* - mean) / se*`` is found, with the
    cluster-robust standard error of that draw, and the quantiles of t take the place of Student's. So the
    interval leans where the differences do. Source: Efron and Tibshirani, An Introduction to the Bootstrap
    (1993), section 12.5.

    Where few tasks differ it has little to draw from: a bound is infinite where draws without any spread are
    too many, and of no spread at all nothing is known but the mean. For successes near 0 and 1 it covers
    less than it says; score_difference() does not.

    Args:
        first: one number per sample.
        second: those of the other agent, parallel to `first`.
        clusters: the task of each pair, parallel to both; None: each its own.
        level: the coverage, in (0, 1).
        resamples: how often tasks are drawn.
        seed: the same seed gives the same bounds.

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths, another level, or fewer
            draws than its bounds need.
    """
    classical = mean_interval(_differences(first, second), clusters, level)
    if resamples < 2 / (1 - level):
        raise BadArgument(f"resamples is {resamples}; accepted: {math.ceil(2 / (1 - level))} or more.")
    mean, g, n = classical.mean, classical.clusters, classical.n
    sums: dict[Hashable, list[float]] = {}
    for i, difference in enumerate(_differences(first, second)):
        sums.setdefault(i if clusters is None else clusters[i], []).append(difference)
    # Of each task: what its pairs are off the mean in sum, and how many they are.
    if not math.isfinite(classical.high):  # one task, or squares beyond all numbers
        return classical._replace(low=-math.inf, high=math.inf)
    off = np.array([math.fsum(own) - len(own) * mean for own in sums.values()])
    sizes = np.array([float(len(own)) for own in sums.values()])
    error = math.sqrt(g / (g - 1) * float(off @ off)) / n
    if error <= 1e-12 * max(1.0, abs(mean)):
        return classical._replace(low=-math.inf, high=math.inf)
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
    """Return p-values corrected for their number: together, they err at most as often as one alone.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    corrected, least = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = least
    return corrected


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    if len(first) != len(second):
        raise BadArgument(f"got {len(first)} and {len(second)} values; a pair takes one of each.")
    return [b - a for a, b in zip(first, second, strict=True)]
