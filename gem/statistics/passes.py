"""pass@k and pass^k: the rates at which one of k samples of a task succeeds, and at which all succeed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gem.errors import BadArgument, check_argument, check_least
from gem.statistics.intervals import Rate, check_level, spread, wilson


def pass_at_k(samples: Sequence[Sequence[bool]], k: int, level: float = 0.95) -> Rate:
    """Return the rate at which at least one of `k` samples of a task succeeds, and its interval.

    For n samples of a task, c of which succeed, ``1 - C(n - c, k) / C(n, k)`` is the unbiased estimate: the
    share of all choices of k samples with a success. Source: Chen et al., Evaluating Large Language Models
    Trained on Code, arXiv 2107.03374 (2021), equation 1. The result is the mean over tasks; each task has the
    same weight, whatever its number of samples.

    The interval treats tasks as a random sample. It is that of clustered_rate(), with each task a cluster
    worth at most n / k independent trials, the number of disjoint choices of k samples. With k = 1 and
    equally many samples per task it is clustered_rate() itself; with k samples per task it is wilson().
    ``python -m bench.intervals passes`` prints its coverage.

    Args:
        samples: for each task, the outcomes of its samples that have a verdict.
        k: the number of tries per task.
        level: the coverage, in (0, 1).

    Raises:
        BadArgument: without tasks, for outcomes other than True and False (or 1 and 0), an invalid level, and
            for tasks with fewer than `k` samples, for example because verdicts were lost: such tasks allow no
            unbiased estimate. Leave them out, and report their number.
    """
    counts = _counts(samples, k, level)
    # A choice of k has no success if it consists of failures only.
    return _mean([(1 - math.comb(n - c, k) / math.comb(n, k), n) for c, n in counts], k, level)


def pass_hat_k(samples: Sequence[Sequence[bool]], k: int, level: float = 0.95) -> Rate:
    """Return the rate at which all of `k` samples of a task succeed (pass^k), and its interval.

    For n samples of a task, c of which succeed, ``C(c, k) / C(n, k)`` is the unbiased estimate. Source: Yao
    et al., tau-bench, arXiv 2406.12045 (2024), section 4. It is pass_at_k() with success and failure
    exchanged: mean, interval, arguments and errors are the same.
    """
    counts = _counts(samples, k, level)
    return _mean([(math.comb(c, k) / math.comb(n, k), n) for c, n in counts], k, level)


def _counts(samples: Sequence[Sequence[bool]], k: int, level: float) -> list[tuple[int, int]]:
    """Return the successes and the samples of each task."""
    check_level(level)
    check_least("k", k)
    if not samples:
        raise BadArgument("no tasks; a rate needs at least one.")
    for own in samples:
        for outcome in own:
            check_argument("an outcome", outcome, outcome in (0, 1), "True, False")
    if few := [len(own) for own in samples if len(own) < k]:
        raise BadArgument(
            f"{len(few)} of {len(samples)} tasks have fewer than k = {k} samples with a verdict (the fewest: "
            f"{min(few)}); use a smaller k, or leave these tasks out and report it."
        )
    return [(sum(map(bool, own)), len(own)) for own in samples]


def _mean(tasks: Sequence[tuple[float, int]], k: int, level: float) -> Rate:
    """Return the mean over tasks of (estimate, number of samples), and its interval."""
    g, n = len(tasks), sum(size for _, size in tasks)
    own = [estimate for estimate, _ in tasks]
    rate = math.fsum(own) / g
    worth = g / math.fsum(k / size for _, size in tasks)  # of a task, in independent trials
    if all(size == k for _, size in tasks):  # each estimate is 0 or 1
        return Rate(rate, *wilson(round(rate * g), g, level)[1:3], n, g)
    deviations = [worth * (estimate - rate) for estimate in own]
    rare = min(sum(estimate > 0 for estimate in own), sum(estimate < 1 for estimate in own))
    return Rate(rate, *spread(rate, deviations, g * worth, worth, rare, level), n, g)
