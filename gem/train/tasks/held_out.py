"""Evaluation during training, on instances that training never draws.

It does not affect training: the instances depend on the run's seed alone, a separate agent plays them, and
nothing is learnt from these episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from statistics import fmean
from typing import NamedTuple, get_args

from gem import seeding
from gem.core import Env, name_instance
from gem.envs.kit.dataset import DatasetEnv
from gem.evals import EnvResult, Instances, evaluate, find_instances
from gem.evals.instances import SCAN
from gem.record import Episode
from gem.registry import Maker
from gem.statistics import Interval, combine
from gem.train.config import TrainConfig
from gem.train.learn.policy import Policy, observing_agent, player_of
from gem.train.report.run_folder import Evaluation, HeldOutKind
from gem.train.tasks.played_env import PlayedEnv

LOOKED_THROUGH = 60_000
"""Maximum number of tasks of a run that are reset to see what training draws; longer runs are not
searched."""

LEAST = 32
"""Minimum number of unseen instances for an evaluation; where training leaves fewer, other seeds are used."""


class HeldOutInstances(NamedTuple):
    """The instances of an evaluation, and how they relate to what training draws."""

    instances: Instances
    kind: HeldOutKind


def held_out_instances(
    maker: Maker, seed: int, wanted: int, draw_seeds: Callable[[], Iterable[int]]
) -> HeldOutInstances:
    """Return about `wanted` instances to evaluate on, apart from those of training and the final table.

    Where an environment has few distinct instances, all of them are used. Training plays them too, with other
    random draws. Where it has many and can tell them apart (by `instance()`, or the question of a data set),
    they are instances that training and the final table do not draw. Otherwise they are seeds that neither
    draws.

    Args:
        maker: makes the environment.
        seed: the run's seed.
        wanted: how many instances.
        draw_seeds: returns the seeds of the tasks that the run trains on.
    """
    instances = find_instances(maker, seeding.derive(seed, "held out"), wanted)
    if instances.complete:
        return HeldOutInstances(instances, "all")
    with maker() as env:
        if not isinstance(env.unwrapped, DatasetEnv) and not _names_instances(env, seed):
            return HeldOutInstances(instances, "seeds")

        def identify(each: int) -> Hashable:
            start = env.reset(seed=each)
            name = name_instance(env)
            return repr(start.obs) if name is None else name

        seeds = list(islice(draw_seeds(), LOOKED_THROUGH + 1))
        if len(seeds) > LOOKED_THROUGH:
            return HeldOutInstances(instances, "seeds")
        final = (one for (one, *_) in find_instances(maker, seed).seeds)
        met = {identify(each) for each in (*seeds, *final)}
        others = (seeding.derive(seed, "held out", "instance", i) for i in range(SCAN))
        unseen = tuple(islice(((each,) for each in others if identify(each) not in met), wanted))
    if len(unseen) < min(LEAST, wanted):
        return HeldOutInstances(instances, "seen")
    return HeldOutInstances(Instances(unseen, False), "unseen")


def _names_instances(env: Env, seed: int) -> bool:
    if not hasattr(env, "instance"):
        return False
    env.reset(seed=seed)
    return name_instance(env) is not None


class HeldOut:
    """An evaluation on held-out instances: the same instances and the same randomness each time.

    Several environments share the episodes equally.
    """

    def __init__(
        self,
        policy: Policy,
        config: TrainConfig,
        envs: Sequence[PlayedEnv],
        draw_seeds: Callable[[], Iterable[int]],
    ) -> None:
        """Measure `policy` in `envs`; for `draw_seeds` see held_out_instances."""
        self.config, self.envs = config, envs
        self.episodes = -(-config.held_out // len(envs))
        self.parts = [held_out_instances(env.maker, config.seed, self.episodes, draw_seeds) for env in envs]
        self.temperature = config.temperature if config.eval_temperature is None else config.eval_temperature
        agent = observing_agent(policy, config, temperature=self.temperature, entropy=False)
        self.agent = player_of(agent, config)

    def measure(self, iteration: int) -> Evaluation:
        """Play the instances with the current weights, those of `iteration`."""
        began = time.perf_counter()
        self.agent.publish(iteration)
        parts = {
            env.name: self._measure(iteration, env, held_out)
            for env, held_out in zip(self.envs, self.parts, strict=True)
        }
        self.agent.publish(iteration)  # frees what it kept: the learner needs the memory
        if len(parts) == 1:
            return next(iter(parts.values()))
        every = list(parts.values())
        return Evaluation(
            iteration=iteration,
            episodes=every[0].episodes,
            held_out=max((each.held_out for each in every), key=get_args(HeldOutKind).index),
            instances=sum(each.instances for each in every),
            temperature=self.temperature,
            result=_mean([each.result for each in every]),
            scores=(),
            wall_s=time.perf_counter() - began,
            parts=parts,
        )

    def _measure(self, iteration: int, env: PlayedEnv, held_out: HeldOutInstances) -> Evaluation:
        began = time.perf_counter()
        played: dict[tuple[int, int], Episode] = {}

        def hear(episode: Episode) -> None:
            played[episode.sample, int(episode.group)] = episode

        result = evaluate(
            self.agent,
            env.maker,
            episodes=self.episodes,
            instances=held_out.instances,
            budget=env.budget,
            limits=env.limits,
            concurrency=self.config.batch,
            host=self.config.host,
            on_episode=hear,
        )
        scores = [_score(played[key], result.success is not None) for key in sorted(played)]
        return Evaluation(
            iteration=iteration,
            episodes=iteration * self.config.batch,
            held_out=held_out.kind,
            instances=len(held_out.instances.seeds),
            temperature=self.temperature,
            result=result,
            scores=tuple(scores),
            wall_s=time.perf_counter() - began,
        )

    def close(self) -> None:
        """Close the agent."""
        self.agent.close()


def _mean(results: Sequence[EnvResult]) -> EnvResult:
    """Return the mean over environments; None for a figure that one of them does not have."""

    def over(figures: Sequence[Interval | None]) -> Interval | None:
        known = [each for each in figures if each is not None]
        return combine(known) if len(known) == len(figures) else None

    turns = [each.turns for each in results if each.turns is not None]
    return EnvResult(
        env=", ".join(each.env for each in results),
        episodes=sum(each.episodes for each in results),
        scored=sum(each.scored for each in results),
        success=over([each.success for each in results]),
        at_least=None,
        reward=over([each.reward for each in results]),
        turns=fmean(turns) if len(turns) == len(results) else None,
        turns_to_success=over([each.turns_to_success for each in results]),
        first_error=next((each.first_error for each in results if each.first_error is not None), None),
    )


def _score(episode: Episode, by_success: bool) -> float | None:
    """Return an episode's success where the environment reports it, else its return; None without verdict."""
    if not episode.scored:
        return None
    if not by_success:
        return episode.reward()
    return None if episode.success is None else float(episode.success)
