"""A program in a confined child: how it is run, how it ends, and the processes that it leaves.

Like its neighbours `files`, `cells` and `judge` it uses the standard library only, because it runs in the
sandbox, after `gem.sandbox.lockdown`. Requests come from the host and are trusted. The program in this
process can forge its replies, but only those about itself.
"""

import _thread
import atexit
import builtins
import contextlib
import gc
import io
import linecache
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from types import CodeType, ModuleType
from typing import Any, NoReturn

from gem.sandbox.files import put_files

DOES_NOT_COMPILE, NO_MEMORY = 254, 253  # exit codes; believed only with the words on stderr to match
LONGEST_LINE = 1000  # of a source that does not compile, which is shown with the error
SPARED = 8  # children that ended and were not waited for
Request = dict[str, Any]


def run(request: Request) -> NoReturn:
    """Run the program of a request as ``python main.py`` would, and exit with its code."""
    put_files(request.get("files") or {})
    sys.argv = ["main.py", *request.get("args", ())]
    reseed(request.get("seed"))
    sys.path.insert(0, os.getcwd())
    code = request["code"].decode("utf-8", "surrogatepass").removeprefix("\ufeff")  # as of a file
    try:
        compiled = compile(code, "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        end(refuse(error))
    end(execute([compiled], new_main(code, "main.py")))


def refuse(error: BaseException) -> int:
    """Say why a source does not compile, and return the exit code."""
    if not isinstance(error, SyntaxError):  # NUL, lone surrogates, nesting
        error = SyntaxError(str(error) or type(error).__name__)
    lines = "".join(traceback.format_exception_only(error)).splitlines()
    say("".join(f"{line[:LONGEST_LINE]}\n" for line in lines))
    return DOES_NOT_COMPILE


def execute(
    codes: list[CodeType], namespace: dict[str, Any], reached: Callable[[], object] = lambda: None
) -> int:
    """Run code in a namespace, call `reached` at its end, and return the exit code."""
    try:
        for code in codes:
            exec(code, namespace)  # noqa: S102 - the one place that programs are for
        reached()
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:
        return report_error(error)
    return 0


def new_main(code: str, name: str) -> dict[str, Any]:
    """Return the namespace of a new ``__main__``; tracebacks show lines of `code`."""
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __file__=name)
    sys.modules["__main__"] = module
    remember(code, name)
    return module.__dict__


def remember(code: str, name: str) -> None:
    """Make tracebacks show the lines of `code` under the file name `name`."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


def exit_code(error: SystemExit) -> int:
    """Return the exit code of a SystemExit, and say what it says."""
    if error.code is None or isinstance(error.code, int):
        code = error.code or 0
        return code & 0xFF if -1 << 63 <= code < 1 << 63 else 0xFF
    say(f"{error.code}\n")
    return 1


def report_error(error: BaseException) -> int:
    """Say how a program ended by an error, as the interpreter does, and return the exit code."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
        tb = tb.tb_next  # ours
    error.__traceback__ = tb
    try:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, tb)
        else:
            say("".join(traceback.format_exception(error)))
    except BaseException:
        say(f"{type(error).__name__}\n")
    if isinstance(error, MemoryError):
        return NO_MEMORY
    return 130 if isinstance(error, KeyboardInterrupt) else 1


OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))


def say(text: str) -> None:
    """Write to stderr, whatever the program has made of it."""
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
        code = code or report_error(error)
    code = flush() or code
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # the program's own may need its names
    with contextlib.suppress(BaseException):  # a program may have put anything there
        if len(sys._current_frames()) == 1:  # a daemon thread would miss its names
            _drop_names(sys.modules["__main__"])
    flush()
    if "ctypes" in sys.modules:  # what C code has printed, as `exit` does
        with contextlib.suppress(BaseException):
            sys.modules["ctypes"].CDLL(None).fflush(None)
    os._exit(code)


def _drop_names(main: Any) -> None:
    """Drop what a program's names hold, as the interpreter does: files are flushed, `__del__` runs."""
    for name in list(main.__dict__):
        if name != "__builtins__":
            main.__dict__[name] = None
    _flush_files([sys.__stdout__, *gc.get_objects()])
    gc.collect()


def _flush_files(objects: list[Any]) -> None:
    """Flush the files among objects; those in a circle would be closed in any order."""
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):  # the outer ones first
        for each in objects:
            if issubclass(type(each), kind):
                with contextlib.suppress(BaseException):
                    each.flush()


def flush() -> int:
    """Flush the standard streams; return 120 if that fails, as the interpreter does."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not _is_closed(stream):
                stream.flush()
        except BaseException:
            code = 120
    return code


def _is_closed(stream: Any) -> bool:
    with contextlib.suppress(Exception):  # what a program put there need not know
        return bool(stream.closed)
    return False


def open_streams() -> None:
    """Reopen sys.stdin, sys.stdout and sys.stderr on the current descriptors 0, 1 and 2."""
    raw = [io.FileIO(fd, mode, closefd=False) for fd, mode in enumerate("rww")]
    for file, name in zip(raw, ("stdin", "stdout", "stderr"), strict=True):
        file.name = f"<{name}>"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(raw[0]), "utf-8", "surrogateescape"
    )
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.BufferedWriter(raw[1]), "utf-8")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedWriter(raw[2]), "utf-8", "backslashreplace", line_buffering=True
    )
    for stream, mode in ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")):
        stream.mode = mode  # type: ignore[misc]  # programs that read and write fast ask for it


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


class ThreadLock:
    """The class on which multiprocessing's locks are built, for a process that can have no children.

    The interpreter's own keeps a lock in a file of /dev/shm. Here threads are all that can share it.
    """

    SEM_VALUE_MAX = 2**31 - 1

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        import threading

        self.kind, self.maxvalue, self.name, self.handle = kind, maxvalue, None, 0
        self._semaphore = threading.Semaphore(value)
        self._owner, self._depth = 0, 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take the lock; return whether that was possible."""
        if not (self.kind == _RECURSIVE and self._is_mine()):
            if not self._semaphore.acquire(block, timeout if block else None):
                return False
            self._owner = _thread.get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        """Let go of the lock. Raises ValueError, or AssertionError, if it is not held."""
        if self.kind == _RECURSIVE and not self._is_mine():
            raise AssertionError("attempt to release recursive lock not owned by thread")
        if self.kind != _RECURSIVE and self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._depth -= 1
        if self.kind != _RECURSIVE or not self._depth:
            self._semaphore.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _count(self) -> int:
        return self._depth

    def _is_mine(self) -> bool:
        return self._depth > 0 and self._owner == _thread.get_ident()

    def _get_value(self) -> int:
        return self._semaphore._value

    def _is_zero(self) -> bool:
        return self._get_value() == 0


_RECURSIVE = 0  # the kind of an RLock; all others are semaphores


def reseed(seed: int | None) -> None:
    """Reseed this child's random generators; children of one fork server would share numpy's."""
    if seed is not None:
        random.seed(seed)  # noqa: TID251 - the program's own generator, in its own process
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        number = int.from_bytes(os.urandom(4), "little") if seed is None else seed & 0xFFFFFFFF
        numpy_random.seed(number)


def reap() -> None:
    """Reap ended orphans except the latest, which may be a child that a later cell waits for."""
    if not _has_ended_child():
        return
    stats = [(pid, fields) for pid in list_others() if (fields := read_fields(pid))]
    dead = sorted((int(fields[19]), pid) for pid, fields in stats if fields[0] == "Z")  # by their beginning
    for _, pid in dead[:-SPARED]:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)


def _has_ended_child() -> bool | None:
    """Return whether an ended child waits to be reaped; None if there is no child at all."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13: it may be so
        return True
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return None


def list_others() -> list[int]:
    """Return every other process of the namespace; if the namespace is shared, the descendants only."""
    try:
        if os.getpid() == 1:
            return [int(name) for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
        return list_descendants(os.getpid())
    except OSError:
        return []  # a backend that shows no /proc lets no program start another


def find_families() -> dict[int, list[int]]:
    """Return the children of every visible process. Raises OSError without /proc."""
    families: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := read_fields(int(name))):
            families.setdefault(int(fields[1]), []).append(int(name))
    return families


def list_descendants(pid: int, families: dict[int, list[int]] | None = None) -> list[int]:
    """Return all processes below one. Raises OSError without /proc."""
    families = find_families() if families is None else families
    descendants, left, visited = [], [pid], {pid}
    while left:
        # once: numbers that come again could make a circle
        children = [child for child in families.get(left.pop(), ()) if child not in visited]
        visited.update(children)
        descendants += children
        left += children
    return descendants


def read_fields(pid: int, name: str = "stat") -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


class CpuClock:
    """The CPU seconds of processes, also of those that ended and that no parent waited for, as last seen.

    The kernel adds a child's time to its parent's only when that waits for it, not if it ignores SIGCHLD.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], tuple[int, int]] = {}
        self._lost = 0

    def look(self, processes: Iterable[int]) -> float:
        """Return the seconds of processes and of all that were below them at earlier looks."""
        now = {}
        for pid in {*processes, *(pid for pid, _ in self._last)}:
            # one that is not listed may only have changed its parent meanwhile
            if fields := read_fields(pid):
                own, reaped = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                now[pid, fields[19]] = own, reaped
        if ended := sum(sum(spent) for each, spent in self._last.items() if each not in now):
            waited = sum(reaped - self._last.get(each, (0, 0))[1] for each, (_, reaped) in now.items())
            self._lost += max(0, ended - waited - 2)  # both of a parent's numbers are rounded
        self._last = now
        return (self._lost + sum(map(sum, now.values()))) / _HERTZ


_HERTZ = os.sysconf("SC_CLK_TCK")


def kill_everything_else(spare: int = 0) -> None:
    """Kill and reap every process that a program has left; orphans are this process's children."""
    deadline = time.monotonic() + 2
    while _has_ended_child() is not None and time.monotonic() < deadline:
        others = [-1] if os.getpid() == 1 and not spare else [pid for pid in list_others() if pid != spare]
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
