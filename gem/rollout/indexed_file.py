"""A file of lines that only grows, with an index of them: append lines, find them, read them.

The file alone counts. The index beside it is a cache: it is extended as the file grows, and made again from
the lines when it is missing, damaged, deleted, unwritable, or of another file or another state of it. While
it cannot be written, a temporary one takes its place. `EpisodeStore` says what the lines mean.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from random import SystemRandom
from threading import RLock
from typing import NamedTuple, TypeAlias, TypeVar

from gem.errors import StoreError, reason
from gem.rollout.index import Entry, Index, Mark, Place, Span, is_damaged, is_same

CHUNK = 1 << 20
LAST = 64  # bytes before the end of the scanned part that tell whether another process cut it
ENDS = 4096  # bytes at the file's start, and before the end of the scanned part, in the hash of the index
SAVE_EVERY = 256  # lines that a writer appends before it writes them into the index
SCAN_AT_ONCE = 4096  # lines that are scanned before they are written into the index
COMPARED, COMPARED_BYTES = 32, 1 << 20  # entries that are compared with lines when an index is opened
LOSE_AT_MOST = 3  # times that the index is made again beside an open file; then a temporary one is used
CLOSE_OFF = b"!\n"  # terminates a torn line; a whole one ends with a brace

Answer = TypeVar("Answer")
Line: TypeAlias = Entry | str | None
"""The meaning of a line: an entry, the id of a run, or None: it is skipped and counted."""


class Addition(NamedTuple):
    """A line to append, with its line break.

    `entry` returns its entry, given the number, the start and the end of the line. `run_line` is the line of
    the run with id `run`, to be written before it; empty where the file has it.
    """

    line: bytes
    entry: Callable[[int, int, int], Entry]
    run: str
    run_line: bytes


class IndexedFile:
    """An open file of lines and its index.

    `lock` is held by threads while they use it. The entries up to `_base` are in the index; those that were
    found after that are in memory.
    """

    def __init__(
        self, path: Path, read_line: Callable[[int, bytes, int, int], Line], read_only: bool
    ) -> None:
        """Open the file at `path`; unless `read_only`, a missing one is created. `load` comes next.

        Args:
            path: the file; its folder must exist.
            read_line: returns the meaning of a line, given the number of entries before it, its bytes without
                the line break, its start, and its end.
            read_only: open it for reading only.

        Raises:
            StoreError: when it cannot be opened, or is not a regular file.
        """
        self.path, self.read_only = path, read_only
        self._read_line = read_line
        self._index: Index | None = None
        self._open()

    def _open(self) -> None:
        flags = os.O_RDONLY if self.read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:  # without waiting for a writer of a named pipe
            self._fd = os.open(self.path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            hint = "" if self.read_only or self.path.parent.is_dir() else " Make its folder first."
            raise StoreError(f"{self.path}: cannot open the episode store: {reason(error)}.{hint}") from error
        self.lock = RLock()
        self._locked, self._lost, self._pid = False, 0, os.getpid()
        self._place = self.path.absolute()  # the program may change its working directory
        self.index_path = self._place.with_name(self.path.name + ".index.sqlite")
        self._known: set[str] = set()  # runs whose line is known to be there
        self._begin(Mark())
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            what = "a folder" if self.path.is_dir() else "a pipe or a device"
            raise StoreError(f"{self.path} is {what}, not a file of episodes (episodes.jsonl).")

    def load(self) -> None:
        """Load the index if it fits the file, and scan the rest of the file."""
        with suppress(sqlite3.Error):
            if self.index_path.exists() and (index := self._fitting_index()) is not None:
                self._index = index
                self._begin(index.mark)
        self._refresh()

    def check_open(self) -> None:
        """Open the file again in a forked process.

        Raises:
            StoreError: when it is closed.
        """
        if self._fd < 0:
            raise StoreError(f"{self.path}: the episode store is closed; open it again.")
        if self._pid != os.getpid():
            os.close(self._fd)  # the file's lock and the index are the parent's
            self._index = None
            self._open()
            self.load()

    def close(self) -> None:
        """Write the index and close the file. Calling it twice is harmless."""
        with self.lock:
            if self._fd >= 0:
                if self._new and self._pid == os.getpid():
                    with suppress(sqlite3.Error, OSError), self._exclusive(wait=False):
                        self._write_index()
                os.close(self._fd)
                self._fd = -1
            if self._index is not None:
                self._index.close()
                self._index = None

    # -- reading

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, as far as the file has them: an index may say anything."""
        return os.pread(self._fd, max(0, min(end, os.fstat(self._fd).st_size) - start), start)

    def read_line(self, start: int, end: int) -> bytes:
        """Return the line from `start` to `end` without its line break, which a last one may lack."""
        return self.read(start, end).removesuffix(b"\n")

    def line_number(self, start: int) -> int:
        """Return the number, from 1, of the line that begins at byte `start`."""
        return 1 + sum(1 for _ in _lines(self._fd, 0, start))

    def refresh(self) -> int:
        """Scan the lines that were added since the last scan, and return the number of new entries."""
        with self.lock:
            before = self.count
            self._refresh()
            return self.count - before

    def ask(self, question: Callable[[Index, int], Answer], nothing: Answer) -> tuple[Answer, list[Entry]]:
        """Return the answer of the index, and the entries that it does not have yet.

        `question` gets the index and the number of entries to look at. Without an index, `nothing` is the
        answer.
        """
        with self.lock:
            self._refresh()
            answer = self._ask_index(lambda index: question(index, self._base.episodes), nothing)
            return answer, list(self._new)

    @property
    def count(self) -> int:
        """The number of entries so far."""
        return self._base.episodes + len(self._new)

    @property
    def torn(self) -> int:
        """The number of lines that are skipped; an unfinished last line counts too."""
        return self._torn + (os.fstat(self._fd).st_size > self._scan_end)

    def place(self, number: int) -> Place:
        """Return the position of an entry's line, and the entry's id.

        Raises:
            StoreError: when there is no such entry any more.
        """
        with self.lock:
            size = os.fstat(self._fd).st_size
            place: Place | None = self._ask_index(
                lambda index: index.place(number, size) if number < self._base.episodes else None, None
            )
            if place is not None:  # else it is new, or the entries of a lost index are now among the new ones
                return place
            if number >= self.count:
                raise StoreError(f"{self.path}: episode {number} was changed while the store is open.")
            entry = self._new[number - self._base.episodes]
            return entry.start, entry.end, entry.id

    def number(self, episode: str) -> int | None:
        """Return the number of the first entry with this id, or None."""
        with self.lock:
            number = self._ask_index(lambda index: index.number(episode), None)
            return self._new_numbers.get(episode) if number is None else number

    def run(self, run: str) -> Span | None:
        """Return the position of a run's line, or None."""
        with self.lock:
            size = os.fstat(self._fd).st_size
            span = self._ask_index(lambda index: index.run(run, size), None)
            return self._new_runs.get(run) if span is None else span

    def runs(self) -> list[str]:
        """Return the ids of the runs, in the order of their lines."""
        with self.lock:
            ids, _ = self.ask(lambda index, _: index.runs(), list[str]())
            return list(dict.fromkeys([*ids, *self._new_runs]))

    def distrust(self) -> None:
        """Give up the index, because a line is not where the index has it."""
        with self.lock:
            if self._index is not None:
                self._replace_index(sqlite3.DatabaseError("the index has wrong positions of lines"))

    # -- writing

    def append(self, compose: Callable[[], Addition], fsync: bool = False) -> None:
        """Write a line at the end, under the file's lock, after a scan of what others appended.

        A file that was moved is written where it is now.

        Args:
            compose: returns what to write; called under the lock, after the scan.
            fsync: wait until it is on the disk.

        Raises:
            StoreError: when the file was deleted or replaced since it was opened, or cannot be written; it
                then has no part of the line.
        """
        with self.lock, self._exclusive():
            size = self._size_to_write()
            self._refresh(size)
            line, entry, run, run_line = compose()
            torn = size > self._scan_end
            closing = CLOSE_OFF if torn else self._missing_break
            at = size + len(closing)
            start = at + len(run_line)
            made = entry(self.count, start, start + len(line))
            self._write(closing + run_line + line, size, fsync)
            self._torn += torn
            if run_line:
                self._new_runs[run] = at, start
            self._known.add(run)
            self._note(made)
            self._last = line[-LAST:]
            if len(self._new) >= SAVE_EVERY:
                self._save()

    def truncate(self, size: int) -> None:
        """Drop what stands after the first `size` bytes, and the index with it.

        Raises:
            StoreError: when the file was deleted or replaced since it was opened, or cannot be written.
        """
        with self.lock, self._exclusive():
            self._size_to_write()
            try:
                os.ftruncate(self._fd, size)
            except OSError as error:
                raise StoreError(f"{self.path}: cannot be truncated: {reason(error)}.") from error
            self._refresh(size)

    def has_run(self, run: str) -> bool:
        """Return whether the file has the line of a run."""
        return run in self._known or self.run(run) is not None

    def _size_to_write(self) -> int:
        """Return the file's size.

        Raises:
            StoreError: when what is written would be lost.
        """
        state = os.fstat(self._fd)
        if not state.st_nlink:
            raise StoreError(
                f"{self.path} was deleted, or replaced by another file, while it was open: what is "
                "appended would be lost. Put the file back, or start again with a store of another name."
            )
        return state.st_size

    def _write(self, data: bytes, size: int, fsync: bool) -> None:
        written = 0
        try:
            while written < len(data):  # one call, unless the disk takes only a part; the next raises why
                written += os.write(self._fd, data[written:])
            if fsync:
                os.fsync(self._fd)
        except BaseException as error:
            # A whole line before the last one stays: a reader may have seen it.
            with suppress(OSError):
                os.ftruncate(self._fd, size + data.rfind(b"\n", 0, min(written, len(data) - 1)) + 1)
            if isinstance(error, OSError):
                raise StoreError(f"{self.path}: cannot append an episode: {reason(error)}.") from error
            raise

    def _is_there(self) -> bool:
        """Return whether the open file is still the one at its path."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._place))
        except OSError:
            return False

    @contextmanager
    def _exclusive(self, wait: bool = True) -> Iterator[None]:
        """Hold the file's lock, unless it is already held; writers of one file wait for each other."""
        if self._locked:
            yield
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not wait:
                raise
            raise StoreError(
                f"{self.path}: cannot be locked: {reason(error)}. Its file system keeps no locks, as "
                "some network file systems; put the store on a disk of this machine."
            ) from error
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    # -- the scan

    def _begin(self, mark: Mark) -> None:
        """Reset the scan to the part that an index covers, up to `mark`."""
        self._base, self._scan_end, self._torn = mark, mark.scanned, mark.torn
        self._last = self.read(max(0, mark.scanned - LAST), mark.scanned) if mark.scanned else b""
        self._new: list[Entry] = []
        self._new_numbers: dict[str, int] = {}
        self._new_runs: dict[str, Span] = {}

    def _note(self, entry: Entry) -> None:
        self._new.append(entry)
        self._new_numbers.setdefault(entry.id, entry.number)
        self._scan_end = entry.end

    @property
    def _missing_break(self) -> bytes:
        """The line break that a whole last line lacks."""
        return b"\n" if self._last and not self._last.endswith(b"\n") else b""

    def _refresh(self, size: int | None = None) -> None:
        """Scan what was added to the file, which has `size` bytes."""
        size = os.fstat(self._fd).st_size if size is None else size
        cut = size < self._scan_end
        if size > self._scan_end:  # it may have been cut, and have grown again since
            cut = self.read(self._scan_end - len(self._last), self._scan_end) != self._last
        if cut:
            self._forget_index()
            self._known.clear()
        before = -1
        while before != self._scan_end < size:
            before = self._scan_end
            self._scan(size)
            if len(self._new) >= SAVE_EVERY:
                self._save()
        if self._scan_end < size and self.read(max(0, size - LAST), size).rstrip().endswith(b"}"):
            self._scan_unfinished(self.read(self._scan_end, size), size)

    def _scan_unfinished(self, line: bytes, size: int) -> None:
        """Take a last line that lacks only its line break; one that is cut stays unread, as more may come."""
        meaning = self._read_line(self.count, line, self._scan_end, size)
        if isinstance(meaning, str):
            self._new_runs.setdefault(meaning, (self._scan_end, size))
        elif meaning is not None and meaning.id:
            self._note(meaning)
        else:
            return
        self._scan_end, self._last = size, line[-LAST:]

    def _scan(self, size: int) -> None:
        """Scan the complete lines up to `size`, at most SCAN_AT_ONCE entries."""
        for start, line in _lines(self._fd, self._scan_end, size):
            end = start + len(line) + 1
            if not line and self._missing_break:  # that of a line which was read without it
                self._scan_end, self._last = end, b"\n"
                continue
            # A torn line was terminated by an append; some tools end lines with a carriage return.
            meaning = self._read_line(self.count, line, start, end) if line.rstrip().endswith(b"}") else None
            if meaning is None:
                self._torn += 1
            elif isinstance(meaning, str):
                self._new_runs.setdefault(meaning, (start, end))
            else:
                self._note(meaning)
            self._scan_end, self._last = end, (line + b"\n")[-LAST:]
            if len(self._new) >= SCAN_AT_ONCE:
                break

    # -- the index

    def _ask_index(self, question: Callable[[Index], Answer], nothing: Answer) -> Answer:
        """Return the answer of the index, or `nothing` where there is no index; give up a broken index."""
        while (index := self._index) is not None:
            try:
                answer = question(index)
                if index.current:
                    return answer
                self._forget_index()
                self._refresh()
            except sqlite3.Error as error:
                self._replace_index(error)
        return nothing

    def _mark(self) -> Mark:
        """Return the mark of what was scanned: hashes of both ends, and the state of the file."""
        state = os.fstat(self._fd)
        return Mark(
            self.count,
            self._scan_end,
            self._torn,
            self._seal(self._scan_end),
            _inode(state),
            state.st_mtime_ns,
        )

    def _seal(self, scanned: int) -> bytes:
        tail = max(0, scanned - ENDS)
        ends = self.read(0, min(ENDS, scanned)) + self.read(tail, scanned)
        return blake2b(ends, digest_size=16).digest()

    def fits(self, mark: Mark) -> bool:
        """Return whether an index with this mark is of this file, and the file was only appended to."""
        state = os.fstat(self._fd)
        if not mark.scanned:
            return True
        if mark.scanned == state.st_size:
            same = mark.changed_ns == state.st_mtime_ns
        else:  # it grew, which changes its time
            same = mark.scanned < state.st_size and mark.inode == _inode(state)
        return same and mark.seal == self._seal(mark.scanned)

    def _save(self) -> None:
        """Write new entries into the index; do it later if another process holds the file's lock."""
        own = self._index is not None and self._index.path is None
        try:
            with nullcontext() if own else self._exclusive(wait=False):
                self._write_index()
        except BlockingIOError:
            pass
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_OK
            if code & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._replace_index(error)

    def _write_index(self) -> None:
        if self._index is not None and not self._index.current:
            self._forget_index()
            return  # its entries are scanned again first
        if self._index is None:
            self._index = self._make_index()
        self._index.add(self._new, self._new_runs, self._mark())
        self._begin(self._index.mark)

    def _make_index(self) -> Index:
        """Return the index beside the file; make it again if it does not match."""
        if not self._is_there():
            raise FileNotFoundError(f"{self.path} was replaced; the index beside it belongs to another file.")
        try:
            if (index := self._fitting_index()) is not None:
                return index
        except sqlite3.Error as error:
            if not is_damaged(error):
                raise
        self._unlink_index()
        return Index(self.index_path)

    def _fitting_index(self) -> Index | None:
        """Return the index beside the file, or a new one if there is none; None if it does not fit."""
        index = Index(self.index_path)
        try:
            if self.fits(index.mark) and self._describes_lines(index):
                return index
        except sqlite3.Error:
            index.close()
            raise
        index.close()
        return None

    def _describes_lines(self, index: Index) -> bool:
        """Return whether entries of an index, others at each opening, are their lines', and none is left out.

        An index can come from elsewhere with its store, and be wrong on purpose.
        """
        mark, read = index.mark, 0
        for number in SystemRandom().sample(range(mark.episodes), min(COMPARED, mark.episodes)):
            entries, _ = index.page(
                {}, mark.episodes, "number", False, max(0, number - 1), 3 if number else 2
            )
            *before, entry = entries[: 1 + bool(number)]
            start = before[0].end if before else 0
            end = entries[-1].start if number + 1 < mark.episodes else mark.scanned
            try:
                made = self._entries_between(start, end)
                same = len(made) == 1 and is_same(entry, made[0])
            except (TypeError, OverflowError, OSError):  # they are no positions
                same = False
            if not same:
                return False
            if (read := read + end - start) > COMPARED_BYTES:
                break
        return True

    def _entries_between(self, at: int, end: int) -> list[Entry]:
        """Return the entries of the lines between two positions, each with number 0."""
        entries = []
        for line in self.read(at, end).splitlines(keepends=True):
            text, at = line.removesuffix(b"\n"), at + len(line)
            meaning = self._read_line(0, text, at - len(line), at) if text.rstrip().endswith(b"}") else None
            if isinstance(meaning, Entry):
                entries.append(meaning)
        return entries

    def _unlink_index(self) -> None:
        for end in ("", "-journal"):  # SQLite would apply the journal of a deleted index to the next one
            self.index_path.with_name(self.index_path.name + end).unlink(missing_ok=True)

    def _replace_index(self, error: Exception) -> None:
        """Continue with a temporary index, because the one beside the file cannot be used.

        An index that cannot be written is copied; a damaged one is removed, and the next process makes it
        again.
        """
        old, index = self._index, Index(None)
        if old is not None and old.path is None:
            raise StoreError(f"{self.path}: cannot keep a temporary index: {error}") from error
        with suppress(sqlite3.Error, OSError):
            if isinstance(error, sqlite3.Error) and is_damaged(error):
                if old is None or old.current:
                    self._unlink_index()
            elif old is not None and old.current:
                index = old.copy()
        if old is not None:
            old.close()
        self._index = index
        if index.mark.scanned < self._base.scanned:
            self._begin(index.mark)
        self._refresh()
        self._save()

    def _forget_index(self) -> None:
        """Start over after the open index was deleted, or the file was truncated.

        SQLite's answers are invalid once an index is deleted: a new file with its name has a journal with the
        same name, which SQLite applies to the old one too.
        """
        if self._index is not None:
            self._index.close()
        self._lost += 1
        self._index = Index(None) if self._lost > LOSE_AT_MOST else None
        self._begin(Mark())


def _inode(state: os.stat_result) -> int:
    return state.st_ino & (1 << 63) - 1  # SQLite's integers have a sign


def _lines(fd: int, at: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the position of each complete line from byte `at` to `size`, and the line without its break."""
    start, pieces = at, list[bytes]()
    while at < size and (data := os.pread(fd, min(CHUNK, size - at), at)):
        at += len(data)
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join((*pieces, end))
            pieces.clear()
            yield start, line
            start += len(line) + 1
        pieces.append(rest)
