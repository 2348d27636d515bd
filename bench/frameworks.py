"""The same training in several frameworks: do their learning curves agree? `python -m bench.frameworks`.

One environment, one model (examples/researcher/trl_grpo.py: a Qwen3 of 100,000 parameters, warmed up on
demonstrations), one objective: group-relative advantages without division by the deviation, averaged over the
tokens of a step, with one AdamW step on each batch of 16 tasks with 8 episodes. All runs start from the same
weights. A seed has the same tasks in every framework; the sampling noise differs.

A framework is one function of CURVES: model, tokenizer, seed and steps in, the mean return of each step out.
Finished runs are kept in bench/out/frameworks and not run again. A run of 25 steps takes half a CPU minute.

Prints a table, writes bench/out/frameworks.json and draws docs/images/frameworks.png.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
import tyro
from matplotlib.figure import Figure

from bench.common import OUT, SMALLEST, choose_size, table, write_json
from examples.researcher import trl_grpo
from gem import seeding
from gem.agents.hugging_face import HuggingFaceAgent
from gem.record import Episode
from gem.rollout import Job, Runner
from gem.statistics import mean_interval
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import CausalPolicy
from gem.train.learn.steps import Progress

GROUPS, SAMPLES = choose_size((16, 8), (2, 2))
LR, MAX_TOKENS = 1e-3, 12
PICTURE = choose_size(Path("docs/images"), OUT) / "frameworks.png"


@dataclass(frozen=True)
class Args:
    """What is run."""

    seeds: tuple[int, ...] = choose_size((0, 1, 2, 3, 4), (0, 1))
    """Runs per framework."""

    steps: int = choose_size(25, 1)
    """Steps of a run, of 128 episodes each."""

    smallest: bool = False
    """The smallest sizes, which give no figures."""


def tasks(seed: int, steps: int) -> list[int]:
    """Return the seeds of the episodes that are trained on, in order: 16 for each step."""
    return [seeding.derive(seed, "training", i) for i in range(steps * GROUPS)]


def gem_curve(model: Any, tokenizer: Any, seed: int, steps: int) -> list[float]:
    """Train with gem's own learner."""
    renderer = ChatTemplateRenderer(tokenizer)
    agent = HuggingFaceAgent(model, renderer, max_tokens=MAX_TOKENS)
    learner = Learner(CausalPolicy(model, renderer, agent), Settings(lr=LR))
    config = TrainConfig.fit(
        model="in memory",
        algorithm="dr_grpo",
        normalise="token",
        batch=GROUPS * SAMPLES,
        minibatch=GROUPS * SAMPLES,
        group=SAMPLES,
        episodes=steps * GROUPS * SAMPLES,
        epochs=1,
        lr=LR,
        lr_ramp=0,
        lr_end=1.0,
        kl=0.0,
        seed=seed,
    )
    wanted, returns = tasks(seed, steps), []
    with Runner(agent) as runner:
        for step in range(steps):
            learner.publish(step)
            some = wanted[step * GROUPS : (step + 1) * GROUPS]
            jobs = [
                Job(trl_grpo.ENV, task, group=str(task), sample=sample, salt=step + 1)
                for task in some
                for sample in range(SAMPLES)
            ]
            episodes = runner.play(jobs)
            returns.append(mean_return(episodes))
            policy_gradient.learn(learner, episodes, config, Progress(step, steps))
    return returns


def trl_curve(model: Any, tokenizer: Any, seed: int, steps: int) -> list[float]:
    """Train with TRL's GRPOTrainer."""
    with tempfile.TemporaryDirectory() as folder:
        trained = trl_grpo.train(
            model,
            tokenizer,
            steps=steps,
            groups=GROUPS,
            samples=SAMPLES,
            seed=seed,
            learning_rate=LR,
            adam_beta2=0.95,  # as in gem
            scale_rewards="none",
            shuffle_dataset=False,
            logging_steps=1,
            disable_tqdm=True,
            output_dir=folder,
        )
    return [entry["reward"] for entry in trained.state.log_history if "reward" in entry][:steps]


def mean_return(episodes: list[Episode]) -> float:
    """Return the mean return of episodes."""
    return sum(episode.reward() for episode in episodes) / len(episodes)


CURVES: dict[str, Callable[[Any, Any, int, int], list[float]]] = {"gem": gem_curve, "TRL": trl_curve}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    demos = trl_grpo.demonstrations(choose_size(256, 32))
    tokenizer = trl_grpo.make_tokenizer(demos)
    start = trl_grpo.make_model(tokenizer, seed=0)
    trl_grpo.clone(start, tokenizer, demos, steps=choose_size(100, 1), batch=32, seed=0)
    curves: dict[str, list[list[float]]] = {name: [] for name in CURVES}
    for seed in args.seeds:
        for name, curve in CURVES.items():
            kept = OUT / "frameworks" / f"{name}-{seed}-{args.steps}.json"
            if SMALLEST or not kept.exists():
                found = curve(copy.deepcopy(start), tokenizer, seed, args.steps)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found))
            curves[name].append(json.loads(kept.read_text()))
            print(f"{name} seed {seed}: {curves[name][-1][0]:.3f} -> {curves[name][-1][-1]:.3f}", flush=True)
    rows = []
    for name, found in curves.items():
        first, last = (mean_interval([ends(each)[i] for each in found]) for i in (0, 1))
        shown = [f"{each.mean:.3f} ({each.low:.3f} to {each.high:.3f})" for each in (first, last)]
        rows.append((name, *shown))
    title = f"{trl_grpo.ENV}, {args.steps} steps, {len(args.seeds)} seeds: mean return, 95% over seeds"
    table(title, ("", "first 3 steps", "last 3 steps"), rows)
    write_json("frameworks", curves)
    draw(curves)


def ends(curve: list[float]) -> tuple[float, float]:
    """Return the mean return of the first and of the last three steps."""
    return sum(curve[:3]) / 3, sum(curve[-3:]) / 3


def draw(curves: dict[str, list[list[float]]]) -> None:
    """Draw the mean over seeds for each framework, and a band from the worst seed to the best."""
    figure = Figure(figsize=(6, 3.4), layout="constrained", dpi=110)
    axes = figure.subplots()
    for (name, found), colour in zip(curves.items(), ("#08519c", "#e6550d", "#2ca25f"), strict=False):
        by_step = list(zip(*found, strict=True))
        x = range(1, len(by_step) + 1)
        axes.fill_between(x, list(map(min, by_step)), list(map(max, by_step)), color=colour, alpha=0.15)
        axes.plot(x, [sum(each) / len(each) for each in by_step], color=colour, linewidth=1.6, label=name)
    axes.set_xlabel("step (128 episodes)")
    axes.set_ylabel("mean return")
    axes.set_title(f"{trl_grpo.ENV}: mean and range of {len(next(iter(curves.values())))} seeds", fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(PICTURE)
    print(f"drew {PICTURE}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
