"""A language model on one GPU: rates of sampling and training, their shares of the ceilings, memory, a curve.

``python -m bench.gpu [--model NAME] [--lora-rank 16]`` is made to take ten minutes on one H100. **It was
never run on CUDA by us**: no GPU was at hand. ``--smallest`` goes through the same code on the CPU, with a
random model. ``--memory`` prints what the arithmetic says of larger models, and needs no GPU either.

The ceilings are measured in the same run: the rate of a product of large matrices bounds training, the rate
of a copy bounds sampling, as each token reads all weights and the keys and values of its row. Peak memory is
compared with the arithmetic (`gem.train.learn.memory`). The head is measured in both ways that it has on a
GPU, and attention as transformers chooses it and as flash attention where that is installed; `CUDA_PRODUCTS`
of `gem.train.learn.output_head` stays off until somebody has measured it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench.common import SMALLEST, choose_size, parse_args, table, write_json
from bench.llm_sampler import RANDOM, load
from gem.agents.hugging_face import HuggingFaceAgent
from gem.content import Message
from gem.models import load_causal
from gem.record import Ask
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import Row
from gem.train import TrainConfig, train
from gem.train.learn import output_head
from gem.train.learn.batch import Weighted
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.memory import Footprint, choose_sizes
from gem.train.learn.policy import make_policy
from gem.train.report.run_folder import RunFolder

DEVICE = "cpu" if SMALLEST else "cuda"
MATRIX = choose_size(8192, 128)
COPIED = choose_size(1 << 32, 1 << 20)
ROWS, ANSWER = choose_size(64, 2), choose_size(256, 4)
LENGTH = choose_size(512, 16)
PASSES = 4
GB = 10**9
CARD = 80 * GB
"""Memory of the card in the table of ``--memory``, in bytes."""

SHAPES = {
    "Qwen3-0.6B": {"layers": 28, "width": 1024, "queries": 2048, "keys": 1024, "hidden": 3072},
    "Qwen3-1.7B": {"layers": 28, "width": 2048, "queries": 2048, "keys": 1024, "hidden": 6144},
    "Qwen3-4B": {"layers": 36, "width": 2560, "queries": 4096, "keys": 1024, "hidden": 9728},
    "Qwen3-8B": {"layers": 36, "width": 4096, "queries": 4096, "keys": 1024, "hidden": 12288, "tied": 0},
}
VOCABULARY, HEAD = 151_936, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=choose_size("smollm2", RANDOM), help="as for gem-gym train")
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--iterations", type=int, default=choose_size(30, 1), help="of the curve")
    parser.add_argument("--memory", action="store_true", help="print the arithmetic for an 80 GB card alone")
    options = parse_args(parser)
    if options.memory:
        print_memory()
        return
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print(
            f"left out: torch {torch.__version__} sees no GPU. Run this where it does; --smallest goes "
            "through the same code on the CPU, and --memory prints the arithmetic."
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        name = save_random(Path(folder) / "model") if options.model == RANDOM else options.model
        results = measure(name, options, Path(folder) / "run")
    write_json("gpu", {"model": options.model, "device": device_name(), **results})


def measure(name: str, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    ceilings = {"flops": matmul_rate(), "bytes": copy_rate()}
    table(
        f"ceilings of {device_name()}",
        ["what", "per second"],
        [["a product, TFLOP", ceilings["flops"] / 1e12], ["a copy, GB", ceilings["bytes"] / 1e9]],
    )
    config = make_config(name, options, out)
    sampled = measure_sampling(name, ceilings["bytes"])
    trained = measure_steps(config, ceilings["flops"])
    curve = measure_curve(config)
    return {"ceilings": ceilings, "sampled": sampled, "trained": trained, "curve": curve}


def make_config(name: str, options: argparse.Namespace, out: Path) -> TrainConfig:
    batch = choose_size(64, 8)
    return TrainConfig.fit(
        **{"model": name, "device": DEVICE, "out": out, "watch": 0},
        **{"dtype": choose_size("bfloat16", "float32"), "pass_tokens": choose_size(0, 256)},
        **{"lora_rank": options.lora_rank, "checkpointing": options.checkpointing},
        **{"answer_prefix": "\\boxed{", "stop": ("}",), "max_tokens": 8, "gamma": 0.9, "kl": 0.2},
        **{"batch": batch, "episodes": batch * options.iterations, "eval_episodes": choose_size(200, 4)},
    )


# -- ceilings


def seconds_of(work: Callable[[], Any], repeat: int = 5) -> float:
    """Return the least time of `work` in seconds, until the device has done it, after a first time."""
    times = []
    for _ in range(repeat + 1):
        wait()
        began = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def matmul_rate() -> float:
    left = torch.randn(MATRIX, MATRIX, device=DEVICE, dtype=torch.bfloat16)
    return 2 * MATRIX**3 / seconds_of(lambda: left @ left)


def copy_rate() -> float:
    """Return the bytes that a copy reads and writes per second."""
    source = torch.zeros(COPIED, device=DEVICE, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * COPIED / seconds_of(lambda: target.copy_(source))


def device_name() -> str:
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "the CPU"


# -- sampling


def measure_sampling(name: str, bandwidth: float) -> list[dict[str, Any]]:
    dtype = choose_size(torch.bfloat16, torch.float32)
    model, tokenizer = load_causal(name, device=DEVICE, dtype=dtype)
    footprint = Footprint.of(model)
    renderer = ChatTemplateRenderer(tokenizer)
    text = "Tell me at length what you know about the history of mathematics."
    asks = [Ask(str(n), "agent", 0, (Message("user", text),), seed=n) for n in range(ROWS)]
    found = []
    for every in (1, 16):
        agent = HuggingFaceAgent(model, renderer, max_tokens=ANSWER, batch_size=ROWS, check_every=every)
        agent(asks[:1])  # what the first call finds out
        agent.publish(1)
        before = agent.tokens_sampled
        wait()
        began = time.perf_counter()
        replies = agent(asks)
        wait()
        seconds = time.perf_counter() - began
        tokens = agent.tokens_sampled - before
        positions = sum(len(reply.prompt_ids) + len(reply.token_ids) / 2 for reply in replies)
        kept = 2 * footprint.layers * footprint.keys * footprint.size
        bound = bandwidth / (footprint.weight_bytes + footprint.sampler_bytes + kept * positions)
        rate = tokens / seconds
        found.append({"check_every": every, "tokens_per_s": rate, "share": rate / (bound * ROWS)})
    table(
        f"{ROWS} answers of up to {ANSWER} tokens",
        ["looked at after", "tokens/s", "share of the copy's rate"],
        [[f"{each['check_every']} tokens", each["tokens_per_s"], each["share"]] for each in found],
    )
    return found


# -- training


def measure_steps(config: TrainConfig, peak_flops: float) -> list[dict[str, Any]]:
    ways: list[tuple[str, str, bool]] = [("as it is", "auto", False)]
    if DEVICE == "cuda":
        ways.append(("the head in bfloat16", "auto", True))
        if find_spec("flash_attn"):
            ways.append(("flash attention", "flash_attention_2", False))
    found = [measure_step(config, peak_flops, *way) for way in ways]
    table(
        f"a step of {PASSES} passes, rows of {LENGTH} tokens, half of them sampled",
        ["way", "tokens a pass", "tokens/s", "share of the product's rate", "peak GB", "arithmetic GB"],
        [
            [each[key] for key in ("way", "pass_tokens", "tokens_per_s", "share", "peak_gb", "arithmetic_gb")]
            for each in found
        ],
    )
    return found


def measure_step(
    config: TrainConfig, peak_flops: float, way: str, attention: str, fast: bool
) -> dict[str, Any]:
    output_head.CUDA_PRODUCTS = fast
    reset_peak()
    policy = make_policy(replace(config, attn_implementation=attention))
    footprint = Footprint.of(policy.model, checkpointing=config.checkpointing)
    free = torch.cuda.mem_get_info()[0] if DEVICE == "cuda" else GB
    sizes = choose_sizes(footprint, free, DEVICE)
    tokens = min(sizes.pass_tokens or LENGTH, choose_size(1 << 14, 2 * LENGTH))
    learner = Learner(policy, Settings(lr=0.0, pass_tokens=tokens, logits=sizes.logits))
    rows = make_rows(PASSES * tokens // LENGTH, footprint.vocabulary)
    seconds = seconds_of(lambda: learner.update(rows, sum_logprobs, len(rows)), repeat=choose_size(3, 1))
    rate = len(rows) * LENGTH / seconds
    flops = len(rows) * LENGTH * flops_per_token(footprint, config) / seconds
    output_head.CUDA_PRODUCTS = False
    return {
        **{"way": way, "pass_tokens": tokens, "logits": sizes.logits, "tokens_per_s": rate},
        **{"share": flops / peak_flops, "peak_gb": peak_gb()},
        "arithmetic_gb": (footprint.fixed_bytes + footprint.pass_bytes(tokens, sizes.logits)) / GB,
    }


def flops_per_token(footprint: Footprint, config: TrainConfig) -> float:
    """Return the operations of a token's passes, without attention's own: two for each weight that it meets.

    The backward pass takes twice as many; half of that where the weight itself is not trained. Half of the
    tokens meet the head, which is computed again in the backward pass, as layers are with checkpointing.
    """
    head = footprint.vocabulary * footprint.width
    body = footprint.weight_bytes // footprint.size - head
    backward = 2 if config.lora_rank else 4
    again = 2 if config.checkpointing else 0
    return body * (2 + backward + again) + head / 2 * (2 + backward + 2)


def make_rows(count: int, vocabulary: int) -> list[Weighted]:
    rng = random.Random(0)
    half = LENGTH // 2
    mask, turn = (0,) * half + (1,) * half, (-1,) * half + (0,) * half
    return [
        Weighted(Row(tuple(rng.randrange(vocabulary) for _ in range(LENGTH)), mask, (0.0,) * LENGTH, turn))
        for _ in range(count)
    ]


def sum_logprobs(_: Any, outputs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return -outputs.logprob.sum(), {}


def reset_peak() -> None:
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gb() -> float | str:
    return torch.cuda.max_memory_allocated() / GB if DEVICE == "cuda" else "-"


# -- a curve


def measure_curve(config: TrainConfig) -> list[dict[str, float]]:
    began = time.perf_counter()
    train(config)
    history = RunFolder(config.out).history()
    curve = [{"iteration": m.iteration, "success": m.success, "tokens": m.tokens_sampled} for m in history]
    table(
        f"{config.env}, {config.batch} episodes an iteration, {time.perf_counter() - began:.0f} s in all",
        ["iteration", "success"],
        [[str(each["iteration"]), each["success"]] for each in curve[:: max(1, len(curve) // 10)]],
    )
    return curve


def save_random(folder: Path) -> str:
    model, renderer = load(RANDOM)
    model.save_pretrained(folder)
    renderer.tokenizer.save_pretrained(folder)
    return str(folder)


# -- the arithmetic of larger models

WAYS: dict[str, dict[str, Any]] = {
    "all weights, KL": {"twin": True},
    "all weights": {},
    "LoRA 16": {"rank": 16},
    "LoRA 16, layers recomputed": {"rank": 16, "checkpointing": True},
}


def estimate(name: str, rank: int = 0, checkpointing: bool = False, twin: bool = False) -> Footprint:
    """Return the footprint of a model of `SHAPES` in bfloat16."""
    shape = {"tied": 1, **SHAPES[name]}
    layers, width, queries, keys, hidden, tied = (
        shape[key] for key in ("layers", "width", "queries", "keys", "hidden", "tied")
    )
    linear = [(width, queries), (width, keys), (width, keys), (queries, width)]
    linear += [(width, hidden), (width, hidden), (hidden, width)]
    layer = sum(a * b for a, b in linear) + 2 * width + 2 * HEAD
    weights = layers * layer + width + VOCABULARY * width * (2 - tied)
    adapter = layers * sum(rank * (a + b) for a, b in linear)
    return Footprint(
        weight_bytes=2 * weights + 4 * adapter,
        trained=adapter or weights,
        trained_size=4 if adapter else 2,
        **{"layers": layers, "width": width, "queries": queries, "keys": keys, "hidden": hidden},
        **{"vocabulary": VOCABULARY, "size": 2, "normed": True, "adapter": bool(adapter)},
        **{"checkpointing": checkpointing, "twin": twin},
    )


def memory_rows() -> list[list[str]]:
    """Return a row for each model and way: GB of its parts, and the tokens of a pass on an 80 GB card."""
    rows = []
    for name in SHAPES:
        for way, settings in WAYS.items():
            footprint = estimate(name, **settings)
            beside = footprint.optimiser_bytes + footprint.reference_bytes
            parts = [footprint.weight_bytes, beside, footprint.pass_bytes(2048, 1 << 25)]
            free = CARD - footprint.weight_bytes
            try:
                tokens = f"{choose_sizes(footprint, free, 'the card').pass_tokens:,}"
            except ValueError:
                tokens = "does not fit"
            rows.append([name, way, *(f"{part / GB:.1f}" for part in (*parts, sum(parts))), tokens])
    return rows


def print_memory() -> None:
    columns = ["weights", "optimiser, reference", "pass of 2,048", "sum", "tokens of a pass on 80 GB"]
    table("GB in bfloat16, without a sampler", ["model", "trained", *columns], memory_rows())


if __name__ == "__main__":
    main()
