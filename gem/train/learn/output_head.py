"""Logits of an output head in float32, without a float32 copy of a large weight that has fewer bits.

Axes: U places, D width of the model, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 1 << 25
"""Number of the weight's elements that are in float32 at a time, 128 MiB; a smaller weight is copied."""

CUDA_PRODUCTS = False
"""Whether a GPU multiplies in the weight's own type, with sums in float32: many times faster there. The
backward pass then rounds the logits' gradient to that type. Never run by us, as only CUDA can."""


def compute_logits(states_UD: Tensor, weight_VD: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """Return ``states @ weight.T + bias``, (U, V), in float32, with gradient for all three."""
    small = weight_VD.numel() <= BLOCK and not _multiplies_on_cuda(weight_VD)
    if weight_VD.dtype.itemsize >= 4 or small:
        return F.linear(states_UD.float(), weight_VD.float(), None if bias_V is None else bias_V.float())
    logits_UV: Tensor = _SmallHead.apply(states_UD, weight_VD)  # type: ignore[no-untyped-call]
    return logits_UV if bias_V is None else logits_UV + bias_V.float()


class _SmallHead(torch.autograd.Function):
    """The product with a weight of few bits; its backward pass reads the weight, not a copy."""

    @staticmethod
    def forward(ctx: Any, states_UD: Tensor, weight_VD: Tensor) -> Tensor:
        ctx.save_for_backward(states_UD, weight_VD)
        if _multiplies_on_cuda(weight_VD):
            return torch.mm(states_UD.to(weight_VD.dtype), weight_VD.T, out_dtype=torch.float32)
        wide_UD = states_UD.float()
        logits_UV = wide_UD.new_empty(len(states_UD), len(weight_VD))
        for rows in _split_rows(weight_VD):
            torch.mm(wide_UD, weight_VD[rows].float().T, out=logits_UV[:, rows])
        return logits_UV

    @staticmethod
    def backward(ctx: Any, gradient_UV: Tensor) -> tuple[Tensor | None, Tensor | None]:
        states_UD, weight_VD = ctx.saved_tensors
        of_states, of_weight = ctx.needs_input_grad
        wide_UD = states_UD.float()
        states = torch.zeros_like(wide_UD) if of_states else None
        weight = torch.empty_like(weight_VD) if of_weight else None
        if _multiplies_on_cuda(weight_VD):
            small_UV = gradient_UV.to(weight_VD.dtype)
            if states is not None:
                states = torch.mm(small_UV, weight_VD, out_dtype=torch.float32)
            if weight is not None:
                torch.mm(small_UV.T, states_UD.to(weight_VD.dtype), out=weight)
        else:
            for rows in _split_rows(weight_VD):
                if states is not None:
                    states.addmm_(gradient_UV[:, rows], weight_VD[rows].float())
                if weight is not None:
                    weight[rows] = gradient_UV[:, rows].T @ wide_UD
        return None if states is None else states.to(states_UD.dtype), weight


def _multiplies_on_cuda(weight_VD: Tensor) -> bool:
    return CUDA_PRODUCTS and weight_VD.is_cuda


def _split_rows(weight_VD: Tensor) -> list[slice]:
    """Return the rows of the weight in blocks of at most `BLOCK` elements."""
    rows = max(1, BLOCK // weight_VD.shape[1])
    return [slice(first, first + rows) for first in range(0, len(weight_VD), rows)]
