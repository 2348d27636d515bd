"""Overhead of a vector of cheap environments over a bare loop of env.step, per host, beside gem-llm's two.

``python -m bench.vector [--trials N]``. Every trial times the vector and a bare loop over as many
environments of the same package one after the other, resets included; the ratio of such a pair hardly
depends on what else the machine does. Figures are medians over pairs, wall clock; actions are fixed guesses
at one game.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.common import peer_python, run_peer, table, write_json
from gem.hosts.base import KINDS
from gem.registry import Maker
from gem.vector.vector_env import VectorEnv

PEER = "gem-llm==0.1.0"
ENV = "game:GuessTheNumber-v0-hard"
SIZES = (1, 16, 128, 1024)
STEPS = 20_000  # environment steps per timing, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=9)
    trials = parser.parse_args().trials
    figures: dict[str, Any] = {
        f"ours {kind}": {n: overhead(kind, n, trials) for n in SIZES} for kind in KINDS
    }
    figures |= run_peer(peer_python(PEER), "vector_trial.py", ENV, str(trials), *map(str, SIZES))
    columns = ["bare loop = 1", *(f"{n} envs" for n in SIZES), *(f"steps/s, {n}" for n in SIZES)]
    table(
        f"{ENV}: time of a vector over a bare loop of the same package (wanted: serial 1.3, thread 3.0)",
        columns,
        [
            [
                name,
                *(size["ratio"] for size in sizes.values()),
                *(size["steps_per_s"] for size in sizes.values()),
            ]
            for name, sizes in figures.items()
        ],
    )
    write_json("vector", {"env": ENV, "trials": trials, "figures": figures})


def overhead(kind: str, n: int, trials: int) -> dict[str, float]:
    """Return the median ratio of times, and the vector's environment steps per second."""
    actions = [f"\\boxed{{{1 + 7 * i % 50}}}" for i in range(n)]
    envs = [Maker(ENV)() for _ in range(n)]
    for i, env in enumerate(envs):
        env.reset(seed=i)

    def bare() -> None:
        for env, action in zip(envs, actions, strict=True):
            step = env.step(action)
            if step.terminated or step.truncated:
                env.reset()

    with VectorEnv([Maker(ENV)] * n, kind, seed=0) as vec:
        vec.reset()
        vec.step(actions)
        rounds = max(4, STEPS // n // (1 if kind == "serial" else 4))
        pairs = [(seconds(bare, rounds), seconds(lambda: vec.step(actions), rounds)) for _ in range(trials)]
    return {
        "ratio": statistics.median(vector / loop for loop, vector in pairs),
        "steps_per_s": n * rounds / statistics.median(vector for _, vector in pairs),
    }


def seconds(fn: Callable[[], object], rounds: int) -> float:
    began = perf_counter()
    for _ in range(rounds):
        fn()
    return perf_counter() - began


if __name__ == "__main__":
    main()
