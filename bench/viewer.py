"""Speed of the viewer with many episodes: pages of a store of 100,000, through the whole application.

``python -m bench.viewer [--episodes N]``. The store is first written to a temporary folder. A page's time is
the median of several requests, from the request to the last byte of the response, in one process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from bench.common import choose_size, parse_args, table, write_json
from gem.record import Episode, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout.store import EpisodeStore
from gem.specs import TaskRef
from gem.viewer.app import Viewer
from gem.viewer.sources import open_sources

TURNS = 4
TEXT = "After each guess I tell you whether the secret is higher or lower. "


def made(number: int, run: RunInfo) -> Episode:
    """Return an episode of a few turns with tokens, as a small training run has them."""
    turns: list[Turn] = []
    for place in range(TURNS):
        turn = Turn("agent", f"{TEXT * 2}{number}", f"\\boxed{{{number * 7 % 100}}}", reward=number % 9 / 36)
        ids = list(range(60 + place))
        if turns:
            turn.extend(turns[-1], ids[:20], [5, number % 500, 6], [-0.1, -1.5, -0.01])
        else:
            turn.hold(ids, [5, number % 500, 6], [-0.1, -1.5, -0.01])
        turns.append(turn)
    stop = StopReason.SOLVED if number % 3 else StopReason.FAILED
    said = "over" + " needle" * (number % 20_000 == 777)
    ends = {"agent": SeatEnd(stop, terminated=True, observation=said)}
    task = TaskRef("game:GuessTheNumber-v0-easy", {"max_number": 100}, seed=number)
    job = f"{number // 256}-{number % 256}"
    return Episode(task, run, job, turns=turns, ends=ends, stop=stop, verdict=Verdict.SCORED)


def write(path: Path, count: int) -> float:
    """Write the store, and return the seconds that took."""
    run, began = RunInfo("run", "agent"), time.perf_counter()
    with EpisodeStore(path) as store:
        for number in range(count):
            store.append(made(number, run))
    return time.perf_counter() - began


def ms(call: Callable[[], Any], trials: int = choose_size(7, 1)) -> float:
    """Return the median milliseconds of a call."""
    times = []
    for _ in range(trials):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def measured(count: int) -> dict[str, float]:
    """Return the figures, by what is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        figures = {"write, s": write(path, count), "store, MB": path.stat().st_size / 1e6}

        def opened() -> Viewer:
            return Viewer(open_sources([path]), "token")

        def closed(viewer: Viewer) -> None:
            for source in viewer.sources:
                source.store.close()

        viewer = opened()
        client = TestClient(viewer.app, base_url="http://127.0.0.1")
        client.get("/token/").raise_for_status()  # templates are read once
        figures["open, ms (wanted: 1000)"] = ms(lambda: closed(opened()), 3)
        last = count // 100 - 1
        for name, address in {
            "page of 100, the newest, ms (wanted: 100)": "run/0",
            "page of 100, by return, ms (wanted: 100)": "run/0?order=reward&way=down",
            "page of 100, by return, the last page, ms (wanted: 100)": f"run/0?order=reward&page={last}",
            "page of 100, filtered and sorted, ms (wanted: 100)": "run/0?outcome=solved&order=tokens",
            "one episode, ms": f"run/0/episode/{count // 2}",
            "figures of all runs, ms": "",
            "search for a rare word, ms": "run/0?q=needle",
            "search for a common word, first 100, ms": "run/0?q=secret",
            "search for what is not there, ms": "run/0?q=nowhere+to+be+found",
            "from first to last, ms": "run/0/through",
        }.items():
            figures[name] = ms(lambda address=address: client.get(f"/token/{address}").raise_for_status())
        return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--episodes", type=int, default=choose_size(100_000, 100), help="episodes in the store"
    )
    count = parse_args(parser).episodes
    figures = measured(count)
    table(f"the viewer over {count:,} episodes", ("", "figure"), figures.items())
    write_json("viewer", {"episodes": count, "figures": figures})


if __name__ == "__main__":
    main()
