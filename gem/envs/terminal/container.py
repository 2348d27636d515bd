"""Containers for tasks with a Dockerfile: an engine builds the image, and a shell runs in its container.

The image needs only sh, head, mkdir, cat, rm and timeout, for example from coreutils or busybox. For an agent
program it needs a Python too (`gem.envs.terminal.relay`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import posixpath
import re
import secrets
import select
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from gem.envs.terminal import relay
from gem.envs.terminal.base import (
    PREPARATION,
    REWARD_FILES,
    Dockerfile,
    Machine,
    ScoredCheck,
    check_finished,
    read_rewards,
    script_verdict,
)
from gem.envs.terminal.harbor import MISSING, check_tools, confirm_verdict
from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.files import read_bytes
from gem.sandbox.base import Budget, Result, SandboxFailed, Status, check_result
from gem.sandbox.container import ASK_S, Engine, find_engine
from gem.sandbox.lockdown import PROGRAM_HOME
from gem.sandbox.programs import PORT, Run

START_S = 60.0
LATE_S = 10.0
_LONGEST_FILE = 64 << 20
_STATE_BYTES = 64 << 10
_SHARED = "/run/gem"
"""The folder of a container in which the socket of a program's model is mounted."""
_TRIES = 5
"""Requests to end a command by its process, before everything in the container is ended."""
_SPENT = re.compile(rb"(\d+)m([\d.]+)s")
# The capabilities that root of an image commonly needs; none has an effect outside the container.
_KEPT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")

_building = threading.Lock()


def build(asked: Dockerfile, engine: Engine) -> str:
    """Return the name of the folder's image; it is built, or pulled where it has a name, if it is not here.

    Raises:
        SandboxFailed: when that fails, with the end of the engine's output.
    """
    if asked.image:
        if not engine.has_image(asked.image):
            engine.ask("pull", "--quiet", asked.image, timeout_s=asked.build_s)
        return asked.image
    with tempfile.TemporaryDirectory(prefix="gem-", ignore_cleanup_errors=True) as context:
        try:
            shutil.copytree(
                asked.folder,
                context,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=lambda folder, names: asked.own & set(names) if Path(folder) == asked.folder else (),
            )
        except OSError as error:
            raise SandboxFailed(f"the folder {str(asked.folder)!r} cannot be copied: {error}") from error
        name = f"localhost/gem-terminal:{digest_folder(Path(context))}"
        with _building:
            if not engine.has_image(name):
                try:
                    engine.ask("build", "--force-rm", "--tag", name, context, timeout_s=asked.build_s)
                except SandboxFailed as error:
                    raise SandboxFailed(
                        f"the image of {str(asked.folder)!r} was not built: {error}"
                    ) from error
    return name


MOST_OF_FILE = 1 << 30
"""The largest file of a task folder in bytes; one without content may claim any size."""


def digest_folder(folder: Path, rights: int = 0o777) -> str:
    """Return 24 hexadecimal digits of a digest of a folder's files, with their paths and these rights.

    Raises:
        OSError: for a file that cannot be read, or has more than MOST_OF_FILE bytes.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        kind = "l" if path.is_symlink() else "d" if path.is_dir() else "f" if path.is_file() else "o"
        data = os.readlink(path).encode() if kind == "l" else b""
        if kind == "f":
            data = read_bytes(path, MOST_OF_FILE)
        head = (
            f"{path.relative_to(folder).as_posix()}\0{kind}{path.lstat().st_mode & rights:o}\0{len(data)}\0"
        )
        digest.update(head.encode("utf-8", "surrogateescape") + data)
    return digest.hexdigest()[:24]


# The first process. Signals from inside the container do not reach it, and it ends when the client closes its
# stdin. For every line it starts a process, and so reaps orphans that have ended.
_INIT = "while read -r _; do (:); (:); (:); done"

# Runs one command. Its arguments: a name for its files, the seconds, the bytes to show, the shell, and the
# state after the last command (the folder on the first line, then the exported variables). stdin holds a
# mark, which the command cannot see, and the command. `times` shows the CPU time of what has ended.
_OUTER = r"""
at=${TMPDIR:-/tmp}/.gem-$1 seconds=$2 longest=$3 shell=$4
IFS= read -r mark
mkdir -m 700 "$at" && cat > "$at/command" && printf '%s\n' "$5" > "$at/state" || exit 98
timeout -s KILL "$seconds" "$shell" -c '
  echo "$$" > "$0/pid"
  trap "{ pwd; export -p; } > \"$0/left\" 2>/dev/null" EXIT
  { IFS= read -r folder; cat > "$0/exported"; } < "$0/state"
  if [ -n "$folder" ]; then cd "$folder"; . "$0/exported"; fi; unset folder
  . "$0/command"' "$at" </dev/null >"$at/out" 2>"$at/err"
code=$?
head -c "$longest" "$at/out"; printf '%s' "$mark"; head -c "$longest" "$at/err"; printf '%s' "$mark"
head -c 65536 "$at/left" 2>/dev/null; printf '%s' "$mark"; times
rm -rf "$at"; exit "$code"
"""

# Ends the command of this name, whose process is a program that the shell became.
_INTERRUPT = 'kill -9 "$(cat "${TMPDIR:-/tmp}/.gem-$1/pid")"'

# Makes the home of a program and starts the relay by the first Python that runs. Its arguments: the home, the
# relay's text, the socket, the port, and Pythons.
_RELAY = r"""
mkdir -p -m 1777 "$1"; text=$2 at=$3 port=$4; shift 4
for python; do "$python" -I -c 'import asyncio' && exec "$python" -I -c "$text" "$at" "$port"; done 2>&1
"""


class ContainerSession:
    """A container in which a shell runs commands; see `gem.sandbox.base.Session`.

    With a `port`, an agent program may run in it; see `gem.sandbox.base.ProgramSession`. `visible` are files
    and folders of this machine, which it sees read-only at the same paths.

    Raises:
        SandboxFailed: when the container does not start.
    """

    restarts = 0

    def __init__(
        self,
        engine: Engine,
        image: str,
        asked: Dockerfile,
        budget: Budget,
        *,
        visible: Sequence[str] = (),
        port: int = 0,
    ) -> None:
        self.engine, self.image, self.budget = engine, image, budget
        self._visible, self._port = visible, port
        self._shared = tempfile.mkdtemp(prefix="gem-") if port else ""
        self._relay: subprocess.Popen[bytes] | None = None
        self._command, self._interrupts = "", 0
        self.name = f"gem-terminal-{os.getpid()}-{secrets.token_hex(6)}"
        self._state, self._closed, self._lost, self._last_stderr = "", False, False, ""
        memory = f"{asked.memory_mb}m"
        command = [
            *(engine.command, "run", "--rm", "--interactive", "--name", self.name, "--label", "gem-terminal"),
            *engine.list_barriers(),
            *("--memory", memory, "--memory-swap", memory, "--pids-limit", "512", "--cap-drop", "ALL"),
            *(f"--cap-add={name}" for name in _KEPT),
            *([] if asked.internet else ["--network", "none"]),
            *([] if asked.cpus is None else ["--cpus", f"{asked.cpus:g}"]),
            *(f"--volume={path}:{path}:ro" for path in visible),
            *([f"--volume={self._shared}:{_SHARED}:ro"] if port else []),
            *("--entrypoint", "/bin/sh", image, "-c", _INIT),
        ]
        try:
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self._shared, ignore_errors=True)
            raise SandboxFailed(f"{engine.command} cannot be started: {error}") from error
        try:
            self._wait_until_it_runs(image)
            has_bash = self._exec(["sh", "-c", 'echo "$HOME"; command -v bash'], b"", START_S)
        except BaseException:
            self.close()
            raise
        self._shell = "bash" if has_bash is not None and has_bash.returncode == 0 else "sh"
        self.home = "" if has_bash is None else has_bash.stdout.decode("utf-8", "replace").partition("\n")[0]

    def _wait_until_it_runs(self, image: str) -> None:
        deadline = time.monotonic() + START_S
        while not self._running():
            if self._client.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SandboxFailed(f"the container of {image} did not start: {self._last_stderr}")
            time.sleep(0.05)

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        """Run a command; the working directory and exported variables are kept for the next command.

        `clean` first ends all other processes in the container, and starts as root in the image's state.
        """
        self._check_open()
        budget = budget or self.budget
        user: list[str] = []
        if clean:
            self._state, user = "", ["--user", "0"]
            self._exec(["sh", "-c", "kill -9 -1"], b"", START_S, user)
        assert self._client.stdin is not None
        with contextlib.suppress(OSError):
            self._client.stdin.write(b"\n")
            self._client.stdin.flush()
        mark, longest = secrets.token_hex(16), budget.output_kb << 10
        self._command, self._interrupts = secrets.token_hex(6), 0
        arguments = [self._command, f"{budget.wall_s:g}", str(longest + 1), self._shell, self._state]
        begun = time.monotonic()
        done = self._exec(
            ["sh", "-c", _OUTER, "sh", *arguments],
            f"{mark}\n{command}".replace("\0", "").encode("utf-8", "surrogateescape"),
            budget.wall_s + LATE_S,
            user,
            2 * longest + 2 * _STATE_BYTES,
        )
        wall_s = time.monotonic() - begun
        self._command, interrupted = "", self._interrupts > 0
        info = {"backend": "container", "engine": self.engine.command}
        parts = [] if done is None else done.stdout.split(mark.encode())
        if done is None or len(parts) != 4:
            if self._running() and done is not None and not clean:  # the agent broke the container's tools
                words, code = done.stderr.decode("utf-8", "replace")[:longest], done.returncode
                if interrupted:
                    return Result(Status.TLE, stderr=words, exit_code=code, wall_s=wall_s, info=info)
                if code < 0:  # killed because of its endless output
                    return Result(Status.OLE, stderr=words, signal=-code, wall_s=wall_s, cut=True, info=info)
                return Result(Status.RE, stderr=words, exit_code=code, wall_s=wall_s, info=info)
            self._lost = True
            return Result(Status.MLE, signal=9, wall_s=wall_s, info={**info, "ended": True})
        out, err = (part[:longest].decode("utf-8", "replace") for part in parts[:2])
        cut = max(len(parts[0]), len(parts[1])) > longest
        late = done.returncode in (124, 137) and (wall_s >= budget.wall_s or interrupted)
        spent = _SPENT.findall(parts[3])[-2:]  # of the commands that have ended: user and system
        if not clean and 0 < len(parts[2]) < _STATE_BYTES:
            self._state = parts[2].decode("utf-8", "replace").replace("\0", "")
        return Result(
            Status.TLE if late else Status.RE if done.returncode else Status.OK,
            out,
            err,
            exit_code=None if late else done.returncode,
            signal=9 if late else None,
            wall_s=wall_s,
            cpu_s=sum(60 * int(minutes) + float(seconds) for minutes, seconds in spent),
            cut=cut,
            info=info,
        )

    def listener(self) -> socket.socket:
        """Return the socket to serve, to which a relay inside passes on what connects to `port`.

        Raises:
            BadArgument: where the container has no Python for the relay. SandboxFailed: without a socket.
        """
        self._check_open()
        if not self._port or self._relay is not None:
            raise BadArgument("the session was opened without a port, or its listener was taken before.")
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(f"{self._shared}/model")
            listener.listen(512)
            self._start_relay()
        except BaseException as error:
            listener.close()
            if isinstance(error, OSError):
                raise SandboxFailed(f"no socket can be shared with a container: {error}") from error
            raise
        return listener

    def _start_relay(self) -> None:
        text, names = (
            Path(relay.__file__).read_text(),
            ("python3", *(f"{at}/bin/python3" for at in self._visible)),
        )
        arguments = [PROGRAM_HOME, text, f"{_SHARED}/model", str(self._port), *names]
        self._relay = subprocess.Popen(
            [self.engine.command, "exec", "--user", "0", self.name, "sh", "-c", _RELAY, "sh", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, printed, deadline = self._relay.stdout, b"", time.monotonic() + START_S
        assert output is not None
        while b"ready\n" not in printed:
            poll = select.poll()
            poll.register(output, select.POLLIN)
            data = poll.poll(1000 * max(0.0, deadline - time.monotonic())) and os.read(output.fileno(), 4096)
            if not data:
                words = printed.decode("utf-8", "replace").strip()[-500:]
                raise BadArgument(
                    f"the image {self.image} has no python3 (3.7 or newer) that runs, by which a program's "
                    "calls leave its container: put one into the image, or show a folder that has it as "
                    f"bin/python3 (--program-shows FOLDER). {words}"
                )
            printed += data

    def interrupt(self) -> None:
        """End the command that runs now, from another thread; see ProgramSession."""
        name = self._command
        if not name:
            return
        self._interrupts += 1
        by = ["sh", "-c", _INTERRUPT if self._interrupts < _TRIES else "kill -9 -1", "sh", name]
        with contextlib.suppress(SandboxFailed):  # the command finds that out too
            self._exec(by, b"", START_S, ["--user", "0"])

    def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file, at an absolute path or below the image's working folder."""
        self.write_files({path: data}, mode=mode)

    def write_files(self, files: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        """Write files at absolute paths, with the engine and not with a program of the container."""
        self._check_open()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, data in files.items():
                member = tarfile.TarInfo(posixpath.normpath(path).lstrip("/"))
                member.size, member.mode = len(data), mode
                tar.addfile(member, io.BytesIO(data))
        try:
            self.engine.ask("cp", "-", f"{self.name}:/", stdin=buffer.getvalue())
        except SandboxFailed:
            raise self._refusal(f"{self.engine.command} cp: the files cannot be written.") from None

    def read_file(self, path: str) -> bytes:
        """Read a regular file at an absolute path.

        Raises:
            ToolError: if there is no such file.
            SandboxFailed: when the engine does not answer.
        """
        self._check_open()
        with subprocess.Popen(
            [self.engine.command, "cp", f"{self.name}:{posixpath.join('/', path)}", "-"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as copy:
            assert copy.stdout is not None
            late = threading.Timer(ASK_S, copy.kill)
            late.start()
            begun = time.monotonic()
            try:
                data = copy.stdout.read(_LONGEST_FILE + (1 << 20))
            finally:
                late.cancel()
                copy.kill()
        if time.monotonic() >= begun + ASK_S:
            raise SandboxFailed(f"{self.engine.command} cp took more than {ASK_S:g} s.")
        with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data)) as tar:
            member = tar.next()
            if member is not None and member.isreg() and member.size <= _LONGEST_FILE:
                file = tar.extractfile(member)
                assert file is not None
                return file.read()
        raise self._refusal(f"there is no regular file at {path!r}.")

    def execute(self, code: str, budget: Budget | None = None) -> NoReturn:
        """Raise BadArgument, because an image may have no Python."""
        raise BadArgument("the container of a task has a shell, and no Python session.")

    def snapshot(self) -> NoReturn:
        """Raise CannotFork, because the state is a whole container."""
        raise CannotFork("the container of a task cannot be saved.")

    def fork(self) -> NoReturn:
        """Raise CannotFork, because the state is a whole container."""
        raise CannotFork("the container of a task cannot be forked.")

    def close(self) -> None:
        """Remove the container."""
        if self._closed:
            return
        self._closed = True
        client = self._client
        assert client.stdin is not None
        assert client.stderr is not None
        with contextlib.suppress(OSError):  # if the client has ended
            client.stdin.close()
        try:
            client.wait(LATE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(SandboxFailed):
                self.engine.ask("rm", "--force", self.name)
            client.kill()
            client.wait()
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        if self._shared:
            shutil.rmtree(self._shared, ignore_errors=True)
        with client.stderr:
            self._last_stderr = client.stderr.read(1 << 16).decode("utf-8", "replace").strip()[-500:]

    def _check_open(self) -> None:
        if self._closed or self._lost:
            raise EnvClosed("this session has ended; open another one.")

    def _running(self) -> bool:
        """Whether the container runs. Raises SandboxFailed when the engine does not answer."""
        asked = ("ps", "--quiet", "--filter", f"name={self.name}", "--filter", "status=running")
        return bool(self.engine.ask(*asked).strip())

    def _refusal(self, words: str) -> ToolError:
        """Return the error to raise. Raises SandboxFailed when the engine does not answer."""
        return ToolError(words if self._running() else "the container has ended.")

    def _exec(
        self,
        command: list[str],
        stdin: bytes,
        timeout_s: float,
        user: Sequence[str] = (),
        longest: int = 1 << 16,
    ) -> subprocess.CompletedProcess[bytes] | None:
        """Run a program in the container; return None if it does not end in time.

        The program may be the agent's, and its output may be endless. It is killed after `longest` bytes of a
        stream, and these bytes are returned.
        """
        line = [self.engine.command, "exec", "--interactive", *user, self.name, *command]
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise SandboxFailed(f"{self.engine.command} does not answer: {error}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        outputs: dict[IO[bytes], bytes] = {}

        def give(pipe: IO[bytes]) -> None:
            with contextlib.suppress(OSError), pipe:
                pipe.write(stdin)

        def take(pipe: IO[bytes]) -> None:
            outputs[pipe] = pipe.read(longest)
            if pipe.read(1):
                process.kill()

        threads = [
            threading.Thread(target=work, args=(pipe,), name="gem-terminal-pipe", daemon=True)
            for work, pipe in ((give, process.stdin), (take, process.stdout), (take, process.stderr))
        ]
        with process:
            for thread in threads:
                thread.start()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                process.kill()
                for thread in threads:
                    thread.join()
        return subprocess.CompletedProcess(
            line, process.returncode, outputs[process.stdout], outputs[process.stderr]
        )


def open_container(asked: Dockerfile, budget: Budget, run: Run | None = None) -> ContainerSession:
    """Build a task's image if it is missing, and start a container of it, for the `run` of a program.

    Raises:
        SandboxFailed: when that fails. BadArgument: for a program, where the task has the internet.
    """
    engine = find_engine()
    if run is None:
        return ContainerSession(engine, build(asked, engine), asked, budget)
    if asked.internet:
        raise BadArgument(
            "the task has the internet, where a program reaches other models and the answers; accepted for "
            "programs: tasks without it (allow_internet = false)."
        )
    image, visible = build(asked, engine), run.program.list_mounts()
    return ContainerSession(engine, image, asked, budget, visible=visible, port=PORT)


def container_test(
    files: Mapping[str, bytes], command: str, exports: str = "", *, rewards: bool = False
) -> ScoredCheck:
    """Return a hidden test that runs a bash script in ``/tests``, as in Harbor and Terminal-Bench.

    `exports` are bash commands that export variables. The script is copied into the container after the
    agent's processes have been ended. With `rewards`, it is scored by the rewards that it writes
    (`read_rewards`). Else it passes with a reward of 1 or more in ``/logs/verifier/reward.txt``, or, without
    such a file, with exit code 0.
    """

    def read(session: ContainerSession, path: str) -> bytes | None:
        try:
            return session.read_file(path)
        except ToolError:
            return None

    def check(machine: Machine) -> str | dict[str, float]:
        session, budget = machine.session, machine.budget
        assert isinstance(session, ContainerSession)
        folders = "rm -rf /tests /logs && mkdir -p /tests /logs/verifier /logs/agent"
        made = check_result(session.shell(folders, PREPARATION, clean=True))
        if made.info.get("ended"):
            return "the machine ended before the test"
        if not made.ok:
            raise ToolError("the folders of the test cannot be made: the agent's files are in the way")
        session.write_files({f"/tests/{name}": data for name, data in files.items()}, mode=0o755)
        test = f"export TEST_DIR=/tests LOGS_DIR=/logs\n{exports}export PATH=$PATH:/tests/.absent; {command}"
        done = check_result(session.shell(test, budget, clean=True))
        if rewards:
            check_finished(done, machine)
        check_tools(read(session, f"/tests/{MISSING}"), machine.setup)
        if rewards:
            json_file, text_file = (read(session, f"/logs/verifier/{name}") for name in REWARD_FILES)
            numbers = read_rewards(json_file, text_file, f"{done.stdout}{done.stderr}")
            return confirm_verdict(numbers, machine, done, "/logs")
        if done.info.get("ended"):
            return "the machine ended in the test"
        written = read(session, "/logs/verifier/reward.txt")
        reward = None if written is None else written.decode("utf-8", "replace").strip()
        return confirm_verdict(script_verdict(reward, done), machine, done, "/logs")

    return check
