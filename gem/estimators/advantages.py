"""Advantages of a batch of episodes, per turn, without a critic.

All normalise by the population's standard deviation and add no epsilon to it. Returns that differ by
rounding alone count as equal and get advantage 0: dividing such differences by their own spread would turn
noise into a gradient of full size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from gem.errors import BadArgument
from gem.record import SEAT, Episode

ROUNDING = 1e-9
"""Values whose spread is below this share of the largest absolute value count as equal."""


def has_signal(advantages: Sequence[Sequence[float] | None]) -> bool:
    """Return whether any advantage is not 0; without one the batch has no gradient.

    ``rebn`` has no signal when all returns are equal, ``grpo`` when they are equal within each group, for
    example when every episode fails. A policy at that point does not recover by itself.
    """
    return any(any(turns) for turns in advantages if turns)


def reinforce(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the returns unchanged: the policy gradient without a baseline.

    Source: Williams, Machine Learning 8 (1992); Sutton and Barto (2018), section 13.3.
    """
    return [list(turns) for turns in returns]


def rebn(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Normalise the returns of all turns of the batch by their mean and standard deviation.

    Return Batch Normalisation: ``A_t = (G_t - mean(G)) / std(G)`` over every turn of every episode.
    Source: Liu et al., GEM, arXiv 2510.01051.
    """
    flat = iter(normalised([value for turns in returns for value in turns]))
    return [[next(flat) for _ in turns] for turns in returns]


def turn_rebn(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Normalise the returns by turn number: first turns among themselves, second turns, and so on.

    This is `rebn` with a mean and a deviation for each turn number. Where early turns return less than late
    ones, as with discounted rewards near the end, an early turn is not penalised for being early. A baseline
    that depends on time alone is independent of the action: Greensmith, Bartlett and Baxter, J. Machine
    Learning Research 5 (2004). A turn number that only one episode has reached has advantage 0.
    """
    numbers = [number for turns in returns for number, _ in enumerate(turns)]
    flat = iter(grpo([value for turns in returns for value in turns], numbers))
    return [[next(flat) for _ in turns] for turns in returns]


def grpo(scores: Sequence[float], groups: Sequence[Hashable], *, scale: bool = True) -> list[float]:
    """Return each episode's score relative to the episodes of its group.

    ``A = (R - mean(R)) / std(R)`` within the group. Source: Shao et al., DeepSeekMath, arXiv 2402.03300,
    section 4.1. A group of one has advantage 0.

    Args:
        scores: one return per episode.
        groups: the group of each episode, parallel to `scores`.
        scale: divide by the standard deviation. Without it: Dr. GRPO (Liu et al., arXiv 2503.20783), where
            groups of nearly equal scores do not count more.

    Raises:
        BadArgument: for unequal lengths.
    """
    if len(scores) != len(groups):
        raise BadArgument(f"grpo got {len(scores)} scores and {len(groups)} groups; one group per score.")
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    advantages = [0.0] * len(scores)
    for indices in members.values():
        relative = normalised([scores[index] for index in indices], scale)
        for index, advantage in zip(indices, relative, strict=True):
            advantages[index] = advantage
    return advantages


def rloo(scores: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Return each episode's score minus the mean of the others in its group.

    REINFORCE Leave-One-Out: ``A_i = R_i - mean of R_j, j != i``; the baseline does not depend on the sample,
    so the gradient is unbiased. It is ``dr_grpo`` times n / (n - 1). Sources: Kool et al. (2019); Ahmadian et
    al., Back to Basics, arXiv 2402.14740. A group of one has advantage 0.

    Raises:
        BadArgument: for unequal lengths.
    """
    sizes = Counter(groups)
    return [
        advantage * sizes[group] / max(1, sizes[group] - 1)
        for advantage, group in zip(grpo(scores, groups, scale=False), groups, strict=True)
    ]


def normalised(values: Sequence[float], scale: bool = True) -> list[float]:
    """Return values minus their mean, over their deviation; zeros where they are equal up to rounding."""
    if not values or max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return [0.0] * len(values)
    # fsum rounds once, so that the order of the episodes does not matter.
    mean = math.fsum(values) / len(values)
    centred = [value - mean for value in values]
    if not scale:
        return centred
    largest = max(map(abs, centred))  # scaled by it, the squares of tiny values do not vanish
    shares = [value / largest for value in centred]
    std = math.sqrt(math.fsum(share * share for share in shares) / len(shares))
    return [share / std for share in shares]


def turn_rewards(episode: Episode, seat: str = SEAT) -> list[float]:
    """Return the reward of each of a seat's turns; 0 where there is none.

    Raises:
        BadArgument: for a reward that is not finite in an episode with verdict.
    """
    rewards = [turn.reward or 0.0 for turn in episode.turns_of(seat)]
    for number, reward in enumerate(rewards):
        if not math.isfinite(reward):
            raise BadArgument(
                f"episode {episode.id!r}, turn {number} of {seat!r}: the reward is {reward}, but the episode "
                "has a verdict; its rewards must be finite. A broken episode has Verdict.NONE."
            )
    return rewards
