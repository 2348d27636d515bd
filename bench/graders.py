"""Real mathematics answers graded per CPU second, compared with gem-llm's grader, class by class.

``python -m bench.graders [--rows N] [--trials N] [--data FOLDER]``. Every row of GSM8K, ASDiv and
OlympiadBench (samples of them, in FOLDER) gives two pairs: its own answer, boxed, and as a wrong answer that
of another row of the same class. For gem, the CPU time of the grading workers is included, and its caches are
emptied between trials. The start of a worker and the peer's import are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.common import (
    HERE,
    choose_size,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from gem.graders import math as grading
from gem.graders.mathematics import evaluation, latex, notation, scalars

PEER = "gem-llm==0.1.0"
ALSO = ("pylatexenc", "datasets", "pandas", "requests")  # that it imports and does not declare
WANTED = 20  # times the peer's pairs per CPU-second
SAMPLE = {"GSM8K": ["72", "10"], "OlympiadBench Expression": ["$\\frac{n}{n+1}$", "$2^{n}-1$"]}
"""The answers of the smallest form, which needs no data."""
DATA = Path(os.environ.get("GEM_TEST_DATA", HERE.parent.parent / "shared" / "data"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--trials", type=int, default=choose_size(3, 1))
    parser.add_argument("--data", type=Path, default=DATA)
    options = parse_args(parser)
    try:
        classes = pairs(SAMPLE if options.smallest else read_answers(options.data, options.rows))
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is not there; --data or GEM_TEST_DATA names the folder that has it.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pairs.json")
        path.write_text(json.dumps(classes))
        peer = {name: {"per_cpu_s": math.nan, "wrong": math.nan} for name in classes}
        with left_out_where_missing():
            peer = run_peer(peer_python(PEER, *ALSO), "graders_trial.py", str(path))
    grading.check_correct(r"\sum_{k=1}^{3} k", "6")  # warm, as a training run's is after its first pairs
    figures = {name: figure(rows, peer[name], options.trials) for name, rows in classes.items()}
    spent = {who: sum(f["pairs"] / f[who] for f in figures.values()) for who in ("ours", "peer")}
    total = sum(f["pairs"] for f in figures.values())
    figures["all"] = {
        "pairs": total,
        "ours": total / spent["ours"],
        "peer": total / spent["peer"],
        "ratio": spent["peer"] / spent["ours"],
        **{
            what: sum(f[what] for f in figures.values())
            for what in ("to_workers", "wrong_verdicts", "peer_wrong_verdicts")
        },
    }
    lowest = min(figures, key=lambda name: figures[name]["ratio"])
    ratio = figures[lowest]["ratio"]
    table(
        "Pairs graded per CPU-second, half of them wrong answers of the same class. Wanted: ratio "
        f"{WANTED} in every class; lowest: {ratio:.3g} ({lowest}), {'met' if ratio >= WANTED else 'MISSED'}",
        (
            "class",
            "pairs",
            "ours",
            "gem-llm",
            "ratio",
            "asked of workers",
            "wrong verdicts",
            "its wrong verdicts",
        ),
        [[name, *figure.values()] for name, figure in figures.items()],
    )
    write_json("graders", {"peer": PEER, "wanted": WANTED, "met": ratio >= WANTED, "figures": figures})


def figure(rows: list[tuple[str, str, bool]], peer: dict[str, float], trials: int) -> dict[str, float]:
    """Return what one class gives, ours and the peer's."""
    done = [ours(rows) for _ in range(trials)]
    rate = statistics.median(trial["per_cpu_s"] for trial in done)
    return {
        "pairs": len(rows),
        "ours": rate,
        "peer": peer["per_cpu_s"],
        "ratio": rate / peer["per_cpu_s"],
        "to_workers": done[0]["to_workers"],
        "wrong_verdicts": done[0]["wrong"],
        "peer_wrong_verdicts": peer["wrong"],
    }


def read_answers(data: Path, rows: int) -> dict[str, list[str]]:
    """Return the right answers by class."""
    answers: dict[str, list[str]] = {}
    for row in read(data / "gsm8k_test_300.jsonl", rows):
        answers.setdefault("GSM8K", []).append(row["answer"].rpartition("####")[2].strip())
    for row in read(data / "asdiv_300.jsonl", rows):
        answers.setdefault("ASDiv", []).append(row["answer"].partition(" (")[0])
    for row in read(data / "olympiadbench_150.jsonl", rows):
        answers.setdefault(f"OlympiadBench {row['answer_type']}", []).append(row["final_answer"][0])
    return answers


def pairs(answers: dict[str, list[str]]) -> dict[str, list[tuple[str, str, bool]]]:
    """Return, per class, answers with their reference and whether they are right."""
    found = {}
    for name, golds in answers.items():
        right = [(boxed(gold), gold, True) for gold in golds]
        others = [
            next(a for a in golds[i + 1 :] + golds[:i] if shape(a) != shape(gold))
            for i, gold in enumerate(golds)
        ]
        found[name] = right + [(boxed(other), gold, False) for other, gold in zip(others, golds, strict=True)]
    return found


def read(path: Path, rows: int) -> list[dict[str, Any]]:
    with path.open() as file:
        return [json.loads(line) for line in file][:rows]


def shape(answer: str) -> str:
    """An answer without the names of its variables: f(z)=z is no wrong answer where f(n)=n is right."""
    return re.sub(r"(?<![\\a-z])[a-z](?![a-z])", "x", answer.strip("$"))


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer.strip('$')}}}."


def ours(rows: list[tuple[str, str, bool]]) -> dict[str, Any]:
    for memory in (latex.read, scalars.facts, evaluation.sample, notation.prepare_text):
        memory.cache_clear()
    before, started = worker_cpu_s(), time.process_time()
    verdicts = [grading.check_correct(answer, gold) for answer, gold, _ in rows]
    spent = time.process_time() - started + worker_cpu_s() - before
    fast = Counter(
        grading.decide(grading.references(gold)[0], grading.final_answer(answer)[0])[0]
        for answer, gold, _ in rows
    )
    return {
        "per_cpu_s": len(rows) / spent,
        "to_workers": fast[None],
        "wrong": sum(verdict != right for verdict, (_, _, right) in zip(verdicts, rows, strict=True)),
    }


def worker_cpu_s() -> float:
    """CPU seconds of the workers so far, of those too that were ended, and of the process that forks them."""
    pool = grading.workers()
    ticks = 0
    for pid, ended in [(pool.server_pid, True), *((pid, False) for pid in pool.pids)]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11 : 15 if ended else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
