"""Fisher's exact test for the difference of two rates."""

from __future__ import annotations

import math

from gem.errors import BadArgument

TIES = 1e-9
"""Tables with a smaller difference of log probabilities count as equally probable; rounding is smaller."""


def fisher_exact(count: int, n: int, other: int, m: int) -> float:
    """Return the two-sided p-value of `count` in `n` against `other` in `m`.

    Given the sum of both counts and equal rates, it is the probability of all tables that are not more
    probable than this one. It is valid for small counts. Source: Fisher, Statistical Methods for Research
    Workers, 5th edition (1934).

    Raises:
        BadArgument: for counts that are negative or above their totals, or no trials on either side.
    """
    if not (0 <= count <= n and 0 <= other <= m and n and m):
        raise BadArgument(f"got {count} of {n} and {other} of {m}; accepted: 0 to n of at least 1, twice.")
    both = count + other
    low, high = max(0, both - m), min(both, n)
    logs, log = [0.0], 0.0  # log probability of each count in `n`, relative to the smallest count
    for k in range(low, high):
        log += math.log((n - k) * (both - k)) - math.log((k + 1) * (m - both + k + 1))
        logs.append(log)
    top = max(logs)
    limit = logs[count - low] + TIES
    all_of_them = math.fsum(math.exp(each - top) for each in logs)
    return min(1.0, math.fsum(math.exp(each - top) for each in logs if each <= limit) / all_of_them)
