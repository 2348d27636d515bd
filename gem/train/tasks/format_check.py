"""The check of a warm-up's result: sampled play is as readable as random play, and earns as much.

It uses seeds of its own, which the warm-up does not clone, new ones each time. Random play and the policy
both play them, the policy by a separate agent. One check may pass by luck, so two in a row are needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gem import seeding
from gem.agents.random import RandomAgent
from gem.evals import EnvResult
from gem.record import Episode, Limits, StopReason
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.statistics import score_difference, surely_below
from gem.train.config import TrainConfig
from gem.train.learn.policy import Policy, observing_agent

EPISODES = 400
"""Number of episodes that the policy plays, and random play too."""

MARGIN = 0.05
"""How much lower the share of readable episodes may be in sampled play than in random play: sampling always
makes some errors."""

LEVEL = 0.9
"""Level of the two-sided interval of their difference; only one bound is used, which holds at 95%."""


@dataclass(frozen=True, slots=True)
class FormatVerdict:
    """The result of a check: shares of readable episodes, of the policy and random play, and the verdict."""

    readable: float
    random_readable: float
    learnt: bool


class FormatCheck:
    """A comparison of a policy's sampled play with random play."""

    def __init__(self, policy: Policy, config: TrainConfig, makers: Sequence[Maker], limits: Limits) -> None:
        """Check `policy` in the environments of `makers`, in each in turn."""
        self.config, self.makers, self.limits = config, makers, limits
        self.agent = observing_agent(policy, config, entropy=False)
        self.in_a_row = 0

    def check(self, step: int) -> FormatVerdict:
        """Play with the current weights, those after warm-up step `step`, and compare.

        The format is learnt when compare_with_random() finds it learnt for the second time in a row.
        """
        seeds = (seeding.derive(self.config.seed, "well-formed", step, i) for i in range(EPISODES))
        count = len(self.makers)
        jobs = [Job(self.makers[i % count], seed, key=f"{step}-{i}") for i, seed in enumerate(seeds)]
        how: dict[str, Any] = {"limits": self.limits, "concurrency": self.config.batch}
        self.agent.publish(step)
        verdict = compare_with_random(rollout(jobs, self.agent, **how), rollout(jobs, RandomAgent(), **how))
        self.agent.publish(step)  # frees what it kept
        self.in_a_row = self.in_a_row + 1 if verdict.learnt else 0
        return replace(verdict, learnt=self.in_a_row >= 2)

    def close(self) -> None:
        """Close the agent."""
        self.agent.close()


def compare_with_random(played: Sequence[Episode], random: Sequence[Episode]) -> FormatVerdict:
    """Compare sampled play with random play on the same seeds.

    The format is learnt where the share of readable episodes is less than MARGIN below random play's at 95%
    (the upper bound of Tango's interval of paired rates), and the mean return is no less than random play's.
    Only the means of the return are compared: an interval would accept too much. Pairs that lack a verdict
    are left out; without any pair the format is not learnt.
    """
    pairs = [pair for pair in zip(played, random, strict=True) if all(each.scored for each in pair)]
    if not pairs:
        return FormatVerdict(0.0, 0.0, False)
    read = [(_readable(episode), _readable(other)) for episode, other in pairs]
    lost = [int(one and not other) for one, other in read]
    won = [int(other and not one) for one, other in read]
    less = score_difference(lost, won, [1] * len(pairs), LEVEL)
    earned = math.fsum(episode.reward() - other.reward() for episode, other in pairs)
    readable, random_readable = (sum(column) / len(pairs) for column in zip(*read, strict=True))
    return FormatVerdict(readable, random_readable, less.high < MARGIN and earned >= 0)


def _readable(episode: Episode) -> bool:
    return episode.stop is not StopReason.UNREADABLE


def is_below(measured: EnvResult, reference: EnvResult) -> bool:
    """Return whether a measurement is below another beyond noise: in success if both have it, else in return.

    See `gem.statistics.surely_below`.
    """
    by_success = measured.success is not None and reference.success is not None
    value, reference_value = (each.success if by_success else each.reward for each in (measured, reference))
    return value is not None and reference_value is not None and surely_below(value, reference_value)
