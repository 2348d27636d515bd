"""Cost of the container backend: ``python -m bench.container``, with the engine of GEM_SANDBOX_ENGINE.

Prints medians, and those of a plain ``python -c`` in the same run; writes bench/out/container.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from bench.common import choose_size, left_out_where_missing, parse_args, table, write_json
from gem.sandbox import Case, open_sandbox


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median time of a call."""
    took = []
    for _ in range(choose_size(times, 1)):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def main() -> None:
    parse_args(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    sandbox = open_sandbox("container")
    engine = sandbox.run("print(1)").info["engine"]
    bare = seconds(partial(subprocess.run, [sys.executable, "-c", "print(1)"], capture_output=True), 9)
    found = {"python -c": bare, "a fresh run": seconds(partial(sandbox.run, "print(1)"), 9)}
    session = sandbox.session()
    found["a session's cell"] = seconds(partial(session.execute, "print(1)"), 200)
    found["its shell command"] = seconds(partial(session.shell, "true"), 30)
    session.close()
    cases = [Case(stdin=b"1")] * choose_size(50, 2)
    found["judging 50 cases"] = seconds(partial(sandbox.judge, "print(input())", cases), 3)
    sandbox.close()
    rows = [(name, took * 1e3, took / bare) for name, took in found.items()]
    table(f"{engine}: medians", ("", "ms", "to python -c"), rows)
    write_json("container", {"engine": engine, "seconds": found})


if __name__ == "__main__":
    with left_out_where_missing():
        main()
