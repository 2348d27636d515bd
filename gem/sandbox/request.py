"""One call of a sandbox as a value, and the public methods that check a call and make it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from typing import Any, Self

from gem.errors import BadArgument, check_argument
from gem.sandbox.base import Budget, Case, Result, Session
from gem.sandbox.verdicts import checked_budget, checked_cases, checked_files

LONGEST_FILE = 64 << 20
LONGEST_TAR = 256 << 20

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One checked call of a sandbox; see `gem.sandbox.base.Sandbox` for what its parts mean.

    A run has `code`, `stdin` and `args`; a judging `code`, `cases` and `go_on`; a session `image`
    (a tar), `loopback`, `port`, `preload` and `seed`. All have `files` and `budget`.
    """

    files: Mapping[str, bytes]
    budget: Budget
    code: str = ""
    stdin: bytes = b""
    args: tuple[str, ...] = ()
    cases: Sequence[Case] = ()
    go_on: Callable[[int, Result], bool] | None = None
    image: bytes | None = None
    loopback: bool = False
    port: int = 0
    preload: tuple[str, ...] = ()
    seed: int | None = None

    def run_message(self) -> Message:
        """Return the message that describes a run, but for its standard input."""
        code = self.code.encode("utf-8", "surrogatepass")
        return {"code": code, "args": list(self.args), "files": self.files}

    def judge_message(self) -> tuple[Message, list[Message]]:
        """Return the message that describes a submission, and those of its cases.

        Raises:
            BadArgument: for a case that is not exactly one of the four, or arguments that are not plain data.
        """
        asked, testers = checked_cases(self.cases, self.budget)
        code = self.code.encode("utf-8", "surrogatepass")
        return {"code": code, "files": self.files, "testers": testers}, asked

    def session_message(self, first: int) -> Message:
        """Return the message that describes a session whose next cell has the number `first`."""
        return {"files": self.files, "image": self.image, "seed": self.seed, "first": first}


class Closing:
    """The base of what a ``with`` block closes; the sandbox could be a distribution of its own."""

    def close(self) -> None:
        """Release what the object holds. Calling it twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Caller(Closing):
    """The base of sandboxes: each public method checks its call and passes it on as a Request."""

    info: Mapping[str, Any]
    """What every result says of its sandbox."""

    backend: str
    for_programs = False
    """Whether its sessions may have a `port`, for an agent program."""

    tested: Mapping[str, Any] = {}
    """What the self-test found, of this backend and of stronger ones."""

    def report(self) -> Mapping[str, Any]:
        """Return the backend and the results of its self-test."""
        return {**self.info, **self.tested}

    def run(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
    ) -> Result:
        """Run a program in a fresh child.

        Raises:
            SandboxFailed: when the sandbox failed twice in a row.
            BadArgument: for a file's path that leaves the working folder, files that do not fit into the
                budget, a budget that is not positive, or an input that is not bytes.
        """
        check_argument("stdin", stdin, isinstance(stdin, bytes), "bytes")
        words = tuple(str(arg).replace("\0", "") for arg in args)
        limits = checked_budget(budget)
        return self._run(Request(checked_files(files, limits), limits, code, stdin, words))

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
        """Open a session.

        Raises:
            BadArgument: for an image or a file that cannot be unpacked, or a port without `for_programs`.
            SandboxFailed: when the sandbox failed twice in a row.
        """
        limits = checked_budget(budget)
        given = checked_files(files, limits)
        if port and not self.for_programs:
            raise BadArgument(
                f"port: this sandbox ({self.backend}) is not for programs; open_program_sandbox opens one."
            )
        tar, names = _read_image(image), tuple(preload)
        return self._session(
            Request(given, limits, image=tar, loopback=loopback, port=port, preload=names, seed=seed)
        )

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

        Every case begins with only `files` in the working folder and no process of another case. A `code`
        case is OK only if its end was reached. But the submission runs in the same process as that code and
        could fake that; the results of calls are compared outside, so they cannot be faked.

        Raises:
            SandboxFailed: when the sandbox failed twice in a row.
            BadArgument: for a case that is not exactly one of the four, or arguments that are not plain data.
        """
        limits = checked_budget(budget)
        given = checked_files(files, limits)
        return self._judge(Request(given, limits, code, cases=cases, go_on=go_on))

    def _run(self, request: Request) -> Result:
        raise NotImplementedError

    def _session(self, request: Request) -> Session:
        raise NotImplementedError

    def _judge(self, request: Request) -> list[Result]:
        raise NotImplementedError


class SessionCaller(Closing):
    """The base of sessions: each public method checks its call and passes it on as a message."""

    _budget: Budget

    def execute(self, code: str, budget: Budget | None = None) -> Result:
        """Run a cell; return the value of its last expression and its figures too."""
        message = {"op": "cell", "code": code.encode("utf-8", "surrogatepass")}
        return self._run(message, checked_budget(budget or self._budget))

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        """Run a bash command in the session's folder and environment."""
        limits = checked_budget(budget or self._budget)
        message = {
            "op": "shell",
            "command": command.encode("utf-8", "surrogatepass"),
            "wall_s": limits.wall_s,
            "cpu_s": limits.cpu_s,
            "clean": clean,
        }
        return self._run(message, limits)

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file below the working folder and make its folders. Raises ToolError."""
        if not isinstance(data, bytes):
            raise BadArgument(f"write_file: data must be bytes, not {type(data).__name__}.")
        self._ask_for({"op": "write", "path": path, "data": data, "mode": mode})

    def read_file(self, path: str) -> bytes:
        """Read a regular file below the working folder; links are not followed. Raises ToolError."""
        return self._ask_for({"op": "read", "path": path, "longest": LONGEST_FILE})[0]

    def snapshot(self) -> bytes:
        """Return the working folder as a tar. Raises ToolError."""
        return self._ask_for({"op": "pack", "path": ".", "longest": LONGEST_TAR})[0]

    def _run(self, message: Message, limits: Budget) -> Result:
        raise NotImplementedError

    def _ask_for(self, message: Message) -> Sequence[bytes]:
        raise NotImplementedError


def _read_image(image: str | PathLike[str] | bytes | None) -> bytes | None:
    """Return a tar of an image: a folder, a tar file, or a tar's bytes. Raises BadArgument."""
    if image is None or isinstance(image, bytes):
        return image
    path = os.fspath(image)
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return file.read()
    if not os.path.isdir(path):
        raise BadArgument(f"image: {path!r} is neither a folder nor a tar file.")
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(path, ".")
    return buffer.getvalue()
