"""The host side of the fork servers: starting them, pooling them, and the pipes of their children.

Every call has its own descriptors and is served by the thread that makes it, so there is no shared reader to
wait for. A fork server that dies closes the status pipes of its calls, so each of them notices at once.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import marshal
import mmap
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from gem.errors import EnvClosed
from gem.sandbox import bwrap, cgroups, image, lockdown, packages, seccomp
from gem.sandbox.base import Budget, SandboxFailed
from gem.sandbox.files import open_in_memory
from gem.sandbox.scratch import Scratch

KINDS: dict[str, tuple[str, ...]] = {
    "bare": (),
    "numpy": ("numpy",),
    "science": ("numpy", "sympy"),
    "scipy": ("numpy", "sympy", "scipy.stats", "scipy.optimize", "scipy.integrate", "scipy.linalg"),
    "plots": ("numpy", "scipy", "pandas", "matplotlib"),
}
"""The packages that each kind of fork server imports before it forks; the first fitting kind is used."""

READY_S = 60.0
OWN_MEMORY, PAGE_TABLES = 10 << 20, 256  # what each process of ours may take, and the part that tables may
TURNS = 4096  # as zygote.py has it, which is the sandbox's half
SLOTS = 64
"""The most fork servers of a kind that serve one child at a time; a session occupies one until it closes."""

_WORDS = {name: re.compile(rf"{name}\b") for name in ("numpy", "sympy", "scipy", "pandas", "matplotlib")}

Message = dict[str, Any]
T = TypeVar("T")


def kind_for(code: str, more: Sequence[str] = ()) -> str:
    """Return the kind of fork server that has imported the packages named in a program."""
    wanted = {*more, *(name for name, word in _WORDS.items() if word.search(code))}
    for kind, loaded in KINDS.items():
        if wanted <= {package.partition(".")[0] for package in loaded}:
            return kind
    return "plots" if "matplotlib" in wanted or "pandas" in wanted else "scipy"


class Lost(Exception):
    """The fork server died during a call, or could not begin it."""


def call_twice(call: Callable[[], T]) -> T:
    """Call `call`, and once more if the sandbox failed: a call has no effect outside the sandbox.

    Raises:
        SandboxFailed: if the second call fails too.
    """
    try:
        return call()
    except Lost:
        pass
    try:
        return call()
    except Lost as error:
        raise SandboxFailed(f"the sandbox failed twice: {error}") from error


@dataclass(slots=True)
class Settings:
    """The settings with which a sandbox starts its fork servers; the backends differ only in these."""

    backend: str = "userns"
    isolation: Literal["namespaces", "bwrap", "none"] = "namespaces"  # of the fork server and all below it
    namespaces: bool = True  # of its own, for every child
    fork: bool = True  # children may start processes
    slots: bool = False  # one child at a time in each fork server
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    disk_mb: int = 64
    packages: tuple[str, ...] = packages.IMAGES["science"]  # that its children may import
    filter: str = field(default_factory=seccomp.choose_list)  # the list of system calls: allow or deny
    control_groups: bool = True  # used where they can be had
    visible: tuple[str, ...] | None = None  # files and folders of an agent program; None: there is none

    def program(self, *, fork: bool, sockets: bool = False) -> bytes:
        """Return the system-call filter of its children; only children that cannot fork are denied kill()."""
        shares_host = self.isolation == "none" and not fork
        return seccomp.program(fork, sockets, shares_host=shares_host, kind=self.filter)

    def halves(self) -> tuple[bytes, bytes]:
        """Return the filter of children that do not share the host in two parts: the early, and the late."""
        early = seccomp.program(self.fork, shares_host=False, kind=self.filter, early=True)
        return early, seccomp.late_program(self.fork, shares_host=False, kind=self.filter)

    def child_message(
        self,
        kind: str,
        budget: Budget,
        *,
        timed: bool = True,
        loopback: bool = False,
        processes: int = 1,
        more: int = 0,
        port: int = 0,
    ) -> Message:
        """Return the message that describes a child to the fork server; `timed`: with time limits.

        The limit of the watch is above the kernel's own by what gem's half takes in this many `processes`,
        and by `more` bytes: what one process takes until MemoryError never ends it.
        """
        memory, cpu_s = budget.memory_mb << 20, budget.cpu_s if timed else 0.0
        return {
            "kind": kind,
            "wall_s": budget.wall_s if timed else 0.0,
            "cpu_s": cpu_s,
            "memory": memory,
            "own_memory": memory // PAGE_TABLES + OWN_MEMORY * processes + more,
            "fork": self.fork,
            "loopback": loopback or bool(port),
            "port": port,
            "limits": {
                "cpu_s": cpu_s,
                "memory": memory,
                "processes": budget.processes,
                "file": budget.file_mb << 20,
                "disk": budget.disk_mb << 20,
                "inodes": budget.inodes,
                "open_files": budget.open_files,
            },
        }


def _fill_standard_descriptors() -> None:
    """Open what a host has closed of 0, 1 and 2: a fork server could not be given what had such a number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(fd)


class Zygote:
    """A fork server: its process, its control socket, and how many calls it serves."""

    def __init__(self, settings: Settings, kind: str, groups: cgroups.Groups) -> None:
        self.settings, self.kind, self.groups = settings, kind, groups
        self._lock = threading.Lock()
        self.load = 0
        self.alive = False
        self.shared = 0
        self.scratch: Scratch | None = None
        self._numbers = itertools.count(1)
        _fill_standard_descriptors()
        with contextlib.ExitStack() as stack:
            self.control, theirs = map(
                stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            )
            if settings.isolation == "none":
                self.scratch = stack.enter_context(contextlib.closing(Scratch()))
            self._log, self._about, self._turns = (
                stack.enter_context(open(open_in_memory(f"gem-zygote-{name}", b""), "rb", buffering=0))
                for name in ("log", "about", "turns")
            )
            os.ftruncate(self._turns.fileno(), 8 * TURNS)
            self.turns = stack.enter_context(mmap.mmap(self._turns.fileno(), 8 * TURNS))
            self.process = self._start(theirs)
            theirs.close()
            self._open = stack.pop_all()

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        settings, python = self.settings, image.Interpreter.this()
        files: dict[str, int] = {}
        scratch = [self.scratch.lock] if self.scratch else []
        code = open_in_memory("gem-zygote-code", image.code_inside())
        try:
            command = image.start_line(python, code, theirs.fileno())
            if settings.isolation == "bwrap":
                files = bwrap.etc_files()
                visible = image.image(python, settings.packages)
                root, disk_mb = image.is_root(), settings.disk_mb
                about = self._about.fileno()
                command = bwrap.command(visible, about, files, root=root, disk_mb=disk_mb) + command
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=image.environment(python),
                cwd="/",
                pass_fds=(theirs.fileno(), code, self._about.fileno(), *files.values(), *scratch),
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxFailed(f"a fork server cannot be started: {error}") from error
        finally:
            for fd in (code, *files.values()):
                os.close(fd)

    def prepare(self) -> None:
        """Configure the server and wait until it can fork. Raises SandboxFailed with its message."""
        settings, python = self.settings, image.Interpreter.this()
        pairs = [(fork, False) for fork in {True, settings.fork}]
        pairs += [(True, True)] if settings.namespaces else []
        isolated = settings.isolation != "none"
        visible = image.image(python, settings.packages, settings.visible)
        links = os.path.join(self.scratch.path, "packages") if self.scratch else ""
        config = {
            "namespaces": settings.namespaces,
            "image": visible.plain() if settings.isolation == "namespaces" else None,
            "root": image.is_root(),
            "user": image.next_user() if image.is_root() and isolated else None,
            "own_user": isolated,
            "sites": [links] if links else list(python.sites),
            "executable": python.executable,
            "prefix": python.prefix,
            "preload": [name for name in KINDS[self.kind] if name.partition(".")[0] in settings.packages],
            "keep": list(visible.kept),
            "readable": image.readable(python, settings.packages, links) if links else None,
            "scratch": self.scratch.path if self.scratch else lockdown.HOME,
            "programs": {
                (fork, sockets): settings.program(fork=fork, sockets=sockets) for fork, sockets in pairs
            },
            "halves": settings.halves() if settings.namespaces else [],
            "memory_programs": [
                seccomp.memory_program(attributes=settings.namespaces, threads=threads)
                for threads in (settings.fork, True)  # one process: its user's limit is for all together
            ],
        }
        self.control.settimeout(READY_S)
        try:
            socket.send_fds(self.control, [marshal.dumps(config)], [self._turns.fileno()])
            packet = self.control.recv(1 << 16) or b'{"failed": "it ended"}'
            answer: Message = json.loads(packet)
        except OSError as error:
            answer = {"failed": str(error)}
        if "failed" in answer:
            raise SandboxFailed(
                f"a fork server did not start: {answer['failed']}. {self.read_last_words()}".rstrip()
            )
        self.shared = answer["shared"]
        self.control.settimeout(5.0)
        self.alive = True

    def read_last_words(self) -> str:
        """Return the end of what the server has written to stderr; waits half a second for its own end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        with contextlib.suppress(OSError, ValueError):  # closed by another call
            begin = max(0, os.fstat(self._log.fileno()).st_size - 2000)
            return os.pread(self._log.fileno(), 2000, begin).decode(errors="replace").strip()
        return ""

    def spawn(self, request: Message, message: Message, fds: Sequence[int]) -> int:
        """Ask for a child and return its number. `fds`: stdin, stdout, stderr, status, wire. Raises Lost."""
        number = next(self._numbers)
        asked = open_in_memory("gem-request", marshal.dumps(request))
        try:
            packet = marshal.dumps({"op": "spawn", "id": number, **message})
            socket.send_fds(self.control, [packet], [asked, *fds])
        except OSError as error:
            self.discard()
            raise Lost(f"a fork server is gone ({error})") from error
        finally:
            os.close(asked)
        return number

    def lives(self) -> bool:
        """Return whether the server is alive: the socket of a dead one has hung up."""
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):  # closed here
            poll.register(self.control, 0)
        return self.alive and not poll.poll(0)

    def order(self, op: str, number: int, **more: Any) -> None:
        """Send an order about a child; a dead fork server's children are dead already."""
        try:
            self.control.send(marshal.dumps({"op": op, "id": number, **more}))
        except OSError:
            self.discard()

    def discard(self) -> None:
        """Mark the server as unusable and end it."""
        self.alive = False
        self.close()

    def close(self) -> None:
        """End the server and everything below it."""
        self.alive = False
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2.0)
        self.kill()
        self.process.wait()
        self._tidy()

    def kill(self) -> None:
        """End the server and everything below it at once."""
        # bwrap waits for its child, so the number is still its own; killed before it has said that number, it
        # would leave behind a child that waits for it for ever.
        patience = time.monotonic() + 2.0
        while (
            self.settings.isolation == "bwrap" and self.process.poll() is None and time.monotonic() < patience
        ):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                os.kill(json.loads(os.pread(self._about.fileno(), 4096, 0))["child-pid"], signal.SIGKILL)
                break
            time.sleep(0.002)
        self.process.kill()

    def forget(self) -> None:
        """Forget the server in a forked process; it belongs to the parent."""
        self.alive = False
        self.process.returncode = 0  # not ours to wait for
        self._lock = threading.Lock()  # another thread may have held it
        if self.scratch is not None:
            self.scratch.release()  # not ours to remove
        self._tidy()

    def _tidy(self) -> None:
        with self._lock:
            self._open.close()


class Pool:
    """The fork servers of a sandbox, by kind: started in the background, replaced when they die.

    `running` limits how many runs and cases there are at once, `answering` how many requests of sessions.
    """

    def __init__(self, settings: Settings, begin: Sequence[str], max_running: int) -> None:
        self.settings, self.max_running = settings, max_running
        self.closed = False
        self.zygotes: dict[str, list[Zygote]] = {}
        weakref.finalize(self, _close_all, self.zygotes).atexit = False  # a sandbox that nobody closed
        self._set_up(begin)

    def _set_up(self, begin: Sequence[str]) -> None:
        self.running = threading.BoundedSemaphore(self.max_running)
        self.answering = threading.BoundedSemaphore(4 * self.max_running)
        self.changed = threading.Condition()
        self.groups: cgroups.Groups | None = None
        self.zygotes |= {kind: [] for kind in KINDS}
        self.starting: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.coming: set[Zygote] = set()
        self.failure: SandboxFailed | None = None
        self.failures = 0
        self._to_begin = list(begin)  # one after the other, so that the first is there soon
        with self.changed:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._to_begin:
            self._start(self._to_begin.pop(0))

    def _start(self, kind: str) -> None:
        if self.closed or self.failures >= 5:
            return
        self.starting[kind] += 1
        threading.Thread(target=self._bring_up, args=(kind,), name=f"gem-zygote-{kind}", daemon=True).start()

    def _bring_up(self, kind: str) -> None:
        zygote = failure = None
        serves = False
        try:
            zygote = Zygote(self.settings, kind, self.control_groups())
            with self.changed:
                self.coming.add(zygote)
                if self.closed:
                    zygote.kill()
            zygote.prepare()
            with self.changed:
                if serves := not self.closed:
                    self.zygotes[kind].append(zygote)
        except Exception as error:
            failure = error if isinstance(error, SandboxFailed) else SandboxFailed(repr(error))
        if zygote is not None and not serves:
            zygote.close()
        with self.changed:  # last, for close() waits until nothing is starting any more
            self.coming -= {zygote}
            self.failures = 0 if failure is None else self.failures + 1
            self.failure = failure or self.failure
            self.starting[kind] -= 1
            self._begin_next()
            self.changed.notify_all()

    def control_groups(self) -> cgroups.Groups:
        """Return the control groups of its calls, tested now."""
        with self.changed:
            if self.groups is None:
                self.groups = cgroups.Groups(use=self.settings.control_groups)
            return self.groups

    @contextlib.contextmanager
    def borrow(self, kind: str) -> Iterator[Zygote]:
        """Lend the least busy fork server of a kind. Raises SandboxFailed if none starts."""
        zygote = self.take(kind)
        try:
            yield zygote
        finally:
            self.give(zygote)

    def take(self, kind: str) -> Zygote:
        """Return the least busy living fork server of a kind, or of a kind that has more.

        Raises: SandboxFailed: when none starts. EnvClosed: when the sandbox is closed.
        """
        while not (zygote := self._take(kind)).lives():
            zygote.discard()
            self.give(zygote)
        return zygote

    def _take(self, kind: str) -> Zygote:
        deadline = time.monotonic() + READY_S
        with self.changed:
            while True:
                if self.closed:
                    raise EnvClosed("this sandbox is closed: open another one.")
                zygote = self._least_busy(kind) or self._other(kind)
                if zygote is not None:
                    zygote.load += 1
                    return zygote
                if self.failure is not None and not any(self.starting.values()):
                    failure, self.failure, self.failures = self.failure, None, 0
                    raise SandboxFailed(str(failure))
                if not any(self.starting.values()):
                    self._start("bare")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SandboxFailed(f"no fork server was ready within {READY_S:.0f} s")
                self.changed.wait(left)

    def _other(self, kind: str) -> Zygote | None:
        """Return a server that has all packages of `kind`, or any server if `kind` cannot be started."""
        if kind == "bare" or self.settings.slots:
            return None
        covering = [other for other, loaded in KINDS.items() if {*KINDS[kind]} <= {*loaded}]
        others = covering if self.starting[kind] else [*covering, *KINDS]
        alive = (zygote for other in others for zygote in self.zygotes[other] if zygote.alive)
        return next(alive, None)

    def _least_busy(self, kind: str) -> Zygote | None:
        alive = [zygote for zygote in self.zygotes[kind] if zygote.alive]
        self.zygotes[kind] = alive
        best = min(alive, key=lambda zygote: zygote.load, default=None)
        wanted = SLOTS if self.settings.slots else max(1, self.settings.cores)
        short = best is None or best.load > 0
        if short and not self.starting[kind] and len(alive) < wanted:
            self._start(kind)
        if self.settings.slots and best is not None and best.load:
            return None
        return best

    def give(self, zygote: Zygote) -> None:
        """Take a server back."""
        with self.changed:
            zygote.load -= 1
            if self.settings.slots:
                self.changed.notify_all()

    def every(self) -> list[Zygote]:
        """Return all running servers."""
        return [zygote for zygotes in self.zygotes.values() for zygote in zygotes]

    def forget(self) -> None:
        """Start afresh in a forked process: servers, locks and threads belong to the parent."""
        for zygote in (*self.every(), *self.coming):
            zygote.forget()
        if self.groups is not None:
            self.groups.forget()
        self._set_up(())

    def close(self) -> None:
        """End all servers."""
        with self.changed:
            self.closed = True
            zygotes = {kind: self.zygotes[kind] for kind in KINDS}
            self.zygotes |= {kind: [] for kind in KINDS}
            for zygote in self.coming:
                zygote.kill()
            self.changed.notify_all()
            while any(self.starting.values()) and self.changed.wait(READY_S):
                pass
        _close_all(zygotes)
        if self.groups is not None:
            self.groups.close()


def _close_all(zygotes: Mapping[str, Sequence[Zygote]]) -> None:
    for zygote in itertools.chain(*zygotes.values()):
        zygote.close()


class Stream:
    """One captured output stream, kept up to a cap."""

    def __init__(self, fd: int, cap: int) -> None:
        self.fd, self.cap = fd, cap
        self.data = bytearray()
        self.total = 0

    def read(self) -> bool:
        """Read once what is there; return False at the end of the stream."""
        try:
            piece = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.total += len(piece)
        if len(self.data) < self.cap:
            self.data += piece[: self.cap - len(self.data)]
        return bool(piece)

    def drain(self) -> None:
        """Read what a finished writer has left, at most what a pipe holds."""
        for _ in range(32):
            before = self.total
            if not self.read() or self.total == before:
                return

    def begin(self, cap: int) -> None:
        """Drop what was read, and set the cap for the next request."""
        self.data.clear()
        self.total, self.cap = 0, cap

    @property
    def cut(self) -> bool:
        """Whether the stream was longer than the cap."""
        return self.total > self.cap

    def text(self) -> str:
        """Return the kept output as text."""
        return self.data.decode("utf-8", "replace")


class Child:
    """A child's descriptors on the host side, and its fork server's report of how it ended."""

    def __init__(self, zygote: Zygote, *, wire: bool, output: int) -> None:
        self.zygote = zygote
        self.number = 0
        self.reports = b""
        self.over = False
        self._turns = 0
        self._hung_up = False
        self.leftovers = ""  # why processes that earlier requests had left running were ended
        self.group: cgroups.Group | None = None
        self._ours = contextlib.ExitStack()
        self.wire: socket.socket | None = None
        self._theirs: list[int] = []
        try:
            out, err, self.status = self._pipe(), self._pipe(), self._pipe()
            if wire:
                self.wire, far = socket.socketpair()
                self._ours.enter_context(self.wire)
                self._theirs.append(far.detach())
        except OSError:
            self.close()
            raise
        self.out, self.err = Stream(out, output), Stream(err, output)

    def _pipe(self) -> int:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self._ours.callback(os.close, ours)
        self._theirs.append(theirs)
        os.set_blocking(ours, False)
        return ours

    def begin(self, request: Message, message: Message, stdin: bytes | None) -> None:
        """Have the child forked. Raises Lost."""
        flags = os.O_RDONLY | os.O_CLOEXEC
        source = open_in_memory("gem-stdin", stdin) if stdin else os.open("/dev/null", flags)
        try:
            limits = message["limits"]
            self.group = self.zygote.groups.take(limits["memory"] + limits["disk"])
            group = [] if self.group is None else [self.group.procs]
            message = {**message, "group": bool(group)}
            self.number = self.zygote.spawn(request, message, [source, *self._theirs, *group])
        finally:
            os.close(source)
            self._close_theirs()

    def attend(self) -> None:
        """Read the fork server's reports: on leftover processes, and at last on how the child ended."""
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self.status, 8192)
            self.reports += piece
            self._hung_up = not piece
        while b"\n" in self.reports and "leftovers" in (
            report := json.loads(self.reports.partition(b"\n")[0])
        ):
            self.leftovers = report["leftovers"]
            self.reports = self.reports.partition(b"\n")[2]

    def read_end(self) -> Message | None:
        """Return the fork server's report on the end; None while the child lives. Raises Lost."""
        self.attend()
        if b"\n" not in self.reports:
            if self._hung_up:
                last = self.zygote.read_last_words()
                self.zygote.discard()
                raise Lost(f"the fork server died with this call in flight. {last}".rstrip())
            return None
        self.over = True
        report: Message = json.loads(self.reports.partition(b"\n")[0])
        if "setup" in report:
            if report.get("group"):
                self.zygote.groups.give_up()
            if report.get("ending"):  # a second try must not meet it again
                self.zygote.discard()
            raise Lost(f"a child could not be confined: {report['setup']}")
        if self.burst():
            report["why"] = report["why"] or "memory"
        return report

    def burst(self) -> bool:
        """Return whether its control group has killed a process for lack of memory since the last call."""
        return self.group is not None and self.group.burst()

    def turn(self) -> None:
        """Count the begin or the end of a request; between an end and the next begin a session is idle."""
        self._turns += 1
        with contextlib.suppress(ValueError):  # closed
            at = 8 * (self.number % TURNS)
            self.zygote.turns[at : at + 8] = struct.pack("=Q", self._turns)

    @property
    def cut(self) -> bool:
        """Whether output was lost."""
        return self.out.cut or self.err.cut

    def drain(self) -> None:
        """Read what a finished writer has left in the streams."""
        self.out.drain()
        self.err.drain()

    def order(self, op: str, **more: Any) -> None:
        """Send its fork server an order about this child."""
        if self.number:
            self.zygote.order(op, self.number, **more)

    def _close_theirs(self) -> None:
        for fd in self._theirs:
            os.close(fd)
        self._theirs = []

    def close(self) -> None:
        """Close the host side, and end the child if it is not known to have ended."""
        self._close_theirs()
        if self.number and not self.over and self.zygote.alive:
            self.over = True
            self.order("kill", why="closed")
        self._ours.close()
        if self.group is not None:
            self.zygote.groups.give(self.group)
            self.group = None


def make_child(zygote: Zygote, *, wire: bool, output: int) -> Child:
    """Open a child's descriptors; raise this process's soft limit on descriptors if it is reached.

    Raises:
        SandboxFailed: if even the hard limit is too low.
    """
    try:
        return Child(zygote, wire=wire, output=output)
    except OSError as error:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if error.errno != errno.EMFILE or soft == hard:
            raise SandboxFailed(f"no descriptors for another child: {error}; see `ulimit -n`") from error
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return make_child(zygote, wire=wire, output=output)
