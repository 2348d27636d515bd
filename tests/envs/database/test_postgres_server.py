"""A server for a while, as its users start and end it."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gem.envs.database import postgres_server
from gem.errors import MissingExtra
from gem.tools.postgres import Connection

START = [sys.executable, "-m", "gem.envs.database.postgres_server"]


def folder(dsn):
    return Path(dsn.split()[0].removeprefix("host="))


def test_without_the_programs_the_way_to_them_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(postgres_server, "_PLACES", ())
    with pytest.raises(MissingExtra, match="apt install postgresql"):
        postgres_server.programs()


def test_the_server_is_a_users_of_no_rights_behind_a_password(postgres_dsn):
    data = folder(postgres_dsn) / "data"
    assert data.stat().st_uid != 0
    assert folder(postgres_dsn).stat().st_mode & 0o077 == 0
    assert not (folder(postgres_dsn) / "password").exists()
    hba = [line.split() for line in (data / "pg_hba.conf").read_text().splitlines() if line[:1].isalpha()]
    assert {line[-1] for line in hba} == {"scram-sha-256"}
    status = Path("/proc", (data / "postmaster.pid").read_text().split()[0], "status")
    if status.exists():
        (groups,) = (
            line.split()[1:] for line in status.read_text().splitlines() if line.startswith("Groups:")
        )
        assert os.getuid() != 0 or groups == []
    connection = Connection(postgres_dsn)
    assert connection.run("SHOW listen_addresses", 5).rows == [[""]]
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_a_command_has_the_server_as_long_as_it_runs_and_its_code_is_kept(postgres_dsn, code):
    sees = f"import os, sys; print(os.environ['GEM_POSTGRES_DSN']); sys.exit({code})"
    done = subprocess.run([*START, sys.executable, "-c", sees], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.startswith("host=")
    assert not folder(done.stdout).exists()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a server follows its killed parent on Linux alone")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_the_server_ends_too(postgres_dsn, sign):
    with subprocess.Popen(START, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith("export GEM_POSTGRES_DSN='host=")
        home = folder(line.partition("'")[2])
        server = int((home / "data" / "postmaster.pid").read_text().split()[0])
        watch = os.pidfd_open(server)
        process.send_signal(sign)
        process.wait(30)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    ended = poll.poll(30_000)  # readable when the process has ended
    os.close(watch)
    assert ended
    if sign == signal.SIGKILL:  # nobody is left to delete it
        shutil.rmtree(home)
    assert not home.exists()
