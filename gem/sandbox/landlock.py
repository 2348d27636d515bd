"""Landlock: a process gives up every file but those it names, TCP, and signals to whoever is outside.

Standard library alone, and loadable by path: it runs inside the box too. The kernel's newest rules that this
module knows (ABI 1 to 6) are used as far as the running kernel has them.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION, _PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_DEVICES = 1 << 6 | 1 << 11  # making a character or block device: never allowed
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16}  # ABI -> how many of the rights it knows
_TCP = 1 | 2  # bind, connect
_SCOPES = 1 | 2  # abstract Unix sockets, signals


def abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 for none."""
    version: int = _libc().syscall(_CREATE_RULESET, None, 0, _VERSION)
    return max(0, version)


def restrict(read: Iterable[str], write: Iterable[str], *, tcp: bool = False) -> bool:
    """Confine this thread and its children for good: `read` to read and execute, `write` for everything.

    `tcp` leaves TCP open, for a child whose network is its own. Folders mean all below them; paths that do
    not exist are passed over. Returns False, having changed nothing but no_new_privs, where the kernel lacks
    Landlock.

    Raises:
        OSError: when the kernel has Landlock and refuses these rules.
    """
    fd = ruleset(read, write, tcp=tcp)
    if fd is None:
        return False
    try:
        enforce(fd)
    finally:
        os.close(fd)
    return True


def ruleset(read: Iterable[str], write: Iterable[str], *, tcp: bool = False) -> int | None:
    """Return a descriptor of such rules, for `enforce` in any number of children; None without Landlock."""
    version = abi()
    if version == 0:
        return None
    rights = (1 << _FILE_RIGHTS[min(version, 6)]) - 1
    words = [rights, *([0 if tcp else _TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(words)}Q", *words)
    fd = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for paths, allowed in ((read, rights & _READ), (write, rights & ~_DEVICES)):
            for path in paths:
                _allow(fd, path, allowed)
    except OSError:
        os.close(fd)
        raise
    return fd


def enforce(fd: int) -> None:
    """Put the rules of `ruleset` on this thread and its children; sets no_new_privs.

    Raises:
        OSError: when the kernel refuses.
    """
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error("prctl(PR_SET_NO_NEW_PRIVS)")
    _call(_RESTRICT_SELF, fd, 0)


def _allow(fd: int, path: str, allowed: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            allowed &= _OF_A_FILE
        _call(_ADD_RULE, fd, _PATH_BENEATH, struct.pack("=Qi", allowed, target), 0)
    finally:
        os.close(target)


_loaded: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
        _loaded.syscall.restype = ctypes.c_long
    return _loaded


def _call(number: int, *args: object) -> int:
    result: int = _libc().syscall(
        ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)
    )
    if result < 0:
        raise _error(f"Landlock's system call {number}")
    return result


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
