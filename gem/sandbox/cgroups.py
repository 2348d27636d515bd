"""Memory control groups, where the system offers them: the kernel then limits all memory of a call.

Groups are made below this process's own group, or next to it, and reused for one call after another. Versions
1 and 2 are never assumed but tested: a group is made, limited, entered and removed first. A child enters its
group by itself, through a descriptor, before it uses any memory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import secrets
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SLACK = 16 << 20  # of the kernel's own memory for a call, and pages that are not given back at once
IDLE = 64  # groups that are kept for later calls
YOUNG_S = 10.0  # for so long a group may be one that its maker has yet to lock
_NAME, _TRIED = "gem-", 64 << 20  # a program may see the name: it says nothing


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which groups can be made, and the version of control groups there."""

    folder: str
    version: int
    own: bool = True  # this process is in it

    @property
    def files(self) -> tuple[str, str]:
        """Return the file of the limit, and the file that counts the processes killed by it."""
        return (
            ("memory.limit_in_bytes", "memory.oom_control")
            if self.version == 1
            else ("memory.max", "memory.events")
        )


class Group:
    """A control group; `procs` is the descriptor through which a process enters it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.path = os.path.join(place.folder, f"{_NAME}{secrets.token_hex(8)}")
        self.limit = self.ended_before = 0
        self.procs = self.events = -1
        os.mkdir(self.path)
        try:
            self.procs = os.open(f"{self.path}/cgroup.procs", os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self.procs, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while this process lives it is in use
            self.events = os.open(f"{self.path}/{place.files[1]}", os.O_RDONLY | os.O_CLOEXEC)
            if place.version == 2:
                with contextlib.suppress(OSError):  # no swap, or no such file
                    self._write("memory.swap.max", 0)
                self._write("memory.oom.group", 1)
        except OSError:
            self.remove()
            raise

    def hold(self, limit: int) -> None:
        """Limit the group to `limit` bytes more than it still holds from earlier calls. Raises OSError."""
        file = "memory.usage_in_bytes" if self.place.version == 1 else "memory.current"
        used = int(Path(self.path, file).read_text())
        limit += SLACK + (used if used > SLACK else 0)
        if limit != self.limit:
            both = "memory.memsw.limit_in_bytes"  # may not be less than the other; absent without swap
            swaps = self.place.version == 1 and os.path.exists(f"{self.path}/{both}")
            if swaps and limit > self.limit > 0:
                self._write(both, limit)
            self._write(self.place.files[0], limit)
            if swaps:
                self._write(both, limit)
            self.limit = limit
        self.ended_before = self._count_killed()

    def burst(self) -> bool:
        """Return whether a process was killed for lack of memory since the last call of this or of `hold`."""
        with contextlib.suppress(OSError):
            before, self.ended_before = self.ended_before, self._count_killed()
            return self.ended_before > before
        return False

    def empty(self) -> bool:
        """Return whether the group has no process."""
        with contextlib.suppress(OSError):
            return not os.pread(self.procs, 16, 0)
        return False

    def remove(self) -> None:
        """Remove the group if it is empty."""
        self.forget()
        for _ in range(20):  # its last process may be ending
            try:
                os.rmdir(self.path)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
                time.sleep(0.01)
            else:
                return

    def forget(self) -> None:
        """Close the group's descriptors."""
        fds, self.procs, self.events = (self.procs, self.events), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def _count_killed(self) -> int:
        match = re.search(rb"^oom_kill (\d+)", os.pread(self.events, 4096, 0), re.MULTILINE)
        return int(match[1]) if match else 0

    def _write(self, name: str, value: int) -> None:
        Path(self.path, name).write_text(str(value))


class Groups:
    """The control groups of a sandbox, if it uses any: made when needed, kept, removed at the end."""

    def __init__(self, *, use: bool = True) -> None:
        self.place = find() if use else None
        self._lock = threading.Lock()
        self._idle: list[Group] = []
        self._late: list[Group] = []  # in which processes were still ending

    @property
    def version(self) -> int:
        """Return the version of control groups; 0 if none can be used."""
        return self.place.version if self.place else 0

    def take(self, limit: int) -> Group | None:
        """Return a group that limits its processes to `limit` bytes; None if no group can be made."""
        if self.place is None:
            return None
        with self._lock:
            group = self._idle.pop() if self._idle else None
            late, self._late = self._late, []
        for other in late:
            self.give(other)
        try:
            group = group or Group(self.place)
            group.hold(limit)
        except OSError:
            if group is not None:
                group.remove()
            return None
        return group

    def give(self, group: Group) -> None:
        """Take a group back for reuse."""
        empty = group.empty()
        with self._lock:
            kept = self._idle if empty else self._late
            if self.place is not None and len(kept) < IDLE:
                kept.append(group)
                return
        group.remove()

    def give_up(self) -> None:
        """Stop making groups, because a child could not enter one."""
        self.place = None

    def close(self) -> None:
        """Remove all groups."""
        with self._lock:
            groups, self._idle, self._late = [*self._idle, *self._late], [], []
            self.place = None
        for group in groups:
            group.remove()

    def forget(self) -> None:
        """Forget the groups in a forked process; they belong to the parent."""
        for group in (*self._idle, *self._late):
            group.forget()
        self._idle, self._late = [], []


def find() -> Place | None:
    """Return the place where memory groups can be made, tested at first use; None if there is none."""
    return _find_for(os.getpid())


@functools.cache
def _find_for(process: int) -> Place | None:
    return next((place for place in _places() if _works(place)), None)


def _places(proc: str = "/proc/self") -> list[Place]:
    """Return the folders to try: this process's own group, and its parent in version 2.

    In version 2 a group that has processes, except the root group, cannot have groups below it that limit
    memory.
    """
    try:
        mounts = [line.split() for line in Path(proc, "mountinfo").read_text().splitlines()]
        own = [line.split(":", 2) for line in Path(proc, "cgroup").read_text().splitlines()]
    except OSError:
        return []
    places = []
    for _, controllers, path in own:
        version = 2 if not controllers else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            root, at, (kind, _, options) = mount[3], mount[4], mount[mount.index("-") + 1 :][:3]
            if kind != ("cgroup2" if version == 2 else "cgroup"):
                continue
            if version == 1 and "memory" not in options.split(","):
                continue
            if (path + "/").startswith(root.rstrip("/") + "/"):
                folder = os.path.normpath(f"{at}/{path[len(root.rstrip('/')) :]}")
                places.append(Place(folder, version))
                if version == 2 and folder != os.path.normpath(at):
                    places.append(Place(os.path.dirname(folder), version, own=False))
    return places


def _works(place: Place) -> bool:
    """Test a place: make a group, limit it, let a process enter it, remove it; remove stale groups too."""
    group = None
    try:
        control = Path(place.folder, "cgroup.subtree_control")
        if place.version == 2 and "memory" not in control.read_text().split():
            if not place.own:
                return False
            control.write_text("+memory")
        _remove_stale(place)
        group = Group(place)
        group.hold(_TRIED)
        if int(Path(group.path, place.files[0]).read_text()) != group.limit:
            return False
        with subprocess.Popen(
            ["/bin/sh", "-c", "echo 0 && echo in >&2 && read x"],
            stdin=subprocess.PIPE,
            stdout=group.procs,
            stderr=subprocess.PIPE,
            env={},
        ) as process:
            assert process.stderr is not None
            return process.stderr.readline() == b"in\n" and not group.empty()
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    finally:
        if group is not None:
            group.remove()


def _remove_stale(place: Place) -> None:
    """Remove the groups of processes that were killed: their locks are free."""
    for name in os.listdir(place.folder):
        path = os.path.join(place.folder, name)
        with contextlib.suppress(OSError):
            if not name.startswith(_NAME) or time.time() - os.stat(path).st_mtime < YOUNG_S:
                continue
            procs = os.open(f"{path}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(procs, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rmdir(path)
            finally:
                os.close(procs)
