"""The interval of a weighted mean of estimates that each have an interval."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence, Set

from gem.errors import BadArgument
from gem.statistics.intervals import Interval, Rate, members_of, wilson_bounds


def combine(
    parts: Sequence[Interval],
    weights: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the weighted mean of estimates: of rates (`Rate`) combined_rate(), else combined()."""
    method = combined_rate if all(isinstance(part, Rate) for part in parts) else combined
    return method(parts, weights, groups)


def combined(
    parts: Sequence[Interval],
    weights: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> Interval:
    """Return the weighted mean of estimates, with an interval from their intervals.

    For estimates m_i with intervals (l_i, u_i) and weights w_i that sum to 1, the lower bound is
    ``m - sqrt(sum (w_i (m_i - l_i))^2)`` and the upper one ``m + sqrt(sum (w_i (u_i - m_i))^2)``. This is the
    method of variance estimates recovery. Source: Zou and Donner, Statistics in Medicine 27 (2008), equations
    5 and 6. The parts are fixed (the environments of a suite), not a sample of a larger population. For rates
    see combined_rate(): near 0 and 1 the skews of many parts add up.

    Parts of one group are of the same tasks, so their errors do not cancel: inside a group the distances
    ``w_i (m_i - l_i)`` are added, not their squares. This is the same method with a correlation of 1 (Zou,
    Psychological Methods 12 (2007), equation 15). It is exact for equal parts, and too wide for others.

    Args:
        parts: the estimates with their intervals.
        weights: the weight of each, above 0; equal when left out.
        groups: the group of each; None: all are independent.

    Raises:
        BadArgument: without parts, for a wrong number of weights or groups, or weights that are not above 0.
    """
    shares = share_out(parts, weights)
    mean = math.fsum(share * part.mean for share, part in zip(shares, parts, strict=True))

    def add(distances: Iterable[float]) -> float:
        own = [share * each if each else 0.0 for share, each in zip(shares, distances, strict=True)]
        return math.hypot(*map(math.fsum, members_of(own, groups)))

    return Interval(
        mean,
        mean - add(part.mean - part.low for part in parts),
        mean + add(part.high - part.mean for part in parts),
        sum(part.n for part in parts),
        count_clusters([part.clusters for part in parts], groups),
        exact=all(part.exact for part in parts),
    )


def combined_rate(
    parts: Sequence[Interval],
    weights: Sequence[float] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> Rate:
    """Return the weighted mean of rates, with an interval that is also valid near 0 and 1.

    Of an environment that wins everything, combined() takes 0 as the distance to the upper bound, so that
    the upper bound of a mean over many of these is too low. This is Wilson's interval around the mean, for
    the number of trials at which a mean has the variance of this one: that of a stratified sample, from the
    variances of the parts, which are found from their Wilson intervals. Sources: Wilson, J. American
    Statistical Association 22 (1927); Dean and Pagano, J. Survey Statistics and Methodology 3 (2015), for the
    effective number of trials. Of one part, and of equal parts of one group, it is their interval.

    ``python -m bench.intervals overall`` prints its coverage beside that of combined().

    Args:
        parts: the rates with their intervals, such as those of `rate_interval` or `pass_at_k`.
        weights: the weight of each, above 0; equal when left out.
        groups: the group of each, as for combined(); None: all are independent.

    Raises:
        BadArgument: as combined().
    """
    whole = combined(parts, weights, groups)
    shares = share_out(parts, weights)
    errors = [share * _error_of(part) for share, part in zip(shares, parts, strict=True)]
    members = members_of(errors, groups)
    if len(members) == 1:  # errors that do not cancel
        return Rate(*whole)
    variance = math.fsum(math.fsum(own) ** 2 for own in members)
    # With k = z^2 / n, this variance is k (m (1 - m) + k / 4) / (1 + k).
    rest = whole.mean * (1 - whole.mean) - variance
    k = 2 * (math.sqrt(rest**2 + variance) - rest)
    low, high = wilson_bounds(whole.mean, 1.0, math.sqrt(k))
    return Rate(*whole._replace(low=low, high=high))


def _error_of(part: Interval) -> float:
    """Return the half-width that Wilson's interval of a rate would have if it was not moved towards 1/2."""
    half, spread = (part.high - part.low) / 2, part.mean * (1 - part.mean)
    square = half**2
    if square >= 0.25:
        return 1.0
    # The z^2 / n at which Wilson's interval is as wide: the positive root of a quadratic.
    a, b = 0.25 - square, 2 * square - spread
    k = (b + math.sqrt(b**2 + 4 * a * square)) / (2 * a)
    return min(1.0, half * math.sqrt(1 + k))


def share_out(parts: Sequence[Interval], weights: Sequence[float] | None) -> list[float]:
    """Return weights that sum to 1.

    Raises:
        BadArgument: as combined().
    """
    weights = [1.0] * len(parts) if weights is None else weights
    if not parts or len(parts) != len(weights) or not all(0 < w < math.inf for w in weights):
        raise BadArgument(
            f"got {len(parts)} figures and weights {list(weights)!r:.80}; accepted: one above 0 for each."
        )
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def count_clusters(clusters: Sequence[int], groups: Sequence[Hashable] | None) -> int:
    """Return how many clusters are independent: those of a group are the same ones."""
    return int(sum(map(max, members_of(clusters, groups))))


def group_shared(keys: Sequence[Set[Hashable]]) -> list[int]:
    """Return a number for each set of keys: equal for sets that share a key, or are linked by others."""
    groups = list(range(len(keys)))
    first: dict[Hashable, int] = {}
    for i, own in enumerate(keys):
        for key in own:
            one, other = sorted((groups[first.setdefault(key, i)], groups[i]))
            if one != other:
                groups = [one if group == other else group for group in groups]
    return groups


def sum_of(*terms: tuple[float, Interval]) -> tuple[float, float, float]:
    """Return a sum of independent estimates, each times a factor, and its bounds; see combined()."""
    mean = math.fsum(factor * each.mean for factor, each in terms)
    down = math.hypot(*(f * (e.mean - (e.low if f > 0 else e.high)) if f else 0.0 for f, e in terms))
    up = math.hypot(*(f * ((e.high if f > 0 else e.low) - e.mean) if f else 0.0 for f, e in terms))
    return mean, mean - down, mean + up
