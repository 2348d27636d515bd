"""Programs in fresh children: what they get, what they cannot reach, and how their end is told."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from gem.errors import BadArgument
from gem.sandbox.base import Budget, Case, Status
from gem.sandbox.client import ZygoteSandbox


@pytest.mark.parametrize(
    "code",
    [
        "import io, sys\nout = sys.stdout\nsys.stdout = io.StringIO()\nout.write('4')",
        "out = open(1, 'w', closefd=False)\nout.write('4')",
        "import os\nclass Fast:\n  out = os.fdopen(1, 'wb', 65536)\nFast.out.write(b'4')",
        "class Last:\n  def __del__(self): print(4)\nlast = Last()",
        "import sys\nclass Odd(dict): pass\nout = open(1, 'w', closefd=False)\nout.write('4')\nsys.exit(0)",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint(4)",
        "import sys\nprint(4, flush=True)\nclass Odd:\n  closed = True\n  __hash__ = None\nsys.stdout = Odd",
        "import os\nprint(4 if os.path.basename(__file__) == 'main.py' else __file__)",
        "\ufeffprint(4)",
        "import ctypes\nctypes.CDLL(None).puts(b'4')",
        "import os, sys\nclass Fast:\n  def write(self, text): self.text = text.encode()\n"
        "  def flush(self): os.write(1, self.text); self.text = b''\n"
        "sys.stdout = Fast()\nsys.stdout.write('4')",
    ],
)
def test_what_a_program_leaves_to_the_end_of_the_interpreter_is_done(sandbox, code):
    result = sandbox.run(code)
    assert (result.status, result.stdout.strip(), result.stderr) == (Status.OK, "4", "")


@pytest.mark.parametrize("main", ["None", "5", "type('M', (), {'__dict__': property(lambda s: 1 / 0)})()"])
def test_a_program_may_put_anything_in_the_place_of_its_module(sandbox, main):
    result = sandbox.run(f"import sys\nprint(1)\nsys.modules['__main__'] = {main}")
    assert (result.status, result.stdout, result.stderr) == (Status.OK, "1\n", "")


@pytest.mark.parametrize("path", ["\ud800", "x" * 256, "\u00e9" * 128, "/".join(["d"] * 2000)])
def test_a_name_that_no_file_can_have_is_not_blamed_on_the_program(sandbox, path):
    with pytest.raises(BadArgument, match="no name that a file can have"):
        sandbox.run("pass", files={path: b""})


def test_the_standard_streams_have_their_modes_and_names(sandbox):
    code = (
        "import sys\n"
        "for s in sys.stdin, sys.stdout, sys.stderr: print(s.mode, s.name, s.buffer.name, s.fileno())"
    )
    expected = "r <stdin> <stdin> 0\nw <stdout> <stdout> 1\nw <stderr> <stderr> 2\n"
    assert sandbox.run(code).stdout == sandbox.judge(code, [Case(stdin=b"")])[0].stdout == expected


def test_modules_in_the_working_folder_can_be_imported(sandbox):
    code = "open('second.py', 'w').write('y = 3')\nimport second, first\nprint(first.x + second.y, end='')"
    files = {"first.py": b"x = 4"}
    assert sandbox.run(code, files=files).stdout == "7"
    assert sandbox.judge(code, [Case(stdin=b"")], files=files)[0].stdout == "7"
    with sandbox.session(files=files) as session:
        assert session.execute(code).stdout == "7"


@pytest.mark.parametrize("use", ["shell", "judge"])
def test_no_module_of_the_working_folder_runs_where_no_program_does(sandbox, use):
    """What packs a session's files, and a tester, must not be a program's."""
    forged = b"import os\nos.write(2, b'mine')\nraise SystemExit"
    files = dict.fromkeys(("tarfile.py", "shutil.py", "fractions.py"), forged)
    if use == "shell":
        with sandbox.session(files=files) as session:
            assert session.shell("true").ok
            assert b"tarfile.py" in session.snapshot()
    else:
        tester = "def serve(space, fd): pass\ndef test(fd):\n  import fractions\n  return 7"
        assert sandbox.judge("", [Case(tester=tester)], files=files)[0].value == "7"


def test_a_program_gets_its_input_arguments_and_files(sandbox):
    code = "import sys; print(sys.stdin.read(), sys.argv[1:], open('a/b.txt').read(), __name__)"
    result = sandbox.run(code, stdin=b"in", args=("x", "y"), files={"a/b.txt": b"file"})
    assert (result.status, result.stdout) == (Status.OK, "in ['x', 'y'] file __main__\n")
    assert result.info["backend"] == "userns"


@pytest.mark.parametrize(
    ("code", "status", "exit_code", "signal"),
    [
        ("import sys; sys.exit()", Status.OK, 0, None),
        ("raise SystemExit(7)", Status.RE, 7, None),
        ("raise SystemExit(1 << 70)", Status.RE, 255, None),
        ("1/0", Status.RE, 1, None),
        ("import os; os._exit(9)", Status.RE, 9, None),
        ("import ctypes; ctypes.string_at(0)", Status.RE, None, 11),
        ("x = (", Status.CE, 1, None),
        ("x = 1\0", Status.CE, 1, None),
        ("'\ud800'", Status.CE, 1, None),
        ("x = 'a' * 10**11", Status.MLE, 1, None),
        ("raise SyntaxError('mine')", Status.RE, 1, None),
        ("import sys; print('SyntaxError', file=sys.stderr); sys.exit(3)", Status.RE, 3, None),
    ],
)
def test_how_a_program_ended_is_told(sandbox, code, status, exit_code, signal):
    result = sandbox.run(code)
    assert (result.status, result.exit_code, result.signal) == (status, exit_code, signal)


def test_a_traceback_shows_the_program_and_nothing_of_the_sandbox(sandbox):
    stderr = sandbox.run("def f():\n    return 1 / 0\nf()").stderr
    assert "return 1 / 0" in stderr
    assert stderr.count("File ") == 2
    assert "gem" not in stderr


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)"])
def test_a_spent_wall_budget_ends_a_program(sandbox, code):
    result = sandbox.run(code, budget=Budget(wall_s=0.3))
    assert (result.status, result.info["why"]) == (Status.TLE, "wall")


def test_a_spent_cpu_budget_ends_a_program_and_its_children_together(sandbox):
    code = "import os\nos.fork(); os.fork()\nwhile True: pass"
    result = sandbox.run(code, budget=Budget(cpu_s=0.5, wall_s=60))
    assert (result.status, result.info["why"]) == (Status.TLE, "cpu")


def test_a_flood_of_output_is_cut_and_ends_the_program(sandbox):
    result = sandbox.run("while True: print('x' * 1000)", budget=Budget(output_kb=16))
    assert (result.status, result.cut, len(result.stdout)) == (Status.OLE, True, 16 << 10)


def test_memory_counts_over_all_processes(sandbox):
    code = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        held = bytearray(b'x') * (40 << 20)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)"
    )
    result = sandbox.run(code, budget=Budget(memory_mb=100, wall_s=60))
    assert (result.status, result.info["why"]) == (Status.MLE, "memory")


def test_disk_files_and_processes_are_bounded(sandbox):
    disk = "open('a', 'wb').write(bytes(3 << 20)); open('/tmp/b', 'wb').write(bytes(3 << 20))"
    assert "No space left" in sandbox.run(disk, budget=Budget(disk_mb=5)).stderr
    files = "for i in range(200): open(str(i), 'w').close()"
    assert "No space left" in sandbox.run(files, budget=Budget(inodes=100)).stderr
    forks = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(60)"
    assert "BlockingIOError" in sandbox.run(forks, budget=Budget(processes=8)).stderr


def test_a_child_is_an_ordinary_user_alone_in_its_namespaces(sandbox):
    code = (
        "import os\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(os.getpid(), os.getuid(), sorted(n for n in os.listdir('/proc') if n.isdigit()))\n"
        "print(*(status[k].strip() for k in ('CapEff', 'NoNewPrivs', 'Seccomp')))"
    )
    assert sandbox.run(code).stdout == "1 1000 ['1']\n0000000000000000 1 2\n"


def test_nothing_of_the_host_is_in_sight(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CANARY", "canary")
    (tmp_path / "secret").write_text("canary")
    home = os.path.expanduser("~")
    code = (
        "import os, pathlib\n"
        "seen = os.path.exists\n"
        f"print(seen({str(tmp_path)!r}), seen({__file__!r}), seen('/etc/shadow'), seen({home!r} + '/.ssh'))\n"
        "print('canary' in str(os.environ), b'canary' in pathlib.Path('/proc/1/environ').read_bytes())"
    )
    assert sandbox.run(code).stdout == "False False False False\nFalse False\n"


@pytest.mark.parametrize(
    "code",
    [
        "open('/usr/x', 'w')",
        "open('/x', 'w')",
        "open('/dev/x', 'w')",
        "import socket; socket.socket()",
        "import os; os.unshare(0x10000000) if hasattr(os, 'unshare') else open('/proc/sys/x', 'w')",
        "import ctypes; assert ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0",
        "import os; os.kill(2, 9)",
    ],
)
def test_what_reaches_out_is_refused(sandbox, code):
    assert sandbox.run(code).status is Status.RE


def test_one_call_leaves_nothing_for_the_next(sandbox, interpreter_in_tmp):
    leave = (
        "import os, time\n"
        "for path in ('a', '/tmp/a', '/dev/shm/a'): open(path, 'w').close()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    time.sleep(600)"
    )
    assert sandbox.run(leave).ok
    look = (
        "from os import listdir\n"
        "print(listdir(), listdir('/tmp'), listdir('/dev/shm'), len(listdir('/proc/self/fd')))"
    )
    assert sandbox.run(look).stdout == f"[] {interpreter_in_tmp} [] 4\n"


def test_children_draw_different_numbers(sandbox):
    code = "import random; print(random.random())"
    assert sandbox.run(code).stdout != sandbox.run(code).stdout


def test_threads_asyncio_and_multiprocessing_work_inside(sandbox):
    code = (
        "import asyncio, multiprocessing, threading\n"
        "async def f(): return 1\n"
        "def g(x): return x * x\n"
        "thread = threading.Thread(target=print, args=(asyncio.run(f()),)); thread.start(); thread.join()\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(g, [2, 3]))"
    )
    assert sandbox.run(code).stdout == "1\n[4, 9]\n"


def test_code_of_any_length_and_output_of_any_bytes(sandbox):
    assert sandbox.run("#" + "a" * (2 << 20) + "\nprint(1)").stdout == "1\n"
    assert sandbox.run(r"import sys; sys.stdout.buffer.write(b'\xff')").stdout == "\ufffd"


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", ""])
def test_a_file_outside_the_folder_is_refused(sandbox, path):
    with pytest.raises(BadArgument, match="below the working folder"):
        sandbox.run("pass", files={path: b""})


@pytest.mark.parametrize(
    ("files", "budget", "words"),
    [
        ({"a": bytes(2 << 20)}, Budget(disk_mb=2), "disk_mb allows 2,097,152"),
        ({"a": bytes(2 << 20), "b": bytes(1)}, Budget(file_mb=1), "'a' has 2,097,152 bytes"),
        ({f"d{i}/f": b"" for i in range(50)}, Budget(inodes=100), "112 files and folders"),
        ({"a": b"", "a/b": b""}, Budget(), "'a' is both"),
        ({"a/b": b"", "a": b""}, Budget(), "'a' is both"),
    ],
)
def test_files_that_do_not_fit_are_the_callers_mistake(sandbox, files, budget, words):
    for call in (
        lambda: sandbox.run("pass", files=files, budget=budget),
        lambda: sandbox.judge("pass", [Case(stdin=b"")], files=files, budget=budget),
        lambda: sandbox.session(files=files, budget=budget),
    ):
        with pytest.raises(BadArgument, match=words):
            call()


def test_files_that_just_fit_do(sandbox):
    files, budget = {f"d/{i}": bytes(1) for i in range(87)}, Budget(disk_mb=1, inodes=100)
    assert sandbox.judge("print(1)", [Case(stdin=b"")] * 3, files=files, budget=budget)[-1].ok
    files = {"a": bytes((1 << 20) - (64 << 10))}
    assert sandbox.judge("print(1)", [Case(stdin=b"")] * 3, files=files, budget=budget)[-1].ok


def test_a_budget_that_is_not_positive_is_refused(sandbox):
    odd = [0, -1, float("nan"), float("inf"), 1e300, "5", None, True]
    for name, values in {
        "wall_s": odd,
        "cpu_s": odd,
        "memory_mb": [*odd, 1.5],
        "inodes": [1.0, 1 << 80],
    }.items():
        for value in values:
            with pytest.raises(BadArgument, match=f"{name} must be a positive"):
                sandbox.run("pass", budget=Budget(**{name: value}))


def test_many_threads_get_each_their_own_answer(sandbox):
    answers: dict[int, str] = {}

    def ask(i: int) -> None:
        answers[i] = sandbox.run(f"print({i})").stdout

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: f"{i}\n" for i in range(24)}


def test_an_interrupt_is_an_exception_also_where_the_host_ignores_it(sandbox):
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ZygoteSandbox(sandbox.settings, begin=("bare",)) as started:
            code = (
                "import signal\ntry: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print(1)"
            )
            assert started.run(code).stdout == "1\n"
    finally:
        signal.signal(signal.SIGINT, kept)
