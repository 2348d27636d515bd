"""The environments of a run as they are played, and what a policy is measured in: alone or against others."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from gem.envs.seats.seated_env import SeatedEnv
from gem.evals import EnvResult, Instances, evaluate, find_instances, summarise
from gem.evals.evaluator import SeatResult
from gem.record import Agent, Episode, Limits
from gem.registry import EnvSpec, Maker
from gem.rollout import Job, rollout
from gem.statistics import mean_interval, rate_interval
from gem.train.config import TrainConfig
from gem.train.mixture import EnvPart
from gem.wrappers.wrapper_factory import tool_wrappers


class PlayedEnv:
    """One environment of a run: its recipe, its limits, and the instances that it is measured on."""

    def __init__(self, part: EnvPart, config: TrainConfig) -> None:
        """Play `part`, one of the config's; tools are the innermost wrappers.

        Raises:
            UnknownEnv: for an id, or a wrapper's name, that nothing is registered under.
        """
        self.name, self.config = part.name, config
        wrappers = (*tool_wrappers(part.tools or ()), *(part.wrappers or ()))
        self.maker = Maker(part.id, part.kwargs, wrappers)
        self.limits = Limits(turns=part.max_turns, turn_tokens=config.max_tokens)

    @property
    def spec(self) -> EnvSpec:
        """What is registered under the id."""
        return self.maker.spec

    @property
    def seats(self) -> tuple[str, ...]:
        """Who acts in it."""
        return self.spec.seats

    @functools.cached_property
    def has_expert(self) -> bool:
        """Whether a seat of the game has an expert, which may hold it alone."""
        with self.maker() as env:
            found = type(env.unwrapped)
        return issubclass(found, SeatedEnv) and found.expert_action is not SeatedEnv.expert_action

    @functools.cached_property
    def instances(self) -> Instances:
        """The instances that every figure of the run is measured on."""
        return find_instances(self.maker, self.config.seed)

    @functools.cached_property
    def budget(self) -> int | None:
        """Turns that an episode may take at most: a lost one counts as one more. None where nobody says."""
        with self.maker() as env:
            stated = env.spec.max_turns if env.spec else None
        known = [turns for turns in (stated, self.limits.turns) if turns is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Contest:
    """What a policy is measured in: an environment, and the names of who holds the other seats, in turn.

    Without `against` the policy holds every seat.
    """

    env: PlayedEnv
    against: tuple[str, ...] = ()
    label: str = ""

    @property
    def solvable(self) -> bool:
        """Whether there is a solver to measure."""
        return self.env.has_expert if self.against else self.env.spec.solver != "none"

    def measure(self, agent: Agent, others: Sequence[Agent], episodes: int) -> EnvResult:
        """Return an agent's figures over about `episodes` episodes; 0: each instance once, without chance.

        `others` are the agents of `against`. Each instance is played in every seat; success, reward and turns
        are those of the agent's own seat, and `seats` has them by the seat that it held.
        """
        env, config = self.env, self.env.config
        instances = env.instances
        samples = max(1, -(-episodes // len(instances.seeds)))
        if not others:
            return evaluate(
                agent,
                env.maker,
                episodes=samples * len(instances.seeds),
                instances=instances,
                budget=env.budget,
                limits=env.limits,
                exactly=episodes == 0 and instances.complete,
                concurrency=config.batch,
                host=config.host,
            )
        samples = max(len(env.seats), samples)
        jobs, held = [], []
        for seat in env.seats:  # in each, the others in turn
            following = cycle(others)
            for sample in range(-(-samples // len(env.seats))):
                for number, seeds in enumerate(instances.seeds):
                    other = next(following)
                    agents = {each: agent if each == seat else other for each in env.seats}
                    seed = seeds[sample % len(seeds)]
                    jobs.append(
                        Job(env.maker, seed, str(number), sample, agents=agents, key=f"{seat}-{number}")
                    )
                    held.append(seat)
        played = rollout(jobs, agent, limits=env.limits, concurrency=config.batch, host=config.host)
        return of_seats(self.label, played, held, clustered=not instances.complete)


def of_seats(name: str, episodes: Sequence[Episode], held: Sequence[str], *, clustered: bool) -> EnvResult:
    """Return the figures of an agent that held the seat `held` of each episode.

    `clustered`: episodes of one `group` are of one instance that was drawn, and not independent.
    """
    whole = summarise(name, episodes, clustered=clustered)
    mine = [(episode, seat) for episode, seat in zip(episodes, held, strict=True) if episode.scored]
    if not mine:
        return whole

    def fared(of: Sequence[tuple[Episode, str]]) -> SeatResult:
        known = [(each, won) for each, seat in of if (won := each.succeeded(seat)) is not None]
        wins, tasks = [float(won) for _, won in known], [each.group for each, _ in known]
        earned, all_tasks = [each.reward(seat) for each, seat in of], [each.group for each, _ in of]
        return SeatResult(
            success=rate_interval(wins, tasks if clustered else None) if wins else None,
            reward=mean_interval(earned, all_tasks if clustered else None),
            turns=sum(len(each.turns_of(seat)) for each, seat in of) / len(of),
        )

    by_seat = {seat: [each for each in mine if each[1] == seat] for seat in dict.fromkeys(held)}
    together = fared(mine)
    told = [won for each, seat in mine if (won := each.succeeded(seat)) is not None]
    lost = len(episodes) - len(mine)
    return replace(
        whole,
        success=together.success,
        reward=together.reward,
        turns=together.turns,
        at_least=sum(told) / (len(told) + lost) if told else None,
        at_most=(sum(told) + lost) / (len(told) + lost) if told else None,
        seats={seat: fared(of) for seat, of in by_seat.items() if of},
        turns_to_success=None,
    )
