r"""Train with Oat on a gem environment: an actor that collects experience with gem's runner.

    python examples/researcher/oat_actor.py --env_id game:GuessTheNumber-v0-easy --pretrain Qwen/Qwen3-1.7B \
        --critic_type drgrpo --gpus 8 --train_batch_size_per_device 1 --max_model_len 4096

Needs: Oat with vLLM 0.8.4, flash-attn and GPUs. Oat requires Python below 3.11 and gem 3.11 or newer, so Oat
must be built for 3.11 by hand (``pip install --ignore-requires-python oat-llm``).

Verified: tier C, with oat-llm 0.2.4: only its types can be imported here. `gem.adapters.oat` fills real
Transitions from a small model's episodes. This actor and Oat's learner were not run; they follow its source.
"""

from dataclasses import dataclass
from itertools import count

import launchpad as lp
import torch
from oat.algorithms.ppo import PPOArgs
from oat.algorithms.ppo_multiturn import PPOMultiTurnActor, PPOMultiTurnLearner
from oat.args import default_args_validation, get_default_args
from oat.interface import get_program

from gem import seeding
from gem.adapters.oat import VllmAgent, experience
from gem.record import Limits
from gem.rollout import Job, Runner
from gem.tokens.chat_template import ChatTemplateRenderer


@dataclass
class GemArgs(PPOArgs):
    """Oat's settings and the environment's."""

    env_id: str = "game:GuessTheNumber-v0-easy"
    max_turns: int = 8


class GemActor(PPOMultiTurnActor):
    """Plays episodes until there are as many turns as a learner takes."""

    def init(self, actor_id, save_path):
        super().init(actor_id, save_path)
        self.renderer = ChatTemplateRenderer(self.tokenizer)
        agent = VllmAgent(self.generate, self.sampling_params, self.renderer, self.args.max_model_len)
        self.runner = Runner(agent, limits=Limits(turns=self.args.max_turns))
        self.numbers = count()

    def collect_experience(self):
        seed = seeding.derive(self.args.seed, "actor", self.actor_id)
        jobs = (Job(self.args.env_id, seeding.derive(seed, number)) for number in self.numbers)
        episodes, turns = [], 0
        for episode in self.runner.stream(jobs):
            episodes.append(episode)
            turns += len(episode.turns) if episode.scored else 0
            if turns >= self.args.rollout_batch_size_per_device:
                break
        return experience(episodes, self.renderer.decode)


class NoPrompts(torch.utils.data.Dataset):
    """What Oat goes through; the actor's prompts come from the environment."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return "", "", ""


class GemLearner(PPOMultiTurnLearner):
    """Oat's learner without a data set of prompts."""

    def prepare_data(self, strategy, tokenizer):
        size = strategy.args.rollout_batch_size_per_device
        self.prompts_dataset = self.eval_prompts_dataset = NoPrompts()
        self.prompts_dataloader = strategy.setup_dataloader(self.prompts_dataset, size)
        self.eval_prompts_dataloader = None


if __name__ == "__main__":
    args = get_default_args(GemArgs)
    args.algo, args.online_evaluation = "PPO", False
    program, resources = get_program(default_args_validation(args), GemLearner, GemActor)
    lp.launch(program, launch_type=args.launch_type, local_resources=resources, terminal="current_terminal")
