"""`ZygoteSandbox`: runs, sessions and judging over pools of fork servers; its settings make the backends.

Every call has its own descriptors and is served by the thread that makes it, so there is no shared reader to
wait for. A fork server that dies closes the status pipes of its calls, so each of them notices at once.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from gem.errors import BadArgument
from gem.sandbox import bwrap
from gem.sandbox.base import Budget, Result
from gem.sandbox.judging import Judging
from gem.sandbox.pool import Child, Lost, Pool, Settings, call_twice, kind_for, make_child
from gem.sandbox.request import Caller, Message, Request
from gem.sandbox.session import ZygoteSession
from gem.sandbox.verdicts import verdict
from gem.sandbox.wire import Channels

BACKSTOP_S = 10.0  # a fork server that has not kept a deadline for so long hangs


class ZygoteSandbox(Caller):
    """A sandbox that runs programs in children of fork servers.

    Args:
        settings: how to start its fork servers; those of the ``userns`` backend by default.
        max_running: how many runs and judged cases may run at once; further calls wait, and their waiting
            does not count. By default twice the number of cores, at least 4. Cells and commands of sessions
            may be four times as many, because they wait more than they compute.
        begin: the kinds of fork server to start now; others start when a program first needs them.
        control_groups: limit memory by control groups too, where the system offers them.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        max_running: int | None = None,
        begin: Sequence[str] = ("bare", "science"),
        control_groups: bool = True,
    ) -> None:
        self.settings = replace(settings or Settings(), control_groups=control_groups)
        if self.settings.isolation == "bwrap":
            bwrap.find()
        self.backend = self.settings.backend
        self.for_programs = self.settings.visible is not None
        self.max_running = max_running or max(4, 2 * self.settings.cores)
        self.info: Mapping[str, Any] = {"backend": self.backend, "filter": self.settings.filter}
        self.pool = Pool(self.settings, begin, self.max_running)
        self._sessions: weakref.WeakSet[ZygoteSession] = weakref.WeakSet()
        _open.add(self)

    def _run(self, request: Request) -> Result:
        return call_twice(partial(self._run_once, kind_for(request.code), request))

    def _run_once(self, kind: str, request: Request) -> Result:
        budget, pool = request.budget, self.pool
        with (
            pool.running,
            pool.borrow(kind) as zygote,
            closing(make_child(zygote, wire=False, output=budget.output_kb << 10)) as child,
        ):
            child.begin(request.run_message(), self.settings.child_message("run", budget), request.stdin)
            ended = self._until_ended(child, budget)
            return verdict(ended, child.out.text(), child.err.text(), budget, self.info, cut=child.cut)

    def _session(self, request: Request) -> ZygoteSession:
        """Open a session; its child is forked at first use, when the first cell's imports are known."""
        if request.loopback and not self.settings.namespaces:
            raise BadArgument(f"loopback: the backend {self.backend!r} has no network of its own to give.")
        return ZygoteSession(self.pool, self._sessions, self.info, request)

    def _judge(self, request: Request) -> list[Result]:
        cases = request.cases
        texts = [text for case in cases if case.tester for text in case.args if isinstance(text, str)]
        kind = kind_for("\n".join([request.code, *(case.code or "" for case in cases), *texts]))
        return Judging(self.pool, self.info, kind, request).results()

    def _until_ended(self, child: Child, budget: Budget) -> Message:
        channels = Channels(child)
        backstop = time.monotonic() + budget.wall_s + BACKSTOP_S
        flooded = False
        while True:
            left = backstop - time.monotonic()
            ready = channels.wait(left)
            if not ready and left <= 0:
                child.zygote.discard()
                raise Lost("a fork server hangs")
            if child.cut and not flooded:
                flooded = True
                child.order("kill", why="output")
            if "status" in ready and (ended := child.read_end()) is not None:
                child.drain()
                return ended

    def report(self) -> Mapping[str, Any]:
        """Return the backend, its self-test, and in words what limits the memory of a call's processes."""
        version = self.pool.control_groups().version
        by_kernel = f"a control group (version {version}) and " if version else ""
        return {**super().report(), "memory": f"{by_kernel}a watch every 0.1 s"}

    def close(self) -> None:
        """End every process of this sandbox; calls in flight fail."""
        self.pool.close()  # first, so that no session waits for a cell
        for session in list(self._sessions):
            session.close()
        _open.discard(self)

    def _after_fork(self) -> None:
        """Start afresh in a forked process: fork servers, locks and threads belong to the parent."""
        for session in list(self._sessions):
            session.forget()
        self.pool.forget()


_open: weakref.WeakSet[ZygoteSandbox] = weakref.WeakSet()


def _after_fork() -> None:
    for sandbox in list(_open):
        sandbox._after_fork()


def _at_exit() -> None:
    for sandbox in list(_open):
        sandbox.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
