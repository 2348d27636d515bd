"""Packages of others with one defect each: what counts as a repair, and that wrong patches do not."""

import ast
import json
from collections import Counter

import pytest

import gem
from gem import cli
from gem.envs.kit.mutants import SCOPES
from gem.envs.kit.splits import split_of
from gem.envs.terminal.repair import PACKAGES, list_passed, read_package, read_repairs, run_tests
from gem.envs.terminal.repair_check import check_repair, check_source, is_test, read_passed
from gem.errors import BadArgument, NoVerdict
from gem.registry import FAMILIES
from gem.sandbox.base import Result, Status
from gem.sandbox.choice import has_sandbox

world = pytest.mark.skipif(
    not FAMILIES["repo"].is_here(), reason="needs a world: gem-gym worlds --fetch repo"
)
sandboxed = pytest.mark.skipif(not has_sandbox(), reason="needs a sandbox")

TASKS = [(name, task) for name in PACKAGES for task in read_repairs(name)]
FIRST = [(name, next(iter(read_repairs(name)))) for name in PACKAGES]


class Folder:
    """The files that an agent left, as a hidden test reads them."""

    def __init__(self, files):
        self.read = files.get


# -- what a repair may use

ORIGINAL = b"""
import sys
from collections import deque

from own import words

def first(things, limit=3):
    '''Return the first things.'''
    if sys.version_info < (3,) or hasattr(things, "__iter__"):
        return deque(things).popleft()
    words.most, words.least
    return None
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("None", "sum(x * 2 for x in things if isinstance(x, int))"),
        ("deque(things).popleft()", "next(iter(things))"),
        ("return None", "import math\n    return math.floor('a'.split(',')[0].count('a'))"),
        ("return None", "def inner(key=len):\n        return sorted(things, key=key)\n    return inner()"),
        ("return None", "raise ValueError('no things')"),
        ("return None", "return words.least(words.most(things))"),
    ],
)
def test_a_repair_in_other_words_may_be_tested(old, new):
    assert check_source(ORIGINAL, ORIGINAL.decode().replace(old, new).encode(), {"own"}) == ""


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("import os; os._exit(0)", "os"),
        ("import _pytest as collections", "_pytest"),
        ("from unittest.mock import ANY; return ANY", "unittest.mock.ANY"),
        ("from collections import _sys; return _sys", "collections._sys"),
        ("return sys.modules", "sys"),
        ("raise SystemExit(0)", "SystemExit"),
        ("return getattr(things, 'x')", "getattr"),
        ("exec('x')", "exec"),
        ("print('PASSED test')", "print"),
        ("return first.__globals__", "__globals__"),
        ("return type('X', (), {'_' + '_eq_' + '_': all})()", "type"),
        ("class X:\n        def __eq__(self, other): return True\n    return X()", "__eq__"),
        ("class X:\n        from math import gamma as __eq__\n    return X()", "__eq__"),
        ("class X:\n        match all:\n            case __eq__: pass\n    return X()", "__eq__"),
        ("return (x for x in things).gi_frame", "gi_frame"),
        ("match deque:\n        case object(modules=m): return m", "modules"),
        ("return '__class__'", "__class__"),
        ("import functools as f; return f.update_wrapper(first, deque)", "update_wrapper"),
        ("from functools import wraps; return wraps(deque)(first)", "wraps"),
        ("import functools as f; return f.singledispatch", "singledispatch"),
        ("import math; math.floor = abs", "sets the attribute 'floor'"),
        ("kind = sys; return kind.version_info", "sys (Assign value)"),
        ("from . import other", "other"),
        ("return (", "no Python"),
        ("return " + "(" * 5000, "no Python"),
        ("return " + "sys(" * 190 + ")" * 190, "sys(sys("),
        ("x = '" + "a" * (1 << 17) + "'", "too long"),
    ],
)
def test_what_could_reach_the_tests_is_refused(new, said):
    assert said in check_source(ORIGINAL, ORIGINAL.decode().replace("return None", new).encode())


def test_a_use_does_not_become_another_use():
    original = b"def first(x):\n    return type(x), print(x)\n"
    assert check_source(original, original + b"\nfirst = first\n") == ""
    assert (
        check_source(b"max = field(a=1)\nfrom own import field", b"from own import field\nmax = field(a=2)")
        == ""
    )
    made = original.replace(b"type(x)", b"type('X', (), {'_' + '_eq_' + '_': all})")
    assert "type('X'" in check_source(original, made)
    assert "print('PASSED" in check_source(original, original.replace(b"print(x)", b"print('PASSED a')"))


def test_lines_beside_pytests_own_pass_no_test():
    end = "PASSED a\n1 failed, 1 passed in 0.10s\n"
    assert read_passed(Result(Status.OK, stdout=end)) == {"a"}
    for before, after in (("", "PASSED b\n"), ("PASSED b\n", ""), ("", "PASSED b\n2 passed in 0.10s\n")):
        assert not read_passed(Result(Status.OK, stdout=before + end + after))
    assert not read_passed(Result(Status.OK, stdout="PASSED a\n"))


def test_bytes_that_are_no_text_are_refused():
    assert check_source(ORIGINAL, b"\xff\x00")


def test_the_tests_of_a_package_are_known_by_their_paths():
    paths = ["a/tests/x.py", "a/_test/x.py", "a/test/data.txt", "a/test_x.py", "a/conftest.py"]
    assert all(map(is_test, paths))
    assert not any(map(is_test, ["a/testing.py", "a/latest/x.py", "a/contest.py", "a/attest.py"]))


# -- the recipes


@pytest.mark.parametrize("name", PACKAGES)
def test_the_recipes_differ_in_function_or_operator_and_fill_both_splits(name):
    repairs = read_repairs(name)
    assert len(repairs) >= 15
    places = Counter((each.path, each.function, each.operator) for each in repairs.values())
    assert set(places.values()) == {1}
    assert min(Counter(map(split_of, repairs)).values()) >= 2 or len(PACKAGES) > 1
    for each in repairs.values():
        assert 1 <= len(each.tests) <= each.fails
        assert {test.partition("::")[0] for test in each.tests} <= set(each.hidden)
        assert all(map(is_test, each.hidden))


@world
@pytest.mark.system
@pytest.mark.parametrize("name", PACKAGES)
def test_each_recipe_changes_one_place_of_the_package(name):
    files = read_package(name)
    for repair in read_repairs(name).values():
        mutant = repair.find_mutant(files)
        assert mutant.function == repair.function
        broken = mutant.apply(files[repair.path])
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(files[repair.path]))
        assert check_source(files[repair.path], broken) == ""


# -- the hidden test


def judge(name, patch):
    """Return what is wrong with a package whose files `patch` replaces."""
    files = read_package(name)
    return check_repair(Folder({**files, **patch}), files, run_tests, list_passed(name))


def empty_function(source, line):
    """Return a source in which the body of the innermost function at a line only raises."""
    scopes = [each for each in ast.walk(ast.parse(source)) if isinstance(each, SCOPES)]
    around = max(
        (each for each in scopes if each.lineno <= line <= each.end_lineno), key=lambda each: each.lineno
    )
    lines = source.decode().splitlines(keepends=True)
    first, last = around.body[0], around.body[-1]
    lines[first.lineno - 1 : last.end_lineno] = [" " * first.col_offset + "raise NotImplementedError\n"]
    return "".join(lines).encode()


def list_wrong(name, task):
    """Return three wrong patches of a task: the defect alone, another task's defect, no function at all."""
    files, repairs = read_package(name), read_repairs(name)
    repair, others = repairs[task], [each for each in repairs.values() if each.task != task]
    other = others[sorted(repairs).index(task) % len(others)]
    mutant = repair.find_mutant(files)
    return {
        "defect": {repair.path: mutant.apply(files[repair.path])},
        "other": {other.path: other.find_mutant(files).apply(files[other.path])},
        "empty": {repair.path: empty_function(files[repair.path], mutant.line)},
    }


def check_patches(name, task):
    assert judge(name, {}) == ""
    repair = read_repairs(name)[task]
    for kind, patch in list_wrong(name, task).items():
        wrong = judge(name, patch)
        assert " tests fail: " in wrong, (kind, wrong)
        if kind == "defect":
            assert wrong.startswith(f"{repair.fails} of ")
            assert wrong.endswith(", ".join(repair.tests[:3]))


@world
@sandboxed
@pytest.mark.system
@pytest.mark.parametrize(("name", "task"), FIRST)
def test_the_original_passes_and_three_wrong_patches_fail(name, task):
    check_patches(name, task)


@world
@sandboxed
@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), TASKS)
def test_the_original_passes_and_three_wrong_patches_of_each_task_fail(name, task):
    check_patches(name, task)


@world
@sandboxed
@pytest.mark.system
def test_only_sources_that_were_there_count():
    files = read_package("geographiclib")
    task, repair = next(iter(read_repairs("geographiclib").items()))
    defect = list_wrong("geographiclib", task)["defect"]
    skip = b"import pytest\npytest.skip(allow_module_level=True)\n"
    forged = {path: skip for path in files if is_test(path) and path.endswith(".py")}
    hook = b"def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n"
    forged |= {"conftest.py": hook, "sitecustomize.py": hook, "pytest.ini": b"[pytest]\naddopts = --co\n"}
    assert f"{repair.fails} of " in judge("geographiclib", {**defect, **forged})
    assert judge("geographiclib", {**defect, repair.path: None}) == f"{repair.path} is missing"
    ends = files[repair.path] + b"\nraise SystemExit(0)\n"
    assert "SystemExit" in judge("geographiclib", {repair.path: ends})


def test_a_machine_without_pytest_gives_no_verdict():
    with pytest.raises(NoVerdict, match="is pytest here"):
        check_repair(Folder({}), {}, None, frozenset())


# -- the environment


@world
@sandboxed
@pytest.mark.system
def test_an_agent_repairs_a_package_and_looking_alone_does_not():
    with gem.make("repo:boolean", task=FIRST[2][1]) as env:
        text, info = env.reset(seed=0)
        repair = read_repairs("boolean")[FIRST[2][1]]
        assert info["task"] == repair.task
        assert repair.path in text
        assert repair.tests[0] in text
        step = env.step(f"<bash>cd repo; ls {repair.path} && ls {repair.hidden[0]}</bash>")
        assert step.obs.startswith(repair.path)
        assert "No such file" in step.obs
        step = env.step("<submit/>")
        assert (step.reward, step.info["why"][:3]) == (0.0, f"{repair.fails} o"[:3])
        env.reset(seed=1)
        env.step(env.solve())
        step = env.step(env.solve())
        assert (step.reward, step.info["success"]) == (1.0, True)
        env.reset(seed=2)
        assert env.step("<submit/>").info["why"] == "nothing was done"


@world
@sandboxed
def test_splits_share_no_task_and_a_wrong_name_is_told():
    names = {}
    for split in ("train", "test"):
        with gem.make("repo:toolz", split=split) as env:
            names[split] = {env.reset(seed=seed).info["task"] for seed in range(len(read_repairs("toolz")))}
    assert names["train"] | names["test"] == set(read_repairs("toolz"))
    assert not names["train"] & names["test"]
    task = next(iter(names["test"]))
    with pytest.raises(BadArgument, match="is a test task"):
        gem.make("repo:toolz", split="train", task=task)
    with pytest.raises(BadArgument, match="Did you mean"):
        gem.make("repo:toolz", task=f"{task}x")


@world
@sandboxed
@pytest.mark.system
def test_a_task_is_exported_for_harbor_and_its_test_decides_alike(tmp_path, capsys):
    out = tmp_path / "tasks"
    assert cli.main(["export", "repo:boolean", str(out), "--format", "harbor", "--seed", "3"]) == 0
    folder = out / "boolean-3"
    assert "Work in the folder /app/repo:" in (folder / "instruction.md").read_text()
    assert not list(folder.rglob("*.pyc"))
    for agent, rate in (("solver", 1.0), ("text:<bash>ls repo</bash><submit/>", 0.0)):
        with gem.make(f"harbor:{out}") as env:
            env.reset(seed=0)
            step = env.step(env.solve() if rate else "<bash>ls repo</bash>")
            step = env.step("<submit/>")
            assert step.reward == rate, (agent, step)
    capsys.readouterr()


def test_the_recipes_hold_no_text_of_the_packages():
    from importlib.resources import files as resources

    rows = json.loads(resources("gem.envs.terminal").joinpath("repairs.json").read_text("utf-8"))
    fields = {"path", "start", "operator", "function", "fails", "tests", "hidden"}
    assert {*rows} == set(PACKAGES)
    assert all({*row} == fields for each in rows.values() for row in each)
