"""Where hostile programs are let loose, and what watches them: canaries, listeners, files, survivors.

Standard library alone, so that a plain user can run it with any Python that can import gem.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from programs import PRELUDE, Program

from gem.errors import ToolError
from gem.sandbox import seccomp
from gem.sandbox.base import Budget, Case, Result

BUDGET = Budget(
    cpu_s=1.0, wall_s=2.0, memory_mb=512, processes=16, file_mb=8, disk_mb=16, inodes=256, open_files=64,
    output_kb=64,
)  # fmt: skip
LATE_S = 6.0  # past the wall budget: the sandbox did not keep it, even on a busy machine
SURVIVE_S = 3.0
MEMORY_MB = 1400  # twice the budget, and what the interpreters have


class Arena:
    """The host's side: secrets to steal, files to spoil, sockets to reach, a bystander to kill."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="arena-", dir="/var/tmp"))
        os.chmod(self.folder, 0o777)
        self.secrets = {place: f"canary-{secrets.token_hex(12)}" for place in ("file", "env", "argv", "mem")}
        self.secret_file = self.folder / "secret"
        self.secret_file.write_text(self.secrets["file"])
        self.secret_file.chmod(0o644)
        self.host = self.folder / "host"
        self._lay_out()
        self.heard: list[str] = []
        self._stack = contextlib.ExitStack()
        self._listen()
        self._fd = os.open(self.secret_file, os.O_RDONLY)
        os.set_inheritable(self._fd, True)
        os.environ["GEM_ARENA_SECRET"] = self.secrets["env"]
        self.bystander = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)", self.secrets["argv"]],
            start_new_session=True,
        )
        self.last_tag = "none"
        self.standing = self._standing()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.bystander.kill()
        self.bystander.wait()
        os.close(self._fd)
        os.close(self._fifo)
        os.environ.pop("GEM_ARENA_SECRET", None)
        self._stack.close()
        with contextlib.suppress(OSError):
            self.host.chmod(0o777)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lay_out(self) -> None:
        shutil.rmtree(self.host, ignore_errors=True)
        self.host.mkdir()
        self.host.chmod(0o777)
        (self.host / "file").write_text("untouched")
        (self.host / "file").chmod(0o666)
        os.utime(self.host / "file", (10**9, 10**9))
        os.mkfifo(self.host / "fifo")
        (self.host / "fifo").chmod(0o666)
        with contextlib.suppress(AttributeError):
            os.close(self._fifo)
        self._fifo = os.open(self.host / "fifo", os.O_RDWR | os.O_NONBLOCK)

    def _listen(self) -> None:
        kinds = {
            "TCP": (socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
            "TCP6": (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            "UDP": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "UNIX": (socket.AF_UNIX, socket.SOCK_STREAM, str(self.folder / "stream")),
            "UNIX_DATAGRAM": (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.folder / "datagram")),
            "ABSTRACT": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0arena-{secrets.token_hex(8)}"),
        }
        self.names: dict[str, Any] = {}
        for name, (family, kind, address) in kinds.items():
            if name == "TCP6":
                address = ("::1", self.names["TCP"])
            end = self._stack.enter_context(socket.socket(family, kind))
            try:
                end.bind(address)
            except OSError:
                if name != "TCP6":  # a machine without IPv6
                    raise
                continue
            if isinstance(address, str) and address[0] != "\0":
                os.chmod(address, 0o777)
            if kind == socket.SOCK_STREAM:
                end.listen()
            if name == "TCP":
                os.set_inheritable(end.fileno(), True)
            self.names[name] = address.lstrip("\0") if isinstance(address, str) else end.getsockname()[1]
            threading.Thread(target=self._hear, args=(name, end, kind), daemon=True).start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.names["FREE_PORT"] = free.getsockname()[1]
        self.names["HOST_ADDRESS"] = _address()

    def _hear(self, name: str, end: socket.socket, kind: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                if kind == socket.SOCK_STREAM:
                    end.accept()[0].close()
                else:
                    end.recv(4096)
                self.heard.append(name)

    def attack(self, sandbox: Any, program: Program, how: str = "run") -> list[str]:
        """Run the program and return the harm it did.

        `how`: as a ``run``, a cell of a ``session``, a command of its ``shell``, or a submission to
        ``judge``.
        """
        tag = f"gz{secrets.token_hex(5)}"
        names = self._names(tag)
        code = program.code if program.bare else _with_names(program.code, names)
        fds = _descriptors()
        with _Memory() as memory:
            begun = time.monotonic()
            harm = self._let_loose(sandbox, program, how, code)
            took = time.monotonic() - begun
        if took > (BUDGET.wall_s + LATE_S) * (1 if how == "run" else 2):
            harm.append(f"took {took:.1f} s")
        if memory.peak_mb > MEMORY_MB:
            harm.append(f"took {memory.peak_mb} MiB")
        harm += self._follow_up(sandbox, program, tag)
        harm += self._survivors(tag)
        harm += self._touched(tag)
        if len(grown := _descriptors() - fds) > 8:
            harm.append(f"{len(grown)} descriptors left")
        self.last_tag = tag
        return harm

    def _let_loose(self, sandbox: Any, program: Program, how: str, code: str) -> list[str]:
        harm: list[str] = []
        try:
            if how == "run":
                results = [sandbox.run(code, budget=BUDGET)]
            elif how == "judge":
                cases = [Case(stdin=b"7\n"), Case(stdin=b"8\n")]
                results = sandbox.judge(code, cases, budget=BUDGET)
                right = sandbox.judge("print(input())", cases, budget=BUDGET)
                if [result.stdout for result in right] != ["7\n", "8\n"]:
                    harm.append(f"the next submission gave {right}")
            elif how == "shell":
                with contextlib.closing(sandbox.session(budget=BUDGET)) as session:
                    session.write_file("main.py", code.encode("utf-8", "surrogatepass"))
                    results = [session.shell("python3 main.py")]
                    harm += self._fetch(session, program)
                    results.append(session.shell("echo $((6 * 7))", clean=True))
                    if results[1].stdout != "42\n":
                        harm.append(f"the clean shell gave {results[1]}")
            else:
                beside = sandbox.session(budget=BUDGET)
                with contextlib.closing(sandbox.session(budget=BUDGET)) as session:
                    beside.execute("kept = 'mine'")
                    results = [session.execute(code)]
                    harm += self._fetch(session, program)
                    results.append(session.execute("print(6 * 7)"))
                    if not results[1].ok and session.restarts == 0:
                        results.append(session.execute("6 * 7"))  # a cell may spoil its own session
                kept = beside.execute("kept")
                if kept.value != "'mine'":
                    harm.append(f"another session lost its state: {kept}")
                beside.close()
        except Exception as error:
            return [f"the client was told {type(error).__name__}: {str(error)[:200]}"]
        first: Result = results[0]
        if how in ("run", "session") and program.status and first.status not in program.status:
            harm.append(f"ended as {first.status} (exit {first.exit_code}, {first.stderr[-200:]!r})")
        if program.stdout is not None and how == "run" and first.stdout != program.stdout:
            harm.append(f"said {first.stdout[:200]!r} instead of {program.stdout!r}")
        for result in results:
            harm += self._said(result)
        return harm

    def _fetch(self, session: Any, program: Program) -> list[str]:
        harm = []
        for path in program.fetch:
            try:
                data = session.read_file(path)
            except ToolError:
                data = b""
            if any(secret.encode() in data for secret in self.secrets.values()):
                harm.append(f"the host fetched a secret as {path}")
            if len(data) > 64 << 20:
                harm.append(f"the host fetched {len(data)} bytes as {path}")
            if path and not path.startswith(("/", "..")):
                with contextlib.suppress(ToolError):
                    session.write_file(path, b"written by the host")
        return harm

    def _said(self, result: Result) -> list[str]:
        text = f"{result.stdout}{result.stderr}{result.value or ''}"
        try:
            text.encode()
        except UnicodeEncodeError:
            return ["text that cannot be written"]
        harm = [line[6:] for line in re.findall(r"^HARM: .*", text, re.MULTILINE)][:3]
        harm += [f"the secret in its {place}" for place, secret in self.secrets.items() if secret in text]
        if len(text) > 4 * (BUDGET.output_kb << 10) + (1 << 19):
            harm.append(f"{len(text)} characters of output")
        return harm

    def _follow_up(self, sandbox: Any, program: Program, tag: str) -> list[str]:
        names = self._names(f"gz{secrets.token_hex(5)}") | {"LAST_TAG": tag}
        try:
            said = sandbox.run("print(6 * 7)", budget=BUDGET)
            if (said.stdout, said.stderr, said.ok) != ("42\n", "", True):
                return [f"the next call gave {said}"]
            if program.after:
                return self._said(sandbox.run(_with_names(program.after, names), budget=BUDGET))
        except Exception as error:
            return [f"the next call was told {type(error).__name__}: {str(error)[:200]}"]
        return []

    def _survivors(self, tag: str) -> list[str]:
        deadline = time.monotonic() + SURVIVE_S
        while found := _wearing(tag):
            if time.monotonic() > deadline:
                for pid in found:
                    with contextlib.suppress(OSError):
                        os.kill(pid, 9)
                return [f"{len(found)} processes survive"]
            time.sleep(0.02)
        return []

    def _touched(self, tag: str) -> list[str]:
        harm = sorted({f"reached {name}" for name in self.heard})
        self.heard.clear()
        with contextlib.suppress(BlockingIOError):
            if os.read(self._fifo, 4096):
                harm.append("wrote into the host's pipe")
        standing = self._standing()
        if standing != self.standing:
            changed = [k for k in {**standing, **self.standing} if standing.get(k) != self.standing.get(k)]
            harm.append(f"changed {', '.join(map(str, changed))[:300]}")
            self._lay_out()
            if self.bystander.poll() is not None:
                self.bystander = subprocess.Popen(self.bystander.args, start_new_session=True)  # type: ignore[arg-type]
            self.standing = self._standing()
        for folder in _LITTERED | {os.getcwd(), sys.prefix, os.path.dirname(os.__file__), str(self.folder)}:
            for path in (Path(folder, tag), Path(folder, f"{tag}.pth"), Path(folder, f"psm_{tag}")):
                if path.exists():
                    harm.append(f"left {path}")
                    path.unlink()
        harm += _named_memory(tag)
        return harm

    def _standing(self) -> dict[str, Any]:
        """What no program may change."""
        found: dict[str, Any] = {}
        for path in (self.host, *self.host.rglob("*"), self.secret_file):
            if not os.path.lexists(path):
                continue
            status = path.lstat()
            found[str(path)] = (
                oct(status.st_mode), status.st_uid, status.st_gid, status.st_nlink, status.st_size,
                0 if path == self.host else status.st_mtime_ns,
                path.read_text() if stat.S_ISREG(status.st_mode) else "",
                os.listxattr(path, follow_symlinks=False) if hasattr(os, "listxattr") else (),
            )  # fmt: skip
        for path in (os.__file__, os.path.realpath(sys.executable)):
            status = os.stat(path)
            found[path] = (oct(status.st_mode), status.st_size, status.st_mtime_ns, status.st_uid)
        for name, pid in (("client", os.getpid()), ("bystander", self.bystander.pid)):
            if name == "bystander" and self.bystander.poll() is not None:
                continue
            found[name] = (
                os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid),
                _limits(pid), _state(pid) in "Tt",
            )  # fmt: skip
        found["machine"] = (os.uname().nodename, _mounts())
        return found

    def _names(self, tag: str) -> dict[str, Any]:
        machine = seccomp.MACHINES[os.uname().machine]
        return self.names | {
            "SECRET_FILE": str(self.secret_file),
            "SECRET_NAME": self.folder.name,
            "HOST_DIR": str(self.host),
            "HOST_FILE": str(self.host / "file"),
            "HOST_FIFO": str(self.host / "fifo"),
            "HOST_HOME": os.path.expanduser("~"),
            "CWD": os.getcwd(),
            "CLIENT": os.getpid(),
            "BYSTANDER": self.bystander.pid,
            "TAG": tag,
            "LAST_TAG": self.last_tag,
            "IPC_KEY": int(tag[2:9], 16),
            "NR": {name: numbers[machine.column] for name, numbers in seccomp.NUMBERS.items()},
        }


_LITTERED = {
    "/",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/usr",
    "/usr/local/bin",
    "/etc",
    "/opt",
    "/run",
    "/home",
    "/var",
}


def _with_names(code: str, names: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {value!r}" for name, value in names.items()) + PRELUDE + code


def _address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        try:
            end.connect(("192.0.2.1", 9))  # sends nothing: it asks for the route
            return str(end.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def _mounts() -> list[str]:
    """What is mounted near the root: the containers of others come and go below their own folders."""
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    return [row for row in rows if row.split()[4].count("/") <= 2]


def _limits(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/limits").read_text()
    return ""


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "R" if fields[0] == "Z" and int(fields[17]) > 1 else fields[0]  # its other threads go on
    return "gone"


def _wearing(tag: str) -> list[int]:
    """The live processes, in any namespace below ours, whose name or arguments hold the tag."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                comm = Path(f"/proc/{name}/comm").read_text()
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if (tag in comm or tag.encode() in line) and _state(int(name)) not in ("Z", "X", "gone"):
                    found.append(int(name))
    return found


def _named_memory(tag: str) -> list[str]:
    """System V objects and message queues that the host can see."""
    harm, key = [], int(tag[2:9], 16)
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
            for row in rows:
                if row.split()[0] == str(key):
                    harm.append(f"left a System V {kind}")
                    tool = {"shm": "-m", "sem": "-s", "msg": "-q"}[kind]
                    subprocess.run(["ipcrm", tool, row.split()[1]], check=False)
    if (number := seccomp.NUMBERS["mq_unlink"][seccomp.MACHINES[os.uname().machine].column]) is not None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(ctypes.c_long(number), tag.encode()) == 0:
            harm.append("left a message queue")
    return harm


class _Memory:
    """Samples what this process and all below it hold, less what they held at first."""

    def __enter__(self) -> _Memory:
        self.peak_mb = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        first = self._held()
        while not self._done.wait(0.1):
            self.peak_mb = max(self.peak_mb, (self._held() - first) >> 10)

    def _held(self) -> int:
        """KiB of proportional size, where the kernel tells; the machine's shared memory with it."""
        families: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError, IndexError):
                    fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                    families.setdefault(int(fields[1]), []).append(int(name))
        left, total = [os.getpid()], 0
        while left:
            pid = left.pop()
            left += families.get(pid, [])
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):  # the first one may have ended
                    with contextlib.suppress(OSError):
                        rows = Path(f"/proc/{thread}/smaps_rollup").read_text().splitlines()
                        if sizes := [int(row.split()[1]) for row in rows if row.startswith("Pss:")]:
                            total += sizes[0]
                            break
        return total
