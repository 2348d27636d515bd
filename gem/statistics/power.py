"""Statistical power: the noise of a suite of tasks, and the smallest difference that it can show."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gem.errors import BadArgument, check_argument
from gem.statistics import student_t
from gem.statistics.intervals import check_level, members_of

POWER = 0.8
"""Default probability with which an existing difference is shown."""

LARGEST = 1e150
"""The square of a larger value overflows."""


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
