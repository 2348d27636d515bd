"""The optimiser steps of one iteration, shared by all algorithms: minibatches, the objective, its divisor.

An algorithm provides the targets of its turns; with a critic the objective has the loss of its values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import pstdev, pvariance

import torch
from torch import Tensor

from gem import seeding
from gem.errors import GemError
from gem.record import Episode
from gem.train.config import TrainConfig
from gem.train.config.value_types import ScheduleKind, share_left
from gem.train.learn.batch import REFERENCE_LOGPROB, Batch, Target, Weighted, minibatches
from gem.train.learn.learner import Learner, Objective, Outputs
from gem.train.learn.losses import clipped_surrogate, importance_weights, kl_estimate, own_loss, value_loss

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: its finished iterations, how many it has in all, and where its phase began."""

    iteration: int
    iterations: int
    begin: int = 0

    def decay(self, kind: ScheduleKind) -> float:
        """Return what is left of a value that falls from 1 to 0 over the phase."""
        return share_left(kind, (self.iteration - self.begin) / (self.iterations - self.begin))

    def kl(self, config: TrainConfig) -> float:
        """Return the present weight of the divergence."""
        return config.kl * self.decay(config.kl_schedule)

    def entropy(self, config: TrainConfig) -> float:
        """Return the present weight of the entropy bonus."""
        return config.entropy * self.decay(config.entropy_schedule)


@dataclass(slots=True)
class Steps:
    """Statistics of an iteration's steps: means over steps (`loss`) and over tokens (the others).

    `entropy`: of the policy, in nats. `clipped`: the share of tokens whose gradient was cut, NaN with a loss
    of one's own. `step_kl`: how far the policy moved from the one that sampled. `kl`: its divergence from the
    reference, NaN without one. `gap`: the mean absolute difference of log probabilities between sampler and
    learner, before the first step. `value_error`: a critic's mean squared error over turns. `positions`: how
    many were computed. `gaps`: why a reward of one's own gave an episode none, by the episode's id. For
    `grad_norm`, `explained_variance`, `selected`, `reward_std` and `flat_groups` see
    `gem.train.report.run_folder.Metrics`.
    """

    loss: float = NAN
    entropy: float = NAN
    clipped: float = NAN
    step_kl: float = NAN
    kl: float = NAN
    gap: float = NAN
    value_error: float = NAN
    grad_norm: float = NAN
    explained_variance: float = NAN
    selected: float = NAN
    reward_std: float = NAN
    flat_groups: float = NAN
    positions: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, GemError] = field(default_factory=dict)


def is_regularised(learner: Learner, config: TrainConfig, progress: Progress) -> bool:
    """Return whether an entropy bonus or a divergence has a gradient, even where every advantage is 0.

    A divergence does not count while the policy is still the reference: its gradient is rounding then, which
    Adam would scale up to full steps.
    """
    diverged = not config.kl_reward and learner.moved and progress.kl(config)
    return bool(progress.entropy(config) or diverged)


def take_steps(
    learner: Learner, weighted: Sequence[Weighted], episodes: int, config: TrainConfig, progress: Progress
) -> Steps:
    """Take an iteration's steps: `config.epochs` passes over the rows in minibatches.

    `episodes`: the number of the iteration's episodes with a verdict, which the policy does not control.
    """
    learner.set_lr(config.lr_at(progress.iteration, progress.begin))
    if config.importance_cap and not all("present" in item.stored_outputs for item in weighted):
        learner.store_outputs(weighted)
    in_loss = not config.kl_reward  # where the divergence is; its k1 in rewards needs no whole vocabulary
    wanted = config.algorithm_value.loss is not None or (in_loss and progress.kl(config))
    if learner.reference is not None and wanted:
        learner.store_reference(weighted, full=in_loss and config.kl_estimator == "full")
    value_clip = config.value_clip
    if config.value_clip_by == "spread":
        value_clip *= pstdev([target.returns for target in _targets(weighted)])
    objective = make_objective(config, progress, value_clip)
    order = torch.Generator().manual_seed(seeding.derive(config.seed, "minibatches", progress.iteration))
    steps = Steps()
    totals: dict[str, float] = {}
    count = 0
    for _ in range(config.epochs):
        parts = minibatches(weighted, config.minibatch or len(weighted), order)
        for rows in parts:
            divisor = _divisor(rows, episodes / len(parts), config)
            sums, positions = learner.update(rows, objective, divisor)
            if not count:
                steps.gap = sums["gap"] / sums["tokens"]
            count += 1
            steps.positions += positions
            for name, value in sums.items():
                totals[name] = totals.get(name, 0.0) + value
    tokens = totals["tokens"]
    steps.loss, steps.grad_norm = totals["loss"] / count, totals["grad_norm"] / count
    steps.entropy = totals["entropy"] / tokens
    steps.clipped = totals["clipped"] / tokens if "clipped" in totals else NAN
    steps.step_kl = totals["step_kl"] / tokens
    steps.kl = totals["kl"] / tokens if "kl" in totals else NAN
    steps.value_error = 2 * totals["value"] / totals["turns"] if "value" in totals else NAN
    if learner.critic is not None:
        steps.explained_variance = explained_variance(weighted)
    steps.sums = totals
    return steps


def explained_variance(weighted: Sequence[Weighted]) -> float:
    """Return ``1 - var(target - value) / var(target)`` of a critic over the turns of rows; NaN if constant.

    Values and targets are those before an iteration's steps.
    """
    targets = _targets(weighted)
    spread = pvariance([target.returns for target in targets])
    left = pvariance([target.returns - target.value for target in targets])
    return 1 - left / spread if spread else NAN


def _targets(weighted: Sequence[Weighted]) -> list[Target]:
    """Return the target of each turn that is learnt from, once."""
    turns = {(id(item.targets), turn): item.targets[turn] for item in weighted for turn in _learnt(item)}
    return list(turns.values())


def _learnt(item: Weighted) -> set[int]:
    """Return the turns of a row that are learnt from."""
    return {item.row.turn[at] for at in item.row.learnt}


def _divisor(rows: Sequence[Weighted], episodes: float, config: TrainConfig) -> float:
    """Return the divisor of a step's loss, see config_types.Normalise; `episodes` of the step."""
    if config.normalise == "token":
        return float(sum(sum(item.row.mask) for item in rows))
    if config.normalise == "turn":
        return float(sum(len(_learnt(item)) for item in rows))
    return episodes * (config.loss_constant if config.normalise == "constant" else 1.0)


def make_objective(config: TrainConfig, progress: Progress, value_clip: float) -> Objective:
    """Return the objective of a config: surrogate, divergence, entropy, values.

    An algorithm's own loss takes the place of the surrogate. `value_clip`: how far a value may move, in the
    rewards' own units; 0: no limit.
    """
    algorithm, kl, entropy = config.algorithm_value, progress.kl(config), progress.entropy(config)

    def objective(batch: Batch, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
        share_N = _shares(batch) if config.normalise == "response" else None
        if algorithm.loss is not None:
            loss, watched = _own(batch, outputs)
        else:
            loss, watched = _surrogate(batch, outputs, share_N)
        with torch.no_grad():
            watched["tokens"] = torch.tensor(float(len(batch.target)))
            watched["turns"] = torch.tensor(float(batch.turns))
            watched["entropy"] = outputs.entropy.sum()
            watched["gap"] = (outputs.logprob - batch.old_logprob).abs().sum()
        if config.entropy:
            loss = loss - entropy * _sum_weighted(outputs.entropy, share_N)
        kl_N = outputs.kl
        if kl_N is None and (reference_N := batch.stored_outputs.get(REFERENCE_LOGPROB)) is not None:
            estimator = "k3" if config.kl_estimator == "full" else config.kl_estimator
            kl_N = kl_estimate(outputs.logprob, reference_N, estimator)
        if kl_N is not None:
            watched["kl"] = kl_N.detach().sum()
            if not config.kl_reward:
                loss = loss + kl * _sum_weighted(kl_N, share_N)
        if outputs.value is not None:
            error = value_loss(outputs.value, batch.value, batch.returns, value_clip or None)
            watched["value"] = error.detach()
            loss = loss + config.value_weight * error
        return loss, watched

    def _surrogate(
        batch: Batch, outputs: Outputs, share_N: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        start_N, weight_N = batch.old_logprob, None
        if config.importance_cap:
            start_N = batch.stored_outputs["present"]
            weight_N = importance_weights(start_N, batch.old_logprob, config.importance_cap)
        if share_N is not None:
            weight_N = share_N if weight_N is None else weight_N * share_N
        unit_N = {"token": None, "turn": batch.turn, "sequence": batch.row}[config.ratio]
        step = clipped_surrogate(
            outputs.logprob,
            start_N,
            batch.advantage[batch.turn],
            clip_low=config.clip,
            clip_high=config.clip_high or config.clip,
            weight_N=weight_N,
            unit_N=unit_N,
        )
        return step.loss, {"clipped": step.clipped, "step_kl": step.step_kl}

    def _own(batch: Batch, outputs: Outputs) -> tuple[Tensor, dict[str, Tensor]]:
        reference_N = outputs.reference
        if reference_N is None:
            reference_N = batch.stored_outputs.get(REFERENCE_LOGPROB)
        old_N, advantage_N = batch.old_logprob, batch.advantage[batch.turn]
        loss = own_loss(algorithm, batch.row, outputs.logprob, old_N, reference_N, advantage_N)
        log_ratio_N = (outputs.logprob - old_N).detach()
        return loss, {"step_kl": (log_ratio_N.exp() - 1 - log_ratio_N).sum()}

    return objective


def _shares(batch: Batch) -> Tensor:
    """Return 1 over the number of sampled tokens of each token's row, (N,)."""
    return 1.0 / torch.bincount(batch.row)[batch.row]


def _sum_weighted(values_N: Tensor, share_N: Tensor | None) -> Tensor:
    return values_N.sum() if share_N is None else (values_N * share_N).sum()


def penalise(
    learner: Learner,
    episodes: Sequence[Episode],
    rows: Sequence[Weighted],
    seat: str,
    config: TrainConfig,
    progress: Progress,
) -> list[list[float]] | None:
    """Return the KL penalty to subtract from each turn's reward; None where there is none.

    It is the sum over the turn's tokens of ``log policy - log reference`` when they were sampled, times the
    present weight. Source: Ouyang et al., arXiv 2203.02155, section 3.5. There is none while the policy is
    still the reference: it would be rounding, which advantages that are divided by their deviation would
    scale up to full size.
    """
    if not rows or learner.reference is None or not config.kl_reward or not progress.kl(config):
        return None
    if not learner.moved:
        return None
    learner.store_reference(rows, full=False)
    penalties = [[0.0] * len(episode.turns_of(seat)) for episode in episodes]
    for item in rows:
        row = item.row
        for at, reference in zip(row.learnt, item.stored_outputs[REFERENCE_LOGPROB].tolist(), strict=True):
            gap = row.logprobs[at] - reference
            penalties[item.source][row.turn[at]] += progress.kl(config) * gap
    return penalties
