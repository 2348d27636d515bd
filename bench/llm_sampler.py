"""Cost of sampling from a language model, and the effect of each optimisation of `HuggingFaceAgent`.

``OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive python -m bench.llm_sampler [--model NAME]``. It plays games of
GuessTheNumber-v0-easy, 64 at a time, through `gem.rollout`, in float32 on the CPU. Any answer of the model is
turned into a guess, so that games go on as with a trained model. In the first rows the model reads the whole
prompt in each turn; each next row adds one optimisation. Prefix and stop make answers short, so that few
tokens bear the cost of a whole prompt. So compare the last rows with each other, by turns as well as tokens.

Rates are per CPU second of this process, which hardly depends on other load of the machine; the last column
is the wall time.
"""

from __future__ import annotations

import argparse
import re
import time
from typing import Any

import torch

import gem
from bench.common import choose_size, parse_args, table, write_json
from gem.agents.hugging_face import HuggingFaceAgent
from gem.models import load_causal
from gem.rollout import Job, rollout
from gem.tokens.chat_template import ChatTemplateRenderer

EPISODES = choose_size(64, 2)
ENV = "game:GuessTheNumber-v0-easy"
RANDOM = "random"
"""The name of a model of 100,000 random weights, which needs no download."""


class AnyNumber(gem.EnvWrapper):
    """The first number of an answer is the guess; where there is none, the length of the answer makes one."""

    def step(self, action: Any) -> Any:
        """See Env.step."""
        text = str(action)
        found = re.search(r"\d+", text)
        guess = int(found[0]) % 11 if found else len(text) % 10 + 1
        return self.env.step(f"\\boxed{{{guess or 10}}}")


class Generate(HuggingFaceAgent):
    """The model's own `generate`, over whole prompts."""

    def _probe(self) -> Any:
        return None

    def _generate(self, batch: list[Any]) -> None:
        longest = max(len(writing.prompt) for writing in batch)
        padding = [longest - len(writing.prompt) for writing in batch]
        pairs = list(zip(padding, batch, strict=True))
        made = self.model.generate(
            input_ids=torch.tensor([[0] * pad + list(writing.prompt) for pad, writing in pairs]),
            attention_mask=torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding]),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=self.temperature,
            max_new_tokens=max(writing.limit for writing in batch),
            eos_token_id=sorted(self.renderer.stop_ids),
            pad_token_id=min(self.renderer.stop_ids),
        )
        for writing, ids in zip(batch, made[:, longest:].tolist(), strict=True):
            for token in ids:
                if not self._take(writing, token, 0.0, 0.0):
                    break


class Whole(HuggingFaceAgent):
    """Whole prompts, each row by itself: what this agent did before it kept anything."""

    def _probe(self) -> Any:
        return None


class EachByItself(HuggingFaceAgent):
    """Keys and values are kept, and equal contexts computed as often as they are asked for."""

    def _groups(self, batch: list[Any]) -> list[list[Any]]:
        return [[writing] for writing in batch]


BOXED = {"prefix": "\\boxed{", "stop": ("}",)}
LADDER: list[tuple[str, type[HuggingFaceAgent], dict[str, Any]]] = [
    ("whole prompts", Whole, {}),
    ("model.generate()", Generate, {}),
    ("+ caches over turns", EachByItself, {}),
    ("+ equal contexts once", HuggingFaceAgent, {}),
    ("+ prefix and stop", HuggingFaceAgent, BOXED),
    ("whole prompts, prefix and stop", Whole, BOXED),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", default=choose_size("smollm2", RANDOM), help="a name accepted by `gem.models.load_causal`"
    )
    parser.add_argument("--max-tokens", type=int, default=choose_size(16, 4))
    parser.add_argument("--rounds", type=int, default=1, help="how often each row is measured")
    options = parse_args(parser)
    model, renderer = load(options.model)
    results = []
    for name, kind, settings in LADDER:
        agent = kind(model, renderer, max_tokens=options.max_tokens, tools="text", **settings)
        play(agent, 1)  # what the first call finds out is no part of it
        agent.publish(1)
        results.append({"name": name, **measure(agent, options.rounds)})
        print(f"{name}: {results[-1]['seconds']:.1f} s", flush=True)
    first = results[0]
    for found in results:
        found["over_whole_prompts"] = found["tokens_per_s"] / first["tokens_per_s"]
        found["turns_over_whole_prompts"] = found["turns_per_s"] / first["turns_per_s"]
    columns = ("tokens", "turns", "tokens_per_s", "over_whole_prompts", "turns_per_s")
    columns = (*columns, "turns_over_whole_prompts", "wall_s")
    table(
        f"{ENV}, {EPISODES} episodes, {options.max_tokens} tokens a turn, {torch.get_num_threads()} threads",
        ["sampler", "tokens", "turns", "tokens/s", "ratio", "turns/s", "ratio", "wall s"],
        [[found["name"], *(found[column] for column in columns)] for found in results],
    )
    write_json("llm_sampler", {"model": options.model, "threads": torch.get_num_threads(), "ladder": results})


def load(name: str) -> tuple[Any, ChatTemplateRenderer]:
    if name == RANDOM:
        from examples.researcher import trl_grpo  # here: it imports TRL

        tokenizer = trl_grpo.make_tokenizer(trl_grpo.demonstrations(4))
        return trl_grpo.make_model(tokenizer, seed=0).eval(), ChatTemplateRenderer(tokenizer)
    model, tokenizer = load_causal(name)
    return model.eval(), ChatTemplateRenderer(tokenizer)


def measure(agent: HuggingFaceAgent, rounds: int) -> dict[str, float]:
    sampled = turns = 0
    began, began_wall = time.process_time(), time.perf_counter()
    for number in range(rounds):
        before = agent.tokens_sampled
        turns += play(agent, EPISODES, number)
        sampled += agent.tokens_sampled - before
        agent.publish(number)  # as in training: the weights are others each time
    seconds = time.process_time() - began
    return {
        "tokens": sampled,
        "turns": turns,
        "seconds": seconds,
        "wall_s": time.perf_counter() - began_wall,
        "tokens_per_s": sampled / seconds,
        "turns_per_s": turns / seconds,
    }


def play(agent: HuggingFaceAgent, episodes: int, number: int = 0) -> int:
    torch.manual_seed(number)  # of generate's own chance
    jobs = [Job(lambda: AnyNumber(gem.make(ENV)), number * EPISODES + seed) for seed in range(episodes)]
    played = rollout(jobs, agent)
    broken = [episode.error for episode in played if not episode.scored]
    if broken:
        raise SystemExit(f"{len(broken)} episodes broke; the first: {broken[0]}")
    return sum(len(episode.turns) for episode in played)


if __name__ == "__main__":
    main()
