"""The interval of a ratio of two means of the same samples, such as the tokens for each success."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from gem.errors import BadArgument
from gem.statistics import student_t
from gem.statistics.intervals import Interval, check_level, sum_deviations


def ratio_interval(
    amounts: Sequence[float],
    counts: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    level: float = 0.95,
) -> Interval:
    """Return the sum of the amounts divided by that of the counts, and Fieller's interval of this ratio.

    It has the ratios r for which the mean of ``amount - r * count`` may be 0 by mean_interval(). Source:
    Fieller, J. Royal Statistical Society B 16 (1954). Unlike an interval around the ratio, it is as far above
    it as few counts allow: where their mean may be 0, there is no upper bound. If no cluster differs from
    another but for rounding, there are no bounds. Where 4 to 10 samples of 50 or more have a count, 6 to 11%
    of the lower bounds are above the truth, in place of 2.5%.

    Args:
        amounts: what each sample took, 0 or more.
        counts: what each sample gave, 0 or more; some above 0.
        clusters: the cluster of each sample (its task), parallel to `amounts`; None: each its own.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: for unequal lengths, values below 0, counts that are all 0, or an invalid level.
    """
    check_level(level)
    if len(amounts) != len(counts) or not all(
        0 <= each < math.inf for values in (amounts, counts) for each in values
    ):
        raise BadArgument(
            f"got {len(amounts)} amounts and {len(counts)} counts; accepted: equally many numbers from 0."
        )
    if not any(counts):
        raise BadArgument("all counts are 0; a ratio needs one above it.")
    n = len(amounts)
    amount, count = math.fsum(amounts) / n, math.fsum(counts) / n
    off_amounts = sum_deviations(amounts, amount, clusters)
    off_counts = sum_deviations(counts, count, clusters)
    g = len(off_amounts)
    if g == 1 or not any((*off_amounts, *off_counts)):
        return Interval(amount / count, -math.inf, math.inf, n, g)
    scale = student_t.quantile((1 + level) / 2, g - 1) ** 2 * g / (g - 1) / n**2
    # r is in the interval where ``square * r^2 - 2 * linear * r + constant`` is 0 or less.
    square = count**2 - scale * math.fsum(each * each for each in off_counts)
    linear = amount * count - scale * math.fsum(
        own * other for own, other in zip(off_amounts, off_counts, strict=True)
    )
    constant = amount**2 - scale * math.fsum(each * each for each in off_amounts)
    root = math.sqrt(max(0.0, linear**2 - square * constant))
    if square > 0:
        low, high = (linear - root) / square, (linear + root) / square
    else:
        low, high = constant / (linear + root) if constant > 0 else 0.0, math.inf
    return Interval(amount / count, max(0.0, low), high, n, g)
