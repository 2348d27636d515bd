"""The measurement of the figures in a run's final table.

A policy is measured in each environment, and in a game with opponents against each opponent separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, product

from gem.agents.random import RandomAgent
from gem.errors import BadArgument
from gem.evals import EnvResult, evaluate, required, summarise
from gem.evals.results import SeatResult, find_successes
from gem.record import Agent, Episode
from gem.rollout import Job, rollout
from gem.statistics import rate_interval, return_interval
from gem.train.learn.trainer import Trainer
from gem.train.report.progress import TITLES
from gem.train.tasks.played_env import PlayedEnv
from gem.waiting import name_wait


@dataclass(frozen=True, slots=True)
class Contest:
    """An environment to measure a policy in, and the names of its opponents there, who take turns.

    Without `against` the policy plays every seat.
    """

    env: PlayedEnv
    against: tuple[str, ...] = ()
    label: str = ""

    def lacks(self, name: str) -> str:
        """Return the reference that the figure `name` needs and the environment lacks, if any."""
        if name == "optimum":
            return "" if (self.env.has_expert if self.against else self.env.has_solver) else "solver"
        needed = name == "random" or "random" in self.against
        return "random actor" if needed and not self.env.has_random_actor else ""

    def measure(self, agent: Agent, others: Sequence[Agent], episodes: int) -> EnvResult:
        """Measure an agent over about `episodes` episodes; 0: each instance once, for a deterministic agent.

        `others` are the agents of `against`. Each instance is played in every seat. Success, reward and turns
        are those of the agent's own seat; `seats` has them for each seat that it played.
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
        jobs, seats = [], []
        for seat in env.seats:  # in each, the others in turn
            tasks = product(range(-(-samples // len(env.seats))), enumerate(instances.seeds))
            for (sample, (number, seeds)), other in zip(tasks, cycle(others), strict=False):
                agents = {each: agent if each == seat else other for each in env.seats}
                seed = seeds[sample % len(seeds)]
                jobs.append(Job(env.maker, seed, str(number), sample, agents=agents, key=f"{seat}-{number}"))
                seats.append(seat)
        played = rollout(jobs, agent, limits=env.limits, concurrency=config.batch, host=config.host)
        return summarise_seats(self.label, played, seats, clustered=not instances.complete)


def summarise_seats(
    name: str, episodes: Sequence[Episode], seats: Sequence[str], *, clustered: bool
) -> EnvResult:
    """Return the figures of an agent that played the seat `seats[i]` of episode i.

    `clustered`: episodes of one `group` share an instance that was drawn, so they are not independent.
    """
    whole = summarise(name, episodes, clustered=clustered)
    pairs = [(episode, seat) for episode, seat in zip(episodes, seats, strict=True) if episode.scored]
    if not pairs:
        return whole

    def summarise_seat(of: Sequence[tuple[Episode, str]]) -> SeatResult:
        successes = find_successes(of)
        known = [
            (each.group, float(won)) for (each, _), won in zip(of, successes, strict=True) if won is not None
        ]
        tasks, wins = [task for task, _ in known], [won for _, won in known]
        earned, all_tasks = [each.reward(seat) for each, seat in of], [each.group for each, _ in of]
        return SeatResult(
            success=rate_interval(wins, tasks if clustered else None) if wins else None,
            reward=return_interval(earned, all_tasks if clustered else None, successes=successes),
            turns=sum(len(each.turns_of(seat)) for each, seat in of) / len(of),
        )

    by_seat = {seat: [each for each in pairs if each[1] == seat] for seat in dict.fromkeys(seats)}
    together = summarise_seat(pairs)
    successes = [won for won in find_successes(pairs) if won is not None]
    lost = len(episodes) - len(pairs)
    return replace(
        whole,
        success=together.success,
        reward=together.reward,
        turns=together.turns,
        at_least=sum(successes) / (len(successes) + lost) if successes else None,
        at_most=(sum(successes) + lost) / (len(successes) + lost) if successes else None,
        seats={seat: summarise_seat(of) for seat, of in by_seat.items() if of},
        turns_to_success=None,
    )


def list_contests(trainer: Trainer) -> list[Contest]:
    """Return what a policy is measured in: each environment, and a game against each named opponent.

    Where all opponents are past copies, which change, the opponent is random play, which does not. At the end
    the copies are opponents too.
    """
    config, league = trainer.config, trainer.league
    contests: list[Contest] = []
    for env in trainer.envs:
        if league is None or len(env.seats) < 2:
            contests.append(Contest(env, label=env.name))
            continue
        fixed = config.opponent or ("random",)
        against: list[tuple[tuple[str, ...], str]] = [((name,), name) for name in fixed]
        if config.pool and trainer.ended:
            pool = tuple(name for name in league.members if name not in config.opponent)
            against.append((pool, "the pool"))
        contests += [Contest(env, names, f"{env.name} against {label}") for names, label in against]
    return contests


def take_figures(trainer: Trainer, name: str, agent: Agent, episodes: int) -> None:
    """Measure an agent on about `episodes` episodes; 0: on each instance once, if deterministic.

    Several environments, and several opponents, are measured separately. Random play and the solver are left
    out where the environment lacks them.

    Raises:
        BadArgument: for a stage of a curriculum that does not report success.
    """
    measured_in = list_contests(trainer)
    for contest in measured_in:
        if lacking := contest.lacks(name):
            if name == "random":
                trainer.watcher.stage(f"{contest.env.name} has no {lacking}: this figure is left out")
            continue
        others = [
            RandomAgent() if each == "random" else trainer.opponents.agent(each) for each in contest.against
        ]
        with name_wait(f"the figures of {TITLES[name]} in {contest.label}"):
            measured = required(contest.measure(agent, others, episodes))
        if trainer.config.curriculum and measured.success is None:
            raise BadArgument(f"a curriculum needs success, which {contest.label} does not report.")
        if len(measured_in) == 1 and not contest.against:
            trainer.figures[name] = measured.to_json()
            trainer.watcher.measured(name, measured)
            continue
        by_label = trainer.figures.setdefault("environments", {})
        by_label.setdefault(contest.label, {})[name] = measured.to_json()
        trainer.watcher.measured(name, measured, contest.label)


def take_policy_figures(trainer: Trainer, sampled: str, greedy: str) -> None:
    """Measure the policy's current weights, sampled and greedy, and store the figures by these names."""
    take_figures(trainer, sampled, trainer.player, trainer.config.eval_episodes)
    trainer.policy.temper(0.0)
    take_figures(trainer, greedy, trainer.player, 0)
    trainer.policy.temper(trainer.config.temperature)


def tell_figures(trainer: Trainer) -> None:
    """Report to the watcher the figures that a resumed run has measured before."""
    for name, figures in trainer.figures.items():
        if name != "environments":
            trainer.watcher.measured(name, EnvResult.from_json(figures))
    for label, by_policy in trainer.figures.get("environments", {}).items():
        for name, figures in by_policy.items():
            trainer.watcher.measured(name, EnvResult.from_json(figures), label)
