"""The peak memory of a training step in a process of its own, and what the arithmetic says: JSON on stdout.

``python step_memory.py '{"config": {...}, "kind": "qwen3", "dtype": "float32", "lora": 0, "checkpointing":
false, "tokens": 2048, "logits": 524288}'``. Linux only: the kernel tells a process its peak, and forgets it.
"""

import gc
import json
import random
import re
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gem.tokens.rows import Row
from gem.train.learn.batch import Weighted
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.memory import Footprint
from gem.train.learn.policy import CausalPolicy, checkpoint_layers

LENGTH = 128
SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}


class Words:
    """As much of a renderer as a learner asks for."""

    stop_ids = frozenset({0})
    vocab_hash = "words"
    knows_tools = False


class Silent:
    """As much of an agent."""

    context = None

    def publish(self, version, weights=None):
        self.policy_version = version


def make_rows(count, vocabulary):
    rng = random.Random(count)
    half = LENGTH // 2
    mask, turn = (0,) * half + (1,) * half, (-1,) * half + (0,) * half
    return [
        Weighted(Row(tuple(rng.randrange(vocabulary) for _ in range(LENGTH)), mask, (0.0,) * LENGTH, turn))
        for _ in range(count)
    ]


def make_policy(how, changes=None):
    torch.manual_seed(0)
    config = AutoConfig.for_model(how["kind"], **{**how["config"], **(changes or {})})
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, how["dtype"])).eval()
    if how["lora"]:
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(r=how["lora"], target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapter)
    if how["checkpointing"]:
        checkpoint_layers(model)
    policy = CausalPolicy(model, Words(), Silent())
    if how["checkpointing"]:
        policy.capacity = None
    return policy


def step(learner, count, vocabulary):
    learner.update(make_rows(count, vocabulary), lambda _, outputs: (-outputs.logprob.sum(), {}), count)


def resident(name):
    """VmRSS is the memory of this process now, VmHWM its peak, in bytes."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def main():
    how = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    vocabulary = how["config"]["vocab_size"]
    step(Learner(make_policy(how, SMALL)), 4, vocabulary)  # what a first step loads is not its memory
    gc.collect()
    policy = make_policy(how)
    learner = Learner(policy, Settings(pass_tokens=how["tokens"], logits=how["logits"]))
    gc.collect()
    made = resident("VmRSS")
    step(learner, 1, vocabulary)  # AdamW makes its moments
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step(learner, 2 * how["tokens"] // LENGTH, vocabulary)
    footprint = Footprint.of(policy.model, checkpointing=how["checkpointing"])
    gradients = footprint.trained * (4 if footprint.trained_size == 4 else 6)
    print(
        json.dumps(
            {
                "moments": before - made,
                "moments_predicted": 8 * footprint.trained,
                "pass": resident("VmHWM") - before,
                "pass_predicted": footprint.pass_bytes(how["tokens"], how["logits"]) + gradients,
            }
        )
    )


if __name__ == "__main__":
    main()
