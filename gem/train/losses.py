"""The loss of a policy-gradient step.

N: sampled tokens of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """A scalar to minimise, and what to watch beside it."""

    loss: Tensor
    entropy: float
    clipped: float
    kl: float


def clipped_surrogate(
    logprob_N: Tensor,
    entropy_N: Tensor,
    old_logprob_N: Tensor,
    advantage_N: Tensor,
    turns: int,
    clip: float,
    entropy_bonus: float,
) -> Loss:
    """Return PPO's clipped surrogate (arXiv 1707.06347, eq. 7) less an entropy bonus, averaged over turns.

    A turn is one action, so its log probability is the sum of its tokens': tokens are summed and turns
    averaged. On the first step after sampling, where every ratio is 1, the gradient is that of REINFORCE
    over turns. `kl` estimates KL(old, new) per token as the mean of ``r - 1 - log r``.

    Args:
        logprob_N: log probabilities under the policy that is trained.
        entropy_N: entropy of the policy's distribution at each sampled token, in nats.
        old_logprob_N: log probabilities when the tokens were sampled.
        advantage_N: the advantage of each token's turn.
        turns: how many turns the tokens belong to.
        clip: how far a ratio may leave 1 before its gradient stops.
        entropy_bonus: weight of the entropy.
    """
    log_ratio_N = logprob_N - old_logprob_N
    ratio_N = log_ratio_N.exp()
    plain_N = ratio_N * advantage_N
    held_N = ratio_N.clamp(1 - clip, 1 + clip) * advantage_N
    surrogate = torch.minimum(plain_N, held_N).sum() / turns
    loss = -surrogate - entropy_bonus * entropy_N.sum() / turns
    with torch.no_grad():
        clipped = (held_N < plain_N).float().mean()
        kl = (ratio_N - 1 - log_ratio_N).mean()
    return Loss(loss, float(entropy_N.detach().mean()), float(clipped), float(kl))
