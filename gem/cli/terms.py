"""Shared by all commands: exit codes, types of optional flags, and tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gem.content import printable
from gem.errors import StoreError, reason

if TYPE_CHECKING:
    from gem.rollout.store import EpisodeStore

FAILED, MISUSED, INTERRUPTED, CLOSED = 1, 2, 130, 141
"""Exit codes: the command ran and the answer is no; it could not run; Ctrl-C; its reader closed the pipe."""


def _read_path(word: str) -> Path:
    """Return a path; a blank one, as of a variable that is not set, would be the current folder.

    Raises:
        ValueError: for a blank word.
    """
    if not word.strip():
        raise ValueError(f"blank path: {word!r}")
    return Path(word)


PATHS = ConstructorRegistry()
"""The rule by which tyro reads paths."""


@PATHS.primitive_rule
def _find_path_spec(about: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    return _maybe(Path, "PATH") if about.type is Path else None


def _maybe(kind: type, metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Return the tyro spec of an optional flag; tyro's own would show {None}|INT as its value."""
    read = _read_path if kind is Path else kind
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


UNTOLD = arg(help_behavior_hint="")
"""For an optional flag: hides the useless text "(default: None)"."""

MaybeInt: TypeAlias = Annotated[int | None, _maybe(int, "INT"), UNTOLD]
MaybeFloat: TypeAlias = Annotated[float | None, _maybe(float, "FLOAT"), UNTOLD]
MaybeText: TypeAlias = Annotated[str | None, _maybe(str, "NAME"), UNTOLD]
MaybePath: TypeAlias = Annotated[Path | None, _maybe(Path, "FILE"), UNTOLD]
MaybeFolder: TypeAlias = Annotated[Path | None, _maybe(Path, "FOLDER"), UNTOLD]


def open_store(folder: Path) -> EpisodeStore:
    """Return the store episodes.jsonl in a folder; both are made where they are missing.

    Raises:
        StoreError: when they cannot be made.
    """
    from gem.rollout.store import EpisodeStore

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {reason(error)}.") from error
    return EpisodeStore(folder / "episodes.jsonl")


@contextmanager
def divert_stdout() -> Iterator[None]:
    """Send to stderr what the block prints, also what environments and programs print in it."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stderr.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def table(*columns: str, rows: Sequence[Sequence[Any]], cropped: Collection[str] = (), keys: int = 0) -> None:
    """Print a table; into a pipe as aligned plain text, one row per line, never wrapped.

    If the terminal is too narrow, the `cropped` columns are cut off instead of wrapped. With `keys`, so many
    columns then stand on a line above the others of a row, and these in as many tables as they need.
    """
    rows = [[printable(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if keys and sys.stdout.isatty() and sum(widths) + 2 * len(widths) > (width := _terminal_width()):
        _print_stacked(lines, widths, keys, width)
        return
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Column, Table
        from rich.text import Text

        heads = [  # ids differ at their ends; rich narrows the columns that may wrap
            Column(name, no_wrap=name not in cropped if cropped else place == 0)
            for place, name in enumerate(columns)
        ]
        grid = Table(*heads, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for row in rows:
            cells = [
                Text(cell, no_wrap=True, overflow="ellipsis") if name in cropped else Text(cell)
                for name, cell in zip(columns, row, strict=True)
            ]
            grid.add_row(*cells)
        Console().print(grid)
        return
    for line in lines:
        print(_align(line, widths))


def _print_stacked(lines: Sequence[Sequence[str]], widths: Sequence[int], keys: int, width: int) -> None:
    """Print rows below their keys; columns that do not fit beside the others follow in a further table."""
    first = keys
    while first < len(widths):
        end = first + 1
        while end < len(widths) and sum(widths[first : end + 1]) + 2 * (end + 1 - first) <= width:
            end += 1
        for number, line in enumerate(lines):
            if number:
                print(", ".join(filter(None, line[:keys])))
            print(f"  {_align(line[first:end], widths[first:end])}")
        first = end


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _terminal_width() -> int:
    from rich.console import Console

    return Console().width
