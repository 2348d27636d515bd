"""What playing costs beside the environment: CPU per turn of each driver over a bare loop, in one thread.

The same episodes of one cheap game with the same answers, played by a bare loop of reset and step, by the
batched driver and by the async one. The difference is prompts, records, limits and bookkeeping: what is paid
per turn for having an episode that trains, is stored and is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from statistics import median as middle

import gem
from bench.common import cpu_rate, table, write_json
from gem.agents.base import BaseAgent
from gem.record import Ask, Reply
from gem.rollout import Job, rollout, rollout_async

ENV = "game:GuessTheNumber-v0-hard"
ANSWER = r"\boxed{0}"  # in nobody's range: every episode takes its seven turns
IN_FLIGHT = (1, 128, 1024)
TRIALS = 5


class Batch(BaseAgent):
    """Answers a batch, with tokens, so that held tokens are counted too."""

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer every ask alike."""
        return [Reply(ANSWER, (*ask.held, 1, 2, 3), (4, 5), (-0.1, -0.1)) for ask in asks]


class Single(BaseAgent):
    """Answers each ask by itself."""

    async def ask(self, ask: Ask) -> Reply:
        """Answer alike."""
        return Reply(ANSWER, (*ask.held, 1, 2, 3), (4, 5), (-0.1, -0.1))


def bare(seeds: range) -> int:
    env = gem.make(ENV)
    turns = 0
    for seed in seeds:
        env.reset(seed=seed)
        done = False
        while not done:
            done = env.step(ANSWER).done
            turns += 1
    return turns


def batched(seeds: range, in_flight: int) -> int:
    jobs = [Job(ENV, seed) for seed in seeds]
    return sum(len(episode.turns) for episode in rollout(jobs, Batch(), concurrency=in_flight))


def async_single(seeds: range, in_flight: int) -> int:
    jobs = [Job(ENV, seed) for seed in seeds]
    episodes = asyncio.run(rollout_async(jobs, Single(), concurrency=in_flight))
    return sum(len(episode.turns) for episode in episodes)


def async_batch(seeds: range, in_flight: int) -> int:
    jobs = [Job(ENV, seed) for seed in seeds]
    episodes = asyncio.run(rollout_async(jobs, Batch(), concurrency=in_flight))
    return sum(len(episode.turns) for episode in episodes)


def us_per_turn(fn: Callable[[], int]) -> float:
    return middle(1e6 / cpu_rate(fn) for _ in range(TRIALS))


def main() -> None:
    drivers = {
        "batched": batched,
        "async, agent answers batches": async_batch,
        "async, agent answers one by one": async_single,
    }
    bare_us = us_per_turn(lambda: bare(range(512)))
    rows, results = [], {"env": ENV, "bare_us": bare_us, "overhead_us": {}}
    for name, drive in drivers.items():
        over = {}
        for in_flight in IN_FLIGHT:
            seeds = range(max(256, in_flight))
            over[in_flight] = us_per_turn(lambda d=drive, s=seeds, n=in_flight: d(s, n)) - bare_us
        rows.append((name, *over.values()))
        results["overhead_us"][name] = over
    table(
        f"CPU per turn beside the environment, us (bare loop: {bare_us:.1f} us)",
        ("driver", *(f"{n} in flight" for n in IN_FLIGHT)),
        rows,
    )
    write_json("rollout", results)


if __name__ == "__main__":
    main()
