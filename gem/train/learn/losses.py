"""Losses of policy-gradient steps: pure functions of log probabilities and values.

Each is a sum without a divisor. The caller divides it, best by a number that the policy does not control (see
`gem.train.config.value_types.Normalise`).

N: sampled tokens of the batch. M: the turns that they belong to. R: its rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gem.errors import BadArgument
from gem.estimators import Algorithm
from gem.plugins import call_foreign
from gem.train.config.value_types import KlEstimator


class Surrogate(NamedTuple):
    """A loss to minimise, and sums over tokens to log; see clipped_surrogate."""

    loss: Tensor
    clipped: Tensor
    step_kl: Tensor


def clipped_surrogate(
    logprob_N: Tensor,
    old_logprob_N: Tensor,
    advantage_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    weight_N: Tensor | None = None,
    unit_N: Tensor | None = None,
) -> Surrogate:
    """Return PPO's clipped surrogate (arXiv 1707.06347, eq. 7), summed over tokens.

    ``-sum min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)``. Where ratios are 1, as on the first
    step after sampling, its gradient is that of REINFORCE: a turn is one action, so its log probability is
    the sum of its tokens'. `clip_high` above `clip_low` leaves room for tokens that are rare (clip-higher:
    DAPO, arXiv 2503.14476).

    With `unit_N` the ratio is that of a unit of tokens, a turn or a sequence: the geometric mean of its
    tokens' ratios, clipped as one. Each token keeps its own gradient, so turns of one sequence keep their own
    advantages (GSPO-token: arXiv 2507.18071, eq. 13 and 14).

    Args:
        logprob_N: log probabilities of the sampled tokens under the policy that is trained.
        old_logprob_N: those under the policy in the denominator of the ratio.
        advantage_N: the advantage of each token's turn.
        clip_low: how far a ratio may fall below 1 before its gradient stops.
        clip_high: how far it may rise.
        weight_N: importance weights without gradient, see importance_weights; None: 1.
        unit_N: the number of each token's unit, from 0; None: each token is its own unit.

    Returns:
        The loss, and sums over tokens: of clipped ones, and of ``ratio - 1 - log ratio``, an estimate of
        KL(old, new).
    """
    log_ratio_N = logprob_N - old_logprob_N
    if unit_N is not None:
        mean_N = _mean_of_units(log_ratio_N.detach(), unit_N)[unit_N]
        log_ratio_N = mean_N + logprob_N - logprob_N.detach()
    ratio_N = log_ratio_N.exp()
    plain_N = ratio_N * advantage_N
    held_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantage_N
    surrogate_N = torch.minimum(plain_N, held_N)
    if weight_N is not None:
        surrogate_N = surrogate_N * weight_N
    with torch.no_grad():
        clipped = (held_N < plain_N).sum()
        step_kl = (ratio_N - 1 - log_ratio_N).sum()
    return Surrogate(-surrogate_N.sum(), clipped, step_kl)


def own_loss(
    algorithm: Algorithm,
    row_N: Tensor,
    logprob_N: Tensor,
    old_logprob_N: Tensor,
    reference_N: Tensor | None,
    advantage_N: Tensor,
) -> Tensor:
    """Return the sum of an algorithm's own loss, which gets the tokens by row; see `algorithms.Loss`.

    R: rows. T: tokens of the longest.

    Args:
        algorithm: it has a loss.
        row_N: the number of each token's row; those of a row are in order.
        logprob_N: log probabilities of the sampled tokens under the policy that is trained.
        old_logprob_N: those when they were sampled.
        reference_N: those under the reference; None: there is none.
        advantage_N: the advantage of each token's turn.

    Raises:
        BadArgument: where the loss fails, or returns another shape, no gradient, or what is not finite.
    """
    assert algorithm.loss is not None
    rows, row_N = row_N.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    by_row = row_N.argsort(stable=True)
    sizes_R = row_N.bincount()
    at_N = torch.empty_like(row_N)
    at_N[by_row] = torch.arange(len(row_N)) - (sizes_R.cumsum(0) - sizes_R)[row_N[by_row]]
    shape = (len(rows), int(sizes_R.max()))

    def by_rows(values_N: Tensor) -> Tensor:
        return values_N.new_zeros(shape).index_put((row_N, at_N), values_N)

    reference_RT = None if reference_N is None else by_rows(reference_N)
    mask_RT = by_rows(torch.ones_like(advantage_N))
    what = f"algorithm {algorithm.name}: loss(logp, old, reference, advantage, mask)"
    loss = call_foreign(
        what,
        algorithm.loss,
        by_rows(logprob_N),
        by_rows(old_logprob_N),
        reference_RT,
        by_rows(advantage_N),
        mask_RT,
    )
    accepted = f"accepted: a loss for each token, {shape}, or for each row, {shape[:1]}, which gem sums"
    if not isinstance(loss, Tensor):
        raise BadArgument(f"{what} returned {loss!r:.80}; {accepted}.")
    if tuple(loss.shape) not in (shape, shape[:1]):
        raise BadArgument(f"{what} returned a tensor of shape {tuple(loss.shape)}; {accepted}.")
    each = loss[row_N, at_N] if loss.dim() == 2 else loss
    odd = each.detach()[~each.isfinite()].tolist()
    if odd:
        raise BadArgument(f"{what} returned {odd[0]}; accepted: finite numbers where mask is 1.")
    if not loss.requires_grad:
        raise BadArgument(f"{what} returned a loss without gradient; accepted: one computed from logp.")
    return each.sum()


def importance_weights(present_N: Tensor, sampled_N: Tensor, cap: float) -> Tensor:
    """Return ``min(pi_present / pi_sampled, cap)`` of each token, without gradient.

    For samples of an older policy, or of a sampler whose arithmetic differs from the learner's. The ratio of
    the surrogate then starts from the present policy, and these weights correct for the sampler.

    Sources: truncated importance sampling (Ionides 2008); decoupled PPO (Hilton et al., arXiv 2110.00641).

    Args:
        present_N: log probabilities under the policy before the update, computed by the learner.
        sampled_N: as the sampler reported them.
        cap: the largest weight; larger ones are cut, which bounds the variance and shortens such steps.
    """
    return (present_N - sampled_N).detach().exp().clamp(max=cap)


def kl_estimate(logprob_N: Tensor, reference_N: Tensor, estimator: KlEstimator) -> Tensor:
    """Return an estimate of KL(policy, reference) at each sampled token, (N,), as `KlEstimator` names it.

    ``k1`` is unbiased as an estimate, and useless as a loss: its gradient is zero on average. ``k2`` as a
    loss has the gradient of the divergence where tokens are on-policy. ``k3`` is never negative; as a loss it
    has the gradient of KL(reference, policy) instead.
    """
    ratio_N = logprob_N - reference_N
    if estimator == "k1":
        return ratio_N
    if estimator == "k2":
        return 0.5 * ratio_N.square()
    return (-ratio_N).exp() - 1 + ratio_N


def value_loss(value_M: Tensor, old_value_M: Tensor, returns_M: Tensor, clip: float | None) -> Tensor:
    """Return half the squared error of a critic, summed over turns; clipped around its old values.

    ``1/2 sum max((V - G)^2, (clip(V, V_old - clip, V_old + clip) - G)^2)``. Source: the PPO implementation of
    OpenAI baselines, as described by Huang et al., The 37 Implementation Details of PPO (2022), detail 9.

    Args:
        value_M: the critic's values now, with gradient.
        old_value_M: its values before the update.
        returns_M: their targets.
        clip: how far a value may move from the old one; None: no limit.
    """
    error_M = (value_M - returns_M).square()
    if clip is not None:
        held_M = old_value_M + (value_M - old_value_M).clamp(-clip, clip)
        error_M = torch.maximum(error_M, (held_M - returns_M).square())
    return 0.5 * error_M.sum()


def _mean_of_units(values_N: Tensor, unit_N: Tensor) -> Tensor:
    """Return the mean of each unit's values."""
    units = int(unit_N.max()) + 1
    zeros = torch.zeros(units, dtype=values_N.dtype, device=values_N.device)
    sums = zeros.index_add(0, unit_N, values_N)
    counts = zeros.index_add(0, unit_N, torch.ones_like(values_N))
    return sums / counts.clamp(min=1)
