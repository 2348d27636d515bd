"""The same submission has the same verdict on every backend, and an honest one that of plain Python."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import subprocess
import sys
from random import Random

import pytest
from code_programs import (
    BACKENDS,
    CARRIED,
    CAUGHT,
    HONEST,
    HOSTILE,
    Program,
    humaneval,
    opened,
    plain_python,
    plain_verdict,
)

from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget, Case, Status
from gem.sandbox.choice import open_sandbox
from gem.testing.audit_code import MISTAKES, _mutants

TIGHT = Budget(cpu_s=1.0, wall_s=20.0, memory_mb=512, output_kb=64)
pytestmark = pytest.mark.filterwarnings("ignore:programs run on the backend")


@pytest.fixture(params=BACKENDS)
def sandbox(request):
    found, why_not = opened(request.param)
    if found is None:
        pytest.skip(why_not)
    return found


def verdict(sandbox, program, budget=TIGHT):
    tests = read_tests(program.raw, program.row)
    info = CodeGrader(sandbox, budget=budget).judge(program.code, tests).info
    assert info.get("isolated", True)
    return info["verdict"]


@functools.cache
def wanted(program_name):
    program = next(each for each in HONEST if each.name == program_name)
    return program.wanted or plain_python(program)


def check_honest(sandbox, programs):
    told = {program.name: verdict(sandbox, program) for program in programs}
    assert told == {program.name: wanted(program.name) for program in programs}


def check_hostile(sandbox, programs):
    told = {program.name: verdict(sandbox, program) for program in programs}
    assert [name for name, verdict in told.items() if verdict == "AC"] == []
    return told


@pytest.mark.system
def test_honest_submissions_have_the_verdict_of_plain_python(sandbox):
    check_honest(sandbox, HONEST[:: 7 if sandbox.backend in ("userns", "landlock") else 29])


@pytest.mark.system
def test_what_crosses_in_a_way_of_its_own_has_the_verdict_of_plain_python():
    check_honest(opened("userns")[0] or opened("landlock")[0], CARRIED)


@pytest.mark.system
def test_hostile_submissions_are_not_accepted(sandbox):
    quick = [each for each in HOSTILE if not each.name.startswith(("endless", "much", "a recursion"))]
    check_hostile(sandbox, quick[:: 12 if sandbox.backend in ("userns", "landlock") else 61])


def test_the_submission_cannot_catch_what_the_tests_raise():
    check_hostile(opened("userns")[0] or opened("landlock")[0], CAUGHT)


@pytest.mark.slow
def test_every_honest_submission_has_the_verdict_of_plain_python(sandbox):
    assert len(HONEST) + len(HOSTILE) >= 200
    check_honest(sandbox, HONEST)


@pytest.mark.slow
def test_every_hostile_submission_has_one_verdict_everywhere_and_is_not_accepted(sandbox):
    told = check_hostile(sandbox, HOSTILE)
    first, _ = opened(next(name for name in BACKENDS if opened(name)[0] is not None))
    if first is not sandbox:
        unlike = {
            each.name: (told[each.name], there)
            for each in HOSTILE
            if (there := verdict(first, each)) != told[each.name]
        }
        # What a program may do to others of its user, the backends forbid in more than one way.
        assert {name for name in unlike if "signal" not in name and "stop" not in name} == set()


# -- budgets


@pytest.mark.system
def test_each_assert_of_a_list_has_a_budget_of_its_own(sandbox):
    spin = "import time\ndef f(x):\n    end = time.process_time() + 0.4\n"
    spin += "    while time.process_time() < end: pass\n    return x"
    tests = read_tests([f"assert f({n}) == {n}" for n in range(4)])
    score = CodeGrader(sandbox, budget=TIGHT).judge(spin, tests)
    assert (score.info["verdict"], score.info["run"]) == ("AC", 4)
    assert 0.3 < score.info["spent"]["cpu_s"] < 1.0


@pytest.mark.system
def test_each_assert_of_a_function_has_a_budget_of_its_own_and_together_they_have_ten(sandbox):
    spin = (
        "from time import process_time as now\ndef f(s):\n    end = now() + s\n    while now() < end: pass\n"
    )
    several = "".join(f"    assert f({s}) is None\n" for s in (0.5, 0.4, 0.5, 0.4))
    loop = "    for _ in range(40):\n        assert f(0.4) is None\n"
    for body, verdict, least in (
        (several, "AC", 1.5),
        ("    assert [f(0.4) for _ in range(9)]\n    assert f(0) is None\n", "TLE", 0.5),
        (f"{loop}    assert f(0) is None\n", "TLE", 1.0),
    ):
        tests = read_tests(f"def check(f):\n{body}", {"entry_point": "f"})
        info = CodeGrader(sandbox, budget=TIGHT).judge(spin, tests).info
        assert (info["verdict"], info["run"]) == (verdict, 1)
        assert least < info["spent"]["cpu_s"] < 2.5


LIMITS = {
    "while True: pass": ("TLE", "cpu"),
    "import time; time.sleep(60)": ("TLE", "wall"),
    "x = [0] * 10**10": ("MLE", "memory"),
    "while True: print('x' * 1000)": ("OLE", "output"),
    "1 / 0": ("RE", None),
}


@pytest.mark.parametrize(("statement", "told"), LIMITS.items())
@pytest.mark.system
def test_info_says_which_limit_was_met(statement, told):
    sandbox, why_not = opened("userns") if opened("userns")[0] else opened("landlock")
    if sandbox is None:
        pytest.skip(why_not)
    budget = Budget(cpu_s=0.5, wall_s=0.8, memory_mb=256, output_kb=64)
    for code, raw in (
        (statement, {"inputs": [""], "outputs": [""]}),
        (f"def f():\n    {statement}", {"fn_name": "f", "inputs": [[]], "outputs": [1]}),
        (f"def f():\n    {statement}", ["assert f() == 1"]),
    ):
        info = CodeGrader(sandbox, budget=budget).judge(code, read_tests(raw)).info
        assert (info["verdict"], info.get("limit")) == told, (raw, info)
        assert {"cpu_s", "wall_s", "memory_mb", "cpu_limit_s", "wall_limit_s", "memory_limit_mb"} <= {
            *info["spent"]
        }


def test_a_process_that_waits_for_a_processor_uses_up_no_wall_clock():
    from gem.sandbox.judge import _Clock, _Thread

    clock = _Clock(0.0)
    clock.look(1.0, 0.25, {7: _Thread(0.25, 0.75, True)})  # it ran for a quarter and waited for the rest
    assert clock.used == 0.25
    clock.look(2.0, 0.25, {7: _Thread(0.25, 1.75, True)})  # it waited
    assert clock.used == 0.25
    clock.look(3.0, 0.25, {7: _Thread(0.25, 1.75, False)})  # it slept
    assert clock.used == 1.25
    others = {number: _Thread(0.5, 0.0, True) for number in (8, 9, 10)}
    clock.look(3.5, 2.25, {7: _Thread(0.75, 1.75, True), **others})  # four threads ran
    assert clock.used == 1.75


@pytest.fixture
def busy():
    """One processor for all that this test starts, and others that use it."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot keep processes on one processor")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.wait()
    os.sched_setaffinity(0, before)


SPIN = "import time\nwhile time.process_time() < 0.3: pass\n"


@pytest.mark.system
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock", "none"])
def test_a_right_program_on_a_busy_machine_is_not_too_slow(busy, backend):
    if opened(backend)[0] is None:
        pytest.skip(opened(backend)[1])
    budget = Budget(cpu_s=1.0, wall_s=0.8)
    with_fork_servers = {} if backend == "none" else {"begin": ("bare",)}
    sandbox = open_sandbox(backend, allow_unsafe=True, **with_fork_servers)
    try:
        results = sandbox.judge(f"{SPIN}print(1)", [Case(stdin=b"")] * 2, budget=budget)
        assert [result.status for result in results] == [Status.OK] * 2, results
        raw = ["assert f(1) == 2"]
        score = CodeGrader(sandbox, budget=budget).judge(f"{SPIN}def f(x): return x + 1", read_tests(raw))
        assert score.correct, score
        (slept,) = sandbox.judge("import time; time.sleep(60)", [Case(stdin=b"")], budget=budget)
        assert (slept.status, slept.info.get("why")) == (Status.TLE, "wall")
    finally:
        sandbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_32_right_programs_at_load_20_are_accepted(backend):
    from concurrent.futures import ThreadPoolExecutor

    sandbox, why_not = opened(backend)
    if sandbox is None:
        pytest.skip(why_not)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(20)]
    try:
        code = "import time\nwhile time.process_time() < 1.0: pass\nprint(2 * int(input()))"
        tests = read_tests({"inputs": ["2\n"], "outputs": ["4\n"]})
        grader = CodeGrader(sandbox, budget=Budget(cpu_s=6.0, wall_s=20.0, memory_mb=512))
        with ThreadPoolExecutor(32) as threads:
            scores = list(threads.map(lambda _: grader.judge(code, tests), range(32)))
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert [score.info["verdict"] for score in scores] == ["AC"] * 32


# -- HumanEval


@pytest.mark.slow
def test_every_solution_of_humaneval_is_accepted(sandbox):
    rows = humaneval()
    programs = [
        Program(row["task_id"], row["prompt"] + row["canonical_solution"], row["test"], row) for row in rows
    ]
    told = {each.name: verdict(sandbox, each, Budget(cpu_s=6.0, wall_s=20.0)) for each in programs}
    assert len(told) == 164
    assert {name: found for name, found in told.items() if found != "AC"} == {}


@pytest.mark.slow
def test_continuations_of_humaneval_are_accepted_and_empty_bodies_are_not():
    sandbox = opened("userns")[0] or opened("landlock")[0]
    for row in humaneval():
        for code, right in ((row["canonical_solution"], True), (row["prompt"] + "    pass\n", False)):
            program = Program(row["task_id"], code, row["test"], row)
            assert (verdict(sandbox, program, Budget(cpu_s=6.0, wall_s=20.0)) == "AC") is right, row[
                "task_id"
            ]


RETURNS = ("None", "[{}]", "not ({})", "str({}) + 'x'", "({}) + ({})", "{}, 0")


def other_returns(source):
    """Yield what was changed, and the program: each return, and what it returns otherwise."""
    count = sum(isinstance(node, ast.Return) for node in ast.walk(ast.parse(source)))
    for number, form in itertools.product(range(count), RETURNS):
        tree = ast.parse(source)
        node = [node for node in ast.walk(tree) if isinstance(node, ast.Return)][number]
        value = ast.unparse(node.value) if node.value else "None"
        node.value = ast.parse(form.replace("{}", value), mode="eval").body
        yield f"return {value} -> {ast.unparse(node)}", ast.unparse(tree)


@functools.cache
def mutants(number, most=5):
    """Return so many mutants of a solution that plain Python refuses, and how."""
    row = humaneval()[number]
    source = row["prompt"] + row["canonical_solution"]

    def beside(code):  # the prompt's helpers, of which the tests have their own
        return [ast.unparse(n) for n in ast.parse(code).body if getattr(n, "name", "") != row["entry_point"]]

    made = itertools.chain(*(_mutants(source, kinds) for kinds in MISTAKES.values()))
    small, larger = (
        [(change, code) for change, code in some if beside(code) == beside(source)]
        for some in (made, other_returns(source))
    )
    for some in (small, larger):
        Random(row["task_id"]).shuffle(some)
    found = []
    for change, code in (*small[: 2 * most], *larger, *small[2 * most :]):
        program = Program(f"{row['task_id']}: {change}", code, row["test"], row)
        if len(found) < most and (plain := plain_verdict(program)) != "AC":
            found.append((program, plain))
    return found


@pytest.mark.slow
def test_mutants_of_humaneval_are_refused_for_the_right_reason(sandbox):
    unlike, tried = {}, 0
    for number in range(len(humaneval())):
        for program, plain in mutants(number):
            tried += 1
            found = verdict(sandbox, program, Budget(cpu_s=2.0, wall_s=30.0, memory_mb=1024))
            if found != plain and {found, plain} - {"TLE", "MLE", "RE"}:
                unlike[program.name] = (plain, found)
    assert tried == 5 * 164
    assert unlike == {}


if __name__ == "__main__":  # how many of HumanEval's solutions each backend accepts
    for name in BACKENDS:
        if (found := opened(name)[0]) is None:
            print(name, opened(name)[1][:100])
            continue
        right = [
            verdict(
                found,
                Program("", row["prompt"] + row["canonical_solution"], row["test"], row),
                Budget(cpu_s=6.0, wall_s=20.0),
            )
            == "AC"
            for row in humaneval()
        ]
        print(name, sum(right), "of", len(right))


THIEF = """
import sys
def peer():
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Server":
                return value
        frame = frame.f_back
def failure(line, operation, *operands):
    try:
        line.ask(operation, *operands)
    except BaseException as error:
        return error
def f(x):
    line = peer()
    error = failure(line, "next", 5)
    method = line.ask("getattr", error, "with_traceback")
    kind = line.ask("getattr", failure(line, "exit", line.ask("iter", method, 0), None), "obj")
    of_all = line.ask("getattr", failure(line, "exit", kind, None), "obj")
    return line.ask("call", line.ask("call", of_all, ["K", (object,), {"__eq__": str}], {}), [], {})
"""

NAMED = """
class Name(str):
    def __str__(self): return "public"
def f(thing):
    try:
        return getattr(thing, Name("_secret"))
    except AttributeError:
        return "refused"
"""


def test_nothing_of_the_testers_own_can_be_asked_for():
    """An exception or a builtin class that came across would lead to the tests and to `type` itself."""
    grader = CodeGrader(opened("userns")[0] or opened("landlock")[0])
    assert grader.judge(THIEF, read_tests(["assert f(3) == 6"])).info["verdict"] != "AC"
    secret = "class Thing:\n    _secret = 42\nassert f(Thing()) == 'refused'"
    assert grader.judge(NAMED, read_tests([secret])).info["verdict"] == "AC"


def test_an_ordered_dictionary_keeps_its_order():
    code = "from collections import OrderedDict\ndef f(d):\n    d.move_to_end(1)\n    return d"
    test = (
        "from collections import OrderedDict\nd = OrderedDict([(1, 1), (2, 2)])\n"
        "assert list(f(d)) == [2, 1]\nassert list(d) == [2, 1]"
    )
    grader = CodeGrader(opened("userns")[0] or opened("landlock")[0])
    assert grader.judge(code, read_tests([test])).info["verdict"] == "AC"
