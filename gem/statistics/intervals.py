"""Confidence intervals of means and rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from gem.errors import BadArgument, check_argument, check_least
from gem.statistics import student_t

ROUNDING = 1e-9
"""Values that differ by a smaller share of the largest one are equal: they differ by rounding alone."""


class Interval(NamedTuple):
    """A mean and its interval, of `n` values in `clusters` independent clusters.

    `exact`: the values are a whole population, so the mean is not an estimate and both bounds equal it. The
    bounds of a sample can also be equal; that does not make it exact.
    """

    mean: float
    low: float
    high: float
    n: int
    clusters: int
    exact: bool = False

    def write_bounds(self, form: Callable[[float], str]) -> str:
        """Return the bounds as text, by what `form` writes of one; `none` for one that is infinite.

        One or two tasks, or a resample of tasks that hardly differ, leave a bound open.
        """
        low, high = (form(bound) if math.isfinite(bound) else "none" for bound in (self.low, self.high))
        return "no bounds" if low == high == "none" else f"{low} to {high}"


class Rate(Interval):
    """The Interval of a rate of success, so that combine() takes means over rates for rates."""

    __slots__ = ()


def mean_interval(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, level: float = 0.95
) -> Interval:
    """Return the mean and its cluster-robust Student-t interval.

    Samples of one task are correlated, so tasks are the independent units. With g clusters and deviations e
    from the mean, ``se^2 = g / (g - 1) * sum over clusters of (sum of e)^2 / n^2``, with g - 1 degrees of
    freedom. Sources: Miller, Adding Error Bars to Evals, arXiv 2411.00640 (clustered standard errors);
    Cameron and Miller, J. Human Resources 50 (2015) (the correction for few clusters). If each value is its
    own cluster, this is the classical interval. For a single cluster the interval is unbounded.

    This is for counts and scores. For a rate near 0 or 1 its coverage is far too low, and where all clusters
    are equal but for rounding it is a single point: use rate_interval(), or return_interval() for returns.

    Args:
        values: one number per sample.
        clusters: the cluster of each sample (its task, its secret), parallel to `values`; None: each its own.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths or an invalid level.
    """
    check_level(level)
    mean = _mean(values)
    sums = sum_deviations(values, mean, clusters)
    return bound_mean(mean, math.fsum(off * off for off in sums), len(values), len(sums), level)


def bound_mean(mean: float, squares: float, n: int, g: int, level: float = 0.95) -> Interval:
    """Return the interval of mean_interval() for a mean of n values in g clusters.

    `squares`: the sum of the squares of the clusters' summed deviations from the mean; infinite if it
    overflows.
    """
    if g == 1:
        return Interval(mean, -math.inf, math.inf, n, g)
    half = student_t.quantile((1 + level) / 2, g - 1) * math.sqrt(g / (g - 1) * squares) / n
    return Interval(mean, mean - half, mean + half, n, g)


def are_rates(values: Sequence[float], successes: Sequence[bool | None] = ()) -> bool:
    """Return whether values are those of a rate: 0 and 1 both occur and no other, or each is the success.

    If all returns are 0, or all are 1, they alone do not say what others may be.

    Args:
        values: one number per sample.
        successes: whether each sample succeeded, parallel to `values`; None where that is not known.
    """
    return {*values} == {0, 1} or (len(values) > 0 and [*values] == [*successes])


def return_interval(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
    successes: Sequence[bool | None] = (),
) -> Interval:
    """Return the mean of values whose range is not known, with an interval that is no single point.

    If they are rates, as the returns of most tasks (see are_rates()), it is that of rate_interval(), else
    that of mean_interval(). If all clusters are equal but for rounding, the sample says nothing about other
    values: there are no bounds.

    Args:
        values: one number per sample.
        clusters: the cluster of each sample (its task, its secret), parallel to `values`; None: each its own.
        level: the coverage, in (0, 1).
        successes: whether each sample succeeded, parallel to `values`, where that is known.

    Raises:
        BadArgument: without values, for values that are not finite, unequal lengths or an invalid level.
    """
    if are_rates(values, successes):
        return rate_interval(values, clusters, level)
    interval = mean_interval(values, clusters, level)
    return interval._replace(low=-math.inf, high=math.inf) if interval.low == interval.high else interval


def rate_interval(
    values: Sequence[float], clusters: Sequence[Hashable] | None = None, level: float = 0.95
) -> Rate:
    """Return the rate of success, with an interval that is also valid near 0 and 1.

    If each value is its own cluster, it is the Wilson interval; else that of clustered_rate().

    Args:
        values: 1 for a success, 0 for a failure; one per sample.
        clusters: the cluster of each sample (its task, its secret), parallel to `values`; None: each its own.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without values, for values other than 0 and 1, unequal lengths or an invalid level.
    """
    for value in values:
        if value not in (0, 1):
            raise BadArgument(f"a value is {value}; a rate takes 0 and 1, mean_interval() takes any number.")
    _mean(values)
    members = members_of(values, clusters)
    return clustered_rate([int(sum(own)) for own in members], [len(own) for own in members], level)


def clustered_rate(successes: Sequence[int], sizes: Sequence[int], level: float = 0.95) -> Rate:
    """Return the rate of success over clusters of trials, with a Wilson interval corrected for clusters.

    The trials of a cluster are correlated, so n of them are worth ``n / deff`` independent trials. The design
    effect deff is the rate's cluster-robust variance divided by that of independent trials. This is Wilson's
    interval for that number of trials, with a quantile of Student's t. Source: Dean and Pagano, J. Survey
    Statistics and Methodology 3 (2015), after Korn and Graubard, Survey Methodology 24 (1998).

    The estimate of deff is poor if few clusters have the rarer outcome, as only these show the correlation.
    With g clusters of m_i trials, k of them with the rarer outcome, and e_i the difference of a cluster's
    successes from the number expected at the rate:

    - deff is between 1 and its largest value, ``sum m_i^2 / n`` (each cluster has a single outcome), and is
      moved towards the latter by a share of ``1 / (k + 1)^2``: the whole way if all or none succeed;
    - t has the degrees of freedom of a chi-squared with the same relative variance as ``sum e_i^2``:
      ``2 g / (kurtosis of e - 1)``, at least 2 and at most g - 1.

    If no cluster has more than one trial, this is wilson(). For a single cluster the interval is [0, 1].

    ``python -m bench.intervals`` prints its coverage beside that of mean_interval(). For rates of 0.02, 0.05
    and 0.5, 5 to 200 clusters of 4 to 64 trials, and intra-cluster correlations of 0, 0.2 and 0.6, a 95%
    interval covers at least 94%. It is wide for few clusters of many similar trials. If sizes differ very
    much (1 to 40 trials), its coverage may be lower.

    Raises:
        BadArgument: without trials, for more successes than trials, unequal lengths or an invalid level.
    """
    check_level(level)
    if len(successes) != len(sizes) or not sizes:
        raise BadArgument(f"got {len(successes)} counts and {len(sizes)} sizes; pass one each per cluster.")
    for won, size in zip(successes, sizes, strict=True):
        if not 0 <= won <= size or size == 0:
            raise BadArgument(f"a cluster has {won} successes of {size}; accepted: 0 to n of at least 1.")
    n, g, total = sum(sizes), len(sizes), sum(successes)
    if n == g:
        return wilson(total, n, level)
    rate = total / n
    rare = min(
        sum(won > 0 for won in successes),
        sum(won < size for won, size in zip(successes, sizes, strict=True)),
    )
    deviations = [won - size * rate for won, size in zip(successes, sizes, strict=True)]
    low, high = spread(rate, deviations, n, sum(size * size for size in sizes) / n, rare, level)
    return Rate(rate, low, high, n, g)


def spread(
    rate: float, deviations: Sequence[float], n: float, worst: float, rare: int, level: float
) -> tuple[float, float]:
    """Return the bounds of a rate over clusters; see clustered_rate() for the method.

    Args:
        rate: the estimate; it is 0 or 1 only if all clusters agree.
        deviations: for each cluster, the difference of its successes from the number expected at the rate.
        n: the number of independent trials that the trials would be worth without correlation.
        worst: the largest design effect, where each cluster has a single outcome.
        rare: the number of clusters with the rarer outcome.
        level: the coverage, in (0, 1).
    """
    if len(deviations) == 1:
        return 0.0, 1.0
    deff, df = design(deviations, n, worst, rare, rate * (1 - rate))
    return wilson_bounds(rate, n / deff, student_t.quantile((1 + level) / 2, df))


def design(
    deviations: Sequence[float], n: float, worst: float, rare: int, variance: float
) -> tuple[float, float]:
    """Return the design effect of two or more clusters, and the degrees of freedom; see clustered_rate().

    `variance` is that of one trial, 0 if all trials have the same outcome; for the others see spread().
    """
    g = len(deviations)
    deff, df = worst, float(g - 1)
    if variance > 0:
        squares = math.fsum(e**2 for e in deviations)
        deff = max(1.0, g / (g - 1) * squares / n / variance)
        deff = min(deff + max(0.0, worst - deff) / (rare + 1) ** 2, worst * g / (g - 1))
        if squares:
            kurtosis = g * math.fsum(e**4 for e in deviations) / squares**2
            df = min(df, max(2.0, 2 * g / (kurtosis - 1) if kurtosis > 1 else math.inf))
    return deff, df


def wilson(successes: int, n: int, level: float = 0.95) -> Rate:
    """Return the rate of success and its Wilson score interval, for independent trials.

    Unlike an interval around the mean, it stays in [0, 1] and is not a single point if all or none succeed.
    Source: Wilson, J. American Statistical Association 22 (1927). Its coverage varies around the level: at
    95% the worst of rates from 0.02 to 0.98 is 83.3% for n = 5 (at 0.036), 89.5% for 10, 92.2% for 50 and
    93.3% for 200, and the mean over these rates 95% (``python -m bench.intervals singles``).

    Raises:
        BadArgument: without trials, for more successes than trials, or an invalid level.
    """
    check_level(level)
    if not 0 <= successes <= n or n == 0:
        raise BadArgument(f"wilson got {successes} successes of {n}; accepted: 0 to n of at least 1.")
    rate = successes / n
    low, high = wilson_bounds(rate, n, normal_quantile(level))
    return Rate(rate, low, high, n, n)


def wilson_bounds(rate: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the two rates from which `rate` of `n` trials is exactly `quantile` standard deviations away."""
    z2 = quantile**2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (rate * (1 - rate) + z2 / (4 * n)) / n) / (1 + z2 / n)
    # At 0 and 1 the bound is the rate itself; rounding may miss it by an ulp.
    return 0.0 if rate == 0 else centre - half, 1.0 if rate == 1 else centre + half


def exact(values: Sequence[float]) -> Interval:
    """Return the mean over a whole population, with an interval that is just the mean; a Rate of 0 and 1.

    Raises:
        BadArgument: without values, or for values that are not finite.
    """
    mean = _mean(values)
    kind = Rate if {*values} <= {0, 1} else Interval
    return kind(mean, mean, mean, len(values), len(values), exact=True)


def members_of(values: Sequence[float], clusters: Sequence[Hashable] | None) -> list[list[float]]:
    """Return the values of each cluster."""
    if clusters is None:
        return [[value] for value in values]
    if len(clusters) != len(values):
        raise BadArgument(f"got {len(values)} values and {len(clusters)} clusters; pass one each.")
    members: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    return list(members.values())


def sum_deviations(values: Sequence[float], mean: float, clusters: Sequence[Hashable] | None) -> list[float]:
    """Return the sum of each cluster's deviations from the mean; all are 0 if they are but rounding."""
    sums = [math.fsum(value - mean for value in own) for own in members_of(values, clusters)]
    least = ROUNDING * max(map(abs, values))
    return sums if any(abs(off) > least for off in sums) else [0.0] * len(sums)


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise BadArgument("no values; a mean needs at least one.")
    for value in values:
        if not math.isfinite(value):
            raise BadArgument(
                f"a value is {value}; leave out episodes without a verdict and report their number."
            )
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        raise BadArgument("the sum of the values overflows; accepted: values with a finite sum.") from None


def normal_quantile(level: float) -> float:
    """Return the number of standard deviations within which a normal estimate lies, at `level`."""
    return NormalDist().inv_cdf((1 + level) / 2)


def check_level(level: float) -> None:
    """Check the level of an interval.

    Raises:
        BadArgument: for a level that is not between 0 and 1.
    """
    check_argument("level", level, 0 < level < 1, "between 0 and 1, such as 0.95")


def check_resamples(resamples: int, level: float) -> None:
    """Check that a bootstrap has as many resamples as the bounds at `level` need.

    Raises:
        BadArgument: for fewer.
    """
    check_least("resamples", resamples, math.ceil(2 / (1 - level)))


def surely_below(one: Interval, other: Interval) -> bool:
    """Return whether the mean of `one` is below that of an independent sample `other`, beyond noise.

    It is where the lower bound of the difference is above 0. The bound follows from the two intervals: the
    distances of the two facing bounds from their means, squared and added. Source: Newcombe, Statistics in
    Medicine 17 (1998), method 10. Where equal values leave one of them without bounds, it gets those that
    its number of clusters gives with the spread of the other, as both are one sample if nothing differs.
    """
    gap = other.mean - one.mean
    above, below = one.high - one.mean, other.mean - other.low
    share = math.sqrt(one.clusters / other.clusters)
    if math.isinf(above):
        above = (other.high - other.mean) / share
    elif math.isinf(below):
        below = (one.mean - one.low) * share
    return gap > 0 and gap**2 > below**2 + above**2
