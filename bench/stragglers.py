"""One slow environment among many: steps per second as a share of the ideal without a barrier.

``python -m bench.stragglers [--seconds S]``. 127 environments take 50 ms per step and one takes 2 s; all only
sleep. In the ideal case each goes at its own pace: ``127 / 0.05 + 1 / 2`` steps per second. The table
compares send/recv on the thread host, step(), which has a barrier, and gem-llm's asynchronous vector, which
always has.
"""

from __future__ import annotations

import argparse
from functools import partial
from time import perf_counter, sleep

from bench.common import (
    choose_size,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from gem.core import Env, Start, Step
from gem.vector.vector_env import VectorEnv

PEER = "gem-llm==0.1.0"
ENVS, FAST_S, SLOW_S = choose_size((128, 0.05, 2.0), (4, 0.01, 0.1))


class Sleepy(Env):
    """Takes its time."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def reset(self, seed: int | None = None) -> Start:
        """Begin."""
        super().reset(seed)
        return Start("", {})

    def step(self, action: str) -> Step:
        """Sleep."""
        sleep(self.step_s)
        return Step("", 0.0, False, False, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=choose_size(10.0, 0.1))
    seconds = parse_args(parser).seconds
    ideal = (ENVS - 1) / FAST_S + 1 / SLOW_S
    figures = {
        "ours, send/recv": without_barrier(seconds),
        "ours, step": with_barrier(seconds),
    }
    with left_out_where_missing():
        sizes = map(str, (ENVS, FAST_S, SLOW_S, seconds))
        figures["gem-llm async"] = run_peer(peer_python(PEER), "stragglers_trial.py", *sizes)
    table(
        f"{ENVS - 1} environments of {FAST_S * 1000:.0f} ms and one of {SLOW_S:.0f} s, for {seconds:.0f} s",
        ["vector", "env steps/s", "% of the ideal (wanted: 95)"],
        [[name, rate, 100 * rate / ideal] for name, rate in figures.items()],
    )
    write_json("stragglers", {"ideal": ideal, "seconds": seconds, "steps_per_s": figures})


def sleepers() -> VectorEnv:
    recipes = [partial(Sleepy, SLOW_S if i == 0 else FAST_S) for i in range(ENVS)]
    return VectorEnv(recipes, "thread", seed=0)


def without_barrier(seconds: float) -> float:
    with sleepers() as vec:
        vec.reset()
        vec.step(dict.fromkeys(range(1, ENVS), "warm"))  # the threads are there
        began = perf_counter()
        vec.send(["go"] * ENVS)
        steps = 0
        while (spent := perf_counter() - began) < seconds:
            ready = vec.recv()
            steps += len(ready.indices)
            vec.send(dict.fromkeys(ready.indices, "go"))
        return steps / spent


def with_barrier(seconds: float) -> float:
    with sleepers() as vec:
        vec.reset()
        began = perf_counter()
        steps = 0
        while (spent := perf_counter() - began) < seconds:
            vec.step(["go"] * ENVS)
            steps += ENVS
        return steps / spent


if __name__ == "__main__":
    main()
