"""The loss of a policy-gradient step.

N: sampled tokens of the batch. V: the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """A scalar to minimise, and what to watch beside it; see clipped_surrogate."""

    loss: Tensor
    entropy: float
    clipped: float
    step_kl: float
    kl: float


def clipped_surrogate(
    logp_NV: Tensor,
    target_N: Tensor,
    old_logprob_N: Tensor,
    advantage_N: Tensor,
    turns: int,
    *,
    clip: float,
    entropy_weight: float = 0.0,
    kl_weight: float = 0.0,
    reference_NV: Tensor | None = None,
) -> Loss:
    """Return PPO's clipped surrogate (arXiv 1707.06347, eq. 7), with what keeps a policy exploring.

    A turn is one action, so its log probability is the sum of its tokens': tokens are summed and turns
    averaged, here and in the two terms that may be added: ``- entropy_weight * entropy`` and ``+ kl_weight *
    KL(policy, reference)``. On the first step after sampling, where every ratio is 1, the gradient of the
    surrogate is that of REINFORCE over turns.

    Args:
        logp_NV: log probabilities of every token under the policy that is trained.
        target_N: the tokens that were sampled.
        old_logprob_N: their log probabilities when they were sampled.
        advantage_N: the advantage of each token's turn.
        turns: how many turns the tokens belong to.
        clip: how far a ratio may leave 1 before its gradient stops.
        entropy_weight: of the entropy bonus.
        kl_weight: of the divergence from the reference.
        reference_NV: log probabilities of every token under the reference, without gradient.

    Returns:
        The loss, and means per token: the policy's entropy in nats, the share of clipped tokens, an estimate
        of KL(old, new) as ``r - 1 - log r``, and KL(policy, reference), NaN without reference.
    """
    logprob_N = logp_NV.gather(-1, target_N[:, None])[:, 0]
    log_ratio_N = logprob_N - old_logprob_N
    ratio_N = log_ratio_N.exp()
    plain_N = ratio_N * advantage_N
    held_N = ratio_N.clamp(1 - clip, 1 + clip) * advantage_N
    loss = -torch.minimum(plain_N, held_N).sum() / turns
    probability_NV = logp_NV.exp()
    entropy_N = -(probability_NV * logp_NV).sum(-1)
    if entropy_weight:
        loss = loss - entropy_weight * entropy_N.sum() / turns
    kl = float("nan")
    if reference_NV is not None:
        kl_N = (probability_NV * (logp_NV - reference_NV)).sum(-1)
        loss = loss + kl_weight * kl_N.sum() / turns
        kl = float(kl_N.detach().mean())
    with torch.no_grad():
        clipped = (held_N < plain_N).float().mean()
        step_kl = (ratio_N - 1 - log_ratio_N).mean()
    return Loss(loss, float(entropy_N.detach().mean()), float(clipped), float(step_kl), kl)
