"""Verify a store: read all its lines, and say which are damaged, doubled or missing, and if its index fits.

Nothing is written. One line is in memory at a time; what must be known of the others is in a temporary SQLite
file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gem import codec
from gem.errors import SchemaMismatch, StoreError, reason
from gem.rollout.index import Entry, Index, Mark, OtherForm, Span, is_damaged
from gem.rollout.indexed_file import CHUNK, CLOSE_OFF, IndexedFile
from gem.rollout.store import damaged_entry, summarize
from gem.schema_1 import SCHEMA_1_RUN

HEAD = 64  # bytes at an end of a line; at the beginning they tell whether it is of a store
AT_ONCE = 1000  # entries in memory


class Fault(NamedTuple):
    """A fault of a store: its kind, the line that it is in (from 1; 0: in none), and what is wrong.

    Kinds: ``damaged``, ``cut``, ``schema``, ``doubled``, ``missing``, ``order``, ``index``.
    """

    kind: str
    line: int
    text: str


@dataclass
class StoreCheck:
    """The check of the store at `path`; the numbers are complete when all of `faults` have been taken.

    `episodes` and `runs` that can be read are counted once. `unchecked` lines have no checksum: an earlier
    version wrote them, or somebody changed them on purpose.
    """

    path: Path
    lines: int = 0
    episodes: int = 0
    runs: int = 0
    unchecked: int = 0
    index: str = "there is no index"

    def faults(self) -> Iterator[Fault]:
        """Read the store, and yield its faults.

        Raises:
            StoreError: when it cannot be opened or read.
        """
        file = IndexedFile(self.path, lambda *_: None, read_only=True)
        with closing(file), closing(_Lines()) as known:
            try:
                with self.path.open("rb") as opened:
                    yield from self._check_lines(opened, known)
            except OSError as error:
                raise StoreError(f"{self.path} cannot be read: {reason(error)}.") from error
            known.save()
            yield from self._check_index(file, known.index)

    def _check_lines(self, opened: BinaryIO, known: _Lines) -> Iterator[Fault]:
        for start, end, line in _read_lines(opened):
            self.lines += 1
            try:
                yield from self._check_line(line, start, end, known)
            except _Refused as refused:
                yield Fault(refused.kind, self.lines, refused.text)
                if line.rstrip().endswith(b"}") and not line.startswith(codec.RUN_LINE):
                    known.add(damaged_entry(known.count, start, end))
        for run, number in known.without_run.items():
            yield Fault("missing", number, f"no line has its run, {run!r}: its agent and settings are lost.")

    def _check_line(self, line: bytes, start: int, end: int, known: _Lines) -> Iterator[Fault]:
        meaning = _parse(line, known.count, start, end)
        self.unchecked += codec.CHECKSUM.search(line, max(0, len(line) - HEAD)) is None
        if isinstance(meaning, str):
            first = known.run(meaning)
            if first is None:
                self.runs += 1
                known.add_run(meaning, (start, end))
            else:
                yield Fault("doubled", self.lines, f"run {meaning!r} has a line already, at byte {first[0]}.")
            if meaning in known.without_run:
                number = known.without_run.pop(meaning)
                yield Fault("order", self.lines, f"it has the run of an earlier line, {number}.")
            return
        before = known.number(meaning.id)
        if before is None:
            self.episodes += 1
        else:
            yield Fault("doubled", self.lines, f"episode {meaning.id!r} is in the store as number {before}.")
        if meaning.run != SCHEMA_1_RUN.id and known.run(meaning.run) is None:
            known.without_run.setdefault(meaning.run, self.lines)
        known.add(meaning)

    def _check_index(self, file: IndexedFile, lines: Index) -> Iterator[Fault]:
        if not file.index_path.exists():
            return
        try:
            with closing(Index(file.index_path, read_only=True)) as index:
                fits = file.fits(index.mark)
                covered = f"covers {index.mark.episodes} of {lines.mark.episodes} episodes"
                self.index = f"the index fits; it {covered}" if fits else "the index is of an earlier state"
                for start in range(0, index.mark.episodes, AT_ONCE):
                    entries, _ = index.page({}, index.mark.episodes, "number", False, start, AT_ONCE)
                    stored, _ = lines.page({}, lines.mark.episodes, "number", False, start, AT_ONCE)
                    stored += [damaged_entry(0, 0, 0)] * (len(entries) - len(stored))
                    for entry, line in zip(entries, stored, strict=False):
                        yield from _compare(entry, line, lines, fits)
                for run in index.runs() if fits else ():
                    if index.run(run, lines.mark.scanned) != lines.run(run, lines.mark.scanned):
                        yield Fault("index", 0, f"run {run!r} is not where the index has it.")
        except OtherForm:
            self.index = "the index is not of this version of gem; the next reader makes it again"
        except sqlite3.Error as error:
            self.index = f"the index cannot be read: {error}"
            if is_damaged(error):
                yield Fault("index", 0, f"it is damaged ({error}); the next reader makes it again.")


class _Refused(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


class _Lines:
    """What is known of the lines read so far: entries, the positions of runs, and who lacks its run."""

    def __init__(self) -> None:
        self.index, self.count = Index(None), 0
        self.without_run: dict[str, int] = {}
        self._end = 0
        self._clear()

    def _clear(self) -> None:
        self._new: list[Entry] = []
        self._numbers: dict[str, int] = {}
        self._runs: dict[str, Span] = {}

    def add(self, entry: Entry) -> None:
        self.count += 1
        self._end = entry.end
        self._new.append(entry)
        if entry.id:
            self._numbers.setdefault(entry.id, entry.number)
        if len(self._new) >= AT_ONCE:
            self.save()

    def add_run(self, run: str, span: Span) -> None:
        self._end = span[1]
        self._runs[run] = span
        if len(self._runs) >= AT_ONCE:
            self.save()

    def number(self, episode: str) -> int | None:
        number = self.index.number(episode)
        return self._numbers.get(episode) if number is None else number

    def run(self, run: str) -> Span | None:
        return self._runs.get(run) or self.index.run(run, self._end)

    def save(self) -> None:
        self.index.add(self._new, self._runs, Mark(self.count, self._end, 0, b"", 0, 0))
        self._clear()

    def close(self) -> None:
        self.index.close()


def _read_lines(opened: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield each line with its start and end; only the two ends of one that is not of a store."""
    start = 0
    while line := opened.readline(HEAD):
        end = start + len(line)
        if not line.endswith(b"\n"):
            if codec.BEGINNING.match(line):
                rest = opened.readline()
                end += len(rest)
            else:
                rest = b""
                while not rest.endswith(b"\n") and (piece := opened.readline(CHUNK)):
                    rest = rest[-HEAD:] + piece
                    end += len(piece)
            line += rest
        yield start, end, line
        start = end


def _parse(line: bytes, number: int, start: int, end: int) -> Entry | str:
    """Return the entry of an episode's line, or the id of a run.

    Raises:
        _Refused: for another line, with its kind and the reason.
    """
    at = f"It begins at byte {start}."
    if line.endswith(CLOSE_OFF):
        raise _Refused("cut", f"its writer was stopped in the middle of it. {at}")
    text = line.removesuffix(b"\n")
    try:
        if text.startswith(codec.RUN_LINE):
            return codec.decode_run(text).id
        return summarize(codec.decode(text), True, number, start, end)
    except SchemaMismatch as error:
        raise _Refused("schema", f"{error} {at}") from error
    except ValueError as error:
        if line.endswith(b"\n"):
            raise _Refused("damaged", f"{str(error).rstrip('.')}. {at}") from error
        why = "the file was cut, or its writer was stopped or is writing it now"
        raise _Refused("cut", f"it has no end: {why}. {at}") from error


def _compare(entry: Entry, line: Entry, lines: Index, fits: bool) -> Iterator[Fault]:
    """Yield what is wrong with an entry of the index, where the file has the entry `line` by its number."""
    if entry == line:
        return
    if entry.id and lines.number(entry.id) is None:
        text = f"episode {entry.id!r}, at byte {entry.start} by the index, is not in the file."
        yield Fault("missing", 0, text)
    elif fits:
        yield Fault("index", 0, f"episode {entry.number} is not as the index has it.")
