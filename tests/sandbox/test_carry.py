"""What one program leaves, the next one does not find: between cases, calls and sessions."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gem.sandbox.base import Budget, Case
from gem.sandbox.choice import open_sandbox
from gem.sandbox.selftest import self_test
from gem.sandbox.zygote import MAPPED_STEP

pytestmark = pytest.mark.filterwarnings("ignore:programs run on the backend")

BUDGET = Budget(cpu_s=20, wall_s=60, output_kb=4096)

HERE = Path(__file__).parent / "carry"
LOOK, LEAVE = ((HERE / name).read_text() for name in ("look.py", "leave.py"))

OPEN = {
    "userns": set(),
    # One process namespace and one file system for all that a slot runs.
    "bwrap-slots": {
        "inode numbers",
        "process numbers",
        "process numbers of the machine",
        "number of standard",
        "control group",  # which of those that calls take in turn
    },
    # None of its own: the machine's.
    "landlock": {"inode numbers", "process numbers", "number of standard"},
}
"""What the kernel counts for all, so no backend hides it: see docs/guides/sandbox_promises.md."""


@pytest.fixture(params=["userns", "bwrap-slots", "landlock"])
def sandbox(request) -> Iterator[Any]:
    if not self_test(request.param).passed:
        pytest.skip(f"not to be had here: {self_test(request.param).why_not}")
    with open_sandbox(request.param, begin=("bare",)) as opened:
        yield opened


@pytest.fixture
def parts() -> tuple[str, str, str]:
    """A program's beginning, and what comes after it to tell the facts or to leave something."""
    number = str(10**9 + secrets.randbelow(10**9))
    return f"NUMBER = {number!r}\n{LOOK}", "print(json.dumps(facts))\n", LEAVE


def _apart(first, second):
    """Return two values, and of two lists of one length the places where they differ."""
    if not isinstance(first, list) or not isinstance(second, list) or len(first) != len(second):
        return first, second
    return [
        (place, *pair) for place, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]
    ]


def differing(sandbox, before, after, *, but=()):
    first, second = json.loads(before), json.loads(after)
    open_here = tuple(OPEN[sandbox.backend])
    assert first.keys() == second.keys()
    return {
        name: _apart(first[name], second[name])
        for name in first
        if first[name] != second[name] and not name.startswith((*open_here, *but))
    }


@pytest.mark.system
def test_the_facts_do_tell(sandbox, parts):
    look, tell, leave = parts
    result = sandbox.run(
        f"{look}print(json.dumps(facts))\n{leave}{look}os.set_blocking(1, True)\n{tell}", budget=BUDGET
    )
    before, after = result.stdout.splitlines()
    found = differing(sandbox, before, after)
    assert len(found) >= (12 if sandbox.backend == "landlock" else 25), sorted(found)


def test_between_the_cases_of_a_submission(sandbox, parts):
    look, tell, leave = parts
    code = f"WHAT = input()\n{look}exec({leave!r} if WHAT == 'leave' else {tell!r})"
    cases = [Case(stdin=what) for what in (b"look", b"leave", b"look", b"look")]
    first, left, second, third = sandbox.judge(code, cases, budget=BUDGET)
    assert left.ok, left
    assert differing(sandbox, first.stdout, second.stdout) == {}
    assert differing(sandbox, first.stdout, third.stdout) == {}


def test_between_calls(sandbox, parts):
    look, tell, leave = parts
    first, left, second = (sandbox.run(look + part, budget=BUDGET) for part in (tell, leave, tell))
    assert left.ok, left
    assert differing(sandbox, first.stdout, second.stdout) == {}


def test_between_sessions_and_submissions(sandbox, parts):
    look, tell, leave = parts

    def judged(part):
        (result,) = sandbox.judge(look + part, [Case(stdin=b"")], budget=BUDGET)
        return result

    def in_session(part):
        with sandbox.session(budget=BUDGET) as session:
            return session.execute(look + part)

    for way in (judged, in_session):
        first, left, second = (way(part) for part in (tell, leave, tell))
        assert left.ok, left
        assert differing(sandbox, first.stdout, second.stdout) == {}


def test_no_process_that_ended_is_in_sight_of_the_next_program():
    """In a process of its own, which has children that ended or go on, as the one that makes programs."""
    code = """
import os, signal, time
from types import SimpleNamespace
from gem.sandbox.zygote import Zygote
pids = []
for way in ("kept", "ended", "stays"):
    pid = os.fork()
    if pid == 0:
        way == "ended" or time.sleep(600)
        os._exit(0)
    pids.append(pid)
os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
zygote = object.__new__(Zygote)
zygote.children, zygote.removing, zygote.template = {}, set(), SimpleNamespace(pid=pids[0])
zygote._make_way()
left = [name for name in map(str, pids) if os.path.exists(f"/proc/{name}")]
os.kill(pids[0], signal.SIGKILL)
assert left == [str(pids[0])], left
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_between_sessions_that_are_open_at_the_same_time(sandbox, parts):
    look, tell, leave = parts
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(sandbox.session(budget=BUDGET)) for _ in range(2))
        first = two.execute(look + tell)
        assert one.execute(look + leave).ok
        second = two.execute(look + tell)
        own = ("frames", "inode numbers")  # what its own first cell did
        assert differing(sandbox, first.stdout, second.stdout, but=own) == {}


@pytest.mark.system
def test_between_a_session_and_its_forks(sandbox, parts):
    look, tell, leave = parts
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(sandbox.session(budget=BUDGET))
        assert one.execute("shared = ['before']").ok
        first, second, third = (stack.enter_context(one.fork()) for _ in range(3))
        before = first.execute(look + tell)
        assert one.execute(f"{look}{leave}shared.append('after')").ok
        after_its_parent = second.execute(look + tell)
        assert second.execute(f"{look}{leave}shared.append('after')").ok
        after_another = third.execute(look + tell)
        assert third.execute("print(shared)").stdout == "['before']\n"
    own = ("frames", "inode numbers")  # of the slot that each has while all are open
    assert differing(sandbox, before.stdout, after_its_parent.stdout, but=own) == {}
    assert differing(sandbox, before.stdout, after_another.stdout, but=own) == {}


def test_the_limit_of_addresses_does_not_tell_how_much_a_server_maps(sandbox):
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    assert int(sandbox.run(code, budget=BUDGET).stdout) % MAPPED_STEP == 0


def test_nobody_is_told_when_another_reads_a_folder(sandbox):
    code = "import fcntl, os; fcntl.fcntl(os.open('/usr', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)"
    assert "Error" in sandbox.run(code, budget=BUDGET).stderr
