"""The episode store: an append-only file, one episode per line.

A line is a JSON object that begins with its schema number and ends with a checksum of the rest; `gem.codec`
defines its form. The settings of a run are in a separate line, before the run's first episode. An append is
one write of whole lines at the end of the file, under a file lock. So several writers do not mix their lines,
and no id is written twice. A torn line of a killed writer is skipped and counted, and the next append
terminates it. Reading takes no lock and sees each line when it is complete.

The file ``<name>.index.sqlite`` beside it has a summary of each episode and the position of its line, so that
a store of 100,000 episodes can be opened and filtered without reading them. It is a cache and may be deleted.
Any process with write access creates it, extends it as the store grows, and makes it again when it does not
match the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar, overload

from gem import codec
from gem.errors import (
    BadArgument,
    DuplicateEpisode,
    GemError,
    SchemaMismatch,
    StoreError,
    did_you_mean,
    reason,
)
from gem.models import name_models
from gem.record import Episode, RunInfo, Turn, Verdict
from gem.rollout.index import Entry, Index, Mark, Place, Span, Tally, TaskTally, damaged, matches
from gem.schema_1 import SCHEMA_1_RUN
from gem.specs import TaskRef

CHUNK = 1 << 20
ENDS = 4096  # bytes at the file's start, and before the end of the scanned part, in the hash of the index
SAVE_EVERY = 256  # episodes that a writer appends before it writes them into the index
SCAN_AT_ONCE = 4096  # episodes that are scanned before they are written into the index
FORGET_AT_MOST = 3  # deletions of the index while a store is open; after that it is not created again
OPENING = b'{"schema":'
CLOSE_OFF = b"!\n"  # terminates a torn line; a whole one ends with a brace

Found = TypeVar("Found")


class EpisodeStore(Sequence[Episode]):
    """A sequence of episodes in a file; a reader sees episodes that other processes append.

    Integers of numpy and similar types are read back as plain numbers, tuples in `info` as lists, and objects
    without a JSON form as their repr. NaN, infinities, images and lone surrogates are read back unchanged.
    Episodes of schema 1 can be read too.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        read_only: bool = False,
        tokens: bool = True,
        fsync: bool = False,
        trust: bool = False,
    ) -> None:
        """Open the store at `path`; a missing file is created.

        Args:
            path: the file; its folder must exist.
            read_only: refuse to append, and refuse a missing file.
            tokens: False: append episodes without token ids and log probabilities.
            fsync: wait at every append until the line is on the disk.
            trust: let the stored tasks name more than `gem.trust` lists; then making one runs that code.

        Raises:
            StoreError: when the file cannot be opened, or is not a store.
            SchemaMismatch: when it has a schema that this version cannot read.
        """
        self.path = Path(path)
        self.tokens, self.fsync, self.trust = tokens, fsync, trust
        self._read_only = read_only
        self._lock = Lock()
        self._fd = -1
        self._claim = -1
        self._locked = False
        self._index: Index | None = None
        self._forgotten = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_RDONLY if self._read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:  # without waiting for a writer of a named pipe
            self._fd = os.open(self.path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            hint = "" if self.path.parent.is_dir() else " Make its folder first."
            raise StoreError(f"{self.path}: cannot open the episode store: {reason(error)}.{hint}") from error
        self._pid = os.getpid()
        self._runs: dict[str, RunInfo] = {}  # those that were read
        self._known: set[str] = set()  # those whose line is known to be there
        self._begin(Mark())
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                what = "a folder" if self.path.is_dir() else "a pipe or a device"
                raise StoreError(f"{self.path} is {what}, not a file of episodes (episodes.jsonl).")
            self._check_schema()
            self._load_index()
            self._refresh()
        except BaseException:
            self.close()
            raise

    # -- writing

    def claim(self) -> None:
        """Claim the store for one resuming run, until it is closed. Calling it twice is harmless.

        Two runs that resume from one store would play the same jobs. The claim is a lock on ``<name>.lock``;
        it ends with its process. Appending needs no claim.

        Raises:
            StoreError: when another process has the claim, or the store is read-only or closed.
        """
        if self._read_only:
            raise StoreError(f"{self.path}: the episode store is open read-only.")
        self._check_open()
        with self._lock:
            if self._claim >= 0:
                return
            try:
                self._claim = _locked(self._lock_path)
            except BlockingIOError as error:
                raise StoreError(
                    f"{self.path}: another run resumes from this store; wait for its end, or use "
                    "another store."
                ) from error
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # else nobody can claim it
                    raise StoreError(f"{self._lock_path} cannot be created: {reason(error)}.") from error

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    def append(self, episode: Episode) -> None:
        """Write one episode at the end.

        Raises:
            DuplicateEpisode: when the store already has an episode with its id.
            StoreError: when it cannot be written (full disk, read-only store); the store is then unchanged.
            BadArgument: when it has values whose type is not the schema's.
        """
        if self._read_only:
            raise StoreError(f"{self.path}: the episode store is open read-only.")
        self._check_open()
        line = codec.encode(episode, tokens=self.tokens) + b"\n"
        with self._lock, self._exclusive():
            size = self._refresh()
            if self._number(episode.id) is not None:
                raise DuplicateEpisode(
                    f"{self.path} holds episode {episode.id!r} already. An id is run-job-sample-attempt: "
                    "an episode that is played again needs another attempt, or another run."
                )
            torn = size > self._seen
            closing = CLOSE_OFF if torn else b""
            if episode.run.id not in self._known and self._run_span(episode.run.id) is None:
                run = codec.encode_run(episode.run) + b"\n"
            else:
                run = b""
            at = size + len(closing)
            start = at + len(run)
            entry = _entry(self._count, episode, start, start + len(line), self.tokens)
            self._write(closing + run + line, size)
            self._torn += torn
            if run:
                self._new_runs[episode.run.id] = at, start
            self._known.add(episode.run.id)
            self._note(entry)
            if len(self._new) >= SAVE_EVERY:
                self._save()

    def _write(self, data: bytes, size: int) -> None:
        written = 0
        try:
            while written < len(data):  # one call, unless the disk takes only a part; the next raises why
                written += os.write(self._fd, data[written:])
            if self.fsync:
                os.fsync(self._fd)
        except BaseException as error:
            # A whole line before the episode's stays: a reader may have seen it.
            with suppress(OSError):
                os.ftruncate(self._fd, size + data.rfind(b"\n", 0, min(written, len(data) - 1)) + 1)
            if isinstance(error, OSError):
                raise StoreError(f"{self.path}: cannot append an episode: {reason(error)}.") from error
            raise

    # -- reading

    def __len__(self) -> int:
        """The number of episodes now."""
        self.refresh()
        return self._count

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        """Return one episode, or a list of them; no other episode is read.

        Raises:
            IndexError: when there is no such episode.
            StoreError: when its line is damaged. SchemaMismatch: when it has an unknown schema.
        """
        if isinstance(index, slice):
            return [self._read(i) for i in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{self.path} holds {count} episodes; there is no number {index}.")
        return self._read(index % count)

    def __iter__(self) -> Iterator[Episode]:
        """Yield all episodes, including those appended meanwhile."""
        index = 0
        while index < len(self):
            yield self._read(index)
            index += 1

    def get(self, episode: str) -> Episode:
        """Return the episode with this id.

        Raises:
            BadArgument: when there is none. StoreError, SchemaMismatch: see ``store[number]``.
        """
        self.refresh()
        with self._lock:
            number = self._number(episode)
        if number is None:
            near = did_you_mean(str(episode), [entry.id for entry in self.select()[-1000:]])
            raise BadArgument(f"{self.path} holds no episode {episode!r}.{near}")
        return self._read(number)

    def line(self, number: int) -> bytes:
        """Return the stored line of an episode, without the line break.

        Raises:
            IndexError: when there is no such episode.
        """
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"{self.path} holds {count} episodes; there is no number {number}.")
        start, end, _ = self._place_of(number % count)
        return os.pread(self._fd, end - 1 - start, start)

    def task(self, number: int) -> TaskRef:
        """Return the task of an episode; this is much faster than reading its turns.

        Raises:
            IndexError: when there is no such episode. StoreError, SchemaMismatch: see ``store[number]``.
        """
        line = self.line(number)
        with suppress(ValueError):
            return replace(codec.decode_task(line), foreign=not self.trust)
        return self[number].task  # raises with the reason

    def select(
        self,
        *,
        id: str | None = None,
        run: str | None = None,
        job: str | None = None,
        sample: int | None = None,
        group: str | None = None,
        spec: str | None = None,
        seed: int | None = None,
        stop: str | None = None,
        verdict: str | None = None,
        success: bool | None = None,
        min_reward: float | None = None,
        max_reward: float | None = None,
    ) -> list[Entry]:
        """Return the index entries of the episodes that have all these values, in stored order.

        No episode is read. None: any value. `min_reward` and `max_reward` bound the return; episodes without
        verdict have no return and no success. ``store[entry.number]`` is the episode.
        """
        wanted = {name: value for name, value in locals().items() if name != "self" and value is not None}
        self.refresh()
        with self._lock:
            old: list[Entry] = self._asked(lambda index: index.select(wanted, self._base.episodes), [])
            return old + [entry for entry in self._new if matches(entry, wanted)]

    def page(
        self,
        *,
        order: str = "number",
        descending: bool = False,
        start: int = 0,
        count: int = 100,
        **wanted: Any,
    ) -> tuple[list[Entry], int]:
        """Return one page of the entries of `select`, in any order, and the total number.

        The cost depends on the page, not on the store, so stores of any size can be paged through.

        Args:
            order: the field of Entry to sort by; equal entries are sorted by number.
            descending: the largest first.
            start: the number of entries to skip.
            count: the most entries to return.
            **wanted: see `select`; also `job_prefix`, the start of the job's name.

        Raises:
            BadArgument: for an order that is not a field of Entry, or a start or count below 0.
        """
        if order not in Entry._fields:
            raise BadArgument(f"order is {order!r}; accepted: {', '.join(Entry._fields)}.")
        if start < 0 or count < 0:
            raise BadArgument(f"start is {start} and count is {count}; accepted: 0 or more.")
        _check_wanted(wanted)
        self.refresh()
        with self._lock:
            first = start - len(self._new)  # each of the new ones may come before those of the index
            first = max(0, first)
            old, total = self._asked(
                lambda index: index.page(
                    wanted, self._base.episodes, order, descending, first, start - first + count
                ),
                (list[Entry](), 0),
            )
            new = [entry for entry in self._new if matches(entry, wanted)]
        if not new:
            return old[start - first :], total

        def place(entry: Entry) -> tuple[bool, Any, int]:
            value = getattr(entry, order)
            return value is not None, 0 if value is None else value, entry.number

        merged = sorted([*old, *new], key=place, reverse=descending)
        return merged[start - first : start - first + count], total + len(new)

    def tally(self, **wanted: Any) -> list[Tally]:
        """Return sums over the entries of `select`, by environment, end and outcome; no episode is read.

        Args:
            **wanted: see `page`.
        """
        _check_wanted(wanted)
        self.refresh()
        with self._lock:
            found: list[Tally] = self._asked(lambda index: index.tally(wanted, self._base.episodes), [])
            return by_end(found, [entry for entry in self._new if matches(entry, wanted)])

    def tasks(self) -> list[TaskTally]:
        """Return sums over the episodes with a verdict, by task: environment, group and seed."""
        self.refresh()
        with self._lock:
            found: list[TaskTally] = self._asked(lambda index: index.tasks(self._base.episodes), [])
            return by_task(found, self._new)

    def holding(self, place: int) -> Entry | None:
        """Return the entry of the episode whose line contains the file's byte at `place`, or None."""
        with self._lock:
            for entry in self._new:
                if entry.start <= place < entry.end:
                    return entry
            found: Entry | None = self._asked(lambda index: index.at(place, self._base.episodes), None)
            return found

    def latest(self) -> list[Entry]:
        """Return an entry for each job and sample: its last attempt with a verdict, else its last attempt.

        Attempts in a later run with the same agent, settings and limits count as later. Episodes of the same
        job by another agent have their own entries. Each episode without a job has its own entry.
        """
        settings = {run.id: repr(replace(run, id="", versions={})) for run in self.runs}
        last: dict[tuple[str, str, int], Entry] = {}
        for entry in self.select():
            played = settings.get(entry.run, entry.run)
            alone = (entry.id, "", -1 - entry.number)  # with its number, as damaged lines have no id
            key = (played, entry.job, entry.sample) if entry.job else alone
            before = last.get(key)
            if before is None or entry.verdict == Verdict.SCORED or before.verdict != Verdict.SCORED:
                last[key] = entry
        return sorted(last.values())

    @property
    def runs(self) -> list[RunInfo]:
        """The runs of the episodes, in the order of their lines."""
        self.refresh()
        with self._lock:
            ids: list[str] = self._asked(lambda index: index.runs(), [])
            ids = [*ids, *self._new_runs]
        return [self._run(run) for run in dict.fromkeys(ids)]

    def refresh(self) -> int:
        """Scan lines that were added since the last scan, and return the number of new episodes."""
        self._check_open()
        with self._lock:
            before = self._count
            self._refresh()
            return self._count - before

    @property
    def torn(self) -> int:
        """The number of torn lines and damaged runs that are skipped; an unfinished last line counts too."""
        self.refresh()
        with self._lock:
            return self._torn + (os.fstat(self._fd).st_size > self._seen)

    def close(self) -> None:
        """Write the index and close the file. Calling it twice is harmless."""
        with self._lock:
            if self._fd >= 0:
                if self._new and self._pid == os.getpid():
                    with suppress(sqlite3.Error, OSError), self._exclusive(wait=False):
                        self._write_index()
                os.close(self._fd)
                self._fd = -1
            if self._claim >= 0:
                if self._pid == os.getpid():
                    self._lock_path.unlink(missing_ok=True)
                os.close(self._claim)
                self._claim = -1
            self._drop_index()

    def __enter__(self) -> Self:
        """Return self; the store is closed at the end of the block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _read(self, number: int) -> Episode:
        episode = self._found(number)
        if episode is None:  # the index is wrong; without it, episodes are found by scanning the lines
            self._distrust()
            episode = self._found(number)
        if episode is None:
            raise StoreError(f"{self.path}: episode {number} was changed while the store is open.")
        if episode.run is not SCHEMA_1_RUN:
            episode.run = self._run(episode.run.id)
        return episode

    def _found(self, number: int) -> Episode | None:
        """Return the episode at its position in the index; None when its line is not there."""
        start, end, wanted = self._place_of(number)
        line = os.pread(self._fd, end - 1 - start, start)
        try:
            self._check_line(line[:64], start)
            episode = codec.decode(line)
            episode.task = replace(episode.task, foreign=not self.trust)
        except (ValueError, StoreError) as error:
            if wanted:
                return None
            if isinstance(error, GemError):
                raise
            raise StoreError(
                f"{self.path}: episode {number} (line {self._line_number(start)}, byte {start}) is damaged: "
                f"{error}. Restore the file from a copy, or delete the line; the episode then counts as not "
                "played, and a run that resumes plays it again."
            ) from error
        return episode if episode.id == wanted else None

    def _line_number(self, start: int) -> int:
        """Return the number of the line that begins at this byte, from 1."""
        return 1 + sum(1 for _ in _lines(self._fd, 0, start))

    def _place_of(self, number: int) -> Place:
        with self._lock:
            return self._place(number)

    def _run(self, run: str) -> RunInfo:
        """Return a run; without its line, only its id is known."""
        for trusted in () if run in self._runs else (True, False):
            with self._lock:
                span = self._run_span(run)
            if span is None:
                return RunInfo(run)
            with suppress(ValueError):
                found = name_models(codec.decode_run(os.pread(self._fd, span[1] - span[0], span[0])))
                if found.id == run:
                    self._runs[run] = found
                    break
            if trusted:
                self._distrust()
        return self._runs.get(run) or RunInfo(run)

    def _distrust(self) -> None:
        with self._lock:
            if self._index is not None:
                self._give_up_index(sqlite3.DatabaseError("the index has wrong positions of lines"))

    def _check_open(self) -> None:
        if self._fd < 0:
            raise StoreError(f"{self.path}: the episode store is closed; open it again.")
        if self._pid != os.getpid():  # a fork: the file's lock and the index are the parent's
            os.close(self._fd)
            if self._claim >= 0:
                os.close(self._claim)
                self._claim = -1
            self._index, self._lock, self._locked = None, Lock(), False
            self._open()

    def _check_schema(self) -> None:
        head = os.pread(self._fd, 64, 0).partition(CLOSE_OFF)[0]
        torn = OPENING.startswith(head[: len(OPENING)]) and not codec.BEGINNING.match(head)
        if not torn:  # and not empty: a first line may be unfinished
            self._check_line(head, 0)

    def _check_line(self, head: bytes, start: int) -> None:
        try:
            codec.schema_of(head)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{self.path}: byte {start} begins {error}") from error
        except ValueError as error:
            raise StoreError(
                f"{self.path}: byte {start} does not begin an episode; found {head[:40]!r}."
            ) from error

    # -- state of the scan: entries of the index, up to `_base`, and entries found after that

    def _begin(self, mark: Mark) -> None:
        """Reset the scan to the part that an index covers, up to `mark`."""
        self._base, self._seen, self._torn = mark, mark.scanned, mark.torn
        self._new: list[Entry] = []
        self._new_numbers: dict[str, int] = {}
        self._new_runs: dict[str, Span] = {}

    def _note(self, entry: Entry) -> None:
        self._new.append(entry)
        self._new_numbers.setdefault(entry.id, entry.number)
        self._seen = entry.end

    @property
    def _count(self) -> int:
        return self._base.episodes + len(self._new)

    def _place(self, number: int) -> Place:
        size = os.fstat(self._fd).st_size
        while number < self._base.episodes:
            found: Place | None = self._asked(
                lambda index: index.place(number, size) if number < self._base.episodes else None, None
            )
            if found is not None:  # else the entries of a lost index are now among the new ones
                return found
        entry = self._new[number - self._base.episodes]
        return entry.start, entry.end, entry.id

    def _number(self, episode: str) -> int | None:
        found = self._asked(lambda index: index.number(episode), None)
        return self._new_numbers.get(episode) if found is None else found

    def _run_span(self, run: str) -> Span | None:
        size = os.fstat(self._fd).st_size
        found = self._asked(lambda index: index.run(run, size), None)
        return self._new_runs.get(run) if found is None else found

    def _asked(self, question: Callable[[Index], Found], nothing: Found) -> Found:
        """Return the answer of the index, or `nothing` where there is no index; give up a broken index."""
        while (index := self._index) is not None:
            try:
                answer = question(index)
                if index.current:
                    return answer
                self._forget_index()
                self._refresh()
            except sqlite3.Error as error:
                self._give_up_index(error)
        return nothing

    def _refresh(self) -> int:
        """Scan what was added, and return the file's size."""
        size = os.fstat(self._fd).st_size
        if size < self._seen:  # the file was truncated: scan it again
            self._drop_index()
        seen = -1
        while seen != self._seen < size:
            seen = self._seen
            self._scan(size)
            if len(self._new) >= SAVE_EVERY:
                self._save()
        return size

    def _scan(self, size: int) -> None:
        """Scan the complete lines up to `size`, at most SCAN_AT_ONCE episodes."""
        for start, line in _lines(self._fd, self._seen, size):
            end = start + len(line) + 1
            if not line.rstrip().endswith(b"}"):  # some tools end lines with a carriage return
                self._torn += 1  # terminated by an append
            elif line.startswith(codec.RUN_LINE):
                try:
                    self._new_runs.setdefault(codec.decode_run(line).id, (start, end))
                except ValueError:  # its episodes can be read without it
                    self._torn += 1
            else:
                self._note(_scanned(self._count, line, start, end))
            self._seen = end
            if len(self._new) >= SCAN_AT_ONCE:
                break

    # -- the index

    @contextmanager
    def _exclusive(self, wait: bool = True) -> Iterator[None]:
        """Hold the file's lock, unless it is already held; writers of one file wait for each other."""
        if self._locked:
            yield
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _load_index(self) -> None:
        """Load the index if it matches the file; otherwise the next write makes a new one."""
        if not self._index_path.exists():
            return
        with suppress(sqlite3.Error):
            index = Index(self._index_path)
            if self._fits(index.mark):
                self._index = index
                self._begin(index.mark)
            else:
                index.close()

    @property
    def _index_path(self) -> Path:
        return self.path.with_name(self.path.name + ".index.sqlite")

    def _seal(self, scanned: int) -> bytes:
        """Return a hash of both ends of the scanned part, to recognise another file."""
        tail = max(0, scanned - ENDS)
        ends = os.pread(self._fd, min(ENDS, scanned), 0) + os.pread(self._fd, scanned - tail, tail)
        return blake2b(ends, digest_size=16).digest()

    def _fits(self, mark: Mark) -> bool:
        size = os.fstat(self._fd).st_size
        return not mark.scanned or (mark.scanned <= size and mark.seal == self._seal(mark.scanned))

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
                self._give_up_index(error)

    def _write_index(self) -> None:
        if self._index is not None and not self._index.current:
            self._forget_index()
            return  # its entries are scanned again first
        if self._index is None:
            self._index = self._made_index()
        mark = Mark(self._count, self._seen, self._torn, self._seal(self._seen))
        self._index.add(self._new, self._new_runs, mark)
        self._begin(self._index.mark)

    def _made_index(self) -> Index:
        """Return the index beside the file; make it again if it does not match."""
        ours, there = os.fstat(self._fd), self.path.stat()
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(f"{self.path} was replaced; the index beside it belongs to another file.")
        try:
            index = Index(self._index_path)
            if self._fits(index.mark):
                return index
            index.close()
        except sqlite3.Error as error:
            if not damaged(error):
                raise
        self._unlink_index()
        return Index(self._index_path)

    def _unlink_index(self) -> None:
        for end in ("", "-journal"):  # SQLite would apply the journal of a deleted index to the next one
            self._index_path.with_name(self._index_path.name + end).unlink(missing_ok=True)

    def _give_up_index(self, error: Exception) -> None:
        """Continue with a temporary index, because the one beside the file cannot be used.

        An index that cannot be written is copied; a damaged one is removed, and the next process makes it
        again.
        """
        old, index = self._index, Index(None)
        if old is not None and old.path is None:
            raise StoreError(f"{self.path}: cannot keep a temporary index: {error}") from error
        with suppress(sqlite3.Error, OSError):
            if isinstance(error, sqlite3.Error) and damaged(error):
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
        """Start over after the open index was deleted: SQLite's answers are invalid from then on.

        A new file with its name has a journal with the same name, which SQLite applies to the old one too.
        """
        self._drop_index()
        self._forgotten += 1
        if self._forgotten > FORGET_AT_MOST:
            self._index = Index(None)

    def _drop_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
        self._known.clear()
        self._begin(Mark())


_WANTED = frozenset(Entry._fields) | {"min_reward", "max_reward", "job_prefix"}


def _check_wanted(wanted: Mapping[str, Any]) -> None:
    """Refuse names that are not fields to select by."""
    for name in wanted:
        if name not in _WANTED:
            raise BadArgument(f"episodes cannot be selected by {name!r}.{did_you_mean(name, _WANTED)}")


def _locked(path: Path) -> int:
    """Open the file at `path`, create it if missing, lock it, and return its descriptor.

    Raises:
        BlockingIOError: when another process has the lock. OSError: when the file cannot be created.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its holder has just removed it


def by_task(found: Iterable[TaskTally], entries: Iterable[Entry]) -> list[TaskTally]:
    """Add further entries to sums by task, and return the sums."""
    sums: dict[Any, list[Any]] = {each[:3]: list(each[3:]) for each in found}
    for entry in entries:
        if entry.reward is not None:  # it has a verdict
            of = sums.setdefault((entry.spec, entry.group, entry.seed), [0] * 4)
            told = entry.success is not None
            for place, more in enumerate((1, told, bool(entry.success), entry.reward)):
                of[place] += more
    return [TaskTally(*key, *of) for key, of in sums.items()]


def by_end(found: Iterable[Tally], entries: Iterable[Entry]) -> list[Tally]:
    """Add further entries to sums by environment, end and outcome, and return the sums."""
    sums: dict[Any, list[Any]] = {each[:4]: list(each[4:]) for each in found}
    for entry in entries:
        reward = entry.reward or 0.0
        of = sums.setdefault((entry.spec, entry.stop, entry.verdict, entry.success), [0] * 6)
        more_of = (1, reward, reward**2, entry.turns, entry.tokens, entry.calls)
        for place, more in enumerate(more_of):
            of[place] += more
    return [Tally(*key, *of) for key, of in sums.items()]


class Merged(NamedTuple):
    """The result of a merge: episodes copied, duplicates left out, damaged lines left out."""

    copied: int
    duplicates: int
    damaged: int


def merge(out: str | Path, sources: Sequence[str | Path]) -> Merged:
    """Append the episodes of `sources`, and their runs, to the store at `out`, in the current schema.

    Episodes whose id is already there are left out, so the same call completes an interrupted merge.

    Raises:
        BadArgument: for no sources, or when `out` is one of them.
        StoreError, SchemaMismatch: when a store cannot be read, or `out` cannot be written.
    """
    if not sources:
        raise BadArgument("there is nothing to merge; name at least one store beside the output store.")
    for source in sources:
        if os.path.exists(out) and os.path.exists(source) and os.path.samefile(out, source):
            raise BadArgument(f"{source} is the output store; merge into another one.")
    copied = duplicates = unread = 0
    with ExitStack() as opened:
        stores = [opened.enter_context(EpisodeStore(source, read_only=True)) for source in sources]
        runs = {run.id: run for given in reversed(stores) for run in given.runs}
        store = opened.enter_context(EpisodeStore(out))
        for given in stores:
            for number in range(len(given)):
                try:
                    episode = given[number]
                except StoreError:
                    unread += 1
                    continue
                episode.run = runs.get(episode.run.id, episode.run)
                try:
                    store.append(episode)
                    copied += 1
                except DuplicateEpisode:
                    duplicates += 1
    return Merged(copied, duplicates, unread)


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


def _scanned(number: int, line: bytes, start: int, end: int) -> Entry:
    try:
        return _entry(number, codec.decode(line), start, end)
    except ValueError:
        return Entry(
            number, "", "", "", 0, 0, "", "", 0, "damaged", Verdict.NONE, None, None, 0, 0, 0, start, end
        )


def _entry(number: int, episode: Episode, start: int, end: int, tokens: bool = True) -> Entry:
    return Entry(
        number=number,
        id=episode.id,
        run=episode.run.id,
        job=episode.job,
        sample=int(episode.sample),
        attempt=int(episode.attempt),
        group=episode.group,
        spec=episode.spec,
        seed=int(episode.seed),
        stop=str(episode.stop),
        verdict=str(episode.verdict),
        success=episode.success,
        reward=episode.earned() if episode.scored else None,
        turns=len(episode.turns),
        tokens=sum(_tokens(turn, tokens) for turn in episode.turns),
        calls=_calls(episode.turns),
        start=start,
        end=end,
    )


def _calls(turns: Sequence[Turn]) -> int:
    """Return the number of tool calls of an episode: native ones, or those counted in text by its tools."""
    native = sum(len(turn.reply.tool_calls) for turn in turns if turn.reply is not None)
    counted = (turn.info.get("tool_use_counter") for turn in turns)
    return max([native, *(count for count in counted if type(count) is int)])


def _tokens(turn: Turn, held: bool) -> int:
    """Return the number of sampled tokens; the server's count where the ids are not kept."""
    counted = (turn.usage or {}).get("completion_tokens")
    return (len(turn.token_ids) if held else 0) or (counted if type(counted) is int else 0)
