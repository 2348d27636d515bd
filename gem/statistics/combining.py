"""The interval of a weighted mean of estimates that each have an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gem.errors import BadArgument
from gem.statistics.intervals import Interval


def combined(parts: Sequence[Interval], weights: Sequence[float] | None = None) -> Interval:
    """Return the weighted mean of independent estimates, with an interval from their intervals.

    For estimates m_i with intervals (l_i, u_i) and weights w_i that sum to 1, the lower bound is
    ``m - sqrt(sum (w_i (m_i - l_i))^2)`` and the upper one ``m + sqrt(sum (w_i (u_i - m_i))^2)``. This is the
    method of variance estimates recovery. It keeps the coverage of asymmetric intervals, such as those of
    rates near 0 and 1. Source: Zou and Donner, Statistics in Medicine 27 (2008), equations 5 and 6. The parts
    are fixed (the environments of a suite), not a sample of a larger population.

    Args:
        parts: the estimates with their intervals.
        weights: the weight of each, above 0; equal when left out.

    Raises:
        BadArgument: without parts, for a wrong number of weights, or weights that are not above 0.
    """
    weights = [1.0] * len(parts) if weights is None else weights
    if not parts or len(parts) != len(weights) or not all(0 < w < math.inf for w in weights):
        raise BadArgument(
            f"got {len(parts)} figures and weights {list(weights)!r:.80}; accepted: one above 0 for each."
        )
    total = math.fsum(weights)
    return Interval(
        *sum_of(*((weight / total, part) for weight, part in zip(weights, parts, strict=True))),
        sum(part.n for part in parts),
        sum(part.clusters for part in parts),
        exact=all(part.exact for part in parts),
    )


def sum_of(*terms: tuple[float, Interval]) -> tuple[float, float, float]:
    """Return a sum of independent estimates, each times a factor, and its bounds; see combined()."""
    mean = math.fsum(factor * each.mean for factor, each in terms)
    down = math.hypot(*(f * (e.mean - (e.low if f > 0 else e.high)) if f else 0.0 for f, e in terms))
    up = math.hypot(*(f * ((e.high if f > 0 else e.low) - e.mean) if f else 0.0 for f, e in terms))
    return mean, mean - down, mean + up
