"""Measure how much memory programs get past a budget: ``python tests/sandbox/abuse/memory.py``.

Every way of `memory_ways.py` is tried on every backend, with and without control groups. What its processes
took, and the kernel for them, is measured from outside: by a control group around the trial (its highest
use, the page cache emptied before), or, where there is none, by the machine's available memory. Prints a
table in MiB, for a budget of 256; more than 1.5 times that is marked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from memory_ways import BUDGET, PRELUDE, WAYS

BACKENDS = ("userns", "bwrap-slots", "landlock")
ALLOWED_MB = BUDGET.memory_mb * 1.5
ROOT = str(Path(__file__).resolve().parents[3])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backends", nargs="*", default=BACKENDS)
    parser.add_argument("--only", default="", help="a part of the way's name")
    parser.add_argument("--groups", nargs="*", type=int, default=(1, 0), help="1: with control groups")
    parser.add_argument("--user", type=int, help="run the trial as this user, by setpriv")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trial", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    ways = [name for name in WAYS if asked.only in name]
    if asked.trial:
        return trial(asked.trial[0], bool(int(asked.trial[1])), ways)
    found = {}
    for backend in asked.backends:
        for groups in asked.groups:
            key = f"{backend}{' + group' if groups else ''}"
            found[key] = measure(backend, groups, asked.only, asked.user)
    if asked.json:
        print(json.dumps(found))
    else:
        print_table(found, ways)
    return 1 if any(over(seen) for rows in found.values() for seen in rows.values()) else 0


def over(seen: dict[str, object]) -> bool:
    return float(str(seen["mb"])) > ALLOWED_MB


def print_table(found: dict[str, dict[str, dict[str, object]]], ways: list[str]) -> None:
    print("| MiB | " + " | ".join(found) + " |")
    print("|---|" + "---|" * len(found))
    for way in ways:
        cells = []
        for rows in found.values():
            seen = rows.get(way)
            if seen is None:
                cells.append("")
            elif str(seen["said"]).startswith("refused"):
                cells.append("refused")
            else:
                cells.append(f"**{seen['mb']:.0f}**" if over(seen) else f"{seen['mb']:.0f} {seen['status']}")
        print(f"| {way} | " + " | ".join(cells) + " |")


def trial(backend: str, groups: bool, ways: list[str]) -> int:
    """Run the ways one by one, saying when each begins and ends, and waiting to be told to go on."""
    from gem.sandbox.choice import open_sandbox

    with contextlib.closing(
        open_sandbox(backend, begin=("bare",), max_running=2, control_groups=groups)
    ) as sandbox:
        if groups and "control group" not in sandbox.report()["memory"]:
            print(json.dumps({"failed": "no control groups"}), flush=True)
            return 0
        sandbox.run("print(1)")
        for way in ways:
            print(json.dumps({"begin": way}), flush=True)
            sys.stdin.readline()
            result = sandbox.run(PRELUDE + WAYS[way], budget=BUDGET)
            said = (result.stdout.strip() or result.stderr.strip()).rpartition("\n")[2][:120]
            print(json.dumps({"way": way, "status": str(result.status), "said": said}), flush=True)
            sys.stdin.readline()
    return 0


def measure(backend: str, groups: int, only: str, user: int | None) -> dict[str, dict[str, object]]:
    with meter() as (enter, begin, peak_mb):
        step = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        command = [*step, sys.executable, __file__, "--only", only, "--trial", backend, str(groups)]
        environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}
        found: dict[str, dict[str, object]] = {}
        with subprocess.Popen(
            ["/bin/sh", "-c", f'{enter}; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                if "begin" in told:
                    time.sleep(0.3)  # what the one before left is going
                    begin()
                elif "way" in told:
                    found[told["way"]] = {**told, "mb": peak_mb()}
                    print(f"{backend} {groups} {found[told['way']]}", file=sys.stderr, flush=True)
                process.stdin.write("\n")
                process.stdin.flush()
        return found


@contextlib.contextmanager
def meter() -> Iterator[tuple[str, object, object]]:
    """Yield a shell command that enters what is measured, and what begins and ends a measurement."""
    from gem.sandbox import cgroups

    place = cgroups.find()
    if place is None or place.version == 2:
        available = _Available()
        yield "true", available.begin, available.peak_mb
        return
    folder = Path(place.folder, f"measure-{os.getpid()}")
    folder.mkdir()

    def number(name: str) -> int:
        return int((folder / name).read_text())

    before = [0]

    def begin() -> None:
        with contextlib.suppress(OSError):
            (folder / "memory.force_empty").write_text("0")
        before[0] = number("memory.usage_in_bytes")
        (folder / "memory.max_usage_in_bytes").write_text("0")

    try:
        yield (
            f"echo 0 > {folder}/cgroup.procs",
            begin,
            lambda: (number("memory.max_usage_in_bytes") - before[0]) / (1 << 20),
        )
    finally:
        time.sleep(0.2)
        for inner in folder.glob("gem-*"):
            with contextlib.suppress(OSError):
                inner.rmdir()
        folder.rmdir()


class _Available:
    """The machine's available memory, looked at a hundred times a second."""

    def __init__(self) -> None:
        self.least = self.first = 0
        threading.Thread(target=self._look, daemon=True).start()

    def begin(self) -> None:
        self.first = self.least = self._now()

    def peak_mb(self) -> float:
        return (self.first - self.least) / 1024

    def _look(self) -> None:
        while True:
            self.least = min(self.least, self._now())
            time.sleep(0.01)

    def _now(self) -> int:
        text = Path("/proc/meminfo").read_text()
        return int(text.partition("MemAvailable:")[2].split()[0])


if __name__ == "__main__":
    sys.exit(main())
