"""The fork server: forks a confined child per request and reports how it ended.

It uses the standard library only and is started by `gem.sandbox.pool` as ``main(descriptor)``. It has one
thread, is trusted, and never runs a line of a program. Over the control socket the host sends marshalled
messages, one packet each:

- first the configuration, with the descriptor of a file in which it counts the requests of each session:
  ``namespaces`` (True: its own for each child; False: the landlock and bwrap-slots backends, where a child
  shares what the zygote has), ``image`` (what to show in namespaces that the zygote makes for itself, or
  None), ``root`` (it is the machine's), ``user`` (to step down to, or None), ``sites``, ``executable`` and
  ``prefix`` of the interpreter, ``preload``, ``keep`` (what of a child's own folders stays), ``readable``
  (what Landlock lets children read, where no mounts decide), ``scratch`` (where working folders are made
  without namespaces), ``programs`` (system-call filters by ``fork`` and ``sockets``), ``halves`` (with
  namespaces, the filter of cases: for the template and for each case), ``memory_programs``
  (the filter that asks for shared memory, and for threads where no other limit holds them; the one to take
  where no filter can ask);
- then ``spawn`` with its descriptors (request, stdin, stdout, stderr, status, for sessions and judging the
  child's wire, and last, if there is one, the control group to enter), ``kill``, ``interrupt``, ``arm`` and
  ``disarm`` by number.

This process, never the child, writes to the child's status pipe how it ended, and before that whether its
leftover processes were ended. A line that begins with ``{"setup"`` means that confining the child failed and
nothing was run.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import json
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from gem.sandbox import cells, files, lockdown, memory, namespaces, program
from gem.sandbox.judge import FILES, Confinement, Judge, split_folder
from gem.sandbox.program import CpuClock, find_families, list_descendants, read_fields
from gem.sandbox.template import Template

TICK_S, SHORTEST_TICK_S = 0.1, 0.02
IDLE_TICK_S, LEFTOVERS_TICK_S = 1.0, 0.25
GROWTH = 2 << 30  # bytes that processes take in a second, by each core
REHEARSALS = 20  # after which the interpreter has specialized what it will
MAPPED_STEP = 32 << 20  # bytes, for what servers map differs by a few pages
_PAGE = resource.getpagesize()
_STDIO, _REQUEST, _STATUS, _WIRE, _FIRST_FREE = 3, 3, 4, 5, 6
TURNS = 4096  # sessions of a fork server whose requests are counted apart
_TURN = struct.Struct("=Q")
FEW = 200  # entries of a folder, which are removed at once
GONE_S = 2.0  # for what was ended to be gone
IDLE_SHARE = 0.05  # of a core, that what a session left running may use for ever

Message = dict[str, Any]


@dataclass(slots=True)
class Child:
    """A child that has not been reaped; times are of the monotonic clock, a limit of 0 means none."""

    number: int
    status: int
    begun: float
    deadline: float
    cpu_s: float
    memory: memory.Account
    scratch: str | None
    armed: bool
    looked: float = 0.0
    threads: int = 0
    cpu: CpuClock = field(default_factory=CpuClock)
    cpu_before: float = 0.0
    peak: int = 0
    why: str = ""
    why_at: float = 0.0  # when the look began that was the reason
    processes: list[int] = field(default_factory=list)
    idle_cpu_s: float = 0.0  # what may be spent between requests, 0 for any amount
    idle_left: float = 0.0
    turn: int = 0
    sweeps: int = 0  # how often, since the last request, its leftovers were ended
    grouped: bool = False  # a control group holds its memory too
    tick: float = TICK_S

    @property
    def next_look(self) -> float:
        """Return when its memory and CPU time are to be checked next."""
        alone = len(self.processes) < 2
        return self.looked + (self.tick if self.armed else IDLE_TICK_S if alone else LEFTOVERS_TICK_S)


class Zygote:
    """The fork server: makes children, watches them and reaps them."""

    def __init__(self, control: socket.socket, turns: int, config: Message) -> None:
        self.control, self.turns = control, turns
        self.config = config
        self.children: dict[int, Child] = {}  # by process
        self.filters = {key: lockdown.Filter(program) for key, program in config["programs"].items()}
        self.halves = list(map(lockdown.Filter, config["halves"]))
        self.asking, self.mute = map(lockdown.Filter, config["memory_programs"])
        self.files = lockdown.FileRules(config["readable"], config["scratch"])
        self.removing: set[int] = set()
        self.ending = False  # no child can be made any more: it ends with its last
        self.cores = min(8, len(os.sched_getaffinity(0)))
        memory.shared_memory(os.getpid())  # learns what such memory looks like
        self.shared, self.mapped = memory.measure(os.getpid()), _read_mapped()
        self.pid = os.getpid()
        # What programs one after the other can write to, where there is a file system of their own but one.
        one_for_all = config["own_user"] and not config["namespaces"]
        self.shared_folders = (lockdown.HOME, "/tmp", lockdown.SHARED) if one_for_all else ()
        # A host in the background may ignore SIGINT, which its children inherit and programs must not notice.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody can wait for a child
        if not config["namespaces"]:
            lockdown.hide()  # from children, which see this process and the template
        own = lockdown.NEW_PID if config["namespaces"] else 0
        near, far = socket.socketpair()
        with near, far:
            closed = [control.fileno(), turns, near.fileno()]
            first = partial(self._begin_template, far)
            reachable = bool(self.shared_folders)
            self.template = Template(
                self._be_child, namespaces=own, closed=closed, first=first, reachable=reachable
            )
            _, fds, _, _ = socket.recv_fds(near, 1, 1) if self.template.pid else (b"", [], 0, None)
        self.listener = fds[0] if fds else -1  # where children ask for memory

    def serve(self) -> None:
        """Serve requests until the host closes the socket."""
        wake, waker = os.pipe()
        for end in (wake, waker):
            os.set_blocking(end, False)
        # The first process of its namespace hears no signal that it has no handler for.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.siginterrupt(signal.SIGCHLD, False)
        poll = select.poll()
        for end in (self.control.fileno(), wake, self.listener):
            if end >= 0:
                poll.register(end, select.POLLIN)
        while True:
            for fd, event in poll.poll(self._patience()):
                if fd == wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                elif fd == self.listener:
                    if event & select.POLLIN:
                        self._grant()
                    else:  # nobody is left who could ask
                        poll.unregister(fd)
                elif not self._obey():
                    return
            self._collect()
            if self.ending and not self.children:
                return
            self._watch()

    def close(self) -> None:
        """End all that is left and, without namespaces, remove the folders, as nobody else may be left to."""
        if self.config["namespaces"]:
            return  # that end with this process, or with the first one here
        self._make_way()
        if not self.shared_folders:
            files.remove_folder(self.config["scratch"])

    def _patience(self) -> float | None:
        """Return the milliseconds until the next check; None without children."""
        if not self.children:
            return None
        now = time.monotonic()
        soonest = min(min(c.deadline or c.next_look, c.next_look) for c in self.children.values())
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
                child.cpu_before = child.cpu.look(self._list_processes(pid))
            case "disarm":
                child.armed, child.cpu_s = False, 0.0

    # -------------------------------------------------------------------------------------- shared memory

    def _begin_template(self, far: socket.socket) -> None:
        """Apply, in the template, the rules that all children share."""
        listener = self.asking.listen(self.mute)
        socket.send_fds(far, [b"x"], [listener] if listener >= 0 else [])
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for fd in (listener, far.fileno()):
            if fd >= 0:
                os.dup2(nothing, fd, inheritable=False)
        if not self.config["namespaces"]:
            self.files.begin()

    def _grant(self) -> None:
        """Answer a thread that asks for shared memory, and charge the child that it belongs to."""
        asked = memory.hear(self.listener)
        if asked is None:
            return
        pid = process = memory.process_of(asked.thread)
        while pid > 1 and pid not in self.children:
            fields = read_fields(pid)
            above = int(fields[1]) if fields else 0
            orphan = (
                above == self.pid and self.shared_folders and pid not in (self.template.pid, *self.removing)
            )
            pid = next(iter(self.children), 0) if orphan else above
        if pid not in self.children:
            asked.refuse()
        elif not asked.another:
            self.children[pid].memory.grant(asked, partial(self._list_processes, pid))
        elif (fields := read_fields(process)) and int(fields[17]) < self.children[pid].threads:
            asked.let()
        else:
            asked.refuse()

    # ------------------------------------------------------------------------------------------- forking

    def _spawn(self, message: Message, fds: list[int]) -> None:
        scratch = None
        pid = -1
        try:
            if self.shared_folders:
                self._make_way()
                if self.template.pid:
                    with contextlib.suppress(ProcessLookupError):  # or ended it, which is noticed below
                        os.kill(self.template.pid, signal.SIGCONT)  # a program may have stopped it
            if not self.config["namespaces"]:
                import tempfile

                scratch = tempfile.mkdtemp(prefix="gem-", dir=self.config["scratch"])
            begun = time.monotonic()
            keys = ("id", "kind", "limits", "fork", "loopback", "group", "port")
            order = {key: message[key] for key in keys}
            pid = self.template.make(marshal.dumps((order, scratch)), fds)
        except OSError as error:
            self.ending |= self.template.gone  # which a program may have ended
            _tell(fds[_STATUS], {"setup": f"{error.strerror or error}", "ending": self.ending})
        finally:
            for i, fd in enumerate(fds):
                if i != _STATUS or pid < 0:
                    os.close(fd)
        if pid < 0:
            return
        # Parts of what children share with this process count in each, so all together may count nearly all.
        wall, own = message["wall_s"], message["own_memory"] + self.shared
        self.children[pid] = child = Child(
            number=message["id"],
            status=fds[_STATUS],
            begun=begun,
            deadline=begun + wall if wall else 0.0,
            cpu_s=message["cpu_s"],
            memory=memory.Account(message["memory"] + own, own),
            scratch=scratch,
            armed=bool(wall),
            looked=begun,
            idle_cpu_s=message.get("idle_cpu_s", 0.0),
            idle_left=message.get("idle_cpu_s", 0.0),
            grouped=message["group"],
            threads=message["limits"]["processes"],
        )
        child.tick = self._tick(child, 0)

    def _be_child(self, packet: bytes, fds: list[int]) -> NoReturn:
        message, scratch = marshal.loads(packet)
        try:
            if message["group"]:
                try:
                    os.write(fds.pop(), b"0")  # before it takes any memory of its own
                except OSError as error:
                    _tell(fds[_STATUS], {"setup": f"control group: {error.strerror}", "group": True})
                    os._exit(1)
            request, *stdio, status = fds[: _STATUS + 1]
            for fd, to in zip(stdio, range(_STDIO), strict=True):
                os.dup2(fd, to)
            for fd, to in ((request, _REQUEST), (status, _STATUS), (fds[-1], _WIRE)):
                os.dup2(fd, to, inheritable=False)
            os.closerange(_FIRST_FREE, 1 << 16)
            if message["kind"] == "judge":
                self._oversee(scratch)
            else:
                self.confine(message, scratch, self.pid, self.furnish(message, scratch))
            with open(_REQUEST, "rb") as file:
                asked = marshal.loads(file.read())
            wire = None
            if message["kind"] == "run":
                lockdown.show()
                os.close(_WIRE)
            else:
                wire = socket.socket(fileno=_WIRE)
            gc.enable()
        except BaseException as error:
            _tell(_STATUS, {"setup": f"{type(error).__name__}: {error}"})
            os._exit(1)
        os.close(_STATUS)
        try:
            if wire is None:
                program.run(asked)
            elif message["kind"] == "session":
                cells.session(asked, wire)
            else:
                self._judge(message, asked, wire)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        os._exit(1)

    def _oversee(self, scratch: str | None) -> None:
        """Set up the process of a judge, which runs nothing of a program and confines its cases."""
        if scratch is None:
            lockdown.see_own_processes()
        else:
            lockdown.die_with_parent(self.pid)
            os.chdir(scratch)

    def _judge(self, message: Message, asked: Message, wire: socket.socket) -> NoReturn:
        own = lockdown.NEW_PID if self.config["namespaces"] else 0
        Judge(asked, wire, _Confinement(self, message), shared=self.shared_folders, namespaces=own).serve()

    def furnish(self, message: Message, scratch: str | None, *, tester: bool = False) -> int | None:
        """Make the folders of a program, and its mounts if it has its own; return its rules for Landlock.

        Where all have one /tmp, a program has it, and not the tester beside it.
        """
        write = [lockdown.HOME, "/tmp", lockdown.SHARED]
        if scratch is None:
            program = bool(message["port"])
            lockdown.furnish(message["limits"], self.config["keep"], program=program)
            write += [lockdown.PROGRAM_HOME] * program
        else:
            write = [*split_folder(scratch)]
            for folder in (scratch, *write):
                os.makedirs(folder, exist_ok=True)
            write += () if tester else self.shared_folders[1:]  # the first holds the others' folders too
        return self.files.make(write, tcp=message["loopback"])

    def confine(self, message: Message, scratch: str | None, parent: int, rules: int | None) -> None:
        """Give up access to everything but the folders of `furnish`."""
        os.setsid()  # or kill(0) would mean the fork server and every other child
        limits: lockdown.Limits = message["limits"]
        judged = message["kind"] == "judge"
        if scratch is None:
            lockdown.separate(loopback=message["loopback"])
            if message["port"]:
                lockdown.hand_out_listener(message["port"], _WIRE)
            lockdown.show_processes(tools=message["kind"] == "session")
            lockdown.leave_user_namespace()
            os.chdir(lockdown.HOME)
        else:
            lockdown.die_with_parent(parent)
            home, temporary = split_folder(scratch)
            os.chdir(home)
            os.environ |= {"HOME": home, "PWD": home, "TMPDIR": temporary}
            limits["processes"] += 1 + judged  # templates are of the same user
        limits["memory"] += self.mapped
        late = judged and scratch is None  # its template has applied the other half
        program = self.halves[1] if late else self.filters[message["fork"], message["loopback"]]
        lockdown.confine(limits, rules, program, count_processes=self.config["own_user"])

    # ------------------------------------------------------------------------------------------ watching

    def _watch(self) -> None:
        now = time.monotonic()
        due = [
            (pid, child)
            for pid, child in self.children.items()
            if now >= child.next_look or (child.deadline and now >= child.deadline)
        ]
        if not due:
            return
        family = find_families()
        for pid, child in due:
            child.looked, span = now, now - child.looked
            if child.deadline and now >= child.deadline:
                self._kill(pid, child, "wall")
                continue
            processes = self._list_processes(pid, family)
            used = child.memory.measure_use(processes, partial(self._list_processes, pid), self.shared)
            child.peak = max(child.peak, used)
            child.tick = self._tick(child, used)
            cpu = child.cpu.look(processes)
            if 0 < child.memory.limit < used:
                _end(processes[1:])  # the first one's end would end them too, but later
                self._kill(pid, child, "memory")
            elif child.cpu_s and cpu - child.cpu_before > child.cpu_s:
                self._kill(pid, child, "cpu")
            elif not child.armed and child.idle_cpu_s:
                self._hold_idle(pid, child, processes, cpu, span)
            child.processes = processes

    def _list_processes(self, pid: int, families: dict[int, list[int]] | None = None) -> list[int]:
        """Return a child and all below it, where it is the only one also those that lost their parents."""
        families = find_families() if families is None else families
        roots = [pid]
        if self.shared_folders:
            known = {*self.children, *self.removing, self.template.pid}
            roots += [orphan for orphan in families.get(self.pid, ()) if orphan not in known]
        return [process for root in roots for process in _tree(root, families)]

    def _tick(self, child: Child, used: int) -> float:
        """Return how soon to check again: before memory can exceed the limit by half."""
        if child.grouped or not child.memory.limit:
            return TICK_S
        left = (1.5 * (child.memory.limit - child.memory.own) - used) / (GROWTH * self.cores)
        return min(TICK_S, max(SHORTEST_TICK_S, left))

    def _hold_idle(self, pid: int, child: Child, processes: list[int], cpu: float, span: float) -> None:
        """Limit the CPU time of leftover processes of cells and commands; end the interpreter only if needed.

        Time during a request is not counted: that request's budget limits it.
        """
        (turn,) = _TURN.unpack(os.pread(self.turns, _TURN.size, child.number % TURNS * _TURN.size))
        if turn % 2 == 0 and turn == child.turn:
            # What was born and ends between two looks is seen running at some of them, or never costs much.
            fresh = sum(read_fields(p)[:1] == ["R"] for p in processes if p not in child.processes)
            spent = max(cpu - child.cpu_before, fresh * span)
            child.idle_left = min(child.idle_left + IDLE_SHARE * span, child.idle_cpu_s) - spent
        else:
            child.sweeps = 0
        child.turn, child.cpu_before = turn, cpu
        if child.idle_left >= 0:
            return
        ended: set[int] = set()
        for _ in range(20):
            running = {p for p in self._list_processes(pid)[1:] if _lives(p)} - ended
            _end(running)
            ended |= running
            if not running:
                break
        child.sweeps += 1
        if not ended or child.sweeps > 5:
            self._kill(pid, child, "idle")
            return
        child.idle_left = IDLE_TICK_S  # a thread of the interpreter itself will have spent that soon
        _tell(child.status, {"leftovers": "cpu"})

    def _kill(self, pid: int, child: Child, why: str) -> None:
        if not child.why:
            child.why, child.why_at = why, child.looked
        child.deadline, child.armed = 0.0, False
        os.kill(pid, signal.SIGKILL)
        if not self.config["namespaces"]:
            self._sweep()

    def _sweep(self) -> None:
        """Without namespaces: end every descendant that is not a child of ours or is below an ending one."""
        ending = [pid for pid, child in self.children.items() if child.why]
        for _ in range(20):
            families = find_families()  # one for both, or what a child forks in between would be ended
            kept = [pid for pid, child in self.children.items() if not child.why]
            kept += [*self.removing, self.template.pid]
            staying = {process for pid in kept for process in (pid, *list_descendants(pid, families))}
            leaving = set(list_descendants(os.getpid(), families)) - staying - set(ending)
            running = [pid for pid in leaving if _lives(pid)]
            if not running:
                return
            _end(running)

    def _make_way(self) -> None:
        """End the previous child and clean up, if children use the same folders one after another."""
        for pid, child in self.children.items():
            self._kill(pid, child, "closed")
        while self.children:
            self._collect(wait=True)
        kept, deadline = {self.template.pid, *self.removing}, time.monotonic() + GONE_S
        while (left := set(list_descendants(os.getpid())) - kept) and time.monotonic() < deadline:
            _end(left)  # what has ended is in sight of the next child until it is reaped
            self._collect()
            time.sleep(0.001)

    def _collect(self, *, wait: bool = False) -> None:
        while self.children or not wait:
            try:
                pid, status, usage = os.wait4(-1, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.template.pid:
                self.ending = True  # a program may have ended it, and is not to lose its own verdict by that
                continue
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
                    "why_at": child.why_at,
                    "memory": max(child.peak, usage.ru_maxrss * 1024 - self.shared, 0),
                },
            )
            os.close(child.status)
            if child.scratch is not None:
                self._sweep()
                self._clear(child.scratch)
                if self.shared_folders:
                    files.clear_up(self.shared_folders)

    def _clear(self, folder: str) -> None:
        """Remove what a child left; if that takes long, in another process: other children have deadlines.

        Where one child comes after the other there are none, and the next one would see that process.
        """
        if self.shared_folders or _few(folder):
            files.remove_folder(folder)
            return
        zygote = os.getpid()
        if (pid := os.fork()) != 0:
            self.removing.add(pid)
            return
        try:
            signal.set_wakeup_fd(-1)
            os.closerange(_STDIO, 1 << 16)
            lockdown.die_with_parent(zygote)
            files.remove_folder(folder)
        finally:
            os._exit(0)


class _Confinement(Confinement):
    """The confinement of a submission's cases; with namespaces, each has mounts of its own."""

    def __init__(self, zygote: Zygote, message: Message) -> None:
        self.zygote, self.message = zygote, message
        self.judge = os.getpid()
        self.mounts = lockdown.open_mounts() if zygote.config["namespaces"] else -1  # the judge's own

    def begin(self) -> None:
        if self.mounts >= 0:
            self.zygote.halves[0].install()

    def prepare(self, folder: str, *, tester: bool) -> tuple[list[int], list[int]]:
        place = []
        try:
            rules = self.zygote.furnish(self.message, folder or None, tester=tester)
            temporary = split_folder(folder)[1] if folder else "/tmp"
            output = [files.open_nameless(b"", temporary) for _ in range(FILES)]
            if self.mounts >= 0:
                place.append(lockdown.open_mounts())
        finally:
            if self.mounts >= 0:
                lockdown.enter_mounts(self.mounts)
        return output, place if rules is None else [*place, rules]

    def enter(self, folder: str, place: Sequence[int]) -> None:
        if self.mounts >= 0:
            lockdown.enter_mounts(place[0])
        rules = place[-1] if len(place) > (self.mounts >= 0) else None
        self.zygote.confine(self.message, folder or None, self.judge, rules)


def main(fd: int) -> None:
    """Run a fork server on the control socket `fd`; returns when the host closes it."""
    control = socket.socket(fileno=fd)
    packet, (turns,), _, _ = socket.recv_fds(control, 1 << 16, 1)
    config: Message = marshal.loads(packet)
    try:
        _prepare(config, control)
        zygote = Zygote(control, turns, config)
    except BaseException as error:
        control.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        return
    control.send(json.dumps({"ready": True, "shared": zygote.shared}).encode())
    zygote.serve()
    zygote.close()


def _prepare(config: Message, control: socket.socket) -> None:
    while (fd := os.open("/dev/null", os.O_RDWR)) < _FIRST_FREE + 2:
        pass  # descriptors that come later must not lie where a child wants its own
    os.close(fd)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if config["image"] is not None:
        namespaces.enter(config["image"], control, root=config["root"])
    if config["user"] is not None:
        (lockdown.step_down if config["namespaces"] else lockdown.give_up_root)(config["user"])
    if not config["namespaces"]:
        lockdown.adopt_orphans()
    os.umask(0o022)
    os.environ |= {"HOME": lockdown.HOME, "PWD": lockdown.HOME, "TMPDIR": "/tmp"}
    sys.path += config["sites"]  # what is in them and runs as Python starts is not for here
    with _ending_with(control):
        _open_site()
        _warm(config["preload"], config["namespaces"])
    if config["readable"] is not None:  # no child of its own, and no /dev/shm
        with contextlib.suppress(ImportError):
            import _multiprocessing  # type: ignore[import-not-found]

            _multiprocessing.SemLock = program.ThreadLock
    program.open_streams_to_be()
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


@contextlib.contextmanager
def _ending_with(control: socket.socket) -> Iterator[None]:
    """Return a context manager in which this process exits as soon as the host is gone.

    It is for slow imports. It uses a signal handler, because the first process of a namespace ignores signals
    without one, and no thread, because a process with threads cannot be forked safely.
    """
    flags = fcntl.fcntl(control, fcntl.F_GETFL)
    before = signal.signal(signal.SIGIO, lambda *_: os._exit(1))
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()
    poll.register(control, 0)
    if poll.poll(0):
        os._exit(1)
    yield
    fcntl.fcntl(control, fcntl.F_SETFL, flags)
    signal.signal(signal.SIGIO, before)


def _rehearse() -> None:
    """Do what every child will do, as far as it can be undone, so that children share these pages.

    A page that a child writes to is copied, such as a filling cache or code that specializes.
    """
    for _ in range(REHEARSALS):
        lockdown.rehearse()
        cells.rehearse()


def _open_site() -> None:
    import site

    site.setquit()
    site.sethelper()
    sys.path_importer_cache.clear()


_STANDARD = ("bisect", "collections", "datetime", "heapq", "itertools", "math", "random", "string", "typing")


def _warm(packages: list[str], namespaces: bool) -> None:
    """Import what programs import and use it once, so that caches are full before the first fork."""
    for package in (*_STANDARD, *packages):
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
    """Give matplotlib the writable folder that its import needs; nothing else here can be written."""
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


def _few(folder: str) -> bool:
    """Return whether there are few entries below a folder, without listing all of many."""
    left, count = [folder], 0
    with contextlib.suppress(OSError):
        while left:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if (count := count + 1) > FEW:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        return True
    return False


def _lives(pid: int) -> bool:
    """Return whether a process runs; its first thread may have ended, and other threads not."""
    fields = read_fields(pid)
    return bool(fields) and (fields[0] != "Z" or int(fields[17]) > 1)


def _tree(pid: int, families: dict[int, list[int]] | None = None) -> list[int]:
    return [pid, *list_descendants(pid, families)]


def _end(processes: Iterable[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _read_mapped() -> int:
    """Return the bytes that this process maps, rounded up, or a program would know its server by them."""
    with open("/proc/self/statm", "rb") as file:
        return -(-int(file.read().split()[0]) * _PAGE // MAPPED_STEP) * MAPPED_STEP
