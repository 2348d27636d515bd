"""TRL's GRPOTrainer on a game of gem: a model of 100,000 parameters learns to guess a number.

Verified with TRL 1.16.0 and transformers 5.23 by real training (tier A): tests/frameworks/test_trl.py runs
this file, and the mean return rises from 0.5 to 0.7. It takes a minute on a CPU.

    pip install 'gem-gym[trl]'
    python examples/researcher/trl_grpo.py [--steps 25]

The model starts with random weights, so it is first trained on a few episodes of the game's own solver.
Without that, every answer would be unreadable, all returns equal, and GRPO would have no gradient. A
pretrained model needs no such warm-up: give its name to GRPOTrainer as `model`, and no `processing_class`.

A model that supports tools can act by calling one. TRL then plays the episodes, and the trainer gets
`environment_factory=tool_environment(ID, group=8)` of gem.adapters.trl_tools instead of the data set, the
reward function and the rollout function here. For environments that reward single turns, TurnGRPOTrainer of
gem.adapters.trl_turns gives each turn its own advantage (ReBN).
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from gem import seeding
from gem.adapters.trl import Rollouts, dataset, episode_reward
from gem.agents.hugging_face import HuggingFaceAgent
from gem.record import Episode
from gem.rollout import EpisodeStore, Job, rollout
from gem.rollout.demos import write_demos
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.demonstration import tokenise
from gem.tokens.rows import rows

ENV = "game:GuessTheNumber-v0-easy"  # from 1 to 10 in 4 guesses; a guess earns the share of what it reveals
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def demonstrations(count: int) -> list[Episode]:
    """Return episodes of the game's solver."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demos.jsonl"
        write_demos(ENV, path, episodes=count)
        with EpisodeStore(path, read_only=True) as store:
            return list(store)


def make_tokenizer(demos: list[Episode]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on what is said in the demonstrations."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    said = [text for episode in demos for turn in episode.turns for text in (turn.observation, turn.action)]
    bpe.train_from_iterator(["system\nuser\nassistant\n", *map(str, said)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Make a Qwen3 of two layers with random weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def clone(model: Any, tokenizer: Any, demos: list[Episode], steps: int, batch: int, seed: int) -> float:
    """Clone demonstrations: supervised learning on the tokens of the answers. Returns the last loss."""
    renderer = ChatTemplateRenderer(tokenizer)
    made = [row for episode in demos for row in rows(tokenise(episode, renderer))]
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    loss = torch.tensor(0.0)
    for step in range(steps):
        chosen = seeding.stream(seed, "clone", step).sample(made, batch)
        longest = max(len(row.ids) for row in chosen)
        ids = torch.full((batch, longest), tokenizer.pad_token_id)
        labels = torch.full((batch, longest), -100)  # not learned on
        for place, row in enumerate(chosen):
            ids[place, : len(row.ids)] = torch.tensor(row.ids)
            learned = torch.tensor(row.mask, dtype=torch.bool)
            labels[place, : len(row.ids)][learned] = torch.tensor(row.ids)[learned]
        loss = model(input_ids=ids, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def mean_return(model: Any, tokenizer: Any, episodes: int = 256, seed: int = 1) -> float:
    """Return the mean return of episodes that are not trained on."""
    agent = HuggingFaceAgent(model, ChatTemplateRenderer(tokenizer), max_tokens=12)
    jobs = [Job(ENV, seeding.derive(seed, "evaluation", i)) for i in range(episodes)]
    returns = [episode.reward() for episode in rollout(jobs, agent)]
    return sum(returns) / len(returns)


def train(
    model: Any,
    tokenizer: Any,
    *,
    steps: int,
    groups: int = 16,
    samples: int = 8,
    seed: int = 0,
    **options: Any,
) -> GRPOTrainer:
    """Train with GRPO: in each step `groups` numbers, and `samples` episodes for each."""
    seeds = [seeding.derive(seed, "training", i) for i in range(steps * groups)]
    settings = {
        "output_dir": "runs/trl_grpo",
        "max_steps": steps,
        "per_device_train_batch_size": groups * samples,
        "num_generations": samples,
        "max_completion_length": 12,  # of an answer
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "gradient_checkpointing": False,  # it would slow sampling down
        "bf16": False,  # TRL's default is True, which CPUs are slow at
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 5,
        "seed": seed,
    }
    with Rollouts() as rollouts:
        trainer = GRPOTrainer(
            model,
            reward_funcs=episode_reward,
            args=GRPOConfig(**settings | options),
            train_dataset=dataset(ENV, seeds),
            processing_class=tokenizer,
            rollout_func=rollouts,
        )
        trainer.train()
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    disable_progress_bars()
    demos = demonstrations(256)
    tokenizer = make_tokenizer(demos)
    model = make_model(tokenizer, given.seed)
    loss = clone(model, tokenizer, demos, steps=100, batch=32, seed=given.seed)
    before = mean_return(model, tokenizer)
    print(f"after the warm-up (loss {loss:.2f}): mean return {before:.3f}")
    train(model, tokenizer, steps=given.steps, seed=given.seed)
    print(f"after {given.steps} steps of GRPO: mean return {mean_return(model, tokenizer):.3f}")


if __name__ == "__main__":
    main()
