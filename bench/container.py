"""What the container rung costs: ``python -m bench.container``, on the engine that GEM_SANDBOX_ENGINE names.

Prints medians in seconds, beside those of a bare ``python -c`` in the same run.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from gem.sandbox import Case, open_sandbox


def seconds(work: Callable[[], object], times: int) -> float:
    """Return the median time of a call."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def main() -> None:
    sandbox = open_sandbox("container")
    print(f"{sandbox.run('print(1)').info['engine']}:")
    bare = seconds(partial(subprocess.run, [sys.executable, "-c", "print(1)"], capture_output=True), 9)
    run = seconds(partial(sandbox.run, "print(1)"), 9)
    print(f"  python -c           {bare:.3f}\n  a fresh run         {run:.3f}, {run / bare:.1f} times that")
    session = sandbox.session()
    print(f"  a session's cell    {seconds(partial(session.execute, 'print(1)'), 200):.4f}")
    print(f"  its shell command   {seconds(partial(session.shell, 'true'), 30):.4f}")
    session.close()
    cases = [Case(stdin=b"1")] * 50
    print(f"  judging 50 cases    {seconds(partial(sandbox.judge, 'print(input())', cases), 3):.3f}")
    sandbox.close()


if __name__ == "__main__":
    main()
