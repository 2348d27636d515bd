"""The memory of a training step by arithmetic, and the sizes of its parts that fit a device.

The formulas are those of a decoder with RMS norms and a gated feed-forward part (Llama, Qwen and their kin),
as transformers computes it; for another architecture they are estimates. `tests/train/learn/test_memory.py`
compares them with the peak memory of real steps on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from gem.agents.hugging_face import CACHE_BYTES
from gem.errors import BadArgument
from gem.train.config import TrainConfig

LOGIT_BYTES = 32
"""Bytes of a logit while a part's loss and its gradient are computed: eight tensors of float32."""
SPARE = 0.1
"""Share of the free memory that is left for what the arithmetic does not know, such as fragments."""


class Sizes(NamedTuple):
    """The sizes of a step's parts: tokens to compute in a pass (None: all), logits at a time (0: default)."""

    pass_tokens: int | None
    logits: int


SMALLEST_PASS, LARGEST_PASS = 1 << 8, 1 << 16
SMALLEST_LOGITS, LARGEST_LOGITS = 1 << 22, 1 << 28


@dataclass(frozen=True)
class Footprint:
    """What the memory of a step depends on.

    `weight_bytes`: of the whole model. `trained`: the number of weights that are trained, of `trained_size`
    bytes each. `width`, `queries`, `keys`, `hidden`: widths of the residual stream, of all query heads, of
    all key heads, and of the feed-forward part. `size`: bytes of an activation. `normed`: whether queries and
    keys have norms. `adapter`: whether LoRA adapters are trained. `checkpointing`: whether layers are
    computed again in the backward pass. `twin`: whether there is a reference with weights of its own.
    """

    weight_bytes: int
    trained: int
    trained_size: int
    layers: int
    width: int
    queries: int
    keys: int
    hidden: int
    vocabulary: int
    size: int
    normed: bool = False
    adapter: bool = False
    checkpointing: bool = False
    twin: bool = False

    @classmethod
    def of(cls, model: Any, *, checkpointing: bool = False, twin: bool = False) -> Footprint:
        """Return the footprint of a transformers model, which may be on the meta device."""
        text = model.config.get_text_config()
        heads = text.num_attention_heads
        head = getattr(text, "head_dim", None) or text.hidden_size // heads
        trained = [p for p in model.parameters() if p.requires_grad]
        names = [name for name, _ in model.named_parameters()]
        return cls(
            weight_bytes=sum(p.nbytes for p in model.parameters()),
            trained=sum(p.numel() for p in trained),
            trained_size=min(p.dtype.itemsize for p in trained),
            layers=text.num_hidden_layers,
            width=text.hidden_size,
            queries=heads * head,
            keys=(getattr(text, "num_key_value_heads", None) or heads) * head,
            hidden=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            vocabulary=text.vocab_size,
            size=model.get_input_embeddings().weight.dtype.itemsize,
            normed=any(name.endswith("q_norm.weight") for name in names),
            adapter=any(".lora_A." in name for name in names),
            checkpointing=checkpointing,
            twin=twin,
        )

    @property
    def optimiser_bytes(self) -> int:
        """The bytes of AdamW's two moments, of gradients, and of float32 copies of smaller weights."""
        small = 4 + self.trained_size if self.trained_size < 4 else 0  # the copy, and a pass's own gradient
        return self.trained * (8 + 4 + small)

    @property
    def reference_bytes(self) -> int:
        """The bytes of the reference: it shares what is not trained with the model."""
        return self.trained * self.trained_size if self.twin else 0

    @property
    def sampler_bytes(self) -> int:
        """The bytes of the float32 copy of the head that a sampler in this process keeps."""
        return 4 * self.vocabulary * self.width if self.size < 4 else 0

    @property
    def fixed_bytes(self) -> int:
        """The bytes that do not depend on the rows of a step."""
        return self.weight_bytes + self.optimiser_bytes + self.reference_bytes

    @property
    def token_bytes(self) -> int:
        """The bytes that a token of a pass keeps until the backward pass."""
        kept = self.size * self.width if self.checkpointing else self._layer_bytes
        return self.layers * kept + self._norm(self.width) + self.size * self.width

    @property
    def working_bytes(self) -> int:
        """The bytes of a token in the layer whose gradients are computed."""
        return 4 * self.size * self.hidden + (self._layer_bytes if self.checkpointing else 0)

    @property
    def _layer_bytes(self) -> int:
        b = self.size
        total = 2 * self._norm(self.width) + 2 * b * self.width  # norms and what they return
        total += b * 4 * self.queries  # queries, their output, and keys and values, repeated for each query
        total += 4 * b * self.hidden  # gate, its activation, up, and their product
        if self.normed:
            total += self._norm(self.queries) + self._norm(self.keys)
        if self.adapter and b < 4:  # adapters get their inputs in float32: of q, k, v, gate, up; o; down
            total += 4 * (5 * self.width + self.queries + self.hidden)
        return total

    def _norm(self, width: int) -> int:
        """Return the bytes of a token that an RMS norm keeps: its input in float32, and scaled to norm 1."""
        return (4 + self.size) * width

    def pass_bytes(self, tokens: int, logits: int) -> int:
        """Return the bytes that a pass of `tokens` tokens adds at its peak, with `logits` at a time."""
        return tokens * self.token_bytes + max(tokens * self.working_bytes, logits * LOGIT_BYTES)


def choose_sizes(footprint: Footprint, free: int, device: str) -> Sizes:
    """Return the largest sizes, powers of two, with which a step fits `free` bytes beside the weights.

    A part of logits gets at most an eighth of what is free.

    Raises:
        BadArgument: where not even the smallest pass fits.
    """
    beside = footprint.fixed_bytes - footprint.weight_bytes
    room = int(free * (1 - SPARE)) - beside
    tokens, logits = SMALLEST_PASS, SMALLEST_LOGITS
    while logits < LARGEST_LOGITS and 2 * logits * LOGIT_BYTES <= room // 8:
        logits *= 2
    if footprint.pass_bytes(tokens, logits) > room:
        least = beside + footprint.pass_bytes(tokens, logits)
        raise BadArgument(
            f"training needs {least / 1e9:.1f} GB beside the model's {footprint.weight_bytes / 1e9:.1f} GB, "
            f"and {device} has {free / 1e9:.1f} GB free; train less (--lora-rank or --train-layers), keep "
            "less (--checkpointing, --dtype bfloat16, --kl 0), or set --pass-tokens yourself."
        )
    while tokens < LARGEST_PASS and footprint.pass_bytes(2 * tokens, logits) <= room:
        tokens *= 2
    return Sizes(tokens, logits)


def fit_sizes(config: TrainConfig, model: Any) -> Sizes:
    """Return the sizes of a step's parts for a config: its own, or where `pass_tokens` is 0 those that fit.

    `model` is on its device; that of a separate critic too.

    Raises:
        BadArgument: where `pass_tokens` is 0, and the GPU has too little memory.
    """
    if config.pass_tokens != 0:
        return Sizes(config.pass_tokens, 0)
    free: int = torch.cuda.mem_get_info(config.device)[0]
    moved = not config.lora_rank or config.warmup_steps or config.start_from
    twin = bool(config.kl and config.iterations and moved)
    footprint = Footprint.of(model, checkpointing=config.checkpointing, twin=twin)
    if config.critic == "model" and config.algorithm_value.critic:
        free -= footprint.optimiser_bytes
    if not config.sampler:
        free -= CACHE_BYTES + footprint.sampler_bytes + footprint.weight_bytes * config.staleness
    return choose_sizes(footprint, free, config.device)
