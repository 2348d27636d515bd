"""Landlock: a process gives up access to all files except named ones, to TCP, and to processes outside.

It uses the standard library only and can be loaded by path, because it runs inside the sandbox too. The
kernel's newest rules that this module knows (ABI 1 to 6) are used as far as the running kernel has them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from collections.abc import Callable, Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION, _PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 1, 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_DEVICES = 1 << 6 | 1 << 11  # making a character or block device: never allowed
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16}  # ABI -> how many of the rights it knows
_TCP = 1 | 2  # bind, connect
_SCOPES = 1 | 2  # abstract Unix sockets, signals


@functools.cache
def abi() -> int:
    """Return the Landlock ABI version of the kernel; 0 for none."""
    create, *_ = _calls()
    return max(0, create(_CREATE_RULESET, None, 0, _VERSION))


def ruleset(
    read: Iterable[str], write: Iterable[str], *, listed: Iterable[str] = (), tcp: bool = False
) -> int | None:
    """Return a descriptor of rules, for `enforce` in any number of children; None without Landlock.

    `read` may be read and executed, `write` also written. Folders in `listed` can be listed, but their files
    cannot be read. `tcp` leaves TCP open, for a child with a private network. A folder includes all below it;
    paths that do not exist are skipped.

    Raises:
        OSError: when the kernel has Landlock and refuses these rules.
    """
    version = abi()
    if version == 0:
        return None
    create, add, _, _ = _calls()
    rights = (1 << _FILE_RIGHTS[min(version, 6)]) - 1
    words = [rights, *([0 if tcp else _TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"={len(words)}Q", *words)
    if (fd := create(_CREATE_RULESET, attributes, len(attributes), 0)) < 0:
        raise _error("landlock_create_ruleset")
    try:
        for paths, allowed in ((read, rights & _READ), (write, rights & ~_DEVICES), (listed, _READ_DIR)):
            for path in paths:
                try:
                    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                own = allowed if stat.S_ISDIR(os.fstat(target).st_mode) else allowed & _OF_A_FILE
                done = add(_ADD_RULE, fd, _PATH_BENEATH, struct.pack("=Qi", own, target), 0)
                os.close(target)
                if done < 0:
                    raise _error("landlock_add_rule")
    except OSError:
        os.close(fd)
        raise
    return fd


def enforce(fd: int) -> None:
    """Apply the rules of `ruleset` to this thread and its children for good; sets no_new_privs.

    Raises:
        OSError: when the kernel refuses.
    """
    _, _, restrict_self, prctl = _calls()
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error("prctl(PR_SET_NO_NEW_PRIVS)")
    if restrict_self(_RESTRICT_SELF, fd, 0) < 0:
        raise _error("landlock_restrict_self")


@functools.cache
def _calls() -> tuple[Callable[..., int], ...]:
    """Return the system calls to create a ruleset, add a rule and confine oneself, and prctl.

    With their arguments' types, which makes calling them cheap: every child pays for what it touches.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    number, word, data = ctypes.c_long, ctypes.c_ulong, ctypes.c_char_p
    calls = []
    for kinds in ((data, word, word), (word, word, data, word), (word, word)):
        call = libc["syscall"]
        call.restype, call.argtypes = number, (number, *kinds)
        calls.append(call)
    libc.prctl.argtypes = (ctypes.c_int, word, word, word, word)
    return (*calls, libc.prctl)


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
