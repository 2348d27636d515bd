"""What every sandbox offers: run, session, judge, and the records they return.

The program failing, hanging or bursting its budget is an ordinary result with a status. The sandbox failing
is `SandboxFailed`, a NoVerdict: it is retried once where that is safe, and never becomes a score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from gem.errors import NoVerdict


class SandboxFailed(NoVerdict):
    """The sandbox itself failed: set-up, a lost fork server, a container that died."""


class Status(StrEnum):
    """How a run ended, as online judges name it."""

    OK = "OK"  # exit code 0 within the budget
    RE = "RE"  # uncaught exception, other exit code, or a signal
    TLE = "TLE"  # CPU or wall-clock budget spent
    MLE = "MLE"  # memory budget spent
    OLE = "OLE"  # output budget spent
    CE = "CE"  # does not compile


@dataclass(frozen=True, slots=True)
class Budget:
    """What one run, or one cell of a session, may use.

    Seconds, MiB and KiB as the names say. `memory_mb` holds for each process and for all together,
    `disk_mb` and `inodes` for all that is written, `output_kb` for each of stdout and stderr.
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
    """What a run did. Bytes that are no UTF-8 are shown as replacement characters.

    `cut`: output was lost to the budget. `info` names the backend that ran it. For a cell, `value` is what a
    notebook would show of its last expression and `figures` holds PNG files drawn by it.
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


def checked(result: object) -> Result:
    """Return a result that is one; whoever scores by results asks this first.

    Raises:
        SandboxFailed: for what no run ends in: the sandbox is broken, whatever the program did.
    """
    if not isinstance(result, Result):
        raise SandboxFailed(f"the sandbox returned {result!r:.80}, which is no Result.")
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
        raise SandboxFailed(f"the sandbox returned {result!r:.200}, which no run ends in.")
    return result


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a submission: standard input, a function call, code that follows it, or a tester beside it.

    Exactly one of the four: `stdin`; `call`, a function's name (``Solution.method`` for a class) with
    `args` as plain data, whose result comes back as JSON in `Result.value`; `code`, statements run after
    the submission in its namespace, where reaching the end counts as OK; `tester`, the source of trusted code
    that runs in a second process, which the submission's cannot read. It defines ``serve(namespace, fd)``,
    called in the submission's process after the submission, and ``test(fd, *args)``, called in the other;
    `fd` is an end of a socket between both. What `test` returns comes back as JSON in `Result.value`; it
    returns None where the submission's process has ended, and then the result says how that ended.
    """

    stdin: bytes | None = None
    call: str | None = None
    args: tuple[Any, ...] = ()
    code: str | None = None
    tester: str | None = None


class Session(Protocol):
    """A child that keeps its state: interpreter, files, working directory, until close()."""

    @property
    def restarts(self) -> int:
        """Return how often the session had to begin anew, its state lost, because a budget was spent."""
        ...

    def execute(self, code: str, budget: Budget | None = None) -> Result:
        """Run a cell. A spent wall budget interrupts it; the session's state stays where that helps.

        Where it does not, and when another budget is spent, the session ends, and its next cell begins a
        new one, with ``result.info["restarted"]``. Processes that it leaves may run on; where they spend the
        session's `cpu_s` between requests they are ended, and ``info["leftovers"]`` says so. Of `budget` only
        `wall_s`, `cpu_s` and `output_kb` may differ from the session's.
        """
        ...

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        """Run a bash command; working directory and exported variables are kept for the next one.

        A spent wall budget ends the command alone. `clean` first ends everything else that runs in the
        session and starts from the first folder and environment: for scoring what an agent left behind.
        """
        ...

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file below the session's working folder, making its folders.

        Raises ToolError where the path leaves the folder or meets a link or something that is no file.
        """
        ...

    def read_file(self, path: str) -> bytes:
        """Read a regular file below the session's working folder; links are not followed.

        Raises ToolError where there is no such regular file.
        """
        ...

    def snapshot(self) -> bytes:
        """Return the working folder as a tar, which `Sandbox.session(image=...)` takes."""
        ...

    def fork(self) -> Session:
        """Return a twin in the same state. Raises CannotFork where that cannot be."""
        ...

    def close(self) -> None:
        """End it: no process, mount or file is left."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """Every method may be called from any thread."""

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
        ...

    def session(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        image: str | PathLike[str] | bytes | None = None,
        loopback: bool = False,
        preload: Sequence[str] = (),
        seed: int | None = None,
    ) -> Session:
        """Open a session; `budget` is each cell's unless the cell gives its own.

        Its working folder is ``$HOME``, private and bounded by `Budget.disk_mb`. It begins with a copy of
        `image` (a folder, a tar file or a tar's bytes), then `files`. `loopback` gives it a network of its
        own in which only 127.0.0.1 exists. `preload` names packages that its cells will import ("numpy",
        "sympy", "scipy"), so that they are there at once. `seed` fixes `random` and numpy in it.
        """
        ...

    def judge(
        self,
        code: str,
        cases: Sequence[Case],
        *,
        go_on: Callable[[int, Result], bool] | None = None,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
    ) -> list[Result]:
        """Compile once, run every case in a fork of its own, return the results in order.

        `go_on(i, result)` is asked outside after each case; False stops there, and the list is shorter.
        A submission that does not compile gives one Result with CE. `budget` is each case's.
        """
        ...

    async def arun(self, code: str, **kwargs: Any) -> Result:
        """Run without blocking the event loop; cancelling kills the whole tree."""
        ...

    def report(self) -> Mapping[str, Any]:
        """Return the backend, each property (True, False) and why higher backends were not taken."""
        ...

    def close(self) -> None:
        """End every process of this sandbox."""
        ...
