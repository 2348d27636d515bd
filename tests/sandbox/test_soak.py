"""Many mixed calls at once leave nothing; what dies in the middle is told, and the next call works."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import has_ended, until

from bench.sandbox import below, soak
from gem.sandbox.base import Budget, SandboxFailed, Status
from gem.sandbox.choice import open_sandbox
from gem.sandbox.selftest import self_test

pytestmark = pytest.mark.filterwarnings("ignore:programs run on the backend")


@pytest.fixture(params=["userns", "landlock"])
def sandbox(request, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # what other tests leave in /tmp is not counted
    if not self_test(request.param).passed:
        pytest.skip(f"not checked on {request.param}: {self_test(request.param).why_not}")
    opened = open_sandbox(request.param, begin=("bare",))
    opened.run("print(1)")
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.parametrize("calls", [600])
def test_a_soak_leaves_nothing(sandbox, calls):
    wrong, counts = soak(sandbox, calls)
    assert wrong == []
    grown = counts["after"].pop("MiB") - counts["before"].pop("MiB")
    assert counts["before"] == counts["after"]
    assert grown < 32


def wearing(tag):
    """The processes of this machine whose name is the tag."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                comm, state = Path(f"/proc/{name}/comm").read_text(), Path(f"/proc/{name}/stat").read_text()
                if comm.strip() == tag and state.rpartition(")")[2].split()[0] not in "ZX":
                    found.append(int(name))
    return found


def sleeper(tag):
    return f"import ctypes, time\nctypes.CDLL(None).prctl(15, {tag!r}.encode(), 0, 0, 0)\ntime.sleep(600)"


@pytest.fixture
def tag():
    return f"gs{secrets.token_hex(5)}"


@pytest.fixture
def in_flight(sandbox, tag):
    """A call in another thread whose program runs; its end will be in the list."""
    tell = []

    def call():
        try:
            tell.append(sandbox.run(sleeper(tag), budget=Budget(wall_s=600)))
        except BaseException as error:
            tell.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    until(lambda: wearing(tag))
    yield tell
    until(lambda: tell)
    thread.join()


def servers():
    """The fork servers below this process, what waits for them and their children, in this order.

    A child that is killed before its fork server is a result. Other tests' other children live on.
    """
    return [pid for pid in below() if serves(pid)]


def serves(pid):
    """Whether a process is a fork server or waits for one, and has not ended."""
    with contextlib.suppress(OSError):
        return b"gem.sandbox.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def its_server(pid):
    """The fork server of a program and what waits for it, even where that has lost its parent."""
    found = []
    with contextlib.suppress(OSError):
        while pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]):
            if b"gem.sandbox.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def kill_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.system
def test_fork_servers_that_are_killed_lose_their_calls_and_say_so(sandbox, in_flight, tag):
    def killed():  # a lost call is tried a second time, so that is killed too
        if wearing(tag) or not in_flight:
            kill_all([*(pid for program in wearing(tag) for pid in its_server(program)), *servers()])
        return bool(in_flight)

    until(killed)
    assert isinstance(in_flight[0], SandboxFailed)
    until(lambda: not wearing(tag))
    assert sandbox.run("print(6 * 7)").stdout == "42\n"


def test_fork_servers_that_all_died_between_two_calls_are_replaced(sandbox):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(sandbox.run, ["import time\ntime.sleep(0.2)"] * 4))
    until(lambda: len(sandbox.pool.every()) >= 2)  # then a second try finds a dead one, too
    killed = servers()
    kill_all(killed)
    until(lambda: all(map(has_ended, killed)))
    assert sandbox.run("print(6 * 7)").stdout == "42\n"


def test_a_child_that_is_killed_from_outside_is_a_result(sandbox, in_flight, tag):
    kill_all(wearing(tag))
    until(lambda: in_flight)
    assert (in_flight[0].status, in_flight[0].signal) == (Status.RE, signal.SIGKILL)


def test_closing_with_calls_in_flight_ends_them(sandbox, in_flight, tag):
    sandbox.close()
    until(lambda: in_flight)
    assert isinstance(in_flight[0], Exception) or in_flight[0].status is not Status.OK
    until(lambda: not wearing(tag))


@pytest.mark.system
def test_a_client_that_is_killed_takes_everything_along(sandbox, tag):
    code = f"""
import warnings
warnings.simplefilter("ignore")
from gem.sandbox.backends import make
make({sandbox.backend!r}, begin=("bare",)).run({sleeper(tag)!r})
"""
    client = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: wearing(tag))
    client.kill()
    client.wait()
    until(lambda: not wearing(tag))
