"""Rungs that are a command: a bare process, sandbox-exec, a container, each spoken to over its pipes.

One process per run or session. Slower than a fork server, and only as strong as the command in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import marshal
import math
import os
import queue
import re
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.sandbox.base import Budget, Case, Result, SandboxFailed, Session, Status
from gem.sandbox.driver import BOOT

DOES_NOT_COMPILE, NO_MEMORY = 254, 253  # the runner's exit codes
_LONGEST_FILE = 64 << 20
_LONGEST_REPLY = 256 << 20


class OneShotSandbox(ABC):
    """What a rung needs to be a `Sandbox` once it can run one program: judging and asynchronous runs."""

    rung: str

    def __init__(self) -> None:
        self.info: dict[str, Any] = {"rung": self.rung}
        self._closed = False

    @abstractmethod
    def run(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        cancelled: threading.Event | None = None,
    ) -> Result:
        """Run a program in a fresh process; `cancelled` ends it from another thread."""

    def judge(
        self,
        code: str,
        cases: Sequence[Case],
        *,
        go_on: Callable[[int, Result], bool] | None = None,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
    ) -> list[Result]:
        """Run every case in a process of its own, compiled each time."""
        try:
            compile(code, "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            return [
                Result(Status.CE, stderr=f"{type(error).__name__}: {error}\n", exit_code=1, info=self.info)
            ]
        results: list[Result] = []
        for number, case in enumerate(cases):
            result = self._case(code, case, files, budget)
            results.append(result)
            if go_on is not None and not go_on(number, result):
                break
        return results

    def _case(
        self, code: str, case: Case, files: Mapping[str, bytes] | None, budget: Budget | None
    ) -> Result:
        if case.call is None:
            return self.run(
                code if case.code is None else f"{code}\n{case.code}",
                stdin=case.stdin or b"",
                files=files,
                budget=budget,
            )
        mark = secrets.token_hex(16)
        call = _CALL.format(
            source=repr(code), call=repr(case.call), args=repr(json.dumps(case.args)), mark=mark
        )
        result = self.run(call, files=files, budget=budget)
        before, found, value = result.stdout.rpartition(mark)
        if not found:
            return result if not result.ok else _with(result, status=Status.RE)
        return _with(result, stdout=before, value=value)

    async def arun(self, code: str, **kwargs: Any) -> Result:
        """Run without blocking the event loop; cancelling ends the process."""
        cancelled = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(
            None, functools.partial(self.run, code, cancelled=cancelled, **kwargs)
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            with contextlib.suppress(Exception):
                await work
            raise

    def report(self) -> Mapping[str, Any]:
        """Return the rung, and what the ladder found out about it."""
        return self.info

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EnvClosed("this sandbox is closed; open another one.")


# What the submission prints comes before the mark; its value, as JSON, after.
_CALL = """
import json as _json, sys as _sys
_space = {{"__name__": "submission"}}
exec(compile({source}, "main.py", "exec", dont_inherit=True), _space)
def _plain(value):
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [_plain(item) for item in value]
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {{str(key): _plain(item) for key, item in value.items()}}
    raise TypeError("the result is no plain data: " + type(value).__name__)
_first, *_rest = {call}.split(".")
_found = _space[_first]
if _rest and isinstance(_found, type):
    _found = _found()
for _name in _rest:
    _found = getattr(_found, _name)
_value = _json.dumps(_plain(_found(*_json.loads({args}))))
_sys.stdout.write("{mark}" + _value)
"""


def _with(result: Result, **changes: Any) -> Result:
    import dataclasses

    return dataclasses.replace(result, **changes)


class PipedSandbox(OneShotSandbox):
    """A sandbox made of a command line that runs a Python; see the module."""

    def run(
        self,
        code: str,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        cancelled: threading.Event | None = None,
    ) -> Result:
        """Run a program in a fresh process.

        Raises:
            SandboxFailed: when the command cannot be started.
        """
        self._check_open()
        budget = budget or Budget()
        request = {
            "code": code.encode("utf-8", "surrogatepass"),
            "args": [arg.replace("\0", "") for arg in args],
            "files": _checked(files),
        }
        bundle = self._bundle("run", request, budget, stdin)
        with tempfile.TemporaryDirectory(prefix="gem-", ignore_cleanup_errors=True) as home:
            process = self._start(home, bundle, budget)
            streams = [_Reader(pipe, budget.output_kb << 10, process.kill) for pipe in process.outputs()]
            begun, why = time.monotonic(), ""
            while process.returncode() is None:
                if time.monotonic() - begun > budget.wall_s:
                    why = "wall"
                elif cancelled is not None and cancelled.is_set():
                    why = "cancelled"
                if why:
                    break
                process.wait(min(0.02, budget.wall_s))
            process.end()
            out, err = (stream.finish() for stream in streams)
            self._explain(process, err)
            wall_s = time.monotonic() - begun
        cut = any(stream.cut for stream in streams)
        return self._result(process.returncode(), why, cut, out, err, wall_s, budget)

    def session(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        budget: Budget | None = None,
        image: str | os.PathLike[str] | bytes | None = None,
        loopback: bool = False,
        preload: Sequence[str] = (),
        seed: int | None = None,
    ) -> Session:
        """Open a session in a process of its own. `loopback` and `preload` change nothing here."""
        self._check_open()
        return PipedSession(
            self,
            {"files": _checked(files), "image": None if image is None else _tar(image), "seed": seed},
            budget or Budget(),
        )

    def _result(
        self, code: int | None, why: str, cut: bool, out: str, err: str, wall_s: float, budget: Budget
    ) -> Result:
        killed = -code if code is not None and code < 0 else None
        if code is not None and 128 < code < 128 + 65:  # a container's engine says it so
            killed = code - 128
        status = Status.RE if code else Status.OK
        if why == "wall" or killed == 24 or (killed == 9 and not cut and wall_s >= budget.cpu_s):  # SIGXCPU
            status = Status.TLE
        elif cut:
            status = Status.OLE
        elif code == DOES_NOT_COMPILE and re.search(r"^\w*Error", err, re.MULTILINE):
            status, code = Status.CE, 1
        elif code == NO_MEMORY and "MemoryError" in err:
            status, code = Status.MLE, 1
        return Result(
            status=status,
            stdout=out,
            stderr=err,
            exit_code=None if killed else code,
            signal=killed,
            wall_s=wall_s,
            cut=cut,
            info=self.info,
        )

    def _bundle(
        self, kind: str, request: dict[str, Any], budget: Budget, stdin: bytes = b""
    ) -> dict[str, Any]:
        here = Path(__file__).parent
        return {
            "driver": (here / "driver.py").read_text(),
            "runner": (here / "runner.py").read_text(),
            "kind": kind,
            "request": request,
            "stdin": stdin,
            "output": budget.output_kb << 10,
            "limits": {
                "CORE": 0,
                **({"CPU": math.ceil(budget.cpu_s)} if kind == "run" else {}),
                "AS": budget.memory_mb << 20,
                "FSIZE": budget.file_mb << 20,
                "NOFILE": budget.open_files,
            },
        }

    def _start(self, home: str, bundle: dict[str, Any], budget: Budget) -> _Process:
        command, inside = self.command(home, budget)
        data = marshal.dumps({**bundle, "home": inside})
        try:
            process = _Process(command, home, self.kill)
        except OSError as error:
            raise SandboxFailed(f"{command[0]} cannot be started: {error}") from error
        process.give(struct.pack(">I", len(data)) + data)
        return process

    def _explain(self, process: _Process, err: str) -> None:
        """Raise SandboxFailed where the command in front failed, not the program. For subclasses."""

    @abstractmethod
    def command(self, home: str, budget: Budget) -> tuple[list[str], str]:
        """Return the command that runs `BOOT`, and the name of the folder `home` as it is seen inside."""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End the process and all of its group."""
        _kill_group(process)


class UnsafeSandbox(PipedSandbox):
    """No isolation: a process of its own session under rlimits. It sees and may do what its user may."""

    rung = "none"

    def command(self, home: str, budget: Budget) -> tuple[list[str], str]:
        """Return this interpreter, bare."""
        return [sys.executable, "-I", "-c", BOOT], home


class SeatbeltSandbox(PipedSandbox):
    """macOS's sandbox-exec around the interpreter: no network, writes in its folder alone. Untested."""

    rung = "seatbelt"

    def __init__(self) -> None:
        super().__init__()
        self.info["untested"] = True
        if shutil.which("sandbox-exec") is None:
            raise SandboxFailed("sandbox-exec is not there: this rung is for macOS.")

    def command(self, home: str, budget: Budget) -> tuple[list[str], str]:
        """Return the interpreter under a profile that starts from nothing."""
        home = os.path.realpath(home)
        readable = {sys.prefix, sys.base_prefix, *(path for path in sys.path if os.path.isdir(path))}
        profile = _SEATBELT.format(
            home=json.dumps(home),
            readable=" ".join(f"(subpath {json.dumps(os.path.realpath(path))})" for path in sorted(readable)),
        )
        return ["sandbox-exec", "-p", profile, sys.executable, "-I", "-c", BOOT], home


_SEATBELT = """(version 1)
(deny default)
(allow process-fork) (allow process-exec) (allow signal (target same-sandbox)) (allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") (subpath "/usr") (subpath "/bin") (subpath "/System")
  (subpath "/Library/Frameworks") (literal "/dev/null") (literal "/dev/urandom") (literal "/dev/random")
  (subpath {home}) {readable})
(allow file-write* (literal "/dev/null") (subpath {home}))
"""


class ContainerSandbox(PipedSandbox):
    """Docker or Podman: a container per run or session, without network, capabilities or a writable root.

    Args:
        image: what has a Python 3.11 or newer; pulled by the engine where it is absent.
        engine: the command; docker, else podman, by default.
        runtime: the engine's ``--runtime``, such as runsc for gVisor.
        python: the interpreter's name in the image.

    Raises:
        SandboxFailed: when there is no such engine, or it does not answer.
    """

    rung = "container"
    start_s = 30.0

    def __init__(
        self,
        image: str | None = None,
        *,
        engine: str | None = None,
        runtime: str | None = None,
        python: str = "python3",
    ) -> None:
        super().__init__()
        found = engine or next((name for name in ("docker", "podman") if shutil.which(name)), None)
        if found is None:
            raise SandboxFailed("no container engine: neither docker nor podman is installed.")
        self.engine, self.runtime, self.python = found, runtime, python
        self.image = image or os.environ.get("GEM_SANDBOX_IMAGE") or "python:3.11-slim"
        self._numbers = itertools.count(1)
        self._label = f"gem-sandbox-{secrets.token_hex(6)}"
        self.info |= {"engine": found, "image": self.image, **({"runtime": runtime} if runtime else {})}
        try:
            seen = subprocess.run(
                [found, "version", "--format", "{{.Server.Version}}"],
                capture_output=True,
                text=True,
                timeout=self.start_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxFailed(f"{found} does not answer: {error}") from error
        if seen.returncode:
            raise SandboxFailed(f"{found} does not answer: {(seen.stderr or seen.stdout).strip()[-300:]}")

    def command(self, home: str, budget: Budget) -> tuple[list[str], str]:
        """Return ``docker run`` with everything taken away."""
        name = f"{self._label}-{next(self._numbers)}"
        memory = f"{budget.memory_mb}m"
        writable = f"rw,nosuid,nodev,size={budget.disk_mb}m,nr_inodes={budget.inodes},mode=1777"
        return [
            *(self.engine, "run", "--rm", "--interactive", "--init", "--name", name, "--label", self._label),
            *(["--runtime", self.runtime] if self.runtime else []),
            *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--read-only", "--tmpfs", f"/sandbox:{writable},exec", "--tmpfs", f"/tmp:{writable}"),
            *("--user", "65534:65534", "--memory", memory, "--memory-swap", memory),
            *("--pids-limit", str(budget.processes), "--ipc", "private", "--workdir", "/sandbox"),
            *(self.image, self.python, "-I", "-c", BOOT),
        ], "/sandbox"

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End the container, then the engine's client."""
        if process.returncode is None and isinstance(process.args, list):
            name = process.args[process.args.index("--name") + 1]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [self.engine, "kill", str(name)], capture_output=True, timeout=self.start_s, check=False
                )
        _kill_group(process)

    def _explain(self, process: _Process, err: str) -> None:
        if process.returncode() in (125, 126, 127) and re.search(r"^(docker|podman|Error|crun|runc)\b", err):
            raise SandboxFailed(f"{self.engine} could not start a container: {err.strip()[-300:]}")


class _Process:
    """A started command: fed from a thread, ended with all of its group."""

    def __init__(
        self, command: list[str], home: str, kill: Callable[[subprocess.Popen[bytes]], None]
    ) -> None:
        self._kill = kill
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=home,
            env={**kept, "HOME": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )

    def outputs(self) -> list[BinaryIO]:
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        return [self.popen.stdout, self.popen.stderr]  # type: ignore[list-item]

    def give(self, data: bytes) -> None:
        """Write to it without waiting for it to read."""
        source = self.popen.stdin
        assert source is not None

        def write() -> None:
            with contextlib.suppress(OSError, ValueError):
                source.write(data)
                source.flush()

        threading.Thread(target=write, name="gem-sandbox-stdin", daemon=True).start()

    def returncode(self) -> int | None:
        return self.popen.poll()

    def wait(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)

    def kill(self) -> None:
        self._kill(self.popen)

    def end(self) -> None:
        """Kill what is left of it, and wait."""
        self._kill(self.popen)
        self.popen.wait()
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()


_KEPT = ("PATH", "SYSTEMROOT", "DOCKER_HOST", "XDG_RUNTIME_DIR", "CONTAINER_HOST")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        process.kill()


class _Reader:
    """A thread that keeps the first `longest` bytes of a pipe and calls `overflow` once there are more."""

    def __init__(self, pipe: BinaryIO, longest: int, overflow: Callable[[], None]) -> None:
        self.pipe, self.longest, self.overflow = pipe, longest, overflow
        self.data, self.cut = bytearray(), False
        self.thread = threading.Thread(target=self._read, name="gem-sandbox-reader", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self.pipe, contextlib.suppress(OSError, ValueError):
            while piece := os.read(self.pipe.fileno(), 1 << 16):
                room = self.longest - len(self.data)
                self.data += piece[:room]
                if len(piece) > room and not self.cut:
                    self.cut = True
                    self.overflow()

    def finish(self) -> str:
        """Return what came; a daemon that left the group may hold the pipe, and is not waited for."""
        self.thread.join(0.5)
        return bytes(self.data).decode("utf-8", "replace")


class PipedSession:
    """A session whose process reads requests on stdin and answers on stdout."""

    def __init__(self, sandbox: PipedSandbox, request: dict[str, Any], budget: Budget) -> None:
        self.sandbox, self.request, self.budget = sandbox, request, budget
        self.restarts = 0
        self._cells = self._number = 0
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="gem-", ignore_cleanup_errors=True)
        request = {**self.request, "first": self._cells + 1}
        bundle = self.sandbox._bundle("session", request, self.budget)
        self._process = process = self.sandbox._start(self._home.name, bundle, self.budget)
        self._replies: queue.SimpleQueue[tuple[dict[str, Any], list[bytes], str, str] | None]
        self._replies = queue.SimpleQueue()
        out, err = process.outputs()
        self._errors = _Reader(err, 1 << 16, lambda: None)
        threading.Thread(target=_replies, args=(out, self._replies), daemon=True).start()
        reply = self._wait(60.0)
        if reply is None:
            self._end()
            said = self._errors.finish()
            self.sandbox._explain(process, said)
            raise SandboxFailed(f"a session did not begin: {said.strip()[-300:] or 'no answer'}")
        if not reply[0]["begun"]:
            self._end()
            raise BadArgument(f"the session's files or image cannot be unpacked: {reply[0]['error']}")

    def execute(self, code: str, budget: Budget | None = None) -> Result:
        """Run a cell."""
        self._cells += 1
        return self._ask({"op": "cell", "code": code.encode("utf-8", "surrogatepass")}, budget)

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        """Run a bash command."""
        limits = budget or self.budget
        request = {
            "op": "shell",
            "command": command.encode("utf-8", "surrogateescape"),
            "clean": clean,
            "wall_s": limits.wall_s,
            "cpu_s": limits.cpu_s,
        }
        return self._ask(request, budget, 5.0)

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file below the working folder."""
        self._file({"op": "write", "path": path, "data": data, "mode": mode})

    def read_file(self, path: str) -> bytes:
        """Read a regular file below the working folder."""
        return self._file({"op": "read", "path": path, "longest": _LONGEST_FILE})[0]

    def snapshot(self) -> bytes:
        """Return the working folder as a tar."""
        return self._file({"op": "pack", "longest": _LONGEST_REPLY})[0]

    def fork(self) -> NoReturn:
        """Refuse: this rung has no fork server."""
        raise CannotFork(f"a session of the {self.sandbox.rung!r} rung cannot be forked.")

    def close(self) -> None:
        """End the process and remove its folder."""
        with self._lock:
            self._closed = True
            self._end()

    def _file(self, request: dict[str, Any]) -> list[bytes]:
        with self._lock:
            fresh = self._revive()
            reply = self._exchange(request, self.budget.wall_s)
            if reply is None:
                self._end()
                raise ToolError(f"the session ended while {request['path']!r} was asked for.")
            if "error" in reply[0]:
                raise ToolError(f"{reply[0]['error']}{' (the session began anew)' if fresh else ''}")
            return reply[1]

    def _ask(self, request: dict[str, Any], budget: Budget | None, grace_s: float = 0.0) -> Result:
        budget = budget or self.budget
        with self._lock:
            fresh = self._revive()
            info = {**self.sandbox.info, **({"restarted": True} if fresh else {})}
            begun = time.monotonic()
            reply = self._exchange(request, budget.wall_s + grace_s)
            wall_s = time.monotonic() - begun
            if reply is None:
                process = self._process
                code = None if process is None else process.returncode()
                self._end()
                why = "wall" if wall_s >= budget.wall_s else ""
                result = self.sandbox._result(
                    1 if code in (0, None) else code, why, False, "", "", wall_s, budget
                )
                return _with(result, info=info, stderr=result.stderr or "the session ended in this cell\n")
        head, blobs, out, err = reply
        longest = budget.output_kb << 10
        burst = max(len(out), len(err)) > longest
        return Result(
            status=Status.OLE if burst else Status(head["status"]),
            stdout=out[:longest],
            stderr=err[:longest],
            exit_code=head.get("exit_code"),
            signal=head.get("signal"),
            wall_s=wall_s,
            cpu_s=head.get("cpu_s", 0.0),
            cut=burst or bool(head.get("cut")),
            value=head.get("value"),
            figures=tuple(blobs),
            info=info,
        )

    def _revive(self) -> bool:
        if self._closed:
            raise EnvClosed("this session is closed; open another one.")
        if self._process is not None:
            return False
        self.restarts += 1
        self._begin()
        return True

    def _exchange(
        self, request: dict[str, Any], seconds: float
    ) -> tuple[dict[str, Any], list[bytes], str, str] | None:
        assert self._process is not None
        self._number += 1
        data = marshal.dumps({**request, "n": self._number})
        self._process.give(struct.pack("!I", len(data)) + data)
        return self._wait(seconds)

    def _wait(self, seconds: float) -> tuple[dict[str, Any], list[bytes], str, str] | None:
        try:
            reply = self._replies.get(timeout=seconds)
        except queue.Empty:
            return None
        if reply is not None and reply[0].get("n", self._number) != self._number:
            return None  # a forged or doubled answer: the session is not to be trusted on
        return reply

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
            self._home.cleanup()


def _replies(pipe: BinaryIO, replies: queue.SimpleQueue[Any]) -> None:
    """Read framed replies until the pipe ends or carries what is none."""

    def exactly(length: int) -> bytes:
        if length > _LONGEST_REPLY:
            raise EOFError
        data = pipe.read(length)
        if len(data) < length:
            raise EOFError
        return data

    try:
        while True:
            head = json.loads(exactly(int.from_bytes(exactly(4), "big")))
            blobs = [exactly(int(length)) for length in head["blobs"]]
            texts = [exactly(int.from_bytes(exactly(4), "big")).decode("utf-8", "replace") for _ in range(2)]
            replies.put((head, blobs, *texts))
    except Exception:  # whatever the far end sent
        replies.put(None)
    with contextlib.suppress(OSError):
        pipe.close()


def _checked(files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    for path in files or {}:
        if path.startswith("/") or not path or ".." in path.split("/") or "\0" in path:
            raise BadArgument(
                f"a file is to be written at {path!r}; accepted: a path below the working folder."
            )
    return dict(files or {})


def _tar(image: str | os.PathLike[str] | bytes) -> bytes:
    if isinstance(image, bytes):
        return image
    if not os.path.isdir(image):
        return Path(image).read_bytes()
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(image, ".")
    return buffer.getvalue()
