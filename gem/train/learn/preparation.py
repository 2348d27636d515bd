"""The part of a run before RL: measure random play and the solver, warm the model up, measure it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.evals import EnvResult
from gem.record import Episode
from gem.train.config import TrainConfig
from gem.train.learn import parallel
from gem.train.learn.learner import Learner
from gem.train.learn.trainer import Trainer
from gem.train.learn.warmup import warm_up
from gem.train.learn.warmup_cache import WarmUps
from gem.train.report.figures import take_figures, take_policy_figures
from gem.train.report.run_folder import WarmupStep
from gem.train.tasks.demonstrations import loss_on, open_demonstrations
from gem.train.tasks.format_check import FormatCheck, is_below
from gem.train.tasks.played_env import PlayedEnv
from gem.waiting import name_wait

TIMES = 20
"""How often in a warm-up the loss on held-out demonstrations is measured."""

WARM_LONGER = "RL begins before the format is learnt; take more --warmup-steps, or another --warmup-lr."


def prepare(trainer: Trainer, warm_ups: WarmUps | None = None) -> None:
    """Measure random play and the solver, warm the model up, and measure it before any RL."""
    config, watcher = trainer.config, trainer.watcher
    with trainer.count_time():
        trainer.learner.publish(0)  # first: a server that is not there is said at once
        watcher.stage("measuring random play and the solver")
        take_figures(trainer, "random", RandomAgent(), config.eval_episodes)
        take_figures(trainer, "optimum", SolverAgent(), 0)
        if not config.iterations:
            watcher.stage("measuring before cloning")
            take_figures(trainer, "untrained", trainer.player, config.eval_episodes)
        played = played_in_warmup(config, trainer.envs)
        if lacking := [env.name for env in trainer.envs if env not in played] if config.warmup_steps else []:
            watcher.stage(f"no warm-up on random play of {', '.join(lacking)}: there is no random actor")
        warmed = bool(config.warmup_steps and played)
        if warmed:
            trainer.cpu_s += warm(trainer, warm_ups)
        if config.iterations:
            watcher.stage("measuring before any RL")
            take_policy_figures(trainer, "before", "before_greedy")
            if warmed:
                warn_below_random(trainer)


def played_in_warmup(config: TrainConfig, envs: Sequence[PlayedEnv]) -> list[PlayedEnv]:
    """Return the environments of a warm-up: on random play only those that have a random actor."""
    if config.demos is not None or config.warmup_by == "solver":
        return list(envs)
    return [env for env in envs if env.has_random_actor]


def warm(trainer: Trainer, warm_ups: WarmUps | None = None) -> float:
    """Warm the model up on demonstrations or random play; return CPU seconds spent by other processes."""
    config = trainer.config
    envs = played_in_warmup(config, trainer.envs)
    elsewhere = 0.0
    with (
        open_demonstrations(config) as (demos, apart),
        closing(WarmupMonitor(trainer, apart, envs)) as monitor,
    ):

        def make() -> None:
            with name_wait("a step of the warm-up"):
                make_steps()

        def make_steps() -> None:
            warm_up(
                trainer.policy,
                [env.maker for env in envs],
                seed=config.seed,
                steps=config.warmup_steps,
                batch=config.warmup_batch,
                lr=config.warmup_lr,
                max_grad_norm=config.max_grad_norm,
                on=config.warmup_on,
                pass_tokens=config.pass_tokens,
                actor=SolverAgent() if config.warmup_by == "solver" else None,
                demos=demos,
                on_step=monitor.store_loss,
                is_learnt=monitor.check,
                most=monitor.last,
            )

        played = {"random": "random play", "solver": "the solver's play"}[config.warmup_by]
        trainer.watcher.stage(f"warm-up: on {played if demos is None else 'demonstrations'}")
        if warm_ups is None:
            make()
        else:
            began = time.process_time()
            elsewhere = warm_ups.take(config, trainer.policy, make) - (time.process_time() - began)
            trainer.learner.publish(0)
    trainer.learner.take_over()
    return max(0.0, elsewhere)


class WarmupMonitor:
    """A monitor of a warm-up: it checks what is learnt after each step, records it, and ends the warm-up."""

    def __init__(self, trainer: Trainer, apart: Sequence[Episode], envs: Sequence[PlayedEnv]) -> None:
        """Check the trainer's policy in `envs`; `apart` are the held-out demonstrations."""
        self.trainer, self.config, self.apart = trainer, trainer.config, apart
        self.last = self.config.warmup_most or self.config.warmup_steps
        self.loss = float("nan")
        self.format_check: FormatCheck | None = None
        if self.config.warmup_check:
            makers = [env.maker for env in envs]
            self.format_check = FormatCheck(trainer.policy, self.config, makers, trainer.limits)

    def store_loss(self, step: int, loss: float) -> None:
        """Store a step's loss."""
        self.loss = loss

    def check(self, step: int, learner: Learner) -> bool:
        """Check the learner after a step; return whether the format is learnt."""
        done = WarmupStep(step + 1, self.loss)
        every = max(1, self.config.warmup_steps // TIMES)
        if self.apart and (done.step % every == 0 or done.step == self.config.warmup_steps):
            loss = loss_on(learner, self.apart, self.config.warmup_on)
            done = replace(done, held_out_loss=loss)
            self.trainer.watcher.cloned(done.step, loss)
        learnt = False
        if self.format_check is not None and self._due(done.step):
            done, learnt = self._check_format(self.format_check, done)
        self.trainer.watcher.warmed(step, self.last, done.loss)
        if parallel.rank() == 0:
            self.trainer.folder.append_warmup(done)
        return learnt

    def _due(self, step: int) -> bool:
        """Return whether the format is checked after a step."""
        config = self.config
        if config.warmup_most and step < config.warmup_steps:
            return False
        return step % config.warmup_check == 0 or step in (config.warmup_steps, self.last)

    def _check_format(self, format_check: FormatCheck, done: WarmupStep) -> tuple[WarmupStep, bool]:
        """Return the step with the verdict, and whether the format is learnt."""
        verdict = parallel.from_first(lambda: format_check.check(done.step))
        shares = (
            f"{verdict.readable:.1%} of sampled episodes are readable, and "
            f"{verdict.random_readable:.1%} of random ones"
        )
        watcher = self.trainer.watcher
        if verdict.learnt:
            watcher.stage(f"the format is learnt, after step {done.step}: {shares}")
        elif done.step == self.last:
            watcher.warned(f"the warm-up ends before the format is learnt: {shares}. {WARM_LONGER}")
        return replace(
            done, readable=verdict.readable, random_readable=verdict.random_readable
        ), verdict.learnt

    def close(self) -> None:
        """Close the agent of the check."""
        if self.format_check is not None:
            self.format_check.close()


def warn_below_random(trainer: Trainer) -> None:
    """Warn where the warmed-up policy plays worse than random, beyond noise."""
    for label, figures in {"": trainer.figures, **trainer.figures.get("environments", {})}.items():
        if not {"before", "random"} <= figures.keys():
            continue
        before, random = (EnvResult.from_json(figures[name]) for name in ("before", "random"))
        if is_below(before, random):
            where = f"{label}: " if label else ""
            trainer.watcher.warned(
                f"{where}before any RL the policy plays worse than random, beyond noise; a longer warm-up "
                "(--warmup-steps) or one at another --warmup-lr may mend it."
            )
