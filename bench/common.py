"""Shared by all benchmarks: medians, rates, tables, JSON output, and peers in separate environments.

A benchmark is a module run from the root of the repository, ``python -m bench.NAME``. It prints its table
and writes ``bench/out/NAME.json``. A peer (another package) is measured in the same run by a script in
``bench/peers/``. The script runs in its own virtual environment, imports only the peer's public API, and
prints its figures as JSON.

``--smallest`` takes a benchmark through the same code with the smallest sizes, in seconds. It shows that the
benchmark runs, and gives no figures. It writes to ``bench/out/smallest/``, and leaves out peers that are not
installed: ``python -m bench.common REQUIREMENT...`` installs one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from gem.envs.database.postgres import VARIABLE, server
from gem.envs.database.postgres_server import temporary_server
from gem.errors import MissingExtra
from gem.sandbox.base import SandboxFailed

HERE = Path(__file__).parent
SMALLEST = "--smallest" in sys.argv
OUT = HERE / "out" / ("smallest" if SMALLEST else "")
PEERS = HERE / ".peers"
T = TypeVar("T")


def choose_size(full: T, smallest: T) -> T:
    """Return the size for the form of the benchmark that runs: `smallest` with ``--smallest``."""
    return smallest if SMALLEST else full


def parse_args(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments of the command line, which may also ask for the smallest form."""
    parser.add_argument("--smallest", action="store_true", help="the smallest sizes, which give no figures")
    return parser.parse_args()


def median(fn: Callable[[], float], trials: int = 5) -> float:
    """Return the median of the figures that `fn` returns over `trials` calls."""
    return statistics.median(fn() for _ in range(trials))


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, the mean for ratios."""
    return statistics.geometric_mean(ratios)


def cpu_rate(fn: Callable[[], int], cpu_s: float = 0.3) -> float:
    """Return the counts of `fn` per CPU second of this process; it is called until `cpu_s` is used.

    CPU time, unlike wall time, hardly depends on other load of the machine.
    """
    done, started = 0, time.process_time()
    while (spent := time.process_time() - started) < cpu_s:
        done += fn()
    return done / spent


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; the first column is a name, the others are figures."""
    drawn = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="right" if number else "left")
    for row in rows:
        drawn.add_row(*map(_shown, row))
    Console(width=None if sys.stdout.isatty() else 140).print(drawn)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_json(name: str, payload: Any) -> Path:
    """Write ``NAME.json`` into `OUT`: the payload under ``results``, with the facts of the machine."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "results": payload}, indent=2) + "\n")
    print(f"wrote {path.relative_to(HERE.parent)}")
    return path


def machine() -> dict[str, Any]:
    """Return the facts needed to judge the figures: processor, cores, load, versions, commit."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "load": list(os.getloadavg()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


@contextlib.contextmanager
def left_out_where_missing() -> Iterator[None]:
    """Skip a benchmark, with the reason, if its subject is not on this machine."""
    try:
        yield
    except (MissingExtra, SandboxFailed) as error:
        print(f"left out: {error}")


@contextlib.contextmanager
def postgres() -> Iterator[None]:
    """Start a PostgreSQL server for the block, unless GEM_POSTGRES_DSN names one.

    Raises:
        MissingExtra: when PostgreSQL is not installed.
    """
    if os.environ.get(VARIABLE):
        yield
        return
    with temporary_server() as dsn:
        os.environ[VARIABLE] = dsn
        try:
            yield
        finally:
            server().close()
            del os.environ[VARIABLE]


def peer_python(*requirements: str) -> Path:
    """Return a Python in ``bench/.peers/`` that has `requirements` and not our packages.

    pip makes it on first use; two benchmarks that need the same one at once wait for each other.

    Raises:
        MissingExtra: in the smallest form, when it is not there: that form installs nothing.
        subprocess.CalledProcessError: when pip cannot install them.
    """
    home = PEERS / re.sub(r"[^\w.+-]+", "-", "+".join(requirements))
    python, complete = home / "bin" / "python", home / ".complete"
    if SMALLEST and not complete.exists():
        wanted = " ".join(requirements)
        raise MissingExtra(f"{wanted}, to compare with; to install: python -m bench.common {wanted}")
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            print(
                f"installing {', '.join(requirements)} into {home.relative_to(HERE.parent)} ...", flush=True
            )
            venv.create(home, with_pip=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*install, *requirements], check=True)
            complete.touch()
    return python


def run_peer(python: Path, script: str, *args: str) -> Any:
    """Run ``bench/peers/SCRIPT`` and return the JSON on the last line it prints.

    It runs isolated (``-I``): neither the checkout nor PYTHONPATH can replace the peer's `gem` by ours.

    Raises:
        RuntimeError: when it fails, with the end of its output.
    """
    done = subprocess.run(
        [str(python), "-I", str(HERE / "peers" / script), *args],
        capture_output=True,
        text=True,
        cwd=python.parent,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    print(peer_python(*sys.argv[1:]))
