"""Functions with the interface of the package flash-attn, on the CPU, for transformers' way to it."""

from itertools import pairwise

import torch
from transformers import modeling_flash_attention_utils as of_transformers


def attend(q_BTHK, k_BSHK, v_BSHK, causal, softmax_scale, **_):
    """Its flash_attn_func: a causal mask ends at the last key of the last query."""
    queries, keys = q_BTHK.shape[1], k_BSHK.shape[1]
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    heads = (each.transpose(1, 2) for each in (q_BTHK, k_BSHK, v_BSHK))
    output = torch.nn.functional.scaled_dot_product_attention(
        *heads, attn_mask=mask, scale=softmax_scale, enable_gqa=True
    )
    return output.transpose(1, 2)


def install(monkeypatch):
    """Let transformers find it; return a list of the rows' bounds, of queries and keys, of later calls."""
    asked = []

    def attend_by_row(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **how):
        bounds = of_queries, of_keys = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
        for edges, longest in zip(bounds, (max_seqlen_q, max_seqlen_k), strict=True):
            assert longest == max(b - a for a, b in pairwise(edges))
        asked.append(bounds)
        parts = [
            attend(q[None, a:b], k[None, c:d], v[None, c:d], **how)[0]
            for (a, b), (c, d) in zip(pairwise(of_queries), pairwise(of_keys), strict=True)
        ]
        return torch.cat(parts)

    functions = (attend, attend_by_row, None, of_transformers._pad_input, of_transformers._unpad_input)
    monkeypatch.setattr(of_transformers, "_loaded_implementation", None)
    monkeypatch.setattr(of_transformers, "_lazy_imports", lambda *_, **__: functions)
    return asked
