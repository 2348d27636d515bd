"""Test a long run with random faults: nothing is lost or doubled, and no fault becomes a score.

``python -m bench.chaos [--episodes 20000]``. The same jobs are played with and without faults, on threads and
on processes. One attempt in a hundred breaks at each boundary of the run: the environment (raises, says
NoVerdict, returns garbage, is slow), its tool, the agent, and on processes the worker, which dies. The disk
of the store also fills up, once in 2,000 episodes. That stops the whole run; it is started again, as a user
would do, and continues with the episodes that are not stored.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from gem.agents.base import BaseAgent
from gem.content import text_of
from gem.core import Env
from gem.errors import StoreError
from gem.record import Ask, Limits, Reply, Verdict
from gem.rollout import EpisodeStore, Job, Runner
from gem.rollout.index import Entry
from gem.testing.doubles import EchoEnv
from gem.testing.faults import Faults, FaultyAgent, FaultyStore, FaultyTool, FaultyWrapper, Kind
from gem.testing.leaks import Held, count_held, held_after
from gem.tools.base_tool import FunctionTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper

EPISODES, RATE, STORE_RATE, SEED = 20_000, 0.01, 1 / 2000, 11
IN_FLIGHT = {"thread": 64, "process": 3}
"""Of those that share a worker, each death takes all along, and each is played again in a process alone."""

KINDS: dict[str, Sequence[Kind]] = {
    "env": ("fail", "raise", "slow", "garbage"),
    "worker": ("die",),
    "store": ("full-disk",),
}


MOMENTS = {"env": 4, "worker": 4, "agent": 3, "tool": 1, "store": 1}
"""Of an episode: a reset and three steps; three turns, the first of which calls the tool once."""


def double(number: int) -> str:
    """Double a number.

    Args:
        number: any.
    """
    return str(2 * number)


def world(plan: Faults) -> Env:
    """Make an environment with a tool, either of which may break."""
    return FaultyWrapper(ToolEnvWrapper(EchoEnv(2), [FaultyTool(FunctionTool(double), plan)]), plan)


class Speaker(BaseAgent):
    """Calls the tool, then says the numbers that it is asked for, one in five wrong."""

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer."""
        return [Reply(self._said(ask)) for ask in asks]

    def _said(self, ask: Ask) -> str:
        number = re.findall(r"Say (\d+)", "".join(text_of(message.content) for message in ask.messages))[-1]
        if not ask.turn:
            return f'<tool_call>{{"name": "double", "arguments": {{"number": {number}}}}}</tool_call>'
        return number if ask.seed % 5 else "no"


def plan_for(host: str, folder: str) -> Faults:
    """Return what breaks on a host."""
    rate = dict.fromkeys(("env", "tool", "agent"), RATE) | {"store": STORE_RATE}
    if host == "process":
        rate["worker"] = RATE
    return Faults(rate=rate, kinds=KINDS, seed=SEED, within=MOMENTS, folder=folder)


def play(host: str, episodes: int, plan: Faults, path: Path) -> dict[str, Any]:
    """Play the jobs to the end, begun again whenever the disk is full; return what the store holds."""
    agent = FaultyAgent(Speaker(), plan)
    jobs = [Job(partial(world, plan), seed, key=str(seed)) for seed in range(episodes)]
    stops = handed = 0
    began = perf_counter()
    finished: set[str] = set()
    while len(finished) < episodes:
        with (
            EpisodeStore(path) as store,
            Runner(
                agent,
                host=host,
                concurrency=IN_FLIGHT[host],
                limits=Limits(call_s=30.0),
                store=FaultyStore(store, plan),
            ) as runner,
        ):
            try:
                for _ in runner.stream(job for job in jobs if job.key not in finished):
                    handed += 1
            except StoreError:
                stops += 1
            finished = set(finished_jobs(store))  # also what was stored and not handed on yet
    took = perf_counter() - began
    agent.close()
    return {"seconds": took, "stops": stops, "handed_on": handed, **read(path)}


def finished_jobs(store: EpisodeStore) -> list[str]:
    """Return the job of each last attempt: one with a verdict, or one that is not played again."""

    def is_last(entry: Entry) -> bool:
        if entry.verdict == Verdict.SCORED or entry.attempt:
            return True
        error = store[entry.number].error
        again = error and (error.boundary == "host" or (error.boundary, error.type) == ("env", "NoVerdict"))
        return not again

    return [entry.job for entry in store.select() if is_last(entry)]


def read(path: Path) -> dict[str, Any]:
    """Return what a store says of its episodes: last attempts by job, and how often what was tried."""
    with EpisodeStore(path) as store:
        entries, last = store.select(), store.latest()
        scored: dict[str, str] = {}
        none: Counter[str] = Counter()
        for entry in last:
            episode = store[entry.number]
            if episode.scored:
                scored[entry.job] = episode.transcript_hash()
            elif episode.error is not None:
                none[episode.error.boundary] += 1
        return {
            "stored": len(entries),
            "ids": len({entry.id for entry in entries}),
            "jobs": finished_jobs(store),
            "scored": scored,
            "no_verdict": dict(sorted(none.items())),
            "retried": sum(entry.attempt > 0 for entry in entries),
            "torn": store.torn,
        }


def trial(host: str, episodes: int) -> dict[str, Any]:
    """Play with and without faults on a host, and compare."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "attempts")
        folder.mkdir()
        free = play(host, episodes, Faults(), Path(home, "free.jsonl"))
        before = count_held()
        hit = play(host, episodes, plan_for(host, str(folder)), Path(home, "faults.jsonl"))
        after = held_after(before)
    twice = [job for job, count in Counter(hit["jobs"]).items() if count > 1]
    false = [job for job, said in hit["scored"].items() if said != free["scored"][job]]
    return {
        "episodes": episodes,
        "jobs_with_one_last_attempt": len(set(hit["jobs"])) - len(twice),
        "jobs_with_more": len(twice),
        "ids_stored_twice": hit["stored"] - hit["ids"],
        "torn_lines": hit["torn"],
        "scored": len(hit["scored"]),
        "scored_otherwise_than_without_faults": len(false),
        "no_verdict": hit["no_verdict"],
        "attempts_stored": hit["stored"],
        "played_again": hit["retried"],
        "stopped_by_a_full_disk": hit["stops"],
        "seconds_without_faults": free["seconds"],
        "seconds": hit["seconds"],
        "held_before": asdict(before),
        "held_after": asdict(after),
    }


def main() -> None:
    from bench.common import (
        choose_size,
        parse_args,
        table,
        write_json,
    )  # here: each new worker imports this module

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=choose_size(EPISODES, 40))
    parser.add_argument("--hosts", nargs="+", choices=[*IN_FLIGHT], default=[*IN_FLIGHT])
    options = parse_args(parser)
    episodes = options.episodes
    figures = {host: trial(host, episodes) for host in options.hosts}
    columns = ("", *figures)
    first = next(iter(figures.values()))
    names = [name for name in first if name not in ("no_verdict", "held_before", "held_after")]
    rows: list[Sequence[Any]] = [
        (name.replace("_", " "), *(figures[h][name] for h in figures)) for name in names
    ]
    for boundary in ("env", "agent", "host", "driver"):
        counts = (figures[host]["no_verdict"].get(boundary, 0) for host in figures)
        rows.append((f"without verdict, boundary {boundary}", *counts))
    for when in ("before", "after"):
        shown = (str(Held(**figures[host][f"held_{when}"])) for host in figures)
        rows.append((f"held {when}", *shown))
    table(f"{episodes} episodes, {RATE:.0%} of attempts broken at each boundary", columns, rows)
    write_json("chaos", figures)


if __name__ == "__main__":
    main()
