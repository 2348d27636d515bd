"""Train a language model with verl to guess numbers: GRPO, or ReBN over turns.

verl 0.9.1. Verified, tier B: verl's own AgentLoopWorker, and the V1 trainer's worker, replay buffer,
advantages and loss, over a small random model in place of vLLM (tests/frameworks/test_verl.py). The command
below, with vLLM on GPUs, has not been run.

    python examples/researcher/verl_guess_the_number.py --model Qwen/Qwen3-0.6B --gpus 1 [--rebn]

Needs: pip install 'gem-gym[verl,data]' 'verl[vllm]', and a GPU.

Comments explain every line of the command. Episodes that infrastructure broke are left out of their group;
with --rebn, each turn has its own return, for environments with dense rewards.
"""

import argparse
import os
import sys
from pathlib import Path

from gem.adapters.verl import write_dataset

ENV = "game:GuessTheNumber-v0-easy"

LOOP = """\
- name: gem                                  # the column agent_name of the data set
  _target_: gem.adapters.verl.GemAgentLoop
  limits: {{turns: 12, turn_tokens: 256}}
  rewards: {rewards}                         # on each turn's last token, or all on the episode's
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--rebn", action="store_true", help="use ReBN over turns instead of GRPO")
    parser.add_argument("--out", type=Path, default=Path("runs/verl"))
    args = parser.parse_args()

    args.out.mkdir(parents=True)
    train, test, loop = args.out / "train.parquet", args.out / "test.parquet", args.out / "loop.yaml"
    write_dataset(train, ENV, range(10_000))
    write_dataset(test, ENV, range(10_000, 10_100))
    loop.write_text(LOOP.format(rewards="turn" if args.rebn else "episode"))

    command = [
        *(sys.executable, "-m", "verl.trainer.main_ppo"),
        f"data.train_files={train.resolve()}",
        f"data.val_files={test.resolve()}",
        "data.train_batch_size=64",  # tasks per step
        "actor_rollout_ref.rollout.n=8",  # episodes per task: a group
        "actor_rollout_ref.rollout.prompt_length=1024",  # tokens in front of the first answer
        "actor_rollout_ref.rollout.response_length=4096",  # tokens from there on, observations included
        "data.max_prompt_length=1024",
        "data.max_response_length=4096",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop.resolve()}",
        f"algorithm.adv_estimator={'gem_rebn' if args.rebn else 'grpo'}",
        f"actor_rollout_ref.model.path={args.model}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.calculate_log_probs=true",  # rows hold what the sampler said
        "actor_rollout_ref.actor.ppo_mini_batch_size=64",
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        f"trainer.n_gpus_per_node={args.gpus}",
        "trainer.total_training_steps=100",
        "trainer.test_freq=10",
        "trainer.logger=[console]",
    ]
    # Every process of verl then imports the adapter, which registers the loop and the estimator.
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "gem.adapters.verl"
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
