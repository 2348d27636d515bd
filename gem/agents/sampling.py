"""Sample tokens from logits, with counter-based random numbers; shared by all local models.

The random number of a token depends on the seed of its ask and on the token's index in the answer, never on
a generator's state. So a reply does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from gem.errors import BadArgument, check_argument, needs_extra

with needs_extra("sampling from a local model", "torch", "train"):
    import torch

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def uniforms(seeds: Sequence[int], step: int) -> torch.Tensor:
    """Return one uniform of [0, 1) per seed, float64 of shape (B,), for token number `step`."""
    return uniforms_of_steps(seeds, step, 1)[0]


def uniforms_of_steps(seeds: Sequence[int], first: int, count: int) -> torch.Tensor:
    """Return one uniform of [0, 1) per token and seed, float64 of shape (N, B), for N tokens from `first`.

    They are outputs of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) from the state ``mix(seed)``; without
    the mixing, neighbouring seeds would give shifted copies of one sequence. The same arguments give the same
    numbers on every platform.

    Args:
        seeds: one integer per row; the low 64 bits count.
        first: the index of the first token in its answer, from 0.
        count: N.
    """
    state_B = _mix(np.array([seed & _MASK for seed in seeds], dtype=np.uint64))
    steps_N = [(step + 1) * _GAMMA & _MASK for step in range(first, first + count)]
    bits = _mix(state_B + np.array(steps_N, dtype=np.uint64)[:, None])
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def sample(
    logits_B_V: torch.Tensor, temperature: float, u_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row, or several, by inverting the cumulative distribution.

    The distribution is ``softmax(logits / temperature)``, summed in float64, so that rare tokens of a large
    vocabulary keep their probability; a token with logit -inf is never sampled. Temperature 0 takes the
    first of the largest logits.

    Args:
        logits_B_V: any float type, on any device.
        temperature: 0 or more.
        u_B: float64 uniforms of [0, 1), see `uniforms`; or (B, M) for M samples of each row.

    Returns:
        Token ids with the shape of `u_B` as int64, and their log probabilities as float64 under the
        distribution that was sampled from (after the temperature); 0 for a greedy choice.

    Raises:
        BadArgument: for a negative temperature, or a row that is no distribution (NaN, +inf, only -inf).
    """
    ids, logprobs, _ = _draw(logits_B_V, temperature, u_B)
    return ids, logprobs


def sample_with_entropy(
    logits_B_V: torch.Tensor, temperature: float, u_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample like `sample`; also return the entropies, in nats, with the shape of `u_B`.

    They are the entropies of the distributions that were sampled from: 0 for a greedy choice.

    Raises:
        BadArgument: see `sample`.
    """
    ids, logprobs, logp_B_V = _draw(logits_B_V, temperature, u_B)
    if logp_B_V is None:
        return ids, logprobs, torch.zeros_like(logprobs)
    entropy_B = torch.special.entr(logp_B_V.exp()).sum(-1)
    return ids, logprobs, entropy_B if u_B.dim() == 1 else entropy_B[:, None].expand(u_B.shape)


def sample_without_waiting(
    logits_B_V: torch.Tensor, temperature: float, u_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample one token per row as `sample` does, without a wait for the logits' device.

    Probabilities are computed in float32 and summed in float64, so a token differs from that of `sample`
    only where its uniform is within rounding of an edge, about once in a million.

    Args:
        logits_B_V: any float type, on any device.
        temperature: 0 or more.
        u_B: float64 uniforms of [0, 1) on the same device.

    Returns:
        Token ids (B,), their log probabilities (B,) in float32, those of all tokens (B, V), and whether each
        row is a distribution (B,), where `sample` raises an error. For a greedy choice log probabilities are
        0, and those of all tokens are the logits.
    """
    check_argument("temperature", temperature, temperature >= 0, "0 (greedy) or more")
    if temperature == 0:
        ids_B = logits_B_V.argmax(-1)
        return ids_B, torch.zeros_like(u_B).float(), logits_B_V, logits_B_V.amax(-1).isfinite()
    logp_B_V = torch.log_softmax(logits_B_V.float() / temperature, -1)
    cdf_B_V = logp_B_V.exp().cumsum(-1, dtype=torch.float64)
    total_B1 = cdf_B_V[:, -1:]
    ids_B1 = torch.searchsorted(cdf_B_V, u_B[:, None] * total_B1, right=True)
    ids_B1 = ids_B1.clamp(max=logits_B_V.shape[1] - 1)  # of a row of NaN
    return ids_B1[:, 0], logp_B_V.gather(-1, ids_B1)[:, 0], logp_B_V, total_B1[:, 0].isfinite()


def _draw(
    logits_B_V: torch.Tensor, temperature: float, u_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the result of `sample`, and the log probabilities of all tokens (None for a greedy choice)."""
    check_argument("temperature", temperature, temperature >= 0, "0 (greedy) or more")
    u_BM = u_B if u_B.dim() == 2 else u_B[:, None]
    if temperature == 0:
        if not logits_B_V.amax(-1).isfinite().all():
            raise no_distribution()
        ids_BM = logits_B_V.argmax(-1)[:, None].expand(u_BM.shape)
        return ids_BM.reshape(u_B.shape), torch.zeros_like(u_B, device=logits_B_V.device), None
    logp_B_V = torch.log_softmax(logits_B_V.double() / temperature, -1)
    cdf_B_V = logp_B_V.exp().cumsum(-1)
    total_B = cdf_B_V[:, -1]
    if not total_B.isfinite().all():
        raise no_distribution()
    # The first token whose cumulative mass exceeds u: u < 1 keeps it below the total, and a token without
    # mass does not raise the sum, so it is never the first.
    u_BM = u_BM.to(logits_B_V.device) * total_B[:, None]
    ids_BM = torch.searchsorted(cdf_B_V, u_BM, right=True)
    return ids_BM.reshape(u_B.shape), logp_B_V.gather(-1, ids_BM).reshape(u_B.shape), logp_B_V


def no_distribution() -> BadArgument:
    """Return the error of logits that `sample` refuses."""
    return BadArgument(
        "a row of logits is no distribution (NaN, +inf or only -inf); the model has diverged: "
        "go back to a checkpoint."
    )


def digest_weights(model: torch.nn.Module) -> str:
    """Return a digest of a model's weights, of at most 65,536 values of each: training changes them all."""
    digest = blake2b(digest_size=8)
    for name, weight in model.state_dict().items():
        values = weight.detach().flatten()
        values = values[:: len(values) // 65_536 + 1].cpu().contiguous()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        digest.update(values.view(torch.uint8).numpy())
    return digest.hexdigest()
