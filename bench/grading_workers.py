"""The workers of the mathematics grader, compared with the same program as a sandbox session.

``python -m bench.grading_workers [--asks N]``. The pool loads sympy and the parser before it forks. Of the
session, the fork server loads sympy, and the first cell the parser. The first answer includes the start of
all processes. "New worker" is the time from a worker's death to the next answer;
for a session, that of an empty one, as if its fork server had loaded the program. Memory is the proportional
set size of an idle worker. The conclusions are in docs/decisions/0013-the-graders-fork-server-stays.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common import choose_size, left_out_where_missing, parse_args, table, write_json
from gem.graders.math import CONTROL, WORKER
from gem.graders.pool import WorkerLost, WorkerPool
from gem.sandbox import Budget, open_sandbox
from gem.sandbox import packages as sandbox_packages
from gem.sandbox import pool as sandbox_pool

EASY = {"read": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asks", type=int, default=choose_size(300, 2))
    parser.add_argument("--backends", nargs="*", default=choose_size(["userns", "landlock"], ["userns"]))
    options = parse_args(parser)
    figures = {"grading pool": grading_pool(options.asks)}
    for backend in options.backends:
        with left_out_where_missing():
            figures[f"session, {backend}"] = session(options.asks, backend)
    columns = (
        "",
        "first answer, s",
        "easy question, ms",
        "undecided pair, ms",
        "a new worker, ms",
        "memory, MB",
    )
    table(
        "Workers of the mathematics grader", columns, [[name, *row.values()] for name, row in figures.items()]
    )
    write_json("grading_workers", {"figures": figures})


def grading_pool(asks: int) -> dict[str, float]:
    begun = time.perf_counter()
    pool = WorkerPool(WORKER, size=1)
    pool.ask(CONTROL, 5.0, 60.0)
    first = time.perf_counter() - begun
    found = measured(asks, lambda question: pool.ask(question, 5.0, 60.0))

    def replace() -> None:
        os.kill(pool.pids[0], signal.SIGKILL)
        with contextlib.suppress(WorkerLost):
            pool.ask(EASY, 5.0, 60.0)
        pool.ask(EASY, 5.0, 60.0)

    found = {"first": first, **found, "new": timed(replace, choose_size(10, 1))}
    found["memory"] = sum(map(proportional_mb, pool.pids))
    pool.close()
    return found


def session(asks: int, backend: str) -> dict[str, float]:
    source = WORKER.read_text()
    sandbox_pool.KINDS["science"] = ("numpy", "sympy", "latex2sympy2_extended")
    begun = time.perf_counter()
    sandbox_packages.JUDGES = ()  # type: ignore[assignment]  # programs may not read the parser; here it is the subject
    sandbox = open_sandbox(backend, packages=["latex2sympy2-extended"])
    budget = Budget(wall_s=60.0, cpu_s=5.0)

    def open_one() -> Any:
        opened = sandbox.session(budget=budget, preload=("sympy",))
        opened.execute(source + "\nload()")
        return opened

    worker = open_one()

    def ask(question: dict[str, str]) -> None:
        result = worker.execute(f"answer({question!r})")
        assert result.ok, result

    ask(CONTROL)
    first = time.perf_counter() - begun
    found = measured(asks, ask)
    before = every_pid()
    others = [open_one() for _ in range(3)]
    new = every_pid() - before

    def replace() -> None:
        with sandbox.session(budget=budget, preload=("sympy",)) as another:
            assert another.execute("1").ok

    found = {"first": first, **found, "new": timed(replace, choose_size(10, 1))}
    found["memory"] = sum(map(proportional_mb, new)) / len(others)
    sandbox.close()
    return found


def measured(asks: int, ask: Callable[[dict[str, str]], Any]) -> dict[str, float]:
    return {"easy": timed(lambda: ask(EASY), asks), "pair": timed(lambda: ask(CONTROL), asks)}


def timed(fn: Callable[[], Any], times: int) -> float:
    """Return the median of so many calls, in milliseconds."""
    spent = []
    for _ in range(times):
        begun = time.perf_counter()
        fn()
        spent.append(time.perf_counter() - begun)
    return 1000 * statistics.median(spent)


def every_pid() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def proportional_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(text.partition("\nPss:")[2].split()[0]) / 1024 if "\nPss:" in text else 0.0


if __name__ == "__main__":
    main()
