"""The fork server inside the box: a request comes in, a confined child goes out, its end is told.

Standard library alone, started by `gem.sandbox.client` as ``main(descriptor)``. One thread; trusted; it never
runs a line of a program. Over the control socket the host sends marshalled messages, one packet each:

- first the configuration: ``namespaces`` (True: a furnished box per child; False: the landlock and
  bwrap-slots rungs, where a child shares what the zygote has), ``user`` (to step down to, or None),
  ``sites``, ``executable`` and ``prefix`` of the interpreter, ``preload``, ``keep`` (what of a child's own
  folders stays), ``read`` (what children may read), ``scratch`` (where working folders are made without
  namespaces), ``programs`` (system-call filters by ``fork`` and ``sockets``);
- then ``spawn`` with its descriptors (request, stdin, stdout, stderr, status, and for sessions and judging
  the child's wire), ``kill``, ``interrupt``, ``arm`` and ``disarm`` by number.

How a child ended is written to its status pipe by this process, never by the child; a line that begins with
``{"setup"`` says that confining it failed and nothing was run.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal's own wrapper touches much of enum
import contextlib
import gc
import io
import json
import marshal
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gem.sandbox import lockdown, runner

TICK_S = 0.1
IDLE_TICK_S = 1.0
REHEARSALS = 20  # after which the interpreter has specialized what it will
_PAGE = resource.getpagesize()
_HERTZ = os.sysconf("SC_CLK_TCK")
_STDIO, _REQUEST, _STATUS, _WIRE, _FIRST_FREE = 3, 3, 4, 5, 6

Message = dict[str, Any]


@dataclass(slots=True)
class Child:
    """A child that has not been waited for; times are of the monotonic clock, limits 0 for none."""

    number: int
    status: int
    begun: float
    deadline: float
    cpu_s: float
    memory: int
    scratch: str | None
    armed: bool
    looked: float = 0.0
    cpu_before: float = 0.0
    peak: int = 0
    why: str = ""
    processes: list[int] = field(default_factory=list)


class Zygote:
    """Forks, watches and waits."""

    def __init__(self, control: socket.socket, config: Message) -> None:
        self.control = control
        self.config = config
        self.children: dict[int, Child] = {}  # by process
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY) if config["namespaces"] else -1
        self.filters = {key: lockdown.Filter(program) for key, program in config["programs"].items()}
        self.removing: set[int] = set()
        self.shared, self.mapped = _anonymous(os.getpid()), _mapped()

    def serve(self) -> None:
        """Answer until the host closes the socket."""
        wake, waker = os.pipe()
        for end in (wake, waker):
            os.set_blocking(end, False)
        # A host in the background may ignore SIGINT, which its children inherit and programs must not notice.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.siginterrupt(signal.SIGCHLD, False)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            for fd, _ in poll.poll(self._patience()):
                if fd == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                elif not self._obey():
                    return
            self._collect()
            self._watch()

    def _patience(self) -> float | None:
        """Return how long nothing needs to be looked at, in milliseconds; None without children."""
        if not self.children:
            return None
        now = time.monotonic()
        soonest = min(
            min(c.deadline or c.looked + IDLE_TICK_S, c.looked + (TICK_S if c.armed else IDLE_TICK_S))
            for c in self.children.values()
        )
        return max(0.0, (soonest - now) * 1000)

    def _obey(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self.control, 1 << 16, 8)
        if not packet:
            return False
        message: Message = marshal.loads(packet)
        match message["op"]:
            case "spawn":
                self._spawn(message, fds)
            case op:
                pid = next((p for p, c in self.children.items() if c.number == message["id"]), None)
                if pid is not None:
                    self._order(op, pid, self.children[pid], message)
        return True

    def _order(self, op: str, pid: int, child: Child, message: Message) -> None:
        match op:
            case "kill":
                self._kill(pid, child, message["why"])
            case "interrupt":
                os.kill(pid, signal.SIGINT)
            case "arm":
                child.armed, child.cpu_s, child.looked = True, message["cpu_s"], 0.0
                child.cpu_before = self._usage(child, [pid, *_descendants(pid)])[0]
            case "disarm":
                child.armed, child.cpu_s = False, 0.0

    # ------------------------------------------------------------------------------------------- forking

    def _spawn(self, message: Message, fds: list[int]) -> None:
        scratch = None
        pid = -1
        try:
            if self.config["namespaces"]:
                lockdown.unshare(lockdown.NEW_PID)
            else:
                import tempfile

                scratch = tempfile.mkdtemp(prefix="gem-", dir=self.config["scratch"])
            begun = time.monotonic()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._be_child(message, fds, scratch, parent)
        except OSError as error:
            _tell(fds[_STATUS], {"setup": f"{error.strerror or error}"})
        finally:
            if self.config["namespaces"]:
                lockdown.enter(self.own_pids, lockdown.NEW_PID)
            for i, fd in enumerate(fds):
                if i != _STATUS or pid < 0:
                    os.close(fd)
        if pid < 0:
            return
        wall = message["wall_s"]
        self.children[pid] = Child(
            number=message["id"],
            status=fds[_STATUS],
            begun=begun,
            deadline=begun + wall if wall else 0.0,
            cpu_s=message["cpu_s"],
            memory=message["memory"],
            scratch=scratch,
            armed=bool(wall),
            looked=begun,
        )

    def _be_child(self, message: Message, fds: list[int], scratch: str | None, parent: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            request, *stdio, status = fds[: _STATUS + 1]
            for fd, to in zip(stdio, range(_STDIO), strict=True):
                os.dup2(fd, to)
            for fd, to in ((request, _REQUEST), (status, _STATUS), (fds[-1], _WIRE)):
                os.dup2(fd, to, inheritable=False)
            os.closerange(_FIRST_FREE, 1 << 16)
            self._confine(message, scratch, parent)
            asked = marshal.loads(_read_all(_REQUEST))
            os.close(_REQUEST)
            wire = None
            if message["kind"] == "run":
                os.close(_WIRE)
            else:
                wire = socket.socket(fileno=_WIRE)
            gc.enable()
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
            _tell(_STATUS, {"setup": words})
            os._exit(1)
        os.close(_STATUS)
        try:
            if wire is None:
                runner.run(asked)
            elif message["kind"] == "session":
                runner.session(asked, wire)
            else:
                runner.judge(asked, wire)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        os._exit(1)

    def _confine(self, message: Message, scratch: str | None, parent: int) -> None:
        namespaces = scratch is None
        limits: lockdown.Limits = message["limits"]
        home, temporary = (
            (lockdown.HOME, "/tmp") if scratch is None else (f"{scratch}/home", f"{scratch}/tmp")
        )
        if namespaces:
            lockdown.furnish(limits, self.config["keep"], loopback=message["loopback"])
            lockdown.leave_user_namespace()
        else:
            lockdown.die_with_parent(parent)
            os.mkdir(home)
            os.mkdir(temporary)
        os.chdir(home)
        if not namespaces:
            os.environ |= {"HOME": home, "PWD": home, "TMPDIR": temporary}
        limits["memory"] += self.mapped
        write = [home, temporary, *([lockdown.SHARED] if namespaces else [])]
        lockdown.confine(
            limits,
            self.config["read"],
            [*write, "/dev/null", "/dev/zero", "/dev/full", "/dev/tty"],
            self.filters[message["fork"], message["loopback"]],
            count_processes=namespaces or self.config["own_user"],
            tcp=message["loopback"],
        )

    # ------------------------------------------------------------------------------------------ watching

    def _watch(self) -> None:
        now = time.monotonic()
        due = [
            (pid, child)
            for pid, child in self.children.items()
            if now >= child.looked + (TICK_S if child.armed else IDLE_TICK_S)
            or (child.deadline and now >= child.deadline)
        ]
        if not due:
            return
        family = _families()
        for pid, child in due:
            child.looked = now
            if child.deadline and now >= child.deadline:
                self._kill(pid, child, "wall")
                continue
            cpu, memory = self._usage(child, [pid, *_descendants(pid, family)])
            child.peak = max(child.peak, memory)
            if child.memory and memory > child.memory:
                self._kill(pid, child, "memory")
            elif child.cpu_s and cpu - child.cpu_before > child.cpu_s:
                self._kill(pid, child, "cpu")

    def _usage(self, child: Child, processes: list[int]) -> tuple[float, int]:
        """Return CPU seconds, and bytes of memory that are not the zygote's own, of a child and all below it.

        Pages shared with the zygote count in every process; only where that sum is over the limit are they
        taken off, because finding them is dear.
        """
        child.processes = processes
        ticks = resident = 0
        for pid in processes:
            fields = _stat(pid)
            if fields:
                ticks += sum(map(int, fields[11:15]))
                resident += int(fields[21]) * _PAGE
        if child.memory and resident > child.memory:
            resident = sum(max(0, _anonymous(pid) - self.shared) for pid in processes)
        elif len(processes) == 1:
            resident = max(0, resident - self.shared)
        return ticks / _HERTZ, resident

    def _kill(self, pid: int, child: Child, why: str) -> None:
        child.why = child.why or why
        child.deadline, child.armed = 0.0, False
        os.kill(pid, signal.SIGKILL)
        if not self.config["namespaces"]:
            self._sweep()

    def _sweep(self) -> None:
        """Without namespaces: end every descendant that is no child of ours, or is below one that ends."""
        ending = [pid for pid, child in self.children.items() if child.why]
        for _ in range(20):
            families = _families()  # one for both, or what a child forks in between would be ended
            kept = [pid for pid, child in self.children.items() if not child.why] + list(self.removing)
            staying = {process for pid in kept for process in (pid, *_descendants(pid, families))}
            found = [p for p in _descendants(os.getpid(), families) if p not in staying and p not in ending]
            found = [p for p in found if (fields := _stat(p)) and fields[0] != "Z"]
            if not found:
                return
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _collect(self) -> None:
        while self.children or os.getpid() == 1 or not self.config["namespaces"]:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.removing.discard(pid)
            child = self.children.pop(pid, None)
            if child is None:
                continue
            _tell(
                child.status,
                {
                    "status": status,
                    "why": child.why,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                    "wall_s": time.monotonic() - child.begun,
                    "memory": max(child.peak, usage.ru_maxrss * 1024 - self.shared, 0),
                },
            )
            os.close(child.status)
            if child.scratch is not None:
                self._sweep()
                self._clear(child.scratch)

    def _clear(self, folder: str) -> None:
        """Remove what a child left; where that takes long, in a process of its own: others have deadlines."""
        if _few(folder):
            _remove(folder)
            return
        zygote = os.getpid()
        if (pid := os.fork()) != 0:
            self.removing.add(pid)
            return
        try:
            signal.set_wakeup_fd(-1)
            os.closerange(_STDIO, 1 << 16)
            lockdown.die_with_parent(zygote)
            _remove(folder)
        finally:
            os._exit(0)


def main(fd: int) -> None:
    """Be a zygote on the control socket `fd`; returns when the host closes it."""
    control = socket.socket(fileno=fd)
    config: Message = marshal.loads(control.recv(1 << 16))
    try:
        _prepare(config)
        zygote = Zygote(control, config)
    except BaseException as error:
        control.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        return
    control.send(json.dumps({"ready": True, "shared": zygote.shared}).encode())
    zygote.serve()


def _prepare(config: Message) -> None:
    while (fd := os.open("/dev/null", os.O_RDWR)) < _FIRST_FREE + 2:
        pass  # descriptors that come later must not lie where a child wants its own
    os.close(fd)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if config["user"] is not None:
        (lockdown.step_down if config["namespaces"] else lockdown.give_up_root)(config["user"])
    if not config["namespaces"]:
        lockdown.adopt_orphans()
    os.umask(0o022)
    os.environ |= {"HOME": lockdown.HOME, "PWD": lockdown.HOME, "TMPDIR": "/tmp"}
    _open_sites(config["sites"])
    _warm(config["preload"], config["namespaces"])
    runner.open_streams_to_be()
    _rehearse()
    for name in [name for name in sys.modules if name == "gem" or name.startswith("gem.")]:
        del sys.modules[name]  # what a program imports as gem is not this
    sys.prefix = sys.exec_prefix = config["prefix"]
    if os.path.exists(config["executable"]):
        sys.executable = config["executable"]
    sys.argv = [""]
    gc.collect()
    gc.freeze()
    gc.disable()


def _rehearse() -> None:
    """Do what every child will do, as far as it can be undone: what is in place before the fork is shared.

    A page that a child is the first to write to is copied: caches that fill, code that specializes.
    """
    for _ in range(REHEARSALS):
        lockdown.rehearse()
        runner.rehearse()


def _open_sites(sites: list[str]) -> None:
    import site

    for path in sites:
        site.addsitedir(path)
    site.setquit()
    site.sethelper()
    sys.path_importer_cache.clear()


def _warm(packages: list[str], namespaces: bool) -> None:
    """Import what programs import, and use it once, so that caches are full before the first fork."""
    import bisect  # noqa: F401
    import collections  # noqa: F401
    import datetime  # noqa: F401
    import heapq  # noqa: F401
    import itertools  # noqa: F401
    import math  # noqa: F401
    import random  # noqa: F401
    import string  # noqa: F401
    import typing  # noqa: F401

    for package in packages:
        if package == "matplotlib" and namespaces:  # or it would be the host's mount, and /tmp will do
            _give_folder()
        try:
            __import__(package)
            _USE.get(package, lambda: None)()
        except Exception:  # absent, or broken: then a program finds out by itself, from the beginning
            root = package.partition(".")[0]
            for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
                del sys.modules[name]


def _use_numpy() -> None:
    import numpy

    numpy.random.seed(0)  # noqa: NPY002, TID251 - makes the module's state; every child seeds its own
    float(numpy.linalg.solve(numpy.eye(2), numpy.ones(2)).sum())
    repr(numpy.arange(3.0))


def _use_sympy() -> None:
    import sympy

    x = sympy.Symbol("x")
    sympy.solve(x**3 - 6 * x**2 + 11 * x - 6, x)
    repr(sympy.simplify(sympy.integrate(sympy.sin(x) * x, x)))


def _give_folder() -> None:
    """Give matplotlib the folder without which it does not import: nothing else here can be written."""
    lockdown.mount("tmpfs", lockdown.HOLD, "tmpfs", 0, "size=8m,mode=0755")
    os.environ["MPLCONFIGDIR"] = lockdown.HOLD


def _use_matplotlib() -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot

    matplotlib.pyplot.figure().savefig(io.BytesIO(), format="png")
    matplotlib.pyplot.close("all")
    os.environ.pop("MPLCONFIGDIR", None)  # what a program starts makes a folder of its own


_USE = {"numpy": _use_numpy, "sympy": _use_sympy, "matplotlib": _use_matplotlib}


def _tell(fd: int, what: Message) -> None:
    with contextlib.suppress(OSError):  # the host may have lost interest
        os.write(fd, json.dumps(what).encode()[:4000] + b"\n")


def _read_all(fd: int) -> bytes:
    length = os.fstat(fd).st_size
    data = bytearray()
    while len(data) < length and (piece := os.pread(fd, length - len(data), len(data))):
        data += piece
    return bytes(data)


def _few(folder: str, most: int = 200) -> bool:
    """Say whether there are few entries below a folder, without looking at all of many."""
    left, seen = [folder], 0
    with contextlib.suppress(OSError):
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if (seen := seen + 1) > most:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        return True
    return False


def _remove(folder: str) -> None:
    import shutil

    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", 'chmod -R u+rwx "$0"; rm -rf "$0"', folder])


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _families() -> dict[int, list[int]]:
    """Return the children of every process in sight."""
    families: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := _stat(int(name))):
            families.setdefault(int(fields[1]), []).append(int(name))
    return families


def _descendants(pid: int, families: dict[int, list[int]] | None = None) -> list[int]:
    families = _families() if families is None else families
    found, left = [], [pid]
    while left:
        children = families.get(left.pop(), [])
        found += children
        left += children
    return found


def _anonymous(pid: int) -> int:
    """Return the bytes of a process that no file backs, shared memory with them."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon", b"RssShmem")):
                    total += int(line.split()[1]) * 1024
    except OSError:
        pass
    return total


def _mapped() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * _PAGE
