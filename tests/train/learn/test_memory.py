"""The arithmetic of a step's memory: compared with real steps, and the sizes that are chosen by it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from gem.errors import BadArgument
from gem.train.config import TrainConfig
from gem.train.learn.memory import LARGEST_LOGITS, LARGEST_PASS, Footprint, choose_sizes, fit_sizes

SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 4096,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
}
HOW = {
    "config": SHAPE,
    "dtype": "float32",
    "lora": 0,
    "checkpointing": False,
    "tokens": 1024,
    "logits": 1 << 18,
}
FEW_BITS = {"dtype": "bfloat16", "tokens": 512, "logits": 1 << 17}
"""Few tokens, as most processors compute slowly in bfloat16."""
TOLERANCE = 0.2
"""Share by which the arithmetic may differ from a real step."""
GB = 10**9


@pytest.mark.system
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is Linux's")
@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "llama"},
        {"kind": "llama", "logits": 1 << 21},
        {"kind": "llama", "checkpointing": True},
        pytest.param({"kind": "qwen3", **FEW_BITS}, marks=pytest.mark.slow),  # half a minute here
        {"kind": "qwen3", **FEW_BITS, "lora": 8},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_a_real_step_needs_what_the_arithmetic_says(changes):
    if "lora" in changes:
        pytest.importorskip("peft")
    script = Path(__file__).parents[2] / "shared" / "step_memory.py"
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, script, json.dumps({**HOW, **changes})],
        env={**os.environ, **exact, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    sizes = json.loads(done.stdout)
    assert sizes["pass"] == pytest.approx(sizes["pass_predicted"], rel=TOLERANCE), sizes
    if changes == {"kind": "llama"}:  # in few bits, torch's own buffers are as large
        assert sizes["moments"] == pytest.approx(sizes["moments_predicted"], rel=TOLERANCE), sizes


def of_4b(**changes):
    """Qwen3-4B in bfloat16, trained in full unless told otherwise."""
    parameters = 4_022_468_096
    footprint = Footprint(
        **{"weight_bytes": 2 * parameters, "trained": parameters, "trained_size": 2, "layers": 36},
        **{"width": 2560, "queries": 4096, "keys": 1024, "hidden": 9728, "vocabulary": 151_936, "size": 2},
        normed=True,
    )
    return replace(footprint, **changes)


ADAPTER = {"trained": 33_030_144, "trained_size": 4, "adapter": True}


def test_sizes_grow_with_what_is_free():
    chosen = [choose_sizes(of_4b(**ADAPTER), free * GB, "cuda:0") for free in (4, 16, 30, 70, 1000)]
    assert chosen == sorted(chosen)
    assert chosen[0].pass_tokens < chosen[2].pass_tokens < chosen[3].pass_tokens
    assert chosen[-1] == (LARGEST_PASS, LARGEST_LOGITS)
    for free, sizes in zip((4, 16, 30, 70), chosen, strict=False):
        footprint = of_4b(**ADAPTER)
        beside = footprint.optimiser_bytes + footprint.reference_bytes
        assert beside + footprint.pass_bytes(*sizes) <= 0.9 * free * GB
        assert beside + footprint.pass_bytes(2 * sizes.pass_tokens, sizes.logits) > 0.9 * free * GB


def test_recomputed_layers_leave_room_for_more_tokens():
    few, many = (
        choose_sizes(of_4b(**ADAPTER, checkpointing=again), 16 * GB, "cuda") for again in (False, True)
    )
    assert many.pass_tokens >= 8 * few.pass_tokens


def test_what_does_not_fit_says_what_it_needs_and_what_would():
    with pytest.raises(
        BadArgument, match=r"training needs 7\d.\d GB beside the model's 8.0 GB, and cuda:0 has"
    ):
        choose_sizes(of_4b(), 71 * GB, "cuda:0")
    choose_sizes(of_4b(**ADAPTER), 71 * GB, "cuda:0")


def test_a_run_on_a_gpu_asks_for_its_free_memory(monkeypatch):
    config = TrainConfig(model="some/model", device="cuda", pass_tokens=0, kl=0.0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SHAPE))
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (6 * GB, 80 * GB))
    sizes = fit_sizes(config, model)
    assert asked == ["cuda"]
    assert sizes.pass_tokens > 2048
    with_reference = fit_sizes(replace(config, kl=0.1, checkpointing=False), model)
    assert with_reference.pass_tokens <= sizes.pass_tokens
    served = fit_sizes(replace(config, sampler="vllm:http://127.0.0.1:8000"), model)
    assert served.pass_tokens > sizes.pass_tokens  # nothing is kept for a sampler here
    assert fit_sizes(replace(config, pass_tokens=100), model) == (100, 0)
    assert len(asked) == 3


@pytest.mark.parametrize("given", [{}, {"model": "some/model"}])
def test_only_a_gpu_is_asked_for_its_free_memory(given):
    with pytest.raises(BadArgument, match=r"pass_tokens is 0, .* device is 'cpu'; accepted there: 1 or more"):
        TrainConfig(pass_tokens=0, **given)
