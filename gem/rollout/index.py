"""The index of an episode store: a summary of each episode and the position of its line, in an SQLite file.

It is a cache. `gem.rollout.indexed_file` decides what enters it, under the lock of the store's file, and
whether it still matches; this module writes and queries it. All errors are sqlite3.Error, also for wrong
values in it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gem.errors import BadArgument

VERSION = 0x67656D04
"""Version number of the form of an index; SQLite keeps it as the file's user version."""

WAIT_S = 2.0
"""Seconds to wait for another process that writes to the index."""


class Entry(NamedTuple):
    """A summary of an episode, available without reading it.

    `number`: its index in the store. `env`: the key of its environment (`gem.rollout.store.env_key`).
    `reward`: its return, None without verdict. `tokens`: the number of sampled tokens, 0 where it is unknown.
    `calls`: the number of tool calls. `start` and `end`: the position of its line, in bytes.
    For a damaged line, only number and position are known; its `id` is empty.
    """

    number: int
    id: str
    run: str
    job: str
    sample: int
    attempt: int
    group: str
    spec: str
    env: str
    seed: int
    stop: str
    verdict: str
    success: bool | None
    reward: float | None
    turns: int
    tokens: int
    calls: int
    start: int
    end: int


class Mark(NamedTuple):
    """The part of a store that an index covers: episodes, bytes, torn lines, and a hash of both ends.

    `inode` and `changed_ns` are those of the file at that time.
    """

    episodes: int = 0
    scanned: int = 0
    torn: int = 0
    seal: bytes = b""
    inode: int = 0
    changed_ns: int = 0


class Tally(NamedTuple):
    """Sums over episodes with equal environment, end and outcome; `reward` sums the known returns.

    `rates` of the returns are 0 or 1.
    """

    spec: str
    env: str
    stop: str
    verdict: str
    success: bool | None
    episodes: int
    reward: float
    reward_squares: float
    rates: int
    turns: int
    tokens: int
    calls: int


class TaskTally(NamedTuple):
    """Sums over a task's samples with a verdict: their number, known and actual successes, and returns."""

    spec: str
    env: str
    group: str
    seed: int
    scored: int
    known: int
    solved: int
    reward: float


Span = tuple[int, int]
"""Start and end of a line, in bytes."""

Place = tuple[int, int, str]
"""Start and end of an episode's line, in bytes, and the episode's id."""

_CIRCUMSTANCES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}

_COLUMNS = ", ".join(f'"{name}"' for name in Entry._fields)
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS mark ({", ".join(Mark._fields)});
CREATE TABLE IF NOT EXISTS runs (id PRIMARY KEY, start, "end") WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS episodes ({_COLUMNS.replace('"number"', '"number" INTEGER PRIMARY KEY')});
CREATE INDEX IF NOT EXISTS episodes_by_id ON episodes (id);
CREATE INDEX IF NOT EXISTS episodes_by_job ON episodes (job);
PRAGMA user_version = {VERSION};
COMMIT;
"""
_INSERT = f"INSERT INTO episodes VALUES ({', '.join('?' * len(Entry._fields))})"
_BOUNDS = {
    "min_reward": '"reward" >= ?',
    "max_reward": '"reward" <= ?',
    "job_prefix": 'instr("job", ?) = 1',
}
_SEED, _AFTER = Entry._fields.index("seed"), Entry._fields.index("reward")


class OtherForm(sqlite3.DatabaseError):
    """A database that is not an index as this version of gem makes it."""


def _definitions(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Return how the tables of a database, and all else in it, are defined."""
    return db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


@cache
def _own_definitions() -> list[tuple[Any, ...]]:
    """Return the definitions of an index as gem makes it."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_TABLES)
        return _definitions(db)


class Index:
    """An open index. Its `mark` is the part of the store that it covered when last opened or extended."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        """Open the index at `path`, or create it; None: a temporary index of this process.

        With `read_only` nothing is created or changed.
        """
        self.path, self.read_only = path, read_only
        if path is not None and path.is_fifo():  # SQLite would wait for a writer
            raise OtherForm(f"{path} is a pipe, not an index")
        before = None if path is None else _inode(path)
        name = "" if path is None else str(path)
        if read_only:
            name = f"file:{quote(os.path.abspath(name))}?mode=ro"
        self._db = sqlite3.connect(
            name, timeout=WAIT_S, isolation_level=None, check_same_thread=False, uri=read_only
        )
        try:
            with _readable():
                self._open(before)
        except BaseException:
            self.close()
            raise

    def _open(self, before: tuple[int, int] | None) -> None:
        self._db.execute("PRAGMA synchronous = OFF")  # the store is the truth
        version, tables = self._one(
            "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
        )
        if version != VERSION:
            if version or tables or self.read_only:
                raise OtherForm(f"{self.path} is no index of this form")
            self._db.executescript(_TABLES)
        if _definitions(self._db) != _own_definitions():  # a view can have no end, a trigger delete rows
            raise OtherForm(f"{self.path} is no index of this form")
        self._inode = None if self.path is None else _inode(self.path)
        if before not in (None, self._inode):
            raise sqlite3.DatabaseError(f"{self.path} was replaced while it was opened")
        self.mark = self._read_mark()
        if self.path is not None:
            self._check()

    @property
    def current(self) -> bool:
        """Whether the file at its path is still this index."""
        return self.path is None or self._inode == _inode(self.path)

    def add(self, entries: Sequence[Entry], runs: Mapping[str, Span], mark: Mark) -> None:
        """Add the entries and runs up to `mark`; rows that another process has added meanwhile are kept."""
        try:
            self._add(entries, runs, mark)
        except (UnicodeEncodeError, OverflowError):  # rare, and looking for it would cost more than all else
            self._add([Entry(*map(_plain, entry)) for entry in entries], runs, mark)

    def _add(self, entries: Sequence[Entry], runs: Mapping[str, Span], mark: Mark) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            current = self._read_mark()
            if current.scanned < mark.scanned:
                new = [entry for entry in entries if entry.number >= current.episodes]
                self._db.executemany(_INSERT, new)
                spans = [(_plain(run), *span) for run, span in runs.items()]
                self._db.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", spans)
                self._db.execute("DELETE FROM mark")
                self._db.execute("INSERT INTO mark VALUES (?, ?, ?, ?, ?, ?)", mark)
                current = mark
        self.mark = current

    def copy(self) -> Index:
        """Return a temporary index with the same content."""
        other = Index(None)
        self._db.backup(other._db)
        other.mark = other._read_mark()
        other._check()
        return other

    def place(self, number: int, size: int) -> Place:
        """Return the position of an episode's line in a file of `size` bytes, and the episode's id."""
        start, end, id = self._one('SELECT start, "end", id FROM episodes WHERE number = ?', (number,))
        with _readable():
            return *_span(start, end, size), _text(id)

    def number(self, episode: str) -> int | None:
        """Return the number of the first episode with this id, or None."""
        query = "SELECT number FROM episodes WHERE id = ? ORDER BY number LIMIT 1"
        row = self._rows(query, (_plain(episode),)).fetchone()
        with _readable():
            return None if row is None else int(row[0])

    def run(self, run: str, size: int) -> Span | None:
        """Return the position of a run's line in a file of `size` bytes, or None."""
        row = self._rows('SELECT start, "end" FROM runs WHERE id = ?', (_plain(run),)).fetchone()
        return None if row is None else _span(row[0], row[1], size)

    def runs(self) -> list[str]:
        """Return the ids of the runs, in the order of their lines."""
        with _readable():
            return [_text(run) for (run,) in self._rows("SELECT id FROM runs ORDER BY start")]

    def select(self, wanted: Mapping[str, Any], below: int) -> list[Entry]:
        """Return the entries with a number less than `below` that match `wanted`; see `matches`."""
        where, values = _where(wanted, below)
        rows = self._rows(f"SELECT * FROM episodes WHERE {where} ORDER BY number", values)
        with _readable():
            return list(map(_entry, rows))

    def page(
        self, wanted: Mapping[str, Any], below: int, order: str, descending: bool, start: int, count: int
    ) -> tuple[list[Entry], int]:
        """Return `count` of the entries of `select`, beginning at `start`, and the total number.

        They are sorted by `order`, a field of Entry; equal ones by their numbers.
        """
        if not wanted and order == "number":  # then numbers are positions
            first = max(0, below - start - count) if descending else start
            last = below - start if descending else min(below, start + count)
            return self._between(first, last, descending), below
        where, values = _where(wanted, below)
        total = int(self._one(f"SELECT count(*) FROM episodes WHERE {where}", values)[0])
        count = max(0, min(count, total - start))
        backwards = start > total // 2  # pages near the end are faster to reach from the end
        if backwards:
            start, descending = total - start - count, not descending
        way = "DESC" if descending else "ASC"
        by = f'ORDER BY "{order}" {way}, number {way}'
        numbers = f"SELECT number FROM episodes WHERE {where} {by} LIMIT ? OFFSET ?"  # whole rows sort slowly
        rows = self._rows(f"SELECT * FROM episodes WHERE number IN ({numbers}) {by}", (*values, count, start))
        with _readable():
            entries = list(map(_entry, rows))
        return entries[::-1] if backwards else entries, total

    def tally(self, wanted: Mapping[str, Any], below: int) -> list[Tally]:
        """Return the sums over the entries of `select`, by environment, end and outcome."""
        where, values = _where(wanted, below)
        rows = self._rows(
            "SELECT spec, env, stop, verdict, success, count(*), total(reward), total(reward * reward), "
            "count(nullif(reward IN (0, 1), 0)), "
            f"sum(turns), sum(tokens), sum(calls) FROM episodes WHERE {where} "
            "GROUP BY spec, env, stop, verdict, success",
            values,
        )
        with _readable():
            return [
                Tally(
                    _text(spec),
                    _text(env),
                    _text(stop),
                    _text(verdict),
                    None if success is None else success == 1,
                    *sums,
                )
                for spec, env, stop, verdict, success, *sums in rows
            ]

    def tasks(self, below: int) -> list[TaskTally]:
        """Return the sums over the entries with a verdict and a number less than `below`, by task."""
        rows = self._rows(
            'SELECT spec, env, "group", seed, count(*), count(success), total(success), total(reward) '
            "FROM episodes WHERE number < ? AND verdict = 'scored' GROUP BY spec, env, \"group\", seed",
            (below,),
        )
        with _readable():
            return [
                TaskTally(
                    _text(spec), _text(env), _text(group), int(seed), scored, known, int(solved), reward
                )
                for spec, env, group, seed, scored, known, solved, reward in rows
            ]

    def _between(self, first: int, last: int, descending: bool) -> list[Entry]:
        rows = self._rows(
            "SELECT * FROM episodes WHERE number >= ? AND number < ? "
            f"ORDER BY number {'DESC' if descending else 'ASC'}",
            (first, last),
        )
        with _readable():
            return list(map(_entry, rows))

    def at(self, place: int, below: int) -> Entry | None:
        """Return the entry, with a number less than `below`, whose line contains the byte at `place`."""
        low, high = 0, below  # lines are in the order of their numbers
        while low < high:
            middle = (low + high) // 2
            if self._one('SELECT "end" FROM episodes WHERE number = ?', (middle,))[0] <= place:
                low = middle + 1
            else:
                high = middle
        entries = self._between(low, min(low + 1, below), False)
        return entries[0] if entries and entries[0].start <= place else None

    def close(self) -> None:
        """Close the index. Calling it twice is harmless."""
        self._db.close()

    def __del__(self) -> None:
        """Close an index that was left open, for example in a forked process."""
        with suppress(AttributeError):  # where connecting failed
            self._db.close()

    def _read_mark(self) -> Mark:
        row = self._rows("SELECT * FROM mark").fetchone()
        if row is None:
            return Mark()
        if tuple(map(type, row)) != (int, int, int, bytes, int, int) or min(row[:3]) < 0:
            raise sqlite3.DatabaseError(f"the index reaches {row}, which is nowhere")
        mark = Mark(*row)
        if self._value("SELECT max(number) FROM episodes") != (mark.episodes - 1 if mark.episodes else None):
            raise sqlite3.DatabaseError("the index lacks episodes that it says it has")
        return mark

    def _check(self) -> None:
        """Check for damage, in 20 ms for 100,000 episodes; reading lines finds the damage that it misses."""
        count = self._value("SELECT count(*) FROM episodes")
        if count != self.mark.episodes or self._value("PRAGMA quick_check(1)") != "ok":
            raise sqlite3.DatabaseError("the index is damaged")

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        with _readable():  # even the names of its columns may be damaged
            return self._db.execute(query, values)

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        row = self._rows(query, values).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"the index lacks a row: {query}")
        return row

    def _value(self, query: str) -> Any:
        return self._one(query)[0]


def is_same(entry: Entry, made: Entry) -> bool:
    """Return whether an entry of an index is the one made from its line, whose number does not matter.

    SQLite has no NaN, and a last line may have had no line break when it was read.
    """
    reward = None if made.reward is None or isnan(made.reward) else made.reward
    made = made._replace(number=entry.number, reward=reward)
    return entry in (made, made._replace(end=made.end - 1))


def matches(entry: Entry, wanted: Mapping[str, Any]) -> bool:
    """Return whether the fields of an entry have the values in `wanted`.

    `min_reward` and `max_reward` are bounds on the return; an entry without return does not match them.
    `job_prefix` is the start of the job's name. Of a tuple, each value is accepted.
    """
    for name, value in wanted.items():
        if name == "job_prefix":
            fits = entry.job.startswith(value)
        elif name in _BOUNDS:
            reward = entry.reward
            fits = reward is not None and (reward >= value if name == "min_reward" else reward <= value)
        elif isinstance(value, tuple):
            fits = getattr(entry, name) in value
        else:
            fits = getattr(entry, name) == value
        if not fits:
            return False
    return True


def _where(wanted: Mapping[str, Any], below: int) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL condition for `matches` and numbers less than `below`, and its values."""
    terms, values = ["number < ?"], list[Any]([below])
    for name, value in wanted.items():
        if isinstance(value, tuple):
            terms.append(f'"{name}" IN ({", ".join("?" * len(value))})')
            values += map(_plain, value)
        else:
            terms.append(_BOUNDS.get(name, f'"{name}" = ?'))
            values.append(_plain(value))
    return " AND ".join(terms), tuple(values)


@contextmanager
def _readable() -> Iterator[None]:
    """Turn errors in rows of a damaged index, which may hold anything, into sqlite3.DatabaseError."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise sqlite3.DatabaseError(f"the index has a row that cannot be: {error}") from error


def _span(start: Any, end: Any, size: int) -> Span:
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= size:
        raise sqlite3.DatabaseError(f"the index has a line from {start} to {end} in {size} bytes")
    return start, end


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether the index itself is damaged, rather than not writable or not readable now."""
    code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR
    return code & 0xFF not in _CIRCUMSTANCES


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _entry(row: tuple[Any, ...]) -> Entry:
    if bytes in map(type, row):
        row = tuple(_text(value) if isinstance(value, bytes) else value for value in row)
    before, (seed, stop, verdict, success), after = row[:_SEED], row[_SEED:_AFTER], row[_AFTER:]
    if type(seed) is str:
        seed = int(seed, 16)
    return Entry._make((*before, seed, stop, verdict, None if success is None else success == 1, *after))


def _plain(value: Any) -> Any:
    """Convert a value for SQLite: text with lone surrogates becomes bytes, a long integer its digits.

    Raises:
        BadArgument: for a type that no field of an entry has.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    elif isinstance(value, int) and value.bit_length() > 63:
        return hex(value)
    elif not isinstance(value, int | float | None):
        raise BadArgument(f"cannot search for {value!r:.80}; accepted: text, a number, True, False or None.")
    return value


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
