"""The far end of a piped rung: reads a bundle on stdin and becomes a program or a session.

Standard library alone. Its source travels in the bundle to wherever a Python is: a bare process, a process
under sandbox-exec, or a container. It confines nothing but by rlimits; that is the rung's business.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
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


def main(bundle: dict[str, Any]) -> NoReturn:
    """Do what the bundle asks: its ``kind`` is run or session, its ``runner`` is source."""
    home = bundle["home"]
    os.chdir(home)
    temporary = os.path.join(home, ".tmp")
    os.makedirs(temporary, exist_ok=True)
    os.environ.update(HOME=home, PWD=home, TMPDIR=temporary)
    runner = _load(bundle["runner"])
    _limit(bundle["limits"])
    if bundle["kind"] == "run":
        given = tempfile.TemporaryFile(dir=temporary)  # noqa: SIM115 - open until the process ends
        given.write(bundle["stdin"])
        given.flush()
        os.lseek(given.fileno(), 0, os.SEEK_SET)
        os.dup2(given.fileno(), 0)
        given.close()
        runner.open_streams()
        runner.run(bundle["request"])
    end = _End(bundle["output"], temporary)
    runner.open_streams()
    runner.session(bundle["request"], end)
    os._exit(1)


def _load(source: str) -> Any:
    """Return `gem.sandbox.runner` made from its source; nothing named gem stays importable."""
    lockdown = ModuleType("gem.sandbox.lockdown")
    vars(lockdown).update(hide=_nothing, show=_nothing, adopt_orphans=_nothing)
    package, sandbox, runner = (ModuleType(n) for n in ("gem", "gem.sandbox", "gem.sandbox.runner"))
    vars(sandbox).update(lockdown=lockdown)
    vars(package).update(sandbox=sandbox, __path__=[])
    vars(runner).update(__file__="<gem>/runner.py")
    for module in (package, sandbox, lockdown, runner):
        sys.modules[module.__name__] = module
    exec(compile(source, "<gem>/runner.py", "exec"), vars(runner))  # noqa: S102 - our own source
    for name in [name for name in sys.modules if name == "gem" or name.startswith("gem.")]:
        del sys.modules[name]
    return runner


def _nothing() -> None:
    """What a runner that confines itself would do: here that is the business of the command in front."""


def _limit(limits: dict[str, int]) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, value in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):  # macOS refuses some
            kind = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(kind, (value, value))


class _End:
    """The socket that `runner.session` expects, over pipes; what cells wrote follows each reply."""

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

    def recv(self, length: int) -> bytes:
        return os.read(self.source, length)

    def sendall(self, data: bytes) -> None:
        for file in self.written:
            size = os.fstat(file).st_size
            text = os.pread(file, min(size, self.longest + 1), 0)
            os.ftruncate(file, 0)
            data += len(text).to_bytes(4, "big") + text
        view = memoryview(data)
        while view:
            view = view[os.write(self.sink, view) :]
