"""Cost of storing episodes: memory, bytes on disk, appends, opening and filtering, compared with older code.

``python -m bench.store [--before REVISION]``. The older code is measured in the same run, from a copy of that
revision of this repository; by default the last one with schema 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.common import HERE, choose_size, parse_args, table, write_json
from bench.rollout import BEFORE, checkout

TRIAL = HERE / "peers" / "store_trial.py"


def measured(code: Path) -> dict[str, Any]:
    """Return the figures of the gem in a folder."""
    run = subprocess.run(
        [sys.executable, TRIAL, *choose_size((), ("--smallest",))],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise SystemExit(run.stderr)
    figures: dict[str, Any] = json.loads(run.stdout)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default=BEFORE, help="revision to compare with")
    revision = parse_args(parser).before
    with tempfile.TemporaryDirectory() as folder:
        checkout(revision, Path(folder))
        before, now = measured(Path(folder)), measured(HERE.parent)
    rows = [
        (f"{kind} episode: {what}", before[kind][key], now[kind][key], now[kind][key] / before[kind][key])
        for kind in ("short, no tokens", "short", "long")
        for key, what in (
            ("encode_us", "encode, us of CPU"),
            ("decode_us", "decode, us of CPU"),
            ("bytes", "on disk, bytes"),
        )
    ]
    rows += [
        (what, before[key], now[key], now[key] / before[key])
        for key, what in (
            ("memory_mb", "long episode: in memory, MB (wanted: 0.9)"),
            ("append_us, no tokens", "append a short episode without tokens, us of CPU (wanted: 1.5 times)"),
            ("append_us", "append a short episode, us of CPU"),
            ("open_ms", "10,000 episodes opened, filtered, one read, ms (wanted: 50)"),
        )
    ]
    table("episode store", ("", f"before ({revision})", "now", "now / before"), rows)
    print(f"the same 10,000 episodes without an index: {now['open_without_index_ms']:.0f} ms, once")
    write_json("store", {"before": before, "now": now})


if __name__ == "__main__":
    main()
