"""Warm worker processes that can be killed, for grading code that hangs, runs out of memory or crashes.

One pool serves all threads and environments of a process; a forked or spawned process has its own. The first
question starts a fork server (`gem.graders.fork_server`), a fresh process that loads the program once. It
forks a worker, in milliseconds, when all others are busy, up to the pool's size. A worker is replaced when a
question killed it, after a number of questions, or when its memory has grown. Nothing here forks the calling
process or uses signals in it. Server and workers end with it, because their socket closes.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock, RLock
from time import monotonic
from typing import Any

from gem.errors import NoVerdict
from gem.graders.fork_server import receive, send

SERVER = Path(__file__).with_name("fork_server.py")
START_S = 120.0
"""Wall-clock seconds for the server to load its libraries, which is slow on a busy machine."""


class WorkerLost(NoVerdict):
    """A worker ended or was killed before it answered; `spent`: its CPU budget ran out."""

    def __init__(self, message: str, spent: bool = False) -> None:
        """Store the reason."""
        super().__init__(message)
        self.spent = spent


class Missing(Exception):
    """The worker lacks a package, named in `package`."""

    def __init__(self, package: str, why: str) -> None:
        super().__init__(why)
        self.package = package


class _Server:
    """The process that forks the workers and waits for them; one thread at a time gives it orders."""

    def __init__(self, program: Path) -> None:
        """Start the server and wait until it has loaded `program`.

        Raises:
            WorkerLost: when it does not start. Missing: when it lacks a package.
        """
        self.closed = False
        self._ordering = RLock()
        self.control, theirs = socket.socketpair()
        _servers.add(self)
        try:
            self.process = subprocess.Popen(
                # -P: this folder holds a math.py, which must not stand in for the library's
                [sys.executable, "-P", str(SERVER), str(program)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            self.control.close()
            raise WorkerLost(f"the grading workers do not start: {error}") from error
        finally:
            theirs.close()
        try:
            message = receive(self.control, monotonic() + START_S)
        except OSError as error:
            message = {"broken": str(error)}
        except BaseException:
            self.close()
            raise
        if "ready" not in message:
            self.close()
            if "missing" in message:
                raise Missing(message["missing"], message["why"])
            raise WorkerLost(f"the grading workers do not start: {message['broken']}")
        self.control.settimeout(START_S)

    def fork(self) -> _Worker:
        """Return a new worker."""
        ours, theirs = socket.socketpair()
        try:
            return _Worker(self._order(0, theirs.fileno()), ours, self)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def end(self, pid: int) -> int:
        """End a worker and return its code, as in `subprocess.Popen.returncode`."""
        return -signal.SIGKILL if self.closed else self._order(pid)

    def _order(self, number: int, *lines: int) -> int:
        with self._ordering:
            try:
                socket.send_fds(self.control, [struct.pack("!i", number)], lines)
                return int(struct.unpack("!i", self.control.recv(4))[0])
            except BaseException as error:
                self.close()  # else the reply would be taken for the next one's
                if isinstance(error, OSError | struct.error):
                    raise WorkerLost("the process that forks the grading workers ended") from error
                raise

    def close(self) -> None:
        """End the server and its workers."""
        self.closed = True
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # a thread that waits for a reply wakes up
        with self._ordering:
            self.control.close()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass(eq=False)
class _Worker:
    pid: int
    line: socket.socket
    server: _Server
    asked: int = 0
    code: int | None = None

    def end(self) -> int:
        self.line.close()
        if self.code is None:
            self.code = self.server.end(self.pid)
        return self.code


class WorkerPool:
    """Workers that run one program; see `gem.graders.fork_server` for what such a program is."""

    def __init__(
        self, program: Path, size: int | None = None, retire: int = 2000, memory_mb: int = 700
    ) -> None:
        """Set the limits; no process starts yet.

        Args:
            program: the file that the workers run.
            size: the most workers at once; by default the number of processors, at most 8.
            retire: the number of questions after which a worker is replaced.
            memory_mb: the resident memory in MiB above which a worker is replaced.
        """
        self.program = program
        self.size = size or max(
            1,
            min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        )
        self.retire, self.memory_mb = retire, memory_mb
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._server: _Server | None = None
        self._starting = Lock()
        self._idle: list[_Worker] = []
        self._count = 0
        self._changed = Condition()

    @property
    def pids(self) -> list[int]:
        """The processes of the idle workers."""
        with self._changed:
            return [worker.pid for worker in self._idle]

    @property
    def server_pid(self) -> int | None:
        """The process that forks the workers, if it has been started."""
        return self._server.process.pid if self._server else None

    def ask(self, question: Mapping[str, Any], cpu_s: float, wall_s: float) -> Any:
        """Return a worker's answer to `question`; the wait for a free worker does not count.

        Args:
            question: JSON-serializable data; `cpu_s` is added to it.
            cpu_s: the CPU seconds that it may take.
            wall_s: the wall-clock seconds that it may take, a safety limit for a worker that sleeps.

        Raises:
            WorkerLost: when the worker died or was killed. Missing: when it lacks a package.
        """
        worker = self._take()
        healthy = False
        try:
            answer = _exchange(worker, {**question, "cpu_s": cpu_s}, wall_s)
            worker.asked += 1
            healthy = worker.asked < self.retire and resident_mb(worker.pid) < self.memory_mb
            return answer
        finally:
            self._give_back(worker, healthy)

    def close(self) -> None:
        """End the workers; a question in work is lost. A later question starts new workers."""
        with self._changed:
            idle, self._idle = self._idle, []
            server, self._server = self._server, None
            self._count -= len(idle)
            self._changed.notify_all()
        for worker in idle:
            worker.line.close()
        if server:
            server.close()

    def _take(self) -> _Worker:
        with self._changed:
            while not self._idle and self._count >= self.size:
                self._changed.wait()
            while self._idle:
                worker = self._idle.pop()
                if not worker.server.closed:
                    return worker
                worker.line.close()
                self._count -= 1
            self._count += 1
        try:
            with self._starting:
                server = self._server
                if server is None or server.closed:
                    server = self._server = _Server(self.program)
            return server.fork()
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def _give_back(self, worker: _Worker, healthy: bool) -> None:
        try:
            if not healthy:
                with suppress(WorkerLost):  # its server is gone, and so is it
                    worker.end()
        finally:
            with self._changed:
                if healthy:
                    self._idle.append(worker)
                else:
                    self._count -= 1
                self._changed.notify()


def _exchange(worker: _Worker, question: Mapping[str, Any], wall_s: float) -> Any:
    deadline = monotonic() + wall_s
    try:
        worker.line.settimeout(wall_s)
        send(worker.line, question)
        return receive(worker.line, deadline)
    except TimeoutError as error:
        raise WorkerLost(f"a grading worker did not answer within {wall_s:g} s") from error
    except OSError as error:
        code = worker.end()
        spent = code == -signal.SIGPROF
        raise WorkerLost(
            "its CPU budget is spent" if spent else f"a grading worker ended with code {code}", spent
        ) from error


def resident_mb(pid: int) -> float:
    """Return a process's resident memory in MiB; 0 if the system does not report it."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except (OSError, ValueError, IndexError):
        return 0.0


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    """In a forked child, close the copies of the sockets; server and workers belong to the parent."""
    for server in list(_servers):
        server.closed = True
        server.control.close()
        if hasattr(server, "process"):  # its destructor would wait for a process that is not our child
            server.process.returncode = 0
    for pool in list(_pools):
        for worker in pool._idle:
            worker.line.close()
        pool._begin()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
