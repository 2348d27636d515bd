"""A temporary PostgreSQL server: ``python -m gem.envs.database.postgres_server [COMMAND ...]``.

With a command, it runs the command with GEM_POSTGRES_DSN set, and then ends the server. Without one, it
prints the line that sets the variable, and ends the server at Ctrl-C. The server listens on a socket in its
own folder. Its databases do not survive a crash, and the folder is deleted at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pwd
import re
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gem.envs.database.postgres import VARIABLE
from gem.errors import GemError, MissingExtra, NoVerdict
from gem.tools.postgres import Connection

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_START_S = 60.0
_PROCESS_BYTES = 768 * 2**20
"""The largest private memory of a server process; a statement that needs more gets an error."""

_INITDB = "-U gem -A scram-sha-256 -E UTF8 --locale=C --no-sync".split()  # noqa: SIM905

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}


def programs() -> Path:
    """Return the folder with initdb and postgres: the newest of the usual places, or the one on PATH.

    Raises:
        MissingExtra: if there is none.
    """
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    folders = [folder for place in _PLACES for folder in Path("/").glob(place[1:])]
    for folder in sorted(
        folders, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], reverse=True
    ):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise MissingExtra(
        f"no PostgreSQL server is installed: no initdb on PATH or in {', '.join(_PLACES)}. Install one, for "
        "example with apt install postgresql, or name a running server in the variable GEM_POSTGRES_DSN."
    )


@contextlib.contextmanager
def temporary_server() -> Iterator[str]:
    """Run a server and yield the dsn of its superuser; at the end of the block both are removed.

    If the caller is root, the server runs as the user postgres or nobody.

    Raises:
        MissingExtra: if no server is installed.
        NoVerdict: when it does not start.
    """
    binaries = programs()
    folder = Path(tempfile.mkdtemp(prefix="gem_postgres_", dir="/tmp"))  # a socket's path must be short
    server: subprocess.Popen[bytes] | None = None
    try:
        password = secrets.token_hex(16)
        (folder / "password").write_text(password)
        who = _who(folder, folder / "password")
        _initialise(binaries, folder, who)
        (folder / "password").unlink()
        options = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", folder / "data", "-k", folder, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches this process, which then ends the server
                preexec_fn=_confine(),
                **who,
            )
        dsn = f"host={folder} user=gem password={password} dbname=postgres"
        _await(server, dsn, folder / "log")
        yield dsn
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)  # at once, because no data is kept
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(_START_S)
            server.kill()
            server.wait()
        for _ in range(100):  # its last processes may still be writing
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.05)


def _who(*paths: Path) -> dict[str, Any]:
    """Return the server's user as arguments of Popen, and make that user the owner of `paths`."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            for path in paths:
                os.chown(path, entry.pw_uid, entry.pw_gid)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}  # none of root's
    raise MissingExtra(
        "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as."
    )


def _initialise(binaries: Path, folder: Path, who: dict[str, Any]) -> None:
    done = subprocess.run(
        [binaries / "initdb", "-D", folder / "data", *_INITDB, f"--pwfile={folder / 'password'}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        **who,
    )
    if done.returncode:
        raise NoVerdict(f"initdb failed: {(done.stderr or done.stdout).strip()[-1000:]}")


def _await(server: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            return Connection(dsn).close()
        except NoVerdict as error:
            if server.poll() is not None or time.monotonic() > until:
                end_of_log = log.read_text(errors="replace").strip()[-1000:]
                raise NoVerdict(f"PostgreSQL did not start: {end_of_log or error}") from error
            time.sleep(0.02)


def _confine() -> Callable[[], None] | None:
    """Return a function that limits the server's processes and ends them with this one; Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded here: the other user may be unable to read Python's files

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (_PROCESS_BYTES, _PROCESS_BYTES))
        prctl(1, int(signal.SIGQUIT), 0, 0, 0)  # 1: PR_SET_PDEATHSIG

    return confine


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server for a command, or until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m gem.envs.database.postgres_server", description=__doc__)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command to run while the server is up")
    command = parser.parse_args(argv).command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with temporary_server() as dsn:
            if command:
                return subprocess.run(command, env={**os.environ, VARIABLE: dsn}).returncode
            sys.stdout.write(f"export {VARIABLE}='{dsn}'\n")
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        return 130 if command else 0
    except (GemError, OSError) as error:
        sys.stderr.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
