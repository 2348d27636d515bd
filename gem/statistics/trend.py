"""Values over time: a test whether they rise, and their moving average."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

from gem.errors import BadArgument


def mann_kendall(values: Sequence[float]) -> float:
    """Return the one-sided p-value of a rising trend in values in time order.

    A small p-value means that they rise, a large one that they fall: 1 minus the p-value is that of a falling
    trend. The test compares the numbers of rising and falling pairs, so the trend need not be linear, and
    outliers count like other values. Without a trend, the values are assumed independent. It uses the normal
    approximation, corrected for ties, which is good from about 10 values on. It compares all pairs, so
    average long series first. Sources: Mann, Econometrica 13 (1945); Kendall, Rank Correlation Methods, 4th
    edition (1970).

    Raises:
        BadArgument: for fewer than 3 values, or values that are not numbers.
    """
    n = len(values)
    if n < 3 or any(math.isnan(value) for value in values):
        raise BadArgument(f"got {n} values; accepted: 3 or more, all of them numbers.")
    score = sum((late > early) - (late < early) for early, late in combinations(values, 2))
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    return NormalDist().cdf(-score / math.sqrt(variance)) if variance else 0.5


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Return, for each value, the mean of the finite ones of the `width` around it; NaN if there are none.

    Towards the ends fewer count, equally many on both sides: else the first averages of a rise would be too
    high.
    """

    def average(at: int) -> float:
        reach = min(width // 2, at, len(values) - 1 - at)
        known = [value for value in values[at - reach : at + reach + 1] if math.isfinite(value)]
        return math.fsum(known) / len(known) if known else math.nan

    return [average(at) for at in range(len(values))]
