"""Change the code in one place at a time, and see whether a test fails: mutation testing.

    make mutants                                              300 mutants over nine packages
    .venv/bin/python scripts/mutants.py --count 20 --only gem/rollout --seed 3
    .venv/bin/python scripts/mutants.py --even --count 306 --seed 24   of each package as many
    .venv/bin/python scripts/mutants.py --report              the table, and every mutant that lived

The first run measures which test executes which line (minutes), in a clone of HEAD. A mutant is then tested
by those tests alone, quick ones first, and by all tests of its package where none of them fails. A test that
fails without a mutant is left out. Rows are kept in out/mutants, so a run that was stopped goes on; another
seed makes another choice.

A mutant that lives is judged in `tests/mutants.toml`: equivalent (path, the line that the report prints, and
why), or a test is missing.

Two tools do not fit: mutmut 3 wraps functions, which pickles and `inspect` notice; cosmic-ray runs one
command, the whole suite, for each mutant.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from changed_tests import tests_of

from gem.envs.kit.mutants import Mutant, find_mutants

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "mutants"
JUDGED = ROOT / "tests" / "mutants.toml"
PACKAGES = ("rollout", "agents", "evals", "hosts", "vector", "serve", "graders", "train", "statistics")
FIRST = 30  # tests that a mutant meets first, the quickest ones
MOST = 600  # tests that a mutant meets in all
MEMORY = 8 * 2**30  # bytes of data of a test process


def choose(
    root: Path, count: int, seed: int, only: list[str], without: Sequence[str] = (), even: bool = False
) -> list[Mutant]:
    """Return mutants of files below `root`, of each package as many as its share of the places.

    Args:
        root: the folder in which `only` and `without` are paths.
        count: mutants in all, about.
        seed: of the choice.
        only: folders or files.
        without: beginnings of paths that are left out.
        even: of each of `only` the same number instead.
    """
    chances = random.Random(seed)
    chosen: list[Mutant] = []
    folders = {
        folder: sorted(
            mutant
            for file in sorted((root / folder).rglob("*.py") if (root / folder).is_dir() else [root / folder])
            if not str(file.relative_to(root)).startswith(tuple(without))
            for mutant in find_mutants(str(file.relative_to(root)), file.read_bytes())
        )
        for folder in only
    }
    total = sum(map(len, folders.values()))
    for places in folders.values():
        share = max(1, round(count / len(folders) if even else count * len(places) / total))
        chosen += chances.sample(places, min(share, len(places)))
    chances.shuffle(chosen)
    return chosen


PLUGIN = """
import json, os, time
import coverage, pytest

LINES = os.environ["MUTANTS"] + f"/lines.{os.getpid()}"
COVER = coverage.Coverage(data_file=LINES, source=["gem"], config_file=False)
COVER.start()

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    COVER.switch_context(item.nodeid)
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        COVER.switch_context("")
        with open(os.environ["MUTANTS"] + f"/times.{os.getpid()}", "a") as file:
            print(json.dumps([item.nodeid, time.perf_counter() - began]), file=file)

@pytest.hookimpl
def pytest_runtest_logreport(report):
    if report.failed:
        with open(os.environ["MUTANTS"] + f"/failed.{os.getpid()}", "a") as file:
            print(json.dumps(report.nodeid), file=file)

def pytest_unconfigure():
    COVER.stop()
    COVER.save()
"""


class Clone:
    """A clone of HEAD in which a file is changed, and tests run."""

    def __init__(self, folder: Path, marks: str) -> None:
        """Clone into `folder`, or bring the clone there to HEAD; run tests with these marks."""
        self.folder, self.marks = folder, marks
        if folder.exists():
            run_git(folder, "fetch", "--quiet", "origin")
            run_git(folder, "reset", "--quiet", "--hard", run_git(ROOT, "rev-parse", "HEAD").strip())
        else:
            run_git(ROOT, "clone", "--quiet", str(ROOT), str(folder))

    def run(self, *pytest: str, limit_s: float, plugin: Path | None = None) -> str:
        """Run pytest; return ``passed``, ``failed``, ``nothing`` (no such test) or ``timeout``."""
        env = {
            **os.environ,
            "PYTHONPATH": f"{self.folder}:{plugin.parent if plugin else ''}",
            "OMP_NUM_THREADS": "1",
        }
        if plugin:
            env["MUTANTS"] = str(plugin.parent)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *pytest]
        process = subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=limit_memory,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return {0: "passed", 5: "nothing"}.get(code, "failed")


def limit_memory() -> None:
    """Limit what a process may take, for a mutant may ask for all there is."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def run_git(folder: Path, *words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


class Lines:
    """Which test executes which line, and how long it takes."""

    def __init__(self, clone: Clone, folder: Path, workers: int, tests: list[str]) -> None:
        """Read the measurement in `folder`, or make it with `tests`, by default all that are not slow."""
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            plugin = folder / "mutants_lines.py"
            plugin.write_text(PLUGIN)
            print("measuring which test executes which line: half as long again as the tests")
            words = ("-p", "mutants_lines", "-m", clone.marks, "--numprocesses", str(workers))
            clone.run(*words, "--dist", "worksteal", *tests, limit_s=7200, plugin=plugin)
            (folder / "done").touch()
        import coverage

        data = coverage.CoverageData(str(folder / "all"))
        if not (folder / "all").exists():
            for part in folder.glob("lines.*"):
                one = coverage.CoverageData(str(part))
                one.read()
                data.update(one)
            data.write()
        data.read()
        self._data, self._root = data, clone.folder
        self._failed = {json.loads(line) for file in folder.glob("failed.*") for line in file.open()}
        self._seconds = dict(json.loads(line) for file in folder.glob("times.*") for line in file.open())

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the mutant's line, the quickest first."""
        by_line = self._data.contexts_by_lineno(str(self._root / mutant.path))
        names = {name for name in by_line.get(mutant.line, ()) if name} - self._failed
        return sorted(names, key=lambda name: self._seconds.get(name, 1.0))[:MOST]

    def seconds(self, tests: list[str]) -> float:
        """Return how long tests take."""
        return sum(float(self._seconds.get(name, 1.0)) for name in tests)

    @property
    def failed(self) -> set[str]:
        """The tests that fail without a mutant."""
        return self._failed


def test_mutant(mutant: Mutant, clone: Clone, lines: Lines) -> dict[str, object]:
    """Run the tests of a mutant; return its row: ``killed`` or ``alive``, and by what."""
    file = clone.folder / mutant.path
    source = file.read_bytes()
    tests = lines.tests(mutant)
    began = time.perf_counter()
    stages = [tests[:FIRST], tests[FIRST:]]
    package = tests_of(mutant.path.removesuffix(".py").replace("/", "."))
    try:
        file.write_bytes(mutant.apply(source))
        for chosen in filter(None, stages):
            outcome = clone.run("-x", "-m", "", *chosen, limit_s=60 + 5 * lines.seconds(chosen))
            if outcome in ("failed", "timeout"):
                return row(mutant, "killed", outcome, len(tests), began)
        if package:
            left_out = [word for name in lines.failed for word in ("--deselect", name)]
            outcome = clone.run("-x", "-m", clone.marks, *left_out, package, limit_s=1200)
            if outcome in ("failed", "timeout"):
                return row(mutant, "killed", f"{outcome} in {package}", len(tests), began)
    finally:
        file.write_bytes(source)
    return row(mutant, "alive", "", len(tests), began)


def row(mutant: Mutant, state: str, how: str, tests: int, began: float) -> dict[str, object]:
    """Return what is kept about a mutant."""
    return {
        **asdict(mutant),
        "state": state,
        "how": how,
        "tests": tests,
        "s": round(time.perf_counter() - began, 1),
    }


def report(rows: list[dict[str, object]]) -> int:
    """Print the share that died in each package, and what lived; return how many of these are not judged."""
    read = tomllib.loads(JUDGED.read_text())["equivalent"] if JUDGED.exists() else []
    judged = {(each["path"], each["changed"]) for each in read}
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    alive = []
    for each in rows:
        mutant = Mutant(**{name: each[name] for name in Mutant.__dataclass_fields__})  # type: ignore[arg-type]
        known = each["state"] == "alive" and (mutant.path, mutant.changed) in judged
        state = "equivalent" if known else str(each["state"])
        counts["/".join(mutant.path.split("/")[:2])][state] += 1
        if state == "alive":
            alive.append(mutant)
    total = sum(counts.values(), collections.Counter[str]())
    print(f"{'package':24}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'alive':>7}{'killed of decided':>20}")
    for name, count in [*sorted(counts.items()), ("all", total)]:
        decided = count["killed"] + count["alive"]
        share = f"{count['killed'] / decided:.1%}" if decided else "-"
        print(
            f"{name:24}{count.total():8}{count['killed']:8}{count['equivalent']:12}{count['alive']:7}{share:>20}"
        )
    for mutant in sorted(alive):
        print(f"\n{mutant.path}:{mutant.line}  {mutant.before!r} -> {mutant.after!r}\n    {mutant.changed}")
    return len(alive)


def main() -> int:
    """Choose mutants, test those that have no row yet, and report."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, metavar="N", help="mutants in all (default 300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice (default 0)")
    parser.add_argument(
        "--only", nargs="+", metavar="PATH", help="folders or files of gem, by default nine packages"
    )
    parser.add_argument(
        "--without", nargs="+", metavar="PATH", default=[], help="beginnings of paths that are left out"
    )
    parser.add_argument("--even", action="store_true", help="of each package the same number of mutants")
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", default=[], help="only these, by default tests/"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="of the measurement (default 2)")
    parser.add_argument("--fast", action="store_true", help="leave the system tests out, as make test does")
    parser.add_argument("--report", action="store_true", help="run nothing: print the rows that are there")
    options = parser.parse_args()
    commit = run_git(ROOT, "rev-parse", "--short", "HEAD").strip()
    OUT.mkdir(parents=True, exist_ok=True)
    kept = f"rows.{commit}.{options.seed}{'.fast' * options.fast}.jsonl"
    file = OUT / kept
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    if not options.report:
        done = {(each["path"], each["start"], each["after"]) for each in rows}
        clone = Clone(OUT / "clone", "not slow and not system" if options.fast else "not slow")
        only = options.only or [f"gem/{name}" for name in PACKAGES]
        chosen = choose(  # not of what is not committed
            clone.folder, options.count, options.seed, only, options.without, options.even
        )
        tests = f"{zlib.crc32(' '.join(options.tests).encode()):x}"
        measured = OUT / ".".join(["lines", commit, *["fast"] * options.fast, *[tests] * bool(options.tests)])
        lines = Lines(clone, measured, options.workers, options.tests)
        for number, mutant in enumerate(chosen, 1):
            if (mutant.path, mutant.start, mutant.after) in done:
                continue
            rows.append(test_mutant(mutant, clone, lines))
            with file.open("a") as out:
                print(json.dumps(rows[-1]), file=out, flush=True)
            change = f"{mutant.before[:40]!r} -> {mutant.after[:40]!r}"
            state = f"{rows[-1]['state']:7}{rows[-1]['s']:7} s"
            print(f"{number}/{len(chosen)} {state}  {mutant.path}:{mutant.line}  {change}", flush=True)
    return 1 if report(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
