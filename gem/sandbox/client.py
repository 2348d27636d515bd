"""`ZygoteSandbox`: runs, sessions and judging over pools of fork servers. The rungs are its settings.

Every call has descriptors of its own and is served by the thread that makes it, so there is no shared reader
to wait for; a fork server that dies closes the status pipes of its calls, and each of them knows at once.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from functools import partial
from os import PathLike
from typing import Any, Self, TypeVar

from gem.errors import BadArgument
from gem.sandbox import box
from gem.sandbox.base import Budget, Case, Result, SandboxFailed, Status
from gem.sandbox.pool import Child, Lost, Pool, Settings, Zygote, kind_for, make_child

BACKSTOP_S = 10.0  # a fork server that has not kept a deadline for so long hangs
LONGEST_VALUE = 4 << 20

_DOES_NOT_COMPILE, _NO_MEMORY = 254, 253  # as runner.py has them, which is the box's half
_T = TypeVar("_T")

Message = dict[str, Any]


class Cancel:
    """A way to end a call from another thread: `cancel()` kills the whole tree."""

    def __init__(self) -> None:
        self.asked = False
        self._lock = threading.Lock()
        self._child: Child | None = None

    def watch(self, child: Child | None) -> None:
        """Say which child is meant from now on."""
        with self._lock:
            self._child = child
            if child is not None and self.asked:
                child.order("kill", why="cancelled")

    def cancel(self) -> None:
        """End the call now, or as soon as it begins."""
        with self._lock:
            self.asked = True
            if self._child is not None:
                self._child.order("kill", why="cancelled")


class ZygoteSandbox:
    """Fork servers behind the `gem.sandbox.base.Sandbox` interface.

    Args:
        settings: how its fork servers are started; the ``userns`` rung by default.
        max_running: how many children may run at once; further calls wait, and their time does not count.
            Twice the cores, and at least 4, by default.
        begin: the kinds of fork server to start at once; others start when a program first needs them.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        max_running: int | None = None,
        begin: Sequence[str] = ("bare", "science"),
    ) -> None:
        self.settings = settings or Settings()
        if self.settings.boxed:
            box.find_bwrap()
        self.rung = self.settings.rung
        self.max_running = max_running or max(4, 2 * self.settings.cores)
        self.info: Mapping[str, Any] = {"rung": self.rung}
        self._begin = tuple(begin)
        self._set_up()
        _open.add(self)

    def _set_up(self) -> None:
        self.pool = Pool(self.settings, self._begin)
        self.running = threading.BoundedSemaphore(self.max_running)
        self._executor: ThreadPoolExecutor | None = None
        self._executor_lock = threading.Lock()

    def run(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run a program in a fresh child.

        Raises:
            SandboxFailed: when the sandbox failed twice in a row.
            BadArgument: for a file's path that leaves the working folder, or a budget that is not positive.
        """
        budget = checked_budget(budget)
        request = {
            "code": code.encode("utf-8", "surrogatepass"),
            "args": [str(arg).replace("\0", "") for arg in args],
            "files": checked_files(files),
        }
        call = partial(self._run, kind_for(code), request, stdin, budget, cancel or Cancel())
        return self.twice(call)

    def _run(self, kind: str, request: Message, stdin: bytes, budget: Budget, cancel: Cancel) -> Result:
        with self.running, self.pool.borrow(kind) as zygote, self.child(zygote, budget) as child:
            child.begin(request, self.message("run", budget), stdin)
            cancel.watch(child)
            try:
                ended = self._until_ended(child, budget)
            finally:
                cancel.watch(None)
            return verdict(ended, child.out.text(), child.err.text(), budget, self.info, cut=child.cut)

    async def arun(self, code: str, **kwargs: Any) -> Result:
        """Run without blocking the event loop; cancelling kills the whole tree."""
        cancel = Cancel()
        with self._executor_lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.max_running, "gem-sandbox")
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._executor, partial(self.run, code, cancel=cancel, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.cancel():
                cancel.cancel()
            raise

    def twice(self, call: Callable[[], _T]) -> _T:
        """Call, and once more where the sandbox failed: what it began has no effect outside the box.

        Raises:
            SandboxFailed: the second time.
        """
        try:
            return call()
        except Lost:
            pass
        try:
            return call()
        except Lost as error:
            raise SandboxFailed(f"the sandbox failed twice: {error}") from error

    def child(self, zygote: Zygote, budget: Budget, *, wire: bool = False) -> AbstractContextManager[Child]:
        """Return the descriptors of a child to be, which close at the end of the block."""
        return closing(make_child(zygote, wire=wire, output=budget.output_kb << 10))

    def message(self, kind: str, budget: Budget, *, timed: bool = True, loopback: bool = False) -> Message:
        """Return what the fork server has to know of a child; `timed`: the budget's times are its own."""
        memory, cpu_s = budget.memory_mb << 20, budget.cpu_s if timed else 0.0
        return {
            "kind": kind,
            "wall_s": budget.wall_s if timed else 0.0,
            "cpu_s": cpu_s,
            "memory": memory,
            "fork": self.settings.fork,
            "loopback": loopback,
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

    def _until_ended(self, child: Child, budget: Budget) -> Message:
        streams = {child.out.fd: child.out, child.err.fd: child.err}
        poll = select.poll()
        for fd in (*streams, child.status):
            poll.register(fd, select.POLLIN)
        backstop = time.monotonic() + budget.wall_s + BACKSTOP_S
        flooded = False
        while True:
            left = backstop - time.monotonic()
            ready = poll.poll(max(0.0, left) * 1000)
            if not ready and left <= 0:
                child.zygote.broken()
                raise Lost("a fork server hangs")
            over = False
            for fd, _ in ready:
                stream = streams.get(fd)
                if stream is None:
                    over = True
                    continue
                if not stream.read():
                    poll.unregister(fd)
                if stream.cut and not flooded:
                    flooded = True
                    child.order("kill", why="output")
            if over and (ended := child.ended()) is not None:
                for stream in streams.values():
                    stream.drain()
                return ended

    def report(self) -> Mapping[str, Any]:
        """Return the rung, and what is known without probing; the ladder adds the rest."""
        return dict(self.info)

    def close(self) -> None:
        """End every process of this sandbox; calls in flight fail."""
        self.pool.close()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _after_fork(self) -> None:
        """Begin anew in a forked process: fork servers, locks and threads are the parent's."""
        closed = self.pool.closed
        self.pool.forget()
        self._begin = ()
        self._set_up()
        self.pool.closed = closed


class UsernsSandbox(ZygoteSandbox):
    """The default rung: bubblewrap outside, namespaces of its own for every child."""


_open: weakref.WeakSet[ZygoteSandbox] = weakref.WeakSet()


def _after_fork() -> None:
    for sandbox in list(_open):
        sandbox._after_fork()


def _at_exit() -> None:
    for sandbox in list(_open):
        sandbox.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def verdict(
    ended: Message, stdout: str, stderr: str, budget: Budget, info: Mapping[str, Any], *, cut: bool
) -> Result:
    """Say how a program ended, from what the fork server saw and what the program wrote."""
    code = os.waitstatus_to_exitcode(ended["status"])
    signal_number = -code if code < 0 else None
    exit_code = code if code >= 0 else None
    last = stderr.rstrip().rpartition("\n")[2]
    why = ended["why"]
    if why in ("wall", "cpu") or (
        signal_number in (9, 24) and not why and ended["cpu_s"] >= budget.cpu_s * 0.95
    ):
        status = Status.TLE
    elif why == "memory":
        status = Status.MLE
    elif why == "output" or cut or signal_number == 25:
        status = Status.OLE
    elif exit_code == _DOES_NOT_COMPILE and _COMPILING.match(last):
        status, exit_code = Status.CE, 1
    elif exit_code in (_NO_MEMORY, 1) and _MEMORY.match(last):
        status, exit_code = Status.MLE, 1
    else:
        status = Status.RE if code else Status.OK
    return Result(
        status=status,
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        signal=signal_number,
        wall_s=ended["wall_s"],
        cpu_s=ended["cpu_s"],
        memory_mb=ended["memory"] / (1 << 20),
        cut=cut,
        info={**info, "why": why} if why else info,
    )


_COMPILING = re.compile(r"(\w*SyntaxError|IndentationError|TabError)\b")
_MEMORY = re.compile(r"[\w.]*MemoryError\b")


def checked_budget(budget: Budget | None) -> Budget:
    """Return a budget whose numbers are positive. Raises BadArgument."""
    if budget is None:
        return Budget()
    for entry in fields(budget):
        value = getattr(budget, entry.name)
        if not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise BadArgument(f"budget: {entry.name} must be a positive number, not {value!r}.")
    return budget


def checked_files(files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """Return files whose paths stay below the working folder. Raises BadArgument."""
    for path, data in (files or {}).items():
        checked_path(path)
        if not isinstance(data, bytes):
            raise BadArgument(f"files: {path!r} must hold bytes, not {type(data).__name__}.")
    return dict(files or {})


def checked_path(path: str) -> str:
    """Return a path that stays below the working folder. Raises BadArgument."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts or "\0" in path:
        raise BadArgument(f"files: a path must stay below the working folder, not be {path!r}.")
    return path
