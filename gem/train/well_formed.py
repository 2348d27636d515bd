"""Whether a warm-up has taught the format: sampled play is as readable as random play, and earns as much.

What is looked at is not what is cloned: seeds of its own, new ones each time, which random play and the
policy both play. The policy plays by an agent of its own. One look may be lucky, so that it takes two in a
row.
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
from gem.statistics import score_difference
from gem.train.config import TrainConfig
from gem.train.policy import Policy, observing_agent

EPISODES = 400
"""Episodes that each of the two plays."""

MARGIN = 0.05
"""How much less readable than random play sampled play may be: it never writes quite as surely."""

LEVEL = 0.9
"""Coverage of the interval of their difference; one bound of it counts, so that it holds at 95%."""


@dataclass(frozen=True, slots=True)
class Look:
    """Shares of episodes that did not end unreadable, of the policy and of random play, and the verdict."""

    readable: float
    random_readable: float
    learnt: bool


class WellFormed:
    """Compares a policy's sampled play with random play."""

    def __init__(self, policy: Policy, config: TrainConfig, makers: Sequence[Maker], limits: Limits) -> None:
        """Look at `policy` in the environments of `makers`, in each in turn."""
        self.config, self.makers, self.limits = config, makers, limits
        self.agent = observing_agent(policy, config, entropy=False)
        self.in_a_row = 0

    def look(self, step: int) -> Look:
        """Play with the weights of now, those behind warm-up step `step`, and compare.

        The format is learnt when compare() says so for the second time in a row.
        """
        seeds = (seeding.derive(self.config.seed, "well-formed", step, i) for i in range(EPISODES))
        count = len(self.makers)
        jobs = [Job(self.makers[i % count], seed, key=f"{step}-{i}") for i, seed in enumerate(seeds)]
        how: dict[str, Any] = {"limits": self.limits, "concurrency": self.config.batch}
        self.agent.publish(step)
        found = compare(rollout(jobs, self.agent, **how), rollout(jobs, RandomAgent(), **how))
        self.agent.publish(step)  # frees what it kept
        self.in_a_row = self.in_a_row + 1 if found.learnt else 0
        return replace(found, learnt=self.in_a_row >= 2)

    def close(self) -> None:
        """Close the agent."""
        self.agent.close()


def compare(played: Sequence[Episode], random: Sequence[Episode]) -> Look:
    """Return how sampled play stands to random play of the same seeds.

    The format is learnt where the share of readable episodes is less than MARGIN below random play's at 95%
    (Tango's interval of paired rates, whose upper bound counts), and the mean return is no less than random
    play's. The latter is asked of the means: an interval would forgive too much.
    Pairs that lack a verdict are left out; without any nothing is learnt.
    """
    pairs = [pair for pair in zip(played, random, strict=True) if all(each.scored for each in pair)]
    if not pairs:
        return Look(0.0, 0.0, False)
    read = [(_readable(mine), _readable(other)) for mine, other in pairs]
    lost = [int(mine and not other) for mine, other in read]
    won = [int(other and not mine) for mine, other in read]
    less = score_difference(lost, won, [1] * len(pairs), LEVEL)
    earned = math.fsum(mine.reward() - other.reward() for mine, other in pairs)
    mine, other = (sum(column) / len(pairs) for column in zip(*read, strict=True))
    return Look(mine, other, less.high < MARGIN and earned >= 0)


def _readable(episode: Episode) -> bool:
    return episode.stop is not StopReason.UNREADABLE


def below(measured: EnvResult, reference: EnvResult) -> bool:
    """Tell whether a measurement lies below another beyond noise: in success where both tell it, else return.

    The lower bound of the difference is above 0, found from the two 95% intervals: the distances of the two
    bounds that face each other from their means, squared and added. Source: Newcombe, Statistics in Medicine
    17 (1998), method 10.
    """
    told = measured.success is not None and reference.success is not None
    mine, other = (each.success if told else each.reward for each in (measured, reference))
    if mine is None or other is None:
        return False
    gap = other.mean - mine.mean
    return gap > 0 and gap**2 > (other.mean - other.low) ** 2 + (mine.high - mine.mean) ** 2
