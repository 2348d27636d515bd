"""Sampling during learning: how much wall time does it save, and what does staleness cost in return?

``python -m bench.staleness [--seeds 0 1 2] [--episodes N]``. It runs the first part of the demonstration,
with one thread for each of two cores, in two ways: the next episodes are played after the learner's steps, or
at the same time with the previous weights (``--staleness 1 --importance-cap 2``). Both are done with the
plain game, whose steps take microseconds, and with steps that wait for a millisecond, as for a remote tool or
judge. Wall time is that of the training loop only.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

import gem
from bench.common import choose_size, table, write_json
from gem.statistics import mean_interval
from gem.train.config import TrainConfig
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder

SETTINGS: dict[str, Any] = choose_size(
    {}, {"batch": 8, "warmup_steps": 1, "warmup_batch": 8, "eval_episodes": 8, "watch": 0}
)
WAYS: dict[str, dict[str, Any]] = {"in turn": {}, "overlapped": {"staleness": 1}}
STEPS = {"at once": "", "wait 1 ms": "bench.staleness:Waiting"}


@dataclass(frozen=True)
class Args:
    """What is run."""

    seeds: tuple[int, ...] = choose_size((0, 1, 2), (0, 1))
    """Runs of each way."""

    episodes: int = choose_size(2_560, 8)
    """Training episodes of a run."""

    smallest: bool = False
    """The smallest sizes, which give no figures."""


class Waiting(gem.EnvWrapper):
    """Waits a millisecond with each step."""

    def step(self, action: str) -> Any:
        """See Env.step."""
        time.sleep(1e-3)
        return self.env.step(action)


def main(args: Args) -> None:
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for steps, wrapper in STEPS.items():
        for way, settings in WAYS.items():
            results[steps, way] = []
            for seed in args.seeds:
                figures = run(args.episodes, seed, wrapper, settings)
                results[steps, way].append(figures)
                print(
                    f"{sum(map(len, results.values()))} of {len(STEPS) * len(WAYS) * len(args.seeds)} runs: "
                    f"{steps}, {way}, seed {seed}: {figures['wall_s']:.1f} s, return {figures['return']:.3f}",
                    flush=True,
                )
    rows = []
    for (steps, way), runs in results.items():
        ratios = [a["wall_s"] / b["wall_s"] for a, b in zip(runs, results[steps, "in turn"], strict=True)]
        returns = mean_interval([figures["return"] for figures in runs])
        rows.append(
            (
                steps,
                way,
                f"{statistics.median(figures['wall_s'] for figures in runs):.1f}",
                f"{statistics.median(ratios):.2f}",
                f"{returns.mean:.3f} ({returns.low:.3f} to {returns.high:.3f})",
                " ".join(f"{figures['success']:.1%}" for figures in runs),
            )
        )
    table(
        f"{args.episodes:,} episodes, {len(args.seeds)} seeds",
        ("steps", "way", "wall s, median", "over in turn", "return (95% over seeds)", "success"),
        rows,
    )
    write_json("staleness", {f"{steps}, {way}": runs for (steps, way), runs in results.items()})


def run(episodes: int, seed: int, wrapper: str, settings: dict[str, Any]) -> dict[str, float]:
    """Train once; return the loop's seconds and what the policy is worth afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            episodes=episodes,
            seed=seed,
            wrappers=(wrapper,) if wrapper else (),
            importance_cap=2.0,
            **SETTINGS,
            out=Path(folder),
            **settings,
        )
        after = train(config)["after"]
        loop = RunFolder(config.out).history()
    return {
        "wall_s": sum(metrics.sample_s + metrics.update_s for metrics in loop),
        "return": after["reward"]["mean"],
        "success": after["success"]["mean"],
    }


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
