"""Sampling of a run's training episodes: their tasks, agents, hosts and storage."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from gem import seeding
from gem.agents.base import BaseAgent
from gem.errors import BadArgument
from gem.evals import Instances
from gem.record import Agent, Episode, Limits
from gem.registry import Maker
from gem.rollout import Branch, EpisodeStore, Job, RayRunner, Runner
from gem.rollout.runner import BaseRunner
from gem.train.config import TrainConfig
from gem.train.learn import parallel
from gem.train.learn.learner import Learner, load_weights, weights
from gem.train.learn.policy import Policy, make_policy, player_of
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.opponents import League, Opponents
from gem.train.tasks.played_env import PlayedEnv, played_envs
from gem.train.tasks.schedule import Schedule, Slot


@dataclass
class Sampling:
    """The sampling of the episodes that a run is trained on.

    `fixed`: the named opponents. `iteration`: how many are done; the next one is played.
    """

    config: TrainConfig
    folder: RunFolder
    learner: Learner
    fixed: Mapping[str, Agent] = field(default_factory=dict)
    iteration: int = 0
    _coming: Future[list[Episode]] | None = None

    @property
    def policy(self) -> Policy:
        """The policy that is trained."""
        return self.learner.policy

    @functools.cached_property
    def player(self) -> BaseAgent:
        """Who plays the policy's episodes: its agent, or the program that calls it."""
        return player_of(self.policy.agent, self.config)

    # -- the episodes of an iteration

    def next_episodes(self) -> list[Episode]:
        """Return this iteration's episodes; with staleness, begin to sample those of the next one."""
        if not self.config.staleness:
            return self.sample()
        # Here, not there: what is to come follows from the iterations that are complete now.
        for number in (self.iteration, self.iteration + 1):
            self.schedule.plan(number)
        if self._coming is None:
            self._coming = self._thread.submit(self.sample, self.iteration)
        episodes = self._coming.result()
        self._coming = None
        # What is sampled while this iteration learns comes from the weights that stand before it does.
        self.refresh_sampler()
        if self.iteration + 1 < self.config.iterations:
            self._coming = self._thread.submit(self.sample, self.iteration + 1)
        return episodes

    def sample(self, iteration: int | None = None) -> list[Episode]:
        """Play the episodes of an iteration, by default the present one."""
        number = self.iteration if iteration is None else iteration
        if self.config.algorithm_value.group == "turn":
            return self._sample_branches(number)
        size = self.config.group if self.config.grouped else 1
        return self._play([self._job(number, i // size, i % size) for i in range(self.config.batch)])

    def _play(self, jobs: Sequence[Job]) -> list[Episode]:
        """Play jobs, this process's share of them where there are several."""
        if isinstance(self.runner, RayRunner):  # its players have copies of the model
            version = self.sampler.agent.policy_version
            if version != self.runner.version:
                self.runner.publish(version or 0, self.sampler.model.state_dict())
        return parallel.gather(self.runner.play(parallel.share(jobs)))

    def seed_of(self, iteration: int, task: int) -> int:
        """Return the seed of a task, which does not depend on its environment."""
        return seeding.derive(self.config.seed, "episode", iteration, task)

    def _job(self, iteration: int, task: int, sample: int) -> Job:
        slot = self.schedule.plan(iteration)[task]
        env = self.envs[slot.part]
        agents = None
        if slot.seat:
            agents = self.opponents.assign_seats(env.seats, slot.seat, self.sampler.agent, slot.opponent)
        limits = None if env.limits == self.limits else env.limits
        key = f"{iteration}-{task}"
        return Job(
            env.maker, self.seed_of(iteration, task), key, sample, limits=limits, agents=agents, key=key
        )

    def slots_of(self, episodes: Sequence[Episode]) -> list[Slot]:
        """Return the slot of each episode of the present iteration; its group ends with the slot's number."""
        if len(self.envs) == 1 and self.league is None:
            return [Slot()] * len(episodes)
        plan = self.schedule.plan(self.iteration)
        return [plan[int(episode.group.rpartition("-")[2])] for episode in episodes]

    def take_snapshot(self) -> None:
        """Add a copy of the current policy to the pool of opponents."""
        assert self.league is not None
        if parallel.rank() == 0:
            self.opponents.keep(self.iteration)
        parallel.wait()
        self.league.add(self.iteration)

    def _sample_branches(self, iteration: int) -> list[Episode]:
        """Play each group's first episode, draw one of its turns, and play the others from there.

        The job's key says behind ``@`` at which turn the others left the first one.
        """
        tasks = range(self.config.batch // self.config.group)
        firsts = self._play([replace(self._job(iteration, t, 0), key=f"{iteration}-{t}@0") for t in tasks])
        jobs: list[Job] = []
        for task, first in zip(tasks, firsts, strict=True):
            stream = seeding.stream(self.config.seed, "branch", iteration, task)
            turn = int(stream.random() * len(first.turns))
            start = Branch(first, turn) if turn else None
            jobs += [
                replace(self._job(iteration, task, sample), key=f"{iteration}-{task}@{turn}", start=start)
                for sample in range(1, self.config.group)
                if first.scored and first.turns
            ]
        return [*firsts, *self._play(jobs)]

    def wait_for_samples(self) -> None:
        """Wait until no episodes are being played: an environment may not be thread-safe."""
        if self._coming is not None:
            wait([self._coming])

    def refresh_sampler(self) -> None:
        """Let the sampler have the policy's current weights, where it is a separate copy, or a server."""
        if self.sampler is not self.policy:
            load_weights(self.sampler, weights(self.policy), "the learner")
        self.sampler.publish(self.iteration)

    # -- who plays, and what

    @functools.cached_property
    def sampler(self) -> Policy:
        """The policy that episodes are sampled from: the trained one, or a separate copy of it.

        A server holds a copy of the weights by itself.
        """
        copied = self.config.staleness and not self.config.sampler
        return make_policy(self.config) if copied else self.policy

    @functools.cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "sampler")

    @functools.cached_property
    def runner(self) -> BaseRunner:
        """The runner that plays the run's episodes and stores them.

        Raises:
            BadArgument: for several training processes together with Ray.
        """
        how: dict[str, Any] = {
            "host": self.config.host,
            "limits": self.limits,
            "concurrency": self.config.batch,
            "store": self.store,
        }
        if not self.config.ray:
            return Runner(self.player if self.sampler is self.policy else self.sampler.agent, **how)
        if parallel.world() > 1:
            raise BadArgument("with ray only one process can train; start a single one, or leave ray out.")
        return RayRunner(self.sampler.agent, address=self.config.ray, **how)

    @functools.cached_property
    def store(self) -> EpisodeStore | None:
        """The store of the run's episodes; None where the config keeps none."""
        if self.config.store == "none":
            return None
        path, number = self.folder.episodes, parallel.rank()
        path = path.with_stem(f"{path.stem}-{number}") if number else path
        return EpisodeStore(path, tokens=self.config.store == "tokens")

    def rewind(self, iteration: int) -> None:
        """Drop the stored episodes of iterations from `iteration` on: they are played again.

        An iteration's episodes stand in the store before those of the next one. Those of version 0.2.0 stay:
        their groups do not tell the iteration.
        """
        if self.store is not None:
            groups = (entry.group.partition("-") for entry in self.store.select())
            lost = (
                n
                for n, (of, dash, _) in enumerate(groups)
                if dash and of.isdecimal() and int(of) >= iteration
            )
            self.store.truncate(next(lost, len(self.store)))

    @functools.cached_property
    def envs(self) -> list[PlayedEnv]:
        """The environments of the run."""
        return played_envs(self.config)

    @property
    def maker(self) -> Maker:
        """The maker of the environment, or of the first of several."""
        return self.envs[0].maker

    @property
    def instances(self) -> Instances:
        """The instances that figures are measured on, those of the first of several environments."""
        return self.envs[0].instances

    @functools.cached_property
    def league(self) -> League | None:
        """The opponents of the policy; None where it plays every seat."""
        config = self.config
        return League(config.opponent, config.pool, config.pool_by) if config.opponents else None

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The schedule of the run's tasks."""
        return Schedule(self.config, [env.seats for env in self.envs], self.league)

    @functools.cached_property
    def opponents(self) -> Opponents:
        """The agents of the league."""
        return Opponents(self.fixed, self.policy, self.config, self.folder.pool)

    @property
    def limits(self) -> Limits:
        """The limits of episodes, for environments without limits of their own."""
        config = self.config
        return Limits(turns=config.max_turns, turn_tokens=config.max_tokens, call_s=config.call_s or None)

    def close(self) -> None:
        """Close the runner, the agents and the store."""
        if self._coming is not None and not self._coming.cancel():
            wait([self._coming])
        if self.config.staleness:
            self._thread.shutdown()
        self.runner.close()
        if self.sampler is not self.policy:
            self.sampler.agent.close()
        if self.store is not None:
            self.store.close()
        if self.league is not None:
            self.opponents.close()
