"""CachedGrader: grades the same answer to the same reference only once."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

from gem.closing import Closing
from gem.errors import BadArgument, StoreError, check_least
from gem.graders.base import UNDECIDED, Grader, Score, grade_with, takes_question
from gem.specs import Rebuildable, arguments_of, written_arguments


class CachedGrader(Rebuildable, Closing):
    """A grader that caches scores in memory and, optionally, in a file.

    The key is a hash of the grader's name and settings, the reference, the answer, and the question where the
    grader sees it. Exceptions such as
    NoVerdict are not cached, nor are scores left undecided because a budget ran out. Threads may share one
    cache, and processes may share the file.
    """

    def __init__(
        self,
        grader: Grader,
        path: str | Path | None = None,
        *,
        name: str | None = None,
        capacity: int = 65_536,
    ) -> None:
        """Wrap `grader`.

        Args:
            grader: the grader of answers that are not in the cache.
            path: an SQLite file, created if absent; None keeps scores in memory only.
            name: a name for the grader, its version and its settings; by default its `name` and the arguments
                that it was made with.
            capacity: the most scores to keep in memory.

        Raises:
            BadArgument: when the grader has no name, or was made with arguments that cannot be serialized.
            StoreError: when the file cannot be used.
        """
        name = name or _name_grader(grader)
        check_least("capacity", capacity)
        self.grader, self.name, self.capacity = grader, name, capacity
        self.hits = self.misses = 0
        self._kept: OrderedDict[bytes, Score] = OrderedDict()
        self._lock = Lock()
        self._path, self._file = path, None if path is None else _open_file(Path(path))

    @property
    def waits(self) -> bool:
        """Whether the grader waits for a server."""
        return getattr(self.grader, "waits", False)

    def __call__(self, answer: str, reference: Any, question: str | None = None) -> Score:
        """Return the cached score, or grade the answer and cache the score."""
        key = self._key(answer, reference, question if takes_question(self.grader) else None)
        with self._lock:
            score = self._kept.get(key) or self._read_score(key)
            if score is not None:
                self.hits += 1
                self._keep(key, score)
                return score
            self.misses += 1
        # what is kept is kept for good
        score = grade_with(self.grader, answer, reference, question)
        with self._lock:
            if score.why != UNDECIDED:
                self._keep(key, score)
                self._store(key, score)
        return score

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _key(self, answer: str, reference: Any, question: str | None) -> bytes:
        digest = blake2b(digest_size=16)
        for part in (self.name, repr(reference), answer, *([] if question is None else [question])):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.digest()

    def _keep(self, key: bytes, score: Score) -> None:
        self._kept[key] = score
        self._kept.move_to_end(key)
        if len(self._kept) > self.capacity:
            self._kept.popitem(last=False)

    def _read_score(self, key: bytes) -> Score | None:
        if self._file is None:
            return None
        try:
            row = self._file.execute("SELECT score FROM verdicts WHERE key = ?", (key,)).fetchone()
            return None if row is None else Score(**json.loads(row[0]))
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{self._path}: a verdict cannot be read: {error}. Name another file, or remove this one."
            ) from error

    def _store(self, key: bytes, score: Score) -> None:
        if self._file is None:
            return
        fields = {
            "value": score.value,
            "correct": score.correct,
            "parsed": score.parsed,
            "why": score.why,
            "info": dict(score.info),
        }
        data = json.dumps(fields, default=repr)
        try:
            with self._file:
                self._file.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, data))
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: a verdict cannot be stored: {error}") from error


def _name_grader(grader: Grader) -> str:
    """Return a name that differs for graders that grade differently."""
    name = getattr(grader, "name", None)
    if not name or not isinstance(name, str):
        raise BadArgument(f"{type(grader).__name__} has no name; give one, as name='mine/1'.")
    if not isinstance(grader, Rebuildable):
        return name
    settings, opaque = written_arguments(type(grader), arguments_of(grader))
    if opaque:
        raise BadArgument(
            f"verdicts of {type(grader).__name__} cannot be told from those under other settings: "
            f"{', '.join(opaque)} cannot be written down. Give a name that says them, as name='mine/1'."
        )
    return f"{name}:{json.dumps(settings, sort_keys=True)}" if settings else name


def _open_file(path: Path) -> sqlite3.Connection:
    file = None
    try:
        if path.is_fifo():  # SQLite would wait for a writer
            raise sqlite3.OperationalError("it is a pipe, not a file")
        file = sqlite3.connect(path, timeout=60, check_same_thread=False)
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("PRAGMA synchronous=NORMAL")
        file.execute("CREATE TABLE IF NOT EXISTS verdicts (key BLOB PRIMARY KEY, score TEXT NOT NULL)")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite quotes a damaged schema
        if file is not None:
            file.close()
        raise StoreError(f"{path}: cannot use the file of verdicts: {error}") from error
    return file
