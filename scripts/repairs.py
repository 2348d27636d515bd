"""Choose the defects of ``repo:`` tasks, and verify them: write gem/envs/terminal/repairs.json.

    .venv/bin/python scripts/repairs.py                      40 tasks of each package, at most
    .venv/bin/python scripts/repairs.py --count 3 --only toolz
    .venv/bin/python scripts/repairs.py --report             what the outcomes that are there make

A mutant counts if at least one test of its package fails with it, and at most half of them do. So it is not
equivalent. No two tasks share their function and operator. The tests of a mutant are run in the sandbox, one
mutant at a time; an outcome is kept in out/repairs by the digest of the package, so a run that was stopped
goes on. A few seconds a mutant.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

from gem.envs.kit.mutants import Mutant, find_mutants
from gem.envs.terminal.repair import PACKAGES, Repair, list_passed, read_package, run_tests
from gem.envs.terminal.repair_check import is_test, read_passed

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "gem" / "envs" / "terminal" / "repairs.json"
OUT = ROOT / "out" / "repairs"
NAMED = 3  # tests that a recipe names
TRIES = 2  # mutants of one function and operator


def list_mutants(name: str, seed: int) -> dict[tuple[str, str, str], list[Mutant]]:
    """Return the mutants of a package in random order, by file, function and operator."""
    groups: dict[tuple[str, str, str], list[Mutant]] = {}
    for path, data in read_package(name).items():
        if path.endswith(".py") and not is_test(path):
            for mutant in find_mutants(path, data):
                if mutant.function:
                    groups.setdefault((path, mutant.function, mutant.operator), []).append(mutant)
    rng = random.Random(seed)
    keys = sorted(groups)
    rng.shuffle(keys)
    return {key: rng.sample(groups[key], min(TRIES, len(groups[key]))) for key in keys}


class Outcomes:
    """Which tests fail with which mutant, kept in a file."""

    def __init__(self, name: str) -> None:
        """Read those of a package."""
        self.package, self.files = name, read_package(name)
        digest = hashlib.sha256(b"\0".join(self.files.values())).hexdigest()[:12]
        self._file = OUT / f"{name}.{digest}.jsonl"
        rows = map(json.loads, self._file.open()) if self._file.exists() else ()
        self._rows = {row["mutant"]: row["failed"] for row in rows}

    def find(self, mutant: Mutant, verify: bool) -> list[str] | None:
        """Return the tests that fail; None where they do not end, or were not run and are not to be."""
        key = f"{mutant.path}:{mutant.start}:{mutant.end}:{mutant.after}"
        if key not in self._rows and verify:
            done = run_tests({**self.files, mutant.path: mutant.apply(self.files[mutant.path])})
            failed = (
                sorted(list_passed(self.package) - read_passed(done)) if done.exit_code in (0, 1) else None
            )
            self._rows[key] = failed
            OUT.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as out:
                print(json.dumps({"mutant": key, "failed": failed}), file=out, flush=True)
        return self._rows.get(key)


def choose_repairs(name: str, count: int, seed: int, verify: bool) -> list[Repair]:
    """Return the recipes of a package, at most `count`."""
    outcomes, chosen = Outcomes(name), list[Repair]()
    most = len(list_passed(name)) // 2
    for group in list_mutants(name, seed).values():
        for mutant in group:
            failed = outcomes.find(mutant, verify)
            if failed and len(failed) <= most:
                hidden = sorted({test.partition("::")[0] for test in failed})
                where = (mutant.path, mutant.start, mutant.operator, mutant.function)
                chosen.append(Repair(*where, len(failed), (*failed[:NAMED],), (*hidden,)))
                print(f"{name} {len(chosen)}: {chosen[-1].task} fails {len(failed)}", flush=True)
                break
        if len(chosen) == count:
            break
    return sorted(chosen, key=lambda each: each.task)


def main() -> int:
    """Choose and verify the recipes of packages, and write them."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--count", type=int, default=40, metavar="N", help="tasks of a package (default 40)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the choice (default 0)")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[*PACKAGES], choices=[*PACKAGES])
    parser.add_argument(
        "--report", action="store_true", help="run no tests: take the outcomes that are there"
    )
    options = parser.parse_args()
    recipes = json.loads(RECIPES.read_text()) if RECIPES.exists() else {}
    for name in options.only:
        repairs = choose_repairs(name, options.count, options.seed, not options.report)
        recipes[name] = [asdict(each) for each in repairs]
        lines = (json.dumps(key) + ": " + write_rows(rows) for key, rows in sorted(recipes.items()))
        RECIPES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


def write_rows(rows: list[dict[str, object]]) -> str:
    """Return recipes as JSON, one a line."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]"


if __name__ == "__main__":
    sys.exit(main())
