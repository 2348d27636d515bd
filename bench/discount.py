"""The discount: does a smaller gamma give shorter solutions? `python -m bench.discount`.

The paper (arXiv 2510.01051, figure 5a) trains on guessing a number with more turns than a good player needs
and finds that a smaller gamma drives the turns towards those of bisection. Here: a number from 1 to 10 in 8
turns, reward 1 for success and nothing else, the tiny model, ReBN, several seeds. One run is a few CPU
minutes; finished runs are kept and not run again.


Prints a table, writes bench/out/discount.json and draws bench/out/discount.png.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from matplotlib.figure import Figure

from bench.common import OUT, table, write_json
from gem.statistics import mean_interval
from gem.train.config import TrainConfig
from gem.train.run import RunFolder
from gem.train.trainer import train

ENV = {"max_turns": 8, "reward": "sparse"}


@dataclass(frozen=True)
class Args:
    """What is run."""

    gammas: tuple[float, ...] = (0.3, 0.9, 1.0)
    """Discounts per turn."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Runs per discount."""

    episodes: int = 15_360
    """Training episodes of a run."""


def main(args: Args) -> None:
    results = []
    for gamma in args.gammas:
        for seed in args.seeds:
            out = OUT / "discount" / f"gamma{gamma:g}-seed{seed}"
            config = TrainConfig(
                env="game:GuessTheNumber-v0-easy",
                env_kwargs=ENV,
                gamma=gamma,
                episodes=args.episodes,
                seed=seed,
                out=out,
            )
            summary = finished(config) or run(config)
            history = RunFolder(out).history()
            results.append({"gamma": gamma, "seed": seed, **figures(summary), "turns": curve(history)})
            print(f"gamma {gamma:g} seed {seed}: {figures(summary)}", flush=True)
    rows = []
    for gamma in args.gammas:
        mine = [result for result in results if result["gamma"] == gamma]
        guesses = mean_interval([result["turns_to_success"] for result in mine])
        success = [result["success"] for result in mine]
        rows.append(
            (
                f"gamma {gamma:g}",
                f"{min(success):.1%} to {max(success):.1%}",
                f"{guesses.mean:.2f}",
                f"{guesses.low:.2f} to {guesses.high:.2f}",
            )
        )
    rows.append(("bisection", "100%", "2.90", "exact"))
    table(
        f"1..10 in 8 turns, sparse reward, ReBN, {args.episodes:,} episodes, {len(args.seeds)} seeds",
        ("", "success", "turns to success", "95% over seeds"),
        rows,
    )
    write_json("discount", results)
    draw(results, args)


def finished(config: TrainConfig) -> dict | None:
    """Return the summary of a run that has been carried out with this very config."""
    folder = RunFolder(config.out)
    if folder.summary.exists() and folder.read_config() == config:
        return json.loads(folder.summary.read_text())
    return None


def run(config: TrainConfig) -> dict:
    """Carry out a run, from where it was cut off where it was."""
    folder = RunFolder(config.out)
    if folder.checkpoint.exists() and folder.read_config() == config:
        return train(config, resume=True)
    folder.clear()
    return train(config)


def figures(summary: dict) -> dict[str, float]:
    """Return what is compared of a run."""
    after = summary["after"]
    return {"success": after["success"]["mean"], "turns_to_success": after["turns_to_success"]["mean"]}


def curve(history: list) -> list[tuple[int, float]]:
    """Return turns over episodes."""
    return [(metrics.episodes, metrics.turns) for metrics in history]


def draw(results: list[dict], args: Args) -> None:
    """Draw turns over episodes, a colour per discount, a line per seed."""
    figure = Figure(figsize=(7, 4), layout="constrained", dpi=130)
    axes = figure.subplots()
    colours = ("#08519c", "#2ca25f", "#e6550d", "#756bb1", "#555555")
    for gamma, colour in zip(args.gammas, colours, strict=False):
        for number, result in enumerate(r for r in results if r["gamma"] == gamma):
            x, y = zip(*result["turns"], strict=True)
            width = 12
            smooth = [
                sum(y[max(0, i - width) : i + 1]) / len(y[max(0, i - width) : i + 1]) for i in range(len(y))
            ]
            axes.plot(x, smooth, color=colour, linewidth=1.2, label=None if number else f"gamma {gamma:g}")
    axes.axhline(2.9, color="#555555", linestyle="--", linewidth=1, label="bisection")
    axes.set_xlabel("training episodes")
    axes.set_ylabel("turns per episode")
    axes.set_title("1..10 in 8 turns, sparse reward, ReBN", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    path = Path(OUT) / "discount.png"
    figure.savefig(path)
    print(f"drew {path.relative_to(OUT.parent.parent)}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
