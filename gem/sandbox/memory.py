"""Memory accounting: count the memory of a child and its descendants, and grant or refuse shared memory.

It uses the standard library only, because it runs inside the sandbox. It counts:

- what each process holds: pages that no file backs, those of them that were swapped out, and page tables;
- shared memory without a name. Its pages stay allocated while one of them is mapped anywhere, so the
  processes do not show its size. Instead every such mapping needs permission: a separate system-call filter
  (`seccomp.memory_program`) stops the call, and the fork server grants or refuses it by its length;
- what sockets and pipes may hold, if there are many of them.

Reading most of this never waits for the process. Only its maps and its shared part are behind a lock that any
of its threads may hold, even one that gets no CPU time. So these are read in a thread, see `Look`.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from gem.sandbox.template import CLONE

MANY_FILES = 64  # open in all processes of a call, from which on its sockets and pipes are counted
_BYTES = {"socket": 512 << 10, "pipe": 64 << 10}  # what one may hold: twice the default
RECENT_S = 2.0  # for so long, a busy thread may not have come to the mapping that it was granted
PAUSE_S = 0.02  # after a refusal, in which the next is made without a look: others wait meanwhile
LISTINGS = 20  # of a process's threads, after which one that hides what it holds is over the limit
LOOK_S = 0.05  # others wait so long for what may be behind a lock
REST_S = 0.5  # before they wait again
PATIENCE_S = 3.0  # after which what is shared, and nobody can tell, counts in each process
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1  # SECCOMP_IOCTL_NOTIF_*
_KCMP = {"x86_64": 312, "aarch64": 272, "arm64": 272}.get(platform.machine())
_KCMP_VM = 1
_api = ctypes.CDLL(None)
_THREADS = re.compile(rb"^Threads:\s*(\d+)", re.MULTILINE)
_HELD = (b"\nRssAnon:", b"\nVmSwap:", b"\nVmPTE:")
_PARTS = (b"\nPss_Anon:", b"\nSwapPss:")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A thread that waits for permission to map `length` bytes of shared memory, or to start a thread."""

    listener: int
    number: int
    thread: int
    length: int
    another: bool = False

    def let(self) -> None:
        """Grant the request."""
        try:
            self._answer(0, _CONTINUE)
        except OSError as error:
            if error.errno == errno.EINVAL:  # Linux 5.0 to 5.4 cannot let a call go on
                self.refuse()

    def refuse(self) -> None:
        """Make the call fail."""
        with contextlib.suppress(OSError):  # it may be gone
            self._answer(-(errno.EAGAIN if self.another else errno.ENOMEM), 0)

    def _answer(self, error: int, flags: int) -> None:
        fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(self.number, 0, error, flags))


def hear(listener: int) -> Asked | None:
    """Return the next thread that asks, or None if it is gone."""
    notice = bytearray(_NOTICE.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, notice)
    except OSError:
        return None
    number, thread, _, call, *_, length, _, _, _, _ = _NOTICE.unpack(notice)
    return Asked(listener, number, thread, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE, call == CLONE)


def process_of(thread: int) -> int:
    """Return the process that a thread belongs to; 0 if it is gone."""
    match = re.search(rb"^Tgid:\s*(\d+)", _read(f"/proc/{thread}/status"), re.MULTILINE)
    return int(match[1]) if match else 0


class Look:
    """A reader, in its own thread, of facts for which a process may make readers wait."""

    def __init__(self) -> None:
        self._done: _thread.LockType | None = None
        self._results: list[Any] = []
        self._rested = 0.0

    def __call__(self, find: Callable[[], T]) -> T | None:
        """Return the result of `find`; None while it takes long, and its result at a later call."""
        if self._done is None:
            self._done, self._results = _thread.allocate_lock(), []
            self._done.acquire()
            try:
                _thread.start_new_thread(_find, (find, self._results, self._done))
            except RuntimeError:  # the user has no more of them
                self._done = None
                return None
        wait = LOOK_S if time.monotonic() >= self._rested else 0.0
        if not self._done.acquire(timeout=wait):
            if wait:
                self._rested = time.monotonic() + REST_S
            return None
        self._done = None
        return self._results[0] if self._results else None


def _find(find: Callable[[], Any], results: list[Any], done: _thread.LockType) -> None:
    try:
        results.append(find())
    finally:
        done.release()


@dataclass(slots=True)
class Account:
    """The memory account of a child: its limit in bytes (0: no limit) and the shared memory it was granted.

    `own` bytes of the limit are for gem's half of a call and page tables, and are not granted.
    `lengths` counts, by length, the mappings granted since there was none. Each living mapping was granted
    once. So n living mappings hold no more than the n longest granted ones.
    """

    limit: int
    own: int = 0
    granted: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    refused: float = 0.0
    on_their_way: dict[int, float] = field(default_factory=dict)  # threads that may not have mapped yet
    grants: int = 0
    maps: Look = field(default_factory=Look)
    parts: Look = field(default_factory=Look)
    spells: int = 0  # of being within the limit: what was asked in one says nothing in the next
    blind: float = 0.0  # since when it cannot be told what is shared
    sizes: dict[int, int] = field(default_factory=dict)  # what processes held then, or when they were new

    def measure_use(self, processes: list[int], below: Callable[[], list[int]], shared: int) -> int:
        """Return the bytes that a child and its descendants hold; `below` lists these processes again.

        The fork server's own pages, `shared` bytes, count in each process that was forked from it. They are
        subtracted only if the sum is over the limit, and shared pages are counted exactly only if that
        decides, because it takes long. While a process prevents this measurement, it counts as within the
        limit, for a short time and as long as it does not grow.
        """
        looked = [measure_by_threads(pid) for pid in processes]
        if None in looked and self.limit:
            return self.limit + 1
        both = [look or (pid, 0) for pid, look in zip(processes, looked, strict=True)]
        threads, each = [thread for thread, _ in both], [size for _, size in both]
        more = self.granted + in_files(processes, self.limit)
        untold = False
        if self.granted and sum(each) + more > self.limit > 0:
            before = self.granted
            untold = not self._take_back(processes, below)
            more -= before - self.granted
        own, total = sum(max(0, size - shared) for size in each), sum(each) + more
        if total <= self.limit or not self.limit:
            self.blind = 0.0
            self.spells += 1
            return own + more if len(each) == 1 else total
        if not untold and (own + more <= self.limit or len(each) > 1):  # which share since they were forked
            rest = (shared, self.limit - more, self.spells)
            own_bytes, spell = self.parts(partial(_sum_shares, processes, threads, each, *rest)) or (None, 0)
            untold, own = own_bytes is None or spell != self.spells, own_bytes or 0
        if not untold:
            self.blind = 0.0
            return own + more
        now = time.monotonic()
        if not self.blind:
            self.blind, self.sizes = now, {}
        patient = now < self.blind + PATIENCE_S
        grown = (
            size - self.sizes.setdefault(pid, size)
            for pid, size in zip([0, *processes], [more, *each], strict=True)
        )
        return self.limit if patient and sum(max(0, size) for size in grown) <= self.limit // 2 else total

    def grant(self, asked: Asked, below: Callable[[], list[int]]) -> None:
        """Grant a thread the mapping that it asks for, or refuse it."""
        self.on_their_way.pop(asked.thread, None)
        now, most = time.monotonic(), self.limit - self.own
        if 0 < most < self.granted + asked.length and now > self.refused + PAUSE_S:
            self._take_back(below(), below)
        if 0 < most < self.granted + asked.length:
            asked.refuse()
            self.refused = time.monotonic()
            return
        self.granted += asked.length
        self.grants += 1
        self.lengths[asked.length] += 1
        self.on_their_way[asked.thread] = now
        asked.let()

    def _take_back(self, processes: list[int], below: Callable[[], list[int]]) -> bool:
        """Subtract granted memory that is certainly gone; return False while that is unknown."""
        since = time.monotonic() - RECENT_S
        self.on_their_way = {
            thread: at for thread, at in self.on_their_way.items() if at > since and _busy(thread)
        }
        alive = self.maps(partial(_alive, processes, self.grants, len(self.on_their_way)))
        if alive is None or alive[1] != self.grants:
            return False
        processes, _, left = alive
        if left < 0 or set(below()) - set(processes):  # born since, with what its parent had
            return True
        most = 0
        if not left:
            self.lengths.clear()
        for length in sorted(self.lengths, reverse=True):
            most += length * min(left, self.lengths[length])
            left -= min(left, self.lengths[length])
        self.granted = min(self.granted, most)
        return True


def _alive(processes: list[int], grants: int, on_their_way: int) -> tuple[list[int], int, int]:
    """Return the arguments and the number of nameless shared memories in use, -1 if some are hidden."""
    alive: set[bytes] = set()
    for pid in processes:
        mapped = shared_memory(pid)
        if mapped is None:
            return processes, grants, -1
        alive |= mapped
    return processes, grants, len(alive) + on_their_way


def _sum_shares(
    processes: list[int], threads: Sequence[int], each: Sequence[int], shared: int, enough: int, spell: int
) -> tuple[int | None, int]:
    """Return the bytes of processes, each with its part of what it shares, up to `enough`, and `spell`.

    None if that is exceeded and a process ended meanwhile: the others' parts grew while they were added up.
    """
    own, counted = 0, list[int]()
    for pid, thread, size in zip(processes, threads, each, strict=True):
        if any(have_one_memory(thread, other) for other in counted):
            continue
        counted.append(thread)
        own += measure_share(pid, max(0, size - shared) if pid == processes[0] else size)
        if own > enough:
            ended = any(size and _has_ended(pid) for pid, size in zip(processes, each, strict=True))
            return (None if ended else own), spell
    return own, spell


def _has_ended(pid: int) -> bool:
    thread_and_size = measure_by_threads(pid)
    return thread_and_size is not None and not thread_and_size[1]


def have_one_memory(thread: int, other: int) -> bool:
    """Return whether two processes, each given by a thread, have one memory, as after a vfork.

    False where the kernel does not say.
    """
    same = _KCMP is not None and _api.syscall(*map(ctypes.c_long, (_KCMP, thread, other, _KCMP_VM))) == 0
    return same and measure(thread) > 0  # those that have ended are alike in having none


def _busy(thread: int) -> bool:
    return _read(f"/proc/{thread}/stat").rpartition(b") ")[2][:1] in (b"R", b"D")


def measure(pid: int) -> int:
    """Return the bytes that a process holds, including those it shares since a fork.

    0 if it is gone, or its first thread is; `pid` may be any of its threads.
    """
    return _sum(_read(f"/proc/{pid}/status"), _HELD)


def measure_by_threads(pid: int) -> tuple[int, int] | None:
    """Return a thread by which the memory of a process can be read, and the bytes that the process holds.

    For the rest see `ask_threads`.
    """
    return ask_threads(pid, measure)


def ask_threads(pid: int, find: Callable[[int], T]) -> tuple[int, T] | None:
    """Return a thread of a process by which `find` finds something, and what it finds.

    The thread is the first one, `pid`, unless that has ended: then nothing is known of it, though the others
    go on. If nothing is found by any, that is returned. None if each of many looks found only threads that
    have ended, and more of them.
    """
    if result := find(pid):
        return pid, result
    before: list[int] = []
    for _ in range(LISTINGS):
        tasks = _list_threads(pid)
        for task in tasks:
            if result := find(task):
                return task, result
        # A thread that has no memory never has any again. If the same ones are all there are, all is gone.
        left = _THREADS.search(_read(f"/proc/{pid}/status"))
        count = 0 if left is None else int(left[1])
        if count < 2 or (tasks == before and count == len(tasks)):
            return pid, result
        before = tasks
    return None


def _list_threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def measure_share(pid: int, otherwise: int) -> int:
    """Return the bytes of a process, including its part of what it shares; `otherwise` if that is hidden."""
    return (ask_threads(pid, partial(_measure_share_by, otherwise)) or (pid, otherwise))[1]


def _measure_share_by(otherwise: int, thread: int) -> int:
    text = _read(f"/proc/{thread}/smaps_rollup")
    if not text:
        return min(otherwise, measure(thread))  # nothing, if it ended meanwhile
    return _sum(text, _PARTS) + _sum(_read(f"/proc/{thread}/status"), _HELD[2:])


def shared_memory(pid: int) -> set[bytes] | None:
    """Return the ids of the nameless shared memory that a process maps; None if they are hidden."""
    try:
        _, maps = ask_threads(pid, _read_maps) or (pid, None)
    except OSError:
        return None
    return None if maps is None else set(_shared_line().findall(maps))


def _read_maps(thread: int) -> bytes:
    try:
        with open(f"/proc/{thread}/maps", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def in_files(processes: Sequence[int], enough: int) -> int:
    """Return the bytes that sockets and pipes of processes may hold, counted up to `enough`.

    0 if few are open.
    """
    if sum(map(_open_files, processes)) <= MANY_FILES:
        return 0
    counted: set[str] = set()
    total = 0
    for pid in processes:
        _, links = ask_threads(pid, _links) or (pid, set())
        if not links:  # it hides, if it is not gone: all may be sockets
            total += _open_files(pid) * _BYTES["socket"]
        total += sum(_BYTES.get(name.partition(":")[0], 0) for name in links - counted)
        counted |= links
        if total > enough > 0:  # growing, perhaps, while it is looked at
            break
    return total


def _links(thread: int) -> set[str]:
    links: set[str] = set()
    with contextlib.suppress(OSError):  # it is gone, or hides
        folder = os.open(f"/proc/{thread}/fd", os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    links.add(os.readlink(name, dir_fd=folder))
        finally:
            os.close(folder)
    return links


def _open_files(pid: int) -> int:
    return (ask_threads(pid, _count_files) or (pid, 0))[1]


def _count_files(thread: int) -> int:
    with contextlib.suppress(OSError):  # gone, or hidden from an old kernel's reader
        files = f"/proc/{thread}/fd"
        return os.stat(files).st_size or len(os.listdir(files))  # 0 before Linux 6.2
    return 0


@cache
def _shared_line() -> re.Pattern[bytes]:
    """Return the pattern of a maps line of such a mapping: shared, in the kernel's own file system for it."""
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_SHARED) as own, open("/proc/self/maps", "rb") as file:
        own[0] = 1
        device = re.search(rb"^\S+ ...s \S+ (\S+) \d+ +/dev/zero", file.read(), re.MULTILINE)
    name = re.escape(device[1]) if device else rb"\S+"
    return re.compile(rb"^\S+ ...s \S+ " + name + rb" ([1-9]\d*)", re.MULTILINE)


def _read(path: str) -> bytes:
    try:  # for every process at every look, where a file object would cost as much as the rest
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 8192)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _sum(text: bytes, names: tuple[bytes, ...]) -> int:
    """Return the sum in bytes of the named lines of a /proc file, which are in kB."""
    total = 0
    for name in names:
        if (at := text.find(name)) >= 0:
            total += int(text[at + len(name) : text.index(b"kB", at)]) << 10
    return total
