"""Judging: compile once, a fork per case, nothing expected inside."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace

import pytest

from gem.errors import BadArgument
from gem.sandbox import image, open_sandbox
from gem.sandbox.base import Budget, Case, SandboxFailed, Status
from gem.sandbox.client import ZygoteSandbox
from gem.sandbox.judge import AHEAD
from gem.sandbox.program import list_descendants


def statuses(results):
    return [result.status for result in results]


def test_standard_input_cases_have_real_streams(sandbox):
    code = (
        "import sys\na = sys.stdin.buffer.readline(); b = sys.stdin.buffer.readline()\nprint(int(a) + int(b))"
    )
    results = sandbox.judge(code, [Case(stdin=b"1\n2\n"), Case(stdin=b"3\n4\n")])
    assert [result.stdout for result in results] == ["3\n", "7\n"]


def test_calls_return_plain_data(sandbox):
    code = (
        "class Solution:\n    def f(self, a, b):\n        return (a, {1: b}, 1.5, True, None)\n"
        "def g(): return {1}"
    )
    first, second, third = sandbox.judge(
        code, [Case(call="Solution.f", args=([1], "x")), Case(call="g"), Case(call="absent")]
    )
    assert json.loads(first.value) == [[1], {"1": "x"}, 1.5, True, None]
    assert (second.status, third.status) == (Status.RE, Status.RE)
    assert "no plain data" in second.stderr
    assert "absent" in third.stderr


@pytest.mark.parametrize(
    "code",
    [
        "class Yes:\n    def __eq__(self, other): return True\ndef f(): return [Yes()]",
        "import os\ndef f(): os._exit(0)",
        "import sys\ndef f(): sys.exit(0)",
        "a = []; a.append(a)\ndef f(): return a",
    ],
)
def test_what_only_pretends_to_be_a_result_is_none(sandbox, code):
    (result,) = sandbox.judge(code, [Case(call="f")])
    assert (result.status, result.value) == (Status.RE, None)


def test_an_instance_of_a_subclass_is_the_plain_value_that_it_holds(sandbox):
    liar = "class Yes({0}):\n    def __eq__(self, other): return True\n    __int__ = __str__ = __float__ = "
    for base, value, plain in (("int", "3", "3"), ("float", "2.5", "2.5"), ("str", "'a'", '"a"')):
        code = f"{liar.format(base)}__iter__ = lambda self: 7\ndef f(): return Yes({value})"
        (result,) = sandbox.judge(code, [Case(call="f")])
        assert (result.status, result.value) == (Status.OK, plain)


def test_a_code_case_counts_only_where_its_end_is_reached(sandbox):
    tests = [Case(code="assert f() == 1"), Case(code="assert f() == 2")]
    assert statuses(sandbox.judge("def f(): return 1", tests)) == [Status.OK, Status.RE]
    for way_out in ("import sys; sys.exit(0)", "import os; os._exit(0)"):
        assert statuses(sandbox.judge(way_out, tests[:1])) == [Status.RE]


def test_a_submission_that_does_not_compile_gives_one_result(sandbox):
    (result,) = sandbox.judge("def f(:", [Case(stdin=b""), Case(stdin=b"")])
    assert result.status is Status.CE
    assert "SyntaxError" in result.stderr


def test_no_stops_the_judging_and_the_question_may_use_the_sandbox(sandbox):
    asked = []

    def go_on(i, result):
        asked.append((i, result.stdout, sandbox.run("print(1)").ok))
        return i < 1

    results = sandbox.judge("print(input())", [Case(stdin=str(i).encode()) for i in range(5)], go_on=go_on)
    assert len(results) == 2
    assert asked == [(0, "0\n", True), (1, "1\n", True)]


def test_every_case_has_its_own_verdict(sandbox):
    code = (
        "import sys\n"
        "what = input()\n"
        "if what == 'loop':\n    while True: pass\n"
        "if what == 'sleep': __import__('time').sleep(60)\n"
        "if what == 'flood':\n    while True: print('x' * 1000)\n"
        "if what == 'memory': x = 'a' * 10**11\n"
        "if what == 'crash': __import__('ctypes').string_at(0)\n"
    )
    whats = ("ok", "loop", "sleep", "flood", "memory", "crash", "ok")
    budget = Budget(cpu_s=0.3, wall_s=1.0, output_kb=16)
    results = sandbox.judge(code, [Case(stdin=what.encode()) for what in whats], budget=budget)
    assert [str(result.status) for result in results] == ["OK", "TLE", "TLE", "OLE", "MLE", "RE", "OK"]


def test_cases_leave_each_other_nothing(sandbox, interpreter_in_tmp):
    code = (
        "import os, time\n"
        "running = [name for name in os.listdir('/proc') if name.isdigit()]\n"
        "print(os.listdir(), os.listdir('/tmp'), running)\n"
        "open('left', 'w').close(); open('/tmp/left', 'w').close(); os.mkdir('deep'); os.chmod('deep', 0)\n"
        "if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n"
    )
    results = sandbox.judge(code, [Case(stdin=b"")] * 3, files={"given": b""})
    assert [result.stdout for result in results] == [f"['given'] {interpreter_in_tmp} ['1']\n"] * 3


def test_a_submission_finds_neither_the_wire_nor_the_process_that_judges_it(sandbox):
    code = (
        "import os\n"
        "print(sorted(map(int, os.listdir('/proc/self/fd')))[:3], os.getppid(), os.getpgrp(), os.getsid(0))\n"
        "print([name for name in os.listdir('/proc') if name.isdigit()], os.getpid())\n"
        "for pid in (0, 1, -1):\n"
        "    try: os.kill(pid, 9)\n"
        "    except OSError: pass\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, b'lie')\n"
        "    except OSError: pass\n"
    )
    first, second = sandbox.judge(code, [Case(stdin=b"")] * 2)
    assert first.stdout == second.stdout == "[0, 1, 2] 0 1 1\n['1'] 1\n"
    lie = code + "def f(): return 1\n"
    assert [r.status for r in sandbox.judge(lie, [Case(call="f")] * 2)] == [Status.RE] * 2


def test_the_types_in_the_head_of_a_function_need_no_import(sandbox):
    head = "class Solution:\n    def f(self, x: List[int]) -> Optional[Dict[str, Any]]: return x\n"
    assert sandbox.judge(head, [Case(call="Solution.f", args=([1],))])[0].value == "[1]"
    own = "from __future__ import annotations\nclass List: pass\ndef f(): return List.__module__\n"
    assert sandbox.judge(own, [Case(call="f")])[0].value == '"submission"'
    assert sandbox.judge("print(List)", [Case(stdin=b"")])[0].status is Status.RE


def test_a_case_that_is_not_one_thing_is_refused(sandbox):
    for case in (Case(), Case(stdin=b"", call="f"), Case(call="f", args=(object(),))):
        with pytest.raises(BadArgument):
            sandbox.judge("pass", [case])
    assert sandbox.judge("pass", []) == []


JUNK = """
import os
def f():
    for fd in range(3, 64):
        try: os.write(fd, {junk!r})
        except OSError: pass
    os._exit(0)
"""


@pytest.mark.parametrize("junk", [b"\xff\xfe", '"42"'.encode("utf-16"), b'"\xed\xa0\x80"', b"[" * 100_000])
def test_a_result_that_is_no_text_is_a_failure(sandbox, junk):
    (result,) = sandbox.judge(JUNK.format(junk=junk), [Case(call="f")])
    assert (result.status, result.value) == (Status.RE, None)


SIGNALS = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
for number in range(1, 65):
    for pid in (0, 1, os.getppid()):
        try: os.kill(pid, number)
        except OSError: pass
print(input())
"""


def test_signals_to_the_judge_do_nothing(sandbox):
    results = sandbox.judge(SIGNALS, [Case(stdin=b"7"), Case(stdin=b"8")])
    assert [(result.status, result.stdout) for result in results] == [("OK", "7\n"), ("OK", "8\n")]


def test_an_interrupt_is_still_an_exception_in_a_case(sandbox):
    code = "import signal\ntry: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print(1)"
    assert sandbox.judge(code, [Case(stdin=b"")])[0].stdout == "1\n"


def test_a_long_line_that_does_not_compile(sandbox):
    code = f"x = {'9' * 300_000} 1"
    assert sandbox.run(code).status is Status.CE
    assert sandbox.judge(code, [Case(stdin=b"")])[0].status is Status.CE


def test_an_interpreter_below_tmp_stays_in_sight_and_is_not_taken_for_what_a_case_left(
    sandbox, tmp_path, monkeypatch, interpreter_in_tmp
):
    tmp_path.chmod(0o755)
    (tmp_path / "kept").write_text("there")
    real = image.Interpreter.this()
    shown = (*real.visible, str(tmp_path))
    monkeypatch.setattr(image.Interpreter, "this", lambda: replace(real, visible=shown))
    code = f"""
import os
def f(folder):
    try:
        open({str(tmp_path)!r} + "/mine", "w")
    except OSError:
        open(folder + "/mine", "w")
        return os.getpid(), open({str(tmp_path)!r} + "/kept").read(), len(os.listdir(folder))
"""
    with ZygoteSandbox(begin=("bare",)) as opened:
        results = opened.judge(code, [Case(call="f", args=("/tmp",)) for _ in range(3)])
        found = [json.loads(result.value) for result in results]
        assert [tuple(seen) for seen in found] == [(1, "there", 2 + len(interpreter_in_tmp))] * 3


def count_processes(sandbox):
    servers = sandbox.pool.zygotes["bare"]
    return sum(len(list_descendants(server.process.pid)) for server in servers)


def wait_for_count(sandbox, count):
    deadline = time.monotonic() + 60
    while count_processes(sandbox) > count:
        assert time.monotonic() < deadline


def test_few_children_are_made_ahead_and_none_is_left(sandbox):
    """Beside the judge and its template at most AHEAD children wait, and only while there are cases."""
    sandbox.judge("pass", [Case(stdin=b"")])
    before = count_processes(sandbox)
    during: list[int] = []
    sandbox.judge(
        "pass", [Case(stdin=b"")] * 8, go_on=lambda *_: during.append(count_processes(sandbox)) is None
    )
    assert len(during) == 8
    assert max(during) <= before + 2 + AHEAD
    wait_for_count(sandbox, before)


def test_children_that_were_made_ahead_end_with_the_judging(sandbox):
    before = count_processes(sandbox)
    (only,) = sandbox.judge("print(1)", [Case(stdin=b"")] * 8, go_on=lambda *_: False)
    assert only.ok
    wait_for_count(sandbox, before)


def test_an_input_that_does_not_fit_is_no_verdict(sandbox):
    with pytest.raises(SandboxFailed, match="the input does not fit"):
        sandbox.judge("pass", [Case(stdin=b"x" * (3 << 20))], budget=Budget(disk_mb=1))


@pytest.mark.system
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots"])
@pytest.mark.parametrize("way", ["ignored", "orphan"])
def test_cpu_time_of_children_that_nobody_waits_for_counts(backend, way):
    code = (
        "import os, signal, time\n"
        "if WAY == 'ignored': signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for _ in range(8):\n"
        "    read, write = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        if WAY == 'orphan' and os.fork(): os._exit(0)\n"
        "        while time.process_time() < 0.4: pass\n"
        "        os._exit(0)\n"
        "    os.close(write)\n"
        "    os.read(read, 1)\n"
        "print('done')\n"
    ).replace("WAY", repr(way))
    budget = Budget(cpu_s=1.5, wall_s=60)
    try:
        opened = open_sandbox(backend)
    except SandboxFailed as error:
        pytest.skip(str(error))
    with contextlib.closing(opened):
        results = [opened.run(code, budget=budget), *opened.judge(code, [Case(stdin=b"")], budget=budget)]
    assert [(result.status, result.stdout) for result in results] == [(Status.TLE, "")] * 2
