"""The isolation of a child before it runs untrusted code: namespaces, mounts, limits, capabilities.

It uses the standard library only, because it runs inside the sandbox. The order matters. Mounts come before
the child's own user namespace (a fresh /proc needs power over the owner of the process namespace). The limit
on processes comes after it (processes are counted per user and namespace), and the system-call filter last.
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
PROGRAM_HOME = "/agent"  # the home of an agent program, apart from the workspace
USER = 1000
COVERED = tuple(
    f"/proc/{name}"
    for name in (
        *("cmdline", "sys/kernel/random/boot_id", "keys", "key-users", "modules", "kallsyms", "partitions"),
        *("diskstats", "interrupts", "timer_list", "sched_debug", "config.gz", "iomem", "ioports"),
    )
)
"""Files of /proc that identify a machine or help attacks on its kernel; they are shown empty."""

OWN_NUMBER = 0x7FFFFFFE  # in a filter: the number of the process that applies it, which nobody can have

DEVICES = ("/dev/null", "/dev/full", "/dev/tty")  # that a child may write to
HOLD = "/run"  # where a child's tmpfs is mounted while its folders are bound from it

NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC = 0x20000, 0x02000000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC = 2, 4, 8, 4096, 16384
_MNT_DETACH = 2
_PDEATHSIG, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVS, _CHILD_SUBREAPER = 1, 4, 22, 38, 36
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_STACK = 64 << 20
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277, "arm64": 277}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_CAPABILITIES = struct.pack("Ii", 0x20080522, 0)


class Limits(TypedDict):
    """The limits of a child in bytes, seconds and counts, from a `Budget`; no CPU limit if `cpu_s` is 0."""

    cpu_s: float
    memory: int
    processes: int
    file: int
    disk: int
    inodes: int
    open_files: int


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name. Raises OSError."""
    check(_libc.unshare(flags), "unshare")


def step_down(user: int) -> None:
    """Turn real root into `user` with power over new namespaces only. Returns in a new process.

    The calling process waits for that process and exits with its status.
    """
    give_up_root(user)
    die_with_parent(os.getppid())  # another user forgets it
    unshare(NEW_USER | NEW_NS | NEW_PID)
    map_user(0, user, user)
    if (pid := os.fork()) != 0:
        os.closerange(0, 1 << 16)
        _, status = os.waitpid(pid, 0)
        os._exit(status & 0xFF and 1)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def give_up_root(user: int) -> None:
    """Switch to `user` for good. Raises OSError."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    _prctl(_DUMPABLE, 1)  # or what is below /proc/self would not be ours to write


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose parent died."""
    _prctl(_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends."""
    _prctl(_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


def see_own_processes() -> None:
    """Give the first process of a new process namespace its own /proc."""
    unshare(NEW_NS)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def furnish(limits: Limits, keep: Sequence[str], *, program: bool = False) -> None:
    """Enter a new mount namespace, with mounts of its own.

    One tmpfs, limited in bytes and files, holds all that can be written: the home, /tmp and /dev/shm. `keep`
    names entries of these folders that stay visible and read-only, such as an interpreter below /tmp. An
    agent program gets a home of its own too.
    """
    unshare(NEW_NS)
    size = f"size={limits['disk']},nr_inodes={limits['inodes']},mode=0755"
    before = os.open(HOLD, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mount("tmpfs", HOLD, "tmpfs", _NOSUID | _NODEV, size)
    folders = [("home", HOME, 0o755), ("tmp", "/tmp", 0o1777), ("shm", SHARED, 0o1777)]
    for name, target, mode in (*folders, *[("program", PROGRAM_HOME, 0o755)] * program):
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
    # Covered, which is as final as unmounting for whoever has no privilege, and waits for no other processor.
    mount(f"/proc/self/fd/{before}", HOLD, None, _BIND)
    os.close(before)


def separate(*, loopback: bool) -> None:
    """Enter new IPC and control group namespaces, and, if asked, a new network that has a loopback only."""
    unshare(NEW_IPC | NEW_CGROUP | (NEW_NET if loopback else 0))  # its control group is the root
    if loopback:
        _raise_loopback()


def hand_out_listener(port: int, wire: int) -> None:
    """Listen on a port of this network's loopback, and send the descriptor over a socket; keep no copy.

    Whoever holds it outside can serve this network, which stays without any other way out.
    """
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
        socket.socket(fileno=os.dup(wire)) as end,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(512)
        socket.send_fds(end, [b"L"], [listener.fileno()])


def show_processes(*, tools: bool) -> None:
    """Give the first process of a new process namespace a /proc of its own mounts that shows it.

    It holds only processes, if the kernel supports that. With `tools`, for programs such as ps and free, it
    holds the rest too, except what identifies the machine.
    """
    if tools or not _mount_processes():
        mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        for path in filter(os.path.exists, COVERED):
            mount("/dev/null", path, None, _BIND)


def _mount_processes() -> bool:
    """Mount a /proc with only processes. Returns False if the kernel cannot (before Linux 5.8)."""
    try:
        mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, "subset=pid")
    except OSError:
        return False
    return True


def open_mounts() -> int:
    """Return a descriptor of this process's mount namespace, for `enter_mounts`. Raises OSError."""
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def enter_mounts(fd: int) -> None:
    """Return to the mount namespace of `open_mounts`. Raises OSError."""
    check(_libc.setns(fd, NEW_NS), "setns")


def leave_user_namespace() -> None:
    """Enter a user namespace in which this process is an ordinary user and the only one."""
    unshare(NEW_USER)
    map_user(USER, 0, 0)


def confine(
    limits: Limits,
    rules: int | None,
    program: Filter,
    *,
    count_processes: bool,
) -> None:
    """Set limits, drop capabilities, apply Landlock and the system-call filter; none can be undone."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_CPU, math.ceil(limits["cpu_s"]))] if limits["cpu_s"] else []),
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 256),  # counted per user, in all children together
        *([(resource.RLIMIT_NPROC, limits["processes"])] if count_processes else []),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    # A program may raise this one, as contest programs do: a stack counts as address space and as pages.
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    soft = _STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    _prctl(_NO_NEW_PRIVS, 1)
    check(_libc.capset(_CAPABILITIES, bytes(24)), "capset")  # none are left
    if rules is not None:
        landlock.enforce(rules)
        os.close(rules)
    program.install()


class Filter:
    """A system-call filter in the kernel's format, prepared once for any number of children."""

    def __init__(self, program: bytes) -> None:
        self._code = ctypes.create_string_buffer(program, len(program))
        operands = range(4, len(program), 8)
        self._own = [at for at in operands if struct.unpack_from("I", program, at) == (OWN_NUMBER,)]
        header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))
        self._address = ctypes.addressof(self._header)

    def install(self) -> None:
        """Apply the filter to this thread and its children. Raises OSError."""
        for at in self._own:
            struct.pack_into("I", self._code, at, os.getpid())
        _prctl(_SECCOMP, 2, self._address)

    def listen(self, otherwise: Filter) -> int:
        """Apply the filter, and return the descriptor at which its questions about calls are answered.

        Returns -1 if the kernel does not support this; then `otherwise` is applied, which refuses such calls.
        Nothing started from now on gains privileges.
        """
        _prctl(_NO_NEW_PRIVS, 1)
        number = _SECCOMP_CALL.get(os.uname().machine)
        if number is not None:
            listener = _libc.syscall(
                ctypes.c_long(number), ctypes.c_uint(1), ctypes.c_ulong(8), ctypes.c_void_p(self._address)
            )
            if listener >= 0:
                return int(listener)
        otherwise.install()
        return -1


class FileRules:
    """Landlock's rules for children: what is readable is prepared once, what is writable is set per child.

    Args:
        readable: the folders to read (``roots``), the parts of them that are visible, and what is only
            listed; None if the mounts decide.
        scratch: the folder that holds the folders of all children.
    """

    def __init__(self, readable: dict[str, list[str]] | None, scratch: str) -> None:
        self._read = ["/"] if readable is None else readable["roots"]
        self._visible = None
        if readable is not None:
            # /proc tells a judge whether a case sleeps or waits; what is each child's own has no /proc.
            visible = [*readable["shown"], "/proc"]
            self._visible = landlock.ruleset(visible, [scratch, *DEVICES], listed=readable["listed"])

    def begin(self) -> None:
        """Apply the rules that all children share. Raises OSError."""
        if self._visible is not None:
            landlock.enforce(self._visible)

    def make(self, write: Sequence[str], *, tcp: bool) -> int | None:
        """Return a descriptor of the rules of one child; None without Landlock. Raises OSError."""
        return landlock.ruleset(self._read, [*write, *DEVICES], tcp=tcp)


def rehearse() -> None:
    """Make Landlock's rules and drop them, so that what it needs is loaded before the fork."""
    if (fd := landlock.ruleset(["/"], ["/dev/null"])) is not None:
        os.close(fd)


def hide() -> None:
    """Stop other processes of the same user from reading this one's memory and descriptors."""
    _prctl(_DUMPABLE, 0)


def show() -> None:
    """Undo `hide`."""
    _prctl(_DUMPABLE, 1)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount. Raises OSError."""
    done = _libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), flags, data.encode() if data else None
    )
    check(done, f"mount {target}")


def unmount(place: str) -> None:
    """Unmount `place`, even if it is in use. Raises OSError."""
    check(_libc.umount2(place.encode(), _MNT_DETACH), f"umount {place}")


def map_user(inside: int, user: int, group: int) -> None:
    """Become the user and group `inside`, the only ones of a new user namespace. Raises OSError."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {user} 1"),
        ("gid_map", f"{inside} {group} 1"),
    ):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        request = fcntl.ioctl(end, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(end, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _prctl(option: int, value: int, second: int = 0) -> None:
    check(_libc.prctl(option, value, second, 0, 0), f"prctl {option}")


def check(result: int, what: str) -> None:
    """Raise the OSError of a C library call that failed."""
    if result < 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, f"{what}: {os.strerror(number)}")
