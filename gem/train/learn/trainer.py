"""The training loop, and the state that a checkpoint holds.

An iteration plays whole episodes with the current weights (`gem.train.learn.sampling`) and gives them to the
learn step (`gem.train.learn.policy_gradient`).
"""

from __future__ import annotations

import functools
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gem.errors import BadArgument
from gem.record import Episode, StopReason
from gem.train.learn import checkpoint, parallel, policy_gradient
from gem.train.learn.learner import GradientNotFinite, load_weights, weights
from gem.train.learn.policy import Base, twin
from gem.train.learn.sampling import Sampling
from gem.train.learn.steps import Progress, Steps
from gem.train.report.alarms import alarms
from gem.train.report.callbacks import Callback, ask_callbacks
from gem.train.report.run_folder import Evaluation, Metrics
from gem.train.report.selection import best, enough
from gem.train.report.watcher import Watcher
from gem.train.tasks.demonstrations import cloned_seeds
from gem.train.tasks.held_out import HeldOut
from gem.train.tasks.schedule import Slot, figures_of, measure_success
from gem.train.tasks.watched_seeds import WatchedSeeds
from gem.waiting import name_wait

NAN = float("nan")


@dataclass
class Trainer(Sampling):
    """A training run: its sampling, its learner, its figures and its watcher."""

    watcher: Watcher = field(default_factory=Watcher)
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    save_s: float = NAN
    figures: dict[str, Any] = field(default_factory=dict)
    history: list[Metrics] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    early_end: str | None = None
    """Why the run ends here although more iterations were planned; None: it goes on."""
    stopped: str | None = None
    """Why a callback ended the run."""

    # -- the loop

    def train(self) -> None:
        """Train from the present iteration to the end, planned or early, with checkpoints on the way."""
        self.watch()
        self.watcher.saved(self.iteration)
        if not self.ended:
            self.watcher.stage("training")
        while not self.ended:
            with self.count_time():
                if not (self.config.staleness or self.config.sampler):
                    self.learner.publish(self.iteration)  # a resumed run has no cached prompts either
                began = time.perf_counter()
                with name_wait(f"the episodes of iteration {self.iteration + 1}"):
                    episodes = self.next_episodes()
                sampled = time.perf_counter()
                self.ask("on_episodes", episodes, self.iteration + 1)
                with name_wait(f"the update of iteration {self.iteration + 1}"):
                    steps = self.learn(episodes)
                updated = time.perf_counter()
                slots = self.slots_of(episodes)
                self.iteration += 1
                begins = self.schedule.take_in(self.iteration - 1, slots, episodes)
                if self.config.pool and self.iteration % self.config.pool_every == 0:
                    self.take_snapshot()
                if not self.config.staleness:
                    self.learner.publish(self.iteration)
            metrics = self.summarise(episodes, steps, sampled - began, updated - sampled, slots)
            # In this order: a line that the checkpoint does not hold is dropped on resuming and made anew.
            if parallel.rank() == 0:
                self.folder.append(metrics)
            self.history.append(metrics)
            for alarm in alarms(self.history, self.config):
                self.watcher.warned(f"iteration {alarm.iteration}: {alarm.text}")
            if begins is not None and self.iteration < self.config.iterations:
                self.watcher.advanced(begins.name, self.iteration + 1)
            self.evaluate()
            self.ask("on_iteration", metrics)
            self.evaluate()  # where a callback has just ended the run
            saves = self.iteration % self.config.save_every == 0 or self.ended
            if saves:
                self.save()
                self.watch()
            self.watcher.iterated(metrics, self.config)
            if saves:
                self.watcher.saved(self.iteration)
        if self.early_end is not None:
            self.watcher.stage(f"stopped early at iteration {self.iteration}: {self.early_end}")

    @contextmanager
    def count_time(self) -> Iterator[None]:
        """Add the CPU seconds and the seconds of this block to those of the run."""
        began, began_cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu_s += time.process_time() - began_cpu
        self.wall_s += time.perf_counter() - began

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        return self.iteration >= self.config.iterations or self.early_end is not None

    @property
    def begin(self) -> int:
        """The iteration at which this phase of the run begins."""
        return self.folder.first_iteration

    @property
    def progress(self) -> Progress:
        """The finished and the planned iterations of the run."""
        return Progress(self.iteration, self.config.iterations, self.begin)

    def learn(self, episodes: Sequence[Episode]) -> Steps:
        """Take the iteration's steps; without positions where there is nothing to learn from its episodes.

        Raises:
            BadArgument: for a gradient that is not finite; the checkpoint stays as it was.
        """
        if broken := [episode for episode in episodes if not episode.scored]:
            self.watcher.warned(
                f"iteration {self.iteration + 1}: {len(broken)} of {len(episodes)} episodes have no verdict "
                f"and are left out; the first: {broken[0].error or broken[0].stop}"
            )
        given = self.learner, episodes, self.config, self.progress, self.slots_of(episodes)
        assembled = {
            part for part, env in enumerate(self.envs) if self.learner.critic and env.assembles_history
        }
        try:
            steps = policy_gradient.learn(*given, assembled)
        except GradientNotFinite as error:
            raise BadArgument(
                f"iteration {self.iteration + 1}: {error}. {self._explain_gradient()}"
            ) from error
        if steps.gaps:
            self.watcher.warned(
                f"iteration {self.iteration + 1}: the reward gave no verdict on {len(steps.gaps)} of "
                f"{len(episodes)} episodes, which are left out; the first: {next(iter(steps.gaps.values()))}"
            )
        return steps

    def _explain_gradient(self) -> str:
        """Return how a run goes on whose gradient is not finite; the same settings come to the same end."""
        config, changes, own = self.config, ["a lower --lr"], ""
        if self.learner.reference is not None and config.kl_estimator == "k3" and not config.kl_reward:
            changes.append("another --kl-estimator (k3 has an exponential)")
        if config.algorithm_value.loss is not None:
            own = (
                f"The loss of {config.algorithm} may have a root, a logarithm or a division at 0: mend it "
                "and --resume. "
            )
        begun = self.folder.path.parents[1] if self.folder.phase_name else self.folder.path
        return (
            f"No step was taken with it, and the last checkpoint in {self.folder.path} is whole. {own}"
            f"Go on from there with {' or '.join(changes)}: gem-gym train --out "
            f"{shlex.quote(str(begun))} --resume --phase NAME --lr {config.lr / 2:g}"
        )

    def watch(self) -> None:
        """Play the watched seeds, at the checkpoints where that is due.

        The checkpoint is written first. A run that is resumed there calls this again: missing episodes are
        then played with the same weights.
        """
        if self.watched is not None and (self.ended or self.watched.due(self.iteration)):
            self.wait_for_samples()
            with name_wait("the episodes of the watched seeds"):
                self.watched.play(self.iteration)

    def evaluate(self) -> None:
        """Measure the policy on held-out instances, once at the iterations where that is due.

        The checkpoint is written after it, so the folder holds every evaluation that a checkpoint follows.
        The best weights get their name with the checkpoint: those of an evaluation that an interruption lost
        do not replace others.
        """
        every = self.config.eval_every
        if not every or (self.iteration % every and self.iteration != self.begin and not self.ended):
            return
        if self.evaluations and self.evaluations[-1].iteration == self.iteration:
            return
        with self.count_time(), name_wait("the figures on held-out instances"):
            self.wait_for_samples()
            evaluation = parallel.from_first(lambda: self.held_out.measure(self.iteration))
            self.evaluations.append(evaluation)
            if parallel.rank() == 0:
                self.folder.append_evaluation(evaluation)
                if best(self.evaluations) is evaluation:
                    checkpoint.save(
                        self.folder.next_best, {**weights(self.policy), "iteration": self.iteration}
                    )
            self.watcher.evaluated(evaluation)
            self.ask("on_evaluation", evaluation)
            if evaluation.score is None:
                lost = ", ".join(name for name, part in evaluation.parts.items() if part.score is None)
                self.watcher.warned(
                    f"iteration {self.iteration}: no held-out episode{f' of {lost}' if lost else ''} has a "
                    f"verdict; the first: {evaluation.result.first_error}"
                )
            self._weigh_end()

    def _weigh_end(self) -> None:
        planned = self.iteration >= self.config.iterations
        self.early_end = None if planned else self.stopped or enough(self.evaluations, self.config)

    def ask(self, hook: str, *args: Any) -> None:
        """Call a hook of the callbacks, in the first process; a reason that one returns ends the run."""
        if self.callbacks:
            reason = parallel.from_first(lambda: ask_callbacks(self.callbacks, hook, *args))
            self.stopped = self.stopped or reason
            self._weigh_end()

    def summarise(
        self,
        episodes: Sequence[Episode],
        steps: Steps,
        sample_s: float,
        update_s: float,
        slots: Sequence[Slot] | None = None,
    ) -> Metrics:
        """Return the metrics of an iteration; `slots`: one per episode, None: there is one environment."""
        slots = slots or [Slot()] * len(episodes)
        scored = [(slot, episode) for slot, episode in zip(slots, episodes, strict=True) if episode.scored]
        count = len(scored) or NAN
        answers = [len(turn.token_ids) for slot, episode in scored for turn in slot.turns(episode)]
        turns, tokens = len(answers), sum(answers)
        several = len(self.envs) > 1 or self.league is not None
        by_part, by_opponent = figures_of(self.config.parts, slots, episodes) if several else ({}, {})
        return Metrics(
            iteration=self.iteration,
            episodes=self.iteration * self.config.batch,
            success=measure_success(scored),
            reward=sum(slot.reward(episode) for slot, episode in scored) / count,
            turns=turns / count,
            unreadable=sum(slot.stop(episode) is StopReason.UNREADABLE for slot, episode in scored) / count,
            no_verdict=len(episodes) - len(scored) + len(steps.gaps),
            loss=steps.loss,
            entropy=steps.entropy,
            clipped=steps.clipped,
            step_kl=steps.step_kl,
            kl=steps.kl,
            logprob_gap=steps.gap,
            value_error=steps.value_error,
            lr=self.config.lr_at(self.iteration - 1, self.begin),
            tokens_sampled=sum(slot.tokens(episode) for slot, episode in zip(slots, episodes, strict=True)),
            tokens_trained=steps.positions,
            sample_s=sample_s,
            update_s=update_s,
            save_s=self.save_s,
            cpu_s=self.cpu_s,
            grad_norm=steps.grad_norm,
            reward_std=steps.reward_std,
            flat_groups=steps.flat_groups,
            answer_tokens=tokens / turns if turns else NAN,
            episode_tokens=tokens / count,
            explained_variance=steps.explained_variance,
            selected=steps.selected,
            environments=by_part,
            opponents=by_opponent,
            stage=self._stage_of(slots),
            phase=self.folder.phase_name,
        )

    def _stage_of(self, slots: Sequence[Slot]) -> str:
        """Return the name of an iteration's stage: the last of those that it has tasks of."""
        if self.schedule.curriculum is None:
            return ""
        return self.envs[max(slot.part for slot in slots)].name

    # -- its state

    def save(self) -> None:
        """Write the checkpoint."""
        began = time.perf_counter()
        state = {
            "iteration": self.iteration,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "figures": self.figures,
            "stopped": self.stopped,
            **self.learner.state(),
            "sampler": None if self.sampler is self.policy else weights(self.sampler)["model"],
            "schedule": self.schedule.state(),
        }
        if parallel.rank() == 0:
            with name_wait(f"{self.folder.checkpoint} to be written"):
                checkpoint.save(self.folder.checkpoint, state)
            self.folder.keep_best()
            if self.league is not None:  # now no checkpoint needs the others
                self.opponents.prune({*self.league.members, *self.schedule.in_use()})
        self.learner.forget()
        self.save_s = time.perf_counter() - began

    def restore(self) -> None:
        """Restore the state that the checkpoint holds.

        Raises:
            SchemaMismatch: for a checkpoint of another vocabulary or another shape of the model, or of a
                version that kept less.
        """
        state = checkpoint.load(self.folder.checkpoint)
        with checkpoint.explain_damage(self.folder.checkpoint):
            self._take_state(state)
        if parallel.rank() == 0:
            if self.folder.next_best.exists():  # of this iteration, or of one that is lost
                if checkpoint.load(self.folder.next_best)["iteration"] <= self.iteration:
                    self.folder.keep_best()
                else:
                    self.folder.next_best.unlink()
            self.folder.rewind(self.iteration)
        self.rewind(self.iteration)
        parallel.wait()
        self.history, self.evaluations = self.folder.history(), self.folder.evaluated()
        self._weigh_end()
        self._take_reference()

    def _take_state(self, state: dict[str, Any]) -> None:
        """Take over the state of a checkpoint.

        Raises:
            KeyError: for a part that it does not have.
        """
        self.learner.load(state, str(self.folder.checkpoint))
        self.iteration, self.figures = state["iteration"], state["figures"]
        self.cpu_s, self.wall_s = state["cpu_s"], state["wall_s"]
        self.stopped = state.get("stopped")
        if "schedule" in state:  # a run of an earlier version has none, and needs none
            self.schedule.load(state["schedule"])
        self.learner.publish(self.iteration)
        if self.sampler is not self.policy:
            load_weights(self.sampler, {**state, "model": state["sampler"]}, str(self.folder.checkpoint))
            self.sampler.publish(max(0, self.iteration - 1))

    def hold_reference(self) -> None:
        """Take the current weights as the reference for the KL divergence, and write them once."""
        if self.config.kl and self.config.iterations:
            if parallel.rank() == 0:
                checkpoint.save(self.folder.reference, weights(self.policy))
            parallel.wait()
            self._take_reference()

    def _take_reference(self) -> None:
        if not self.config.kl or not self.config.iterations:
            return
        if self.config.lora_rank and not (self.config.warmup_steps or self.config.start_from or self.begin):
            self.learner.reference = Base(self.policy)  # type: ignore[arg-type]
            return
        self.learner.reference = twin(self.policy)
        load_weights(
            self.learner.reference, checkpoint.load(self.folder.reference), str(self.folder.reference)
        )

    # -- evaluation

    @functools.cached_property
    def held_out(self) -> HeldOut:
        """The evaluation on held-out instances."""
        tasks = self.config.batch // (self.config.group if self.config.grouped else 1)

        def draw_seeds() -> Iterator[int]:
            for iteration, task in product(range(self.config.iterations), range(tasks)):
                yield self.seed_of(iteration, task)  # a job would fix the plan of its iteration
            yield from cloned_seeds(self.config)

        return HeldOut(self.policy, self.config, self.envs, draw_seeds)

    @functools.cached_property
    def watched(self) -> WatchedSeeds | None:
        """The player of the watched seeds; None where there are none, or another process plays them."""
        if not self.config.watch or parallel.rank():
            return None
        return WatchedSeeds(self.policy, self.config, self.envs, self.folder.watched)

    def close(self) -> None:
        """Close the agents, the stores and the evaluations."""
        super().close()
        if self.watched is not None:
            self.watched.close()
        if "held_out" in vars(self):
            self.held_out.close()
