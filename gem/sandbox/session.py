"""`ZygoteSession`: a child that is kept and serves one cell, command or file request at a time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.sandbox.base import Budget, Result, SandboxFailed, Status
from gem.sandbox.lockdown import HOME
from gem.sandbox.pool import Child, Lost, Pool, call_twice, kind_for, make_child
from gem.sandbox.request import LONGEST_FILE, LONGEST_TAR, Message, Request, SessionCaller
from gem.sandbox.verdicts import cell_result, verdict
from gem.sandbox.wire import Channels, Garbled, Timetable, Wire

GRACE_S = 0.2  # between interrupting a cell and killing it
ARM_S = 0.05  # after which the fork server looks at a cell's CPU time and memory
FLOOD = 64  # times the output budget, after which a cell that still writes is stopped
FILE_S = 30.0
LOST = "{}: the session's state is lost, its next call begins anew"
FIGURES_BYTES = 32 << 20  # as cells.py has it, which is the sandbox's half
_BLOBS = {"cell": FIGURES_BYTES, "read": LONGEST_FILE, "pack": LONGEST_TAR}


@dataclass(slots=True)
class _Answer:
    """The outcome of a request: the child's reply, or how the child ended."""

    wall_s: float
    reply: Message | None = None
    blobs: Sequence[bytes] = ()
    ended: Message | None = None
    stopped: str = ""  # "wall" or "output": why the host stopped it


class ZygoteSession(SessionCaller):
    """A session; see `gem.sandbox.base.Session`. The child is forked at the first use.

    Threads may share a session: it serves one request after the other. In a forked process that inherits it,
    it is restarted. Not closing it is harmless: the child ends when the object is garbage-collected.
    """

    home = HOME

    def __init__(
        self,
        pool: Pool,
        siblings: weakref.WeakSet[ZygoteSession],
        info: Mapping[str, Any],
        request: Request,
    ) -> None:
        """Join `siblings`, the sessions that are closed with their sandbox; `info` is for every result."""
        if request.seed is None:  # a fork has the same
            request = replace(request, seed=int.from_bytes(os.urandom(4), "little"))
        self._pool, self._siblings, self._info = pool, siblings, info
        self._request, self._budget = request, request.budget
        self._lock = threading.RLock()
        self._child: Child | None = None
        self._wire: Wire | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._listener: socket.socket | None = None
        self._asked = 0
        self._cells = 0
        self._fresh = False  # begun anew, and nobody has been told yet
        self._log: list[tuple[Message, str]] = []
        self._closed = False
        self.restarts = 0
        siblings.add(self)

    def _run(self, message: Message, limits: Budget) -> Result:
        with self._lock:
            result = self._result(message, limits)
            self._cells += message["op"] == "cell"
            return result

    def _result(self, request: Message, limits: Budget) -> Result:
        shell, settings = request["op"] == "shell", self._pool.settings
        if shell and not settings.fork:
            raise ToolError(
                f"the sandbox's backend {settings.backend!r} lets no program start another: no shell."
            )
        hint = request.get("code", b"").decode("utf-8", "replace")
        with self._pool.answering:
            child = self._open(hint)
            if request.get("clean"):  # what was left running has written since: none of it is this command's
                self._ask({"op": "kill"}, limits, Timetable((FILE_S, "kill")))
                child = self._open(hint)
                child.drain()
            restarted, self._fresh = self._fresh, False
            child.out.begin(limits.output_kb << 10)
            child.err.begin(limits.output_kb << 10)
            steps = (limits.wall_s + GRACE_S, "kill") if shell else (limits.wall_s, "interrupt")
            answer = self._ask(request, limits, Timetable((ARM_S, "arm"), steps))
        out, err = child.out.text(), child.err.text()
        info = {**self._info, **({"restarted": True} if restarted else {})}
        if child.leftovers:
            info["leftovers"], child.leftovers = f"ended: their {child.leftovers} budget was spent", ""
        if answer.ended is not None:
            info["ended"] = True
            ended = {**answer.ended, "wall_s": answer.wall_s, "why": answer.stopped or answer.ended["why"]}
            result = verdict(ended, out, err, limits, info, cut=False)
            # os._exit(0) ends the session all the same
            return replace(result, cut=child.cut, status=Status.RE if result.ok else result.status)
        try:
            result = cell_result(answer.reply or {}, answer.blobs, out, err, info, wall_s=answer.wall_s)
        except (TypeError, ValueError):
            self._lose()
            words = err + "the program broke the session's protocol\n"
            return Result(Status.RE, out, words, wall_s=answer.wall_s, info={**info, "ended": True})
        if answer.stopped and answer.reply and answer.reply.get("error") is None:
            result = replace(result, status=Status.TLE if answer.stopped == "wall" else Status.OLE)
        if child.burst():
            result = replace(result, status=Status.MLE)
        result = replace(result, cut=child.cut or result.cut)
        self._log.append((request, _digest(result)))
        return result

    def _ask_for(self, message: Message) -> Sequence[bytes]:
        op = message["op"]
        with self._lock, self._pool.answering:
            self._open()
            answer = self._ask(message, self._budget, Timetable((FILE_S, "kill")))
            if answer.reply is None:
                raise ToolError(f"the session ended while it was asked to {op}: it begins anew.")
            if (error := answer.reply.get("error")) is not None:
                raise ToolError(f"{op if op == 'pack' else message['path']}: {str(error)[:500]}")
            if len(answer.blobs) != (op != "write"):
                self._lose()
                raise ToolError("the program broke the session's protocol: it begins anew.")
            if op == "write":
                self._log.append((message, ""))
            return answer.blobs

    def fork(self) -> Self:
        """Return a copy of the session, made by repeating all its cells and commands in a new child.

        Differences (clocks, processes, `os.urandom`) are found by comparing the outputs; `random` and numpy's
        generator have the same seed. It takes as long as the cells took.

        Raises:
            CannotFork: when a cell or command gives another output than before.
        """
        with self._lock:
            if self._closed:
                raise EnvClosed("this session is closed.")
            twin = type(self)(self._pool, self._siblings, self._info, self._request)
            log = list(self._log)
        try:
            for i, (request, digest) in enumerate(log, 1):
                with twin._lock:
                    if request["op"] == "write":
                        twin._ask_for(request)
                        continue
                    twin._run(request, self._budget)
                    if len(twin._log) != i or twin._log[-1][1] != digest:
                        raise CannotFork(
                            f"step {i} of {len(log)} of this session gave another result this time: "
                            "only what does not depend on clocks and the like can be forked."
                        )
        except BaseException:
            twin.close()
            raise
        return twin

    def listener(self) -> socket.socket:
        """Return the socket that listens on `port` inside; the caller closes it. Raises SandboxFailed."""
        with self._lock, self._pool.answering:
            self._open()
            listener, self._listener = self._listener, None
            if listener is None:
                raise BadArgument("the session was opened without a port, or its listener was taken before.")
            return listener

    def interrupt(self) -> None:
        """End the command that runs now, from another thread; see Session."""
        wire = self._wire
        if wire is not None:
            wire.interject({"op": "interrupt"})

    def close(self) -> None:
        """End the session and any running cell; no process, mount or file is left."""
        self._closed = True
        if (busy := self._child) is not None and not busy.over:
            busy.order("kill", why="closed")
        with self._lock:
            if self._child is not None:
                self._kill_and_wait(self._child)
            self._drop()

    def forget(self) -> None:
        """Forget the child in a forked process; it belongs to the parent. The next call starts a new one."""
        self._lock = threading.RLock()
        if self._child is not None:
            self._child.over = True
            self._lose()

    # --------------------------------------------------------------------------------------- the child

    def _open(self, hint: str = "") -> Child:
        """Return the child, forked now if there is none. Raises SandboxFailed, BadArgument."""
        if self._closed:
            raise EnvClosed("this session is closed: open another one.")
        if self._child is not None and not self._child.zygote.alive:
            had_state = bool(self._log)
            self._lose()
            if had_state:  # this call may build on it
                raise SandboxFailed(LOST.format("the fork server died"))
        if self._child is None:
            self._child = call_twice(lambda: self._begin(hint))
            self._finalizer = weakref.finalize(self, _let_go, self._child)
            self._finalizer.atexit = False
        return self._child

    def _begin(self, hint: str) -> Child:
        zygote = self._pool.take(kind_for(hint, self._request.preload))
        child = None
        try:
            child = make_child(zygote, wire=True, output=self._budget.output_kb << 10)
            message = self._pool.settings.child_message(
                "session",
                self._budget,
                timed=False,
                loopback=self._request.loopback,
                port=self._request.port,
            )
            message["idle_cpu_s"] = self._budget.cpu_s
            assert child.wire is not None
            self._wire = Wire(child.wire)
            child.begin(self._request.session_message(self._cells + 1), message, None)
            self._child = child
            if self._request.port:
                self._listener = _take_listener(child.wire)
            answer = self._ask(None, self._budget, Timetable((FILE_S, "kill")))
            if answer.reply is None:
                raise Lost("a session's child ended before it began")
            if answer.reply.get("begun") is not True:
                raise BadArgument(f"the session's files cannot be laid out: {answer.reply.get('error')}")
        except BaseException:
            self._child = self._wire = None
            self._close_listener()
            self._pool.give(zygote)
            if child is not None:
                child.close()
            raise
        return child

    def _ask(self, request: Message | None, limits: Budget, timetable: Timetable) -> _Answer:
        """Send a request and wait for the reply or the end. Raises SandboxFailed."""
        child, wire = self._child, self._wire
        assert child is not None
        assert wire is not None
        begun = time.monotonic()
        answer = _Answer(0.0)
        armed = False
        child.turn()
        self._asked += 1
        if request is not None:
            wire.ask({**request, "n": self._asked}, blobs=_BLOBS.get(request["op"], 0))
        channels = Channels(child, wire)
        flood = FLOOD * child.out.cap
        try:
            while True:
                ready = channels.wait(timetable.wait_s())
                while (step := timetable.due()) is not None:
                    match step:
                        case "arm":
                            armed = True
                            cpu_s = limits.cpu_s if limits.cpu_s < limits.wall_s * 1000 else 0.0
                            child.order("arm", cpu_s=cpu_s)
                        case "interrupt":
                            answer.stopped = answer.stopped or "wall"
                            child.order("interrupt")
                            timetable.insert(GRACE_S, "kill")
                        case "kill":
                            answer.stopped = answer.stopped or "wall"
                            child.order("kill", why=answer.stopped)
                            timetable.insert(5.0, "give up")
                        case _:
                            child.zygote.discard()
                            raise Lost("a fork server hangs")
                if max(child.out.total, child.err.total) > flood and not answer.stopped:
                    answer.stopped = "output"
                    child.order("interrupt")
                    timetable.insert(GRACE_S, "kill")
                if "wire" in ready:
                    if not channels.listening:  # its fork server will tell how it ended
                        timetable.insert(1.0, "kill")
                    if (reply := wire.reply()) is not None:
                        answer.reply, answer.blobs = reply
                        if request is not None and answer.reply.get("n") != self._asked:
                            raise Garbled
                        if "status" in ready:
                            child.attend()
                        break
                if "status" in ready and (ended := child.read_end()) is not None:
                    answer.ended = ended
                    break
        except Garbled:
            self._kill_and_wait(child)
            answer.ended = {"status": 1 << 8, "why": "", "cpu_s": 0.0, "wall_s": 0.0, "memory": 0}
            child.err.data += b"the program broke the session's protocol\n"
        except Lost as error:
            if request is None:
                raise
            self._lose()
            raise SandboxFailed(LOST.format(error)) from error
        finally:
            child.turn()
        child.drain()
        answer.wall_s = time.monotonic() - begun
        if answer.stopped and answer.reply is not None and not answer.reply.get("interrupted"):
            time.sleep(GRACE_S / 4)  # an interrupt that is under way must not meet the next cell
        if answer.ended is not None and request is not None:
            self._lose()
        elif armed and answer.ended is None:
            child.order("disarm")
        return answer

    def _kill_and_wait(self, child: Child) -> None:
        child.order("kill", why="closed")
        poll = select.poll()
        poll.register(child.status, select.POLLIN)
        deadline = time.monotonic() + 5.0
        with contextlib.suppress(Lost):
            while child.read_end() is None and (left := deadline - time.monotonic()) > 0:
                poll.poll(left * 1000)

    def _lose(self) -> None:
        """Note that the child and its state are gone."""
        self._drop()
        self.restarts += 1
        self._fresh = True
        self._log.clear()

    def _drop(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if self._child is not None:
            self._pool.give(self._child.zygote)
            self._child.close()
        self._child = self._wire = None
        self._close_listener()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def _take_listener(end: socket.socket) -> socket.socket | None:
    """Receive the listener that a child sends before anything else; None if it ended before."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    if not poll.poll(FILE_S * 1000):
        return None
    with contextlib.suppress(OSError):
        _, fds, _, _ = socket.recv_fds(end, 1, 1)
        if fds:
            return socket.socket(fileno=fds[0])
    return None


def _let_go(child: Child) -> None:
    child.order("kill", why="closed")
    child.close()


def _digest(result: Result) -> str:
    outcome = (
        result.status,
        result.exit_code,
        result.stdout,
        result.stderr,
        result.value,
        len(result.figures),
    )
    return hashlib.sha256(repr(outcome).encode("utf-8", "surrogatepass")).hexdigest()
