"""REINFORCE, ReBN and GRPO: one loop, for the tiny model and for any causal language model.

An iteration plays whole episodes with the present weights, turns their returns into advantages
(`gem.estimators`; here lies the only difference between the algorithms), and takes a few clipped steps.
Left out: a critic (PPO has its own file), and importance weights for stale samples, since every batch is
sampled by the weights that it trains.

In a game of several seats the policy holds them all, and each seat is trained on its own turns: its returns
are compared with those of the same seat alone.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gem import seeding
from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, SchemaMismatch
from gem.estimators import has_signal, turn_advantages
from gem.evals import Instances, Result, evaluate, find_instances, required, success_rate
from gem.record import Episode, Limits, StopReason
from gem.registry import Maker, spec
from gem.rollout import EpisodeStore, Job, Runner
from gem.train import checkpoint
from gem.train.batch import collate, minibatches, weigh
from gem.train.config import TrainConfig
from gem.train.losses import clipped_surrogate
from gem.train.policy import Policy, make_policy
from gem.train.run import Metrics, RunFolder
from gem.train.warmup import warm_up
from gem.train.watcher import Watcher

NAN = float("nan")


@dataclass
class Trainer:
    """A run: its config, its folder, and the state that a checkpoint holds."""

    config: TrainConfig
    folder: RunFolder
    policy: Policy
    optimiser: torch.optim.Optimizer
    watcher: Watcher
    iteration: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    save_s: float = NAN
    reference: Policy | None = None
    figures: dict[str, Any] = field(default_factory=dict)

    # -- the loop

    def train(self) -> None:
        """Train from where the run stands to its end, with a checkpoint after each iteration."""
        self.watcher.stage("training")
        while self.iteration < self.config.iterations:
            began, began_cpu = time.perf_counter(), time.process_time()
            episodes = self.sample()
            sampled = time.perf_counter()
            losses, tokens = self.learn(episodes)
            updated = time.perf_counter()
            self.iteration += 1
            self.policy.updated(self.iteration)
            self.cpu_s += time.process_time() - began_cpu
            self.wall_s += time.perf_counter() - began
            metrics = self.summarise(episodes, losses, tokens, sampled - began, updated - sampled)
            # In this order: a line that the checkpoint does not hold is dropped on resuming and made anew.
            self.folder.append(metrics)
            self.save()
            self.watcher.iterated(metrics, self.config)

    def sample(self) -> list[Episode]:
        """Play one iteration's episodes."""
        config, maker = self.config, self.maker
        size = config.group if config.grouped else 1
        jobs = [
            Job(
                maker,
                seeding.derive(config.seed, "episode", self.iteration, i // size),
                str(i // size),
                i % size,
                key=f"{self.iteration}-{i // size}",
            )
            for i in range(config.batch)
        ]
        return self.runner.play(jobs)

    def learn(self, episodes: Sequence[Episode]) -> tuple[list[tuple[float, ...]], int]:
        """Take the clipped steps on one iteration's episodes; return each step's figures, and the tokens."""
        config = self.config
        if broken := [episode for episode in episodes if not episode.scored]:
            self.watcher.warned(
                f"iteration {self.iteration + 1}: {len(broken)} of {len(episodes)} episodes have no verdict "
                f"and are left out; the first: {broken[0].error or broken[0].stop}"
            )
        seats = dict.fromkeys(seat for episode in episodes for seat in episode.seats)
        advantages = {seat: turn_advantages(episodes, config.algorithm, config.gamma, seat) for seat in seats}
        if not any(map(has_signal, advantages.values())):
            if len(broken) < len(episodes):
                self.watcher.warned(
                    f"iteration {self.iteration + 1}: no return differs from another, so there is no "
                    "gradient. A policy that always fails does not recover by itself: warm up longer, or "
                    "make the task easier."
                )
            return [], 0
        weighted = [row for seat, values in advantages.items() for row in weigh(episodes, values, seat)]
        left = 1 - self.iteration / config.iterations
        for group in self.optimiser.param_groups:
            group["lr"] = config.lr * (config.lr_end + (1 - config.lr_end) * left)
        order = torch.Generator().manual_seed(seeding.derive(config.seed, "minibatches", self.iteration))
        figures: list[tuple[float, ...]] = []
        tokens = 0
        for _ in range(config.epochs):
            for rows in minibatches(weighted, config.minibatch, order):
                batch = collate(rows, self.policy.pad)
                logp_NV = self.policy.distributions(batch)
                with torch.no_grad():
                    reference_NV = self.reference.distributions(batch) if self.reference else None
                step = clipped_surrogate(
                    logp_NV,
                    batch.target,
                    batch.old_logprob,
                    batch.advantage,
                    batch.turns,
                    clip=config.clip,
                    entropy_weight=config.entropy * left,
                    kl_weight=config.kl * left,
                    reference_NV=reference_NV,
                )
                self.optimiser.zero_grad()
                step.loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), config.max_grad_norm)
                self.optimiser.step()
                figures.append((float(step.loss.detach()), *step[1:]))
                tokens += len(batch.prefix) + batch.ids.numel()
        return figures, tokens

    # -- around it

    @functools.cached_property
    def runner(self) -> Runner:
        """Plays the run's episodes, and stores them."""
        return Runner(
            self.policy.agent,
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
        return EpisodeStore(self.folder.episodes, tokens=self.config.store == "tokens")

    def close(self) -> None:
        """Close what plays and what stores."""
        self.runner.close()
        if self.store is not None:
            self.store.close()

    @property
    def maker(self) -> Maker:
        """The recipe of the environment."""
        return Maker(self.config.env, self.config.env_kwargs)

    @functools.cached_property
    def instances(self) -> Instances:
        """The instances that every figure of the run is measured on."""
        return find_instances(self.maker, self.config.seed)

    @functools.cached_property
    def budget(self) -> int | None:
        """Turns that an episode may take at most: a lost one counts as one more. None where nobody says."""
        with self.maker() as env:
            stated = env.spec.max_turns if env.spec else None
        known = [turns for turns in (stated, self.config.max_turns) if turns is not None]
        return min(known, default=None)

    @property
    def limits(self) -> Limits:
        """The limits from outside."""
        return Limits(turns=self.config.max_turns, turn_tokens=self.config.max_tokens)

    def summarise(
        self,
        episodes: Sequence[Episode],
        steps: Sequence[tuple[float, ...]],
        tokens: int,
        sample_s: float,
        update_s: float,
    ) -> Metrics:
        """Return the figures of an iteration."""
        scored = [episode for episode in episodes if episode.scored]
        count = len(scored) or NAN
        loss, entropy, clipped, step_kl, kl = (
            [sum(column) / len(steps) for column in zip(*steps, strict=True)] if steps else [NAN] * 5
        )
        return Metrics(
            iteration=self.iteration,
            episodes=self.iteration * self.config.batch,
            success=success_rate(episodes),
            reward=sum(episode.reward() for episode in scored) / count,
            turns=sum(len(episode.turns) for episode in scored) / count,
            unreadable=sum(episode.stop is StopReason.UNREADABLE for episode in scored) / count,
            no_verdict=len(episodes) - len(scored),
            loss=loss,
            entropy=entropy,
            clipped=clipped,
            step_kl=step_kl,
            kl=kl,
            lr=self.optimiser.param_groups[0]["lr"],
            tokens_sampled=sum(len(turn.token_ids) for episode in episodes for turn in episode.turns),
            tokens_trained=tokens,
            sample_s=sample_s,
            update_s=update_s,
            save_s=self.save_s,
            cpu_s=self.cpu_s,
        )

    def save(self) -> None:
        """Write the checkpoint."""
        began = time.perf_counter()
        state = {
            "iteration": self.iteration,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "figures": self.figures,
            **weights(self.policy),
            "optimiser": self.optimiser.state_dict(),
        }
        checkpoint.save(self.folder.checkpoint, state)
        self.save_s = time.perf_counter() - began

    def restore(self) -> None:
        """Become what the checkpoint holds.

        Raises:
            SchemaMismatch: for a checkpoint of another vocabulary or shape of model.
        """
        state = checkpoint.load(self.folder.checkpoint)
        load_weights(self.policy, state, str(self.folder.checkpoint))
        self.optimiser.load_state_dict(state["optimiser"])
        self.iteration, self.figures = state["iteration"], state["figures"]
        self.cpu_s, self.wall_s = state["cpu_s"], state["wall_s"]
        self.policy.updated(self.iteration)
        self.folder.rewind(self.iteration)
        if self.config.kl:
            self.reference = stored_policy(self.config, self.folder.reference)

    def hold_reference(self) -> None:
        """Take the present weights as the reference that training is held to, and write them once."""
        if self.config.kl:
            checkpoint.save(self.folder.reference, weights(self.policy))
            self.reference = stored_policy(self.config, self.folder.reference)


def weights(policy: Policy) -> dict[str, Any]:
    """Return what load_weights() takes: the weights, and the vocabulary that they belong to."""
    return {"vocab_hash": policy.renderer.vocab_hash, "model": policy.model.state_dict()}


def load_weights(policy: Policy, state: dict[str, Any], where: str) -> None:
    """Give a policy the weights of a checkpoint.

    Raises:
        SchemaMismatch: when they belong to another vocabulary or shape of model.
    """
    if state["vocab_hash"] != policy.renderer.vocab_hash:
        raise SchemaMismatch(
            f"{where} belongs to vocabulary {state['vocab_hash']}, this one is {policy.renderer.vocab_hash}: "
            "its token ids mean other words here. Train anew, or use the version that wrote it."
        )
    try:
        policy.model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise SchemaMismatch(f"{where} holds another shape of model: {str(error).splitlines()[0]}") from error


def stored_policy(config: TrainConfig, file: Path) -> Policy:
    """Return a policy with the weights that a file holds.

    Raises:
        StoreError: when there is no such file. SchemaMismatch: when it belongs to another version.
    """
    policy = make_policy(config)
    load_weights(policy, checkpoint.load(file), str(file))
    return policy


def trained_agent(path: Path, temperature: float = 1.0) -> BaseAgent:
    """Return the agent that a run's folder holds, as of its newest checkpoint.

    Raises:
        StoreError: when there is no run. SchemaMismatch: when it belongs to another version.
    """
    folder = RunFolder(path)
    policy = stored_policy(folder.read_config(), folder.checkpoint)
    policy.temper(temperature)
    return policy.agent


def train(config: TrainConfig, *, resume: bool = False, watcher: Watcher | None = None) -> dict[str, Any]:
    """Carry out a run and return its summary, which also stands in the run's folder.

    A new run measures random play and the solver, warms up, measures, trains, and measures again. With
    `resume` the run goes on from its checkpoint, and is the run that it would have been.

    Raises:
        StoreError: when the folder holds a run already (or none, with `resume`), another trainer is at work
            in it, or it cannot be written.
        BadArgument: with `resume`, for another config than the run began with.
    """
    watcher = watcher or Watcher()
    trainer = make_trainer(config, watcher)
    folder = trainer.folder
    if resume and (changed := config.differences(folder.read_config())):
        raise BadArgument(
            f"the run in {config.out} began with another {', '.join(changed)}; a run goes on as it began."
        )
    with folder.held():
        if resume:
            trainer.restore()
            for name, figures in trainer.figures.items():
                watcher.measured(name, Result.from_json(figures))
        else:
            folder.begin(config)
            prepare(trainer)
            trainer.hold_reference()
            trainer.save()
        try:
            trainer.train()
        finally:
            trainer.close()
        return finish(trainer)


def make_trainer(config: TrainConfig, watcher: Watcher) -> Trainer:
    """Return a trainer with new weights."""
    torch.set_num_threads(config.threads)
    policy = make_policy(config)
    optimiser = torch.optim.AdamW(
        policy.model.parameters(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    return Trainer(config, RunFolder(config.out), policy, optimiser, watcher)


def prepare(trainer: Trainer) -> None:
    """Measure random play and the solver, warm the model up, and measure it before any RL."""
    config, watcher = trainer.config, trainer.watcher
    began, began_cpu = time.perf_counter(), time.process_time()
    watcher.stage("measuring random play and the solver")
    take_figures(trainer, "random", RandomAgent(), config.eval_episodes)
    if spec(config.env).solver != "none":
        take_figures(trainer, "optimum", SolverAgent(), 0)
    trainer.policy.updated(0)
    if config.warmup_steps:
        warm(trainer)
    watcher.stage("measuring before any RL")
    take_figures(trainer, "before", trainer.policy.agent, config.eval_episodes)
    trainer.cpu_s = time.process_time() - began_cpu
    trainer.wall_s = time.perf_counter() - began


def warm(trainer: Trainer) -> None:
    """Warm the model up on demonstrations, or on random play for the format alone."""
    config, watcher = trainer.config, trainer.watcher
    demos = None if config.demos is None else EpisodeStore(config.demos, read_only=True)
    watcher.stage(f"warm-up: {'the format, on random play' if demos is None else 'on demonstrations'}")
    warm_up(
        trainer.policy,
        trainer.maker,
        seed=config.seed,
        steps=config.warmup_steps,
        batch=config.warmup_batch,
        lr=config.warmup_lr,
        max_grad_norm=config.max_grad_norm,
        demos=demos,
        on_step=lambda step, loss: watcher.warmed(step, config.warmup_steps, loss),
    )
    if demos is not None:
        demos.close()


def finish(trainer: Trainer) -> dict[str, Any]:
    """Measure the trained policy, sampled and greedy, and write the summary."""
    config, watcher = trainer.config, trainer.watcher
    began, began_cpu = time.perf_counter(), time.process_time()
    watcher.stage("measuring after training")
    take_figures(trainer, "after", trainer.policy.agent, config.eval_episodes)
    trainer.policy.temper(0.0)
    take_figures(trainer, "greedy", trainer.policy.agent, 0)
    trainer.policy.temper(config.temperature)
    summary = {
        **trainer.figures,
        "env": config.env,
        "algorithm": config.algorithm,
        "gamma": config.gamma,
        "episodes": trainer.iteration * config.batch,
        "cpu_s": trainer.cpu_s + time.process_time() - began_cpu,
        "wall_s": trainer.wall_s + time.perf_counter() - began,
        "seed": config.seed,
    }
    trainer.folder.write(trainer.folder.summary, summary)
    return summary


def take_figures(trainer: Trainer, name: str, agent: Any, episodes: int) -> None:
    """Measure an agent on about `episodes` episodes; 0: on each instance once, an agent without chance."""
    config = trainer.config
    instances = trainer.instances
    samples = max(1, -(-episodes // len(instances.seeds)))
    measured = evaluate(
        agent,
        trainer.maker,
        episodes=samples * len(instances.seeds),
        instances=instances,
        budget=trainer.budget,
        limits=trainer.limits,
        exactly=episodes == 0 and instances.complete,
        concurrency=config.batch,
        host=config.host,
    )
    required(measured)
    trainer.figures[name] = measured.to_json()
    trainer.watcher.measured(name, measured)
