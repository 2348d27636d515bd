"""Train a language model with AgileRL on a gem environment: GRPO over turns.

AgileRL 2.58.0 takes gem's environments without an adapter. Verified by real training (tier A) of a small
random model on a CPU: tests/frameworks/test_agilerl.py runs `train` of this file, and the mean return rises.
With a pretrained model on a GPU it has not been run.

    pip install gem-gym 'agilerl[llm]'
    python examples/researcher/agilerl_grpo.py --model Qwen/Qwen3-0.6B [--steps 100]

Each turn has its own reward: AgileRL computes advantages per turn. An environment that breaks ends the run;
it never becomes a reward of 0. In a manifest of AgileRL the environment is

    environment: {entrypoint: "game:GuessTheNumber-v0-easy", factory: "gem:make", env_config: {}}
"""

import argparse
from functools import partial
from typing import Any

from agilerl.algorithms.grpo import GRPO
from agilerl.llm_envs import RolloutHarness
from agilerl.training.llm.rollout import train_llm_rollout
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

ENV = "game:GuessTheNumber-v0-easy"


def train(
    model: Any,
    tokenizer: Any,
    env: str,
    *,
    steps: int,
    turns: int,
    groups: int = 8,
    samples: int = 8,
    answer_tokens: int = 256,
    context: int = 2048,
    **settings: Any,
) -> None:
    """Train with GRPO: in each step `groups` seeds, `samples` episodes from each; `settings` are GRPO's."""
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    agent = GRPO(
        pad_token_id=tokenizer.pad_token_id,
        pad_token=tokenizer.pad_token,
        actor_network=model,
        lora_config=lora,
        batch_size=groups,
        group_size=samples,
        max_output_tokens=answer_tokens,
        max_model_len=context,
        top_k=0,  # the whole distribution: log probabilities are of what was sampled from
        temperature=1.0,
        **settings,
    )
    # The environments of a group are made anew, and begin from one seed.
    make = partial(
        RolloutHarness.from_spec, env, {}, tokenizer, turns, factory="gem:make", max_model_len=context
    )
    train_llm_rollout(
        [agent],
        max_turns=turns,
        env_factory=make,
        max_steps=steps * groups * samples * turns,  # it counts turns
        evaluation_interval=steps + 1,  # none: what was earned in training is shown
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    train(model, tokenizer, ENV, steps=args.steps, turns=8, lr=5e-6)


if __name__ == "__main__":
    main()
