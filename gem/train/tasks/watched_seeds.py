"""Watched seeds: the same seeds played at checkpoints, from before RL to the end.

The randomness of an episode depends on its seed alone, so two episodes of a seed differ in the weights and in
nothing else. Training never draws these seeds, and a separate agent plays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gem import seeding
from gem.rollout import EpisodeStore, Job, Runner
from gem.train.config import TrainConfig
from gem.train.learn.policy import Policy, observing_agent, player_of
from gem.train.tasks.played_env import PlayedEnv

TIMES = 20
"""Maximum number of checkpoints at which the seeds are played, beside the start and the end."""


class WatchedSeeds:
    """A player of the watched seeds, into a store; episodes that it holds already are not played again."""

    def __init__(self, policy: Policy, config: TrainConfig, envs: Sequence[PlayedEnv], path: Path) -> None:
        """Play `policy`, in every seat, in each of `envs`, into the store at `path`."""
        self.config, self.envs = config, envs
        self.agent = player_of(observing_agent(policy, config), config)
        self.store = EpisodeStore(path)

    def due(self, iteration: int) -> bool:
        """Return whether the seeds are played at a checkpoint; this depends on the config alone."""
        if iteration in (0, self.config.iterations):
            return True
        saves, between = divmod(iteration, self.config.save_every)
        every = -(-self.config.iterations // (self.config.save_every * TIMES))
        return not between and saves % every == 0

    def play(self, iteration: int) -> None:
        """Play each seed once with the current weights, those of `iteration`."""
        self.agent.publish(iteration)
        # A runner each time: what its environments hold, worker processes above all, is free in between.
        with Runner(
            self.agent,
            host=self.config.host,
            limits=self.envs[0].limits,
            concurrency=self.config.watch,
            store=self.store,
            resume=True,
        ) as runner:
            jobs = range(self.config.watch * len(self.envs))
            runner.play([self._job(iteration, number) for number in jobs])
        self.agent.publish(iteration)  # frees what it kept: the learner needs the memory

    def _job(self, iteration: int, number: int) -> Job:
        seed = seeding.derive(self.config.seed, "watched", number)
        env = self.envs[number // self.config.watch]
        return Job(env.maker, seed, str(number), limits=env.limits, key=f"{iteration}-{number}")

    def close(self) -> None:
        """Close the agent and the store."""
        self.agent.close()
        self.store.close()
