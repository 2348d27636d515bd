"""Backends that are a command in front of a Python; the container backend has tests of its own."""

import contextlib
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import until

from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.sandbox.base import Budget, Case, Status
from gem.sandbox.piped import UnsafeSandbox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are asked for in POSIX's way")


@pytest.fixture
def sandbox():
    return UnsafeSandbox()


def test_a_program(sandbox):
    done = sandbox.run("import sys; print(input(), sys.argv[1:], open('f').read())", stdin=b"in",
                       args=["a", "b"], files={"f": b"file"})  # fmt: skip
    assert (done.status, done.stdout, done.exit_code) == (Status.OK, "in ['a', 'b'] file\n", 0)
    assert done.info["backend"] == "none"


@pytest.mark.system
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("1 / 0", Status.RE),
        ("x = (", Status.CE),
        ("import sys; sys.exit(3)", Status.RE),
        ("import ctypes; ctypes.string_at(0)", Status.RE),
        ("while True: pass", Status.TLE),
        ("while True: print('x' * 1000)", Status.OLE),
        ("x = bytearray(1 << 40)", Status.MLE),
    ],
)
def test_how_programs_end(sandbox, code, status):
    done = sandbox.run(code, budget=Budget(wall_s=2.0, cpu_s=5.0, output_kb=64))
    assert done.status is status
    assert len(done.stdout) <= 64 << 10


def test_a_session_keeps_its_state(sandbox):
    session = sandbox.session(files={"a": b"1"})
    assert session.execute("x = 20\nx + 1").value == "21"
    assert session.execute("print(x, open('a').read())").stdout == "20 1\n"
    assert session.shell("echo $((6 * 7)); cd /; false").stdout == "42\n"
    assert session.shell("pwd").stdout == "/\n"
    session.write_file("b/c", b"2")
    assert session.read_file("b/c") == b"2"
    with pytest.raises(ToolError):
        session.read_file("../b")
    with pytest.raises(CannotFork):
        session.fork()
    session.close()
    with pytest.raises(EnvClosed):
        session.execute("1")


@pytest.mark.system
def test_a_spent_budget_ends_the_session_and_the_next_cell_says_so(sandbox):
    session = sandbox.session(budget=Budget(wall_s=1.0))
    assert session.execute("x = 1; import time; time.sleep(60)").status is Status.TLE
    again = session.execute("'x' in dir()")
    assert (again.value, again.info["restarted"], session.restarts) == ("False", True, 1)
    assert session.execute("import os; os._exit(9)").status is Status.RE
    session.close()


def test_cells_keep_their_numbers_when_a_session_begins_anew(sandbox):
    with contextlib.closing(sandbox.session()) as session:
        session.execute("import os; os._exit(9)")
        assert "<cell 2>" in session.execute("1 / 0").stderr
        assert session.shell("true # \ud800").ok  # no text of UTF-8
        with pytest.raises(BadArgument, match="cpu_s must be a positive number"):
            session.execute("1", Budget(cpu_s=0))


FORGE = """
import json, os, stat, struct
def forge(head):
    data = json.dumps(head).encode()
    for fd in range(3, 20):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, struct.pack("!I", len(data)) + data + bytes(12))
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "head",
    [
        {},
        {"blobs": []},
        {"blobs": [], "n": 1, "status": "nope"},
        {"blobs": [], "status": "OK", "n": 7},
        {"blobs": [], "status": "OK", "value": 3},
    ],
)
def test_a_reply_that_is_none_ends_the_session(sandbox, head):
    with contextlib.closing(sandbox.session(budget=Budget(wall_s=5.0))) as session:
        forged = session.execute(f"{FORGE}\nforge({head!r})")
        assert (forged.status, forged.info["ended"]) == (Status.RE, True)
        assert session.execute("1").value == "1"


def test_a_command_that_cannot_be_started_is_an_error(sandbox):
    with contextlib.closing(sandbox.session()) as session:
        session.execute("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))")
        done = session.shell("echo 1")
        assert (done.status, done.exit_code) == (Status.RE, 1)
        assert "Too many open files" in done.stderr


@pytest.mark.system
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells that a process is stopped")
def test_a_session_that_stops_reading_does_not_hold_whoever_writes_to_it(sandbox):
    with contextlib.closing(sandbox.session(budget=Budget(wall_s=1.0))) as session:
        code = "import os, subprocess; subprocess.Popen(['sh', '-c', f'sleep 0.1; kill -STOP {os.getpid()}'])"
        stopped = int(session.execute(f"{code}; os.getpid()").value)
        stat = Path(f"/proc/{stopped}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        with pytest.raises(ToolError, match="ended"):
            session.write_file("more", bytes(1 << 20))  # than a pipe holds
        assert session.execute("1").info["restarted"]


def test_judging(sandbox):
    code = """
def f(a, b=1):
    print("noise")
    return [a, (b,)]
class Solution:
    def g(self, a):
        return {1: a}
"""
    cases = [
        Case(call="f", args=(1, 2)),
        Case(call="Solution.g", args=("x",)),
        Case(call="f"),
        Case(code="assert f(3) == [3, (1,)]"),
        Case(code="assert False"),
        Case(call="f", args=(2,)),
    ]
    asked = []
    results = sandbox.judge(code, cases, go_on=lambda i, result: asked.append(i) or i < 4)
    assert [result.value for result in results[:3]] == ["[1, [2]]", '{"1": "x"}', None]
    assert [result.ok for result in results] == [True, True, False, True, False]
    assert asked == [0, 1, 2, 3, 4]
    (only,) = sandbox.judge("def", cases)
    assert only.status is Status.CE
    (echo,) = sandbox.judge("print(input())", [Case(stdin=b"hello")])
    assert echo.stdout == "hello\n"


def test_a_result_that_is_no_plain_data_does_not_pass(sandbox):
    code = "class Yes:\n    def __eq__(self, other): return True\ndef f(): return Yes()"
    (done,) = sandbox.judge(code, [Case(call="f")])
    assert done.status is Status.RE
    assert done.value is None


def test_from_many_threads(sandbox):
    said = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(sandbox.run(f"print({n})").stdout)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["0\n", "1\n", "2\n", "3\n"]


def test_files_stay_below_the_folder(sandbox):
    for path in ("/etc/x", "../x", "a/../../x", "", "a\0b"):
        with pytest.raises(BadArgument):
            sandbox.run("1", files={path: b""})


def test_the_driver_gives_the_runner_all_that_it_wants_of_its_lockdown():
    from gem.sandbox import driver

    sources = {name: Path(driver.__file__).with_name(f"{name}.py").read_text() for name in driver.SOURCES}
    wanted = set(re.findall(r"\blockdown\.(\w+)", "".join(sources.values()))) - {
        "Filter"
    }  # a judge is given none
    code = f"""
import importlib.util, json, pathlib
spec = importlib.util.spec_from_file_location("driver", {driver.__file__!r})
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
print(json.dumps(sorted(vars(driver._load({sources!r}).lockdown))))
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert wanted <= set(json.loads(done.stdout))
