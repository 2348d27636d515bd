"""Cost of continuing from the middle of an episode: restoring its state, or repeating its actions.

``python -m bench.forks [--trials N]``. Forks after a turn of a long game are played for one more turn, on
each host. Figures are wall time per fork, medians over trials in which both ways alternate. The cost of
copying grows with the environment's state; that of repeating, with the number of actions and the time of a
step. The second environment is the same game with steps that wait.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from time import perf_counter, sleep
from typing import Any

import gem
from bench.common import choose_size, parse_args, table, write_json
from gem.agents.random import RandomAgent
from gem.core import Env, EnvWrapper
from gem.hosts.base import KINDS
from gem.record import Limits
from gem.rollout import Job, Runner, branches, rollout

GAME = "game:Game2048-v0-hard"
WAIT_S = 0.001
TURNS = choose_size((8, 64), (1, 2))
SAMPLES = choose_size(16, 2)


class Slow(EnvWrapper):
    """Each step takes as long as a small program does."""

    def on_action(self, action: str) -> str:
        """Wait."""
        sleep(WAIT_S)
        return action


def fast() -> Env:
    """Return the game."""
    return gem.make(GAME)


def slow() -> Env:
    """Return the game, with steps that wait."""
    return Slow(gem.make(GAME))


def main() -> None:
    """Print milliseconds per fork."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=choose_size(5, 1))
    trials = parse_args(parser).trials
    (whole,) = rollout([Job(fast, 3)], RandomAgent(), limits=Limits(turns=max(TURNS) + 1))
    rows: list[list[Any]] = []
    for name, env in (("microseconds", fast), (f"{1000 * WAIT_S:g} ms", slow)):
        for kind in KINDS:
            for turn in TURNS:
                with Runner(
                    RandomAgent(), host=kind, concurrency=SAMPLES, limits=Limits(turns=turn + 1)
                ) as runner:
                    play = partial(forks_ms, whole, turn, env, runner)
                    play(True)  # workers are up, environments made
                    pairs = [(play(True), play(False)) for _ in range(trials)]
                copied, replayed = (statistics.median(each) for each in zip(*pairs, strict=True))
                rows.append([f"{kind}, a step takes {name}", turn, copied, replayed, replayed / copied])
    columns = ["milliseconds per fork", "turns before", "restored", "replayed", "replayed / restored"]
    table(f"{GAME}: one turn more, {SAMPLES} forks at a time", columns, rows)
    write_json("forks", {"env": GAME, "trials": trials, "samples": SAMPLES, "columns": columns, "rows": rows})


def forks_ms(whole: gem.Episode, turn: int, env: Any, runner: Runner, fork: bool) -> float:
    """Return milliseconds per fork, with what it takes to get the state."""
    began = perf_counter()
    episodes = runner.play(branches(whole, turn, SAMPLES, env=env, fork=fork))
    assert all(len(episode.turns) == turn + 1 for episode in episodes)
    return 1000 * (perf_counter() - began) / SAMPLES


if __name__ == "__main__":
    main()
