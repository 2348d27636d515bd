"""Each protocol of Python: no hostile object passes an assert by it, and honest classes that have it do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from code_programs import BACKENDS, opened, plain_python
from code_protocols import (
    EXEMPT,
    HOSTILE,
    MODES,
    PLACES,
    harness,
    honest,
    hostile_code,
    rows,
    special_names,
)

from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget

pytestmark = pytest.mark.filterwarnings("ignore")  # a hostile object is never awaited, and worse
AMPLE = Budget(cpu_s=60.0, wall_s=300.0, memory_mb=1024)


def sandbox_named(name):
    found, why_not = opened(name)
    if found is None:
        pytest.skip(why_not)
    return found


def judged(sandbox, code, test, classes=("Box",)):
    """Return the verdict, and why."""
    tests = replace(read_tests([test], {"classes": list(classes)}), public=1)
    info = CodeGrader(sandbox, budget=AMPLE).judge(code, tests).info
    return info["verdict"], info.get("public", {}).get("why", "")


def held(sandbox, mode, *, few=False):
    """Return the asserts that hold of the hostile classes of a mode."""
    return judged(sandbox, hostile_code(mode), f"{harness(few=few)}\nassert not passed, repr(passed)")


def test_each_special_name_has_a_row_or_a_reason():
    named = {name for described, *_ in HOSTILE for name in described.split()}
    exempt = {name for names in EXEMPT.values() for name in names.split()}
    assert special_names() - named - exempt == set()


def test_in_plain_python_every_assert_holds_of_a_hostile_class():
    space = {"__name__": "submission"}
    exec(hostile_code("looks"), space)  # noqa: S102 - the table's own
    exec(harness(), space)  # noqa: S102
    assert {*space["passed"]} == {(i, piece, place) for i, _, piece in rows() for place in PLACES.values()}


def test_no_assert_holds_of_what_answers_with_what_it_was_asked():
    assert held(sandbox_named("userns"), "learns", few=True) == ("AC", "")


@pytest.mark.system
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_assert_holds_of_any_hostile_class(backend, mode):
    assert held(sandbox_named(backend), mode) == ("AC", "")


def test_tests_with_a_bare_except_do_not_overlook_that_the_submission_ended():
    test = "try:\n    f(3)\n    failed = False\nexcept:\n    failed = True\nassert failed"
    sandbox = sandbox_named("userns")
    assert judged(sandbox, "def f(x): raise ValueError", test)[0] == "AC"
    assert judged(sandbox, "import os\ndef f(x): os._exit(0)", test)[0] == "RE"


def check_honest(sandbox, programs):
    verdicts = {each.name: judged(sandbox, each.code, each.raw[0], each.row["classes"]) for each in programs}
    assert verdicts == {each.name: ("AC", "") for each in programs}
    assert {each.name: plain_python(each) for each in programs} == {each.name: "AC" for each in programs}


def test_honest_protocols_are_accepted():
    check_honest(sandbox_named("userns"), honest()[::9])


@pytest.mark.system
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_honest_protocol_is_accepted(backend):
    check_honest(sandbox_named(backend), honest())
