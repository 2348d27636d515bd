"""Check whether agents can be compared: they must lose episodes to infrastructure at the same rate."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from gem.errors import BadArgument, check_argument
from gem.evals.results import EnvResult
from gem.statistics import fisher_exact

LEVEL = 0.01
"""Default significance level: rates differ if the p-value of equal rates is below it."""


def unfair(results: Mapping[str, EnvResult], level: float = LEVEL) -> list[str]:
    """Return why results of several agents on one environment cannot be compared; empty if they can.

    Episodes without verdict are left out of every figure. If one agent loses more of them than another, or
    loses them for other reasons, the remaining episodes are not comparable. The rates are compared in pairs,
    in total and by boundary (env, host, agent, driver, cancelled), with Fisher's exact test, two-sided.

    Args:
        results: the results by agent.
        level: the p-value below which a difference is reported.

    Raises:
        BadArgument: for results of different environments, or an invalid level.
    """
    if len({result.env for result in results.values()}) > 1:
        named = sorted({result.env for result in results.values()})
        raise BadArgument(f"the results are of {', '.join(named)}; accepted: results of one environment.")
    check_argument("level", level, 0 < level < 1, "between 0 and 1, such as 0.01")
    reasons = []
    for one, other in combinations(results, 2):
        if results[one].played and results[other].played:
            reasons += _pair(one, results[one], other, results[other], level)
    return reasons


def _pair(one: str, first: EnvResult, other: str, second: EnvResult, level: float) -> list[str]:
    p = fisher_exact(first.unscored, first.played, second.unscored, second.played)
    if p < level:
        return [
            f"agent {one} has no verdict in {first.unscored} of {first.played} episodes, {other} in "
            f"{second.unscored} of {second.played}: the comparison is not fair (p = {p:.1g}, Fisher's "
            "exact test)."
        ]
    reasons = []
    for boundary in dict.fromkeys((*first.boundaries, *second.boundaries)):
        here, there = first.boundaries.get(boundary, 0), second.boundaries.get(boundary, 0)
        p = fisher_exact(here, first.played, there, second.played)
        if p < level:
            reasons.append(
                f"agent {one} lost {here} of {first.played} episodes at the boundary {boundary!r}, {other} "
                f"{there} of {second.played}: the comparison is not fair (p = {p:.1g}, Fisher's exact "
                "test)."
            )
    return reasons
