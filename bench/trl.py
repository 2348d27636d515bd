"""CPU time of SmolLM2 in gem and in TRL: for a sampled token, and for a position of a training step.

``OMP_NUM_THREADS=1 python -m bench.trl [--model NAME]``, in float32 on the CPU. The game is that of
`bench.llm_sampler`, with tasks of `SAMPLES` episodes each, and answers in the two forms of `ANSWERS`. Both
ways do the same work, by turns, and the table has the medians of CPU seconds:

- Sampling: `HuggingFaceAgent`, and `GRPOTrainer._generate_single_turn`, which calls `model.generate()` on the
  whole conversation in each turn, as TRL does where it plays itself.
- Learning: one step on the same rows, from recorded episodes to updated weights. In gem `policy_gradient`
  with its `Learner`; in TRL a step of `GRPOTrainer.train()`, whose `rollout_func` returns the recorded rows.
  Layers, precision, advantages and mean over tokens are the same, and the learning rate is 0. TRL's gradient
  checkpointing, which is slower, is off.

How much gem saves depends on what rows have in common: much where answers are short and the policy is sharp,
little where answers are long and differ.

A sampled token is one that the model drew; ids after the end of an answer do not count. A position is a token
of a row, the prompt included and padding excluded. It counts once for each row that has it, in both ways,
although gem computes a common prefix once.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from typing import Any

import torch
import transformers
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import gem
from bench.common import choose_size, parse_args, table, write_json
from bench.llm_sampler import BOXED, ENV, RANDOM, AnyNumber, load
from gem.adapters.trl import dataset, episode_reward
from gem.agents.hugging_face import HuggingFaceAgent
from gem.record import Episode
from gem.rollout import Job, rollout
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import Row, rows
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import CausalPolicy, freeze_below
from gem.train.learn.steps import Progress

SAMPLES = choose_size(8, 2)
"""Episodes of a task."""
PASS_ROWS, PASS_TOKENS = SAMPLES, 2048
"""How much of a step each way takes through the model at a time: rows in TRL, distinct tokens in gem."""
ANSWERS: dict[str, dict[str, Any]] = {
    "free": {"max_tokens": choose_size(16, 4)},
    "boxed": {"max_tokens": choose_size(8, 4), **BOXED},
}
"""Forms of answers: any text up to a limit; what follows a given beginning, up to a stop text."""


class Replay:
    """A `rollout_func` that returns recorded episodes, one row each."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Return the columns that TRL takes; the prompts are as many as the episodes."""
        halves = [row_of(episode).split() for episode in self.episodes]
        return {
            "prompt_ids": [list(prompt.ids) for prompt, _ in halves],
            "completion_ids": [list(completion.ids) for _, completion in halves],
            "logprobs": [list(completion.logprobs) for _, completion in halves],
            "env_mask": [list(completion.mask) for _, completion in halves],
            "reward": [episode.reward() for episode in self.episodes],
        }


class Timer(TrainerCallback):
    """The CPU seconds of a trainer's last step."""

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin to count, before the step's rows are made."""
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop after the weights are updated."""
        self.seconds = time.process_time() - self._began


class Sampler(HuggingFaceAgent):
    """An agent whose tokens a TRL trainer samples, from whole conversations."""

    trainer: Any

    def _probe(self) -> Any:
        return None

    def _generate(self, batch: list[Any]) -> None:
        made, _ = self.trainer._generate_single_turn([list(each.prompt) for each in batch], None, {}, 1)
        for writing, ids in zip(batch, made, strict=True):
            for token in ids:
                if not self._take(writing, token, 0.0, 0.0):
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", default=choose_size("smollm2", RANDOM), help="a name accepted by `gem.models.load_causal`"
    )
    parser.add_argument("--tasks", type=int, default=choose_size(8, 2), help=f"of {SAMPLES} episodes each")
    parser.add_argument("--layers", type=int, default=choose_size(18, 1), help="trained ones, the upper")
    parser.add_argument("--rounds", type=int, default=choose_size(3, 1), help="how often each is measured")
    parser.add_argument("--answers", nargs="+", choices=ANSWERS, default=list(ANSWERS), help="their form")
    parser.add_argument("--only", choices=("sampling", "learning"), help="leave the other out")
    options = parse_args(parser)
    transformers.logging.set_verbosity_error()
    model, renderer = load(options.model)
    freeze_below(model, options.layers)
    spent = {form: measure(form, model, renderer, options) for form in options.answers}
    medians = [
        (form, what, *(statistics.median(of[name]) for name in ("gem", "TRL")))
        for form, found in spent.items()
        for what, of in found.items()
    ]
    table(
        f"{options.model} on {ENV}, {options.tasks * SAMPLES} episodes, {torch.get_num_threads()} threads: "
        "CPU milliseconds",
        ["answers", "for a", "gem", "TRL", "ratio"],
        [[form, what, mine, theirs, theirs / mine] for form, what, mine, theirs in medians],
    )
    write_json("trl", {**vars(options), "threads": torch.get_num_threads(), "cpu_ms": spent})


def measure(
    form: str, model: Any, renderer: ChatTemplateRenderer, options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Return the CPU milliseconds of each round, by what they are for and by whose they are."""
    spent: dict[str, dict[str, list[float]]] = {}

    def note(what: str, name: str, seconds: float, count: int) -> None:
        spent.setdefault(what, {}).setdefault(name, []).append(1000 * seconds / count)
        print(f"{form} answers, {name}: {count:,} times a {what}, {seconds:.1f} s", flush=True)

    settings = {"tools": "text", **ANSWERS[form]}
    agent, sampler = HuggingFaceAgent(model, renderer, **settings), Sampler(model, renderer, **settings)
    learner = Learner(CausalPolicy(model, renderer, agent), Settings(lr=0.0, pass_tokens=PASS_TOKENS))
    replay, timer = Replay(), Timer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = sampler.trainer = make_trainer(sampler, replay, timer, options.tasks, folder)
        play(agent, 1)  # what the first call finds out is no part of it
        for number in range(options.rounds):
            agent.publish(number)  # as in training: the weights are others each time
            for name, player in (("gem", agent), ("TRL", sampler)):
                if options.only == "learning" and replay.episodes:
                    continue
                before = player.tokens_sampled
                began = time.process_time()
                played = play(player, options.tasks)
                seconds = time.process_time() - began
                if options.only != "learning":
                    note("sampled token", name, seconds, player.tokens_sampled - before)
                replay.episodes = replay.episodes or played
            if options.only == "sampling":
                continue
            positions = sum(len(row_of(episode).ids) for episode in replay.episodes)
            began = time.process_time()
            computed = learn(learner, replay.episodes)
            seconds = time.process_time() - began
            print(f"of {positions:,} positions gem computes {computed:,}, padding included")
            note("position of a step", "gem", seconds, positions)
            trainer.train()
            note("position of a step", "TRL", timer.seconds, positions)
    return spent


def make_trainer(
    agent: HuggingFaceAgent, replay: Replay, timer: Timer, tasks: int, folder: str
) -> GRPOTrainer:
    """Return a trainer of a copy of the agent's model; its `train` takes one step on all of `replay`."""
    model, tokenizer = copy.deepcopy(agent.model), agent.renderer.tokenizer  # type: ignore[attr-defined]
    ends = set(agent.renderer.stop_ids)
    for text in agent.stop:  # TRL has no stop texts, but takes any ids as ends
        ends |= {token for token in range(len(tokenizer)) if text in tokenizer.decode([token])}
    model.generation_config.eos_token_id = sorted(ends)
    args = GRPOConfig(
        output_dir=folder, max_steps=1, per_device_train_batch_size=PASS_ROWS,
        gradient_accumulation_steps=tasks * SAMPLES // PASS_ROWS, num_generations=SAMPLES,
        max_completion_length=agent.max_tokens, learning_rate=0.0, adam_beta2=0.95, scale_rewards="none",
        beta=0.0, gradient_checkpointing=False, bf16=False, use_cpu=True, disable_tqdm=True,
        report_to="none", save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    trainer = GRPOTrainer(
        model,
        reward_funcs=episode_reward,
        args=args,
        train_dataset=dataset(ENV, range(tasks)),
        processing_class=tokenizer,
        rollout_func=replay,
        callbacks=[timer],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def play(agent: HuggingFaceAgent, tasks: int) -> list[Episode]:
    torch.manual_seed(0)  # of generate's own chance
    jobs = [
        Job(lambda: AnyNumber(gem.make(ENV)), task, group=str(task), sample=sample)
        for task in range(tasks)
        for sample in range(SAMPLES)
    ]
    played = rollout(jobs, agent)
    broken = [episode.error for episode in played if not episode.scored]
    if broken:
        raise SystemExit(f"{len(broken)} episodes broke; the first: {broken[0]}")
    return played


def row_of(episode: Episode) -> Row:
    """Return an episode's tokens; a conversation that only grows is one row."""
    (row,) = rows(episode)
    return row


def learn(learner: Learner, episodes: list[Episode]) -> int:
    """Take a step on the episodes; return how many positions it computed."""
    config = TrainConfig.fit(
        model="in memory", algorithm="dr_grpo", normalise="token", batch=len(episodes), group=SAMPLES,
        minibatch=len(episodes), episodes=len(episodes), epochs=1, lr=0.0, lr_ramp=0, kl=0.0,
    )  # fmt: skip
    steps = policy_gradient.learn(learner, episodes, config, Progress(0, 1))
    if not steps.positions:
        raise SystemExit("all episodes of each task earned the same: there is nothing to learn")
    return steps.positions


if __name__ == "__main__":
    main()
