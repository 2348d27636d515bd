"""Train a language model with OpenRLHF to guess numbers: Dr. GRPO.

OpenRLHF 0.11.2. Verified, tier B: OpenRLHF's own rollout actor, samples, advantages and loss over a small
random model in place of vLLM (tests/frameworks/test_openrlhf.py). The command below, with vLLM on GPUs, has
not been run.

    python examples/researcher/openrlhf_guess_the_number.py --model Qwen/Qwen3-0.6B --gpus 1

Needs: pip install gem-gym 'openrlhf[vllm]', and a GPU. This file is both the command, and the agent that
OpenRLHF loads.
"""

import argparse
import os
import sys
from pathlib import Path

from gem.adapters.openrlhf import GemExecutor, write_dataset
from gem.record import Limits

ENV = "game:GuessTheNumber-v0-easy"


class AgentExecutor(GemExecutor):
    """What OpenRLHF looks for in this file."""

    limits = Limits(turns=12, turn_tokens=256)
    filtered = True  # an episode without verdict takes its prompt out, as the command allows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/openrlhf"))
    args = parser.parse_args()

    args.out.mkdir(parents=True)
    data = (args.out / "train.jsonl").resolve()
    write_dataset(data, ENV, range(10_000))

    settings = {
        "train.agent_func_path": Path(__file__).resolve(),
        "data.prompt_dataset": data,
        "data.input_key": "input",
        "data.label_key": "label",  # the task; the input is for people
        "data.max_len": 4096,  # tokens of an episode
        "rollout.batch_size": 64,  # tasks per step
        "rollout.n_samples_per_prompt": 8,  # episodes per task: a group
        "train.batch_size": 512,
        "algo.advantage.estimator": "dr_grpo",
        "algo.kl.init_coef": 0,
        "actor.model_name_or_path": args.model,
        "actor.num_nodes": 1,
        "actor.num_gpus_per_node": args.gpus,
        "ref.num_nodes": 1,
        "ref.num_gpus_per_node": args.gpus,
        "vllm.num_engines": args.gpus,
        "vllm.tensor_parallel_size": 1,
        "ckpt.output_dir": args.out / "model",
    }
    command = [sys.executable, "-m", "openrlhf.cli.train_ppo_ray"]
    for name, value in settings.items():
        command += [f"--{name}", str(value)]
    # Scores are 1 for a solved episode, else 0: prompts whose samples are all alike teach nothing.
    command += ["--algo.dynamic_filtering_enable", "--algo.dynamic_filtering_range", "0", "1"]
    command += ["--train.colocate_all", "--vllm.enable_sleep", "--ds.enable_sleep"]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
