"""Train a language model with SkyRL to guess numbers: GRPO.

SkyRL 0.3.0. Verified, tier B: SkyRL's own data set, checks, rewards, batches and advantages around gem's
generator, over a small random model in place of vLLM (tests/frameworks/test_skyrl.py). The command below,
with vLLM on GPUs, has not been run.

    python examples/researcher/skyrl_guess_the_number.py runs/skyrl trainer.policy.model.path=Qwen/Qwen3-0.6B

Needs: pip install 'gem-gym[skyrl]' 'skyrl[fsdp]', and a GPU. The arguments after the folder are settings of
SkyRL; it needs WANDB_API_KEY, or trainer.logger=console.
"""

import sys
from pathlib import Path

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray

from gem.adapters.skyrl import GemGenerator, write_dataset

ENV = "game:GuessTheNumber-v0-easy"
SETTINGS = (
    "trainer.algorithm.advantage_estimator=grpo",
    "trainer.train_batch_size=64",  # tasks per step
    "trainer.policy_mini_batch_size=64",
    "generator.n_samples_per_prompt=8",  # episodes per task: a group
    "generator.max_turns=12",
    "generator.max_input_length=3072",  # tokens in front of the last answer
    "generator.sampling_params.max_generate_length=256",  # tokens of one answer
    "generator.sampling_params.logprobs=1",
)


class Experiment(BasePPOExp):
    """SkyRL's experiment, with gem's episodes in place of its own."""

    def get_generator(self, cfg, tokenizer, inference_engine_client):
        """Return what plays the episodes."""
        return GemGenerator(cfg.generator, inference_engine_client, tokenizer)


@ray.remote(num_cpus=1)
def run(cfg):
    Experiment(cfg).run()


def main() -> None:
    folder, *own = sys.argv[1:] or ["runs/skyrl"]
    out = Path(folder).resolve()
    out.mkdir(parents=True)
    train, test = out / "train.jsonl", out / "test.jsonl"
    write_dataset(train, ENV, range(10_000))
    write_dataset(test, ENV, range(10_000, 10_100))
    data = [f"data.train_data=['{train}']", f"data.val_data=['{test}']"]
    cfg = SkyRLTrainConfig.from_cli_overrides([*data, *SETTINGS, *own])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(run.remote(cfg))


if __name__ == "__main__":
    main()
