"""The work of a confined child: run a program, keep a session, or judge a submission.

It uses the standard library only, because it runs in the sandbox, after `gem.sandbox.lockdown`. Requests come
from the host and are trusted. The program in this process can forge its replies, but only those about itself.
"""

from __future__ import annotations

import _frozen_importlib_external  # importlib.util's own half: it would import more
import _signal  # type: ignore[import-not-found]  # signal's own wrappers touch much of enum
import ast
import atexit
import builtins
import contextlib
import errno
import io
import json
import linecache
import marshal
import math
import os
import random
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, CoroutineType, FrameType, ModuleType
from typing import Any, NoReturn

from gem.sandbox import lockdown
from gem.sandbox.template import Template

DOES_NOT_COMPILE, NO_MEMORY = 254, 253  # exit codes; believed only with the words on stderr to match
FIGURES, FIGURE_BYTES = 8, 4 << 20
STATE_BYTES = 256 << 10
LONGEST_LINE = 1000  # of a source that does not compile, which is shown with the error
LONGEST_VALUE = 256 << 10
SPARED = 8  # children that ended and were not waited for
LOOK_S = 0.05  # between looks at the CPU time and the output of a case
MOST_WAITING = 10  # times its wall-clock budget, for a case that gets no processor
_SIGNALS = frozenset(map(int, signal.valid_signals()))

Request = dict[str, Any]


# ------------------------------------------------------------------------------------------- a program


def run(request: Request) -> NoReturn:
    """Run the program of a request as ``python main.py`` would, and exit with its code."""
    put_files(request.get("files") or {})
    sys.argv = ["main.py", *request.get("args", ())]
    reseed(request.get("seed"))
    end(_main(request["code"].decode("utf-8", "surrogatepass"), "main.py"))


def _main(code: str, name: str, after: CodeType | None = None) -> int:
    try:
        compiled = compile(code, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        return _refuse(error)
    return _execute([compiled] if after is None else [compiled, after], new_main(code, name))


def _refuse(error: BaseException) -> int:
    if not isinstance(error, SyntaxError):  # NUL, lone surrogates, nesting
        error = SyntaxError(str(error) or type(error).__name__)
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    _say("".join(f"{line[:LONGEST_LINE]}\n" for line in lines))
    return DOES_NOT_COMPILE


def _execute(
    codes: list[CodeType], namespace: dict[str, Any], reached: Callable[[], object] = lambda: None
) -> int:
    try:
        for code in codes:
            exec(code, namespace)  # noqa: S102 - the one place that programs are for
        reached()
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        return _report(error)
    return 0


def new_main(code: str, name: str) -> dict[str, Any]:
    """Return the namespace of a new ``__main__``; tracebacks show lines of `code`."""
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    remember(code, name)
    return module.__dict__


def remember(code: str, name: str) -> None:
    """Make tracebacks show the lines of `code` under the file name `name`."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    _say(f"{error.code}\n")
    return 1


def _report(error: BaseException) -> int:
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OURS):
        tb = tb.tb_next  # ours
    error.__traceback__ = tb
    try:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, tb)
        else:
            _say("".join(traceback.format_exception(error)))
    except BaseException:
        _say(f"{type(error).__name__}\n")
    if isinstance(error, MemoryError):
        return NO_MEMORY
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BaseException:
        os.write(2, text.encode("utf-8", "backslashreplace"))


def end(code: int) -> NoReturn:
    """Exit as the interpreter does, but without finalizing the interpreter."""
    try:
        if (threading := sys.modules.get("threading")) is not None:  # not imported for those without
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        code = code or _report(error)
    os._exit(flush() or code)


def flush() -> int:
    """Flush the standard streams; return 120 if that fails, as the interpreter does."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            code = 120
    return code


def open_streams() -> None:
    """Reopen sys.stdin, sys.stdout and sys.stderr on the current descriptors 0, 1 and 2."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape"
    )
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8"
    )
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True
    )


def open_streams_to_be() -> None:
    """Open the streams as pipes, which cannot be rewound, whatever 1 and 2 are now or later."""
    kept, pipe = (os.dup(1), os.dup(2)), os.pipe()  # what a stream can do is seen when it is made
    for fd in (1, 2):
        os.dup2(pipe[1], fd)
    open_streams()
    for fd, own in zip((1, 2), kept, strict=True):
        os.dup2(own, fd)
    for fd in (*kept, *pipe):
        os.close(fd)


def reseed(seed: int | None) -> None:
    """Reseed this child's random generators; children of one fork server would share numpy's."""
    if seed is not None:
        random.seed(seed)  # noqa: TID251 - the program's own generator, in its own process
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        number = int.from_bytes(os.urandom(4), "little") if seed is None else seed & 0xFFFFFFFF
        numpy_random.seed(number)


# ---------------------------------------------------------------------------------------------- files


def put_files(files: Mapping[str, bytes]) -> None:
    """Write files below the working folder. Raises OSError, or ValueError for a path that leaves it."""
    for path, data in files.items():
        write_file(path, data, 0o644)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write one regular file below the home, following no link on the way."""
    folder, name = _walk(path, make=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        os.ftruncate(fd, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fchmod(fd, mode & 0o777)
    finally:
        os.close(fd)


def read_file(path: str, longest: int) -> bytes:
    """Read one regular file below the home, following no link on the way."""
    folder, name = _walk(path, make=False)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if status.st_size > longest:
            raise OSError(errno.EFBIG, f"longer than {longest} bytes", path)
        return file.read(longest)


def _walk(path: str, *, make: bool) -> tuple[int, str]:
    home = os.environ["HOME"]
    if path.startswith(home + "/"):
        path = path[len(home) + 1 :]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts:
        raise OSError(errno.EINVAL, "not below the working folder", path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(home, flags)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder, parts[-1]


def unpack(image: bytes) -> None:
    """Unpack a tar over the home: folders, files, links, with their modes and times, and nothing else."""
    import tarfile

    # Python 3.12 and later want to hear it, early 3.11 does not know it; the checks below are ours.
    unfiltered: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    home = os.environ["HOME"]
    with tarfile.open(fileobj=io.BytesIO(image)) as tar:
        for member in tar:
            if member.isreg() or member.isdir() or member.issym() or member.islnk():
                if ".." in member.name.split("/") or member.name.startswith("/"):
                    raise OSError(errno.EINVAL, "not below the working folder", member.name)
                member.mode = (member.mode or 0o644) & 0o777 | (0o700 if member.isdir() else 0)
                member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
                tar.extract(member, home, **unfiltered)


def pack(longest: int) -> bytes:
    """Return the home as a tar of its folders, regular files and links."""
    import tarfile

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    buffer = io.BytesIO()
    home = os.environ["HOME"]
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(home, ".", recursive=False)
        for entry in sorted(own_entries(home), key=lambda entry: entry.name):
            tar.add(entry.path, f"./{entry.name}", filter=keep)
    if buffer.tell() > longest:
        raise OSError(errno.EFBIG, f"longer than {longest} bytes")
    return buffer.getvalue()


def own_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries that a program has put into a folder, without mounts (the interpreter)."""
    with os.scandir(folder) as entries:
        found = list(entries)
    device = os.stat(folder).st_dev if found else 0
    return [entry for entry in found if entry.stat(follow_symlinks=False).st_dev == device]


def empty(folder: str, keep: str = "") -> None:
    """Remove all that a program has put into a folder, except `keep` and what cannot be removed."""
    import shutil

    for entry in own_entries(folder):
        if entry.path == keep:
            continue
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            continue
        try:
            shutil.rmtree(entry.path)
        except (OSError, RecursionError):
            os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", 'chmod -R u+rwx "$0"; rm -rf "$0"', entry.path])


# -------------------------------------------------------------------------------------------- sessions


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
    shell = _Shell()
    wire.send({"begun": True})
    while True:
        try:
            request = wire.receive()
        except (EOFError, OSError):
            os._exit(0)
        _reap()
        blobs: list[bytes] = []
        try:
            match request["op"]:
                case "cell":
                    lockdown.show()
                    reply, blobs = cells.run(request["code"].decode("utf-8", "surrogatepass"))
                case "shell":
                    reply = shell.run(request)
                case "write":
                    write_file(request["path"], request["data"], request["mode"])
                    reply = {}
                case "read":
                    reply, blobs = {}, [read_file(request["path"], request["longest"])]
                case "pack":
                    reply, blobs = {}, [pack(request["longest"])]
                case "kill":
                    _kill_everything_else()
                    reply = {}
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


def _reap() -> None:
    """Reap ended orphans except the latest, which may be a child that a later cell waits for."""
    if not _ended():
        return
    stats = [(pid, fields) for pid in _others() if (fields := _fields(pid))]
    dead = sorted((int(fields[19]), pid) for pid, fields in stats if fields[0] == "Z")  # by their beginning
    for _, pid in dead[:-SPARED]:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)


def _ended() -> bool | None:
    """Return whether an ended child waits to be reaped; None if there is no child at all."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13: it may be so
        return True
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return None


def _others() -> list[int]:
    """Return every other process of the namespace; if the namespace is shared, the descendants only."""
    try:
        found = {int(name) for name in os.listdir("/proc") if name.isdecimal()} - {os.getpid()}
    except OSError:
        return []  # a backend that shows no /proc lets no program start another
    if os.getpid() == 1:
        return list(found)
    parents = {pid: fields[1] for pid in found if (fields := _fields(pid))}
    below: set[int] = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if int(parent) in below and pid not in below}:
        below |= more
    return list(below - {os.getpid()})


def _fields(pid: int, name: str = "stat") -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _kill_everything_else(spare: int = 0) -> None:
    """Kill and reap every process that a program has left; orphans are this process's children."""
    deadline = time.monotonic() + 2
    while _ended() is not None and time.monotonic() < deadline:
        others = [-1] if os.getpid() == 1 and not spare else [pid for pid in _others() if pid != spare]
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            if spare and not others:
                return
            time.sleep(0.001)
        except ChildProcessError:
            return


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
            _refuse(error)
            return {"status": "CE", "exit_code": 1}, []
        remember(code, name)
        reply: Request = {"status": "OK", "exit_code": 0}
        value: Any = None
        shown: str | None = None
        figures: list[bytes] = []
        try:
            self.interrupts.cell = True
            for step, is_value in steps:
                if is_value:
                    value = eval(step, self.namespace)  # noqa: S307 - inside the sandbox
                else:
                    exec(step, self.namespace)  # noqa: S102 - inside the sandbox
            if value is not None:
                shown = repr(value)
                self.namespace["_"] = value
            figures = _figures()
            self.interrupts.cell = False
        except SystemExit as error:
            self.interrupts.cell = False
            reply["exit_code"] = _exit_code(error)
            reply["status"] = "RE" if reply["exit_code"] else "OK"
        except BaseException as error:
            self.interrupts.cell = False
            _say(shortened(error))
            interrupted = isinstance(error, KeyboardInterrupt)
            reply |= {"exit_code": 1, "interrupted": interrupted}
            reply["status"] = "MLE" if isinstance(error, MemoryError) else "RE"
            del error
        flush()
        reply["cpu_s"] = time.process_time() - cpu
        if shown is not None:
            reply["cut"] = len(shown) > LONGEST_VALUE
            reply["value"] = shown[:LONGEST_VALUE]
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


def shortened(error: BaseException) -> str:
    """Format an exception with only the frames of the cells and the innermost frame."""
    try:
        seen: set[int] = set()
        whole: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
        top = whole
        while whole is not None and id(whole) not in seen:
            seen.add(id(whole))
            frames = [frame for frame in whole.stack if not frame.filename.startswith(_OURS)]
            kept = [f for i, f in enumerate(frames) if f.filename.startswith("<cell") or i == len(frames) - 1]
            whole.stack = traceback.StackSummary.from_list(kept)
            whole = whole.__cause__ or (None if whole.__suppress_context__ else whole.__context__)
        return "" if top is None else "".join(top.format())
    except BaseException:  # the exception may be as hostile as the cell
        return f"{type(error).__name__}\n"


_OURS = os.path.dirname(os.path.abspath(__file__))


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

    def __init__(self) -> None:
        self.state = b""

    def run(self, request: Request) -> Request:
        if request["clean"]:
            _kill_everything_else()
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
        status, state = _attend(pid, sink, b"".join(given), source, deadline)
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
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            script, left = (fcntl_dup(fd, 20) for fd in (script, left))
            nothing = os.open("/dev/null", os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(script, 8)
            os.dup2(left, 9)
            for fd in (script, left, nothing):
                os.close(fd)
            os.closerange(3, 8)
            os.closerange(10, 64)
            os.chdir(os.environ["HOME"])
            os.execv("/bin/bash", ["bash", "--noprofile", "--norc", "-c", _WRAPPER, "bash", *lengths])
        except BaseException as error:
            os.write(2, f"bash cannot be started: {error}\n".encode())
        os._exit(127)


def fcntl_dup(fd: int, lowest: int) -> int:
    """Duplicate a descriptor to a number not below `lowest`, and close it."""
    import fcntl

    high: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(fd)
    return high


def _nameless(data: bytes) -> int:
    """Return a descriptor, at offset 0, of an unnamed file that holds `data`."""
    folder = os.environ["TMPDIR"]
    try:
        fd = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:
        import tempfile

        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
    _write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _attend(pid: int, sink: int, data: bytes, source: int, deadline: float) -> tuple[int | None, bytes]:
    """Wait for a child until `deadline`, writing `data` to it, and close both pipes.

    Returns its status (None if it still runs then) and the first `STATE_BYTES` from `source`.
    """
    poll, ends = select.poll(), {sink, source}
    for fd, event in ((sink, select.POLLOUT), (source, select.POLLIN)):
        os.set_blocking(fd, False)
        poll.register(fd, event)

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
            poll.poll(min(left_ms, pause_ms))
            pause_ms = min(pause_ms * 1.5, 20.0)
    finally:
        for fd in list(ends):
            close(fd)


# -------------------------------------------------------------------------------------------- judging


Enter = Callable[[str, Callable[[], None]], None]
_COMPILE: Request = {
    **{"stdin": None, "tester": None, "steps": 1, "output": 64 << 10, "value": 64 << 20},
    **{"wall_s": math.inf, "cpu_s": math.inf},  # the host sees to that
}


class Unready(Exception):
    """A case's child could not be made or confined, so nothing of the submission was run in it."""


class Judge:
    """The judge: compiles the code once, then runs a child for every case until the host is gone.

    This process runs nothing of the submission. It reads what cases wrote, so no case may be forked from it:
    a template makes the children. Each child has its own folders and, with namespaces, its own copy of all
    else that it can write to.

    Args:
        request: ``code``, and the ``files`` that every case finds.
        end: the socket to the host.
        enter: confines a case to new folders below a path. It calls back when they exist, before it gives up
            the rest. It runs in the case's process.
        shared: further folders that cases can write to; they are cleaned up between cases.
        namespaces: the kinds of namespace (flags) that are new for every case.
    """

    def __init__(
        self,
        request: Request,
        end: socket.socket,
        enter: Enter,
        *,
        shared: Sequence[str] = (),
        namespaces: int = 0,
    ) -> None:
        self.wire = Wire(end)
        self.code: str = request["code"].decode("utf-8", "surrogatepass")
        self.files: dict[str, bytes] = request.get("files") or {}
        self.enter, self.shared, self.namespaces = enter, shared, namespaces
        lockdown.hide()
        lockdown.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.testers: list[dict[str, Any]] = []  # before there is a template: every child has them
        for source, magic, marshalled in request["testers"]:  # from the host, and trusted
            same = magic == _frozen_importlib_external.MAGIC_NUMBER  # its Python may be another
            body = marshal.loads(marshalled) if same else compile(source, _TESTER, "exec")
            space = {"__name__": "tester", "__file__": _TESTER}
            exec(body, space)  # noqa: S102
            self.testers.append(space)
        self.template = Template(self._be_case, namespaces=namespaces)
        self.next: list[_Made] = []  # children that were made ahead: a case's, and its tester's

    def serve(self) -> NoReturn:
        """Serve requests until the host is gone."""
        try:
            compiled = self._compile()
            while compiled:
                request = self.wire.receive()
                self.wire.send(*self._attend(compiled, request))
        except EOFError:
            os._exit(0)
        except Exception as error:
            words = str(error) if isinstance(error, Unready) else f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):  # the host is gone
                self.wire.send({"failed": words})
        os._exit(0)

    def _compile(self) -> bytes:
        """Compile in a child confined like the cases, because compilers have bugs; return marshalled code."""
        reply, (_, err, compiled) = self._attend(b"", _COMPILE)
        if (status := reply["status"]) == signal.SIGKILL:
            raise Unready("the child that compiles was killed")
        if status:
            os.write(2, err or f"the compiler ended with {os.waitstatus_to_exitcode(status)}\n".encode())
        self.wire.send({"begun": not status})
        return b"" if status else compiled

    # ------------------------------------------------------------------------------- beside the case

    def _attend(self, compiled: bytes, case: Request) -> tuple[Request, list[bytes]]:
        """Run a case to its end and clear up after it. Raises Unready."""
        tested = case["tester"] is not None
        made, self.next = self.next or self._prepare(tested), []
        (pid, near), *beside = made
        fds = self._ready(near)
        pids = [pid]
        if tested:  # which alone hears the tests, and hides before anything of the submission runs
            ((tester, ear),) = beside
            pids.append(tester)
            *unused, report = self._ready(ear)
            for fd in (*unused, fds.pop()):
                os.close(fd)
            fds.append(report)
            _tell(ear, {"compiled": compiled, "case": case, "tests": True})
            if not ear.recv(1):
                raise Unready("the tester ended")
            case = {**case, "args": ()}
        for _, end in beside:
            end.close()
        begun = time.monotonic()
        with near:
            _tell(near, {"compiled": compiled, "case": case})
        if self.namespaces and not case.get("last"):  # where it is in nobody's way
            self.next = self._prepare(bool(self.testers))
        reply = self._watch(pids, begun, case, *fds)
        blobs = []
        longest = (case["output"] + 1, case["output"] + 1, case["value"] + 1)
        for fd, most in zip(fds, longest, strict=True):
            blobs.append(os.pread(fd, most, 0))
            os.close(fd)
        if not self.namespaces:  # which take everything along
            _kill_everything_else(spare=self.template.pid)
            try:
                clear_up((*self.shared, os.getcwd()), keep=os.getcwd())
            except Exception:  # the case left what cannot be removed: the next one gets a new judge
                reply["spoiled"] = True
        return reply, blobs

    def _ready(self, near: socket.socket) -> list[int]:
        """Return a child's files, once it is confined. Raises Unready."""
        said, fds, _, _ = socket.recv_fds(near, 4000, 3)
        if len(fds) != 3:
            raise Unready(said.decode("utf-8", "replace") or "the child ended")
        return fds

    def _prepare(self, tested: bool) -> list[_Made]:
        """Make a case's child, and one for its tester, with a socket between them."""
        if not tested:
            return [self._make(())]
        line, theirs = socket.socketpair()
        with line, theirs:
            return [self._make((line.fileno(),)), self._make((theirs.fileno(),))]

    def _make(self, line: Sequence[int]) -> _Made:
        """Make a child, which confines itself and waits; return its pid and the socket to it."""
        folder = "" if self.namespaces else os.path.join(os.getcwd(), os.urandom(6).hex())
        near, far = socket.socketpair()
        with far:
            try:
                return self.template.make(folder.encode(), [far.fileno(), *line]), near
            except OSError as error:
                raise Unready(str(error)) from error

    def _watch(
        self, pids: Sequence[int], begun: float, case: Request, out: int, err: int, value: int
    ) -> Request:
        """Wait for a case's process, or for its tester's, which ends with the submission's process."""
        step, before = 0, [0.0] * len(pids)
        pid, decides = pids[0], pids[-1]
        clock, told, wanted, why, alone_so_far = _Clock(begun), begun, case["output"], "", True
        while True:
            done, status, usage = os.wait4(decides, os.WNOHANG)
            if done:
                break
            now = time.monotonic()
            if now >= clock.looked + LOOK_S:  # most cases are over before
                ran, waits, alone = _observe(pids)
                if not (alone and (self.namespaces or set(_others()) <= {*pids, self.template.pid})):
                    alone_so_far = False  # what it started may be what keeps it from running
                clock.look(now, ran, waits and alone_so_far)
                spent = [_spent(each) for each in pids]
                if case["steps"] > 1 and (size := os.fstat(value).st_size) > step:  # a byte for each step
                    step, before, clock.used = size, spent, 0.0
                if any(each - then > case["cpu_s"] for each, then in zip(spent, before, strict=True)):
                    why = "cpu"
                elif os.fstat(out).st_size > wanted or os.fstat(err).st_size > wanted:
                    why = "output"
                elif clock.used >= case["wall_s"]:
                    why = "wall"
                elif now >= begun + MOST_WAITING * case["wall_s"]:
                    why = "starved"
                elif now >= told + case["wall_s"]:
                    told = now
                    self.wire.send({"waits": True})
            if why:
                os.kill(decides, signal.SIGKILL)
                _, status, usage = os.wait4(decides, 0)
                break
            signal.sigtimedwait([signal.SIGCHLD], min(case["wall_s"], LOOK_S))
        wall_s, cpu_s = time.monotonic() - begun, usage.ru_utime + usage.ru_stime
        if decides != pid:
            gone = not why and os.waitstatus_to_exitcode(status) == _GONE
            if not gone:
                os.kill(pid, signal.SIGKILL)
            _, ended, usage = os.wait4(pid, 0)
            status = ended if gone else status
            cpu_s = max(cpu_s, usage.ru_utime + usage.ru_stime)
        return {
            "status": status,
            "why": why,
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "maxrss_kb": usage.ru_maxrss,
        }

    # ------------------------------------------------------------------------------------ in the case

    def _be_case(self, packet: bytes, fds: list[int]) -> NoReturn:
        lockdown.show()
        near = socket.socket(fileno=fds[0])
        line = fds[1:]
        files: list[int] = []

        def tell() -> None:
            files.extend(_nameless(b"") for _ in range(3))  # of this case's own space
            socket.send_fds(near, [b"ready"], files)

        try:
            kept = sorted((near.fileno(), *line))
            for low, high in zip((2, *kept), (*kept, 1 << 16), strict=True):
                os.closerange(low + 1, high)
            self.enter(packet.decode(), tell)
            message = Wire(near).receive()
            compiled, case = message["compiled"], message["case"]
            if message.get("tests"):
                lockdown.hide()
                near.send(b"1")
            near.close()
            stdin = _nameless(case["stdin"] or b"")
        except EOFError:
            os._exit(0)
        except BaseException as error:
            with contextlib.suppress(OSError):
                near.send(f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:4000])
            os._exit(1)
        for fd, to in zip((stdin, *files[:2]), range(3), strict=True):
            os.dup2(fd, to)
        value, *line = (fcntl_dup(fd, 20) for fd in (files[2], *line))
        os.closerange(3, 20)
        os.closerange(21 + len(line), 64)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _SIGNALS)
        if not compiled:
            os._exit(_translate(self.code, value))
        put_files(self.files)
        reseed(None)
        seconds = math.ceil(case["cpu_s"] * case["steps"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        tester = None if case["tester"] is None else (self.testers[case["tester"]], line[0])
        if message.get("tests"):
            assert tester is not None
            _test(*tester, case["args"], value)
        for fd in line if tester is None else ():
            os.close(fd)
        loaded = marshal.loads(compiled)
        if isinstance(loaded, str):
            loaded = compile(loaded, "main.py", "exec", dont_inherit=True)
        end(_case(loaded, self.code, case, value, tester))


_Made = tuple[int, socket.socket]


def _tell(end: socket.socket, message: Request) -> None:
    """Send a child its work; if it has ended, waiting for it will show that."""
    body = marshal.dumps(message)
    with contextlib.suppress(BrokenPipeError):
        end.sendall(struct.pack("!I", len(body)) + body)


def _test(tester: Mapping[str, Any], fd: int, args: tuple[Any, ...], report: int) -> NoReturn:
    """Run the tester's half of a case and report what it returns."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for to in range(3):
        os.dup2(nothing, to)
    left = iter(range(_MOST_STEPS))
    tester["test"].__globals__["step"] = lambda: next(left, None) is None or os.write(report, b" ")
    result = tester["test"](fd, *args)
    if result is None:
        os._exit(_GONE)
    _write(report, json.dumps(result).encode())
    os._exit(0)


_TESTER = "tester.py"
_MOST_STEPS = 1000  # each is a blank before the report
_GONE = 75  # the exit code of a tester whose submission has ended


class _Clock:
    """A clock of a case's wall time, which does not count waiting for a processor."""

    def __init__(self, begun: float) -> None:
        self.looked, self.used, self._ran = begun, 0.0, 0.0

    def look(self, now: float, ran: float, waits: bool) -> None:
        """Count the time since the last look. `ran`: total CPU seconds; `waits`: it runs or could run."""
        passed, self.looked = now - self.looked, now
        part, self._ran = max(0.0, ran - self._ran), ran
        self.used += min(passed, part) if waits else passed


def _observe(pids: Sequence[int]) -> tuple[float, bool, bool]:
    """Return the CPU seconds with descendants, whether a thread could run, and whether these are all."""
    own = _fields(os.getpid())
    ran, waits, seen, processes = 0.0, False, 0, 0
    left = list(pids)
    while left and seen < _LOOKED_AT:
        pid = left.pop()
        processes += 1
        ran += _cpu(pid)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                seen += 1
                fields = _fields(pid, f"task/{task}/stat")
                # One that asked to come after all others cannot complain that they come before it.
                fair = own and fields and all(fields[i] == own[i] for i in _SCHEDULING)
                waits = waits or bool(fair and fields[0] == "R")
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                    left += map(int, file.read().split())
    return ran, waits, processes == len(pids)


_LOOKED_AT = 256  # threads
_SCHEDULING = (16, 38)  # nice value and policy


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process, its threads together."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _translate(code: str, value: int) -> int:
    """Compile `code` and write its code object to a descriptor; return the exit code."""
    try:
        compiled: CodeType | str = compile(code, "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        return _refuse(error)
    try:
        data = marshal.dumps(compiled)
    except ValueError:  # nested too deep for that: every case compiles it anew
        data = marshal.dumps(code)
    _write(value, data)
    return 0


def _case(
    compiled: CodeType,
    code: str,
    case: Request,
    value: int,
    tester: tuple[Mapping[str, Any], int] | None = None,
) -> int:
    after: list[CodeType] = []
    if case["code"] is not None:
        tail = case["code"].decode("utf-8", "surrogatepass")
        try:
            after.append(compile(tail, "case.py", "exec", dont_inherit=True))
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            return _refuse(error)
        remember(tail, "case.py")
    namespace = new_main(code, "main.py")
    if case["call"] is None and tester is None:
        return _execute([compiled, *after], namespace, lambda: after and os.write(value, b"true"))
    # Not __main__: a submission's own tests at its foot are not part of being called.
    namespace["__name__"] = "submission"
    sys.modules["submission"] = sys.modules["__main__"]
    if (failed := _execute([compiled], namespace)) != 0:
        return failed
    if tester is not None:
        space, fd = tester
        space["serve"](namespace, fd)
        return 0
    try:
        result = _resolve(namespace, case["call"])(*case["args"])
        if isinstance(result, CoroutineType):
            import asyncio

            result = asyncio.run(result)
        text = plain(result).encode()
    except SystemExit as error:
        return _exit_code(error) or 1
    except BaseException as error:
        return _report(error)
    _write(value, text)
    return 0


def _spent(pid: int) -> float:
    """Return the CPU seconds of a process and those below it that it waited for."""
    return _cpu(pid) + sum(map(int, _fields(pid)[13:15])) / _HERTZ


_HERTZ = os.sysconf("SC_CLK_TCK")


def _resolve(namespace: dict[str, Any], dotted: str) -> Any:
    first, *rest = dotted.split(".")
    if first not in namespace:
        raise NameError(f"name {first!r} is not defined")
    found = namespace[first]
    if rest and isinstance(found, type):
        found = found()
    for name in rest:
        found = getattr(found, name)
    return found


def plain(value: Any) -> str:
    """Write plain data as JSON, without calling its methods, so that no object can pretend to be equal.

    Tuples become lists, integer keys become text, and NaN and infinities keep their names. Instances of
    subclasses, such as an IntEnum or a named tuple, and numpy's numbers and arrays are written as the plain
    values that they hold. Raises TypeError for anything else.
    """
    return json.dumps(_plain(value, 0), allow_nan=True)


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > 200:
        raise TypeError("the result is nested too deep to be compared")
    for base, exact in ((int, int.__int__), (float, float.__float__), (str, str.__str__)):
        if issubclass(kind, base):
            return exact(value)
    for items in (list, tuple):
        if issubclass(kind, items):
            return [_plain(item, depth + 1) for item in items.__iter__(value)]
    if issubclass(kind, dict):
        if any(type(key) not in (str, int) for key in dict.__iter__(value)):
            raise TypeError("the result is no plain data: a dictionary's keys must be text or whole numbers")
        return {str(key): _plain(item, depth + 1) for key, item in dict.items(value)}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist(), depth + 1)
    raise TypeError(
        f"the result is no plain data: {kind.__name__} is none of bool, int, float, str, list, dict"
    )


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def clear_up(folders: Sequence[str], keep: str = "") -> None:
    """Empty folders that a program could write to, except `keep`, and reset their own mode and attributes.

    Raises OSError for what cannot be removed.
    """
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(OSError):  # not ours: then no program could do these things either
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) | 0o700)
            for name in os.listxattr(folder):
                os.removexattr(folder, name)
        empty(folder, keep)
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o1777)
            os.utime(folder, (0, 0))
