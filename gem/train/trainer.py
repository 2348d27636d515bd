"""A training run: sample episodes, learn from them, measure, keep checkpoints, go on after a crash.

An iteration plays whole episodes with the weights that stand, and hands them to the algorithm, which takes
its steps (`gem.train.policy_gradient`, `gem.train.ppo`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch

from gem import models, seeding
from gem.agents.base import BaseAgent
from gem.agents.named import NAMES, named_agent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, StoreError, did_you_mean
from gem.evals import EnvResult, Instances, required
from gem.evals.evaluator import bounds
from gem.record import Agent, Episode, Limits, StopReason
from gem.registry import Maker
from gem.rollout import Branch, EpisodeStore, Job, RayRunner, Runner
from gem.train import checkpoint, cloning, parallel, policy_gradient, ppo
from gem.train.alarms import alarms
from gem.train.config import TrainConfig
from gem.train.contests import Contest, PlayedEnv
from gem.train.held_out import HeldOut
from gem.train.learner import Critic, Learner, Settings, load_weights, weights
from gem.train.loggers import make_loggers
from gem.train.opponents import League, Opponents
from gem.train.policy import Base, Policy, make_policy, settled, twin
from gem.train.run import Evaluation, Metrics, RunFolder, WarmupStep
from gem.train.schedule import Schedule, Slot, figures_of
from gem.train.selection import best, enough
from gem.train.steps import Progress, Steps
from gem.train.warm_ups import WarmUps
from gem.train.warmup import NO_DEMONSTRATIONS, warm_up, warm_up_seed
from gem.train.watched import Watched
from gem.train.watcher import Watcher, Watchers
from gem.train.well_formed import WellFormed, below

NAN = float("nan")

WARM_LONGER = "RL begins with less than the format; take more --warmup-steps, or another --warmup-lr."

LOOKS = 20
"""Times in a warm-up that it is looked at what has been learnt."""


@dataclass
class Trainer:
    """A run: its config, its folder, and the state that a checkpoint holds."""

    config: TrainConfig
    folder: RunFolder
    learner: Learner
    watcher: Watcher
    iteration: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    save_s: float = NAN
    figures: dict[str, Any] = field(default_factory=dict)
    history: list[Metrics] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    early_end: str | None = None
    """Why the run ends here although more iterations were planned."""
    _coming: Future[list[Episode]] | None = None

    @property
    def policy(self) -> Policy:
        """The policy that is trained."""
        return self.learner.policy

    # -- the loop

    def train(self) -> None:
        """Train from where the run stands to its end, planned or early, with checkpoints on the way."""
        self.watch()
        self.watcher.saved(self.iteration)
        if self.early_end is not None:
            self.watcher.stage(f"stopped early at iteration {self.iteration}: {self.early_end}")
        elif not self.ended:
            self.watcher.stage("training")
        while not self.ended:
            began, began_cpu = time.perf_counter(), time.process_time()
            episodes = self.next_episodes()
            sampled = time.perf_counter()
            steps = self.learn(episodes)
            updated = time.perf_counter()
            slots = self.slots_of(episodes)
            self.iteration += 1
            begins = self.schedule.take_in(self.iteration - 1, slots, episodes)
            if self.league is not None and self.config.pool and self.iteration % self.config.pool_every == 0:
                self.take_snapshot()
            if not self.config.staleness:
                self.learner.publish(self.iteration)
            self.cpu_s += time.process_time() - began_cpu
            self.wall_s += time.perf_counter() - began
            metrics = self.summarise(episodes, steps or Steps(), sampled - began, updated - sampled, slots)
            # In this order: a line that the checkpoint does not hold is dropped on resuming and made anew.
            if parallel.rank() == 0:
                self.folder.append(metrics)
            self.history.append(metrics)
            for alarm in alarms(self.history, self.config):
                self.watcher.warned(f"iteration {alarm.iteration}: {alarm.text}")
            if begins is not None and self.iteration < self.config.iterations:
                self.watcher.began(begins.name, self.iteration + 1)
            self.evaluate()
            saves = self.iteration % self.config.save_every == 0 or self.ended
            if saves:
                self.save()
                self.watch()
            self.watcher.iterated(metrics, self.config)
            if saves:
                self.watcher.saved(self.iteration)
            if self.early_end is not None:
                self.watcher.stage(f"stopped early at iteration {self.iteration}: {self.early_end}")

    def next_episodes(self) -> list[Episode]:
        """Return this iteration's episodes; where they may be stale, those of the next begin to be played."""
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
        load_weights(self.sampler, weights(self.policy), "the learner")
        self.sampler.publish(self.iteration)
        if self.iteration + 1 < self.config.iterations:
            self._coming = self._thread.submit(self.sample, self.iteration + 1)
        return episodes

    def sample(self, iteration: int | None = None) -> list[Episode]:
        """Play the episodes of an iteration, by default the present one."""
        number = self.iteration if iteration is None else iteration
        if self.config.algorithm == "turn_grpo":
            return self._sample_branches(number)
        size = self.config.group if self.config.grouped else 1
        return self._play([self._job(number, i // size, i % size) for i in range(self.config.batch)])

    def _play(self, jobs: Sequence[Job]) -> list[Episode]:
        """Play jobs, this process's share of them where there are several."""
        if isinstance(self.runner, RayRunner):  # its players have copies of the model
            version = self.sampler.agent.policy_version
            if version != self.runner.version:
                self.runner.publish(version or 0, self.sampler.model.state_dict())
        return parallel.gathered(self.runner.play(parallel.share(jobs)))

    def _job(self, iteration: int, task: int, sample: int) -> Job:
        seed = seeding.derive(self.config.seed, "episode", iteration, task)
        slot = self.schedule.plan(iteration)[task]
        env = self.envs[slot.part]
        agents = None
        if slot.seat:
            agents = self.opponents.seated(env.seats, slot.seat, self.sampler.agent, slot.opponent)
        limits = None if env.limits == self.limits else env.limits
        key = f"{iteration}-{task}"
        return Job(env.maker, seed, str(task), sample, limits=limits, agents=agents, key=key)

    def slots_of(self, episodes: Sequence[Episode]) -> list[Slot]:
        """Return the slot of each episode of the present iteration, which its group numbers."""
        if len(self.envs) == 1 and self.league is None:
            return [Slot()] * len(episodes)
        plan = self.schedule.plan(self.iteration)
        return [plan[int(episode.group)] for episode in episodes]

    def take_snapshot(self) -> None:
        """Take the policy as it is now into the pool of opponents."""
        assert self.league is not None
        if parallel.rank() == 0:
            self.opponents.keep(self.iteration)
        parallel.wait()
        self.league.add(self.iteration)

    def _sample_branches(self, iteration: int) -> list[Episode]:
        """Play each group's first episode, draw one of its turns, and play the others from there.

        The job's key says behind ``@`` at which turn an episode left the first one.
        """
        tasks = range(self.config.batch // self.config.group)
        firsts = self._play([replace(self._job(iteration, t, 0), key=f"{iteration}-{t}@0") for t in tasks])
        jobs: list[Job] = []
        for task, first in zip(tasks, firsts, strict=True):
            stream = seeding.stream(self.config.seed, "branch", iteration, task)
            turn = int(stream.random() * len(first.turns))
            first.job = f"{iteration}-{task}@{turn}"
            start = Branch(first, turn) if turn else None
            jobs += [
                replace(self._job(iteration, task, sample), key=first.job, start=start)
                for sample in range(1, self.config.group)
                if first.scored and first.turns
            ]
        return [*firsts, *self._play(jobs)]

    def learn(self, episodes: Sequence[Episode]) -> Steps | None:
        """Take the iteration's steps; None where its episodes teach nothing."""
        if broken := [episode for episode in episodes if not episode.scored]:
            self.watcher.warned(
                f"iteration {self.iteration + 1}: {len(broken)} of {len(episodes)} episodes have no verdict "
                f"and are left out; the first: {broken[0].error or broken[0].stop}"
            )
        learn = ppo.learn if self.config.algorithm == "ppo" else policy_gradient.learn
        return learn(self.learner, episodes, self.config, self.progress, self.slots_of(episodes))

    def watch(self) -> None:
        """Play the watched seeds, at the checkpoints where that is due.

        The checkpoint is written before, and a run that is resumed there comes by again: what is missing is
        played then, by the weights that it would have been played by.
        """
        if self.watched is not None and (self.ended or self.watched.due(self.iteration)):
            if self._coming is not None:  # an environment need not bear two threads
                wait([self._coming])
            self.watched.play(self.iteration)

    def evaluate(self) -> None:
        """Measure the policy on held-out instances, at the iterations where that is due.

        The checkpoint is written behind it: what a checkpoint follows stands in the folder.
        """
        every = self.config.eval_every
        if not every or (self.iteration % every and self.iteration != self.config.iterations):
            return
        began, began_cpu = time.perf_counter(), time.process_time()
        if self._coming is not None:  # an environment need not bear two threads
            wait([self._coming])
        mine = [self.held_out.measure(self.iteration)] if parallel.rank() == 0 else []
        (evaluation,) = parallel.gathered(mine)
        self.evaluations.append(evaluation)
        if parallel.rank() == 0:
            self.folder.append_evaluation(evaluation)
            if best(self.evaluations) is evaluation:
                checkpoint.save(self.folder.best, {**weights(self.policy), "iteration": self.iteration})
        self.watcher.evaluated(evaluation)
        if evaluation.score is None:
            self.watcher.warned(
                f"iteration {self.iteration}: no held-out episode has a verdict; the first: "
                f"{evaluation.result.first_error}"
            )
        self._weigh_end()
        self.cpu_s += time.process_time() - began_cpu
        self.wall_s += time.perf_counter() - began

    def _weigh_end(self) -> None:
        planned = self.iteration >= self.config.iterations
        self.early_end = None if planned else enough(self.evaluations, self.config)

    # -- around it

    @functools.cached_property
    def held_out(self) -> HeldOut:
        """Who measures the policy on held-out instances."""
        tasks = self.config.batch // (self.config.group if self.config.grouped else 1)

        def drawn() -> Iterator[int]:
            for iteration, task in product(range(self.config.iterations), range(tasks)):
                yield self._job(iteration, task, 0).seed
            yield from self._warmup_seeds()

        return HeldOut(self.policy, self.config, self.maker, self.limits, self.budget, drawn)

    def _warmup_seeds(self) -> Iterator[int]:
        """Yield the seeds of what the warm-up clones."""
        if self.config.demos is None:
            for step, i in product(range(self.config.warmup_steps), range(self.config.warmup_batch)):
                yield warm_up_seed(self.config.seed, step, i)
            return
        with EpisodeStore(self.config.demos, read_only=True) as store:
            for number in range(len(store)):
                if (seed := store.task(number).seed) is not None:
                    yield seed

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        return self.iteration >= self.config.iterations or self.early_end is not None

    @property
    def progress(self) -> Progress:
        """Where the run stands."""
        return Progress(self.iteration, self.config.iterations)

    @functools.cached_property
    def sampler(self) -> Policy:
        """The policy that episodes are sampled from: the one that is trained, or a copy of its own."""
        return make_policy(self.config) if self.config.staleness else self.policy

    @functools.cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "sampler")

    @functools.cached_property
    def runner(self) -> Runner:
        """Plays the run's episodes, and stores them."""
        if self.config.ray:
            if parallel.world() > 1:
                raise BadArgument("on Ray one process trains, and many sample; begin one, or leave ray out.")
            return RayRunner(
                self.sampler.agent,
                address=self.config.ray,
                host=self.config.host,
                limits=self.limits,
                concurrency=self.config.batch,
                store=self.store,
            )
        return Runner(
            self.sampler.agent,
            host=self.config.host,
            limits=self.limits,
            concurrency=self.config.batch,
            store=self.store,
        )

    @functools.cached_property
    def store(self) -> EpisodeStore | None:
        """Where the run's episodes go; None where the config wants none."""
        if self.config.store == "none":
            return None
        path, number = self.folder.episodes, parallel.rank()
        path = path.with_stem(f"{path.stem}-{number}") if number else path
        return EpisodeStore(path, tokens=self.config.store == "tokens")

    @functools.cached_property
    def watched(self) -> Watched | None:
        """Who plays the watched seeds; None where nobody does, or another process."""
        if not self.config.watch or parallel.rank():
            return None
        return Watched(self.policy, self.config, self.envs, self.folder.watched)

    def close(self) -> None:
        """Close what plays and what stores."""
        if self._coming is not None and not self._coming.cancel():
            wait([self._coming])
        if self.config.staleness:
            self._thread.shutdown()
        self.runner.close()
        if self.config.staleness:
            self.sampler.agent.close()
        if self.store is not None:
            self.store.close()
        if self.watched is not None:
            self.watched.close()
        if self.league is not None:
            self.opponents.close()
        if "held_out" in vars(self):
            self.held_out.close()

    @functools.cached_property
    def envs(self) -> list[PlayedEnv]:
        """The environments of the run."""
        return played_envs(self.config)

    @property
    def maker(self) -> Maker:
        """The recipe of the environment, of several of the first."""
        return self.envs[0].maker

    @property
    def instances(self) -> Instances:
        """The instances that figures are measured on, in several environments in the first."""
        return self.envs[0].instances

    @property
    def budget(self) -> int | None:
        """Turns that an episode may take at most, see PlayedEnv; in several environments in the first."""
        return self.envs[0].budget

    @functools.cached_property
    def league(self) -> League | None:
        """Who plays against the policy; None where it holds every seat."""
        config = self.config
        return League(config.opponent, config.pool, config.pool_by) if config.opponents else None

    @functools.cached_property
    def schedule(self) -> Schedule:
        """What each task of the run's iterations is."""
        return Schedule(self.config, [env.seats for env in self.envs], self.league)

    @functools.cached_property
    def opponents(self) -> Opponents:
        """The agents of the league."""
        fixed = {name: fixed_opponent(name) for name in self.config.opponent}
        return Opponents(fixed, self.policy, self.config, self.folder.pool)

    @property
    def contests(self) -> list[Contest]:
        """What a policy is measured in: each environment, a game against each opponent that has a name.

        Where the opponents are past copies alone, which change, it is random play, which does not; at the end
        the copies too.
        """
        found: list[Contest] = []
        for env in self.envs:
            against: list[tuple[str, ...]] = [(name,) for name in self.config.opponent or ("random",)]
            if not self.config.opponents or len(env.seats) < 2:
                found.append(Contest(env, label=env.name))
                continue
            if self.league is not None and self.config.pool and self.iteration == self.config.iterations:
                against.append(
                    tuple(name for name in self.league.members if name not in self.config.opponent)
                )
            for names in against:
                shown = names[0] if names[0] in ("random", *self.config.opponent) else "the pool"
                found.append(Contest(env, names, f"{env.name} against {shown}"))
        return found

    def opponent(self, name: str) -> Agent:
        """Return the agent of a contest."""
        return RandomAgent() if name == "random" else self.opponents.agent(name)

    @property
    def limits(self) -> Limits:
        """The limits from outside, where an environment has none of its own."""
        return Limits(turns=self.config.max_turns, turn_tokens=self.config.max_tokens)

    def summarise(
        self,
        episodes: Sequence[Episode],
        steps: Steps,
        sample_s: float,
        update_s: float,
        slots: Sequence[Slot] | None = None,
    ) -> Metrics:
        """Return the figures of an iteration; `slots` of each episode, None: of one environment."""
        slots = slots or [Slot()] * len(episodes)
        scored = [(slot, episode) for slot, episode in zip(slots, episodes, strict=True) if episode.scored]
        told = [won for slot, episode in scored if (won := slot.succeeded(episode)) is not None]
        count = len(scored) or NAN
        several = len(self.envs) > 1 or self.league is not None
        by_part, by_opponent = figures_of(self.config.parts, slots, episodes) if several else ({}, {})
        return Metrics(
            iteration=self.iteration,
            episodes=self.iteration * self.config.batch,
            success=sum(told) / len(told) if told else NAN,
            reward=sum(slot.reward(episode) for slot, episode in scored) / count,
            turns=sum(len(slot.turns(episode)) for slot, episode in scored) / count,
            unreadable=sum(slot.stop(episode) is StopReason.UNREADABLE for slot, episode in scored) / count,
            no_verdict=len(episodes) - len(scored),
            loss=steps.loss,
            entropy=steps.entropy,
            clipped=steps.clipped,
            step_kl=steps.step_kl,
            kl=steps.kl,
            logprob_gap=steps.gap,
            value_error=steps.value_error,
            lr=self.learner.optimiser.param_groups[0]["lr"],
            tokens_sampled=sum(slot.tokens(episode) for slot, episode in zip(slots, episodes, strict=True)),
            tokens_trained=steps.positions,
            sample_s=sample_s,
            update_s=update_s,
            save_s=self.save_s,
            cpu_s=self.cpu_s,
            environments=by_part,
            opponents=by_opponent,
            stage=self._stage_of(slots),
        )

    def _stage_of(self, slots: Sequence[Slot]) -> str:
        """Return the name of the stage that an iteration was of: the last of those that it has tasks of."""
        if self.schedule.curriculum is None:
            return ""
        return self.envs[max(slot.part for slot in slots)].name

    def save(self) -> None:
        """Write the checkpoint."""
        began = time.perf_counter()
        state = {
            "iteration": self.iteration,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "figures": self.figures,
            **self.learner.state(),
            "sampler": weights(self.sampler)["model"] if self.config.staleness else None,
            "schedule": self.schedule.state(),
        }
        if parallel.rank() == 0:
            checkpoint.save(self.folder.checkpoint, state)
            if self.league is not None:  # now no checkpoint needs the others
                self.opponents.prune({*self.league.members, *self.schedule.in_use()})
        self.learner.forget()
        self.save_s = time.perf_counter() - began

    def restore(self) -> None:
        """Become what the checkpoint holds.

        Raises:
            SchemaMismatch: for a checkpoint of another vocabulary or shape of model.
        """
        state = checkpoint.load(self.folder.checkpoint)
        self.learner.load(state, str(self.folder.checkpoint))
        self.iteration, self.figures = state["iteration"], state["figures"]
        self.cpu_s, self.wall_s = state["cpu_s"], state["wall_s"]
        if "schedule" in state:  # a run of an earlier version has none, and needs none
            self.schedule.load(state["schedule"])
        self.learner.publish(self.iteration)
        if self.config.staleness:
            load_weights(self.sampler, {**state, "model": state["sampler"]}, str(self.folder.checkpoint))
            self.sampler.publish(max(0, self.iteration - 1))
        if parallel.rank() == 0:
            self.folder.rewind(self.iteration)
        parallel.wait()
        self.history, self.evaluations = self.folder.history(), self.folder.evaluated()
        self._weigh_end()
        self._take_reference()

    def hold_reference(self) -> None:
        """Take the present weights as the reference that training is held to, and write them once."""
        if self.config.kl and self.config.iterations:
            if parallel.rank() == 0:
                checkpoint.save(self.folder.reference, weights(self.policy))
            parallel.wait()
            self._take_reference()

    def _take_reference(self) -> None:
        if not self.config.kl or not self.config.iterations:
            return
        if self.config.lora_rank and not self.config.warmup_steps:
            self.learner.reference = Base(self.policy)  # type: ignore[arg-type]
            return
        self.learner.reference = twin(self.policy)
        load_weights(
            self.learner.reference, checkpoint.load(self.folder.reference), str(self.folder.reference)
        )


def played_envs(config: TrainConfig) -> list[PlayedEnv]:
    """Return the environments of a config as they are played.

    Raises:
        BadArgument: for opponents where no environment has a seat for them.
    """
    envs = [PlayedEnv(part, config) for part in config.parts]
    if config.opponents and all(len(env.seats) < 2 for env in envs):
        raise BadArgument(
            f"opponents need a game of several seats, as multi:KuhnPoker-v0; {config.title} has one seat."
        )
    return envs


def make_maker(config: TrainConfig) -> Maker:
    """Return the recipe of a config's environment, of several the first one's."""
    return played_envs(config)[0].maker


def fixed_opponent(name: str) -> Agent:
    """Return the agent of a name, or the one that the folder of a run holds.

    Raises:
        BadArgument: where it is neither. MissingExtra: without the packages that the agent wants.
    """
    found = named_agent(name)
    if found is None and not Path(name).is_dir():
        hint = did_you_mean(name, ("random", "solver", *models.KNOWN))
        raise BadArgument(f"no opponent is called {name!r}; accepted: {NAMES}, or the folder of a run.{hint}")
    return trained_agent(Path(name)) if found is None else found


def trained_agent(
    path: Path, temperature: float = 1.0, weights: Literal["last", "best"] = "last"
) -> BaseAgent:
    """Return the agent that a run's folder holds: with the newest weights, or the best held-out evaluation's.

    Raises:
        StoreError: when there is no run, or it keeps no best weights. SchemaMismatch: when it belongs to
            another version.
    """
    folder = RunFolder(path)
    config = folder.read_config()
    file = folder.checkpoint if weights == "last" else folder.best
    if weights == "best" and not file.exists():
        raise StoreError(
            f"{path} keeps no best weights ({file.name}): a run with held-out evaluations does "
            "(--eval-every). Name the folder alone for the last ones."
        )
    policy = make_policy(config)
    load_weights(policy, checkpoint.load(file), str(file))
    policy.temper(temperature)
    return policy.agent


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    watcher: Watcher | None = None,
    warm_ups: WarmUps | None = None,
) -> dict[str, Any]:
    """Carry out a run and return its summary, which also stands in the run's folder.

    With `warm_ups` the run shares its warm-up with others that have the same one.

    A new run measures random play and the solver, warms up, measures, trains, and measures again. With
    `resume` the run goes on from its checkpoint, and is the run that it would have been.

    Raises:
        StoreError: when the folder holds a run already (or none, with `resume`), another trainer is at work
            in it, or it cannot be written.
        BadArgument: with `resume`, for another config than the run began with; for what cannot be trained.
    """
    folder = RunFolder(config.out)
    if resume and config.dtype == "auto":
        config = replace(config, dtype=folder.read_config().dtype)
    config = settled(config)
    if resume and (changed := config.differences(folder.read_config())):
        raise BadArgument(
            f"the run in {config.out} began with another {', '.join(changed)}; a run goes on as it began."
        )
    told: Watcher = Watchers(watcher or Watcher(), make_loggers(config.log))  # before a model is loaded
    trainer = make_trainer(config, told)
    first = parallel.rank() == 0
    if not first:
        trainer.watcher = told = Watcher()
    with closing(trainer.policy.agent), folder.held() if first else nullcontext(), closing(told):
        if resume:
            trainer.restore()
            told.begun(folder, config, trainer.history)
            tell_figures(trainer)
        else:
            with demonstrations(config):  # what is wrong with them is said at once
                pass
            if first:
                folder.begin(config)
            told.begun(folder, config, [])
            parallel.wait()
            prepare(trainer, warm_ups)
            trainer.hold_reference()
            if config.pool:
                trainer.take_snapshot()
            if config.staleness:
                load_weights(trainer.sampler, weights(trainer.policy), "the learner")
                trainer.sampler.publish(0)
            trainer.evaluate()
            trainer.save()
        try:
            trainer.train()
        finally:
            trainer.close()
        parallel.wait()
        if config.staleness:
            trainer.learner.publish(trainer.iteration)
        summary = finish(trainer)
        told.finished(summary)
        return summary


def make_trainer(config: TrainConfig, watcher: Watcher | None = None) -> Trainer:
    """Return a trainer with new weights.

    Raises:
        BadArgument: for a model, an environment or a wrapper that cannot be made.
    """
    config = settled(config)
    for env in played_envs(config):  # what cannot be made is refused before a model is loaded
        env.maker().close()
        if "solver" in config.opponent and len(env.seats) > 1 and not env.has_expert:
            raise BadArgument(f"{env.name} has no solver to play against; choose another opponent.")
    config = replace(config, device=parallel.begin(config.device))
    if config.threads:
        torch.set_num_threads(config.threads)
    policy = make_policy(config)
    critic = None
    if config.algorithm == "ppo":
        critic = Critic(policy.width, make_policy(config) if config.critic == "model" else None)
    settings = Settings(
        lr=config.lr,
        max_grad_norm=config.max_grad_norm,
        temperature=config.temperature,
        pass_tokens=config.pass_tokens,
    )
    learner = Learner(policy, settings, critic=critic)
    trainer = Trainer(config, RunFolder(config.out), learner, watcher or Watcher())
    if config.opponents:
        trainer.opponents  # noqa: B018  who cannot be found is told now
    return trainer


def prepare(trainer: Trainer, warm_ups: WarmUps | None = None) -> None:
    """Measure random play and the solver, warm the model up, and measure it before any RL."""
    config, watcher = trainer.config, trainer.watcher
    began, began_cpu = time.perf_counter(), time.process_time()
    watcher.stage("measuring random play and the solver")
    take_figures(trainer, "random", RandomAgent(), config.eval_episodes)
    if any(contest.solvable for contest in trainer.contests):
        take_figures(trainer, "optimum", SolverAgent(), 0)
    trainer.learner.publish(0)
    if not config.iterations:
        watcher.stage("measuring before cloning")
        take_figures(trainer, "untrained", trainer.policy.agent, config.eval_episodes)
    elsewhere = 0.0
    if config.warmup_steps:
        elsewhere = warm(trainer, warm_ups)
    if config.iterations:
        watcher.stage("measuring before any RL")
        take_figures(trainer, "before", trainer.policy.agent, config.eval_episodes)
        if config.warmup_steps:
            warn_below_random(trainer)
    trainer.cpu_s = time.process_time() - began_cpu + elsewhere
    trainer.wall_s = time.perf_counter() - began


def warn_below_random(trainer: Trainer) -> None:
    """Warn where the warmed-up policy plays worse than random, beyond noise."""
    for label, figures in {"": trainer.figures, **trainer.figures.get("environments", {})}.items():
        if not {"before", "random"} <= figures.keys():
            continue
        before, random = (EnvResult.from_json(figures[name]) for name in ("before", "random"))
        if below(before, random):
            where = f"{label}: " if label else ""
            trainer.watcher.warned(
                f"{where}before any RL the policy plays worse than random, beyond noise. {WARM_LONGER}"
            )


def warm(trainer: Trainer, warm_ups: WarmUps | None = None) -> float:
    """Warm the model up on demonstrations or random play; return CPU seconds that were spent elsewhere."""
    config, watcher = trainer.config, trainer.watcher
    every = max(1, config.warmup_steps // LOOKS)
    with demonstrations(config) as (demos, apart), ExitStack() as last:
        losses: list[float] = []
        judge = None
        if config.warmup_check:
            makers = [env.maker for env in trainer.envs]
            judge = WellFormed(trainer.policy, config, makers, trainer.limits)
            last.callback(judge.close)

        def look(step: int, learner: Learner) -> bool:
            done = WarmupStep(step + 1, losses[-1])
            if apart and (done.step % every == 0 or done.step == config.warmup_steps):
                loss = cloning.loss_on(learner, apart, config.warmup_on)
                done = replace(done, held_out_loss=loss)
                watcher.cloned(done.step, loss)
            learnt = False
            if judge and (done.step % config.warmup_check == 0 or done.step == config.warmup_steps):
                (found,) = parallel.gathered([judge.look(done.step)] if parallel.rank() == 0 else [])
                learnt = found.learnt
                done = replace(done, readable=found.readable, random_readable=found.random_readable)
                shares = (
                    f"{found.readable:.1%} of sampled episodes are readable, of random play "
                    f"{found.random_readable:.1%}"
                )
                if learnt:
                    watcher.stage(f"the format is learnt, after step {done.step}: {shares}")
                elif done.step == config.warmup_steps:
                    watcher.warned(f"the warm-up ends before the format is learnt: {shares}. {WARM_LONGER}")
            watcher.warmed(step, config.warmup_steps, done.loss)
            if parallel.rank() == 0:
                trainer.folder.append_warmup(done)
            return learnt

        def make() -> None:
            warm_up(
                trainer.policy,
                [env.maker for env in trainer.envs],
                seed=config.seed,
                steps=config.warmup_steps,
                batch=config.warmup_batch,
                lr=config.warmup_lr,
                max_grad_norm=config.max_grad_norm,
                on=config.warmup_on,
                pass_tokens=config.pass_tokens,
                demos=demos,
                on_step=lambda step, loss: losses.append(loss),
                look=look,
            )

        watcher.stage(f"warm-up: {'on random play' if demos is None else 'on demonstrations'}")
        elsewhere = 0.0
        if warm_ups is None:
            make()
        else:
            began = time.process_time()
            elsewhere = warm_ups.take(config, trainer.policy, make) - (time.process_time() - began)
            trainer.learner.publish(0)
    trainer.learner.take_over()
    return max(0.0, elsewhere)


@contextmanager
def demonstrations(config: TrainConfig) -> Iterator[tuple[Sequence[Episode] | None, Sequence[Episode]]]:
    """Open what the warm-up clones, None where it is random play, and the demonstrations kept apart.

    Raises:
        StoreError: where there is no such store. BadArgument: where it is empty, or cannot be divided.
    """
    if config.demos is None:
        yield None, ()
        return
    with EpisodeStore(config.demos, read_only=True) as store:
        if not len(store):
            raise BadArgument(NO_DEMONSTRATIONS)
        yield (
            cloning.split(store, config.demos_held_out, config.seed) if config.demos_held_out else (store, ())
        )


def finish(trainer: Trainer) -> dict[str, Any]:
    """Measure the trained policy, sampled and greedy, and write the summary.

    Where other weights did better on held-out instances these are measured too, on the final table's own.
    """
    config, watcher = trainer.config, trainer.watcher
    began, began_cpu = time.perf_counter(), time.process_time()
    watcher.stage("measuring after training")
    take_trained_figures(trainer, "after", "greedy")
    chosen = best(trainer.evaluations)
    if chosen is not None and chosen.iteration != trainer.iteration:
        watcher.stage(f"measuring the best weights, those of iteration {chosen.iteration}")
        file = trainer.folder.best
        load_weights(trainer.policy, checkpoint.load(file), str(file))
        trainer.learner.publish(chosen.iteration)
        take_trained_figures(trainer, "best", "best_greedy")
    summary = {
        **trainer.figures,
        **({"warmup": asdict(steps[-1])} if (steps := trainer.folder.warmed()) else {}),
        **({} if chosen is None else {"held_out": _held_out(trainer, chosen)}),
        "env": config.title,
        "model": config.model,
        "algorithm": config.algorithm if config.iterations else "cloning",
        "gamma": config.gamma,
        "episodes": trainer.iteration * config.batch,
        "stopped_early": trainer.early_end,
        "cpu_s": trainer.cpu_s + time.process_time() - began_cpu,
        "wall_s": trainer.wall_s + time.perf_counter() - began,
        "seed": config.seed,
    }
    if parallel.rank() == 0:
        trainer.folder.write(trainer.folder.summary, summary)
    return summary


def _held_out(trainer: Trainer, chosen: Evaluation) -> dict[str, Any]:
    """Return what the summary says of held-out evaluations."""
    return {
        "kind": chosen.held_out,
        "instances": chosen.instances,
        "temperature": chosen.temperature,
        "best_iteration": chosen.iteration,
        "best": bounds(chosen.score),
        "last_iteration": trainer.evaluations[-1].iteration,
        "last": bounds(trainer.evaluations[-1].score),
    }


def take_trained_figures(trainer: Trainer, sampled: str, greedy: str) -> None:
    """Measure the policy's present weights, sampled and greedy, under these names."""
    take_figures(trainer, sampled, trainer.policy.agent, trainer.config.eval_episodes)
    trainer.policy.temper(0.0)
    take_figures(trainer, greedy, trainer.policy.agent, 0)
    trainer.policy.temper(trainer.config.temperature)


def take_figures(trainer: Trainer, name: str, agent: Agent, episodes: int) -> None:
    """Measure an agent on about `episodes` episodes; 0: on each instance once, an agent without chance.

    In each of several environments, and against each opponent, by itself.

    Raises:
        BadArgument: for a stage of a curriculum that does not say what success is.
    """
    contests = trainer.contests
    for contest in contests:
        if name == "optimum" and not contest.solvable:
            continue
        others = [trainer.opponent(each) for each in contest.against]
        measured = required(contest.measure(agent, others, episodes))
        if trainer.config.curriculum and measured.success is None:
            raise BadArgument(f"a curriculum goes by success, and {contest.label} does not say what it is.")
        if len(contests) == 1 and not contest.against:
            trainer.figures[name] = measured.to_json()
            trainer.watcher.measured(name, measured)
            continue
        by_label = trainer.figures.setdefault("environments", {})
        by_label.setdefault(contest.label, {})[name] = measured.to_json()
        trainer.watcher.measured(name, measured, contest.label)


def tell_figures(trainer: Trainer) -> None:
    """Tell the watcher the figures that a run that goes on has taken before."""
    for name, figures in trainer.figures.items():
        if name != "environments":
            trainer.watcher.measured(name, EnvResult.from_json(figures))
    for label, found in trainer.figures.get("environments", {}).items():
        for name, figures in found.items():
            trainer.watcher.measured(name, EnvResult.from_json(figures), label)
