"""The noise floor of a suite of tasks, and the smallest difference that it can show."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from gem.errors import BadArgument
from gem.statistics import student_t
from gem.statistics.intervals import check_level

POWER = 0.8
"""How often a difference is to be shown that is there."""

LARGEST = 1e150
"""The square of a larger value is beyond all numbers."""


class Noise(NamedTuple):
    """What a figure varies by: `between` tasks, and `within` a task from sample to sample.

    Both are variances. `within` is None where each task was sampled once, so that nobody can tell them apart:
    then `between` holds both.
    """

    mean: float
    between: float
    within: float | None

    def variance(self, tasks: int, samples: int, alike: float = 0.0) -> float:
        """Return the variance of the mean over `tasks` tasks of `samples` samples each.

        ``((1 - alike) * between + within / samples) / tasks``; source: Miller, Adding Error Bars to Evals,
        arXiv 2411.00640, sections 3 and 4. `alike` is the share of `between` that drops out.

        Raises:
            BadArgument: for no tasks or samples, and where `within` is not known but asked for.
        """
        if tasks < 1 or samples < 1:
            raise BadArgument(f"got {tasks} tasks of {samples} samples; accepted: 1 or more of each.")
        if self.within is None:
            if samples > 1 or alike:
                raise BadArgument(
                    "each task was sampled once, which does not tell tasks apart from samples; sample some "
                    "tasks twice or more."
                )
            return self.between / tasks
        return ((1 - alike) * self.between + self.within / samples) / tasks


def noise(values: Sequence[float], tasks: Sequence[Hashable]) -> Noise:
    """Return how much of the variance of values is between tasks, and how much within.

    The estimates of a one-way analysis of variance with random effects, which are unbiased but for a
    variance between tasks below 0, taken as 0. Source: Searle, Casella and McCulloch, Variance Components
    (1992), section 3.6 (tasks of unequal numbers of samples).

    Args:
        values: one number per sample.
        tasks: what each sample belongs to, parallel to `values`.

    Raises:
        BadArgument: for fewer than two tasks, values that are not finite, or unequal lengths.
    """
    if len(values) != len(tasks):
        raise BadArgument(f"got {len(values)} values and {len(tasks)} tasks; one task per value.")
    if not all(math.isfinite(value) and abs(value) < LARGEST for value in values):
        raise BadArgument(f"a value is not between -{LARGEST:.0e} and {LARGEST:.0e}; leave it out.")
    members: dict[Hashable, list[float]] = {}
    for value, task in zip(values, tasks, strict=True):
        members.setdefault(task, []).append(value)
    n, g = len(values), len(members)
    if g < 2:
        raise BadArgument(f"got {g} tasks; variance between tasks takes two or more.")
    mean = math.fsum(values) / n
    means = [math.fsum(own) / len(own) for own in members.values()]
    sizes = [len(own) for own in members.values()]
    squares = math.fsum(m * (own - mean) ** 2 for m, own in zip(sizes, means, strict=True)) / (g - 1)
    if n == g:
        return Noise(mean, squares, None)
    within = math.fsum(
        (value - own) ** 2 for values_, own in zip(members.values(), means, strict=True) for value in values_
    ) / (n - g)
    size = (n - sum(m * m for m in sizes) / n) / (g - 1)
    return Noise(mean, max(0.0, (squares - within) / size), within)


def noise_of_rate(rate: float, within: float) -> Noise:
    """Return the noise of success at `rate`, of which `within` is the variance within a task.

    One sample varies by ``rate * (1 - rate)`` in all; `within` is the mean of ``p (1 - p)`` over tasks of
    rate p. It is 0 where every task is always won or always lost, and all of it where tasks are alike.

    Raises:
        BadArgument: for a rate outside [0, 1], or `within` outside what it allows.
    """
    if not 0 <= rate <= 1:
        raise BadArgument(f"rate is {rate}; accepted: between 0 and 1.")
    whole = rate * (1 - rate)
    if not 0 <= within <= whole + 1e-12:
        raise BadArgument(f"within is {within}; accepted at a rate of {rate}: between 0 and {whole:.4g}.")
    return Noise(rate, max(0.0, whole - within), within)


def smallest_difference(
    variance: float, tasks: int, level: float = 0.95, power: float = POWER, *, paired: bool = True
) -> float:
    """Return the smallest difference that a comparison shows with probability `power`.

    Shown means that the interval at `level` is on one side of 0. ``(t_(1 - alpha / 2) + t_power) * se`` with
    Student's t of ``tasks - 1`` degrees of freedom, of unpaired runs ``2 (tasks - 1)``: near the exact
    solution by the noncentral t. Source: Cohen, Statistical Power Analysis, 2nd edition (1988), section 2.2;
    Miller, arXiv 2411.00640, section 5.

    Args:
        variance: of the estimated difference.
        tasks: of each run.
        level: of the interval.
        power: how often it is to be shown.
        paired: both runs play the same tasks.

    Raises:
        BadArgument: for a negative variance, or a level or power that is none.
    """
    check_level(level)
    if not 0 < power < 1:
        raise BadArgument(f"power is {power}; accepted: between 0 and 1, such as 0.8.")
    if not variance >= 0:
        raise BadArgument(f"variance is {variance}; accepted: 0 or more.")
    df = tasks - 1 if paired else 2 * (tasks - 1)
    if df < 1:
        return math.inf
    quantiles = student_t.quantile((1 + level) / 2, df) + student_t.quantile(power, df)
    return quantiles * math.sqrt(variance)
