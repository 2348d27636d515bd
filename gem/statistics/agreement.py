"""Cohen's kappa: the agreement of two raters beyond chance."""

from __future__ import annotations

import math

from gem.errors import BadArgument
from gem.statistics.intervals import Interval, check_level, normal_quantile


def cohen_kappa(both: int, first: int, second: int, neither: int, level: float = 0.95) -> Interval:
    """Return Cohen's kappa of two raters who say yes or no, and its interval.

    It is ``(p - e) / (1 - e)``, where p is the share on which they agree and e the share to be expected if
    they were independent: 1 for full agreement, 0 for that of chance. Source: Cohen, Educational and
    Psychological Measurement 20 (1960). The interval has the standard error of Fleiss, Cohen and Everitt,
    Psychological Bulletin 72 (1969), with one more item in each of the four cells, as Agresti and Coull have
    it for a rate: the plain one is a single point where the raters agree on all. If both say the same of all
    items, kappa is not defined: NaN, and the interval is [-1, 1].

    Args:
        both: the number of items of which both say yes.
        first: those of which only the first does.
        second: those of which only the second does.
        neither: those of which none does.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without items, for a count below 0, or an invalid level.
    """
    check_level(level)
    cells = (both, first, second, neither)
    n = sum(cells)
    if min(cells) < 0 or not n:
        raise BadArgument(f"got the counts {cells}; accepted: 0 or more, and not all 0.")
    kappa, _ = _estimate(*cells)
    if math.isnan(kappa):
        return Interval(kappa, -1.0, 1.0, n, n)
    centre, error = _estimate(*(count + 1 for count in cells))
    half = normal_quantile(level) * error
    return Interval(kappa, max(-1.0, min(centre - half, kappa)), min(1.0, max(centre + half, kappa)), n, n)


def _estimate(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """Return kappa and its standard error, NaN where all items are in one cell of agreement."""
    n = both + first + second + neither
    a, b, c, d = both / n, first / n, second / n, neither / n
    expected = (a + b) * (a + c) + (c + d) * (b + d)
    if expected == 1:
        return math.nan, math.nan
    kappa = (a + d - expected) / (1 - expected)
    agreed = a * (1 - (2 * a + b + c) * (1 - kappa)) ** 2 + d * (1 - (2 * d + b + c) * (1 - kappa)) ** 2
    differ = (1 - kappa) ** 2 * (b * (a + c + c + d) ** 2 + c * (a + b + b + d) ** 2)
    variance = agreed + differ - (kappa - expected * (1 - kappa)) ** 2
    return kappa, math.sqrt(max(0.0, variance) / n) / (1 - expected)
