"""The Mann-Kendall test: do values rise over time?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

from gem.errors import BadArgument


def mann_kendall(values: Sequence[float]) -> float:
    """Return the one-sided p-value of a rising trend in values that stand in the order of time.

    Small: they rise. Large: they fall; so 1 less the p-value is that of a falling trend. Compared is how many
    pairs rise and how many fall, so the trend need not be straight, and values far out count like others.
    Without a trend values are taken to be independent of one another. The normal approximation, corrected
    for ties; good from about 10 values on. It takes all pairs: average long series first. Sources: Mann,
    Econometrica 13 (1945); Kendall, Rank Correlation Methods, 4th edition (1970).

    Raises:
        BadArgument: for fewer than 3 values, or values that are no numbers.
    """
    n = len(values)
    if n < 3 or any(math.isnan(value) for value in values):
        raise BadArgument(f"got {n} values; accepted: 3 or more, all of them numbers.")
    score = sum((late > early) - (late < early) for early, late in combinations(values, 2))
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    return NormalDist().cdf(-score / math.sqrt(variance)) if variance else 0.5
