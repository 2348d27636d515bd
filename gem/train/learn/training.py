"""A training run from beginning to end: `train` runs it, `trained_agent` returns the agent that it trained.

The loop is in `gem.train.learn.trainer`, what comes before it in `gem.train.learn.preparation`, the figures
of the final table in `gem.train.report.figures`.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch

from gem.agents.base import BaseAgent
from gem.agents.named import NAMES, named_agent, suggest_agent
from gem.agents.sampling import digest_weights
from gem.errors import BadArgument, StoreError
from gem.evals.results import bounds
from gem.graders.functions import ping_judges
from gem.hosts.ray_cluster import ray_module
from gem.naming import FORMS, changed_files
from gem.record import Agent
from gem.rollout.rewards import find_reward
from gem.train.config import TrainConfig
from gem.train.config.checks import check_algorithm
from gem.train.learn import checkpoint, parallel
from gem.train.learn.learner import Critic, Learner, Settings, check_shape, load_weights
from gem.train.learn.memory import Sizes, fit_sizes
from gem.train.learn.phases import begin_phase
from gem.train.learn.policy import Policy, make_policy, resolve_dtype
from gem.train.learn.preparation import prepare
from gem.train.learn.start_weights import check_source, load_source
from gem.train.learn.trainer import Trainer
from gem.train.learn.warmup_cache import WarmUps
from gem.train.report.callbacks import make_callbacks
from gem.train.report.figures import take_policy_figures, tell_figures
from gem.train.report.loggers import make_loggers
from gem.train.report.run_folder import Evaluation, RunFolder
from gem.train.report.selection import best
from gem.train.report.watcher import Watcher, Watchers
from gem.train.tasks.demonstrations import open_demonstrations
from gem.train.tasks.played_env import check_random_actor, check_solver, played_envs
from gem.waiting import name_wait


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    overwrite: bool = False,
    phase_of: Path | None = None,
    watcher: Watcher | None = None,
    warm_ups: WarmUps | None = None,
) -> dict[str, Any]:
    """Run a training run and return its summary, which is also written to the run's folder.

    A new run measures random play and the solver, warms up, measures, trains, and measures again. With
    `resume` the run continues from its checkpoint, as if it had not been interrupted. With `overwrite` it
    replaces a run in its folder: of that nothing is left. With `warm_ups` it
    shares its warm-up with other runs that have the same one. With `phase_of`, a run's folder, it is a later
    phase of that run, in a folder of its own (see `gem.train.learn.phases`).

    Raises:
        StoreError: when the folder holds a run already (or none, with `resume`), another trainer uses it, or
            it cannot be written.
        BadArgument: with `resume`, for another config than the run's, or with `overwrite` too; for settings
            that cannot be trained.
    """
    folder = RunFolder(config.out)
    if resume and overwrite:
        raise BadArgument("resume continues a run and overwrite replaces it; choose one.")
    if resume and config.dtype == "auto":
        config = replace(config, dtype=folder.read_config(trust=True).dtype)
    config = resolve_dtype(config)
    if resume and (changed := config.differences(folder.read_config(trust=True))):
        raise BadArgument(
            f"the run in {config.out} has another {', '.join(changed)}; a resumed run keeps its settings. "
            "With another out, phase_of=PATH goes on from it as a later phase (gem.train.learn.phases)."
        )
    if resume or phase_of is not None:
        file = (RunFolder(phase_of) if phase_of is not None else folder).checkpoint
        check_shape(config, checkpoint.load(file, mmap=True), str(file))
    if config.start_from and not resume and phase_of is None:
        check_source(config)
    callbacks = make_callbacks(config.callback)  # all before a model is loaded
    watchers = Watchers(watcher or Watcher(), make_loggers(config.log), callbacks)
    if config.reward:
        find_reward(config.reward, config.grouped)
    with name_wait(f"the model {config.model} and the environments to be made"):
        trainer = make_trainer(config, watchers)
    trainer.callbacks = callbacks
    first = parallel.rank() == 0
    if overwrite and first:
        folder.clear()
    if not first:
        trainer.watcher = Watcher()
    watcher = trainer.watcher
    with closing(trainer.player), folder.lock() if first else nullcontext(), closing(watcher):
        if resume:
            trainer.restore()
            watcher.begun(folder, config, trainer.history)
            tell_figures(trainer)
            for name in folder.changed_sources(config):
                watcher.warned(
                    f"the file of {name} changed since this run began; it goes on with the new one."
                )
            for change in changed_files(config.names):
                watcher.warned(change)
        elif phase_of is not None:
            begin_phase(trainer, config, RunFolder(phase_of))
        else:
            begin(trainer, config, warm_ups)
        try:
            trainer.train()
        finally:
            trainer.close()
        parallel.wait()
        if config.staleness:
            trainer.learner.publish(trainer.iteration)
        summary = finish(trainer)
        watcher.finished(summary)
        return summary


def make_trainer(config: TrainConfig, watcher: Watcher | None = None) -> Trainer:
    """Return a trainer with new weights.

    Raises:
        BadArgument: for a model, an environment or a wrapper that cannot be created. NoSolver: where a
            warm-up needs a solver or a random actor that no environment has.
    """
    config, folder = resolve_dtype(config), RunFolder(config.out)
    check_algorithm(config)
    if config.ray:
        ray_module()  # refused before training, which is long
    envs = played_envs(config)
    for env in envs:  # what cannot be made is refused before a model is loaded
        env.maker().close()
        ping_judges(env.maker.kwargs)
        env.check_pictures()
        if "solver" in config.opponent and len(env.seats) > 1 and not env.has_expert:
            raise BadArgument(f"{env.name} has no solver to play against; choose another opponent.")
        if "random" in config.opponent and len(env.seats) > 1 and not env.has_random_actor:
            raise BadArgument(f"{env.name} has no random actor to play against; choose another opponent.")
        check_solver(config, env.name, config.warmup_by != "solver" or env.has_solver)
    check_random_actor(config, envs)
    config = replace(config, device=parallel.begin(config.device))
    if config.threads:
        torch.set_num_threads(config.threads)
    policy = make_policy(config)
    critic = None
    if config.algorithm_value.critic:
        critic = Critic(policy.width, make_policy(config) if config.critic == "model" else None)
    sizes = Sizes(config.pass_tokens, 0) if config.model == "tiny" else fit_sizes(config, policy.model)
    config = replace(config, pass_tokens=sizes.pass_tokens)
    settings = Settings(
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        critic_lr=config.critic_lr,
        max_grad_norm=config.max_grad_norm,
        temperature=config.temperature,
        pass_tokens=sizes.pass_tokens,
        logits=sizes.logits,
    )
    learner = Learner(policy, settings, critic=critic)
    fixed = {name: fixed_opponent(name) for name in config.opponent}
    return Trainer(config, folder, learner, fixed, watcher=watcher or Watcher())


def fixed_opponent(name: str) -> Agent:
    """Return the agent of a name, or the trained agent in the folder of a run.

    Raises:
        BadArgument: where it is neither. MissingExtra: without the packages that the agent needs.
    """
    agent = named_agent(name)
    if agent is None and not Path(name).is_dir():
        hint = suggest_agent(name)
        raise BadArgument(
            f"no opponent is called {name!r}; accepted: {NAMES}, {FORMS}, or the folder of a run.{hint}"
        )
    return trained_agent(Path(name)) if agent is None else agent


def begin(trainer: Trainer, config: TrainConfig, warm_ups: WarmUps | None = None) -> None:
    """Prepare a new run up to the start of its loop; `config` is the requested one, which is stored."""
    folder = trainer.folder
    with open_demonstrations(config):  # what is wrong with them is said at once
        pass
    if parallel.rank() == 0:
        folder.begin(config)
    trainer.watcher.begun(folder, config, [])
    parallel.wait()
    if config.start_from:
        own = trainer.learner.critic and trainer.learner.critic.own
        for policy in (trainer.policy, own) if own else (trainer.policy,):
            load_source(policy, config)
        trainer.learner.take_over()
    prepare(trainer, warm_ups)
    trainer.hold_reference()
    if config.pool:
        trainer.take_snapshot()
    if config.staleness:
        trainer.refresh_sampler()
    trainer.evaluate()
    trainer.save()


def finish(trainer: Trainer) -> dict[str, Any]:
    """Measure the trained policy, sampled and greedy, and write the summary.

    Where earlier weights did better on held-out instances they are measured too, on the final table's
    instances.
    """
    config, watcher = trainer.config, trainer.watcher
    chosen = best(trainer.evaluations)
    with trainer.count_time():
        watcher.stage("measuring after training")
        take_policy_figures(trainer, "after", "greedy")
        if chosen is not None and chosen.iteration != trainer.iteration:
            watcher.stage(f"measuring the best weights, those of iteration {chosen.iteration}")
            file = trainer.folder.best
            load_weights(trainer.policy, checkpoint.load(file), str(file))
            trainer.learner.publish(chosen.iteration)
            take_policy_figures(trainer, "best", "best_greedy")
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
        "cpu_s": trainer.cpu_s,
        "wall_s": trainer.wall_s,
        "seed": config.seed,
    }
    if parallel.rank() == 0:
        trainer.folder.write(trainer.folder.summary, summary)
    return summary


def _held_out(trainer: Trainer, chosen: Evaluation) -> dict[str, Any]:
    """Return the part of the summary about held-out evaluations."""
    parts = chosen.parts
    return {
        "kind": chosen.held_out,
        "instances": chosen.instances,
        "temperature": chosen.temperature,
        "best_iteration": chosen.iteration,
        "best": bounds(chosen.score),
        **({"best_of": {name: bounds(part.score) for name, part in parts.items()}} if parts else {}),
        "last_iteration": trainer.evaluations[-1].iteration,
        "last": bounds(trainer.evaluations[-1].score),
    }


def trained_agent(
    path: Path, temperature: float | None = None, weights: Literal["last", "best"] = "last"
) -> BaseAgent:
    """Return the agent in a run's folder, with its newest weights or those of its best evaluation.

    It samples as the run did, at its temperature unless another is given.

    Raises:
        StoreError: when there is no run, or it has no best weights. SchemaMismatch: when it belongs to
            another version.
    """
    policy = load_policy(path, weights)
    if temperature is not None:
        policy.temper(temperature)
    policy.agent.weights = digest_weights(policy.model)
    return policy.agent


def _find_device(device: str) -> str:
    """Return the device of a run, or its nearest here: another GPU, else the CPU."""
    if not device.startswith("cuda"):
        return device
    if not torch.cuda.is_available():
        return "cpu"
    return device if (torch.device(device).index or 0) < torch.cuda.device_count() else "cuda"


def load_policy(
    path: Path, weights: Literal["last", "best"] = "last", *, device: str | None = None
) -> Policy:
    """Return the policy in a run's folder, on another `device` if one is given.

    Without one, the policy of a run on a GPU is on the CPU where there is no GPU. The other settings of
    training are not checked again: with this device they need not be such that one could train.

    Raises:
        StoreError, SchemaMismatch: see trained_agent().
    """
    folder = RunFolder(path).newest_phase
    config = folder.read_config(trust=True)  # of it, only the model is made
    file = folder.checkpoint if weights == "last" else folder.best
    if weights == "best" and not file.exists():
        raise StoreError(
            f"{path} has no best weights ({file.name}): only runs with held-out evaluations do "
            "(--eval-every). Name the folder alone for the last weights."
        )
    state = checkpoint.load(file)
    check_shape(config, state, str(file))
    device = device or _find_device(config.device)
    changed = {"sampler": "", "device": device}
    if config.device != device == "cpu":
        changed["attn_implementation"] = "auto"  # that of the run may need its GPU
    policy = make_policy(TrainConfig.make_unchecked(**{**vars(config), **changed}))
    load_weights(policy, state, str(file))  # not from the run's server, which may hold any weights
    return policy
