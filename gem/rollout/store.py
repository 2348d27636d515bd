"""The episode store: an append-only file, one episode per line.

A line is a JSON object that begins with its schema number and ends with a checksum of the rest; `gem.codec`
defines its form. The settings of a run are in a separate line, before the run's first episode. An append is
one write of whole lines at the end of the file, under a file lock. So several writers do not mix their lines,
and no id is written twice. A torn line of a killed writer is skipped and counted, and the next append
terminates it; a last line that lacks only its line break is read as the others. Reading takes no lock and
sees each line when it is complete.

The file ``<name>.index.sqlite`` beside it has a summary of each episode and the position of its line, so that
a store of 100,000 episodes can be opened and filtered without reading them. It is a cache and may be deleted.
Any process with write access creates it, extends it as the store grows, and makes it again when it does not
match the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from gem import codec
from gem.closing import Closing
from gem.errors import (
    BadArgument,
    DuplicateEpisode,
    GemError,
    SchemaMismatch,
    StoreError,
    check_argument,
    did_you_mean,
    reason,
)
from gem.files import read_json, replace_file
from gem.models import name_models
from gem.record import Episode, RunInfo, Turn, Verdict
from gem.rollout.index import Entry, Index, Tally, TaskTally, is_same, matches
from gem.rollout.indexed_file import CLOSE_OFF, Addition, IndexedFile
from gem.schema_1 import SCHEMA_1_RUN
from gem.specs import TaskRef

OPENING = b'{"schema":'
SEARCHED = 1 << 20  # bytes in which a store with a damaged first line has another line

UNREADABLE = (StoreError, SchemaMismatch)
"""The errors of ``store[number]`` where its line is damaged, or has an unknown schema."""

Answer = TypeVar("Answer")


class EpisodeStore(Sequence[Episode], Closing):
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

        A store whose first line alone is damaged is opened, as one with any other damaged line.
        """
        self.path = Path(path)
        self.tokens, self.fsync, self.trust = tokens, fsync, trust
        self._claim = -1
        self._runs: dict[str, RunInfo] = {}  # those that were read
        self._file = IndexedFile(self.path, _read_line, read_only)
        try:
            self._check_schema()
            self._file.load()
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
        self._check_writable()
        with self._file.lock:
            if self._claim >= 0:
                return
            try:
                self._claim, self._claimed_by = _lock_file(self._lock_path), os.getpid()
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
        return self._file.index_path.with_name(self.path.name + ".lock")

    def append(self, episode: Episode) -> None:
        """Write one episode at the end.

        Raises:
            DuplicateEpisode: when the store already has an episode with its id.
            StoreError: when it cannot be written (full disk, read-only store, a file that was deleted or
                replaced); the store is then unchanged.
            BadArgument: when it has values whose type is not the schema's.
        """
        self._check_writable()
        line = codec.encode(episode, tokens=self.tokens) + b"\n"
        run, file = episode.run, self._file

        def compose() -> Addition:
            if file.number(episode.id) is not None:
                raise DuplicateEpisode(
                    f"{self.path} holds episode {episode.id!r} already. An id is run-job-sample-attempt: "
                    "an episode that is played again needs another attempt, or another run."
                )
            run_line = b"" if file.has_run(run.id) else codec.encode_run(run) + b"\n"
            return Addition(line, partial(summarize, episode, self.tokens), run.id, run_line)

        file.append(compose, self.fsync)

    def truncate(self, count: int) -> None:
        """Drop all episodes but the first `count`, which every reader of the file will notice.

        Raises:
            StoreError: when the store is read-only or closed, or cannot be written.
        """
        self._check_writable()
        if count < len(self):
            self._file.truncate(self._file.place(count)[0])

    # -- reading

    def __len__(self) -> int:
        """The number of episodes now."""
        self.refresh()
        return self._file.count

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
        return self._read(self._position(index))

    def _position(self, number: int) -> int:
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"{self.path} holds {count} episodes; there is no number {number}.")
        return number % count

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
        number = self._file.number(episode)
        if number is None:
            near = did_you_mean(str(episode), [entry.id for entry in self.select()[-1000:]])
            raise BadArgument(f"{self.path} holds no episode {episode!r}.{near}")
        return self._read(number)

    def line(self, number: int) -> bytes:
        """Return the stored line of an episode, without the line break.

        Raises:
            IndexError: when there is no such episode.
        """
        start, end, _ = self._file.place(self._position(number))
        return self._file.read_line(start, end)

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
        old, new = self._ask(lambda index, below: index.select(wanted, below), list[Entry]())
        return old + [entry for entry in new if matches(entry, wanted)]

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
            **wanted: see `select`; also `env`, a key of `env_key`, and `job_prefix`, the start of the job's
                name. A tuple accepts each of its values.

        Raises:
            BadArgument: for an order that is not a field of Entry, or a start or count below 0.
        """
        check_argument("order", order, order in Entry._fields, ", ".join(Entry._fields))
        if start < 0 or count < 0:
            raise BadArgument(f"start is {start} and count is {count}; accepted: 0 or more.")
        _check_wanted(wanted)

        def cut(index: Index, below: int) -> tuple[list[Entry], int]:
            first = max(0, start - (self._file.count - below))
            return index.page(wanted, below, order, descending, first, start - first + count)

        (old, total), new = self._ask(cut, (list[Entry](), 0))
        first = max(0, start - len(new))  # each of the new ones may come before those of the index
        new = [entry for entry in new if matches(entry, wanted)]
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
        sums, new = self._ask(lambda index, below: index.tally(wanted, below), list[Tally]())
        return by_end(sums, [entry for entry in new if matches(entry, wanted)])

    def tasks(self) -> list[TaskTally]:
        """Return sums over the episodes with a verdict, by task: environment, group and seed."""
        return by_task(*self._ask(lambda index, below: index.tasks(below), list[TaskTally]()))

    def holding(self, place: int) -> Entry | None:
        """Return the entry of the episode whose line contains the file's byte at `place`, or None."""
        old, new = self._ask(lambda index, below: index.at(place, below), None)
        return next((entry for entry in new if entry.start <= place < entry.end), old)

    def confirm(self, entries: Iterable[Entry]) -> bool:
        """Return whether entries of this store are those of their lines; if not, the index is given up.

        Then the entries have to be asked for again. It costs about as much as reading the episodes.
        """
        for entry in entries:
            line = self._file.read_line(entry.start, entry.end)
            if not is_same(entry, _read_entry(entry.number, line, entry.start, entry.end)):
                self._file.distrust()
                return False
        return True

    def latest(self, *, superseded: bool = False) -> list[Entry]:
        """Return an entry for each job and sample: its last attempt with a verdict, else its last attempt.

        Attempts in a later run with the same agent, settings and limits count as later. Episodes of the same
        job by another agent have their own entries. Each episode without a job has its own entry.

        Args:
            superseded: include the jobs that `supersede` has left out.
        """
        settings = {run.id: repr(run.settings) for run in self.runs}
        left_out = frozenset() if superseded else self.superseded
        last: dict[tuple[str, str, int], Entry] = {}
        for entry in self.select():
            if (entry.job, entry.sample) in left_out:
                continue
            played = settings.get(entry.run, entry.run)
            alone = (entry.id, "", -1 - entry.number)  # with its number, as damaged lines have no id
            key = (played, entry.job, entry.sample) if entry.job else alone
            before = last.get(key)
            if before is None or entry.verdict == Verdict.SCORED or before.verdict != Verdict.SCORED:
                last[key] = entry
        return sorted(last.values())

    @property
    def superseded(self) -> frozenset[tuple[str, int]]:
        """The jobs and samples that `latest` leaves out; none where the file of them cannot be read."""
        with suppress(OSError, ValueError, TypeError):
            jobs = [(job, sample) for job, sample in read_json(self._superseded_path)]
            if all(type(job) is str and type(sample) is int for job, sample in jobs):
                return frozenset(jobs)
        return frozenset()

    def supersede(self, standing: Collection[tuple[str, int]]) -> None:
        """Let `latest` leave out the stored jobs that are not in `standing`, in every process.

        An evaluation that is repeated with other data, or fewer tasks, keeps its store, and counts only the
        episodes of the tasks that it has now. They are in the file ``<name>.superseded.json``.

        Args:
            standing: the jobs that count, each with a sample.

        Raises:
            StoreError: when the store is read-only or closed, or the file cannot be written.
        """
        self._check_writable()
        self._write_superseded(self._jobs.difference(standing))

    def _write_superseded(self, left_out: Collection[tuple[str, int]]) -> None:
        if left_out:
            with replace_file(self._superseded_path) as new:
                new.write_text(json.dumps(sorted(left_out)))
        else:
            self._superseded_path.unlink(missing_ok=True)

    @property
    def _jobs(self) -> set[tuple[str, int]]:
        """The stored jobs, each with a sample."""
        return {(entry.job, entry.sample) for entry in self.select() if entry.job}

    @property
    def _superseded_path(self) -> Path:
        return self._file.index_path.with_name(f"{self.path.name}.superseded.json")

    @property
    def runs(self) -> list[RunInfo]:
        """The runs of the episodes, in the order of their lines."""
        self._check_open()
        return [self._run(run) for run in self._file.runs()]

    def refresh(self) -> int:
        """Scan lines that were added since the last scan, and return the number of new episodes."""
        self._check_open()
        return self._file.refresh()

    @property
    def torn(self) -> int:
        """The number of torn lines and damaged runs that are skipped; an unfinished last line counts too."""
        self.refresh()
        return self._file.torn

    def close(self) -> None:
        """Write the index and close the file. Calling it twice is harmless."""
        self._file.close()
        if self._claim >= 0:
            if self._claimed_by == os.getpid():
                self._lock_path.unlink(missing_ok=True)
            os.close(self._claim)
            self._claim = -1

    def _read(self, number: int) -> Episode:
        episode = self._read_at_place(number)
        if episode is None:  # the index is wrong; without it, episodes are found by scanning the lines
            self._file.distrust()
            episode = self._read_at_place(number)
        if episode is None:
            raise StoreError(f"{self.path}: episode {number} was changed while the store is open.")
        if episode.run is not SCHEMA_1_RUN:
            episode.run = self._run(episode.run.id)
        return episode

    def _read_at_place(self, number: int) -> Episode | None:
        """Return the episode at its position in the index; None when its line is not there."""
        start, end, wanted = self._file.place(number)
        line = self._file.read_line(start, end)
        try:
            self._check_line(line[:64], start)
            episode = codec.decode(line)
            episode.task = replace(episode.task, foreign=not self.trust)
        except (ValueError, StoreError) as error:
            if wanted:
                return None
            if isinstance(error, GemError):
                raise
            line_number = self._file.line_number(start)
            raise StoreError(
                f"{self.path}: episode {number} (line {line_number}, byte {start}) is damaged: {error}. "
                "Restore the file from a copy, or delete the line; then the episode counts as not played, "
                "and a run that resumes plays it again."
            ) from error
        return episode if episode.id == wanted else None

    def _run(self, run: str) -> RunInfo:
        """Return a run; without its line, only its id is known."""
        for trusted in () if run in self._runs else (True, False):
            span = self._file.run(run)
            if span is None:
                return RunInfo(run)
            with suppress(ValueError):
                info = name_models(codec.decode_run(self._file.read(*span)))
                if info.id == run:
                    self._runs[run] = info
                    break
            if trusted:
                self._file.distrust()
        return self._runs.get(run) or RunInfo(run)

    def _ask(self, question: Callable[[Index, int], Answer], nothing: Answer) -> tuple[Answer, list[Entry]]:
        self._check_open()
        return self._file.ask(question, nothing)

    def _check_open(self) -> None:
        self._file.check_open()
        if self._claim >= 0 and self._claimed_by != os.getpid():  # a fork: the claim is the parent's
            os.close(self._claim)
            self._claim = -1

    def _check_writable(self) -> None:
        if self._file.read_only:
            raise StoreError(f"{self.path}: the episode store is open read-only.")
        self._check_open()

    def _check_schema(self) -> None:
        head = self._file.read(0, 64).partition(CLOSE_OFF)[0]
        torn = OPENING.startswith(head[: len(OPENING)]) and not codec.BEGINNING.match(head)
        if torn:  # or empty: a first line may be unfinished
            return
        try:
            self._check_line(head, 0)
        except (SchemaMismatch, StoreError):
            later = self._file.read(0, SEARCHED).split(b"\n")[1:]
            if not any(map(_is_readable, later)):
                raise  # else it is a store whose first line alone is damaged

    def _check_line(self, head: bytes, start: int) -> None:
        try:
            codec.schema_of(head)
        except SchemaMismatch as error:
            raise SchemaMismatch(f"{self.path}: byte {start} begins {error}") from error
        except ValueError as error:
            raise StoreError(
                f"{self.path}: byte {start} does not begin an episode; found {head[:40]!r}. Accepted: a "
                "store of episodes, as the file episodes.jsonl of a run."
            ) from error


_WANTED = frozenset(Entry._fields) | {"min_reward", "max_reward", "job_prefix"}


def _check_wanted(wanted: Mapping[str, Any]) -> None:
    """Refuse names that are not fields to select by."""
    for name in wanted:
        if name not in _WANTED:
            raise BadArgument(f"episodes cannot be selected by {name!r}.{did_you_mean(name, _WANTED)}")


def _lock_file(path: Path) -> int:
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


def by_task(tallies: Iterable[TaskTally], entries: Iterable[Entry]) -> list[TaskTally]:
    """Add further entries to sums by task, and return the sums."""
    sums: dict[Any, Any] = {each[:4]: each[4:] for each in tallies}
    for entry in entries:
        if entry.reward is not None:  # it has a verdict
            solved = entry.success is not None, bool(entry.success)
            _add(sums, (entry.spec, entry.env, entry.group, entry.seed), (1, *solved, entry.reward))
    return [TaskTally(*key, *values) for key, values in sums.items()]


def by_end(tallies: Iterable[Tally], entries: Iterable[Entry]) -> list[Tally]:
    """Add further entries to sums by environment, end and outcome, and return the sums."""
    sums: dict[Any, Any] = {each[:5]: each[5:] for each in tallies}
    for entry in entries:
        reward = entry.reward or 0.0
        counts = entry.reward in (0, 1), entry.turns, entry.tokens, entry.calls
        key = entry.spec, entry.env, entry.stop, entry.verdict, entry.success
        _add(sums, key, (1, reward, reward**2, *counts))
    return [Tally(*key, *values) for key, values in sums.items()]


def _add(sums: dict[Any, Any], key: Any, values: tuple[float, ...]) -> None:
    sums[key] = tuple(map(add, sums.get(key, (0,) * len(values)), values))


def find_store(run: Path) -> Path:
    """Return the store of a run: the file itself, or the one of its folder, or the only one just below it.

    Raises:
        BadArgument: for what is not there, and for a folder without one, or with several below it.
    """
    accepted = "accepted: a store (episodes.jsonl), or the folder of a run."
    if not run.exists():
        raise BadArgument(f"there is no {run}; {accepted}")
    if not run.is_dir():
        return run
    if (run / "episodes.jsonl").is_file():
        return run / "episodes.jsonl"
    below = sorted(run.glob("*/episodes.jsonl"))
    if len(below) > 1:
        names = ", ".join(str(each.parent) for each in below[:8])
        raise BadArgument(f"{run} holds {len(below)} stores; name one of them: {names}.")
    if not below:
        raise BadArgument(f"{run} holds no episodes; {accepted}")
    return below[0]


class Merged(NamedTuple):
    """The result of a merge: episodes copied, duplicates left out, lines left out that cannot be read."""

    copied: int
    duplicates: int
    damaged: int


def merge(out: str | Path, sources: Sequence[str | Path]) -> Merged:
    """Append the episodes of `sources`, and their runs, to the store at `out`, in the current schema.

    Episodes whose id is already there are left out, so the same call completes an interrupted merge. Jobs
    that are superseded in one store and count in none stay superseded.

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
        _merge_superseded(store, stores)
        for given in stores:
            unread += given.torn
            for number in range(len(given)):
                try:
                    episode = given[number]
                except UNREADABLE:
                    unread += 1
                    continue
                episode.run = runs.get(episode.run.id, episode.run)
                try:
                    store.append(episode)
                    copied += 1
                except DuplicateEpisode:
                    duplicates += 1
    return Merged(copied, duplicates, unread)


def _merge_superseded(store: EpisodeStore, sources: Sequence[EpisodeStore]) -> None:
    """Let `store` leave out the jobs that some of the stores leave out, and none has among those that count.

    It comes before the episodes, so that a merge that is interrupted and repeated has the same result.
    """
    left_out, standing = set[tuple[str, int]](), set[tuple[str, int]]()
    for each in (store, *sources):
        left_out |= each.superseded
        standing |= each._jobs - each.superseded
    store._write_superseded(left_out - standing)


def _is_readable(line: bytes) -> bool:
    """Return whether a line begins as one of a store that this version can read."""
    with suppress(ValueError):
        return codec.schema_of(line[:64]) > 0
    return False


def _read_line(number: int, line: bytes, start: int, end: int) -> Entry | str | None:
    """Return the entry of an episode's line, or the id of a run; None for a damaged run.

    The episodes of a damaged run can be read without it.
    """
    if not line.startswith(codec.RUN_LINE):
        return _read_entry(number, line, start, end)
    with suppress(ValueError):
        return codec.decode_run(line).id
    return None


def _read_entry(number: int, line: bytes, start: int, end: int) -> Entry:
    try:
        return summarize(codec.decode(line), True, number, start, end)
    except ValueError:
        return damaged_entry(number, start, end)


def damaged_entry(number: int, start: int, end: int) -> Entry:
    """Return the entry of a line that cannot be read."""
    return Entry(
        number, "", "", "", 0, 0, "", "", "", 0, "damaged", Verdict.NONE, None, None, 0, 0, 0, start, end
    )


def summarize(episode: Episode, tokens: bool, number: int, start: int, end: int) -> Entry:
    """Return the entry of an episode whose line begins at `start`; `tokens`: whether its ids are stored."""
    return Entry(
        number=number,
        id=episode.id,
        run=episode.run.id,
        job=episode.job,
        sample=int(episode.sample),
        attempt=int(episode.attempt),
        group=episode.group,
        spec=episode.spec,
        env=env_key(episode.task),
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


def env_key(task: TaskRef) -> str:
    """Return a key of a task's environment: id, keywords and wrappers, whatever its data hold now."""
    kwargs = {name: value for name, value in task.kwargs.items() if name != "digest"}
    key = codec.task_key(replace(task, kwargs=kwargs, seed=None))
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _calls(turns: Sequence[Turn]) -> int:
    """Return the number of tool calls of an episode: native ones, or those counted in text by its tools."""
    native = sum(len(turn.reply.tool_calls) for turn in turns if turn.reply is not None)
    counted = (turn.info.get("tool_use_counter") for turn in turns)
    return max([native, *(count for count in counted if type(count) is int)])


def _tokens(turn: Turn, with_ids: bool) -> int:
    """Return the number of sampled tokens; the server's count where the ids are not kept."""
    counted = (turn.usage or {}).get("completion_tokens")
    return (len(turn.token_ids) if with_ids else 0) or (counted if type(counted) is int else 0)
