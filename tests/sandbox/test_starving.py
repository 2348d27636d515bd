"""Programs that keep themselves from running: that is their own loss, and no sandbox's failure."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

import pytest

from gem.envs.code.env import CodeEnv, fence_code
from gem.sandbox.base import Budget, Case, Status
from gem.sandbox.choice import open_sandbox
from gem.sandbox.judge import _Clock, _Thread
from gem.sandbox.selftest import self_test

if not sys.platform.startswith("linux"):
    pytest.skip("these are about Linux", allow_module_level=True)

SHORT = Budget(cpu_s=0.4, wall_s=0.4, memory_mb=512, output_kb=64)
IN_STEP = """
import time
at = time.monotonic()
while True:
    at += 0.0505
    time.sleep(max(0, at - 0.003 - time.monotonic()))
    while time.monotonic() < at + 0.001: pass
"""
PROGRAMS = {
    "runs in step with looks": IN_STEP,
    "sleeps in short pieces": "import time\nwhile True: time.sleep(0.0005)",
    "sleeps in many threads": (
        "import threading, time\ndef rest():\n    while True: time.sleep(0.002)\n"
        "for _ in range(12): threading.Thread(target=rest).start()\nrest()"
    ),
    "lets all others run": "import os\nwhile True: os.sched_yield()",
    "asks for the last place": "import os\nos.nice(19)\nwhile True: pass",
    "stops itself": (
        "import os, signal, time\nwhile True:\n    os.kill(os.getpid(), signal.SIGSTOP)\n    time.sleep(0.01)"
    ),
    "waits for a lock that it has": (
        "import threading\nlock = threading.Lock()\nlock.acquire()\n"
        "while True:\n    try: lock.acquire()\n    except KeyboardInterrupt: pass"
    ),
    "waits for a pipe that it holds open": "import os\nends = os.pipe()\nwhile True: os.read(ends[0], 1)",
    "ends its first thread": (
        "import ctypes, os, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).syscall(ctypes.c_long(60 if os.uname().machine == 'x86_64' else 93), 0)"
    ),
    "keeps a child running": (
        "import os, time\npid = os.fork()\nwhile pid == 0: pass\nwhile True: time.sleep(0.01)"
    ),
    "stops a child that it waits for": (
        "import os, signal\npid = os.fork()\nif pid == 0: os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()"
    ),
}


def run_cell(sandbox, code):
    with contextlib.closing(sandbox.session(budget=SHORT)) as session:
        return session.execute(code)


USES = {
    "run": lambda sandbox, code: sandbox.run(code, budget=SHORT),
    "cell": run_cell,
    "judged": lambda sandbox, code: sandbox.judge(code, [Case(stdin=b"")], budget=SHORT)[0],
}


@pytest.fixture(scope="module", params=["userns", "bwrap-slots", "landlock"])
def backend(request):
    if not self_test(request.param).passed:
        pytest.skip(f"not checked on {request.param}: {self_test(request.param).why_not}")
    with open_sandbox(request.param, begin=("bare",)) as opened:
        yield opened


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("program", PROGRAMS)
def test_who_starves_itself_is_scored(backend, program):
    code = PROGRAMS[program]
    refused = backend.backend == "landlock" and "os.fork" in code
    for use, ask in USES.items():
        result = ask(backend, code)
        assert result.status is (Status.RE if refused else Status.TLE), (use, result)
    assert backend.run("print(1)").stdout == "1\n"


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
def test_an_answer_that_starves_itself_gets_nothing(backend):
    """Each assert of a function has its seconds to itself: sleeping in all of them is no busy machine."""
    checks = "def check(f):\n" + "    assert f() is None\n" * 24
    rows = [
        {"problem": "Print 1.", "tests": {"inputs": [""], "outputs": ["1"]}},
        {"problem": "f", "tests": checks, "entry_point": "f"},
    ]
    env = CodeEnv(dataset=rows, sandbox_type=backend, budget=replace(SHORT, wall_s=0.25))
    for idx, code in ((0, PROGRAMS["sleeps in short pieces"]), (1, "import time\ndef f(): time.sleep(0.15)")):
        env.reset(idx=idx)
        step = env.step(fence_code(code))
        assert (step.reward, step.info["verdict"], step.info["limit"]) == (0.0, "TLE", "wall")


def used(looks):
    """Return what a clock counts of looks at 50 ms from each other: CPU seconds, then threads."""
    clock = _Clock(0.0)
    for number, (ran, threads) in enumerate(looks, 1):
        clock.look(0.05 * number, ran, dict(enumerate(threads)))
    return round(clock.used, 6), clock.waits


def test_a_thread_that_is_ready_at_every_look_has_not_waited_for_that():
    assert used([(0.004 * n, [_Thread(0.004 * n, 0.0, True)]) for n in range(1, 21)]) == (1.0, False)


def test_waiting_counts_for_nothing_once_it_is_over():
    looks = [(0.05, [_Thread(0.05, 0.0, True)])] * 2
    assert used(looks) == (0.1, True)  # it may wait since, so this is no verdict yet
    assert used([*looks, (0.05, [_Thread(0.05, 0.1, True)])]) == (0.05, False)
    assert used([*looks, (0.05, [_Thread(0.05, 0.0, False)])]) == (0.15, False)  # it slept all the while


def test_threads_that_wait_for_each_other_wait_for_nobody_else():
    half = [(0.05 * n, [_Thread(0.025 * n, 0.025 * n, True)] * 2) for n in range(1, 5)]
    assert used(half) == (0.2, False)
    late = [*[(0.05 * n, [_Thread(0.05 * n, 0, True), _Thread(0, 0, False)]) for n in range(1, 5)]]
    assert used([*late, (0.2, [_Thread(0.2, 0, False), _Thread(0, 0.2, False)])]) == (0.25, False)


def test_where_the_kernel_counts_no_waiting_who_is_ready_waits():
    assert used([(0.0, [_Thread(0.0, 0.0, True)]), (0.02, [_Thread(0.0, 0.0, True)])])[0] == 0.02
    assert used([(0.01, [_Thread(0.0, 0.0, False)])])[0] == 0.05
