"""Labelled replies graded by gem and by others: false accepts, false refusals, CPU.

``python -m bench.replies [--half open|sealed|later|pairs|mixed] [--gem-only] [--list] [--kind KIND]``.
About 2,700 replies stand in ``tests/graders/replies/``, written as models write, to real references, by
authors who had not seen the grader, and labelled right or wrong; a second reader judged each without its
label. The sealed half was fixed by its digest before the grader was mended on the open half; the later set
was written and sealed after that, and two sets after further mending. gem gets the question too, as in its
environments, where it is here (GEM_TEST_DATA names the folder of the data sets); the others take none.
``--list`` prints what gem judges wrongly.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import time
from collections import Counter
from typing import Any

from bench.common import (
    HERE,
    SMALLEST,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from bench.graders import DATA, worker_cpu_s
from gem.graders.math import MathGrader

FOLDER = HERE.parent / "tests" / "graders" / "replies"
SEALS = {
    "sealed": "e3398b0f8632b725a5c70f879cfec5be078020706c71adfd0b5af29fb5159c79",
    "pairs": "be8049bad9412dcfb2cede20168ebb61a66e525b3756e7ffdfb420fe727142db",
    "mixed": "aae8f0e3dce06cb153ec308d17cd3c2eeee3a22ccd332f1b791cdf5570164cfc",
    "later": "ae0e88d39d73abc3fc3b1cc11c10302ccf045a5920e6cbdd7a42e0cd800d494b",
}
"""SHA-256 of the sealed sets, uncompressed."""
PEERS: dict[str, tuple[str, ...]] = {
    "math-verify": ("math-verify[antlr4_13_2]==0.9.0",),
    "gem-llm": ("gem-llm==0.1.0", "pylatexenc", "datasets", "pandas", "requests"),
    "lm-eval": ("lm-eval[math]==0.4.13",),
    "inspect": ("inspect-ai==0.3.285",),
}
"""The matchers compared with, and what pip installs of each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=("open", *SEALS), default="open")
    parser.add_argument("--gem-only", action="store_true", help="without the other packages")
    parser.add_argument("--list", action="store_true", help="print what gem gets wrong")
    parser.add_argument("--kind", help="only the replies of one kind")
    options = parse_args(parser)
    rows = [row for row in read_half(options.half) if options.kind in (None, row["kind"])][
        : 60 if SMALLEST else None
    ]
    verdicts, cpu_s = grade(rows)
    results = {"gem": {"verdicts": verdicts, "cpu_s": cpu_s}}
    if not options.gem_only:
        for name, packages in PEERS.items():
            with left_out_where_missing():
                path = str(FOLDER / (f"{options.half}.jsonl" + ".xz" * (options.half in SEALS)))
                results |= run_peer(peer_python(*packages), "replies_trial.py", name, path, str(len(rows)))
    if options.list:
        print_errors(rows, verdicts)
    counts = {name: count(rows, result["verdicts"]) for name, result in results.items()}
    right, wrong = (sum(row["right"] is label for row in rows) for label in (True, False))
    table(
        f"{len(rows)} labelled replies, {options.half}: {right} right, {wrong} wrong",
        ["grader", "wrong ones accepted", "right ones refused", "of these boxed", "unboxed", "CPU s"],
        [[name, *counts[name].values(), result["cpu_s"]] for name, result in results.items()],
    )
    write_json(
        f"replies_{options.half}",
        {name: counts[name] | {"cpu_s": results[name]["cpu_s"]} for name in results},
    )


def read_half(half: str) -> list[dict[str, Any]]:
    """Return the replies of one half, or of a set written later.

    Raises:
        ValueError: when a sealed set is not the one that was sealed.
    """
    if half == "open":
        text = (FOLDER / "open.jsonl").read_bytes()
    else:
        text = lzma.decompress((FOLDER / f"{half}.jsonl.xz").read_bytes())
        if hashlib.sha256(text).hexdigest() != SEALS[half]:
            raise ValueError(f"the set {half!r} is not the one that was sealed.")
    rows = [json.loads(line) for line in text.decode().splitlines()]
    questions: dict[str, list[str]] = {}
    for row in rows:
        name, _, number = row["source"].partition(":")
        if name == "own":
            row["question"] = row.get("problem", number)  # or the topic, with the unit that is asked for
        elif (DATA / name).is_file():
            lines = questions.setdefault(name, (DATA / name).read_text().splitlines())
            task = json.loads(lines[int(number)])
            row["question"] = " ".join(filter(None, (task.get("body"), task["question"])))
    return rows


def grade(rows: list[dict[str, Any]]) -> tuple[list[bool], float]:
    """Return gem's verdicts, and its CPU seconds with those of its workers."""
    grader = MathGrader()
    grader(r"\boxed{\sum_{k=1}^{3} k}", "6")  # starts a worker
    started = time.process_time() + worker_cpu_s()
    verdicts = [grader(row["reply"], row["gold"], row.get("question", "")).correct for row in rows]
    return verdicts, time.process_time() + worker_cpu_s() - started


def count(rows: list[dict[str, Any]], verdicts: list[bool]) -> dict[str, int]:
    """Return how many wrong replies were accepted, and right ones refused, with and without a box."""
    wrong = Counter(
        (row["right"], row["boxed"])
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict != row["right"]
    )
    boxed, bare = wrong[True, True], wrong[True, False]
    return {
        "accepted": wrong[False, True] + wrong[False, False],
        "refused": boxed + bare,
        "boxed": boxed,
        "bare": bare,
    }


def print_errors(rows: list[dict[str, Any]], verdicts: list[bool]) -> None:
    """Print the replies that gem judges wrongly, and its reasons."""
    grader = MathGrader()
    for row, verdict in zip(rows, verdicts, strict=True):
        if verdict != row["right"]:
            score = grader(row["reply"], row["gold"], row.get("question", ""))
            what = "ACCEPTED" if verdict else "refused"
            print(f"{row['id']} {row['kind']}: {what}, {score.parsed!r}: {score.why}")
            print(f"  gold {row['gold']!r}\n  reply ...{row['reply'][-300:]!r}")


if __name__ == "__main__":
    main()
