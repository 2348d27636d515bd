"""What a child gives up before it runs a line that is not ours: namespaces, mounts, limits, capabilities.

Standard library alone: this runs inside the box. The order matters. Mounts come before the child's own user
namespace (a fresh /proc needs power over the process namespace's owner), the limit on processes after it
(processes are counted per user and namespace), the system-call filter last.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import math
import os
import resource
import socket
import struct
from collections.abc import Sequence
from typing import TypedDict

from gem.sandbox import landlock

HOME = "/sandbox"
SHARED = "/dev/shm"
USER = 1000
HOLD = "/run"  # where a child's tmpfs is mounted while its folders are bound from it

NEW_NS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC = 2, 4, 8, 4096, 16384
_MNT_DETACH = 2
_PDEATHSIG, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVS, _CHILD_SUBREAPER = 1, 4, 22, 38, 36
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_STACK = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_CAPABILITIES = struct.pack("Ii", 0x20080522, 0)


class Limits(TypedDict):
    """What a child may use: bytes, seconds and counts, as `Budget` has them; no CPU limit if `cpu_s` is 0."""

    cpu_s: float
    memory: int
    processes: int
    file: int
    disk: int
    inodes: int
    open_files: int


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def enter(namespace: int, kind: int) -> None:
    """Enter a namespace by its descriptor. Raises OSError."""
    _check(_libc.setns(namespace, kind), "setns")


def step_down(user: int) -> None:
    """Turn real root into `user` with power over new namespaces alone. Returns in a process of its own.

    The caller stays behind to wait for that process, and ends as it does.
    """
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)  # a whole one must be in sight for new ones
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _prctl(_DUMPABLE, 1)  # or our own maps would not be ours to write
    unshare(NEW_USER | NEW_NS | NEW_PID)
    _map(0, user)
    if (pid := os.fork()) != 0:
        os.closerange(0, 1 << 16)
        _, status = os.waitpid(pid, 0)
        os._exit(status & 0xFF and 1)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def give_up_root(user: int) -> None:
    """Become `user` for good, where there is no box. Raises OSError."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _prctl(_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Make descendants whose parent died children of this process."""
    _prctl(_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends."""
    _prctl(_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


def furnish(limits: Limits, keep: Sequence[str], *, loopback: bool) -> None:
    """Give the first process of a new process namespace mounts, and a network if asked, of its own.

    One tmpfs, bounded in bytes and files, holds all that can be written: the home, /tmp and /dev/shm. `keep`
    names entries of these folders that stay in sight, read-only as they are: an interpreter below /tmp.
    """
    unshare(NEW_NS | NEW_IPC | (NEW_NET if loopback else 0))
    if loopback:
        _raise_loopback()
    size = f"size={limits['disk']},nr_inodes={limits['inodes']},mode=0755"
    mount("tmpfs", HOLD, "tmpfs", _NOSUID | _NODEV, size)
    for name, target, mode in (("home", HOME, 0o755), ("tmp", "/tmp", 0o1777), ("shm", SHARED, 0o1777)):
        source = f"{HOLD}/{name}"
        os.mkdir(source)
        os.chmod(source, mode)
        for path in keep:
            if os.path.dirname(path) == target:
                place = os.path.join(source, os.path.basename(path))
                if os.path.isdir(path):
                    os.mkdir(place)
                else:  # a file is mounted on a file
                    os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
                mount(path, place, None, _BIND | _REC)
        mount(source, target, None, _BIND | _REC)
    _check(_libc.umount2(HOLD.encode(), _MNT_DETACH), "umount")
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def leave_user_namespace() -> None:
    """Enter a user namespace in which this process is an ordinary user, its only one."""
    unshare(NEW_USER)
    _map(USER, 0)


def confine(
    limits: Limits,
    read: Sequence[str],
    write: Sequence[str],
    program: Filter,
    *,
    count_processes: bool,
    tcp: bool,
) -> None:
    """Set limits, drop capabilities, put Landlock and the filter on: none of it can be taken back."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_CPU, math.ceil(limits["cpu_s"]))] if limits["cpu_s"] else []),
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),  # counted per user, in all children together
        (resource.RLIMIT_STACK, _STACK),
        *([(resource.RLIMIT_NPROC, limits["processes"])] if count_processes else []),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    _prctl(_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    landlock.restrict(read, write, tcp=tcp)
    program.install()


class Filter:
    """An assembled system-call filter, laid out for the kernel once, for any number of children."""

    def __init__(self, program: bytes) -> None:
        self._code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))
        self._address = ctypes.addressof(self._header)

    def install(self) -> None:
        """Put it on this thread and its children. Raises OSError."""
        _prctl(_SECCOMP, 2, self._address)


def rehearse() -> None:
    """Make Landlock's rules and drop them: what it needs is then in place before the fork."""
    if (fd := landlock.ruleset(["/"], ["/dev/null"])) is not None:
        os.close(fd)


def hide() -> None:
    """Keep other processes of the same user out of this one's memory and descriptors."""
    _prctl(_DUMPABLE, 0)


def show() -> None:
    """Undo `hide`."""
    _prctl(_DUMPABLE, 1)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount. Raises OSError."""
    done = _libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), flags, data.encode() if data else None
    )
    _check(done, f"mount {target}")


def _map(inside: int, outside: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside} 1"),
        ("gid_map", f"{inside} {outside} 1"),
    ):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        request = fcntl.ioctl(end, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(end, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _drop_capabilities() -> None:
    _check(_libc.capset(_CAPABILITIES, bytes(24)), "capset")


def _prctl(option: int, value: int, second: int = 0) -> None:
    _check(_libc.prctl(option, value, second, 0, 0), f"prctl {option}")


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, f"{what}: {os.strerror(number)}")
