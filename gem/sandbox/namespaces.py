"""The namespaces of a fork server (root, processes, network, users), made with plain system calls.

It uses the standard library only, because it runs inside, before anything else. It needs no program and no
privilege: an ordinary user makes a user namespace first; root makes the others and then drops privileges.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
from typing import Any, NoReturn

from gem.sandbox import lockdown

_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_RECURSIVE, _READ_ONLY, _NO_SETUID = 0x8000, 1, 2
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155}.get(platform.machine(), 41)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_BASE, _OLD, _NEW = "/tmp", "/old", "/new"

_libc = ctypes.CDLL(None, use_errno=True)


def enter(image: dict[str, Any], control: socket.socket, *, root: bool) -> None:
    """Continue as the first process of new namespaces that hold only `image`.

    The calling process waits: it exits as the new one does, and ends it when the other end of `control` is
    closed.

    Raises:
        OSError: when the system refuses; the message names the call and the known reason.
    """
    user, group = os.geteuid(), os.getegid()
    others = lockdown.NEW_NS | lockdown.NEW_PID | lockdown.NEW_NET | lockdown.NEW_IPC
    others |= lockdown.NEW_CGROUP | lockdown.NEW_UTS
    try:
        lockdown.unshare(others if root else others | lockdown.NEW_USER)
        if not root:
            lockdown.map_user(0, user, group)
        if (pid := os.fork()) != 0:
            _stay(pid, control)
        lockdown.die_with_parent(0)  # a parent outside the new namespace has no number in it
        _build(image)
        lockdown.mount("proc", f"{_NEW}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        _leave_old_root()
        socket.sethostname("sandbox")
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        raise OSError(error.errno, f"{error.strerror}{_reason()}") from error


def _stay(pid: int, control: socket.socket) -> NoReturn:
    """Wait for the new process and exit with it; end it as soon as the client is gone."""
    try:
        poll = select.poll()
        poll.register(control, 0)
        poll.register(os.pidfd_open(pid), select.POLLIN)
        poll.poll()
        os.kill(pid, signal.SIGKILL)
    finally:
        os._exit(0)


def _build(image: dict[str, Any]) -> None:
    """Build a new root below `_NEW` from the old one, which is then below `_OLD`."""
    lockdown.mount("none", "/", None, _REC | _PRIVATE)  # what the host mounts later stays outside
    lockdown.mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for folder in (_OLD, _NEW):
        os.mkdir(_BASE + folder)
    _call("pivot_root", _PIVOT_ROOT, _BASE.encode(), (_BASE + _OLD).encode())
    os.chdir("/")
    lockdown.mount("tmpfs", _NEW, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for path, target in image["links"].items():
        os.makedirs(os.path.dirname(_NEW + path), exist_ok=True)
        os.symlink(target, _NEW + path)
    for source, path in image["folders"]:
        _bind(source, path)
    for path in image["covered"]:
        if os.path.isdir(_NEW + path):
            lockdown.mount("tmpfs", _NEW + path, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    for source, path in image["packages"]:
        _bind(source, path)
    for folder in ("/etc", "/proc", "/dev", "/tmp", lockdown.HOME, lockdown.HOLD, *image["homes"]):
        os.makedirs(_NEW + folder, exist_ok=True)
    for name, text in image["etc"].items():
        with open(f"{_NEW}/etc/{name}", "w") as file:
            file.write(text)
    lockdown.mount("tmpfs", f"{_NEW}/dev", "tmpfs", _NOSUID, "mode=0755")
    for name in _DEVICES:
        # A shared mapping of /dev/zero would be memory that nothing counts. /dev/full reads the same.
        _bind("/dev/full" if name == "zero" else f"/dev/{name}", f"/dev/{name}")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{_NEW}/dev/{name}")
    os.mkdir(_NEW + lockdown.SHARED)
    attributes = struct.pack("=4Q", _READ_ONLY | _NO_SETUID, 0, 0, 0)
    _call(
        "mount_setattr (Linux 5.12 or newer)", _MOUNT_SETATTR, -100, _NEW.encode(), _RECURSIVE, attributes, 32
    )


def _bind(source: str, path: str) -> None:
    """Bind a file or folder of the old root into the new one, if it exists."""
    source, place = _OLD + source, _NEW + path
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644))
    else:
        return
    lockdown.mount(source, place, None, _BIND | _REC)


def _leave_old_root() -> None:
    os.chdir(_NEW)
    _call("pivot_root", _PIVOT_ROOT, b".", b".")  # the old root is then on top of the new one
    lockdown.unmount(".")
    os.chdir("/")


def _call(what: str, number: int, *arguments: Any) -> None:
    lockdown.check(_libc.syscall(number, *arguments), what)


_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.EINVAL)
_SWITCHES = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor keeps them from ordinary users",
    ),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "this kernel keeps them from ordinary users"),
    "/proc/sys/user/max_user_namespaces": ("0", "this kernel allows none"),
}


def _reason() -> str:
    """Return the known reason why the system makes no user namespace, as the end of a sentence."""
    for path, (value, reason) in _SWITCHES.items():
        with contextlib.suppress(OSError), open(path) as file:
            if file.read().strip() == value:
                return f" (user namespaces: {reason}, {path} is {value})"
    return " (user namespaces: a container's system-call filter, or a security module, may forbid them)"
