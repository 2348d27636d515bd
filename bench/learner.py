"""Cost of a learner's step by length and vocabulary, and the largest tensor that it makes.

``python -m bench.learner [--quick]``. A small random Llama (width 256, 4 layers) is trained on rows of
sampled tokens, in three ways in one run: gem's learner; logits of all tokens at once, as in a plain trainer;
and without sharing the common prefix of rows. The largest tensor is the largest that any operation of the
step returned.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

from bench.common import choose_size, parse_args, table, write_json
from gem.tokens.rows import Row
from gem.train.learn import learner as module
from gem.train.learn.batch import Target, Weighted
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import CausalPolicy

SHAPES = choose_size(((1_000, 2_048), (32_000, 2_048), (150_000, 2_048), (150_000, 8_192)), ((1_000, 256),))
"""Vocabulary, and sampled tokens of a step."""
MANY = 400_000_000
"""Logits of a step above which gem's way is taken alone: the others take minutes, and gigabytes."""
QUICK = ((1_000, 512), (32_000, 512))
LENGTH = 256
"""Tokens of a row; half of them are sampled, the first quarter is the same in all."""


class Words:
    """As much of a renderer as a learner asks for."""

    stop_ids = frozenset({0})
    vocab_hash = "bench"
    knows_tools = False


class Nobody:
    """As much of an agent."""

    context = None


class Largest(TorchDispatchMode):
    """Keeps the bytes of the largest tensor that an operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf._base is None:
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only small shapes")
    shapes = QUICK if parse_args(parser).quick else SHAPES
    rows, found = [], []
    for vocabulary, tokens in shapes:
        few = vocabulary * tokens <= MANY
        ways = {name: way for name, way in WAYS.items() if few or name == "gem"}
        figures = {name: measure(way, vocabulary, tokens) for name, way in ways.items()}
        found.append({"vocabulary": vocabulary, "tokens": tokens, **figures})
        base = figures["gem"]["seconds"]
        for name, each in figures.items():
            seconds, size = each["seconds"], each["largest_bytes"]
            rows.append([f"{vocabulary:,}", f"{tokens:,}", name, seconds, seconds / base, size / 2**20])
    table(
        f"a step of a small Llama, {torch.get_num_threads()} threads",
        ["vocabulary", "sampled tokens", "way", "seconds", "over gem's", "largest tensor, MiB"],
        rows,
    )
    write_json("learner", {"steps": found})


def measure(way: Callable[[Learner], Any], vocabulary: int, tokens: int) -> dict[str, float]:
    """Return the seconds of a step, and the bytes of the largest tensor it made beside the weights' own."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        vocab_size=vocabulary, tie_word_embeddings=True,
    )  # fmt: skip
    policy = CausalPolicy(LlamaForCausalLM(config).eval(), Words(), Nobody())  # type: ignore[arg-type]
    learner = Learner(policy, Settings(pass_tokens=2048, lr=0.0))
    held = module.LOGITS
    way(learner)
    rows = make_rows(tokens, vocabulary)
    try:
        step(learner, rows[:2])
        with Largest() as largest:
            began = time.perf_counter()
            step(learner, rows)
            seconds = time.perf_counter() - began
    finally:
        module.LOGITS = held
    return {"seconds": seconds, "largest_bytes": largest.bytes}


def make_rows(tokens: int, vocabulary: int) -> list[Weighted]:
    rng = random.Random(0)
    shared = [rng.randrange(vocabulary) for _ in range(LENGTH // 4)]
    made = []
    for _ in range(tokens // (LENGTH // 2)):
        ids = [*shared, *(rng.randrange(vocabulary) for _ in range(LENGTH - len(shared)))]
        mask = (0,) * (LENGTH // 2) + (1,) * (LENGTH // 2)
        turn = (-1,) * (LENGTH // 2) + (0,) * (LENGTH // 2)
        made.append(Weighted(Row(tuple(ids), mask, (0.0,) * LENGTH, turn), {0: Target(rng.random())}))
    return made


def step(learner: Learner, rows: list[Weighted]) -> None:
    learner.update(rows, lambda b, o: (-(o.logprob * b.advantage[b.turn]).sum(), {}), len(rows))


def all_logits(learner: Learner) -> None:
    """Logits of all of the step's tokens at once."""
    module.LOGITS = 1 << 62
    learner.settings = replace(learner.settings, pass_tokens=None)


def nothing_shared(learner: Learner) -> None:
    """Each row by itself."""
    learner.policy.capacity = None  # type: ignore[misc]


WAYS: dict[str, Callable[[Learner], Any]] = {
    "gem": lambda learner: None,
    "all logits at once": all_logits,
    "nothing shared": nothing_shared,
}


if __name__ == "__main__":
    main()
