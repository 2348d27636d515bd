"""How good a policy is: success and turns over instances of an environment, with honest intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gem import seeding
from gem.errors import NoVerdict
from gem.record import Agent, Episode, Limits, StopReason
from gem.registry import Maker
from gem.rollout.drivers import Job, rollout
from gem.statistics import Interval, exact, mean_interval

FEW = 64
"""An environment with at most this many distinct instances is enumerated."""

SCAN = 4000
"""Seeds that are looked through for distinct instances."""


NAN = float("nan")
UNKNOWN = Interval(NAN, NAN, NAN, 0, 0)


class Instances(NamedTuple):
    """For each distinct instance the seeds that deal it, and whether these are all the instances there are.

    Several seeds of one instance differ in the chance that is not the instance's: the random actor's.
    """

    seeds: tuple[tuple[int, ...], ...]
    complete: bool


class Measurement(NamedTuple):
    """What was measured.

    `success`: rate of success. `mean_guesses`: turns until success, where a lost episode counts one turn
    more than the task allows. Both are NaN where the environment does not say what success is. `coverage`:
    the share of episodes that have a verdict; the others enter neither. Cancelled episodes do not count.
    """

    success: Interval
    mean_guesses: Interval
    coverage: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "success": self.success._asdict(),
            "mean_guesses": self.mean_guesses._asdict(),
            "coverage": self.coverage,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measurement:
        """Return what to_json() gave."""
        return cls(Interval(**values["success"]), Interval(**values["mean_guesses"]), values["coverage"])


def find_instances(maker: Maker, seed: int, wanted: int = 256) -> Instances:
    """Return the distinct instances where they are few, else `wanted` seeds as they come.

    Instances are told apart by what the environment says of them (`instance`). Where they are too many, or
    it does not say, every seed counts as one, so that an instance comes up as often as it is dealt.
    """
    env = maker()
    tell = getattr(env, "instance", None)
    seeds = [seeding.derive(seed, "instance", i) for i in range(SCAN)]
    found: dict[str, list[int]] = {}
    for each in seeds:
        if tell is None or len(found) > FEW:
            break
        env.reset(seed=each)
        found.setdefault(tell(), []).append(each)
    env.close()
    if tell is None or len(found) > FEW:
        return Instances(tuple((each,) for each in seeds[:wanted]), False)
    return Instances(tuple(tuple(found[key]) for key in sorted(found)), True)


def measure(
    agent: Agent,
    maker: Maker,
    instances: Instances,
    *,
    samples: int,
    budget: int | None,
    limits: Limits,
    exactly: bool = False,
    concurrency: int = 256,
) -> Measurement:
    """Play each instance `samples` times and return the figures, clustered by instance.

    Args:
        agent: who plays.
        maker: the recipe of the environment.
        instances: what is played.
        samples: episodes of each instance.
        budget: turns that an episode may take; None where nobody says, then those it took.
        limits: limits from outside.
        exactly: the agent plays without chance and `instances` are all there are, so that the figures are
            not estimates and their intervals are points.
        concurrency: episodes in flight.

    Raises:
        NoVerdict: when no episode has a verdict.
    """
    jobs = [
        Job(maker, seeds[sample % len(seeds)], group=str(number), sample=sample)
        for sample in range(samples)
        for number, seeds in enumerate(instances.seeds)
    ]
    played = rollout(jobs, agent, limits=limits, concurrency=concurrency)
    episodes = [episode for episode in played if episode.stop is not StopReason.CANCELLED]
    scored = [episode for episode in episodes if episode.scored]
    if not scored:
        reason = next((e.error for e in episodes if e.error), None)
        raise NoVerdict(f"none of {len(played)} episodes has a verdict: {reason}")
    coverage = len(scored) / len(episodes)
    told = [episode for episode in scored if episode.success is not None]
    if not told:
        return Measurement(UNKNOWN, UNKNOWN, coverage)
    won = [float(bool(episode.success)) for episode in told]
    guesses = [
        float(len(e.turns) if e.success else 1 + (len(e.turns) if budget is None else budget)) for e in told
    ]
    clusters = [episode.group for episode in told]
    if exactly:
        return Measurement(exact(won), exact(guesses), coverage)
    return Measurement(
        _within(mean_interval(won, clusters), 0.0, 1.0), mean_interval(guesses, clusters), coverage
    )


def success_rate(episodes: Sequence[Episode]) -> float:
    """Return the share of successes among the episodes that say whether they were one; NaN without any."""
    told = [episode.success for episode in episodes if episode.success is not None]
    return sum(told) / len(told) if told else NAN


def _within(interval: Interval, low: float, high: float) -> Interval:
    return interval._replace(low=max(low, interval.low), high=min(high, interval.high))
