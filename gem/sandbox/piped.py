"""Backends that run a command (a bare process, sandbox-exec, a container) and talk to it over pipes.

One process per run or session. Slower than a fork server, and only as strong as the command in front.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import math
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.sandbox.base import Budget, Result, SandboxFailed, Session, Status
from gem.sandbox.driver import BOOT, SOURCES
from gem.sandbox.request import Caller, Message, Request, SessionCaller
from gem.sandbox.scratch import Scratch
from gem.sandbox.verdicts import case_verdict, cell_result, check_served, verdict

STARTING = 4  # commands that begin at once
BACKSTOP_S = 10.0  # the driver keeps the deadlines itself; one that is so late hangs
ENDING_S = 5.0
SHELL_GRACE_S = 5.0  # in which the driver ends a command that is late
KILLED = 128 + 9
_CRASHED = (KILLED, 128 + signal.SIGSEGV, 128 + signal.SIGABRT)  # of compiling: memory, or a compiler's bug
_LONGEST_REPLY = 256 << 20
_LONGEST_WORDS = 1 << 16
_ENDED = "the session ended in this cell\n"


class OneShotSandbox(Caller, ABC):
    """The base of backends that start each program afresh: they try it once more when the sandbox failed."""

    backend: str

    def __init__(self) -> None:
        self.info: dict[str, Any] = {"backend": self.backend}
        self._closed = False

    def _run(self, request: Request) -> Result:
        """Run a program, and once more if the sandbox failed."""
        self._check_open()
        try:
            return self._run_once(request)
        except SandboxFailed:
            return self._run_once(request)

    def _run_once(self, request: Request) -> Result:
        raise NotImplementedError

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EnvClosed("this sandbox is closed; open another one.")


class PipedSandbox(OneShotSandbox):
    """A sandbox made from a command line that runs Python; see the module."""

    start_s = 60.0  # until the driver is there, which no program's own time includes
    watched: bool = False  # whether the driver is out of the program's reach

    def __init__(self) -> None:
        super().__init__()
        self.starting = threading.BoundedSemaphore(STARTING)

    def _run_once(self, request: Request) -> Result:
        """Run a program in a fresh process. Raises SandboxFailed if that could not be started or was lost."""
        message, budget = {**request.run_message(), "stdin": request.stdin}, request.budget
        frames: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
        written = {b"1": bytearray(), b"2": bytearray()}
        ended: Message | None = None
        why = ""
        with contextlib.closing(_Process(self, "run", message, budget, frames, _frames)) as process:
            begun = time.monotonic()
            while ended is None and not why:
                if time.monotonic() > begun + budget.wall_s + BACKSTOP_S:
                    why = "late"
                with contextlib.suppress(queue.Empty):
                    kind, data = frames.get(timeout=0.05)
                    if kind in written:
                        written[kind] += data
                    elif kind == b"E":
                        ended = json.loads(data)
                    else:
                        why = "lost"
        out, err = (bytes(text).decode("utf-8", "replace") for text in written.values())
        if ended is not None:
            return verdict(ended, out, err, budget, self.info, cut=ended["cut"])
        if why == "lost" and process.code == KILLED:  # the kernel took the driver too
            status, why = Status.MLE, "memory"
        elif self.watched:
            raise SandboxFailed(f"the backend {self.backend!r} lost a program: {process.read_stderr()}")
        else:
            status = Status.TLE if why == "late" else Status.RE
        wall_s = time.monotonic() - begun
        return Result(status, out, err, signal=9, wall_s=wall_s, info={**self.info, "why": why})

    def _session(self, request: Request) -> Session:
        """Open a session in its own process. `loopback` and `preload` have no effect here."""
        self._check_open()
        return PipedSession(self, request)

    def _judge(self, request: Request) -> list[Result]:
        self._check_open()
        budget, go_on = request.budget, request.go_on
        submission, asked = request.judge_message()
        results: list[Result] = []
        lost_at = -1
        while len(results) < len(asked):
            with contextlib.closing(_Talk(self, "judge", submission, budget)) as talk:
                first = talk.hear(budget.wall_s + BACKSTOP_S)
                if first is None and self.watched and talk.process.end() not in _CRASHED:
                    lost_at = self._lose_again(talk, lost_at, len(results))
                    continue
                if first is None or not first.head["begun"]:
                    words = "compiling took more than the budget has\n" if first is None else first.err
                    return [Result(Status.CE, stderr=words, exit_code=1, info=self.info)]
                while len(results) < len(asked):
                    result, goes_on = self._judge_case(talk, asked[len(results)], budget)
                    if result is None:
                        lost_at = self._lose_again(talk, lost_at, len(results))
                        break
                    results.append(result)
                    if go_on is not None and not go_on(len(results) - 1, result):
                        return results
                    if not goes_on:
                        break
        return results

    def _lose_again(self, talk: _Talk, before: int, now: int) -> int:
        """Return the case at which a judge was lost. Raises SandboxFailed if it is the same as before."""
        if before == now:
            raise SandboxFailed(f"the backend {self.backend!r} lost a judge: {talk.process.read_stderr()}")
        return now

    def _judge_case(self, talk: _Talk, case: Message, budget: Budget) -> tuple[Result | None, bool]:
        """Return a case's result (None if it was lost) and whether the judge can go on."""
        begun = time.monotonic()
        heard = talk.ask(case, case["wall_s"] + BACKSTOP_S)
        while heard is not None and "waits" in heard.head:
            begun = time.monotonic()
            heard = talk.hear(case["wall_s"] + BACKSTOP_S)
        check_served(None if heard is None else heard.head)
        if heard is None:
            late = time.monotonic() >= begun + case["wall_s"] + BACKSTOP_S
            code = talk.process.end()
            if self.watched and (late or code != KILLED):
                return None, False
            status = Status.MLE if code == KILLED else Status.RE
            return Result(status, signal=9, wall_s=time.monotonic() - begun, info=self.info), False
        if heard.out_of_memory and os.waitstatus_to_exitcode(heard.head["status"]) == -signal.SIGKILL:
            heard.head["why"] = heard.head["why"] or "memory"
        return case_verdict(case, heard.head, heard.blobs, budget, self.info), "spoiled" not in heard.head

    def bundle(self, kind: str, request: Message, budget: Budget) -> Message:
        """Return the bundle that the driver receives."""
        here = Path(__file__).parent
        return {
            "driver": (here / "driver.py").read_text(),
            "sources": {name: (here / f"{name}.py").read_text() for name in SOURCES},
            "kind": kind,
            "request": request,
            "wall_s": budget.wall_s,
            "output": budget.output_kb << 10,
            "limits": {
                "CORE": 0,
                **({"CPU": math.ceil(budget.cpu_s)} if kind == "run" else {}),
                "AS": budget.memory_mb << 20,
                "FSIZE": budget.file_mb << 20,
                "NOFILE": budget.open_files,
            },
        }

    @abstractmethod
    def command(self, home: str, budget: Budget) -> tuple[list[str], str, str]:
        """Return the command that runs `BOOT`, its home folder, and its folder for temporary files."""

    def environment(self, home: str) -> dict[str, str]:
        """Return the environment of the command."""
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
        return {**kept, "HOME": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a command that did not end when its input was closed."""


class UnsafeSandbox(PipedSandbox):
    """No isolation: a process in its own session under rlimits. It can do all that its user can do."""

    backend = "none"

    def command(self, home: str, budget: Budget) -> tuple[list[str], str, str]:
        """Return the command that runs this interpreter."""
        return [sys.executable, "-I", "-c", BOOT], f"{home}/home", f"{home}/tmp"


class _Process:
    """A started command whose driver runs; closing it ends its whole process group.

    One thread writes its input, one passes its output to `listen`, and one keeps the beginning of its stderr,
    which comes from the command in front.

    Raises:
        SandboxFailed: when the driver does not start.
    """

    def __init__(
        self,
        sandbox: PipedSandbox,
        kind: str,
        request: Message,
        budget: Budget,
        frames: queue.SimpleQueue[Any],
        listen: Callable[[BinaryIO, queue.SimpleQueue[Any]], None],
    ) -> None:
        self.sandbox = sandbox
        self.code: int | None = None
        self._folder = Scratch()
        home = self._folder.path
        command, inside, temporary = sandbox.command(home, budget)
        bundle = {**sandbox.bundle(kind, request, budget), "home": inside, "temporary": temporary}
        with sandbox.starting:
            try:
                self.popen = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=home,
                    env=sandbox.environment(home),
                    start_new_session=True,
                )
            except OSError as error:
                self._folder.close()
                raise SandboxFailed(f"{command[0]} cannot be started: {error}") from error
            self._words = bytearray()
            self._writing = threading.Lock()
            self._threads = [self._beside(self._keep_words), self._beside(listen, self.popen.stdout, frames)]
            try:
                self.give(bundle)
                self._wait_for_driver(frames)
            except BaseException:
                self.end()
                raise

    def _beside(self, work: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=args, name="gem-sandbox-pipe", daemon=True)
        thread.start()
        return thread

    def _wait_for_driver(self, frames: queue.SimpleQueue[Any]) -> None:
        try:
            kind, data = frames.get(timeout=self.sandbox.start_s) or (b"", b"")
        except queue.Empty:
            raise SandboxFailed(
                f"{self.sandbox.start_s:g} s were not enough to begin: {self.read_stderr()}"
            ) from None
        if kind != b"B":
            self.end()
            words = data.decode("utf-8", "replace") or self.read_stderr()
            raise SandboxFailed(f"the backend {self.sandbox.backend!r} could not begin: {words}")

    def give(self, message: Message) -> None:
        """Queue a message for the process without waiting for it to read."""
        data = marshal.dumps(message)
        self._beside(self._write, struct.pack("!I", len(data)) + data)

    def _write(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):
            self.popen.stdin.write(data)
            self.popen.stdin.flush()

    def _keep_words(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as pipe, contextlib.suppress(OSError, ValueError):
            while piece := os.read(pipe.fileno(), 1 << 16):
                self._words += piece[: _LONGEST_WORDS - len(self._words)]

    def read_stderr(self) -> str:
        """Return what the command in front wrote to stderr."""
        self._threads[0].join(0.2)
        return bytes(self._words).decode("utf-8", "replace").strip()[-500:] or "it said nothing"

    def end(self) -> int | None:
        """End the process, wait, and return its exit code as in a shell; later calls return the same."""
        if self.code is None:
            if not self._ends_by_itself():
                self.sandbox.kill(self.popen)
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.popen.pid, signal.SIGKILL)
            if self.popen.poll() is None:
                self.popen.kill()
            code = self.popen.wait()
            self.code = code if code >= 0 else 128 - code
            self._close_input(ENDING_S)
            self._folder.close()
        return self.code

    def _ends_by_itself(self) -> bool:
        """Close the input, which makes the driver end, and wait for that."""
        if not self._close_input(0.0):
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(ENDING_S)
        return self.popen.returncode is not None

    def _close_input(self, patience_s: float) -> bool:
        """Close the input, unless a writer is blocked on it: closing would block too."""
        if free := self._writing.acquire(timeout=patience_s):
            assert self.popen.stdin is not None
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
            self._writing.release()
        return free

    def close(self) -> None:
        """End the process."""
        self.end()


def _frames(pipe: BinaryIO, frames: queue.SimpleQueue[Any]) -> None:
    """Pass on a program's frames, then an empty one."""
    with contextlib.suppress(OSError, EOFError, ValueError), pipe:
        while True:
            frames.put((_exactly(pipe, 1), _exactly(pipe, int.from_bytes(_exactly(pipe, 4), "big"))))
    frames.put((b"", b""))


def _replies(pipe: BinaryIO, replies: queue.SimpleQueue[Any]) -> None:
    """Pass on the driver's first frame, then replies; pass None when the pipe ends or its data is invalid."""
    with contextlib.suppress(Exception), pipe:  # whatever the far end sent
        replies.put((_exactly(pipe, 1), _exactly(pipe, int.from_bytes(_exactly(pipe, 4), "big"))))
        killed = 0
        while True:
            head = json.loads(_exactly(pipe, int.from_bytes(_exactly(pipe, 4), "big")))
            blobs = [_exactly(pipe, int(length)) for length in head["blobs"]]
            texts = [_exactly(pipe, int.from_bytes(_exactly(pipe, 4), "big")) for _ in range(2)]
            before, killed = killed, int.from_bytes(_exactly(pipe, 4), "big")
            out, err = (text.decode("utf-8", "replace") for text in texts)
            replies.put(_Heard(head, blobs, out, err, killed > before))
    replies.put(None)
    replies.put(None)


def _exactly(pipe: BinaryIO, length: int) -> bytes:
    if length > _LONGEST_REPLY:
        raise EOFError
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


class _Heard(NamedTuple):
    """A reply, the output written meanwhile, and whether a process was killed for its memory."""

    head: Message
    blobs: list[bytes]
    out: str
    err: str
    out_of_memory: bool


class _Talk:
    """The request and reply channel to the driver of a session or a judge."""

    def __init__(self, sandbox: PipedSandbox, kind: str, request: Message, budget: Budget) -> None:
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.process = _Process(sandbox, kind, request, budget, self._heard, _replies)
        self._number = 0

    def ask(self, request: Message, seconds: float) -> _Heard | None:
        """Return the reply to a request; None if none comes in time, or a different one."""
        self._number += 1
        self.process.give({**request, "n": self._number})
        heard = self.hear(seconds)
        if heard is not None and heard.head.get("n", self._number) != self._number:
            return None  # a forged or doubled answer: the far end is not to be trusted on
        return heard

    def hear(self, seconds: float) -> _Heard | None:
        """Return the next reply; None if none comes in time."""
        with contextlib.suppress(queue.Empty):
            heard: _Heard | None = self._heard.get(timeout=seconds)
            return heard
        return None

    def close(self) -> None:
        """End the driver."""
        self.process.end()


class PipedSession(SessionCaller):
    """A session whose process reads requests on stdin and answers on stdout."""

    def __init__(self, sandbox: PipedSandbox, request: Request) -> None:
        self.sandbox, self.request, self._budget = sandbox, request, request.budget
        self.restarts = 0
        self._cells = 0
        self._lock = threading.Lock()
        self._talk: _Talk | None = None
        self._ending: threading.Thread | None = None
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        request = self.request.session_message(self._cells + 1)
        self._talk = talk = _Talk(self.sandbox, "session", request, self._budget)
        heard = talk.hear(self.sandbox.start_s)
        if heard is None or not heard.head["begun"]:
            self._end()
            if heard is None:
                raise SandboxFailed(f"a session did not begin: {talk.process.read_stderr()}")
            raise BadArgument(f"the session's files or image cannot be unpacked: {heard.head['error']}")

    def fork(self) -> NoReturn:
        """Refuse: this backend has no fork server."""
        raise CannotFork(f"a session of the {self.sandbox.backend!r} backend cannot be forked.")

    def close(self) -> None:
        """End the process and remove its folder."""
        with self._lock:
            self._closed = True
            self._end()

    def _ask_for(self, message: Message) -> Sequence[bytes]:
        with self._lock:
            talk, fresh = self._revive()
            begun = time.monotonic()
            heard = talk.ask(message, self._budget.wall_s)
            if heard is None:
                late = time.monotonic() >= begun + self._budget.wall_s
                code = self._end()
                if not late:
                    self._how_it_ended(talk, code)
                raise ToolError(f"the session ended while {message['path']!r} was asked for.")
            if "error" in heard.head:
                raise ToolError(f"{heard.head['error']}{' (the session began anew)' if fresh else ''}")
            if len(heard.blobs) != (message["op"] != "write"):
                self._end()
                raise ToolError("the program broke the session's protocol: it begins anew.")
            return heard.blobs

    def _run(self, message: Message, limits: Budget) -> Result:
        with self._lock:
            talk, fresh = self._revive()
            self._cells += message["op"] == "cell"
            info = {**self.sandbox.info, **({"restarted": True} if fresh else {})}
            begun = time.monotonic()
            heard = talk.ask(message, limits.wall_s + (SHELL_GRACE_S if message["op"] == "shell" else 0.0))
            wall_s = time.monotonic() - begun
            if heard is None:
                return self._explain_end(talk, wall_s, limits, info)
            longest = limits.output_kb << 10
            out, err = heard.out[:longest], heard.err[:longest]
            try:
                result = cell_result(heard.head, heard.blobs, out, err, info, wall_s=wall_s)
            except (TypeError, ValueError):
                self._end()
                words = err + "the program broke the session's protocol\n"
                return Result(Status.RE, out, words, wall_s=wall_s, info={**info, "ended": True})
        if max(len(heard.out), len(heard.err)) > longest:
            return replace(result, status=Status.OLE, cut=True)
        spent = heard.out_of_memory and result.status is Status.RE
        return replace(result, status=Status.MLE) if spent else result

    def _explain_end(self, talk: _Talk, wall_s: float, budget: Budget, info: Message) -> Result:
        """Return the result of a cell during which the session ended. Raises SandboxFailed."""
        info["ended"] = True
        if wall_s >= budget.wall_s:
            self._end(wait=False)
            return Result(Status.TLE, stderr=_ENDED, signal=9, wall_s=wall_s, info=info)
        code, spent = self._how_it_ended(talk, self._end())
        return Result(
            Status.MLE if spent and code == -9 and self.sandbox.watched else Status.RE,
            stderr=_ENDED,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            wall_s=wall_s,
            info=info,
        )

    def _how_it_ended(self, talk: _Talk, code: int | None) -> tuple[int, bool]:
        """Return the session's exit code and whether its memory ran out; `code` is the driver's exit code.

        If the driver ends normally and reports nothing, the session broke the protocol.

        Raises:
            SandboxFailed: when the driver itself was lost.
        """
        reports = re.findall(r"^ended (-?\d+) ([01])$", talk.process.read_stderr(), re.MULTILINE)
        if not reports and self.sandbox.watched and code not in (0, KILLED):
            raise SandboxFailed(
                f"the backend {self.sandbox.backend!r} lost a session: {talk.process.read_stderr()}"
            )
        return (int(reports[-1][0]), reports[-1][1] == "1") if reports else (-9, code == KILLED)

    def _revive(self) -> tuple[_Talk, bool]:
        if self._closed:
            raise EnvClosed("this session is closed; open another one.")
        if fresh := self._talk is None:
            self.restarts += 1
            self._begin()
        assert self._talk is not None
        return self._talk, fresh

    def _end(self, *, wait: bool = True) -> int | None:
        """End the driver; with `wait`, wait until nothing of it is left and return its exit code."""
        talk, self._talk = self._talk, None
        if self._ending is not None:
            self._ending.join()
            self._ending = None
        if talk is None:
            return None
        if wait:
            return talk.process.end()
        self._ending = threading.Thread(target=talk.close, name="gem-sandbox-end")
        self._ending.start()
        return None
