import os
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gem.errors import NoVerdict
from gem.graders import fork_server
from gem.graders.pool import Missing, WorkerLost, WorkerPool

ECHO = Path(__file__).with_name("echo_worker.py")
LONG_S = 60.0


@pytest.fixture
def pool():
    pool = WorkerPool(ECHO, size=2)
    yield pool
    pool.close()


def ask(pool, do="echo", say=None, cpu_s=20.0, wall_s=LONG_S):
    return pool.ask({"do": do, "say": say}, cpu_s, wall_s)


def test_nothing_starts_before_a_question_and_one_worker_serves_the_next(pool):
    assert pool.pids == []
    first, second = ask(pool, say="a"), ask(pool, say="\ud800\x00é")
    assert (first["said"], second["said"]) == ("a", "\ud800\x00é")
    assert first["pid"] == second["pid"] == pool.pids[0]


def test_what_a_program_raises_is_a_short_answer(monkeypatch):
    monkeypatch.setattr(fork_server, "_limit_memory", lambda: None)  # of this process
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)

    def answer(question):
        raise ValueError(question["say"])

    here, there = socket.socketpair()
    with here, there:
        for say in ("x", "x" * 1000):
            fork_server.send(here, {"say": say, "cpu_s": 1.0})
        here.shutdown(socket.SHUT_WR)
        fork_server._work(there, SimpleNamespace(answer=answer))
        short, cut = fork_server.receive(here), fork_server.receive(here)
    assert short == {"why": "ValueError: x"}
    assert cut == {"why": ("ValueError: " + "x" * 1000)[:200]}


def test_spent_cpu_is_told_apart_from_a_worker_that_died_or_slept(pool):
    with pytest.raises(WorkerLost) as burnt:
        ask(pool, "burn", cpu_s=0.05)
    with pytest.raises(WorkerLost) as died:
        ask(pool, "die")
    with pytest.raises(WorkerLost) as slept:
        ask(pool, "sleep", wall_s=0.2)
    assert [lost.value.spent for lost in (burnt, died, slept)] == [True, False, False]
    assert isinstance(died.value, NoVerdict)


def test_a_lost_worker_is_replaced_and_none_is_left_behind(pool):
    pid = ask(pool)["pid"]
    with pytest.raises(WorkerLost):
        ask(pool, "sleep", wall_s=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool, say="again")["said"] == "again"
    assert len(pool.pids) == 1


def test_a_worker_retires_after_its_questions_and_when_it_has_grown(pool):
    pool.retire = 3
    assert len({ask(pool)["pid"] for _ in range(3)}) == 1
    pid = ask(pool)["pid"]
    pool.memory_mb = 150
    assert ask(pool, "hoard")["pid"] == pid
    assert ask(pool)["pid"] != pid


def test_workers_are_forked_from_one_process_that_loaded_the_program(pool):
    pid = ask(pool)["pid"]
    with pytest.raises(WorkerLost):
        ask(pool, "die")
    answer = ask(pool)
    assert answer["pid"] != pid
    assert answer["parent"] == pool.server_pid != os.getpid()


def test_a_program_that_raises_exit_ends_its_worker_alone(pool):
    pool.size = 1
    with pytest.raises(WorkerLost, match="code 0"):
        ask(pool, "exit")
    assert ask(pool, say="next")["said"] == "next"


@pytest.mark.skipif(sys.platform != "linux", reason="needs workers that die with their parent")
def test_when_the_process_that_forks_is_killed_a_new_one_takes_its_place(pool):
    with ThreadPoolExecutor(2) as threads:
        old = {answer["pid"] for answer in threads.map(lambda _: ask(pool), range(8))}
    killed = pool.server_pid
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # its end is the workers' end
    with pytest.raises(NoVerdict):
        ask(pool)
    answer = ask(pool)
    assert answer["parent"] == pool.server_pid != killed
    assert answer["pid"] not in old
    assert len(pool.pids) == 1


def test_threads_share_at_most_size_workers(pool):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda i: ask(pool, say=i), range(40)))
    assert [answer["said"] for answer in answers] == list(range(40))
    assert len({answer["pid"] for answer in answers}) <= 2


def test_a_question_waits_while_all_workers_are_busy(pool):
    pool.size = 1
    ask(pool)
    failed = threading.Event()

    def sleep():
        with pytest.raises(WorkerLost):
            ask(pool, "sleep", wall_s=0.5)
        failed.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    assert ask(pool, say="later")["said"] == "later"  # before or after the other, never lost
    thread.join(LONG_S)
    assert failed.is_set()


def test_close_ends_the_workers_and_a_later_question_starts_one(pool):
    pid = ask(pool)["pid"]
    pool.close()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool)["pid"] != pid


def test_close_loses_a_question_that_hangs_and_nothing_else(pool):
    pid, lost = ask(pool)["pid"], []

    def sleep():
        try:
            ask(pool, "sleep")
        except WorkerLost as error:
            lost.append(error.spent)

    thread = threading.Thread(target=sleep)
    thread.start()
    while pool.pids:  # until the thread has taken the worker
        pass
    pool.close()
    thread.join(LONG_S)
    assert lost == [False]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ask(pool, say="next")["said"] == "next"


def test_a_missing_package_is_named(pool, monkeypatch):
    monkeypatch.setenv("ECHO_MISSING", "1")
    with pytest.raises(Missing, match="told so") as missing:
        ask(pool)
    assert missing.value.package == "nothing"


def test_a_program_that_does_not_start_is_no_verdict(tmp_path):
    pool = WorkerPool(tmp_path / "absent.py")
    with pytest.raises(NoVerdict):
        ask(pool)
    assert pool.pids == []


FORKED = """
import os, sys, warnings
from pathlib import Path
from gem.graders.pool import WorkerPool
warnings.simplefilter("ignore")
pool = WorkerPool(Path(sys.argv[1]))
mine = pool.ask({"do": "echo"}, 20, 60)["pid"]
child = os.fork()
if not child:
    other = pool.ask({"do": "echo"}, 20, 60)["pid"]
    pool.close()
    os._exit(0 if other != mine else 1)
_, status = os.waitpid(child, 0)
assert pool.ask({"do": "echo"}, 20, 60)["pid"] == mine  # the child did not end the parent's
print(status, mine, pool.server_pid)
"""


def test_a_forked_process_has_its_own_workers_and_exit_leaves_none():
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(ECHO)], capture_output=True, text=True, timeout=LONG_S, check=True
    )
    status, *pids = map(int, done.stdout.split())
    assert status == 0
    assert done.stderr == ""
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


HANGING = """
import sys
from pathlib import Path
from threading import Thread
from gem.graders.pool import WorkerPool
pool = WorkerPool(Path(sys.argv[1]), size=2)
pids = [pool.ask({"do": "echo"}, 20, 60)["pid"], pool.server_pid]
Thread(target=pool.ask, args=({"do": "sleep"}, 20, 60), daemon=True).start()
while pool.pids:  # until the thread has taken the worker
    pass
pids.append(pool.ask({"do": "echo"}, 20, 60)["pid"])
print(*pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open, which Linux has")
def test_a_process_that_is_killed_leaves_no_worker_not_even_a_hanging_one():
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, str(ECHO)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        pids = set(map(int, process.stdout.readline().split()))
        watched = [os.pidfd_open(pid) for pid in pids]
        process.kill()
    try:
        assert len(pids) == 3
        assert all(select.select([end], [], [], LONG_S)[0] for end in watched)
    finally:
        for end in watched:
            os.close(end)
