"""A session in a confined child: cells that share a namespace, bash commands, and the messages of both.

It uses the standard library only; see `gem.sandbox.program`.
"""

import ast
import contextlib
import io
import json
import linecache
import marshal
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, NoReturn

from gem.sandbox import lockdown
from gem.sandbox.files import duplicate_above, pack, put_files, read_file, unpack, write_file
from gem.sandbox.program import (
    OWN_FOLDER,
    Request,
    exit_code,
    flush,
    kill_everything_else,
    new_main,
    reap,
    refuse,
    remember,
    reseed,
    say,
)

FIGURES, FIGURE_BYTES = 8, 4 << 20
STATE_BYTES = 256 << 10
LONGEST_VALUE = 256 << 10


class Wire:
    """Messages over a stream socket: a length, then marshal for requests, JSON with blobs for replies."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def receive(self) -> Request:
        """Wait for a request. Raises EOFError if the host is gone."""
        (length,) = struct.unpack("!I", self._exactly(4))
        request: Request = marshal.loads(self._exactly(length))
        return request

    def send(self, reply: Mapping[str, Any], blobs: list[bytes] | None = None) -> None:
        """Send a reply and the blobs that follow it."""
        head = json.dumps({**reply, "blobs": [len(blob) for blob in blobs or ()]}).encode()
        self.end.sendall(b"".join((struct.pack("!I", len(head)), head, *(blobs or ()))))

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self.end.recv(min(length - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


class _Interrupts:
    """A SIGINT handler that raises KeyboardInterrupt while a cell runs and does nothing between cells."""

    def __init__(self) -> None:
        self.cell = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.cell:
            raise KeyboardInterrupt("the time for this cell is spent")


def session(request: Request, end: socket.socket) -> NoReturn:
    """Serve the host's requests one by one until it closes the socket."""
    wire = Wire(end)
    lockdown.hide()  # until a cell runs in this process, its shells are kept out of it
    image = request.get("image")
    try:
        if image is not None:
            unpack(image)
        put_files(request.get("files") or {})
    except Exception as error:
        wire.send({"begun": False, "error": _words(error)})
        os._exit(0)
    reseed(request.get("seed"))
    lockdown.adopt_orphans()  # where this is not the first process anyway
    interrupts = _Interrupts()
    signal.signal(signal.SIGINT, interrupts)
    cells = _Cells(interrupts, request.get("first", 1))
    shell = _Shell(end)
    wire.send({"begun": True})
    while True:
        try:
            request = wire.receive()
        except (EOFError, OSError):
            os._exit(0)
        if request["op"] == "interrupt":  # of a command that has ended
            continue
        reap()
        reply: Request = {}
        blobs: list[bytes] = []
        try:
            match request["op"]:
                case "cell":
                    lockdown.show()
                    if "" not in sys.path:  # before, nothing of a program may be imported here
                        sys.path.insert(0, "")
                    reply, blobs = cells.run(request["code"].decode("utf-8", "surrogatepass"))
                case "shell":
                    reply = shell.run(request)
                case "write":
                    write_file(request["path"], request["data"], request["mode"])
                case "read":
                    blobs = [read_file(request["path"], request["longest"])]
                case "pack":
                    blobs = [pack(request["longest"])]
                case "kill":
                    kill_everything_else()
                case other:
                    reply = {"error": f"unknown request {other!r}"}
        except (OSError, ValueError, MemoryError) as error:
            reply = {"error": _words(error)}
        try:
            wire.send({"n": request["n"], **reply}, blobs)
        except OSError:
            os._exit(0)


def rehearse() -> None:
    """Answer one cell request and discard it, so that its code is loaded before the fork."""
    near, far = socket.socketpair()
    with near, far:
        body = marshal.dumps({"op": "cell", "code": b"1"})
        near.sendall(struct.pack("!I", len(body)) + body)
        wire = Wire(far)
        request = wire.receive()
        reply, blobs = _Cells(_Interrupts(), 1).run(request["code"].decode("utf-8", "surrogatepass"))
        wire.send({"n": 1, **reply}, blobs)
        near.recv(1 << 16)
    linecache.clearcache()


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


class _Cells:
    """The cells of a session: as in a notebook, they share a namespace and show their last expression."""

    def __init__(self, interrupts: _Interrupts, first: int) -> None:
        self.interrupts = interrupts
        self.number = first - 1
        self.namespace: dict[str, Any] | None = None

    def run(self, code: str) -> tuple[Request, list[bytes]]:
        self.number += 1
        name = f"<cell {self.number}>"
        if self.namespace is None:
            self.namespace = new_main(code, name)
            self.namespace["__name__"] = "__main__"
        cpu = time.process_time()
        try:
            steps = _steps(code, name)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            refuse(error)
            return {"status": "CE", "exit_code": 1}, []
        remember(code, name)
        reply: Request = {"status": "OK", "exit_code": 0}
        value: Any = None
        text: str | None = None
        figures: list[bytes] = []
        try:
            self.interrupts.cell = True
            for step, is_value in steps:
                if is_value:
                    value = eval(step, self.namespace)  # noqa: S307 - inside the sandbox
                else:
                    exec(step, self.namespace)  # noqa: S102 - inside the sandbox
            if value is not None:
                text = repr(value)
                self.namespace["_"] = value
            figures = _figures()
            self.interrupts.cell = False
        except SystemExit as error:
            self.interrupts.cell = False
            reply["exit_code"] = exit_code(error)
            reply["status"] = "RE" if reply["exit_code"] else "OK"
        except BaseException as error:
            self.interrupts.cell = False
            say(format_error(error))
            interrupted = isinstance(error, KeyboardInterrupt)
            reply |= {"exit_code": 1, "interrupted": interrupted}
            reply["status"] = "MLE" if isinstance(error, MemoryError) else "RE"
            del error
        flush()
        reply["cpu_s"] = time.process_time() - cpu
        if text is not None:
            reply["cut"] = len(text) > LONGEST_VALUE
            reply["value"] = text[:LONGEST_VALUE]
        return reply, figures


def _steps(code: str, name: str) -> list[tuple[CodeType, bool]]:
    tree = ast.parse(code, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or code.rstrip().endswith(";"):
        return [(compile(tree, name, "exec", dont_inherit=True), False)]
    before = ast.Module(tree.body[:-1], tree.type_ignores)
    return [
        (compile(before, name, "exec", dont_inherit=True), False),
        (compile(ast.Expression(last.value), name, "eval", dont_inherit=True), True),
    ]


def format_error(error: BaseException) -> str:
    """Format an exception with only the frames of the cells and the innermost frame."""
    try:
        visited: set[int] = set()
        whole: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
        top = whole
        while whole is not None and id(whole) not in visited:
            visited.add(id(whole))
            frames = [frame for frame in whole.stack if not frame.filename.startswith(OWN_FOLDER)]
            kept = [f for i, f in enumerate(frames) if f.filename.startswith("<cell") or i == len(frames) - 1]
            whole.stack = traceback.StackSummary.from_list(kept)
            whole = whole.__cause__ or (None if whole.__suppress_context__ else whole.__context__)
        return "" if top is None else "".join(top.format())
    except BaseException:  # the exception may be as hostile as the cell
        return f"{type(error).__name__}\n"


def _figures() -> list[bytes]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    figures = []
    for number in pyplot.get_fignums()[:FIGURES]:
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
        if buffer.tell() <= FIGURE_BYTES:
            figures.append(buffer.getvalue())
    pyplot.close("all")
    return figures


# By number of bytes, because bash reads up to a mark in a pipe byte by byte.
_WRAPPER = """
LC_ALL=C IFS= read -r -N "$1" -u 8 __gem_state
LC_ALL=C IFS= read -r -N "$2" -u 8 __gem_command
exec 8<&-; builtin set --
trap '{ builtin printf "cd -- %q\\n" "$PWD"; builtin export -p; } >&9 2>/dev/null' EXIT
builtin eval "$__gem_state"; unset __gem_state
builtin eval "unset __gem_command; $__gem_command"
"""


class _Shell:
    """bash, one process per command; the folder and exported variables are passed to the next one.

    These and the command are passed through pipes, so a full disk does not matter.
    """

    def __init__(self, end: socket.socket) -> None:
        self.end, self.state = end, b""

    def run(self, request: Request) -> Request:
        if request["clean"]:
            kill_everything_else()
            self.state = b""
            with contextlib.suppress(OSError):  # whoever scores it must be able to enter
                os.chmod(os.environ["HOME"], 0o755)
        given = (self.state + b"\n", request["command"].replace(b"\0", b"") or b"\n")
        flush()
        cpu = _children_cpu()
        deadline = time.monotonic() + request["wall_s"]
        script, sink = os.pipe()
        try:
            source, left = os.pipe()
        except OSError:
            os.close(script)
            os.close(sink)
            raise
        pid = os.fork()
        if pid == 0:
            self._become_bash(script, left, [str(len(text)) for text in given], request["cpu_s"])
        os.close(script)
        os.close(left)
        status, state = _attend(pid, sink, b"".join(given), source, deadline, self.end.fileno())
        reply: Request = {"status": "TLE", "exit_code": None, "signal": signal.SIGKILL}
        if status is None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        else:
            code = os.waitstatus_to_exitcode(status)
            reply = {"status": "RE" if code else "OK", "exit_code": code if code >= 0 else None}
            if code < 0:
                reply["signal"] = -code
            if state and len(state) < STATE_BYTES and b"\0" not in state:
                self.state = state
        reply["cpu_s"] = _children_cpu() - cpu
        killed = reply.get("signal") == signal.SIGKILL or reply["exit_code"] == 128 + signal.SIGKILL
        if killed and reply["cpu_s"] >= 0.85 * request["cpu_s"]:
            reply["status"] = "TLE"
        return reply

    def _become_bash(self, script: int, left: int, lengths: list[str], cpu_s: float) -> NoReturn:
        try:
            os.setsid()
            seconds = math.ceil(cpu_s)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            script, left = (duplicate_above(fd, 20) for fd in (script, left))
            nothing = os.open("/dev/null", os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(script, 8)
            os.dup2(left, 9)
            os.closerange(3, 8)
            os.closerange(10, 1 << 16)
            try:
                os.chdir(os.environ["HOME"])
            except OSError:  # closed by a command: another can open it again
                os.chdir("/")
            os.execv("/bin/bash", ["bash", "--noprofile", "--norc", "-c", _WRAPPER, "bash", *lengths])
        except BaseException as error:
            os.write(2, f"bash cannot be started: {error}\n".encode())
        os._exit(127)


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _attend(
    pid: int, sink: int, data: bytes, source: int, deadline: float, host: int
) -> tuple[int | None, bytes]:
    """Wait for a child until `deadline`, or a word of the host, writing `data` to it; close both pipes.

    Returns its status (None if it still runs then) and the first `STATE_BYTES` from `source`.
    """
    poll, ends = select.poll(), {sink, source}
    for fd, event in ((sink, select.POLLOUT), (source, select.POLLIN)):
        os.set_blocking(fd, False)
        poll.register(fd, event)
    poll.register(host, select.POLLIN)

    def close(fd: int) -> None:
        ends.remove(fd)
        poll.unregister(fd)
        os.close(fd)

    view, came, pause_ms = memoryview(data), bytearray(), 1.0
    try:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if sink in ends:
                try:
                    view = view[os.write(sink, view) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    view = memoryview(b"")
                if not view:
                    close(sink)
            if source in ends:
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(source, 1 << 16)
                    came += piece[: STATE_BYTES - len(came)]
                    if not piece:
                        close(source)
                        pause_ms = 1.0  # its end is near, as a rule
            left_ms = (deadline - time.monotonic()) * 1000
            if done or left_ms <= 0:
                return (status if done else None), bytes(came)
            if any(fd == host for fd, _ in poll.poll(min(left_ms, pause_ms))):
                deadline = 0.0
            pause_ms = min(pause_ms * 1.5, 20.0)
    finally:
        for fd in list(ends):
            close(fd)
