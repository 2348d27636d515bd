"""Overhead of a vector of cheap environments over a plain loop of env.step, per host, compared with gem-llm.

``python -m bench.vector [--trials N]``. Every trial times the vector, then a plain loop over as many
environments of the same package, resets included. The ratio of such a pair hardly depends on other load of
the machine. Figures are medians of wall time over pairs; actions are fixed guesses in one game. A second
table shows the costs of a process host: adding and removing environments, and starting workers.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.common import (
    choose_size,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from gem.hosts.base import KINDS
from gem.hosts.processes import Processes
from gem.registry import Maker
from gem.vector.vector_env import VectorEnv

PEER = "gem-llm==0.1.0"
ENV = "game:GuessTheNumber-v0-hard"
SIZES = choose_size((1, 16, 128, 1024), (1, 4))
WORKERS = 2
STEPS = choose_size(20_000, 40)  # environment steps per timing, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=choose_size(9, 1))
    trials = parse_args(parser).trials
    figures: dict[str, Any] = {
        f"ours {kind}": {n: overhead(kind, n, trials) for n in SIZES} for kind in KINDS
    }
    with left_out_where_missing():
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
    lives = [life() for _ in range(trials)]
    life_ms = {name: 1000 * statistics.median(each[name] for each in lives) for name in lives[0]}
    table(f"the process host, {WORKERS} workers", ["", "milliseconds"], [[*item] for item in life_ms.items()])
    write_json("vector", {"env": ENV, "trials": trials, "figures": figures, "process_host_ms": life_ms})


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


def life() -> dict[str, float]:
    """Return the seconds that each part of a process host's life takes."""
    with Processes(workers=WORKERS) as host:
        figures: dict[str, float] = {}

        def timed(what: str, fn: Callable[[], Any], times: int = 1) -> Any:
            figures[what] = seconds(lambda: kept.append(fn()), times) / times
            return kept[-1]

        def first_reset(index: int) -> None:
            host.submit(index, "reset", (0,))
            host.ready()

        kept: list[Any] = []
        first = timed("start a worker: the first environment is added", lambda: host.add(Maker(ENV)))
        timed("until it is up: its first reset is back", lambda: first_reset(first))
        for _ in range(1, WORKERS):
            first_reset(host.add(Maker(ENV)))
        timed("add an environment to the living host", lambda: host.add(Maker(ENV)), 200)
        timed("its first reset is back", lambda: first_reset(kept[-1]))
        removed = iter(range(WORKERS, WORKERS + 200))
        timed("remove an environment", lambda: host.remove(next(removed)), 200)
        alone = timed("add one alone", lambda: host.add(Maker(ENV), alone=True))
        first_reset(alone)
        timed("remove it, and its worker", lambda: host.remove(alone))
        timed("close", host.close)
    return figures


def seconds(fn: Callable[[], object], rounds: int) -> float:
    began = perf_counter()
    for _ in range(rounds):
        fn()
    return perf_counter() - began


if __name__ == "__main__":
    main()
