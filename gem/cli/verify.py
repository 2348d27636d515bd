"""The command ``gem-gym store verify``: go through stores and the files beside them; say what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import FAILED
from gem.content import printable
from gem.errors import BadArgument, check_least, reason
from gem.files import MOST, open_file
from gem.rollout.verify import StoreCheck
from gem.viewer.json_files import read_json
from gem.viewer.sources import CONFIG, EPISODES, METRICS, RESULT, WATCHED, find_stores
from gem.waiting import name_wait

COMMAND, INDEX = "command.json", ".index.sqlite"
OBJECTS = (CONFIG, COMMAND, RESULT, "machine.json", "summary.json", "phase.json")
"""Files of a run that hold one JSON value."""
LINES = (METRICS, "evaluations.jsonl", "warmup.jsonl")
"""Files of a run that hold a JSON value per line."""


def verify(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")],
    limit: int = 20,
) -> int:
    """Go through stores, and say what is damaged, cut, doubled or missing, and whether the index fits.

    Every line is read and its checksum compared. Of a folder, all stores in it are read, also those of its
    other processes and of watched seeds, and the files of the run beside them are checked. Nothing is
    changed, and no index is made. The exit code is 0 if nothing is wrong, and 1 otherwise. `gem-gym store
    merge NEW OLD` copies all episodes that can be read.

    Args:
        runs: stores (episodes.jsonl), folders of runs, or folders of such folders.
        limit: show at most this many faults of each file.
    """
    check_least("limit", limit)
    if not runs:
        raise BadArgument("no run was named; give a store, or the folder of a run.")
    for run in runs:
        if not run.exists():
            raise BadArgument(
                f"{run} is not there; accepted: a store (episodes.jsonl), or the folder of a run."
            )
    wrong = False
    for run in runs:
        stores = _stores(run) if run.is_dir() else [run]
        if not stores:
            raise BadArgument(f"{run} holds no store of episodes and no run.")
        for store in stores:
            if store.exists():
                check = StoreCheck(store)
                faults = (
                    f"{f'line {each.line}, ' if each.line else ''}{each.kind}: {each.text}"
                    for each in check.faults()
                )
                with name_wait(f"{store} to be read"):
                    count = _show(store, faults, limit)
                number = f"{count or 'no'} fault{'s' * (count != 1)}"
                print(printable(f"{store}: {_describe(check)}, {number}; {check.index}"))
            else:
                count = _show(store, ["missing: the run has no such file."], limit)
            wrong |= bool(count)
        for folder in dict.fromkeys(store.parent for store in stores if run.is_dir()):
            for file in _files(folder):
                wrong |= bool(_show(file, _check_file(file), limit))
    return FAILED if wrong else 0


def _describe(check: StoreCheck) -> str:
    parts = [f"{check.lines} lines", f"{check.episodes} episodes", f"{check.runs} runs"]
    if check.unchecked:
        parts.append(f"{check.unchecked} lines without a checksum")
    return ", ".join(parts)


def _show(file: Path, faults: Iterable[str], limit: int) -> int:
    """Print the first faults of a file, and return the number of all."""
    rest = iter(faults)
    count = 0
    for fault in islice(rest, limit):
        count += 1
        print(printable(f"{file}: {fault}"))
    more = sum(1 for _ in rest)
    if more:
        print(printable(f"{file}: and {more} more"))
    return count + more


def _stores(run: Path) -> list[Path]:
    """Return the stores of a folder, and those that it should have."""
    stores = []
    for store in find_stores(run):
        beside = store.with_name(WATCHED)
        begun = read_json(store.with_name(CONFIG)).get("store") != "none" and _has(store.with_name(METRICS))
        if store.exists() or begun:
            stores.append(store)
        if store.name == EPISODES and beside.exists():
            stores.append(beside)
    for index in (*run.glob(f"*.jsonl{INDEX}"), *run.glob(f"*/*.jsonl{INDEX}")):
        stores.append(index.with_name(index.name.removesuffix(INDEX)))
    if (run / COMMAND).exists() and not stores:
        stores.append(run / EPISODES)
    return list(dict.fromkeys(stores))


def _has(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _files(folder: Path) -> list[Path]:
    notes = sorted(folder.glob("*.notes.jsonl"))
    return [file for file in (*(folder / name for name in (*OBJECTS, *LINES)), *notes) if file.exists()]


def _check_file(file: Path) -> Iterator[str]:
    """Yield what is wrong with a file of a run: lines that are not JSON, or a file that is not."""
    if not file.is_file():
        yield "damaged: it is not a file."
        return
    lines = file.suffix == ".jsonl"
    try:
        with open_file(file) as opened:
            texts = iter(lambda: opened.readline(MOST), b"") if lines else [opened.read(MOST)]
            for number, text in enumerate(texts, 1):
                try:
                    json.loads(text)
                except (ValueError, RecursionError) as error:
                    yield f"{f'line {number}, ' if lines else ''}damaged: {reason(error)}."
    except OSError as error:
        yield f"damaged: it cannot be read: {reason(error)}."
