"""The container backend: Docker or Podman, a container per run, session or submission."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import secrets
import shutil
import subprocess
from typing import Any

from gem.sandbox.base import Budget, SandboxFailed
from gem.sandbox.driver import BOOT
from gem.sandbox.piped import PipedSandbox

ENGINES = ("docker", "podman")
IMAGE = "python:3.11-slim"
ASK_S = 30.0
_DRIVER_MB = 32  # what the driver itself needs of a container's memory
_HOME, _TEMPORARY = "/sandbox", "/tmp"
_NO_IMAGE = re.compile("no such (image|object)|image not known", re.IGNORECASE)  # and not a missing socket
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")


class Engine:
    """The command of a container engine that answers.

    It runs in the user's environment, which holds its settings; nothing of that environment enters a
    container.

    Raises:
        SandboxFailed: when it is not installed, or does not answer.
    """

    def __init__(self, command: str) -> None:
        if shutil.which(command) is None:
            raise SandboxFailed(f"{command} is not installed.")
        self.command = command
        about = json.loads(self.ask("version", "--format", "{{json .}}"))
        self.podman = "podman" in os.path.basename(command) or "Server" not in about
        details = about.get("Server") or about.get("Client") or {}
        self.version = str(details.get("Version") or "")

    def ask(self, *args: str, timeout_s: float = ASK_S, stdin: bytes | None = None) -> bytes:
        """Run a command of the engine and return its output. Raises SandboxFailed."""
        try:
            done = subprocess.run(
                [self.command, *args],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxFailed(f"{self.command} does not answer: {error}") from error
        if done.returncode:
            words = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-1000:]
            raise SandboxFailed(f"{self.command} {args[0]} failed: {words or done.returncode}")
        return done.stdout

    def has_image(self, image: str) -> bool:
        """Whether the image is on this machine. Raises SandboxFailed when the engine does not answer."""
        try:
            self.ask("image", "inspect", "--format", "{{.Id}}", image)
        except SandboxFailed as error:
            if _NO_IMAGE.search(str(error)):
                return False
            raise
        return True

    def list_barriers(self) -> list[str]:
        """Return the options of every container, which remove its network and its privileges."""
        return [
            *("--pull", "never", "--security-opt", "no-new-privileges", "--ipc", "private"),
            *(["--http-proxy=false"] if self.podman else []),  # and what Docker's settings add:
            *(f"--env={name}=" for name in (*_PROXIES, *map(str.upper, _PROXIES)) if not self.podman),
        ]


def find_engine(command: str | None = None, image: str | None = None) -> Engine:
    """Return the engine of this name, or the first of docker and podman that answers and has the image.

    The default name is ``GEM_SANDBOX_ENGINE``.

    Raises:
        SandboxFailed: if there is none; the message gives the reason for each.
    """
    why = []
    command = command or os.environ.get("GEM_SANDBOX_ENGINE")
    for name in (command,) if command else ENGINES:
        try:
            engine = _engine(name)
            if image is None or engine.has_image(image):
                return engine
            why.append(f"{name} has no image {image!r}: `{name} pull {image}`, or name another one")
        except SandboxFailed as error:
            why.append(str(error))
    raise SandboxFailed(f"no container engine can be used: {'; '.join(why)}")


@functools.cache
def _engine(command: str) -> Engine:
    return Engine(command)


class ContainerSandbox(PipedSandbox):
    """Docker or Podman: a container per run, session or submission.

    A container has no network, no capabilities and no writable root. Files are kept in memory and count as
    memory. `Budget.disk_mb` is divided: five eighths for the working folder, two for /tmp, one for /dev/shm.
    Podman does not limit the number of files.

    Args:
        image: an image with Python 3.11 or newer; by default ``GEM_SANDBOX_IMAGE``, or else python:3.11-slim.
            It must be on this machine: nothing is pulled.
        engine: the command; by default ``GEM_SANDBOX_ENGINE``, or else docker, or else podman.
        runtime: the engine's ``--runtime``, such as runsc for gVisor.
        python: the interpreter's name in the image.

    Raises:
        SandboxFailed: when there is no such engine, it does not answer, or it has no such image.
    """

    backend = "container"
    watched = True  # as the first process of its namespace the driver cannot be killed, and hides its memory

    def __init__(
        self,
        image: str | None = None,
        *,
        engine: str | None = None,
        runtime: str | None = None,
        python: str = "python3",
    ) -> None:
        super().__init__()
        self.image = image or os.environ.get("GEM_SANDBOX_IMAGE") or IMAGE
        self.engine = find_engine(engine, self.image)
        self.runtime, self.python = runtime, python
        self._numbers = itertools.count(1)
        self._label = f"gem-sandbox-{os.getpid()}-{secrets.token_hex(6)}"
        engine_info = {"engine": self.engine.command, "image": self.image}
        self.info |= engine_info | ({"runtime": runtime} if runtime else {})

    def command(self, home: str, budget: Budget) -> tuple[list[str], str, str]:
        """Return the ``docker run`` command without network, capabilities or a writable root."""
        memory = f"{budget.memory_mb + budget.disk_mb + _DRIVER_MB}m"
        home, temporary, shared = (f"size={(budget.disk_mb << 10) * part // 8}k" for part in (5, 2, 1))
        writable = "rw,nosuid,nodev,exec,mode=1777"
        if not self.engine.podman:
            writable += f",nr_inodes={budget.inodes // 2}"
        return (
            [
                *(self.engine.command, "run", "--rm", "--interactive"),
                *("--name", f"{self._label}-{next(self._numbers)}", "--label", "gem-sandbox"),
                *(["--runtime", self.runtime] if self.runtime else []),
                *self.engine.list_barriers(),
                *(["--read-only-tmpfs=false"] if self.engine.podman else []),
                *("--network", "none", "--cap-drop", "ALL", "--user", "65534:65534", "--workdir", "/"),
                *("--read-only", "--shm-size", shared.removeprefix("size=")),
                *("--tmpfs", f"{_HOME}:{writable},{home}", "--tmpfs", f"{_TEMPORARY}:{writable},{temporary}"),
                *("--memory", memory, "--memory-swap", memory, "--pids-limit", str(budget.processes + 2)),
                *("--entrypoint", self.python, self.image, "-I", "-c", BOOT),
            ],
            _HOME,
            _TEMPORARY,
        )

    def environment(self, home: str) -> dict[str, str]:
        """Return the caller's environment, by which the engine finds its settings and images."""
        return dict(os.environ)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Remove the container."""
        assert isinstance(process.args, list)
        name: Any = process.args[process.args.index("--name") + 1]
        with contextlib.suppress(SandboxFailed):  # it is gone, or the engine is
            self.engine.ask("rm", "--force", str(name))
