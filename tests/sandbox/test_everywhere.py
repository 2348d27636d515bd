"""What ordinary programs may count on, on every backend of gem's own."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import pytest

from gem.sandbox.base import Budget, Case
from gem.sandbox.choice import open_sandbox
from gem.sandbox.selftest import self_test

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore:programs run on the backend")]


@pytest.fixture(params=["userns", "bwrap-slots", "landlock"], scope="module")
def sandbox(request) -> Iterator[Any]:
    if not self_test(request.param).passed:
        pytest.skip(f"not to be had here: {self_test(request.param).why_not}")
    with open_sandbox(request.param, begin=("bare",)) as opened:
        yield opened


POOL = "from {} import {} as P\nwith P(2) as pool: print(pool.map(lambda x: x * x, [2, 3]), end='')"


@pytest.mark.parametrize(
    "code",
    [
        POOL.format("multiprocessing.dummy", "Pool"),
        POOL.format("multiprocessing.pool", "ThreadPool"),
        "import multiprocessing as m, threading, time\n"
        "lock, again, places = m.Lock(), m.RLock(), m.BoundedSemaphore(2)\n"
        "total = [0, 0]\n"
        "def add():\n"
        "  for _ in range(50):\n"
        "    with lock, again, again, places:\n"
        "      before = total[0]; time.sleep(0); total[0] = before + 1\n"
        "threads = [threading.Thread(target=add) for _ in range(4)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "assert lock.acquire() and not lock.acquire(False) and not lock.acquire(timeout=0.01)\n"
        "lock.release()\n"
        "for odd in lock, places:\n"
        "  try: odd.release()\n"
        "  except ValueError: pass\n"
        "  else: raise SystemExit('released too often')\n"
        "try: again.release()\n"
        "except AssertionError: total[1] = places.get_value()\n"
        "print([total[0] // 50, 7 + total[1]], end='')",
        "import multiprocessing as m\nevent, queue = m.Event(), m.Queue()\n"
        "queue.put(4); event.set(); print([queue.get(), 9 * event.is_set()], end='')",
    ],
)
def test_pools_of_threads_and_locks_of_processes_work(sandbox, code):
    for result in (sandbox.run(code), *sandbox.judge(code, [Case(stdin=b"")] * 2)):
        assert (result.status, result.stdout, result.stderr) == ("OK", "[4, 9]", "")
    with sandbox.session() as session:
        assert session.execute(code).stdout == "[4, 9]"


GROW = """
import ctypes, resource
resource.setrlimit(resource.RLIMIT_STACK, {limit})
top = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "__libc_stack_end").value
for megabytes in range(2, 101):  # the first is in use
    ctypes.memset(top - (megabytes << 20), 1, 1 << 20)
    print(megabytes, flush=True)
"""


@pytest.mark.parametrize("limit", ["(resource.RLIM_INFINITY,) * 2", "(1 << 29, resource.RLIM_INFINITY)"])
def test_a_program_may_raise_the_limit_of_its_stack_within_that_of_memory(sandbox, limit):
    if resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY:
        pytest.skip("this machine limits the stack")
    code = GROW.format(limit=limit)
    for result in (sandbox.run(code), *sandbox.judge(code, [Case(stdin=b"")])):
        assert (result.status, result.stdout.split()[-1:], result.stderr) == ("OK", ["100"], "")
    small = sandbox.run(code, budget=Budget(memory_mb=40))
    assert small.status != "OK"


def test_what_is_written_to_tmp_is_the_cases_own(sandbox):
    if sandbox.backend == "landlock":
        pytest.skip("there /tmp is the host's")
    code = (
        "import os\n"
        "paths = ['/tmp/x', '/dev/shm/x']\n"
        "print([os.path.exists(path) for path in paths])\n"
        "for path in paths: open(path, 'w').close()"
    )
    results = [sandbox.run(code), *sandbox.judge(code, [Case(stdin=b"")] * 2), sandbox.run(code)]
    assert [(result.status, result.stdout) for result in results] == [("OK", "[False, False]\n")] * 4


def test_a_submission_finds_nothing_that_its_tester_wrote(sandbox):
    tester = (
        "import os, socket\n"
        "places = '/tmp', '/dev/shm', '.'\n"
        "def serve(space, fd):\n"
        "    line = socket.socket(fileno=fd)\n"
        "    own = line.recv(1000).decode()\n"
        "    line.sendall(str([p for p in (*places, own) if os.path.exists(p + '/mine')]).encode())\n"
        "def test(fd):\n"
        "    line = socket.socket(fileno=fd)\n"
        "    for place in places:\n"
        "        try: open(place + '/mine', 'w').close()\n"
        "        except OSError: pass\n"
        "    line.sendall(os.environ['TMPDIR'].encode())\n"
        "    return line.recv(1000).decode()"
    )
    assert sandbox.judge("", [Case(tester=tester)])[0].value == '"[]"'


def test_keys_of_dictionaries_are_written_as_json_has_them(sandbox):
    code = "def f(x): return {None: 1, True: 2, 1.5: 3, 4: 4, 'x': 5}\ndef g(): return {None: 1, 'null': 2}"
    first, second = sandbox.judge(code, [Case(call="f", args=(0,)), Case(call="g")])
    assert first.value == '{"null": 1, "true": 2, "1.5": 3, "4": 4, "x": 5}'
    assert "the same text" in second.stderr


@pytest.mark.parametrize(
    "leave", ["os.closerange(3, 4096); time.sleep(600)", "os.execv('/bin/sleep', ['s', '600'])"]
)
def test_a_submission_that_stops_answering_its_tester_is_late_and_not_without_a_verdict(sandbox, leave):
    tester = (
        "import os, socket, time\n"
        f"def serve(space, fd): {leave}\n"
        "def test(fd): return socket.socket(fileno=fd).recv(1) and 1 or None"
    )
    budget = Budget(cpu_s=0.5, wall_s=0.5)
    result = sandbox.judge("", [Case(tester=tester)], budget=budget)[0]
    assert (result.status, result.info["why"]) == ("TLE", "wall")
