"""Statistical power: the noise of a suite of tasks, and the smallest difference that it can show."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from gem.errors import BadArgument, check_argument
from gem.statistics import student_t
from gem.statistics.intervals import ROUNDING, check_level, members_of

POWER = 0.8
"""Default probability with which an existing difference is shown."""

LARGEST = 1e150
"""The square of a larger value overflows."""

MANY = 400
"""From this expected number of differing pairs on, the power of McNemar's test is that of its normal form."""


class Noise(NamedTuple):
    """The variance of a figure: `between` tasks, and `within` a task from sample to sample.

    `within` is None where each task was sampled once, so that the two cannot be separated: then `between`
    is their sum.
    """

    mean: float
    between: float
    within: float | None

    def variance(self, tasks: int, samples: int, alike: float = 0.0) -> float:
        """Return the variance of the mean over `tasks` tasks of `samples` samples each.

        ``((1 - alike) * between + within / samples) / tasks``; source: Miller, Adding Error Bars to Evals,
        arXiv 2411.00640, sections 3 and 4. `alike` is the share of `between` that cancels.

        Raises:
            BadArgument: for no tasks or samples, or if `within` is needed but not known.
        """
        if tasks < 1 or samples < 1:
            raise BadArgument(f"got {tasks} tasks of {samples} samples; accepted: 1 or more of each.")
        if self.within is None:
            if samples > 1 or alike:
                raise BadArgument(
                    "each task was sampled once, so the variances between and within tasks cannot be "
                    "separated; sample some tasks twice or more."
                )
            return self.between / tasks
        return ((1 - alike) * self.between + self.within / samples) / tasks


def noise(values: Sequence[float], tasks: Sequence[Hashable]) -> Noise:
    """Return the variances of values between and within tasks.

    These are the estimates of a one-way analysis of variance with random effects. They are unbiased, except
    that a negative variance between tasks is replaced by 0. Source: Searle, Casella and McCulloch, Variance
    Components (1992), section 3.6 (tasks with unequal numbers of samples).

    Args:
        values: one number per sample.
        tasks: the task of each sample, parallel to `values`.

    Raises:
        BadArgument: for fewer than two tasks, values that are not finite, or unequal lengths.
    """
    if len(values) != len(tasks):
        raise BadArgument(f"got {len(values)} values and {len(tasks)} tasks; pass one task per value.")
    if not all(math.isfinite(value) and abs(value) < LARGEST for value in values):
        raise BadArgument(f"a value is not between -{LARGEST:.0e} and {LARGEST:.0e}; leave it out.")
    members = members_of(values, tasks)
    n, g = len(values), len(members)
    if g < 2:
        raise BadArgument(f"got {g} tasks; variance between tasks needs two or more.")
    mean = math.fsum(values) / n
    if max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return Noise(mean, 0.0, None if n == g else 0.0)
    means = [math.fsum(own) / len(own) for own in members]
    sizes = list(map(len, members))
    squares = math.fsum(m * (own - mean) ** 2 for m, own in zip(sizes, means, strict=True)) / (g - 1)
    if n == g:
        return Noise(mean, squares, None)
    within = math.fsum(
        (value - own) ** 2 for values_, own in zip(members, means, strict=True) for value in values_
    ) / (n - g)
    size = (n - sum(m * m for m in sizes) / n) / (g - 1)
    return Noise(mean, max(0.0, (squares - within) / size), within)


def noise_of_rate(rate: float, within: float) -> Noise:
    """Return the noise of a success `rate`, with the variance `within` a task.

    One sample has the variance ``rate * (1 - rate)`` in total; `within` is the mean of ``p (1 - p)`` over
    tasks of rate p. It is 0 if every task is always won or always lost, and the total if all tasks have the
    same rate.

    Raises:
        BadArgument: for a rate outside [0, 1], or `within` outside the range that the rate allows.
    """
    check_argument("rate", rate, 0 <= rate <= 1, "between 0 and 1")
    whole = rate * (1 - rate)
    if not 0 <= within <= whole + 1e-12:
        raise BadArgument(f"within is {within}; accepted at a rate of {rate}: between 0 and {whole:.4g}.")
    return Noise(rate, max(0.0, whole - within), within)


def smallest_difference(
    variance: float, tasks: int, level: float = 0.95, power: float = POWER, *, paired: bool = True
) -> float:
    """Return the smallest difference that a comparison shows with probability `power`.

    A difference is shown if the interval at `level` is on one side of 0. The result is
    ``(t_(1 - alpha / 2) + t_power) * se``, with Student's t of ``tasks - 1`` degrees of freedom (unpaired
    runs: ``2 (tasks - 1)``), close to the exact solution by the noncentral t. Source: Cohen, Statistical
    Power Analysis, 2nd edition (1988), section 2.2; Miller, arXiv 2411.00640, section 5.

    Args:
        variance: the variance of the estimated difference.
        tasks: the number of tasks of each run.
        level: the level of the interval.
        power: the probability to show the difference.
        paired: both runs play the same tasks.

    Raises:
        BadArgument: for a negative variance, or an invalid level or power.
    """
    check_level(level)
    check_argument("power", power, 0 < power < 1, "between 0 and 1, such as 0.8")
    check_argument("variance", variance, variance >= 0, "0 or more")
    df = tasks - 1 if paired else 2 * (tasks - 1)
    if df < 1:
        return math.inf
    quantiles = student_t.quantile((1 + level) / 2, df) + student_t.quantile(power, df)
    return quantiles * math.sqrt(variance)


def find_smallest(is_shown: Callable[[float], bool], most: float = 1.0) -> float:
    """Return the smallest difference up to `most` that is shown, to 0.0001; infinite if `most` is not.

    `is_shown` must hold for all larger differences too.
    """
    low, high = 0.0, most
    if not is_shown(most):
        return math.inf
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def smallest_rate_difference(
    variance: float | Callable[[float], float],
    tasks: int,
    level: float = 0.95,
    power: float = POWER,
    most: float = 1.0,
) -> float:
    """Return the smallest difference of two rates that McNemar's exact test shows with probability `power`.

    It is for two agents that play the same tasks once each. Of a difference d with variance v of one task's
    difference, a share of ``v + d^2`` of the pairs differs, and at least d. See mcnemar_power().

    Args:
        variance: the variance of one task's difference (-1, 0 or 1); or that at a difference.
        tasks: the number of tasks.
        level: 1 minus the p-value below which a difference is shown.
        power: the probability to show it.
        most: the largest difference that is possible.

    Raises:
        BadArgument: for an invalid level or power.
    """
    check_level(level)
    check_argument("power", power, 0 < power < 1, "between 0 and 1, such as 0.8")

    def is_shown(difference: float) -> bool:
        own = variance(difference) if callable(variance) else variance
        return mcnemar_power(tasks, difference, max(difference, own + difference**2), 1 - level) >= power

    return find_smallest(is_shown, most)


def count_pairs(one: float, mean: float, tasks: int, level: float = 0.95, power: float = POWER) -> int:
    """Return how many independent pairs several samples of each of `tasks` tasks are worth.

    It is the number at which a mean has the variance `mean`, where one pair has the variance `one`; less for
    few tasks, from which the variance is poorly known: by the quantiles of Student's t and the normal ones.
    """
    if tasks < 2 or not one or not mean:
        return tasks
    normal = NormalDist().inv_cdf((1 + level) / 2) + NormalDist().inv_cdf(power)
    few = student_t.quantile((1 + level) / 2, tasks - 1) + student_t.quantile(power, tasks - 1)
    return int(one / mean * (normal / few) ** 2)


def mcnemar_power(tasks: int, difference: float, differing: float, alpha: float) -> float:
    """Return the probability that mcnemar() is below `alpha`, in the direction of the difference.

    The number of pairs that differ is binomial, and of these the number that the better agent wins. Source:
    Miettinen, Biometrics 24 (1968); the sum over both is exact. Where many pairs differ, it is the normal
    form with a correction for continuity: Connor, Biometrics 43 (1987).

    Args:
        tasks: the number of pairs.
        difference: the difference of the rates, from 0 to `differing`.
        differing: the share of pairs that differ, at most 1.
        alpha: the p-value below which a difference is shown.
    """
    differing = min(1.0, differing)
    if differing <= 0 or tasks < 1:
        return 0.0
    if tasks * differing > MANY:
        z = NormalDist().inv_cdf(1 - alpha / 2)
        spread = math.sqrt(max(1e-12, tasks * (differing - difference**2)))
        return NormalDist().cdf((tasks * difference - 1 - z * math.sqrt(tasks * differing)) / spread)
    better = min(1.0, (differing + difference) / (2 * differing))
    total = tail = fair_tail = 0.0
    wins = 1  # the least that are significant; the tails are the probabilities of as many or more
    for n in range(tasks + 1):
        if n:
            tail += better * _binomial(wins - 1, n - 1, better)
            fair_tail += 0.5 * _binomial(wins - 1, n - 1, 0.5)
        while 2 * fair_tail >= alpha:
            fair_tail -= _binomial(wins, n, 0.5)
            tail -= _binomial(wins, n, better)
            wins += 1
        share = _binomial(n, tasks, differing)
        total += share * tail
        if n > tasks * differing and share < 1e-9:
            break
    return min(1.0, max(0.0, total))


def _binomial(count: int, n: int, rate: float) -> float:
    """Return the probability of `count` successes in `n` trials."""
    if not 0 <= count <= n:
        return 0.0
    if rate >= 1:
        return float(count == n)
    log = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    return math.exp(log + count * math.log(rate) + (n - count) * math.log1p(-rate))
