"""The self-test of a backend: programs in it attempt what the backend must prevent.

Nothing is deduced from versions. Each backend is tested once per process. A busy machine must not lead to a
weaker backend, so a failure for lack of time, space or memory is retried and never cached.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gem.sandbox.backends import BACKENDS, NAMED_ONLY, PROPERTIES, make
from gem.sandbox.base import Budget, SandboxFailed, Status
from gem.sandbox.packages import JUDGES
from gem.sandbox.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a backend's self-test: each property True, False, or None if it could not be tested.

    `slow` names the properties, or "start", that may have failed because the machine was too busy or full.
    """

    backend: str
    properties: Mapping[str, bool | None] = field(default_factory=dict)
    failure: str = ""
    slow: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Whether the backend started and has all the properties that it needs."""
        return not self.failure and not self.lacking

    @property
    def lacking(self) -> frozenset[str]:
        """The properties that the backend needs and does not have."""
        return (
            frozenset(name for name, ensured in self.properties.items() if not ensured)
            - BACKENDS[self.backend].may_lack
        )

    @property
    def doubtful(self) -> bool:
        """Whether the backend failed only because something took too long or found no space."""
        return not self.passed and ({"start"} if self.failure else self.lacking) <= self.slow

    @property
    def why_not(self) -> str:
        """Return why the backend is not used, or an empty string."""
        if self.failure or self.passed:
            return self.failure
        lacking = [PROPERTIES[name] for name, ensured in self.properties.items() if not ensured]
        return f"its self-test failed: it does not ensure that {'; '.join(lacking)}."


_tested: dict[str, Report] = {}
_lock = threading.RLock()
PATIENCE = (1.0, 3.0, 6.0)
"""The factor on the times of each attempt; the next attempt follows if a failure proves nothing."""
_AT_ONCE_S = 5.0


def self_test(name: str, options: Mapping[str, Any] | None = None) -> Report:
    """Test a backend; the result is cached per process unless time or space ran out."""
    with _lock:
        key = f"{name} {sorted((options or {}).items())}" if options else name
        if key in _tested:
            return _tested[key]
        for patience in PATIENCE:
            report = _try(name, dict(options or {}), patience)
            if not report.doubtful:
                _tested[key] = report
                break
        return report


def _try(name: str, options: dict[str, Any], patience: float = 1.0) -> Report:
    light = {} if name in (*NAMED_ONLY, "none") else {"max_running": 2, "begin": ("bare",)}
    sandbox = None
    begun = time.monotonic()
    try:
        sandbox = make(name, **light, **options)
        if (first := sandbox.run("print(6 * 7)", budget=_budget(patience))).stdout != "42\n":
            failure = f"6 * 7 is {first.stdout!r} in it: {first.stderr[-300:].strip()}"
            return _make_failure(name, failure, perhaps=first.status in (Status.TLE, Status.MLE))
        return _probe(name, sandbox, patience)
    except SandboxFailed as error:
        waited = time.monotonic() - begun > _AT_ONCE_S  # what is missing is told at once
        return _make_failure(name, str(error), perhaps=waited)
    except OSError as error:  # ours: no temporary file, no descriptor, no process
        return _make_failure(name, f"its self-test could not be made: {error}", perhaps=True)
    finally:
        if sandbox is not None:
            sandbox.close()


_WANTS = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)),
    "No usable temporary directory",
)
"""Error texts of the system and of tempfile when space, memory, processes or descriptors run out."""


def _make_failure(name: str, failure: str, *, perhaps: bool) -> Report:
    """Return the report of a backend that did not start; `perhaps`: it may start another time."""
    perhaps = perhaps or any(want in failure for want in _WANTS)
    return Report(name, failure=failure, slow=frozenset({"start"}) if perhaps else frozenset())


def _budget(patience: float) -> Budget:
    return Budget(
        cpu_s=5.0 * patience,
        wall_s=10.0 * patience,
        memory_mb=256,
        processes=8,
        file_mb=8,
        disk_mb=8,
        inodes=512,
        open_files=64,
    )


def _probe(name: str, sandbox: Any, patience: float) -> Report:
    tag = f"gp{secrets.token_hex(5)}"
    budget = _budget(patience)
    with ThreadPoolExecutor(4, "gem-self-test") as beside:
        look = beside.submit(_look, sandbox, tag, budget)
        memory = beside.submit(sandbox.run, _MEMORY, budget=budget)
        disk = beside.submit(sandbox.run, _DISK, budget=budget)
        server = beside.submit(_reach, sandbox, budget)
        sandbox.run(f"NAME = {tag!r}\n{_LINGER}", budget=budget)
        endless = sandbox.run("while True: pass", budget=replace(budget, wall_s=0.3))
        properties, slow = look.result()
        filled, written = memory.result(), disk.result()
        properties |= {
            "server": server.result(),
            "memory": "too much" not in filled.stdout and filled.status is not Status.TLE,
            "disk": "too much" not in written.stdout and written.status is not Status.TLE,
            "survivors": _none_left(tag, 3.0 * patience),
            "deadline": endless.status is Status.TLE and endless.wall_s < 0.3 + 4.0 * patience,
        }
    slow |= {"alone", "survivors", "deadline"}
    slow |= {key for key, ran in (("memory", filled), ("disk", written)) if "too much" not in ran.stdout}
    return Report(name, properties, slow=frozenset(slow))


def _look(sandbox: Any, tag: str, budget: Budget) -> tuple[dict[str, bool | None], set[str]]:
    """Test what can be seen and reached; also return the properties that it had no time to report."""
    with (
        contextlib.closing(Scratch()) as scratch,
        socket.create_server(("127.0.0.1", 0)) as server,
        _bystander(tag),
    ):
        folder = Path(scratch.path)
        folder.chmod(0o777)
        canary = folder / "canary"
        canary.write_text(tag)
        canary.chmod(0o644)
        server.setblocking(False)
        facts = repr((str(canary), _judges(), server.getsockname()[1]))
        result = sandbox.run(f"FACTS = {facts}\n{_LOOK}", budget=budget)
        answers = {
            key: value for key, _, value in (line.partition("=") for line in result.stdout.splitlines())
        }
        properties: dict[str, bool | None] = {
            key: answers[key] == "held" if key in answers else None for key in PROPERTIES
        }
        properties["files"] = bool(properties["files"]) and tag not in answers.get("read", "")
        properties["environment"] = tag not in answers["environment"] if "environment" in answers else None
        properties["writes"] = bool(properties["writes"]) and os.listdir(folder) == ["canary"]
        with contextlib.suppress(BlockingIOError):
            server.accept()[0].close()
            properties["network"] = False
        return properties, set(properties) - set(answers) if result.status is Status.TLE else set()


def _reach(sandbox: Any, budget: Budget) -> bool | None:
    """Try to read and to end the process that starts programs; if that works, the program ends badly."""
    try:
        tried = sandbox.run(_REACH, budget=budget)
    except SandboxFailed:
        return False
    return "reached=" not in tried.stdout and "server=held" in tried.stdout


def _judges() -> list[str]:
    """Return a file of each installed package that makes or judges tasks."""
    paths = [str(Path(__file__).resolve().parents[1] / "__init__.py")]
    for name in JUDGES[1:]:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name.replace("-", "_"))
            paths += [spec.origin] if spec is not None and spec.origin else []
    return paths


@contextlib.contextmanager
def _bystander(secret: str) -> Iterator[None]:
    """Keep a process that was started with a secret in its environment, for /proc to show."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            process = subprocess.Popen(["sleep", "60"], env={**os.environ, "GEM_PROBE_CANARY": secret})
            stack.enter_context(process)  # waits for its end
            stack.callback(process.kill)
        yield


def _none_left(tag: str, patience_s: float) -> bool | None:
    """Whether no process has the tag; None if there is no /proc."""
    if not os.path.isdir("/proc/self"):
        return None
    deadline = time.monotonic() + patience_s
    while True:
        alive = False
        for path in Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                alive |= path.read_text().strip() == tag
        if not alive or time.monotonic() > deadline:
            return not alive
        time.sleep(0.02)


_LOOK = """
import ctypes, os, socket, time
CANARY, JUDGES, PORT = FACTS
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call):
    try:
        got = call()
    except (OSError, ValueError):
        print(name + "=held")
    else:
        print(name + "=no")
        return got
print("read=" + str(refused("files", lambda: open(CANARY).read())))
shown = [str(dict(os.environ))]
processes, patience = [], time.monotonic() + 2
try:
    while len(processes := [name for name in os.listdir("/proc") if name.isdecimal()]) >= 6:
        if time.monotonic() > patience:
            break
        time.sleep(0.02)  # what the call before left may still be ending
except OSError:
    pass
for pid in processes:
    try:
        shown.append(open(f"/proc/{pid}/environ").read())
    except (OSError, ValueError):
        pass
print("environment=" + ascii(shown))
read = []
for path in JUDGES:
    name = os.path.basename(os.path.dirname(path))
    for look in (lambda: open(path).read(), lambda: __import__(name)):
        try:
            look()
        except Exception:
            continue
        read.append(path)
print("judges=" + (f"no {read}" if read else "held"))
refused("writes", lambda: open(os.path.join(os.path.dirname(CANARY), "written"), "w"))
refused("network", lambda: socket.create_connection(("127.0.0.1", PORT), 2))
print("alone=" + ("held" if len(processes) < 6 else "no"))
if hasattr(libc, "prctl"):
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    capabilities = libc.capget(header, data) == 0 and any(data)
    print("privileges=" + ("held" if libc.prctl(39, 0, 0, 0, 0) == 1 and not capabilities else "no"))
    print("filter=" + ("held" if libc.prctl(21, 0, 0, 0, 0) == 2 else "no"))
children = 0
try:
    while children < 60:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        children += 1
except OSError:
    pass
print("processes=" + ("held" if children < 40 else "no"), flush=True)
"""

_REACH = """
import os, time
for pid in {1, os.getppid()} - {0, os.getpid()}:
    for name in ("mem", "maps", "environ"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if name != "mem" and file.read(1) or name == "mem":
                    print(f"reached={pid} {name}")
        except OSError:
            pass
    for number in (2, 15, 1, 10, 19, 9):
        try:
            os.kill(pid, number)
        except OSError:
            pass
time.sleep(0.05)
print("server=held")
"""

_MEMORY = """
import os, time
def fill(mebibytes):
    held = []
    for _ in range(mebibytes // 16):
        held.append(bytearray(b"x") * (16 << 20))
    return held
for _ in range(4):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        held = fill(192)
        time.sleep(600)
        os._exit(0)
else:
    while os.waitpid(-1, os.WNOHANG)[0] == 0:  # killed well before the deadline, unless nobody watches
        time.sleep(0.02)
    os._exit(0)
held = fill(1024)
print("too much", flush=True)
"""

_DISK = """
import os
total = 0
for n in range(48):
    try:
        with open(f"part{n}", "wb") as file:
            for _ in range(4):
                file.write(bytes(1 << 20))
                total += 1
    except OSError:
        break
if total > 160:
    print("too much")
"""

_LINGER = """
import ctypes, os, time
if hasattr(ctypes.CDLL(None), "prctl"):
    ctypes.CDLL(None).prctl(15, NAME.encode(), 0, 0, 0)
ready, tell = os.pipe()
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
except OSError:
    pass
"""
