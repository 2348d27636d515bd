"""The episode store: an append-only file, one episode per line.

A line is a JSON object that begins with its schema number. An append is one write of one whole line at the
end of the file, under a file lock, so several writers do not mix. What a killed writer left torn is skipped
and counted, and the next append closes it off. Reading takes no lock and sees each line when it is complete.

Beside the file stands ``<name>.index``: a fingerprint of the file, then where each line starts and ends, so
that a store of 100,000 episodes opens without reading them. It is a cache: made by whoever may write there,
extended as the store grows, made again when it does not fit the file.
"""

from __future__ import annotations

import fcntl
import os
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from operator import index as as_int
from pathlib import Path
from threading import Lock
from typing import Self, overload

import msgspec

from gem.errors import SchemaMismatch, StoreError
from gem.record import SCHEMA, Episode
from gem.rollout.stored import from_stored, to_stored

CHUNK = 1 << 20
HEAD = 4096  # bytes at the file's start that the fingerprint covers
FINGERPRINT = 16
ENTRY = 16  # bytes of an index entry: a line's start and end, 8 each
INDEX_EVERY = 256  # appends after which a writer extends the index
OPENING = b'{"schema":'
CLOSE_OFF = b"!\n"  # ends a torn line; a whole one ends with a brace
_SCHEMA = re.compile(rb'\{"schema":(\d+)[,}]')


class EpisodeStore(Sequence[Episode]):
    """Episodes in a file; a store that somebody else is writing grows under its reader's eyes.

    Integers of numpy and the like come back as plain numbers, tuples in `info` as lists, and objects without
    a JSON form as their repr; NaN, infinities, pictures and lone surrogates come back as they were.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, tokens: bool = True, fsync: bool = False
    ) -> None:
        """Open the store at `path`; the file is created when it is not there.

        Args:
            path: the file; its folder must exist.
            read_only: refuse to append, and refuse a file that is not there.
            tokens: False leaves token ids and log probabilities out of what is appended.
            fsync: wait at every append until the line is on the disk.

        Raises:
            StoreError: when the file cannot be opened, or is not a store.
            SchemaMismatch: when it was written under another schema.
        """
        self.path = Path(path)
        self.tokens, self.fsync = tokens, fsync
        self._lock = Lock()
        self._bounds = array("Q")  # start and end of each line, in turn
        self._scanned = 0
        self._appended = 0
        self._fd = -1
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND | os.O_CREAT
        try:
            self._fd = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            hint = "" if self.path.parent.is_dir() else " Make its folder first."
            raise StoreError(
                f"{self.path}: cannot open the episode store: {error.strerror}.{hint}"
            ) from error
        self._read_only = read_only
        try:
            self._check_schema()
            self._load_index()
            self.refresh()
        except BaseException:
            self.close()
            raise

    # -- writing

    def append(self, episode: Episode) -> None:
        """Write one episode at the end.

        Raises:
            StoreError: when it cannot be written (full disk, read-only store); nothing of it stays behind.
        """
        if self._read_only:
            raise StoreError(f"{self.path}: the episode store is open read-only.")
        self._check_open()
        # Token ids are not looked at one by one; numpy's become plain here.
        line = msgspec.json.encode(to_stored(episode, self.tokens), enc_hook=as_int) + b"\n"
        with self._lock, _exclusive(self._fd):
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                line = CLOSE_OFF + line
            try:
                self._write(line)
                if self.fsync:
                    os.fsync(self._fd)
            except BaseException as error:
                with suppress(OSError):
                    os.ftruncate(self._fd, size)
                if isinstance(error, OSError):
                    raise StoreError(f"{self.path}: cannot append an episode: {error.strerror}.") from error
                raise
        self._appended += 1
        if self._appended % INDEX_EVERY == 0:
            self.refresh()

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:  # one call, but for a disk that takes only a part; the next call then says why
            view = view[os.write(self._fd, view) :]

    # -- reading

    def __len__(self) -> int:
        """How many episodes there are by now."""
        self.refresh()
        return len(self._bounds) // 2

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        """Return one episode, or a list of them, reading nothing else.

        Raises:
            IndexError: when there is no such episode.
            StoreError: when its line is damaged. SchemaMismatch: when it has another schema.
        """
        if isinstance(index, slice):
            return [self._read(i) for i in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{self.path} holds {count} episodes; there is no number {index}.")
        return self._read(index % count)

    def __iter__(self) -> Iterator[Episode]:
        """Yield every episode, those that are appended meanwhile included."""
        index = 0
        while index < len(self):
            yield self._read(index)
            index += 1

    def refresh(self) -> int:
        """Take note of lines that were added since, and return how many there were."""
        self._check_open()
        with self._lock:
            return self._refresh()

    @property
    def torn(self) -> int:
        """How many stretches of torn lines are skipped; a last line still in the making is one."""
        self.refresh()
        ends = (0, *self._bounds[1::2])
        starts = (*self._bounds[::2], os.fstat(self._fd).st_size)
        return sum(start > end for end, start in zip(ends, starts, strict=True))

    def close(self) -> None:
        """Write the index and close the file. Calling it twice is harmless."""
        with self._lock:
            if self._fd >= 0:
                with suppress(OSError):
                    self._refresh()
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _read(self, index: int) -> Episode:
        start, end = self._bounds[2 * index : 2 * index + 2]
        line = os.pread(self._fd, end - start, start)
        self._check_line(line[:64], start)
        try:
            return from_stored(msgspec.json.decode(line))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.path}: episode {index} (byte {start}) is damaged: {type(error).__name__}: {error}"
            ) from error

    def _check_open(self) -> None:
        if self._fd < 0:
            raise StoreError(f"{self.path}: the episode store is closed; open it again.")

    def _check_schema(self) -> None:
        head = os.pread(self._fd, 64, 0).partition(CLOSE_OFF)[0]
        torn = OPENING.startswith(head[: len(OPENING)]) and not _SCHEMA.match(head)
        if not torn:  # nor empty: a first line may be in the making
            self._check_line(head, 0)

    def _check_line(self, head: bytes, start: int) -> None:
        found = _SCHEMA.match(head)
        if found is None:
            raise StoreError(f"{self.path}: byte {start} does not begin an episode, but {head[:40]!r}.")
        if int(found[1]) != SCHEMA:
            raise SchemaMismatch(
                f"{self.path}: byte {start} begins an episode of schema {int(found[1])}; this version of gem "
                f"reads schema {SCHEMA}. Read it with the version that wrote it."
            )

    # -- the index

    def _refresh(self) -> int:
        size = os.fstat(self._fd).st_size
        if size < self._scanned:  # somebody cut or replaced the file: what we know of it is void
            self._bounds, self._scanned = array("Q"), 0
        if size == self._scanned:
            return 0
        known = len(self._bounds)
        start, at, before = self._scanned, self._scanned, b""
        while data := os.pread(self._fd, CHUNK, at):
            end = data.find(b"\n")
            while end >= 0:
                last = data[end - 1 : end] if end else before
                if last == b"}":
                    self._bounds.extend((start, at + end + 1))  # else it is torn: closed off by an append
                start = at + end + 1
                end = data.find(b"\n", end + 1)
            at += len(data)
            before = data[-1:]
        self._scanned = start
        found = (len(self._bounds) - known) // 2
        if found:
            self._save_index(known)
        return found

    @property
    def _index_path(self) -> Path:
        return self.path.with_name(self.path.name + ".index")

    def _fingerprint(self) -> bytes:
        first_line = os.pread(self._fd, HEAD, 0).partition(b"\n")[0]
        return blake2b(first_line, digest_size=FINGERPRINT).digest()

    def _load_index(self) -> None:
        """Take the index over when it fits: the same first line, and a line where its last one is."""
        try:
            data = self._index_path.read_bytes()
        except OSError:
            return
        if data[:FINGERPRINT] != self._fingerprint():
            return
        bounds = array("Q")
        bounds.frombytes(data[FINGERPRINT : len(data) - (len(data) - FINGERPRINT) % ENTRY])
        if not bounds:
            return
        start, end = bounds[-2], bounds[-1]
        fits = end - start >= 2 and os.pread(self._fd, 2, end - 2) == b"}\n"
        if fits and (start == 0 or os.pread(self._fd, 1, start - 1) == b"\n"):
            self._bounds, self._scanned = bounds, end

    def _save_index(self, known: int) -> None:
        """Write down what was found behind the `known` first numbers; all of it where the index differs."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        with suppress(OSError):  # a cache: a folder that we may not write, or a full disk, does not matter
            fd = os.open(self._index_path, flags, 0o644)
            try:
                with _exclusive(fd):
                    size = FINGERPRINT + known * 8
                    current = (
                        os.fstat(fd).st_size == size and os.pread(fd, FINGERPRINT, 0) == self._fingerprint()
                    )
                    if current and known:
                        os.pwrite(fd, self._bounds[known:].tobytes(), size)
                    else:
                        os.ftruncate(fd, 0)
                        os.pwrite(fd, self._fingerprint() + self._bounds.tobytes(), 0)
            finally:
                os.close(fd)


@contextmanager
def _exclusive(fd: int) -> Iterator[None]:
    """Hold the file's lock; writers of the same file wait for one another."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
