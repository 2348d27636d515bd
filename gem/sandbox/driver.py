"""The driver inside a piped backend: reads a bundle on stdin and runs a program, a session or a judge.

It uses the standard library only. Its source is sent in the bundle to a Python: a bare process, a process
under sandbox-exec, or a container, whose first process it then is. It sets rlimits; all other isolation is up
to the backend.

A program and a session run in a child. This process waits for it, reports how it ended, and ends everything
when the host closes stdin or dies. What it reports of a program comes on stdout in frames: a letter, a
length, and

- ``B``: the program begins; whatever fails before this is not the program's fault;
- ``F``: it could not begin, with the reason;
- ``1``, ``2``: what it wrote to stdout or stderr;
- ``E``: how it ended, in JSON.

After the ``B`` of a session or a judge, its process speaks the protocol of `gem.sandbox.cells` on stdout.
Each reply is followed by what was written to stdout and stderr meanwhile, and by how many processes the
kernel has killed for their memory. How a session's process ended is reported on stderr, which no program can
write to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from types import ModuleType
from typing import Any, NoReturn

BOOT = """
import marshal, os
def exactly(n):
    data = b""
    while len(data) < n:
        piece = os.read(0, n - len(data))
        if not piece:
            os._exit(1)
        data += piece
    return data
bundle = marshal.loads(exactly(int.from_bytes(exactly(4), "big")))
scope = {"__name__": "gem.sandbox.driver"}
exec(compile(bundle.pop("driver"), "<gem.sandbox.driver>", "exec"), scope)
scope["main"](bundle)
"""

SOURCES = ("template", "files", "program", "cells", "judge")
"""The modules of this package that are sent too, each after those that it imports."""

_COUNTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_DUMPABLE, _SUBREAPER = 4, 36


def main(bundle: dict[str, Any]) -> NoReturn:
    """Serve the bundle: its ``kind`` is run, session or judge, its ``sources`` are those of `SOURCES`."""
    home, temporary = bundle["home"], bundle["temporary"]
    for folder in (home, temporary):
        os.makedirs(folder, exist_ok=True)
    os.chdir(home)
    os.environ.update(HOME=home, PWD=home, TMPDIR=temporary)
    inside = _load(bundle["sources"])
    if bundle["kind"] == "judge":  # its own watcher, and nobody's parent but its cases'
        _limit(bundle["limits"])
        _frame(b"B", b"")
        end = _End(bundle["output"], temporary)
        inside.program.open_streams_to_be()
        own = ("/dev/shm",) if os.getpid() == 1 else ()

        shared = (home, temporary, *own)
        inside.judge.Judge(bundle["request"], end, inside.judge.Confinement(), shared=shared).serve()
    _prctl(_DUMPABLE, 0)  # nobody reads this process's memory, or writes to its descriptors
    _prctl(_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # Python's handlers let them in
    if bundle["kind"] == "run":
        _run(bundle, inside, temporary)
    _session(bundle, inside, temporary)


def _run(bundle: dict[str, Any], inside: Any, temporary: str) -> NoReturn:
    out, err, ready = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _be_child(bundle["limits"])
            given = tempfile.TemporaryFile(dir=temporary)  # noqa: SIM115 - open until the process ends
            given.write(bundle["request"].pop("stdin"))
            given.seek(0)
            inside.files.put_files(bundle["request"].pop("files"))
            for fd, to in ((given.fileno(), 0), (out[1], 1), (err[1], 2)):
                os.dup2(fd, to)
            given.close()
            inside.program.open_streams()
            os.write(ready[1], b"B")
            os.closerange(3, 64)
        except BaseException as error:
            os.write(ready[1], b"F" + f"{type(error).__name__}: {error}"[:1000].encode("utf-8", "replace"))
            os._exit(1)
        inside.program.run(bundle["request"])
    for _, writer in (out, err, ready):
        os.close(writer)
    began = os.read(ready[0], 4096) or b"Fthe child ended"
    _frame(began[:1], began[1:])
    if began[:1] == b"F":
        os._exit(1)
    _frame(b"E", json.dumps(_attend(pid, {out[0]: b"1", err[0]: b"2"}, bundle, inside)).encode())
    os._exit(0)


def _attend(pid: int, streams: dict[int, bytes], bundle: dict[str, Any], inside: Any) -> dict[str, Any]:
    """Pass on what a program writes until it ends or has to; then end whatever it left."""
    begun, killed_before = time.monotonic(), _killed_for_memory()
    deadline = begun + bundle["wall_s"]
    room = dict.fromkeys(streams, bundle["output"])
    poll = select.poll()
    poll.register(0, 0)  # its end alone
    for fd in streams:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    why, cut = "", False

    def read(fd: int) -> bool:
        """Pass on what can be read; return False at the end, or when it is too much."""
        nonlocal cut
        with contextlib.suppress(BlockingIOError):
            piece = os.read(fd, 1 << 16)
            if piece[: room[fd]]:
                _frame(streams[fd], piece[: room[fd]])
            cut |= len(piece) > room[fd]
            room[fd] -= min(len(piece), room[fd])
            return bool(piece) and not cut
        return False

    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        left = deadline - time.monotonic()
        if done:
            break
        if cut or left <= 0:
            why = "output" if cut else "wall"
            os.kill(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            break
        for fd, event in poll.poll(min(left, 0.01) * 1000):
            if fd == 0:
                inside.program.kill_everything_else()
                os._exit(1)  # nobody is there any more
            if event & select.POLLIN:
                read(fd)
            else:
                poll.unregister(fd)
    wall_s = time.monotonic() - begun
    inside.program.kill_everything_else()
    for fd in streams:
        while read(fd):
            pass
    if not why and os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        why = "memory" if _killed_for_memory() > killed_before else ""
    return {
        "status": status,
        "why": why,
        "cut": cut,
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss << (0 if sys.platform == "darwin" else 10),
    }


def _session(bundle: dict[str, Any], inside: Any, temporary: str) -> NoReturn:
    killed_before = _killed_for_memory()
    _frame(b"B", b"")
    pid = os.fork()
    if pid == 0:
        _be_child(bundle["limits"])
        end = _End(bundle["output"], temporary)
        inside.program.open_streams_to_be()
        inside.cells.session(bundle["request"], end)
    poll = select.poll()
    poll.register(0, 0)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if poll.poll(20):
            inside.program.kill_everything_else()
            os._exit(0)
    killed = _killed_for_memory() > killed_before
    inside.program.kill_everything_else()
    os.write(2, f"\nended {os.waitstatus_to_exitcode(ended[1])} {int(killed)}\n".encode())
    os._exit(0)


def _be_child(limits: dict[str, int]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    _prctl(_DUMPABLE, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # before its parent, whose word on it is wanted
    _limit(limits)


def _killed_for_memory() -> int:
    """Return how many processes of this container the kernel has killed for their memory."""
    for path in _COUNTS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def _frame(kind: bytes, data: bytes) -> None:
    _write_all(1, kind + len(data).to_bytes(4, "big") + data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _load(sources: dict[str, str]) -> Any:
    """Return a namespace of modules made from their sources; nothing named gem stays importable."""
    package, sandbox, lockdown = map(ModuleType, ("gem", "gem.sandbox", "gem.sandbox.lockdown"))
    vars(lockdown).update(
        hide=lambda: _prctl(_DUMPABLE, 0),
        show=lambda: _prctl(_DUMPABLE, 1),
        adopt_orphans=lambda: _prctl(_SUBREAPER, 1),
        rehearse=lambda: None,
        SHARED="/dev/shm",
    )
    vars(package).update(sandbox=sandbox, __path__=[])
    vars(sandbox).update(lockdown=lockdown, __path__=[])
    sys.modules.update({module.__name__: module for module in (package, sandbox, lockdown)})
    for name, source in sources.items():
        file = f"/<gem>/{name}.py"
        module = sys.modules[f"gem.sandbox.{name}"] = ModuleType(f"gem.sandbox.{name}")
        vars(module).update(__file__=file)
        vars(sandbox)[name] = module
        exec(compile(source, file, "exec"), vars(module))  # noqa: S102 - our own source
    for name in [name for name in sys.modules if name == "gem" or name.startswith("gem.")]:
        del sys.modules[name]
    return sandbox


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError):  # Linux alone has it
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _limit(limits: dict[str, int]) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, value in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):  # macOS refuses some
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


class _End:
    """The socket that `gem.sandbox.cells` expects, over pipes; see the module for what follows a reply."""

    def __init__(self, longest: int, folder: str) -> None:
        self.source, self.sink, self.longest = os.dup(0), os.dup(1), longest
        self.written: list[int] = []
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        for fd in (1, 2):
            file, path = tempfile.mkstemp(dir=folder)
            os.close(file)
            file = os.open(path, os.O_RDWR | os.O_APPEND)
            os.unlink(path)
            os.dup2(file, fd)
            self.written.append(file)

    def fileno(self) -> int:
        return self.source

    def recv(self, length: int) -> bytes:
        return os.read(self.source, length)

    def sendall(self, data: bytes) -> None:
        for file in self.written:
            size = os.fstat(file).st_size
            text = os.pread(file, min(size, self.longest + 1), 0)
            os.ftruncate(file, 0)
            data += len(text).to_bytes(4, "big") + text
        _write_all(self.sink, data + _killed_for_memory().to_bytes(4, "big"))
