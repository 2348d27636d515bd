"""Judging: one child compiles the submission and forks per case; expected outputs never enter it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from gem.sandbox.base import Result, SandboxFailed, Status
from gem.sandbox.pool import Child, Lost, Pool, make_child
from gem.sandbox.request import Message, Request
from gem.sandbox.verdicts import case_verdict, check_served, verdict
from gem.sandbox.wire import Channels, Garbled, Wire

BEGIN_S = 30.0
COMPILE_CPU_S = 1.0  # at least; compiling may take what a case may
BACKSTOP_S = 10.0  # the child keeps the deadlines of cases itself; one that is so late hangs


class Broke(Lost):
    """A submission's child ended by itself or hangs; the second time, the submission is to blame."""


class Judging:
    """The judging of one submission's cases, resumed at the same case if the sandbox failed."""

    def __init__(self, pool: Pool, info: Mapping[str, Any], kind: str, request: Request) -> None:
        self.pool, self.info, self.kind = pool, info, kind
        self.budget, self.go_on = request.budget, request.go_on
        self.submission, self.cases = request.judge_message()
        self.done: list[Result] = []
        self.begun = False
        self.over = not self.cases

    def results(self) -> list[Result]:
        """Return a result per case, until `go_on` returns False. Raises SandboxFailed."""
        failed_at = -1
        while not self.over:
            try:
                self._with_one_child()
            except Lost as error:
                if failed_at != len(self.done):
                    failed_at = len(self.done)
                elif isinstance(error, Broke):
                    self._blame(error)
                else:
                    raise SandboxFailed(f"the sandbox failed twice: {error}") from error
        return self.done

    def _blame(self, error: Broke) -> None:
        status = Status.RE if self.begun else Status.CE
        self._note(Result(status, stderr=f"{error}\n", exit_code=1, info={**self.info}))
        self.over |= not self.begun

    def _note(self, result: Result) -> None:
        """Keep a result and ask whether to go on; not while a place among the running is held."""
        self.done.append(result)
        goes_on = self.go_on is None or self.go_on(len(self.done) - 1, result)
        self.over = not goes_on or len(self.done) == len(self.cases)

    def _with_one_child(self) -> None:
        pool, budget = self.pool, self.budget
        with pool.borrow(self.kind) as zygote:
            child = make_child(zygote, wire=True, output=64 << 10)
            with closing(child):
                assert child.wire is not None
                wire = Wire(child.wire)
                with pool.running:
                    copies = 2 * sum(map(len, (self.submission.get("files") or {}).values()))
                    processes = 8 if self.submission["testers"] else 5  # with its template and cases ahead
                    message = pool.settings.child_message(
                        "judge", budget, timed=False, processes=processes, more=copies
                    )
                    child.begin(self.submission, message, None)
                    child.order("arm", cpu_s=max(COMPILE_CPU_S, budget.cpu_s))
                    reply, _, ended = self._hear(child, wire, BEGIN_S)
                    child.order("arm", cpu_s=0.0)
                _check(reply)
                if reply is None or reply.get("begun") is not True:
                    if reply is None and (ended is None or ended["why"] not in ("memory", "cpu")):
                        raise self._explain_end(ended, "the submission's child ended while it compiled")
                    self.done.append(self._make_refusal(child, "" if ended is None else ended["why"]))
                    self.over = True
                    return
                self.begun = True
                while not self.over:
                    with pool.running:
                        result, alive = self._case(child, wire, self.cases[len(self.done)])
                    self._note(result)
                    if not alive:
                        return

    def _make_refusal(self, child: Child, spent: str) -> Result:
        info = {**self.info, **({"why": spent} if spent else {})}
        words = f"compiling took more {spent} than the budget has\n" if spent else ""
        return Result(Status.CE, stderr=child.err.text() + words, exit_code=1, info=info)

    def _case(self, child: Child, wire: Wire, case: Message) -> tuple[Result, bool]:
        begun = time.monotonic()
        wire.ask(
            {**case, "left": len(self.cases) - len(self.done) - 1},
            blobs=2 * (case["output"] + 1) + case["value"] + 1,
        )
        reply: Message | None = {"waits": True}
        while reply is not None and "waits" in reply:
            reply, blobs, ended = self._hear(child, wire, case["wall_s"] + BACKSTOP_S)
        check_served(reply)
        if reply is None:
            if ended is None or ended["why"] != "memory":
                raise self._explain_end(ended, "the submission's child ended by itself")
            if ended["why_at"] < begun:  # for the memory of the case before, which was over by then
                raise Lost("the submission's child ended too late")
            ended = {**ended, "wall_s": time.monotonic() - begun}
            return verdict(ended, "", "", self.budget, self.info, cut=False), False
        _check(reply)
        try:
            result = case_verdict(case, reply, blobs, self.budget, self.info, shared=child.zygote.shared)
            if child.burst():  # whichever of its processes was ended for it
                result = replace(result, status=Status.MLE)
            return result, "spoiled" not in reply
        except (KeyError, TypeError, ValueError) as error:
            raise Lost("a submission's child broke the protocol") from error

    def _explain_end(self, ended: Message | None, words: str) -> Lost:
        """Return the error for a child that ended; in its own namespaces only the host can kill it."""
        if ended is None or ended["why"]:
            return Lost(words)
        killed = os.waitstatus_to_exitcode(ended["status"]) == -signal.SIGKILL
        return Lost(words) if killed and self.pool.settings.namespaces else Broke(words)

    def _hear(
        self, child: Child, wire: Wire, patience_s: float
    ) -> tuple[Message | None, list[bytes], Message | None]:
        """Wait for a reply or the child's end. Raises Lost."""
        channels = Channels(child, wire)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                if (reply := wire.reply()) is not None:
                    child.err.drain()
                    return reply[0], reply[1], None
            except Garbled as error:
                raise Lost("a submission's child broke the protocol") from error
            left = deadline - time.monotonic()
            if left <= 0:
                child.order("kill", why="late")
                stopped = self.begun and self.pool.settings.namespaces  # nothing in there can stop it
                raise (Lost if stopped else Broke)("the submission's child hangs")
            ready = channels.wait(left)
            if "status" in ready and "wire" not in ready and (ended := child.read_end()) is not None:
                return None, [], ended


def _check(reply: Message | None) -> None:
    """Raise Lost where a child of the judge's could not be made or confined."""
    if reply is not None and "failed" in reply:
        raise Lost(f"a child could not be confined: {str(reply['failed'])[:500]}")
