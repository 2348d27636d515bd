"""Train with ROLL's agentic pipeline on a gem environment: GRPO with groups of eight.

    python examples/researcher/roll_guess_the_number.py --model Qwen/Qwen3-1.7B --gpus 8

Needs: GPUs, and ROLL from github.com/alibaba/ROLL (not on PyPI) with its own requirements except gem-llm,
which gem-gym replaces. Install gem-gym without the extra `math`, whose antlr runtime hydra refuses.

Verified: tier B, with ROLL 0.3.0 of August 2026 (commit 8eb27cc): its queue of groups and its environment
managers, gem's and TrajEnvManager, over a proxy that samples from a small model; this file's settings read
into its AgenticConfig. The pipeline itself, which needs GPUs, was not run.
"""

import argparse

from dacite import from_dict
from omegaconf import OmegaConf

SETTINGS = """
exp_name: gem_guess
seed: 42
logging_dir: ./output/logs
output_dir: ./output
track_with: tensorboard
tracker_kwargs: {log_dir: ./output/tensorboard}
checkpoint_config: {type: file_system, output_dir: ./output/models}
num_gpus_per_node: 8
max_steps: 200
save_steps: 100
eval_steps: 20
rollout_batch_size: 128
val_batch_size: 64
sequence_length: 4096
adv_estimator: grpo
reward_normalization: {grouping: traj_group_id, method: mean_std}
pretrain: Qwen/Qwen3-1.7B
reward_pretrain: ${pretrain}

actor_train:
  model_args: {attn_implementation: fa2, dtype: bf16}
  training_args:
    learning_rate: 1.0e-6
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 16
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 1, use_distributed_optimizer: true}
  device_mapping: list(range(0,${num_gpus_per_node}))
  infer_batch_size: 1
actor_infer:
  model_args: {dtype: bf16}
  generating_args: {max_new_tokens: 256, temperature: 1.0, top_p: 1.0, top_k: -1}
  strategy_args:
    strategy_name: vllm
    strategy_config: {gpu_memory_utilization: 0.6}
  device_mapping: list(range(0,${num_gpus_per_node}))
reference:
  model_args: {attn_implementation: fa2, dtype: bf16}
  strategy_args: {strategy_name: hf_infer}
  device_mapping: list(range(0,${num_gpus_per_node}))
  infer_batch_size: 1

train_env_manager:
  num_env_groups: 16
  group_size: 8
  tags: [Guess]
  num_groups_partition: [16]
  group_filter_cls: gem.adapters.roll.GroupFilter # drops groups with an episode without verdict
val_env_manager:
  num_env_groups: 64
  group_size: 1
  tags: [Guess]
  num_groups_partition: [64]
  group_filter_cls: gem.adapters.roll.GroupFilter

custom_envs:
  Guess:
    env_type: game:GuessTheNumber-v0-easy # any id of `gem-gym list`
    env_manager_cls: gem.adapters.roll.GemEnvManager
    max_steps: 8
    max_tokens_per_step: 256
    agent_system_template: null
    agent_template: null
    wrappers: "" # python_tool, for one
    env_config: {} # keywords of the environment
"""


def settings(model, gpus):
    """Return ROLL's configuration."""
    from roll.pipeline.agentic.agentic_config import AgenticConfig

    chosen = {"pretrain": model, "num_gpus_per_node": gpus}
    merged = OmegaConf.merge(OmegaConf.create(SETTINGS), chosen)
    return from_dict(AgenticConfig, OmegaConf.to_container(merged, resolve=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen3-1.7B")
    parser.add_argument("--gpus", type=int, default=8)
    given = parser.parse_args()

    from roll.distributed.scheduler.initialize import init
    from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline

    config = settings(given.model, given.gpus)
    init()
    AgenticPipeline(pipeline_config=config).run()


if __name__ == "__main__":
    main()
