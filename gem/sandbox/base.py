"""The interface of every sandbox (run, session, judge) and the records that it returns.

A program that fails, hangs or exceeds its budget gives an ordinary result with a status. A sandbox that fails
raises `SandboxFailed`, a NoVerdict: the call is retried once where that is safe, and never scored.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from gem.errors import NoVerdict


class SandboxFailed(NoVerdict):
    """The sandbox itself failed: its set-up failed, or its fork server or container died."""


class Status(StrEnum):
    """How a run ended, in the terms of online judges."""

    OK = "OK"  # exit code 0 within the budget
    RE = "RE"  # uncaught exception, other exit code, or a signal
    TLE = "TLE"  # CPU or wall-clock budget spent
    MLE = "MLE"  # memory budget spent
    OLE = "OLE"  # output budget spent
    CE = "CE"  # does not compile


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one run, or of one cell of a session.

    The units are in the names: seconds, MiB and KiB. `memory_mb` limits each process and all processes
    together, `disk_mb` and `inodes` all files that are written, `output_kb` each of stdout and stderr.
    """

    cpu_s: float = 10.0
    wall_s: float = 15.0
    memory_mb: int = 2048
    processes: int = 32
    file_mb: int = 64
    disk_mb: int = 64
    inodes: int = 4096
    open_files: int = 256
    output_kb: int = 1024


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run. Bytes that are not UTF-8 become replacement characters.

    `cut`: output over the budget was dropped. `info` names the backend. For a cell, `value` is what a
    notebook would show for its last expression, and `figures` holds the PNG files that it drew.
    """

    status: Status
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    cut: bool = False
    value: str | None = None
    figures: tuple[bytes, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, without an error."""
        return self.status is Status.OK


def check_result(result: object) -> Result:
    """Return `result` if it is a valid Result; graders call this before they score it.

    Raises:
        SandboxFailed: if it is not valid: the sandbox is broken, whatever the program did.
    """
    if not isinstance(result, Result):
        raise SandboxFailed(f"the sandbox returned {result!r:.80}, which is not a Result.")
    spent: tuple[Any, ...] = (result.wall_s, result.cpu_s, result.memory_mb)
    fits = (
        isinstance(result.status, Status),
        isinstance(result.stdout, str) and isinstance(result.stderr, str),
        all(number is None or type(number) is int for number in (result.exit_code, result.signal)),
        all(isinstance(number, Real) and math.isfinite(number) for number in spent),
        result.value is None or isinstance(result.value, str),
        isinstance(result.figures, tuple) and all(isinstance(figure, bytes) for figure in result.figures),
        isinstance(result.info, Mapping),
    )
    if not all(fits):
        raise SandboxFailed(f"the sandbox returned {result!r:.200}, which is not the result of any run.")
    return result


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a submission: standard input, a function call, code that follows it, or a separate tester.

    Set exactly one of the four: `stdin`; `call`, a function's name (``Solution.method`` for a class) with
    `args` as plain data, whose result comes back as JSON in `Result.value`; `code`, statements run after the
    submission in its namespace, where reaching the end counts as OK; `tester`, the source of trusted code
    that runs in a second process, which the submission's process cannot read. It defines ``serve(namespace,
    fd)``, called in the submission's process after the submission, and ``test(fd, *args)``, called in the
    second process; `fd` is one end of a socket between them. What `test` returns comes back as JSON in
    `Result.value`. It returns None if the submission's process has ended; the result then says how that
    process ended. With `steps` above 1, its global ``step()`` begins another step, of at most 1000: each has
    the budget's seconds to itself, and all together have `steps` times as many.
    """

    stdin: bytes | None = None
    call: str | None = None
    args: tuple[Any, ...] = ()
    code: str | None = None
    tester: str | None = None
    steps: int = 1


class Session(Protocol):
    """A child process that keeps its interpreter, files and working directory until close()."""

    @property
    def restarts(self) -> int:
        """Return how often the session was restarted and lost its state because a budget ran out."""

    def execute(self, code: str, budget: Budget | None = None) -> Result:
        """Run a cell. A cell that runs out of wall time is interrupted and the session keeps its state.

        If the interrupt fails, or another budget runs out, the session ends; its next cell starts a new one
        and sets ``result.info["restarted"]``. Processes that a cell leaves behind may keep running. If they
        use up the session's `cpu_s` between requests they are killed, and ``info["leftovers"]`` is set. Only
        `wall_s`, `cpu_s` and `output_kb` of `budget` may differ from the session's.
        """

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        """Run a bash command; the working directory and exported variables are kept for the next one.

        When the wall budget runs out, only the command is ended. With `clean`, everything else that runs in
        the session is ended first, and the command starts in the session's first folder and environment. Use
        it to score what an agent left behind.
        """

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file below the session's working folder, making its folders.

        Raises ToolError if the path leaves the folder, or goes through a link or something that is not a
        file.
        """

    def read_file(self, path: str) -> bytes:
        """Read a regular file below the session's working folder; links are not followed.

        Raises ToolError if there is no such regular file.
        """

    def snapshot(self) -> bytes:
        """Return the working folder as a tar, which `Sandbox.session(image=...)` takes."""

    def fork(self) -> Session:
        """Return a copy of the session in the same state. Raises CannotFork if that is not possible."""

    def close(self) -> None:
        """End the session; no process, mount or file is left."""


class ProgramSession(Session, Protocol):
    """A session with a `port`, in which an agent program may run; ``~`` is its folder `home`."""

    @property
    def home(self) -> str:
        """Return the folder that ``~`` means in its task."""

    def listener(self) -> socket.socket:
        """Return the socket that listens inside on the session's `port`; the caller serves and closes it."""

    def interrupt(self) -> None:
        """End the command that runs now, from another thread; its result has the status TLE."""


@runtime_checkable
class Sandbox(Protocol):
    """The interface of a sandbox; every method may be called from any thread."""

    backend: str

    def run(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
    ) -> Result:
        """Run a program in a fresh child."""

    def session(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        image: str | PathLike[str] | bytes | None = None,
        loopback: bool = False,
        port: int = 0,
        preload: Sequence[str] = (),
        seed: int | None = None,
    ) -> Session:
        """Open a session; `budget` applies to each cell that gives no budget of its own.

        Its working folder is ``$HOME``, private and bounded by `Budget.disk_mb`. It begins with a copy of
        `image` (a folder, a tar file or a tar's bytes), then `files`. `loopback` gives it a private network
        in which only 127.0.0.1 exists. So does `port`, for an agent program: a socket listens on it, which
        `ProgramSession.listener` hands out. `preload` names packages that its cells will import ("numpy",
        "sympy", "scipy"), so that these imports are fast. `seed` seeds `random` and numpy in it.
        """

    def judge(
        self,
        code: str,
        cases: Sequence[Case],
        *,
        go_on: Callable[[int, Result], bool] | None = None,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
    ) -> list[Result]:
        """Compile once, run every case in its own fork, and return the results in order.

        `go_on(i, result)` is called outside the sandbox after each case; if it returns False, judging stops
        and the list is shorter. A submission that does not compile gives one Result with CE. `budget` applies
        to each case.
        """

    def report(self) -> Mapping[str, Any]:
        """Return the backend, each property (True or False), and why stronger backends were not chosen."""

    def close(self) -> None:
        """End every process of this sandbox."""
