r"""Train with RL2 on gem environments: this file is its ``rollout.env_path``.

    python examples/researcher/rl2_guess_the_number.py tasks.jsonl            # writes the data set
    torchrun --nproc_per_node=4 -m RL2.trainer.ppo \
        rollout.train.path=tasks.jsonl rollout.env_path=examples/researcher/rl2_guess_the_number.py \
        rollout.train.prompts_per_rollout=16 rollout.train.responses_per_prompt=8 \
        rollout.train.sampling_params.max_new_tokens=256 \
        actor.model_name=Qwen/Qwen3-1.7B actor.max_length_per_device=8192 adv.norm_var=true \
        trainer.project=gem trainer.experiment_name=guess trainer.total_steps=100

Needs: RL2 from github.com/ChenmienTan/RL2 (not on PyPI), with SGLang and GPUs; pip install 'gem-gym[openai]'.

Verified: tier B, with RL2 of May 2026 (commit 9161ede): its SampleGroup calls this file's `generate` against
a local server with SGLang's API and a small model, and packs the results. Its trainer, which needs GPUs, was
not run.
"""

import sys

from gem.adapters.rl2 import generate, write_tasks

__all__ = ["generate"]  # what RL2 looks for

if __name__ == "__main__":
    write_tasks(sys.argv[1], "game:GuessTheNumber-v0-easy", range(4096), turns=8)
