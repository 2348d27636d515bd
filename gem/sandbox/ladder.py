"""The choice of a rung: from the strongest down, the first that passes a test of itself.

What a rung holds back is tried, never deduced from versions: a program in it looks for a canary, calls a
listener, forks, fills memory. Each rung is tested once per process. A busy machine must not choose a weaker
rung: what failed for want of time, space or memory is tried again, and never remembered as an answer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gem import plugins
from gem.errors import BadArgument, did_you_mean
from gem.sandbox.base import Budget, Sandbox, SandboxFailed, Status
from gem.sandbox.bwrap import HOW_TO_INSTALL


class Rung(NamedTuple):
    """How strong a rung is, and what it may lack and still be taken for it."""

    label: str
    summary: str
    may_lack: frozenset[str] = frozenset()


PROPERTIES: dict[str, str] = {
    "files": "the host's files cannot be read",
    "environment": "the caller's environment cannot be read",
    "writes": "nothing outside can be written",
    "network": "the host's loopback cannot be reached",
    "alone": "no process of the host is in sight",
    "privileges": "no capabilities, and none to be had",
    "filter": "system calls are filtered",
    "memory": "memory of all processes together is limited",
    "processes": "the number of processes is limited",
    "disk": "files are limited in total",
    "survivors": "nothing outlives the call",
    "deadline": "the wall-clock budget holds",
}
"""What the self-test tries, in words."""

PLUGIN_GROUP = "gem.sandboxes"

_NAMED_ONLY = ("remote", "container")
_UNKNOWABLE = frozenset({"environment", "alone", "privileges", "filter", "memory", "processes", "disk"})

RUNGS: dict[str, Rung] = {
    "remote": Rung("strong", "a SandboxFusion service elsewhere", _UNKNOWABLE | {"survivors", "writes"}),
    "container": Rung("strong", "a container of Docker or Podman per run or session", frozenset({"filter"})),
    "userns": Rung("isolated", "bubblewrap, and namespaces of its own for every child"),
    "bwrap-slots": Rung("isolated", "a bubblewrap box per slot, used by one call after another"),
    "landlock": Rung("partial", "Landlock and a system-call filter, no processes", frozenset({"disk"})),
    "seatbelt": Rung(
        "partial",
        "macOS's sandbox-exec, untested",
        frozenset({"alone", "privileges", "filter", "memory", "processes", "disk", "survivors"}),
    ),
    "none": Rung("none", "a bare process under rlimits", frozenset(PROPERTIES)),
}
"""The ladder, from the top."""

ORDER = ("userns", "bwrap-slots", "landlock", "seatbelt")
"""What is tried when no rung was named; ``none`` comes after them if that is allowed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the self-test of a rung found: each property True, False, or None where it could not be tried.

    `slow` names the properties, or "start", of which a machine too busy or too full may be the reason.
    """

    rung: str
    properties: Mapping[str, bool | None] = field(default_factory=dict)
    failure: str = ""
    slow: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Whether it started, and holds all that a rung of its name has to."""
        return not self.failure and not self.lacking

    @property
    def lacking(self) -> frozenset[str]:
        """The properties that it does not hold, and has to."""
        return (
            frozenset(name for name, held in self.properties.items() if not held) - RUNGS[self.rung].may_lack
        )

    @property
    def doubtful(self) -> bool:
        """Whether nothing speaks against the rung but that something took too long, or found no space."""
        return not self.passed and ({"start"} if self.failure else self.lacking) <= self.slow

    @property
    def why_not(self) -> str:
        """Return why it is not taken, or an empty string."""
        if self.failure or self.passed:
            return self.failure
        lacking = [PROPERTIES[name] for name, held in self.properties.items() if not held]
        return f"its self-test failed: it does not hold that {'; '.join(lacking)}."


def open_sandbox(rung: str | Sandbox | None = None, *, allow_unsafe: bool = False, **options: Any) -> Sandbox:
    """Open the strongest sandbox that this machine can hold to.

    Args:
        rung: take this one or fail; ``GEM_SANDBOX`` by default, and where that is unset, the first of
            userns, bwrap-slots, landlock and seatbelt that passes its self-test. A name that a package offers
            under the entry point group ``gem.sandboxes`` calls what stands there, with the options; nothing
            is tested of it. A sandbox is returned as it is.
        allow_unsafe: go down to ``none``, which isolates nothing, rather than fail; so does
            ``GEM_SANDBOX_ALLOW_UNSAFE=1``.
        options: for the rung's own class, such as ``max_running``, or ``image`` of a container.

    Raises:
        SandboxFailed: when no rung passes, or the named one does not.
        BadArgument: for a name that nobody offers.
    """
    if isinstance(rung, Sandbox):
        return rung
    allow_unsafe = allow_unsafe or os.environ.get("GEM_SANDBOX_ALLOW_UNSAFE") == "1"
    named = rung or configured()
    if named is not None:
        return _open_named(named, allow_unsafe, options)
    reports: dict[str, Report] = {}
    for name in ORDER:
        reports[name] = self_test(name)
        if reports[name].passed:
            return _open(name, reports, options)
    if not allow_unsafe:
        raise SandboxFailed(_refusal(reports))
    return _open("none", reports, options)


def configured() -> str | None:
    """Return the rung that the environment variable ``GEM_SANDBOX`` names."""
    return os.environ.get("GEM_SANDBOX") or None


def _open_named(name: str, allow_unsafe: bool, options: dict[str, Any]) -> Sandbox:
    if name not in RUNGS:
        offered = plugins.find(PLUGIN_GROUP, name)
        if offered is not None:
            return offered(**options)  # type: ignore[no-any-return]
        known = [*RUNGS, *plugins.names(PLUGIN_GROUP)]
        raise BadArgument(f"no rung {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}.")
    if name == "none":
        if not allow_unsafe:
            raise SandboxFailed(
                "the rung 'none' isolates nothing: what a model wrote could do all that you can. "
                "Say allow_unsafe=True (or GEM_SANDBOX_ALLOW_UNSAFE=1) if it may."
            )
        return _open(name, {}, options)
    report = self_test(name, options if name in _NAMED_ONLY else {})
    if not report.passed:
        raise SandboxFailed(f"the rung {name!r} cannot be had here: {report.why_not}")
    return _open(name, {name: report}, options)


def _refusal(reports: Mapping[str, Report]) -> str:
    lines = [f"  {name}: {report.why_not}" for name, report in reports.items()]
    return "\n".join(
        [
            "no sandbox can be had here, and what a model wrote is not run without one:",
            *lines,
            f"Install bubblewrap ({HOW_TO_INSTALL}), "
            "name a container engine or a service (GEM_SANDBOX=container or remote), or accept no isolation "
            "at all with allow_unsafe=True.",
        ]
    )


def _open(name: str, reports: Mapping[str, Report], options: dict[str, Any]) -> Sandbox:
    sandbox = make(name, **options)
    sandbox.info = {**sandbox.info, "label": RUNGS[name].label}
    found = reports[name].properties if name in reports else dict.fromkeys(PROPERTIES, False)
    report = {
        "rung": name,
        "label": RUNGS[name].label,
        "properties": dict(found),
        "higher": {other: seen.why_not for other, seen in reports.items() if other != name},
    }
    sandbox.report = lambda: report
    _warn_once(name, report)
    opened: Sandbox = sandbox
    return opened


_warned: set[str] = set()


def _warn_once(name: str, report: Mapping[str, Any]) -> None:
    if RUNGS[name].label not in ("partial", "none") or name in _warned:
        return
    _warned.add(name)
    lacking = [PROPERTIES[key] for key, held in report["properties"].items() if not held]
    warnings.warn(
        f"programs run on the rung {name!r} ({RUNGS[name].label} isolation). Not held: "
        f"{'; '.join(lacking) or 'nothing found, but it is the same kernel and user'}. "
        "`gem-gym sandbox` says why no higher rung could be had.",
        stacklevel=4,
    )


def make(name: str, **options: Any) -> Any:
    """Make a rung's sandbox without testing it.

    Raises:
        SandboxFailed: when it cannot be started here.
    """
    if name == "remote":
        from gem.sandbox.remote import RemoteSandbox

        return RemoteSandbox(**options)
    if name in ("container", "seatbelt", "none"):
        from gem.sandbox import container, piped

        kinds: dict[str, Callable[..., Any]] = {
            "container": container.ContainerSandbox,
            "seatbelt": piped.SeatbeltSandbox,
            "none": piped.UnsafeSandbox,
        }
        return kinds[name](**options)
    if not sys.platform.startswith("linux"):
        raise SandboxFailed(f"the rung {name!r} is for Linux, and this is {sys.platform}.")
    from gem.sandbox import box, landlock
    from gem.sandbox.client import ZygoteSandbox
    from gem.sandbox.pool import Settings

    if name == "userns":
        return ZygoteSandbox(Settings(), **options)
    if name == "bwrap-slots":
        return ZygoteSandbox(Settings(rung=name, namespaces=False, slots=True), **options)
    if landlock.abi() == 0:
        raise SandboxFailed("the kernel offers no Landlock (Linux 5.13 or newer, with it enabled).")
    read = (*_READABLE, *box.Interpreter.this().binds)
    return ZygoteSandbox(Settings(rung=name, boxed=False, namespaces=False, fork=False, read=read), **options)


_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime"),
    *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
)


# ------------------------------------------------------------------------------------------ the self-test

_tested: dict[str, Report] = {}
_lock = threading.RLock()
PATIENCE = (1.0, 3.0, 6.0)
"""What each attempt's times are multiplied by: one whose failure proves nothing is followed by the next."""
_AT_ONCE_S = 5.0


def self_test(name: str, options: Mapping[str, Any] | None = None) -> Report:
    """Try what a rung holds back: once per process, and again while time or space ran out in it."""
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
    light = {} if name in (*_NAMED_ONLY, "seatbelt", "none") else {"max_running": 2, "begin": ("bare",)}
    sandbox = None
    begun = time.monotonic()
    try:
        sandbox = make(name, **light, **options)
        if (first := sandbox.run("print(6 * 7)", budget=_budget(patience))).stdout != "42\n":
            failure = f"6 * 7 is {first.stdout!r} in it: {first.stderr[-300:].strip()}"
            return _refused(name, failure, perhaps=first.status in (Status.TLE, Status.MLE))
        return _probe(name, sandbox, patience)
    except SandboxFailed as error:
        waited = time.monotonic() - begun > _AT_ONCE_S  # what is missing is told at once
        return _refused(name, str(error), perhaps=waited)
    except OSError as error:  # ours: no temporary file, no descriptor, no process
        return _refused(name, f"its self-test could not be made: {error}", perhaps=True)
    finally:
        if sandbox is not None:
            sandbox.close()


_WANTS = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)),
    "No usable temporary directory",
)
"""What the system, and tempfile, say where space, memory, processes or descriptors are used up."""


def _refused(name: str, failure: str, *, perhaps: bool) -> Report:
    """Return the report of one that did not start; `perhaps`: another time it may."""
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
        sandbox.run(f"NAME = {tag!r}\n{_LINGER}", budget=budget)
        endless = sandbox.run("while True: pass", budget=replace(budget, wall_s=0.3))
        properties, slow = look.result()
        filled, written = memory.result(), disk.result()
        properties |= {
            "memory": "too much" not in filled.stdout and filled.status is not Status.TLE,
            "disk": "too much" not in written.stdout and written.status is not Status.TLE,
            "survivors": _none_left(tag, 3.0 * patience),
            "deadline": endless.status is Status.TLE and endless.wall_s < 0.3 + 4.0 * patience,
        }
    slow |= {"alone", "survivors", "deadline"}
    slow |= {key for key, ran in (("memory", filled), ("disk", written)) if "too much" not in ran.stdout}
    return Report(name, properties, slow=frozenset(slow))


def _look(sandbox: Any, tag: str, budget: Budget) -> tuple[dict[str, bool | None], set[str]]:
    """Try what can be seen and reached; what the program had no time to say is named beside."""
    with (
        tempfile.TemporaryDirectory(prefix="gem-probe-", ignore_cleanup_errors=True) as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        _bystander(tag),
    ):
        os.chmod(folder, 0o777)
        canary = Path(folder, "canary")
        canary.write_text(tag)
        canary.chmod(0o644)
        server.setblocking(False)
        facts = repr((str(canary), os.getpid(), server.getsockname()[1]))
        seen = sandbox.run(f"FACTS = {facts}\n{_LOOK}", budget=budget)
        said = {key: value for key, _, value in (line.partition("=") for line in seen.stdout.splitlines())}
        held: dict[str, bool | None] = {
            key: said[key] == "held" if key in said else None for key in PROPERTIES
        }
        held["files"] = bool(held["files"]) and tag not in said.get("read", "")
        held["environment"] = tag not in said["environment"] if "environment" in said else None
        held["writes"] = bool(held["writes"]) and os.listdir(folder) == ["canary"]
        with contextlib.suppress(BlockingIOError):
            server.accept()[0].close()
            held["network"] = False
        return held, set(held) - set(said) if seen.status is Status.TLE else set()


@contextlib.contextmanager
def _bystander(secret: str) -> Iterator[None]:
    """Keep a process with a secret in its environment: what /proc shows is what a process began with."""
    try:
        process = subprocess.Popen(["sleep", "60"], env={**os.environ, "GEM_PROBE_CANARY": secret})
    except OSError:
        yield
        return
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _none_left(tag: str, patience_s: float) -> bool | None:
    """Whether no process bears the tag; None where there is no /proc to look in."""
    if not os.path.isdir("/proc/self"):
        return None
    deadline = time.monotonic() + patience_s
    while True:
        found = False
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError):
                    found |= Path(f"/proc/{name}/comm").read_text().strip() == tag
        if not found or time.monotonic() > deadline:
            return not found
        time.sleep(0.02)


_LOOK = """
import ctypes, os, socket, time
CANARY, CLIENT, PORT = FACTS
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
