from __future__ import annotations

import asyncio
import gc
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest
from host_envs import (
    Careless,
    CarelessSeats,
    Leaving,
    Looping,
    Odd,
    Parental,
    Rendezvous,
    Scripted,
    StalledClosing,
    Survived,
    Unloadable,
    Unsent,
)
from waiting import until

import gem
from gem import codec
from gem.agents import ScriptedAgent
from gem.core import Env, Step
from gem.errors import BadArgument, EnvClosed, NoVerdict, WorkerDied
from gem.hosts import processes, threads
from gem.hosts.base import KINDS, Host, Outcome, auto_kind, make_host
from gem.hosts.processes import Processes
from gem.hosts.remote import Remote
from gem.hosts.serial import Serial
from gem.hosts.threads import Threads
from gem.record import Reply
from gem.registry import ENV_REGISTRY, Maker, register
from gem.rollout import Job, rollout
from gem.specs import EnvSpec, WrapperRef

ANY = pytest.mark.parametrize("kind", KINDS)
DEADLINE_S = 20.0


AnyHost = TypeVar("AnyHost", bound=Host)


def filled(host: AnyHost, recipes: Sequence[Callable[[], Env]]) -> AnyHost:
    """Return the host with an environment for each recipe."""
    make_host(host, recipes)
    return host


def collect(host: Host, count: int) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < count:
        outcomes |= {outcome.index: outcome for outcome in host.ready()}
    return outcomes


def call(host: Host, index: int, verb: str, args: tuple[Any, ...] = ()) -> Any:
    """Make one call on a host at rest."""
    host.submit(index, verb, args)
    (outcome,) = host.ready()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@ANY
def test_a_call_is_a_verb_with_arguments(kind: str) -> None:
    with make_host(kind, [partial(Scripted, length=3)] * 2) as host:
        host.submit(0, "reset", (7,))
        host.submit(1, "reset", kwargs={"seed": 7})
        outcomes = collect(host, 2)
        for outcome in outcomes.values():
            assert outcome.value == (*Scripted(length=3).reset(7)[:1], outcome.value.info)
        assert call(host, 0, "introduce") == (None, 7)
        state = call(host, 0, "get_state")
        assert state["length"] == 3
        call(host, 1, "set_state", (state,))
        assert call(host, 0, "step", ("x",)).obs == call(host, 1, "step", ("x",)).obs


@ANY
@pytest.mark.parametrize(("recipe", "name"), [(Scripted, "ValueError"), (Odd, "OddError")])
def test_an_error_comes_back_by_its_name_and_leaves_the_neighbours_alone(
    kind: str, recipe: type, name: str
) -> None:
    with make_host(kind, [recipe, Scripted]) as host:
        host.submit_all([(i, "reset", (1,), {}) for i in range(2)])
        collect(host, 2)
        host.submit_all([(0, "step", ("raise",), {}), (1, "step", ("fine",), {})])
        outcomes = collect(host, 2)
        assert outcomes[1].value.obs.startswith("fine")
        failure = outcomes[0].failure
        assert failure is not None
        assert (failure.boundary, failure.type) == ("env", name)
        assert failure.message in ("asked to", "salt and pepper")
        host.renew(0)
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs


@ANY
@pytest.mark.parametrize(("first", "error", "attempts"), [("raise", "OddError", 0), ("fail", None, 1)])
def test_whether_an_episode_is_tried_again_does_not_depend_on_the_host(
    kind: str, first: str, error: str | None, attempts: int
) -> None:
    answers = iter([first, "fine"])
    (episode,) = rollout([Job(Odd, 1)], ScriptedAgent(lambda ask: Reply(next(answers))), host=kind)
    assert (episode.error and episode.error.type, episode.attempt) == (error, attempts)


@ANY
def test_an_environment_may_run_an_event_loop_where_its_caller_is_a_task(kind: str) -> None:
    async def play() -> None:
        task = asyncio.current_task()
        with make_host(kind, [Looping]) as host:
            assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs
            with pytest.raises(ValueError, match="asked to"):
                call(host, 0, "step", ("raise",))
            assert call(host, 0, "step", ("x",)).obs.startswith("x")
            env = host.env(0) if kind != "process" else None
            assert host.map([0], "step", ["x"])[1] == {}
        assert env is None or env.closed  # type: ignore[attr-defined]
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    asyncio.run(play())


@ANY
@pytest.mark.parametrize("end", ["exit", "cancel"])
def test_what_would_end_a_program_or_a_task_is_an_error_of_its_environment(kind: str, end: str) -> None:
    with make_host(kind, [Scripted]) as host:
        call(host, 0, "reset", (1,))
        host.submit(0, "step", (end,))
        assert host.ready()[0].failure.type == "NoVerdict"  # type: ignore[union-attr]
        _, errors = host.map([0], "step", [end])
        assert [type(error).__name__ for error in errors.values()] == ["NoVerdict"]
        assert call(host, 0, "step", ("x",)).obs.startswith("x")


@ANY
def test_renew_takes_another_recipe_and_closes_the_old_environment(kind: str) -> None:
    with make_host(kind, [Scripted]) as host:
        call(host, 0, "reset", (1,))
        host.renew(0, partial(Scripted, length=9))
        assert call(host, 0, "get_state")["length"] == 9


def test_renew_closes_what_it_replaces() -> None:
    with filled(Serial(), [Scripted]) as host:
        call(host, 0, "reset")
        old = host.env(0)
        host.renew(0)
        with pytest.raises(EnvClosed):
            old.step("x")


@ANY
def test_misuse_is_refused_and_changes_nothing(kind: str) -> None:
    with make_host(kind, [Scripted] * 2) as host:
        with pytest.raises(BadArgument, match="0 calls are in flight"):
            host.ready()
        with pytest.raises(BadArgument, match=r"env index is 2; accepted: an index that add\(\) returned"):
            host.submit(2, "reset")
        with pytest.raises(BadArgument, match="twice"):
            host.submit_all([(0, "reset", (), {}), (0, "reset", (), {})])
        for verb in ("__class__", "close", Scripted.step):
            with pytest.raises(BadArgument, match="accepted: reset, step, seed_actor"):
                host.submit(0, verb)  # type: ignore[arg-type]
            with pytest.raises(BadArgument, match="accepted: reset, step, seed_actor"):
                host.map([0], verb, ["x"])  # type: ignore[arg-type]
        host.submit(0, "reset", (1,))
        with pytest.raises(BadArgument, match="env 0 has a call in flight"):
            host.submit(0, "reset")
        with pytest.raises(BadArgument, match="env 0 has a call in flight"):
            host.remove(0)
        with pytest.raises(BadArgument, match="call_s is set while 1 calls"):
            host.call_s = 1.0
        with pytest.raises(BadArgument, match="env 0 has a call in flight"):
            host.renew(0)
        with pytest.raises(BadArgument, match="at_least is 2 and 1 calls"):
            host.ready(2)
        (outcome,) = host.ready()
        assert outcome.error is None
    host.close()
    with pytest.raises(EnvClosed):
        host.submit(0, "reset")
    with pytest.raises(EnvClosed):
        host.add(Scripted)


def test_an_unknown_kind_and_a_recipe_that_is_none_are_refused() -> None:
    with pytest.raises(
        BadArgument, match="backend is 'threads'; accepted: serial, thread, process, remote, or"
    ):
        make_host("threads", [Scripted])
    with pytest.raises(BadArgument, match="the recipe of env 0 is 'game:X'"):
        make_host("serial", ["game:X"])  # type: ignore[list-item]
    with pytest.raises(BadArgument, match="the recipe of env 1 cannot be pickled"):
        make_host("process", [Scripted, lambda: Scripted()])
    with pytest.raises(BadArgument, match="call_s is 0"):
        make_host("thread", [Scripted], call_s=0)


# -- stragglers and hung calls


def test_a_straggler_does_not_hold_up_the_others_on_threads() -> None:
    gate = threading.Event()
    with filled(Threads(), [partial(Scripted, gate=gate)] * 4) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
        collect(host, 4)
        host.submit_all([(i, "step", ("wait" if i == 0 else "go",), {}) for i in range(4)])
        assert set(collect(host, 3)) == {1, 2, 3}
        assert host.ready(timeout=0.01) == []
        gate.set()
        assert host.ready()[0].index == 0


@pytest.mark.system
def test_a_straggler_holds_up_only_its_own_worker() -> None:
    with filled(Processes(workers=2), [Scripted] * 4) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
        collect(host, 4)
        host.submit_all([(i, "step", ("hang" if i == 0 else "go",), {}) for i in range(4)])
        assert set(collect(host, 2)) == {1, 3}
        assert host.ready(timeout=0.01) == []
        os.kill(host.pids[0], signal.SIGKILL)
        assert {o.failure.type for o in collect(host, 2).values() if o.failure} == {"WorkerDied"}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_hung_call_is_given_up_and_its_environment_replaced(kind: str) -> None:
    with make_host(kind, [partial(Scripted, gate=None)], call_s=DEADLINE_S) as host:
        call(host, 0, "reset", (1,))  # the worker is up: from here on the limit may be short
        host.call_s = 0.05
        host.submit(0, "step", ("hang",))
        (outcome,) = host.ready()
        assert isinstance(outcome.error, WorkerDied)
        assert "0.05 s" in str(outcome.error)
        host.call_s = DEADLINE_S
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs


def test_a_hung_call_keeps_its_lock_and_nobody_waits_for_that() -> None:
    gate = threading.Event()
    spec = EnvSpec("test:Hangs", partial(Scripted, gate=gate), thread_safe=False)
    register(spec)
    try:
        with filled(Threads(call_s=DEADLINE_S), [Maker(spec.id)] * 2) as host:
            for index in (0, 1):
                call(host, index, "reset", (1,))
            host.call_s = 0.05
            host.submit(0, "step", ("wait",))
            assert isinstance(host.ready()[0].error, WorkerDied)
            host.submit(1, "step", ("x",))  # it may not run beside the one that hangs
            assert "thread_safe=False. The process host" in str(host.ready()[0].error)
            renewing = threading.Thread(target=lambda: [host.renew(0), host.renew(1)], daemon=True)
            renewing.start()
            renewing.join(DEADLINE_S)
            assert not renewing.is_alive()
            gate.set()
            host.call_s = DEADLINE_S
            assert call(host, 1, "reset", (1,)).obs == Scripted().reset(1).obs
    finally:
        gate.set()
        del ENV_REGISTRY[spec.id]


def test_calls_that_wait_behind_hung_threads_get_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 1)
    with filled(Threads(call_s=0.05), [partial(Scripted, gate=None)] * 2) as host:
        host.submit_all([(0, "reset", (1,), {}), (1, "reset", (1,), {})])
        collect(host, 2)
        host.submit_all([(0, "step", ("hang",), {}), (1, "step", ("x",), {})])
        outcomes: dict[int, Outcome] = {}
        end = time.monotonic() + DEADLINE_S
        while host.busy and time.monotonic() < end:
            outcomes |= {outcome.index: outcome for outcome in host.ready(timeout=0.1)}
        assert isinstance(outcomes[0].error, WorkerDied)
        assert outcomes[1].value.obs.startswith("x")


def test_threads_left_behind_do_not_deliver_twice() -> None:
    gate = threading.Event()
    with filled(Threads(call_s=DEADLINE_S), [partial(Scripted, gate=gate)]) as host:
        call(host, 0, "reset", (1,))
        host.call_s = 0.02
        host.submit(0, "step", ("wait",))
        assert isinstance(host.ready()[0].error, WorkerDied)
        host.call_s = DEADLINE_S
        gate.set()
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs
        assert call(host, 0, "step", ("x",)).obs.startswith("x")


def test_the_serial_host_reports_a_slow_call_when_it_returns() -> None:
    with filled(Serial(call_s=1e-9), [Scripted]) as host:
        host.submit(0, "reset", (1,))
        assert isinstance(host.ready()[0].error, WorkerDied)


@pytest.mark.parametrize("made", [Threads, partial(Processes, workers=1)])
def test_an_environment_that_hangs_as_it_closes_is_left_after_the_time_of_a_call(
    made: Callable[..., Host],
) -> None:
    with filled(made(call_s=DEADLINE_S), [StalledClosing, Scripted]) as host:
        for index in (0, 1):
            call(host, index, "reset", (1,))
        host.call_s = 0.02
        host.renew(0, Scripted)
        host.call_s = DEADLINE_S
        assert call(host, 1, "step", ("x",)).obs.startswith("x")
        assert call(host, 0, "reset", (2,)).obs == Scripted().reset(2).obs


def test_a_worker_says_that_it_goes_on_after_a_slow_close() -> None:
    with filled(Processes(call_s=DEADLINE_S, workers=1), [StalledClosing]) as host:
        call(host, 0, "reset", (1,))
        host.call_s = 0.02
        host.renew(0, Scripted)
        assert wait([host._workers[0].pipe], DEADLINE_S)  # so the time of the next call begins then


def test_closing_waits_for_no_environment_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CLOSE_S", 0.05)
    with filled(Threads(), [StalledClosing, Scripted]) as host:
        for index in (0, 1):
            call(host, index, "reset", (1,))
        closing = threading.Thread(target=host.close, daemon=True)
        closing.start()
        closing.join(DEADLINE_S)
        assert not closing.is_alive()


class ExitInClosing(Scripted):
    error: ClassVar[type[BaseException]] = SystemExit

    def close(self) -> None:
        raise self.error


class CancelInClosing(ExitInClosing):
    error = asyncio.CancelledError


@pytest.mark.parametrize("host", [Serial, Threads])
@pytest.mark.parametrize("recipe", [ExitInClosing, CancelInClosing])
def test_an_environment_that_exits_while_it_closes_ends_nothing(host: type[Host], recipe: type[Env]) -> None:
    with filled(host(), [recipe]) as made:
        call(made, 0, "reset", (1,))
        made.renew(0)
        assert call(made, 0, "reset", (1,)).obs == Scripted().reset(1).obs
        made.remove(0)


@pytest.mark.system
def test_a_worker_that_stalls_while_it_starts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with Processes(workers=1) as host:
        host.add(Scripted)
        os.kill(host.pids[0], signal.SIGSTOP)
        monkeypatch.setattr(processes, "START_S", 0.05)
        host.submit(0, "reset", (1,))
        (outcome,) = host.ready()
        monkeypatch.undo()
        assert isinstance(outcome.error, WorkerDied)
        assert "the start of a worker" in str(outcome.error)
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs


UNGUARDED = """
from gem.registry import Maker
from gem.hosts import make_host
print("imported")
with make_host("process", [Maker("game:GuessTheNumber-v0-easy")] * 4) as host:
    host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
    host.ready(4)
"""


@pytest.mark.system
def test_a_program_without_its_guard_gets_one_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=DEADLINE_S * 10)
    assert ran.returncode == 1
    assert 'if __name__ == "__main__":' in ran.stderr
    assert ran.stderr.count("Traceback") == 1


OWN = """
from gem.hosts import make_host
from host_envs import Scripted
class Own(Scripted): pass
with make_host("process", [Own]) as host:
    host.submit(0, "reset", (1,))
    raise host.ready()[0].error
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "given", "cure"),
    [
        (["-"], OWN, "was read from <stdin>, .* Put it into a file"),
        (["-c", OWN], "", "Put its class or function into a file"),
    ],
    ids=["stdin", "-c"],
)
def test_a_program_that_is_no_file_is_told_the_cure(arguments: list[str], given: str, cure: str) -> None:
    ran = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 10,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert re.search(f"BadArgument: .*{cure}", ran.stderr), ran.stderr


# -- workers that die


@pytest.mark.system
def test_a_killed_worker_is_replaced_and_all_its_episodes_are_reported() -> None:
    with filled(Processes(workers=2), [Scripted] * 4) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
        collect(host, 4)
        before = host.pids
        host.submit(0, "step", ("hang",))
        os.kill(before[0], signal.SIGKILL)
        (outcome,) = host.ready()
        assert outcome.failure is not None
        assert (outcome.index, outcome.failure.boundary, outcome.failure.type) == (0, "host", "WorkerDied")
        assert "-9" in outcome.failure.message
        assert host.pids[1] == before[1]
        assert not alive(before[0])
        # env 2 lived there too: it says so at its next step, once; a reset would have begun anew
        host.submit_all([(i, "step", ("go",), {}) for i in (1, 2, 3)])
        outcomes = collect(host, 3)
        assert [i for i in (1, 2, 3) if outcomes[i].error] == [2]
        assert call(host, 2, "reset", (2,)).obs == Scripted().reset(2).obs
        assert call(host, 0, "reset", (0,)).obs == Scripted().reset(0).obs


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the pipes of a process say that it ended")
def test_a_death_is_noticed_while_a_program_of_the_environment_lives(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with filled(Processes(call_s=DEADLINE_S), [partial(Survived, str(pid_file))]) as host:
        call(host, 0, "reset", (1,))
        host.submit(0, "step", ("x",))
        (outcome,) = host.ready()
        try:
            assert alive(int(pid_file.read_text()))
            assert "died (exit code 3)" in str(outcome.error)
        finally:
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the pipes of a process say that it ended")
@pytest.mark.parametrize(
    ("sent", "call_s", "why"),
    [
        (signal.SIGKILL, DEADLINE_S, "died (exit code -9)"),
        (signal.SIGSTOP, 0.1, "took longer than the 0.1 s"),
    ],
    ids=["killed", "stopped"],
)
def test_a_worker_that_falls_silent_inside_a_message_is_given_up(
    tmp_path: Path, sent: signal.Signals, call_s: float, why: str
) -> None:
    pid_file = tmp_path / "pid"
    with filled(Processes(call_s=DEADLINE_S), [partial(Survived, str(pid_file))]) as host:
        call(host, 0, "reset", (1,))
        host.call_s = call_s
        host.submit(0, "step", ("send",))
        assert wait([host._workers[0].pipe], DEADLINE_S)  # more than it holds at once
        os.kill(host.pids[0], sent)
        try:
            assert why in str(host.ready()[0].error)
        finally:
            os.kill(int(pid_file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("end", ["kill", "hang", "stall"])
def test_the_programs_of_a_worker_end_when_it_is_killed_or_dies(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    with filled(Processes(call_s=DEADLINE_S), [partial(Survived, str(pid_file))]) as host:
        call(host, 0, "reset", (1,))
        call(host, 0, "step", ("own",))
        program = int(pid_file.read_text())
        assert alive(program)
        if end == "kill":
            os.kill(host.pids[0], signal.SIGKILL)
            host.submit(0, "step", ("own",))
        elif end == "hang":
            host.call_s = 0.1
            host.submit(0, "step", ("compute",))
        else:
            monkeypatch.setattr(processes, "CLOSE_S", 0.1)
            os.kill(host.pids[0], signal.SIGSTOP)
        if end != "stall":
            assert isinstance(host.ready()[0].error, WorkerDied)
            until(lambda: not alive(program), "the program is still there")
    until(lambda: not alive(program), "the program is still there")


def test_large_messages_to_a_worker_that_does_not_read_are_given_up_as_others(tmp_path: Path) -> None:
    recipes = [partial(Survived, str(tmp_path / "pid")), Scripted]
    with filled(Processes(call_s=DEADLINE_S, workers=1), recipes) as host:
        for index in (0, 1):
            call(host, index, "reset", (1,))
        host.call_s = 0.1
        host.submit(0, "step", ("compute",))
        host.submit(1, "step", ("x" * 10_000_000,))
        assert all(isinstance(each.error, WorkerDied) for each in collect(host, 2).values())
        host.call_s = DEADLINE_S
        assert call(host, 1, "reset", (1,)).obs == Scripted().reset(1).obs


def test_a_reset_after_a_death_just_begins_anew() -> None:
    with filled(Processes(workers=1), [Scripted] * 2) as host:
        for i in range(2):
            call(host, i, "reset", (i,))
        host.submit(0, "step", ("die",))
        assert isinstance(host.ready()[0].error, WorkerDied)
        assert call(host, 1, "reset", (5,)).obs == Scripted().reset(5).obs


def test_a_worker_that_cannot_be_started_is_one_sentence_and_the_next_call_starts_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with filled(Processes(workers=1), [Scripted] * 2) as host:
        for index in (0, 1):
            call(host, index, "reset", (1,))
        os.kill(host.pids[0], signal.SIGKILL)
        host.submit(0, "step", ("go",))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no more files than are open
        try:
            (outcome,) = host.ready()
            assert isinstance(outcome.error, WorkerDied)
            with pytest.raises(WorkerDied, match=r"a worker process cannot start \(.*Too many open files"):
                host.submit(0, "reset", (1,))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs
        with pytest.raises(WorkerDied):
            call(host, 1, "step", ("go",))  # its episode was lost with the worker
        assert call(host, 1, "reset", (2,)).obs == Scripted().reset(2).obs


def test_workers_that_start_at_the_same_time_have_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(processes.SAFE_PATH, raising=False)
    start, second, seen = SpawnProcess.start, threading.Event(), []

    def start_another(process: SpawnProcess) -> None:
        seen.append(process._args[1])  # type: ignore[attr-defined]
        if len(seen) == 1:
            other.start()
            second.wait(0.2)  # without a lock it comes in
        second.set()
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", start_another)
    with Processes() as host, Processes() as another:
        other = threading.Thread(target=another.add, args=(Scripted,))
        host.add(Scripted)
        other.join()
        assert seen == [None, None]
        assert processes.SAFE_PATH not in os.environ


def test_a_worker_whose_interpreter_fails_says_that_it_never_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(Processes(workers=1), [Scripted]) as host:
        call(host, 0, "reset", (1,))
        monkeypatch.setattr("multiprocessing.spawn._python_exe", os.fsencode(shutil.which("false") or ""))
        os.kill(host.pids[0], signal.SIGKILL)
        host.submit(0, "step", ("go",))
        assert "the worker of this environment died" in str(host.ready()[0].error)
        host.submit(0, "reset", (1,))
        assert "ended before it could run (exit code 1)" in str(host.ready()[0].error)


@ANY
@pytest.mark.parametrize(
    ("action", "text"), [("lock", "<unlocked _thread.lock"), ("unloadable", "[<host_envs.Unloadable")]
)
def test_an_info_has_on_each_host_what_a_store_writes(kind: str, action: str, text: str) -> None:
    with make_host(kind, [Scripted] * 3) as host:
        host.map(range(3), "reset", range(3))
        (step, fine), errors = host.map([0, 1], "step", [action, "fine"])
        assert errors == {}
        assert (step.obs, step.info["turns"], fine.obs.split()[0]) == (action, (1, 2), "fine")
        assert str(codec.restored(codec.plain(step.info["it"]))).replace("'", "").startswith(text)
        assert call(host, 2, "introduce") == (None, 2)  # its worker goes on


@ANY
@pytest.mark.parametrize("recipe", [Careless, CarelessSeats])
def test_a_result_is_checked_and_copied_where_its_environment_runs(
    kind: str, recipe: Callable[..., Env]
) -> None:
    faults = [(fault, when) for fault in ("bytes", "knot") for when in ("reset", "step")]
    recipes = [recipe, *(partial(recipe, *fault) for fault in faults)]
    with filled(make_host(kind), recipes) as host:
        (start, *_), failed = host.map(range(5), "reset", range(5))
        action = "go" if recipe is Careless else {"p0": "go"}
        (step, *_), broken = host.map([0, 2, 4], "step", [action] * 3)
        obs, reward, info = step[0], step[1], step[-1]
        if recipe is Careless:
            assert (start, obs, reward, info) == (("seen", {"a": 1}), "seen", 0.5, {"a": 1})
        else:
            assert start == ({"p0": "seen"}, {"p0": {}, "p1": {"a": 1}})
            assert (obs, reward, info) == ({"p0": "seen"}, {"p0": 0.0, "p1": 0.5}, start[1])
    for errors in (failed, broken):
        assert [type(error) for error in errors.values()] == [BadArgument, RecursionError]
    assert (list(failed), list(broken)) == ([1, 3], [1, 2])


def test_no_numpy_value_is_loaded_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(6.0).reshape(2, 3)
    arrays = [array, array[:, ::2], array.astype("f4,i2"), np.array([{"it": np.True_}, None])]
    sent = Step("o", np.float64(1), np.False_, False, {"scalar": np.float32(0.5), "arrays": arrays})
    loaded: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr("pickle.loads", loaded.append)
        message = processes.pack_outcomes([Outcome(0, sent, None)])
    assert loaded == []
    (outcome,) = processes.unpack_outcomes(message)
    assert codec.plain(outcome.value) == codec.plain(sent)
    assert outcome.value.info["arrays"][0].flags.writeable
    others = Step("o", 0.0, False, False, {"array": np.array([Unloadable()])})
    (outcome,) = processes.unpack_outcomes(processes.pack_outcomes([Outcome(0, others, None)]))
    assert "Unloadable" in str(outcome.value.info["array"])


@pytest.mark.parametrize("verb", ["sample_random_action", "solve"])
def test_a_result_that_cannot_be_sent_is_that_calls_error(verb: str) -> None:
    with filled(Processes(workers=1), [Unsent] * 2) as host:
        host.map([0, 1], "reset", [0, 1])
        host.submit_all([(0, verb, (), {}), (1, "step", ("fine",), {})])
        outcomes = collect(host, 2)
        assert outcomes[1].value.obs.startswith("fine")
        assert isinstance(outcomes[0].error, NoVerdict)
        assert re.search(r"by the process host \(.*\); accepted: what pickle can", str(outcomes[0].error))
        assert call(host, 0, "introduce") == (None, 0)


def test_an_argument_that_cannot_be_pickled_is_refused_before_anything_begins() -> None:
    with filled(Processes(workers=1), [Scripted]) as host:
        with pytest.raises((TypeError, pickle.PicklingError)):
            host.submit(0, "step", (threading.Lock(),))
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs


def test_an_argument_that_the_worker_cannot_load_ends_the_worker_and_not_the_wait() -> None:
    with filled(Processes(workers=1), [Scripted]) as host:
        call(host, 0, "reset", (1,))
        host.submit(0, "step", (Unloadable(),))
        (outcome,) = host.ready(timeout=DEADLINE_S)
        assert isinstance(outcome.error, WorkerDied)
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs


def test_large_messages_both_ways_do_not_block_each_other() -> None:
    text = "x" * 1_000_000
    with filled(Processes(workers=1), [Scripted] * 4) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
        collect(host, 4)
        for i in range(4):  # nobody reads while these are written
            host.submit(i, "step", (text,))
        assert all(len(o.value.obs) > 1_000_000 for o in collect(host, 4).values())


@pytest.mark.system
@pytest.mark.parametrize("kind", ["serial", "process"])
def test_children_of_an_environment_are_those_of_any_program(kind: str) -> None:
    with make_host(kind, [Parental]) as host:
        call(host, 0, "reset", (1,))
        info = call(host, 0, "step", ("x",)).info
    assert info == {"program": "True", "spawned": 0, "forked": 0}


FORKS = """
import sys
from host_envs import Forking
from gem.hosts import make_host
if __name__ == "__main__":
    with make_host({kind!r}, [Forking] * 2) as host:
        host.map([0, 1], "reset", [1, 2])
        sys.stderr.close()  # where a fork would say its error
        for action in ("exit", "raise", "interrupt", "return"):
            steps, errors = host.map([0, 1], "step", [action] * 2)
            print(action, *[step.info["fork"] for step in steps], errors, flush=True)
    print("closed")
"""


@ANY
@pytest.mark.system
def test_a_fork_that_leaves_its_call_ends(kind: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS.format(kind=kind)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S * 10,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert ran.stdout == "exit 3 3 {}\nraise 1 1 {}\ninterrupt 1 1 {}\nreturn 0 0 {}\nclosed\n"


FORKED = """
import os
from host_envs import Scripted
from gem.errors import EnvClosed
from gem.hosts import make_host
if __name__ == "__main__":
    with make_host({kind!r}, [Scripted] * 2) as host:
        host.map([0, 1], "reset", [1, 2])
        host.submit(0, "step", ("a",))
        fork = os.fork()
        for call in (host.ready, lambda: host.map([1], "step", ["b"]), lambda: host.add(Scripted)):
            try:
                call()
                said = "called"
            except EnvClosed as error:
                said = str(error)[:14]
            os.write(1, f"{{said}}\\n".encode())  # at once: two processes write
        if not fork:
            host.remove(1)
            host.close()
            os._exit(0)
        os.waitpid(fork, 0)
        print(host.map([0, 1], "step", ["go", "go"])[1], flush=True)
"""


@ANY
@pytest.mark.system
def test_a_fork_of_the_process_leaves_its_parents_environments_alone(kind: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED.format(kind=kind)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S * 10,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    in_fork = "called" if kind == "serial" else "this process i"
    assert sorted(ran.stdout.splitlines()) == sorted([*["called"] * 3, *[in_fork] * 3, "{}"])


@pytest.mark.system
def test_close_ends_every_worker_thread_and_pipe() -> None:
    with filled(Processes(workers=1), [Scripted]):
        pass  # whatever the interpreter opens once is open now
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with filled(Processes(workers=3), [Scripted] * 3) as host, filled(Threads(), [Scripted] * 3) as other:
        for each in (host, other):
            each.submit_all([(i, "reset", (i,), {}) for i in range(3)])
            collect(each, 3)
        pids = host.pids
        host.submit(0, "step", ("go",))  # in flight while it closes
    assert not any(map(alive, pids))
    assert len(os.listdir("/proc/self/fd")) == files
    assert threading.active_count() == threads


def test_close_waits_for_no_thread_that_was_not_started(monkeypatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with filled(Threads(), [Scripted] * 3) as host, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            host.submit_all([(i, "reset", (i,), {}) for i in range(3)])


ORPHANS = """
import sys, time
from host_envs import Scripted
from gem.hosts import make_host
from gem.hosts.processes import Processes
if __name__ == "__main__":
    host = make_host(Processes(workers=2), [Scripted] * 2)
    for i in range(2):
        host.submit(i, "reset")
        host.ready()
    host.submit(0, "step", ("hang",))
    print(*host.pids, flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "sent", "code"),
    [
        ("time.sleep(60)", signal.SIGKILL, -signal.SIGKILL),
        ("sys.exit()", None, 0),
        ("host.ready()", signal.SIGINT, -signal.SIGINT),
    ],
    ids=["killed", "exits", "interrupted"],
)
@pytest.mark.system
def test_no_worker_outlives_its_parent(
    tmp_path: Path, then: str, sent: signal.Signals | None, code: int
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(ORPHANS.format(then=then))
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        if sent is not None:
            parent.send_signal(sent)
        assert parent.wait(DEADLINE_S) == code
        assert parent.stderr is not None
        said = parent.stderr.read()
    assert said.count("Traceback") == (1 if sent is signal.SIGINT else 0), said
    until(lambda: not any(map(alive, pids)), "workers are still there")


# -- threads


def test_an_environment_that_is_not_thread_safe_is_entered_by_one_thread_at_a_time() -> None:
    ids = {
        name: EnvSpec(f"test:{name}", Rendezvous, thread_safe=name == "Safe") for name in ("Safe", "Unsafe")
    }
    for spec in ids.values():
        register(spec)
    try:
        for name, at_once in (("Safe", range(2, 9)), ("Unsafe", range(1, 2))):
            Rendezvous.most.clear()
            recipes = [Maker(f"test:{name}")] * 4 + [Maker(f"test:{name}").__call__] * 4
            with filled(Threads(), recipes) as host:
                host.submit_all([(i, "reset", (i,), {}) for i in range(8)])
                collect(host, 8)
                for _ in range(3):
                    host.submit_all([(i, "step", ("go",), {}) for i in range(8)])
                    collect(host, 8)
            assert max(Rendezvous.most) in at_once
    finally:
        for spec in ids.values():
            del ENV_REGISTRY[spec.id]


def test_all_blocking_calls_run_at_the_same_time() -> None:
    everybody = threading.Barrier(50, timeout=DEADLINE_S)
    with filled(Threads(), [partial(Scripted, gate=everybody)] * 50) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(50)])
        host.ready(50)
        host.submit_all([(i, "step", ("meet",), {}) for i in range(50)])
        assert all(outcome.error is None for outcome in host.ready(50))


def test_cheap_calls_in_a_loop_lose_nothing() -> None:
    with filled(Threads(), [Scripted] * 8) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(8)])
        host.ready(8)
        seen = [0] * 8
        for _ in range(2000):
            idle = [i for i in range(8) if i not in host.busy]
            host.submit_all([(i, "introduce", (), {}) for i in idle])
            for outcome in host.ready():
                seen[outcome.index] += outcome.value == (None, outcome.index)
        assert sum(seen) + len(host.busy) >= 2000


def test_an_interrupt_inside_a_call_loses_that_call_alone() -> None:
    with filled(Serial(), [Scripted] * 3) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(3)])
        host.ready(3)
        host.submit_all([(i, "step", ("interrupt" if i == 1 else "go",), {}) for i in range(3)])
        with pytest.raises(KeyboardInterrupt):
            host.ready(3)
        outcomes = collect(host, 3)
        assert [i for i in range(3) if outcomes[i].error] == [1]
        assert "KeyboardInterrupt" in str(outcomes[1].error)


# -- environments come and go


@ANY
def test_environments_come_and_go_and_no_index_comes_twice(kind: str) -> None:
    with make_host(kind) as host:
        assert len(host) == 0
        one, two = host.add(Scripted), host.add(partial(Scripted, length=7))
        assert call(host, two, "get_state")["length"] == 7
        host.submit(one, "reset", (1,))
        three = host.add(partial(Scripted, length=9))  # while a call is in flight
        host.ready()
        host.remove(two)
        assert (len(host), one in host, two in host, three in host) == (2, True, False, True)
        for use in (host.renew, host.remove, lambda index: host.submit(index, "reset")):
            with pytest.raises(BadArgument, match=f"env index is {two}; .* there are 2"):
                use(two)
        four = host.add(Scripted)
        assert [one, two, three, four] == [0, 1, 2, 3]
        assert call(host, three, "get_state")["length"] == 9
        assert call(host, four, "reset", (3,)).obs == Scripted().reset(3).obs


@ANY
@pytest.mark.parametrize("count", [1, 3])
def test_a_map_gives_values_and_errors_by_their_place(kind: str, count: int) -> None:
    with make_host(kind, [Scripted] * count) as host:
        starts, errors = host.map(range(count), "reset", range(count))
        assert [start.obs for start in starts] == [Scripted().reset(seed).obs for seed in range(count)]
        assert errors == {}
        actions = ["go"] * (count - 1) + ["raise"]
        values, errors = host.map(range(count)[::-1], "step", actions)
        assert [value and value.obs.split()[0] for value in values] == ["go"] * (count - 1) + [None]
        assert {place: type(error) for place, error in errors.items()} == {count - 1: ValueError}


@ANY
def test_what_is_removed_or_renewed_is_closed_at_once(kind: str, tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("removed", "renewed", "never made", "stays")]
    with make_host(kind, [partial(Leaving, str(path)) for path in left]) as host:
        for index in (0, 1, 3):
            call(host, index, "reset", (1,))
        host.remove(0)
        host.renew(1)
        host.remove(2)
        until(lambda: left[0].exists() and left[1].exists(), "it was not closed")
        assert [path.exists() for path in left] == [True, True, False, False]
        host.renew(1)  # nothing is there to be closed
        host.remove(1)


def test_a_new_environment_goes_to_the_worker_that_has_fewest() -> None:
    with filled(Processes(workers=2), [Scripted] * 4) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(4)])
        pids = [outcome.value.info["pid"] for _, outcome in sorted(collect(host, 4).items())]
        assert pids == [host.pids[0], host.pids[1]] * 2
        host.remove(1)
        host.remove(3)
        for index in (host.add(Scripted), host.add(Scripted)):
            assert call(host, index, "reset").info["pid"] == host.pids[1]
        assert len(host.pids) == 2


@pytest.mark.system
def test_an_environment_that_is_alone_takes_nobody_along_and_its_worker_goes_with_it() -> None:
    with filled(Processes(workers=1), [Scripted]) as host:
        call(host, 0, "reset", (1,))
        alone = host.add(Scripted, alone=True)
        assert call(host, alone, "reset", (2,)).info["pid"] == host.pids[1]
        other = host.add(Scripted)
        assert call(host, other, "reset", (2,)).info["pid"] == host.pids[0]
        host.submit(alone, "step", ("die",))
        assert isinstance(host.ready()[0].error, WorkerDied)
        assert call(host, 0, "step", ("x",)).obs.startswith("x")
        again = call(host, alone, "reset", (2,))
        assert (again.obs, again.info["pid"]) == (Scripted().reset(2).obs, host.pids[1])
        host.remove(alone)
        assert not alive(again.info["pid"])
        assert len(host.pids) == 1


def test_a_thread_starts_only_when_there_is_a_call_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 2)
    inside = threading.Semaphore(0)
    gate = threading.Event()

    class Inside(Scripted):
        def step(self, action: str) -> Any:
            inside.release()
            return super().step(action)

    with filled(Threads(), [partial(Inside, gate=gate)] * 4) as host:
        host.submit(0, "reset", (0,))
        assert len(host.ready(timeout=DEADLINE_S)) == 1
        assert len(host._threads) == 1
        for index in (1, 2, 3):
            call(host, index, "reset", (0,))
        host.submit_all([(i, "step", ("wait",), {}) for i in range(4)])
        assert all(inside.acquire(timeout=DEADLINE_S) for _ in range(2))
        assert len(host._threads) == 2
        gate.set()
        host.ready(4)


@pytest.mark.parametrize("thread_safe", [True, False])
def test_what_a_thread_made_is_closed_when_it_is_removed(thread_safe: bool, tmp_path: Path) -> None:
    spec = EnvSpec("test:Leaving", Leaving, {"path": str(tmp_path / "closed")}, thread_safe=thread_safe)
    register(spec)
    try:
        with filled(Threads(), [Maker(spec.id)] * 2) as host:
            host.remove(0)  # never made
            assert not (tmp_path / "closed").exists()
            call(host, 1, "reset", (1,))
            host.remove(1)
            assert (tmp_path / "closed").exists()
    finally:
        del ENV_REGISTRY[spec.id]


def test_a_host_that_nobody_closes_ends_its_threads_and_keeps_no_environment() -> None:
    everybody = threading.Barrier(3, timeout=DEADLINE_S)
    host = filled(Threads(), [partial(Scripted, gate=everybody)] * 3)
    for verb, args in (("reset", (1,)), ("step", ("meet",))):
        host.submit_all([(index, verb, args, {}) for index in range(3)])
        while host.busy:
            host.ready(timeout=0.01)  # a caller that waits for all without a limit would work itself
    workers, kept = list(host._threads), [weakref.ref(host), weakref.ref(host.env(0))]
    assert len(workers) == 3
    del host
    for worker in workers:
        worker.join(DEADLINE_S)
        assert not worker.is_alive()
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_threads_beyond_the_number_of_environments_end() -> None:
    everybody = threading.Barrier(8, timeout=DEADLINE_S)
    before = threading.active_count()
    with filled(Threads(), [partial(Scripted, gate=everybody)] * 8) as host:
        host.submit_all([(i, "reset", (i,), {}) for i in range(8)])
        host.ready(8)
        host.submit_all([(i, "step", ("meet",), {}) for i in range(8)])
        host.ready(8)
        for index in range(1, 8):
            host.remove(index)

        def one_is_left() -> bool:
            host.submit(0, "introduce")
            while not host.ready(timeout=0.01):
                pass
            return threading.active_count() == before + 1

        until(one_is_left, "idle threads stay")


def test_a_call_given_up_under_one_limit_is_not_delivered_under_another() -> None:
    gate, done = threading.Event(), threading.Event()

    class Late(Scripted):
        def close(self) -> None:
            done.set()

    with filled(Threads(call_s=DEADLINE_S), [partial(Late, gate=gate)]) as host:
        call(host, 0, "reset", (1,))
        host.call_s = 0.02
        host.submit(0, "step", ("wait",))
        assert isinstance(host.ready()[0].error, WorkerDied)
        host.call_s = None
        gate.set()
        assert done.wait(DEADLINE_S)
        assert call(host, 0, "introduce") == (None, None)
        assert host.busy == set()


def test_env_is_the_environment_where_it_lives_here() -> None:
    for host in (Serial(), Threads()):
        with filled(host, [Scripted]):
            env = host.env(0)
            call(host, 0, "reset", (4,))
            assert (type(env), env.seed) == (Scripted, 4)
            with pytest.raises(BadArgument, match="env index is 5"):
                host.env(5)
    with (
        filled(Processes(workers=1), [Scripted]) as host,
        pytest.raises(BadArgument, match="other processes"),
    ):
        host.env(0)


# -- which host


@pytest.mark.parametrize(
    "address", ["", "host:80", "ftp://host", "http://", "http:///x", "http://h/?q=1", "http://h/#f"]
)
def test_an_address_of_no_server_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEM_SERVE_URL", raising=False)
    with pytest.raises(BadArgument, match="the server's address is"):
        Remote(address=address)


@pytest.mark.parametrize("address", ["http://h", "https://h:8000/", "http://[::1]:8000/below"])
def test_an_address_is_taken_without_its_last_slash(address: str) -> None:
    with Remote(address=address) as host:
        assert host.url == address.rstrip("/")


def test_an_instance_is_taken_as_it_is_and_left_open() -> None:
    with Serial() as mine:
        mine.add(partial(Scripted, length=2))
        assert make_host(mine, [partial(Scripted, length=8)], call_s=5.0) is mine
        assert (len(mine), mine.call_s) == (2, 5.0)
        with pytest.raises(BadArgument, match="is None"):
            make_host(mine, [None])  # type: ignore[list-item]
        assert call(mine, 1, "get_state")["length"] == 8


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that offers two hosts, one of which cannot be imported."""
    (tmp_path / "other_hosts.py").write_text(
        "from gem.hosts.serial import Serial\nclass Far(Serial):\n    '''As if it were elsewhere.'''\n"
    )
    info = tmp_path / "other_hosts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-hosts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gem.hosts]\nfar = other_hosts:Far\nbroken = other_hosts:Near\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugged")
def test_a_package_offers_hosts_by_name() -> None:
    with make_host("far", [Scripted], call_s=9.0) as host:
        assert (type(host).__name__, host.call_s) == ("Far", 9.0)
        assert call(host, 0, "reset", (1,)).obs == Scripted().reset(1).obs
    with pytest.raises(BadArgument, match=r"plug-in 'broken' \(other_hosts:Near\) cannot be loaded"):
        make_host("broken")
    with pytest.raises(BadArgument, match="thread, process, remote, broken, far, or an instance"):
        make_host("fra")


def test_what_waits_belongs_on_threads() -> None:
    quick, waits = gem.spec("game:GuessTheNumber-v0-easy"), gem.spec("terminal:Archives-v0-easy")
    assert auto_kind([quick]) == "serial" == auto_kind([])
    assert auto_kind([quick, waits]) == "thread"
    told = {gem.spec(id).family for id in gem.ids() if gem.spec(id).waits}
    assert told == {"code", "data", "eval", "terminal", "repo", "db", "mcp", "miniwob"}
    assert not gem.spec("eval:AIME24").waits


@pytest.mark.system
def test_an_id_that_is_registered_here_alone_is_played_in_another_process() -> None:
    for entry_point in (Scripted, "host_envs:Scripted"):
        register(EnvSpec("test:Here", entry_point, {"length": 4}))
        try:
            recipe = Maker(
                "test:Here", {}, ("concat", WrapperRef("gem.wrappers:TimeLimit", {"max_steps": 2}))
            )
        finally:
            del ENV_REGISTRY["test:Here"]
        with filled(Processes(workers=1), [recipe]) as host:
            task, assembles_history = call(host, 0, "describe")
            assert (task.spec, task.entry_point, task.kwargs) == (
                "test:Here",
                "host_envs:Scripted",
                {"length": 4},
            )
            assert assembles_history
            call(host, 0, "reset", (1,))
            assert not call(host, 0, "step", ("x",)).done
            assert call(host, 0, "step", ("x",)).truncated
