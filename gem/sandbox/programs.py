"""Agent programs: what a program sees of this machine, and one run of it in the session of an episode.

A program is the user's own command. It runs beside the workspace that it works in, in the same session, and
its only network is one socket, which listens inside and is served outside (`Served`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from socket import socket
from time import perf_counter
from typing import Any, NoReturn, TypeAlias, cast

from gem.errors import BadArgument, NoVerdict, did_you_mean
from gem.sandbox.base import Budget, ProgramSession, Result, Sandbox, check_result
from gem.sandbox.image import Interpreter
from gem.sandbox.lockdown import PROGRAM_HOME

PORT = 47100
"""The port of its loopback at which a program finds its model. No task uses it."""

BUDGET = Budget(
    cpu_s=3600.0, memory_mb=4096, processes=256, file_mb=256, disk_mb=512, inodes=1 << 16, open_files=1024
)
"""The limits of a program and its workspace together: 32 processes were too few for codex."""

LONGEST_TASK = 100_000
"""The most bytes of a task in an argument: Linux takes 128 KiB."""

SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")
"""Folders of programs that every sandbox shows."""

SHORTEST_S = 0.25
"""Seconds of delay that are not given back: requests of a model that answers are on their way for a while."""

LATE_S = 30.0
"""Seconds after the end of its time in which a program has to be ended, or the sandbox counts as broken."""

MOST_READ = 256 << 20
"""The most bytes that are read for the digest of a program."""

_OF_IMAGES = {
    f"{root}/{part}"
    for root in ("", "/usr", "/usr/local")
    for part in ("bin", "sbin", "lib", "lib64", "share")
}
"""Folders that an image has, of which a container keeps its own."""

PLACES = ("{base_url}", "{mcp_url}", "{task}")
"""What is replaced in the words of a command."""

_IN_BRACES = re.compile(r"(?:[^{}]*=)?(\{[A-Za-z_][\w-]*\})")
_INTERPRETER = re.compile(r"(python|pypy|bash|sh|dash|zsh|node|ruby|perl)[0-9.]*")
_FLAG = re.compile(r"-[uBEIsS]+|-O+|--")
"""Flags of interpreters that take no value; behind any other, the next word may be no script."""

_WORKSPACE = re.compile(r"(?<![\w/~])~(?![\w~])")

Served: TypeAlias = Callable[[socket], AbstractContextManager[object]]
"""Serves a listening socket until its block is left."""


@dataclass(frozen=True)
class Program:
    """A command, split into words, and the files and folders of this machine that it sees, read-only.

    ``{task}`` in a word stands for the task, ``{base_url}`` for the address of the model, ``{mcp_url}`` for
    that of an episode without a workspace. `path` is put in front of the variable PATH. `digest` changes with
    the content of those files and folders, and with the packages of the program's virtual environment.
    """

    words: tuple[str, ...]
    visible: tuple[str, ...] = ()
    path: str = "/usr/bin"
    digest: str = ""

    @property
    def name(self) -> str:
        """The word that names the command."""
        return self.words[_find_command(self.words)]

    def list_mounts(self) -> list[str]:
        """Return what a container sees of this machine; its image has the folders of the system.

        Raises:
            BadArgument: for a path with a colon, which engines cannot mount.
        """
        mounts = [path for path in self.visible if path not in _OF_IMAGES]
        for path in mounts:
            if ":" in path:
                raise BadArgument(f"no container engine mounts {path!r}, which has a colon; rename it.")
        return mounts

    def search(self) -> str:
        """Return the line of bash that succeeds if the program is to be found in a session."""
        return f"PATH={shlex.quote(self.path)}:$PATH; command -v -- {shlex.quote(self.name)}"

    def command(self, task: str, key: str, mcp: bool = False) -> str:
        """Return the line of bash that runs the program in a session, with nothing to read from stdin.

        Args:
            task: what is to be done.
            key: the key of the model, and with `mcp` of the episode.
            mcp: the episode is played by MCP.

        Raises:
            BadArgument: for a task that is too long for an argument, and for ``{mcp_url}`` without `mcp`.
        """
        if len(task.encode("utf-8", "surrogatepass")) > LONGEST_TASK:
            raise BadArgument(f"the task has more than the {LONGEST_TASK:,} bytes that fit into an argument.")
        root = f"http://127.0.0.1:{PORT}"
        url, mcp_url = f"{root}/v1", f"{root}/s/{key}/mcp"
        words = [*self.words]
        if not mcp and any("{mcp_url}" in word for word in words):
            raise BadArgument(
                "the command has {mcp_url}, but the environment is played in its workspace, not by MCP; "
                "leave that word out."
            )
        values = {"{base_url}": url, "{mcp_url}": mcp_url, "{task}": task}  # the task last: it stays as it is
        for name, value in values.items():
            words = [word.replace(name, value) for word in words]
        variables = {
            "HOME": PROGRAM_HOME,
            "OPENAI_BASE_URL": url,
            "OPENAI_API_BASE": url,
            "OPENAI_API_KEY": key,
            "GEM_TASK": task,
            **({"GEM_MCP_URL": mcp_url} if mcp else {}),
        }
        given = shlex.join(f"{name}={value}" for name, value in variables.items())
        return f"PATH={shlex.quote(self.path)}:$PATH exec env {given} {shlex.join(words)} </dev/null"


def read_program(command: str, visible: Sequence[str] = ()) -> Program:
    """Return the program of a command.

    It sees its own virtual environment with the interpreter below that, and the files and folders that the
    command names by a path, which become absolute.

    Args:
        command: the words, quoted as in a shell; no shell reads them.
        visible: further files and folders that the program sees.

    Raises:
        BadArgument: for a command without words, a program that is not here, and a path that is not to be
            shown: this machine's root, a home, or a folder with gem in it.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadArgument(f"the program {command!r} cannot be split into words: {error}.") from error
    at = _find_command(words)
    if at == len(words):
        raise BadArgument(f"the program {command!r} names no command.")
    files: list[str] = [*map(_absolute, visible)]
    own = ":".join((os.path.dirname(Interpreter.this().executable), *SYSTEM))  # `python` is the one inside
    executable = shutil.which(words[at], path=own) or shutil.which(words[at]) or _refuse(words[at])
    path = os.path.abspath(executable)
    if "/" in words[at]:
        words[at] = path
    environment = _environment_of(path)
    content = [*files, *environment[:1], *([path] if environment else [])]
    files += environment
    for i, word in enumerate(words[at + 1 :], at + 1):
        flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if value and (os.path.isfile(value) or ("/" in value and os.path.isdir(value))):
            words[i] = f"{flag}{equals}{os.path.abspath(value)}"
            files.append(os.path.abspath(value))
            content.append(files[-1])
    for each in files:
        _check_visible(each)
    _check_words(words[at:])
    folder = os.path.dirname(path)
    return Program(tuple(words), tuple(dict.fromkeys(files)), folder, _digest_content(content))


def _digest_content(paths: Sequence[str]) -> str:
    """Return a digest of files and folders by their content; their own places do not matter.

    The names of its packages stand for a virtual environment, and sizes for files beyond `MOST_READ` bytes.
    """
    parts: list[object] = []
    room = MOST_READ

    def add(name: str, path: str) -> None:
        nonlocal room
        try:
            parts.extend((name, size := os.path.getsize(path)))
            room -= size
            if room >= 0 and os.path.isfile(path):
                with open(path, "rb") as file:
                    parts.append(file_digest(file, "sha256").hexdigest())
        except OSError as error:  # a broken link, or a file that this user may not read
            parts.append(type(error).__name__)

    for number, path in enumerate(paths):
        if not os.path.isdir(path):
            add(str(number), path)
        for root, folders, files in os.walk(path):
            at = os.path.relpath(root, path)
            if "pyvenv.cfg" in files:
                parts += [at, *sorted(each.name for each in Path(root).glob("lib/*/site-packages/*-info"))]
                folders.clear()
                continue
            folders[:] = sorted({*folders} - {"__pycache__", ".git"})
            for name in sorted(files):
                add(f"{number}/{at}/{name}", os.path.join(root, name))
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _check_words(words: Sequence[str]) -> None:
    """Refuse an unknown word in braces, and a script that is not here, which would fail in every episode."""
    for word in words:
        unknown = _IN_BRACES.fullmatch(word)
        if unknown and unknown[1] not in PLACES:
            hint = did_you_mean(unknown[1], PLACES)
            raise BadArgument(f"the command has {unknown[1]}.{hint} Accepted: {', '.join(PLACES)}.")
    if not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return
    for word in words[1:]:
        if word.startswith("-"):
            if not _FLAG.fullmatch(word):
                return  # as -c and -m, which take code or a module
        else:
            if not os.path.isabs(word) and not os.path.exists(word):  # an absolute one may be in an image
                raise BadArgument(
                    f"the program's script {word!r} is not there; give its path, from this folder or whole."
                )
            return


def _find_command(words: Sequence[str]) -> int:
    """Return the place of the word that names the command, behind ``env`` and its variables."""
    places = (i for i, word in enumerate(words) if word != "env" and "=" not in word.partition("/")[0])
    return next(places, len(words))


def _refuse(word: str) -> NoReturn:
    raise BadArgument(f"the program {word!r} is not installed here; give its path, as /opt/mini/bin/mini.")


def _absolute(path: str) -> str:
    if not os.path.exists(path):
        raise BadArgument(f"the program is to see {path!r}, which is not there.")
    return os.path.abspath(path)


def _environment_of(executable: str) -> list[str]:
    """Return what an executable needs: its virtual environment and the interpreter below, or itself alone."""
    if os.path.dirname(executable) in (*SYSTEM, *Interpreter.this().visible):
        return []
    root = os.path.dirname(os.path.dirname(executable))
    config = Path(root, "pyvenv.cfg")
    if not config.is_file():
        return [executable]
    lines = [line.partition("=") for line in config.read_text().splitlines()]
    prefixes = [os.path.dirname(value.strip()) for name, _, value in lines if name.strip() == "home"]
    prefixes += [os.path.dirname(os.path.dirname(os.path.realpath(f"{root}/bin/python")))]
    parts = [f"{prefix}/{part}" for prefix in prefixes for part in ("bin", "lib", "lib64", "share")]
    return [root, *(part for part in dict.fromkeys(parts) if os.path.isdir(part))]


def _check_visible(path: str) -> None:
    gem, real = Path(__file__).resolve().parents[1], Path(path).resolve()
    for kept, what in ((gem, "gem itself"), (Path.home(), "your home")):
        if kept == real or kept.is_relative_to(real):
            raise BadArgument(f"the program would see {path}, and so {what}; name a smaller folder.")
    if real.is_relative_to(gem):
        raise BadArgument(f"the program would see {path}, a part of gem; copy it elsewhere.")


@dataclass
class Run:
    """One run of a program in the workspace of one episode.

    `serve` serves its listener, at which `key` is its model's key, for as long as the program runs. After
    `time_s` seconds it is ended; those of `delay_s()` do not count, up to as many again. `why` says why it
    was ended, and is empty if it ended itself.
    """

    program: Program
    sandbox: Sandbox
    key: str
    serve: Served
    time_s: float
    why: str = ""
    result: Result | None = None
    delay_s: Callable[[], float] = lambda: 0.0
    _began: float = 0.0
    _running: ProgramSession | None = None
    _timers: list[threading.Timer] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> NoReturn:
        """Refuse to go to another process."""
        raise BadArgument("a program is played in this process: choose --host thread or --host serial.")

    def open_session(self, **parts: Any) -> ProgramSession:
        """Open the session of a workspace; `parts` are its files and image, as `Sandbox.session` takes them.

        Raises:
            SandboxFailed: see `Sandbox.session`.
        """
        return cast("ProgramSession", self.sandbox.session(**parts, port=PORT, budget=BUDGET))

    def work(self, session: ProgramSession, task: str, mcp: bool = False) -> Result:
        """Run the program until it ends or is ended, and return how; the session stays.

        ``~`` in its task, the home of a workspace, is written out: a program has a home of its own.

        Raises:
            SandboxFailed: when the sandbox is broken. NoVerdict: when it was to be ended before it began.
        """
        command = self.program.command(
            task if mcp else _WORKSPACE.sub(lambda match: session.home, task), self.key, mcp
        )
        limits = Budget(wall_s=2 * self.time_s + LATE_S, cpu_s=BUDGET.cpu_s, output_kb=BUDGET.output_kb)
        with session.listener() as listener, self.serve(listener):
            with self._lock:
                self._running = session
            if self.why:
                raise NoVerdict(f"the program was ended before it began: {self.why}.")
            self._began = perf_counter()
            self.stop("time", after_s=self.time_s)
            try:
                self.result = check_result(session.shell(command, limits))
            finally:
                with self._lock:
                    self._running = None
                    for timer in self._timers:
                        timer.cancel()
        return self.result

    def stop(self, why: str, after_s: float = 0.0) -> None:
        """End the program so many seconds from now, if it runs then; from any thread."""
        with self._lock:
            timer = threading.Timer(after_s, self._stop_now, (why,))
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def _stop_now(self, why: str) -> None:
        if why == "time" and not self.why:
            left_s = self.time_s + min(self.delay_s(), self.time_s) - (perf_counter() - self._began)
            if left_s > SHORTEST_S:
                self.stop(why, left_s)
                return
        with self._lock:
            self.why = self.why or why
            if self._running is not None:
                self._running.interrupt()
            else:
                return
        self.stop(why, after_s=1.0)  # where the command had not begun yet, that interrupt met nothing
