"""Containers on the engines of this machine, which need an image with Python; and engines that misbehave.

The image is ``GEM_SANDBOX_IMAGE`` or python:3.11-slim, and has to be there: nothing is pulled.
"""

import os
import shlex
import signal
import stat
import subprocess
import sys

import pytest
from waiting import until

from gem.errors import EnvClosed
from gem.sandbox import selftest
from gem.sandbox.base import Budget, Case, SandboxFailed, Status
from gem.sandbox.container import ENGINES, IMAGE, ContainerSandbox, Engine, find_engine

SOME_IMAGE = os.environ.get("GEM_SANDBOX_IMAGE") or IMAGE
SMALL = Budget(wall_s=5.0, memory_mb=256, processes=8, disk_mb=16, inodes=256, output_kb=64)


@pytest.fixture(scope="module", params=ENGINES)
def sandbox(request):
    try:
        opened = ContainerSandbox(engine=request.param)
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    yield opened
    opened.close()
    assert containers(opened) == []


def containers(sandbox):
    """The containers, running or not, that this sandbox has left."""
    asked = sandbox.engine.ask("ps", "--all", "--format", "{{.Names}}", "--filter", f"name={sandbox._label}")
    return asked.decode().split()


def test_a_program(sandbox):
    code = "import os, sys; print(input(), sys.argv[1:], open('f').read(), os.getuid(), os.getcwd())"
    done = sandbox.run(code, stdin=b"in", args=["a"], files={"f": b"file"})
    assert (done.status, done.stdout, done.stderr) == (Status.OK, "in ['a'] file 65534 /sandbox\n", "")
    assert done.info["engine"] == sandbox.engine.command
    assert containers(sandbox) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import nothing_of_that_name", Status.RE, "No module named 'nothing_of_that_name'"),
        ("import sys; sys.exit(125)", Status.RE, ""),
        ("import ctypes; ctypes.string_at(0)", Status.RE, ""),
        ("x = (", Status.CE, "SyntaxError"),
        ("while True: pass", Status.TLE, ""),
        ("while True: print('x' * 1000)", Status.OLE, ""),
        ("x = bytearray(1 << 40)", Status.MLE, "MemoryError"),
        ("import os\nwhile os.fork(): pass\nx = bytearray(b'x') * (180 << 20)\nwhile True: pass", None, ""),
        ("open('f', 'wb').write(bytes(60 << 20))", Status.RE, "No space left on device"),
        ("import os\nfor n in range(1, 65):\n    os.kill(1, n)\nprint(6 * 7)", Status.OK, ""),
    ],
)
def test_how_programs_end(sandbox, code, status, words):
    done = sandbox.run(code, budget=Budget(wall_s=1.0, memory_mb=256, processes=6, disk_mb=16, output_kb=64))
    assert status is None or done.status is status
    assert words in done.stderr
    assert len(done.stdout) <= 64 << 10
    assert done.wall_s < 2.0


@pytest.mark.slow
def test_memory_is_that_of_all_processes(sandbox):
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b"x") * (150 << 20)
        time.sleep(60)
held = bytearray(b"x") * (150 << 20)
time.sleep(60)
"""
    assert sandbox.run(code, budget=SMALL).status in (Status.MLE, Status.TLE)
    only = sandbox.run("held = [bytearray(b'x') * (15 << 20) for _ in range(10 ** 6)]", budget=SMALL)
    assert only.status is Status.MLE


def test_a_session(sandbox):
    session = sandbox.session(files={"a": b"1"}, budget=Budget(wall_s=2.0), loopback=True)
    assert session.execute("x = 20\nx + 1").value == "21"
    assert session.shell("cat a; cd /; export B=2").stdout == "1"
    assert session.shell("pwd; echo $B").stdout == "/\n2\n"
    session.write_file("b/c", b"2")
    assert session.read_file("b/c") == b"2"
    served = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    )
    assert session.execute(f"{served}; 'reached'").value == "'reached'"
    session.close()
    assert containers(sandbox) == []
    with pytest.raises(EnvClosed):
        session.execute("1")


@pytest.mark.slow
def test_a_session_that_ends_says_how_and_begins_anew(sandbox):
    session = sandbox.session(budget=Budget(wall_s=1.0))
    image = session.snapshot()
    late = session.execute("while True: pass")
    assert (late.status, late.info["ended"]) == (Status.TLE, True)
    again = session.execute("1")
    assert (again.value, again.info["restarted"], session.restarts) == ("1", True, 1)
    assert session.execute("import os; os._exit(125)").exit_code == 125
    assert session.execute("import os; os.kill(os.getpid(), 15)").signal == 15
    session.close()
    copy = sandbox.session(image=image)
    assert copy.shell("ls").stdout == ""
    copy.close()
    assert containers(sandbox) == []


def test_judging_in_one_container(sandbox):
    code = """
import os
def f(n):
    if n == 3:
        os.kill(os.getppid(), 9)
    for folder in (".", "/tmp", "/dev/shm"):
        open(f"{folder}/left", "x")
    return [n, (1,)]
"""
    begun = next(sandbox._numbers)
    results = sandbox.judge(code, [Case(call="f", args=(n,)) for n in range(5)])
    assert [result.value for result in results] == [f"[{n}, [1]]" for n in range(5)]
    assert next(sandbox._numbers) == begun + 2
    assert containers(sandbox) == []


@pytest.mark.slow
def test_what_judging_finds(sandbox):
    code = """
import time
n = int(input())
if n == 1: time.sleep(60)
if n == 2: held = [bytes(9 << 20) for _ in range(99)]
"""
    cases = [Case(stdin=str(n).encode()) for n in range(4)]
    results = sandbox.judge(code, cases, budget=Budget(wall_s=1.0, memory_mb=256))
    assert [result.status for result in results] == [Status.OK, Status.TLE, Status.MLE, Status.OK]
    (only,) = sandbox.judge("def", cases)
    assert (only.status, "SyntaxError" in only.stderr) == (Status.CE, True)


CLIENT = """
import sys, threading
from gem.sandbox.base import Budget
from gem.sandbox.container import ContainerSandbox
sandbox = ContainerSandbox(engine=sys.argv[1])
print(sandbox._label, flush=True)
session = sandbox.session()
threading.Thread(target=session.execute, args=("while True: pass", Budget(wall_s=600)), daemon=True).start()
threading.Thread(target=sandbox.judge, args=("def f(): return 1", []), daemon=True).start()
print("begun", flush=True)
sandbox.run("import time\\ntime.sleep(600)", budget=Budget(wall_s=600))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_leaves_no_container(sandbox, how):
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, sandbox.engine.command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    label = client.stdout.readline().strip()
    client.stdout.readline()
    asked = ("ps", "--all", "--format", "{{.Names}}", "--filter", f"name={label}")
    until(lambda: len(sandbox.engine.ask(*asked).split()) == 2)
    client.send_signal(how)
    client.wait()
    client.stdout.close()
    until(lambda: not sandbox.engine.ask(*asked).split())


@pytest.mark.slow
def test_the_self_test(sandbox):
    report = selftest._try("container", {"engine": sandbox.engine.command})
    assert report.passed, report.why_not
    assert all(report.properties.values()), report.properties


# -- engines that misbehave

FAKE = """
import json, os, sys
verb = sys.argv[1]
if verb == "version":
    print(json.dumps({{"Server": {{"Version": "99.0"}}}}))
elif verb == "run":
    with open({log!r}, "a") as log:
        log.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
    {run}
"""


@pytest.fixture
def fake(tmp_path):
    """An engine played by a script, whose `run` does what it is told to."""

    def make(run, name="docker"):
        path = tmp_path / name
        program = tmp_path / f"{name}.py"
        program.write_text(FAKE.format(log=str(tmp_path / "log"), run=run))
        # The interpreter's path may hold a space, and be longer than a first line may be.
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(program))} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


@pytest.mark.parametrize(
    "run",
    [
        "sys.exit(print('docker: Error response from daemon: no such image', file=sys.stderr) or 125)",
        "sys.exit(print('no such image', file=sys.stderr) or 1)",
        "sys.exit(print('42', file=sys.stderr, end='no such image') or 0)",
    ],
)
def test_a_container_that_does_not_start_is_no_verdict(fake, run):
    sandbox = ContainerSandbox(engine=fake(run))
    for ask in (
        lambda: sandbox.run("print(1)"),
        sandbox.session,
        lambda: sandbox.judge("1", [Case(stdin=b"")]),
    ):
        with pytest.raises(SandboxFailed, match="no such image"):
            ask()


def test_a_container_whose_end_nobody_tells_is_no_verdict(fake):
    begins = "os.write(1, b'B' + bytes(4)); os.write(2, b'connection lost'); sys.exit(1)"
    sandbox = ContainerSandbox(engine=fake(begins))
    for ask in (lambda: sandbox.run("print(1)"), lambda: sandbox.judge("1", [Case(stdin=b"")])):
        with pytest.raises(SandboxFailed, match="connection lost"):
            ask()


def test_what_a_container_is_started_with(fake, tmp_path, monkeypatch):
    import json

    monkeypatch.setenv("HOME", "/home/somebody")
    with pytest.raises(SandboxFailed):
        ContainerSandbox("image:1", engine=fake("sys.exit(1)"), runtime="runsc").run("1", budget=SMALL)
    line, environment = json.loads((tmp_path / "log").read_text().splitlines()[0])
    for wanted in (
        "--network none",
        "--cap-drop ALL",
        "no-new-privileges",
        "--read-only",
        "--pull never",
        "runsc",
    ):
        assert wanted in " ".join(line)
    assert line[line.index("--pids-limit") + 1] == "10"
    assert environment["HOME"] == "/home/somebody"  # where the engine's own settings are


def test_an_engine_that_does_not_answer_or_lacks_the_image(monkeypatch):
    with pytest.raises(SandboxFailed, match="not-an-engine is not installed"):
        ContainerSandbox(engine="not-an-engine")
    with pytest.raises(SandboxFailed, match="/bin/false version failed"):
        ContainerSandbox(engine="/bin/false")


def test_both_engines_are_asked_and_named(fake, monkeypatch, tmp_path):
    fake("pass", "podman")
    monkeypatch.setenv("PATH", f"{tmp_path}:/nonexistent")
    monkeypatch.setattr("gem.sandbox.container._engine", Engine)
    assert find_engine(image="any").command == "podman"
    (tmp_path / "podman").write_text("#!/bin/sh\necho it is asleep >&2\nexit 1\n")
    with pytest.raises(SandboxFailed, match=r"docker is not installed.*podman version failed: it is asleep"):
        find_engine()


def test_an_image_that_is_not_there(sandbox):
    with pytest.raises(SandboxFailed, match=r"pull nowhere\.invalid/none:1"):
        ContainerSandbox("nowhere.invalid/none:1", engine=sandbox.engine.command)
