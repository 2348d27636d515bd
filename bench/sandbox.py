"""Speed of the sandbox compared with ``python -c`` and gem-llm's Python tool, and a soak test.

``python -m bench.sandbox [--rounds N]`` measures fresh runs, session cells, judging, and the cost of a fork
server and of an idle session. ``--soak [CALLS]`` makes mixed calls instead, 64 at once, and compares the
machine's resources before and after. Figures are medians of wall time over interleaved rounds; ratios within
one round hardly depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
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
from gem.sandbox.base import Budget, Case, Sandbox, Status
from gem.sandbox.choice import open_sandbox

PEER = "gem-llm==0.1.0"
AT_ONCE = choose_size(16, 2)
FRESH: dict[str, tuple[str, int, int]] = choose_size(
    {
        "print": ("print(1)", 16, 64),
        "numpy": ("import numpy\nprint(numpy.arange(10).sum())", 4, 16),
        "sympy": (
            "import sympy\nx = sympy.Symbol('x')\nprint(sympy.solve(x**3 - 6*x**2 + 11*x - 6, x))",
            2,
            16,
        ),
    },
    {"print": ("print(1)", 1, 1)},
)
"""Name: the program, calls one by one, calls at once (of python -c; ours makes ten times as many)."""

CELLS = {
    "print": "print(1)",
    "numpy": "numpy.arange(10).sum()",
    "sympy": "sympy.solve(x**3 - 6*x**2 + 11*x - 6, x)",
}
SUM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"
TESTS = choose_size(50, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the sandbox.")
    parser.add_argument("--rounds", type=int, default=choose_size(3, 1))
    parser.add_argument("--backend")
    parser.add_argument("--soak", type=int, nargs="?", const=10_000)
    asked = parse_args(parser)
    # For the soak one kind of fork server, or one that is ready later would count as growth.
    kinds = ("bare",) if asked.soak else ("bare", "numpy", "science")
    if asked.soak:
        tempfile.tempdir = tempfile.mkdtemp(prefix="gem-soak-")  # what others leave in /tmp is not counted
        atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
    sandbox = open_sandbox(asked.backend, max_running=AT_ONCE, begin=kinds)
    with contextlib.closing(sandbox):
        if asked.soak:
            sys.exit(0 if soak_and_tell(sandbox, asked.soak) else 1)
        for code, _, _ in FRESH.values():
            warm(sandbox, code)
        figures = {
            "backend": sandbox.backend,
            "fresh": fresh(sandbox, asked.rounds),
            "cells": cells(sandbox),
            "judge": judge(sandbox, asked.rounds),
            "costs": costs(sandbox, asked.backend),
        }
    write_json("sandbox", figures)


def warm(sandbox: Sandbox, code: str) -> None:
    """Wait until the fork servers that a program wants are there: its fastest calls get no faster."""
    deadline = time.monotonic() + 60
    best = float("inf")
    while time.monotonic() < deadline:
        times = [timed(partial(sandbox.run, code)) for _ in range(8)]
        if min(times) > 0.8 * best and statistics.median(times) < 3 * best:
            return
        best = min(best, *times)


def fresh(sandbox: Sandbox, rounds: int) -> dict[str, Any]:
    rows, figures = [], {}
    for name, (code, few, many) in FRESH.items():
        medians: dict[str, list[float]] = {"python -c": [], "gem-llm": [], "ours": []}
        rates: dict[str, list[float]] = {side: [] for side in medians}
        for _ in range(rounds):
            medians["python -c"].append(statistics.median(timed(partial(bare, code)) for _ in range(few)))
            medians["gem-llm"].append(statistics.median(ask_peer({"times": [code, few]}, [math.nan])))
            medians["ours"].append(
                statistics.median(timed(partial(sandbox.run, code)) for _ in range(4 * few))
            )
            rates["python -c"].append(many / at_once(partial(bare, code), many))
            rates["gem-llm"].append(many / ask_peer({"rate": [code, many, AT_ONCE]}))
            rates["ours"].append(10 * many / at_once(partial(sandbox.run, code), 10 * many))
        figures[name] = {"median_s": medians, "calls_per_s": rates}
        ratio = pairs(rates["ours"], rates["python -c"])
        rows.append(
            [
                name,
                *(1000 * statistics.median(medians[side]) for side in medians),
                *(statistics.median(rates[side]) for side in rates),
                f"x{ratio:.3g}",
                f"x{pairs(rates['ours'], rates['gem-llm']):.3g}",
            ]
        )
        figures[name]["ratio"] = ratio
    sides = ["python -c", "gem-llm", "ours"]
    table(
        f"A fresh run: ms one by one, and calls/s {AT_ONCE} at once (wanted: print x3, numpy x12, sympy x30)",
        ["call", *(f"ms {s}" for s in sides), *(f"/s {s}" for s in sides), "/ python -c", "/ gem-llm"],
        rows,
    )
    return figures


def cells(sandbox: Sandbox) -> dict[str, Any]:
    rows, figures, per_session = [], {}, choose_size(100, 2)
    for name, code in CELLS.items():
        first = "import numpy, sympy; x = sympy.Symbol('x')" if name != "print" else "pass"
        preload = ("numpy", "sympy") if name != "print" else ()
        sessions = [sandbox.session(preload=preload) for _ in range(AT_ONCE)]
        for session in sessions:
            session.execute(first)
            session.execute(code)
        alone = [timed(partial(sessions[0].execute, code)) for _ in range(choose_size(200, 4))]

        def work(session: Any, code: str = code) -> None:
            for _ in range(per_session):
                session.execute(code)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            began = time.perf_counter()
            list(pool.map(work, sessions))
            took = time.perf_counter() - began
        for session in sessions:
            session.close()
        figures[name] = {
            "median_s": statistics.median(alone),
            "p99_s": statistics.quantiles(alone, n=100)[98],
            "cells_per_s": AT_ONCE * per_session / took,
        }
        row = figures[name]
        rows.append([name, 1000 * row["median_s"], 1000 * row["p99_s"], row["cells_per_s"]])
    table(
        f"A session's cell (wanted: at most 1 ms, 1,500/s of {AT_ONCE} sessions)",
        ["cell", "ms", "p99 ms", "cells/s"],
        rows,
    )
    return figures


def judge(sandbox: Sandbox, rounds: int) -> dict[str, Any]:
    inputs = ["\n".join(map(str, range(n, n + 20))) for n in range(TESTS)]
    cases = [Case(stdin=text.encode()) for text in inputs]
    wrong = SUM.replace("sum(", "1 + sum(")
    found: dict[str, list[float]] = {key: [] for key in ("right", "wrong", "peer right", "peer wrong")}
    for _ in range(rounds):
        found["right"].append(timed(lambda: sandbox.judge(SUM, cases)))
        stop = timed(lambda: sandbox.judge(wrong, cases, go_on=lambda i, result: result.stdout == "0"))
        found["wrong"].append(stop)
        found["peer right"].append(ask_peer({"judge": [SUM, inputs]}))
        found["peer wrong"].append(ask_peer({"judge": [wrong, inputs]}))
    many = choose_size(8, 1)
    together = at_once(lambda: sandbox.judge(SUM, cases), many)
    rate = many * TESTS / together
    peer_rate = TESTS / statistics.median(found["peer right"])
    table(
        f"Judging on {TESTS} tests (wanted: x5 tests/s, wrong first test under 10% of gem-llm's time)",
        ["", "ours", "gem-llm", "ratio"],
        [
            ["tests/s, one submission", TESTS / statistics.median(found["right"]), peer_rate,
             f"x{pairs(found['peer right'], found['right']):.3g}"],
            [f"tests/s, {many} submissions at once", rate, "-", f"x{rate / peer_rate:.3g}"],
            ["wrong on the first test, ms", 1000 * statistics.median(found["wrong"]),
             1000 * statistics.median(found["peer wrong"]),
             f"{pairs(found['wrong'], found['peer wrong']):.1%}"],
        ],
    )  # fmt: skip
    return {**found, "tests_per_s": rate}


def costs(sandbox: Sandbox, backend: str | None) -> dict[str, float]:
    ready = []
    for _ in range(choose_size(3, 1)):
        began = time.perf_counter()
        with contextlib.closing(open_sandbox(backend, begin=("bare",))) as other:
            other.run("pass")
            ready.append(time.perf_counter() - began)
    figures = {"bare fork server ready, s (wanted 0.3)": statistics.median(ready)}
    for name, preload, limit in (("bare", (), 3), ("numpy and sympy", ("numpy", "sympy"), 10)):
        sandbox.session(preload=preload).close()
        before = below()
        sessions = [sandbox.session(preload=preload) for _ in range(AT_ONCE)]  # over all fork servers
        for session in sessions:
            session.execute("1" if not preload else "import numpy, sympy")
        new = innermost([pid for pid in below() if pid not in before])
        held = sum(map(proportional, new)) * (1 << 20) / 1e6  # MB are what was wanted
        figures[f"idle session of {len(sessions)}, {name}, MB (wanted {limit})"] = held / len(sessions)
        for session in sessions:
            session.close()
    for name, first, preload in (
        ("session with nothing", "x = 1", ()),
        ("session with numpy and sympy", "import numpy, sympy", ("numpy", "sympy")),
        ("session with 100 MiB", "x = bytearray(b'x') * (100 << 20)", ()),
    ):
        session = sandbox.session(preload=preload)
        session.execute(first)
        times = []
        for _ in range(choose_size(20, 1)):
            began = time.perf_counter()
            try:
                twin = session.fork()
            except Exception as error:
                print(f"fork of a {name}: {error}")
                break
            times.append(time.perf_counter() - began)
            twin.close()
        if times:
            figures[f"fork of a {name}, ms"] = 1000 * statistics.median(times)
        session.close()
    table("What it costs", ["", "figure"], list(figures.items()))
    return figures


def innermost(processes: list[int]) -> list[int]:
    """Return those in the deepest process namespace: a fork server may have started meanwhile."""
    depths = {
        pid: len(line.split())
        for pid in processes
        for line in _lines(f"/proc/{pid}/status")
        if line.startswith("NSpid:")
    }
    return [pid for pid, depth in depths.items() if depth == max(depths.values())]


def proportional(pid: int) -> float:
    """Return the MiB of a process, of what it shares its share."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def bare(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def ask_peer(request: dict[str, Any], absent: Any = math.nan) -> Any:
    """Return what the peer takes, or `absent` in the smallest form where it is not installed."""
    with left_out_where_missing():
        python = peer_python(PEER)
        return run_peer(python, "sandbox_trial.py", str(Path(sys.executable).parent), json.dumps(request))
    return absent


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def at_once(call: Callable[[], object], n: int) -> float:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return timed(lambda: list(pool.map(lambda _: call(), range(n))))


def pairs(over: list[float], under: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


# ------------------------------------------------------------------------------------------------ the soak

_SOAK = Budget(cpu_s=5.0, wall_s=10.0, memory_mb=512, processes=16, disk_mb=8, inodes=256, output_kb=64)
_HURRIED = Budget(cpu_s=5.0, wall_s=0.2, memory_mb=512, processes=16, disk_mb=8, inodes=256, output_kb=64)


def soak(sandbox: Sandbox, calls: int, workers: int = 64, seed: int = 0) -> tuple[list[str], dict[str, Any]]:
    """Make mixed calls, many at once; return what went wrong, and counts before and after.

    A tenth leave a daemon behind, a tenth crash, hang or burst a budget, a fifth are sessions, a tenth judge.
    """
    numbers = iter(range(calls))  # taken one by one: work that waits in line would count as memory

    def work(_: int) -> list[str]:
        return [said for n in numbers if (said := _call(sandbox, n, Random(f"{seed} {n}").random()))]

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda n: _call(sandbox, n, n / workers), range(workers)))
        settled = _settle({})
        wrong = [said for told in pool.map(work, range(workers)) for said in told]
        after = _settle(settled)
    return wrong, {"before": settled, "after": after}


def _call(sandbox: Sandbox, n: int, which: float) -> str:
    try:
        if which < 0.5:
            done = sandbox.run(f"open('f', 'w').write('x' * {n % 1000})\nprint({n})", budget=_SOAK)
            return "" if done.stdout == f"{n}\n" else f"{n}: {done}"
        if which < 0.6:
            done = sandbox.run(_DAEMON.format(n=n), budget=_SOAK)
            return "" if done.stdout == f"{n}\n" else f"{n}: {done}"
        if which < 0.7:
            code, status = _ENDS[n % len(_ENDS)]
            done = sandbox.run(code, budget=_HURRIED if status is Status.TLE else _SOAK)
            return "" if done.status is status else f"{n}: {done}"
        if which < 0.9:
            session = sandbox.session(budget=_SOAK)
            session.execute(f"x = {n}")
            done = session.execute("x + 1")
            session.close()
            return "" if done.value == str(n + 1) else f"{n}: {done}"
        results = sandbox.judge(SUM, [Case(stdin=f"{n} {i}".encode()) for i in range(3)], budget=_SOAK)
        told = [result.stdout for result in results]
        return "" if told == [f"{n + i}\n" for i in range(3)] else f"{n}: {results}"
    except Exception as error:
        return f"{n}: {error!r}"


_DAEMON = """
import os, time
if hasattr(os, "fork"):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
    except OSError:
        pass
print({n})
"""
_ENDS = [
    ("import os; os._exit(3)", Status.RE),
    ("import ctypes; ctypes.string_at(0)", Status.RE),
    ("while True: print('x' * 1000)", Status.OLE),
    ("import time; time.sleep(60)", Status.TLE),
    ("x = (", Status.CE),
]


def _settle(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the counts once they equal what is wanted, or after five seconds; by default, once they rest."""
    deadline = time.monotonic() + 5
    counts = _counts()
    while time.monotonic() < deadline:
        time.sleep(0.1)
        last, counts = counts, _counts()
        if (counts | {"MiB": 0}) == ((wanted or last) | {"MiB": 0}):
            break
    return counts


def _counts() -> dict[str, Any]:
    gc.collect()
    processes = below()
    return {
        "processes": len(processes),
        "descriptors": sum(len(_listed(f"/proc/{pid}/fd")) for pid in [os.getpid(), *processes]),
        "mounts": sum(len(_lines(f"/proc/{pid}/mountinfo")) for pid in [os.getpid(), *processes]),
        "temporary files": len(_listed(tempfile.gettempdir())),
        "MiB": round(sum(proportional(pid) for pid in [os.getpid(), *processes])),
    }


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def below() -> list[int]:
    """Return every process below this one."""
    families: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat := _lines(f"/proc/{name}/stat")):
            families.setdefault(int(stat[0].rpartition(")")[2].split()[1]), []).append(int(name))
    found, left = [], [os.getpid()]
    while left:
        more = families.get(left.pop(), [])
        found += more
        left += more
    return found


def soak_and_tell(sandbox: Sandbox, calls: int) -> bool:
    began = time.perf_counter()
    wrong, counts = soak(sandbox, calls)
    took = time.perf_counter() - began
    for said in wrong[:10]:
        print(said[:300])
    table(
        f"{calls} mixed calls, 64 at once, {sandbox.backend}: {len(wrong)} wrong, {calls / took:.0f} calls/s",
        ["count", *counts],
        [[name, *(side[name] for side in counts.values())] for name in counts["before"]],
    )
    write_json("sandbox_soak", {"calls": calls, "wrong": wrong, "calls_per_s": calls / took, **counts})
    same = all(counts["before"][name] == counts["after"][name] for name in counts["before"] if name != "MiB")
    return same and not wrong


if __name__ == "__main__":
    main()
