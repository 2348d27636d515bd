"""Warm worker processes that may be killed: for grading code that hangs, bursts or crashes.

One pool serves a whole process, any of its threads, however many environments it holds; a forked or spawned
process has its own. A worker is started when all others are busy, up to the pool's size, and replaced when a
question killed it, after so many questions, or when its memory has grown. Nothing here uses signals in the
calling process, and workers end when it does, by the closed line.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from time import monotonic
from typing import Any

from gem.errors import NoVerdict

START_S = 120.0
"""Wall clock for a worker to load its libraries; on a busy machine that is slow."""

CPU_GRACE_S = 0.5


class WorkerLost(NoVerdict):
    """A worker ended, or was ended, before it answered; `spent`: its CPU budget was used up."""

    def __init__(self, message: str, spent: bool = False) -> None:
        """Keep why."""
        super().__init__(message)
        self.spent = spent


class Missing(Exception):
    """The worker lacks a package; the name stands in `package`."""

    def __init__(self, package: str, why: str) -> None:
        super().__init__(why)
        self.package = package


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    line: socket.socket
    asked: int = 0

    def close(self) -> None:
        self.line.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Pool:
    """Workers that run one program; see `gem.graders._math_worker` for what such a program does."""

    def __init__(
        self, program: Path, size: int | None = None, retire: int = 2000, memory_mb: int = 700
    ) -> None:
        """Start nothing yet.

        Args:
            program: the file that a worker runs.
            size: most workers at once; by default the processors, at most 8.
            retire: questions after which a worker is replaced.
            memory_mb: resident memory above which it is replaced.
        """
        self.program = program
        self.size = size or max(
            1,
            min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        )
        self.retire, self.memory_mb = retire, memory_mb
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._count = 0
        self._changed = Condition()
        _pools.add(self)

    @property
    def pids(self) -> list[int]:
        """The processes of the idle workers."""
        with self._changed:
            return [worker.process.pid for worker in self._idle]

    def ask(self, question: Mapping[str, Any], cpu_s: float, wall_s: float) -> Any:
        """Return a worker's answer to `question`; waiting for a free worker does not count.

        Args:
            question: what JSON can hold; `cpu_s` is added to it.
            cpu_s: CPU time that it may take.
            wall_s: wall clock that it may take, a safety net for a worker that sleeps.

        Raises:
            WorkerLost: when the worker died or was killed. Missing: when it lacks a package.
        """
        worker = self._take()
        healthy = False
        try:
            answer = self._exchange(worker, {**question, "cpu_s": cpu_s}, wall_s)
            worker.asked += 1
            healthy = worker.asked < self.retire and _resident_mb(worker.process.pid) < self.memory_mb
            return answer
        finally:
            self._give_back(worker, healthy)

    def close(self) -> None:
        """End the idle workers, and each busy one when it has answered. A later question starts new ones."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            self._all.difference_update(idle)
            self._changed.notify_all()
        for worker in idle:
            worker.close()

    def _take(self) -> _Worker:
        with self._changed:
            while not self._idle and self._count >= self.size:
                self._changed.wait()
            if self._idle:
                return self._idle.pop()
            self._count += 1
        try:
            worker = self._start()
            self._all.add(worker)
            return worker
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def _give_back(self, worker: _Worker, healthy: bool) -> None:
        if not healthy:
            worker.close()
        with self._changed:
            if healthy:
                self._idle.append(worker)
            else:
                self._count -= 1
                self._all.discard(worker)
            self._changed.notify()

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                # -P: the program's folder holds a math.py, which must not stand in for the library's
                [sys.executable, "-P", str(self.program)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            ours.close()
            raise WorkerLost(f"a grading worker does not start: {error}") from error
        finally:
            theirs.close()
        worker = _Worker(process, ours)
        try:
            ready = self._receive(worker, monotonic() + START_S)
        except BaseException:
            worker.close()
            raise
        if "ready" in ready:
            return worker
        worker.close()
        if "missing" in ready:
            raise Missing(ready["missing"], ready["why"])
        raise WorkerLost(f"a grading worker does not start: {ready.get('broken', ready)}")

    def _exchange(self, worker: _Worker, question: Mapping[str, Any], wall_s: float) -> Any:
        deadline = monotonic() + wall_s
        data = json.dumps(question).encode()
        try:
            worker.line.settimeout(wall_s)
            worker.line.sendall(struct.pack(">I", len(data)) + data)
        except TimeoutError as error:
            raise WorkerLost(f"a grading worker took no question within {wall_s:g} s") from error
        except OSError as error:
            raise self._lost(worker) from error
        return self._receive(worker, deadline)

    def _receive(self, worker: _Worker, deadline: float) -> Any:
        data = b""
        wanted = 4
        try:
            while True:
                left = deadline - monotonic()
                if left <= 0:
                    raise TimeoutError
                worker.line.settimeout(left)
                part = worker.line.recv(1 << 16)
                if not part:
                    raise self._lost(worker)
                data += part
                if len(data) >= 4:
                    wanted = 4 + struct.unpack(">I", data[:4])[0]
                    if len(data) >= wanted:
                        return json.loads(data[4:wanted])
        except TimeoutError as error:
            raise WorkerLost("a grading worker did not answer in time") from error
        except OSError as error:
            raise self._lost(worker) from error

    @staticmethod
    def _lost(worker: _Worker) -> WorkerLost:
        try:
            code = worker.process.wait(5)
        except subprocess.TimeoutExpired:
            return WorkerLost("a grading worker closed its line")
        spent = code in (-signal.SIGPROF, -getattr(signal, "SIGXCPU", 0))
        return WorkerLost(
            "its CPU budget is spent" if spent else f"a grading worker ended with code {code}", spent
        )


def _resident_mb(pid: int) -> float:
    """Return a process's resident memory in MiB; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except (OSError, ValueError, IndexError):
        return 0.0


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    """In a forked child: the workers are the parent's; close our copies of the lines, kill nobody."""
    for pool in list(_pools):
        for worker in pool._all:
            worker.line.close()
            worker.process.returncode = (
                0  # else its destructor would wait for a process that is not our child
            )
        pool._idle, pool._all, pool._count, pool._changed = [], set(), 0, Condition()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
