"""The table: boundary x fault x driver x host. What must hold in every cell stands in `verify`.

Cells that cannot be, or say nothing, are left out:

* worker on the serial and the thread host: the worker is the run's own process; its death is that of the run,
  which `test_a_run_that_is_killed_in_the_middle_of_a_line_goes_on` plays.
* agent, endpoint and store on several hosts: they live in the run's own process whatever the host, so serial
  and process stand for all.
* full disk at worker, grader, agent and endpoint: they write no files; half-written likewise, but for stores.
* hangs of a grader or a sandbox: they are hangs of the environment's call, as a tool's is.
* a hang of an agent in rounds that answers batches by itself: nothing can cut its batch short (see Runner).
"""

import asyncio
import contextlib
import errno
import itertools
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from types import ModuleType

import fault_worlds
import pytest
from fault_worlds import CALLS, Speaker, recipe

import gem
from gem.agents.openai import OpenAIAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, StoreError
from gem.hosts.processes import Processes
from gem.record import Limits, Verdict
from gem.registry import task_of
from gem.rollout import EpisodeStore, Job, rollout, rollout_async
from gem.sandbox import open_sandbox, shared
from gem.sandbox.base import SandboxFailed
from gem.testing import garbage
from gem.testing.doubles import EchoEnv
from gem.testing.faults import (
    KINDS,
    Fault,
    Faults,
    FaultyAgent,
    FaultyServer,
    FaultyStore,
    FaultyWrapper,
    Fell,
    full_disk,
    kill_process,
    release,
)
from gem.testing.leaks import Held, count_held, descendants, held_after

EVER = 99
SEEDS = range(8)
HIT = 3
CALL_S = {"serial": 0.2, "thread": 0.2, "process": 2.5}
"""For calls that take far less than a millisecond, but for the first one in a new process, which imports."""


def rounds(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def paces(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [rounds, paces])
thread, process = (pytest.param(host, marks=pytest.mark.system) for host in ("thread", "process"))
hosts = pytest.mark.parametrize("host", ["serial", thread, process])
few_hosts = pytest.mark.parametrize("host", ["serial", process])


@pytest.fixture(scope="module", autouse=True)
def light_main():
    """Keep workers from importing pytest, which a spawned process does with its parent's main module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        yield


@pytest.fixture(scope="module", autouse=True)
def no_shared_sandbox():
    """Close the sandbox that earlier tests share: what it makes beforehand would count as left over."""
    for opened in shared._shared.values():
        opened.close()
    shared._shared.clear()


@pytest.fixture(scope="module")
def workers():
    with Processes(workers=2) as host:
        yield host


@pytest.fixture
def own_sandbox(monkeypatch):
    """A sandbox for one test, that leaves nothing behind when it is closed."""
    try:
        opened = open_sandbox()
    except SandboxFailed as absent:
        pytest.skip(f"no backend of the sandbox is to be had here: {absent}")
    opened.close()
    before = count_held()
    with contextlib.closing(open_sandbox()) as opened:
        monkeypatch.setattr(fault_worlds, "default_sandbox", lambda: opened)
        yield
    after = held_after(before)
    assert after.within(before), (before, after)


def hanging(host):
    """Return the options of a run with a hang; where importing takes long, innocents may need more tries."""
    return {"call_s": CALL_S[host], "retries": 5 if host == "process" else 1}


def ready(workers):
    """Return the host once all of its workers are up."""
    workers.call_s = None
    rollout([Job(recipe("env", Faults()), seed) for seed in (0, 1)], Speaker(), host=workers)
    return workers


def late(kind, host):
    """Return how long something hangs, for sure longer than its call may take; else None."""
    return 2 * CALL_S[host] if kind == "hang" else None


def jobs_of(world, plan, seeds=SEEDS):
    made = recipe(world, plan)
    return [Job(made, seed, key=str(seed)) for seed in seeds]


_free = {}


def fault_free(world, agent, seeds=SEEDS):
    """Return the hashes of the same jobs where nothing breaks."""
    key = world, type(agent), tuple(seeds)
    if key not in _free:
        _free[key] = {
            episode.seed: episode.transcript_hash()
            for episode in rollout(jobs_of(world, Faults(), seeds), agent, host="serial")
        }
    return _free[key]


def verify(store, episodes, free, broken):
    """Nothing is lost or twice; who is in `broken` has that error and no score, all others are as ever."""
    assert [episode.job for episode in episodes] == [str(seed) for seed in free]
    stored = store.select()
    assert len({entry.id for entry in stored}) == len(stored)
    assert sorted(entry.id for entry in store.latest()) == sorted(episode.id for episode in episodes)
    for episode in episodes:
        attempts = sorted(entry.attempt for entry in stored if entry.job == episode.job)
        assert attempts == list(range(episode.attempt + 1))
        if episode.seed not in broken:
            assert episode.scored, (episode.seed, episode.error)
            assert episode.transcript_hash() == free[episode.seed]
            continue
        boundary, kind = broken[episode.seed]
        assert episode.verdict is Verdict.NONE
        assert episode.error.boundary == boundary, episode.error
        assert kind in (None, episode.error.type), episode.error


def play_cell(
    tmp_path,
    drive,
    host,
    workers,
    world,
    plan,
    agent,
    broken,
    seeds=SEEDS,
    fault_free_of=None,
    retries=1,
    **limits,
):
    """Play the jobs under a plan, and compare what is held before and after."""
    free = fault_free(world, fault_free_of or agent, seeds)
    host = ready(workers) if host == "process" else host
    before = count_held()
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        episodes = drive(
            jobs_of(world, plan, seeds),
            agent,
            host=host,
            store=store,
            limits=Limits(**limits),
            concurrency=4,
            retries=retries,
        )
        verify(store, episodes, free, broken)
    release()
    agent.close() if hasattr(agent, "close") else None
    if world not in ("judge", "python", "endpoint"):  # what is still open there is looked at by the caller
        after = held_after(before)
        assert after.within(before), (before, after)
    return episodes


# -- environments, and the processes they live in

ENV_ROWS = [
    ("env", "fail", 1, None),
    ("env", "fail", EVER, ("env", "NoVerdict")),
    ("env", "raise", 1, ("env", "Fell")),
    ("env", "full-disk", 1, ("env", "OSError")),
    ("env", "slow", 1, None),
    ("env", "hang", 1, None),
    ("env", "hang", EVER, ("host", "WorkerDied")),
    ("worker", "die", 1, None),
    ("worker", "die", EVER, ("host", "WorkerDied")),
    ("worker", "hang", 1, None),
    ("worker", "garbage", 1, None),
    ("worker", "garbage", EVER, ("env", "NoVerdict")),
]


@pytest.mark.parametrize(
    ("drive", "host", "at"),
    [
        pytest.param(
            *(drive, host, at),
            marks=[pytest.mark.slow] * (host == "process" and (drive, at) != (rounds, 2))
            + [pytest.mark.system] * (host != "serial" or (drive, at) == (rounds, 0)),
        )
        for drive in (rounds, paces)
        for host in ("serial", "thread", "process")
        for at in (0, 2)
    ],
)
@pytest.mark.parametrize(("boundary", "kind", "times", "error"), ENV_ROWS)
def test_environments_and_workers(tmp_path, drive, host, workers, at, boundary, kind, times, error):
    if boundary == "worker" and host != "process":
        pytest.skip("the worker is this process")
    if kind == "hang" and host == "process" and at == 0:
        pytest.skip("seconds long, and the same as later")
    if kind == "hang" and host == "process" and times == EVER:
        pytest.skip("see test_a_process_that_always_hangs")
    limits = hanging(host) if kind == "hang" else {}
    fault = Fault(boundary, kind, at=at, times=times, of=(HIT,), seconds=late(kind, host))
    plan = Faults((fault,), folder=str(tmp_path))
    broken = {HIT: error} if error else {}
    play_cell(tmp_path, drive, host, workers, boundary, plan, Speaker(), broken, **limits)


@pytest.mark.slow
@both
@pytest.mark.parametrize("boundary", ["env", "worker"])
def test_a_process_that_always_hangs(tmp_path, drive, workers, boundary):
    plan = Faults((Fault(boundary, "hang", at=1, times=EVER, of=(HIT,)),), folder=str(tmp_path))
    broken = {HIT: ("host", "WorkerDied")}
    limits = hanging("process")
    play_cell(tmp_path, drive, "process", workers, boundary, plan, Speaker(), broken, **limits)


@both
@hosts
@pytest.mark.parametrize(("forms", "at"), [(garbage.STARTS, 0), (garbage.STEPS, 2)])
def test_garbage_of_an_environment_is_no_verdict(tmp_path, drive, host, workers, forms, at):
    seeds = range(len(forms) + 2)
    faults = [Fault("env", "garbage", at=at, of=(form,), form=form) for form in range(len(forms))]
    broken = dict.fromkeys(range(len(forms)), ("env", None))
    play_cell(tmp_path, drive, host, workers, "env", Faults(tuple(faults)), Speaker(), broken, seeds)


# -- tools, graders, sandboxes

TOOL_ROWS = [
    ("fail", 1, None),
    ("fail", EVER, ("env", "NoVerdict")),
    ("raise", 1, ("env", "Fell")),
    ("full-disk", 1, ("env", "OSError")),
    ("slow", 1, None),
    ("hang", 1, None),
]


@pytest.mark.system
@both
@hosts
@pytest.mark.parametrize(("kind", "times", "error"), TOOL_ROWS)
def test_tools(tmp_path, drive, host, workers, kind, times, error):
    limits = hanging(host) if kind == "hang" else {}
    fault = Fault("tool", kind, at=0, times=times, of=(HIT,), seconds=late(kind, host))
    plan = Faults((fault,), folder=str(tmp_path))
    broken = {HIT: error} if error else {}
    play_cell(tmp_path, drive, host, workers, "tool", plan, Speaker(CALLS["tool"]), broken, **limits)


@both
@hosts
def test_garbage_of_a_tool_is_the_tools_failure_and_not_the_agents(tmp_path, drive, host, workers):
    faults = [Fault("tool", "garbage", times=EVER, of=(form,), form=form) for form in range(8)]
    broken = dict.fromkeys(range(8), ("env", "NoVerdict"))
    plan = Faults(tuple(faults))
    assert len(garbage.RESULTS) <= len(SEEDS) + 1
    play_cell(tmp_path, drive, host, workers, "tool", plan, Speaker(CALLS["tool"]), broken)


@both
@hosts
@pytest.mark.parametrize(
    ("kind", "times", "error"),
    [
        ("fail", 1, None),
        ("fail", EVER, ("env", "NoVerdict")),
        ("raise", 1, ("env", "Fell")),
        ("slow", 1, None),
        ("garbage", 1, None),
    ],
)
def test_graders(tmp_path, drive, host, workers, kind, times, error):
    seeds = range(len(garbage.SCORES))
    faults = [Fault("grader", kind, times=times, of=(_answer(seed),), form=seed) for seed in seeds]
    plan = Faults(tuple(faults), folder=str(tmp_path))
    broken = dict.fromkeys(seeds, error) if error else {}
    play_cell(tmp_path, drive, host, workers, "grader", plan, SolverAgent(), broken, seeds)


@both
@hosts
def test_garbage_of_a_grader_is_no_verdict(tmp_path, drive, host, workers):
    seeds = range(len(garbage.SCORES))
    faults = [Fault("grader", "garbage", times=EVER, of=(_answer(seed),), form=seed) for seed in seeds]
    broken = dict.fromkeys(seeds, ("env", "NoVerdict"))
    play_cell(tmp_path, drive, host, workers, "grader", Faults(tuple(faults)), SolverAgent(), broken, seeds)


def _answer(seed):
    env = fault_worlds.graded(Faults())
    env.reset(seed=seed)
    return env.solve()


SANDBOX_ROWS = [
    ("fail", ("env", "SandboxFailed")),
    ("raise", ("env", "Fell")),
    ("full-disk", ("env", "OSError")),
    ("slow", None),
    ("die", None),
]


@pytest.mark.system
@pytest.mark.parametrize(
    ("drive", "host"),
    [(rounds, "serial"), (paces, "thread")]
    + [pytest.param(*other, marks=pytest.mark.slow) for other in ((rounds, "thread"), (paces, "serial"))],
)
@pytest.mark.parametrize("world", ["judge", "python"])
@pytest.mark.parametrize(("kind", "error"), SANDBOX_ROWS)
def test_sandboxes(tmp_path, drive, host, workers, own_sandbox, world, kind, error):
    seeds = range(1) if kind == "die" else range(3)  # a death takes along what runs beside
    plan = Faults((Fault("sandbox", kind, times=EVER),))
    agent = SolverAgent() if world == "judge" else Speaker(CALLS["python"])
    broken = dict.fromkeys(seeds, error) if error else {}
    play_cell(tmp_path, drive, host, workers, world, plan, agent, broken, seeds)


@pytest.mark.system
@pytest.mark.parametrize("drive", [rounds, paces])
@pytest.mark.parametrize(
    ("world", "forms"), [("judge", garbage.JUDGEMENTS), ("python", garbage.RUNS)], ids=["judge", "python"]
)
def test_garbage_of_a_sandbox_is_no_verdict(tmp_path, drive, workers, own_sandbox, world, forms):
    agent = SolverAgent() if world == "judge" else Speaker(CALLS["python"])
    for form in range(len(forms)):
        plan = Faults((Fault("sandbox", "garbage", times=EVER, form=form),))
        folder = tmp_path / str(form)
        folder.mkdir()
        broken = {0: ("env", None)}
        play_cell(folder, drive, "serial", workers, world, plan, agent, broken, range(1))


# -- agents and endpoints

AGENT_ROWS = [
    ("fail", ("agent", "NoVerdict"), {}),
    ("raise", ("agent", "Fell"), {}),
    ("slow", None, {}),
    ("hang", ("agent", "OutOfTime"), {"policy_s": 0.5}),
]


@both
@few_hosts
@pytest.mark.parametrize(("kind", "error", "limits"), AGENT_ROWS)
def test_agents(tmp_path, drive, host, workers, kind, error, limits):
    plan = Faults((Fault("agent", kind, at=1, of=(HIT,)),))
    agent = FaultyAgent(Speaker(), plan)
    broken = {HIT: error} if error else {}
    play_cell(
        tmp_path, drive, host, workers, "env", Faults(), agent, broken, fault_free_of=Speaker(), **limits
    )


@both
@few_hosts
def test_garbage_of_an_agent_is_no_verdict(tmp_path, drive, host, workers):
    seeds = range(garbage.TOO_FEW)
    faults = [Fault("agent", "garbage", at=1, of=(seed,), form=seed) for seed in seeds]
    agent = FaultyAgent(Speaker(), Faults(tuple(faults)))
    broken = dict.fromkeys(seeds, ("agent", None))
    play_cell(tmp_path, drive, host, workers, "env", Faults(), agent, broken, seeds, fault_free_of=Speaker())


@both
def test_a_batch_with_too_few_answers_costs_the_ask_without_one_alone(tmp_path, drive, workers):
    plan = Faults((Fault("agent", "garbage", at=1, of=(HIT,), form=garbage.TOO_FEW),))
    agent = FaultyAgent(Speaker(), plan)
    broken = {HIT: ("agent", None)}  # a batch is asked again in halves until who breaks it is alone
    play_cell(tmp_path, drive, "serial", workers, "env", Faults(), agent, broken, fault_free_of=Speaker())


ENDPOINT_ROWS = [
    ("fail", 1, None),
    ("fail", EVER, ("agent", "NoVerdict")),
    ("die", 1, None),
    ("die", EVER, ("agent", "NoVerdict")),
    ("slow", EVER, None),
    ("hang", 1, None),
    ("half-written", 1, None),
    ("half-written", EVER, ("agent", "NoVerdict")),
]


def chat(body):
    """Answer as Speaker does, from what a request shows."""
    return re.findall(r"Say (\d+)", body["messages"][-1]["content"])[0]


@both
@pytest.mark.parametrize(
    ("kind", "times", "error"),
    [pytest.param(*row, marks=pytest.mark.system if row[0] == "hang" else ()) for row in ENDPOINT_ROWS],
)
def test_endpoints(tmp_path, drive, workers, kind, times, error):
    hit = sorted(seed for seed in SEEDS if seed % 4 == HIT)
    plan = Faults((Fault("endpoint", kind, times=times, of=[_asked(seed) for seed in hit]),))
    broken = dict.fromkeys(hit, error) if error else {}
    play_endpoint_cell(tmp_path, drive, workers, plan, broken)


@both
@pytest.mark.parametrize("form", range(len(garbage.BODIES)))
@pytest.mark.system
def test_garbage_of_an_endpoint_is_no_verdict(tmp_path, drive, workers, form):
    plan = Faults((Fault("endpoint", "garbage", times=EVER, of=(_asked(HIT),), form=form),))
    play_endpoint_cell(tmp_path, drive, workers, plan, {HIT: ("agent", "NoVerdict")})


class Honest(Speaker):
    """Always says the number, as the endpoint does."""

    def said(self, ask):
        return re.findall(r"Say (\d+)", str(ask.messages[-1].content))[0]


def play_endpoint_cell(tmp_path, drive, workers, plan, broken):
    before = count_held()
    with FaultyServer(chat, plan) as server:
        agent = OpenAIAgent("stub", base_url=server.base_url, retries=2, backoff_s=0.0, timeout_s=1.0)
        play_cell(
            tmp_path, drive, "serial", workers, "endpoint", Faults(), agent, broken, fault_free_of=Honest()
        )
    after = held_after(before)
    assert after.within(before), (before, after)


def _asked(seed):
    return f'"content": "{EchoEnv().reset(seed=seed).obs}"'


# -- stores


@both
@few_hosts
@pytest.mark.parametrize(
    ("kind", "form"), [("fail", 0), ("full-disk", 0), ("full-disk", 7), ("full-disk", 900), ("raise", 0)]
)
def test_a_store_that_fails_stops_the_run_which_can_be_gone_on_with(
    tmp_path, drive, host, workers, kind, form
):
    free = fault_free("env", Speaker())
    jobs = jobs_of("env", Faults())
    host = ready(workers) if host == "process" else host
    plan = Faults((Fault("store", kind, of=(HIT,), form=form),))
    path = tmp_path / "episodes.jsonl"
    before = count_held()
    with EpisodeStore(path) as store:
        error = Fell if kind == "raise" else StoreError
        with pytest.raises(error):
            drive(jobs, Speaker(), host=host, store=FaultyStore(store, plan), concurrency=2)
    with EpisodeStore(path) as store:  # what was stored is whole, and nothing of the failed one is there
        there = {episode.job: episode.transcript_hash() for episode in store}
        assert str(HIT) not in there
        assert 1 <= len(there) < len(jobs)
        assert all(free[int(job)] == whole for job, whole in there.items())
        rest = [job for job in jobs if job.key not in there]
        drive(rest, Speaker(), host=host, store=store, concurrency=2)
        assert {int(e.job): e.transcript_hash() for e in store} == free
        assert len(store) == len(jobs)
        assert store.torn == 0
    after = held_after(before)
    assert after.within(before), (before, after)


@pytest.mark.system
@pytest.mark.parametrize("arrived", [1, 700])
def test_a_run_that_is_killed_in_the_middle_of_a_line_goes_on(tmp_path, arrived):
    path = tmp_path / "episodes.jsonl"
    spawned = multiprocessing.get_context("spawn").Process(
        target=fault_worlds.store_until_it_dies, args=(str(path), HIT, arrived)
    )
    spawned.start()
    spawned.join(60)
    assert spawned.exitcode == -signal.SIGKILL
    spawned.close()
    free = fault_free("env", Speaker())
    with EpisodeStore(path) as store:
        assert [int(episode.job) for episode in store] == list(range(HIT))
        assert store.torn == 1
        there = {episode.job for episode in store}
        rest = [job for job in jobs_of("env", Faults()) if job.key not in there]
        rollout(rest, Speaker(), store=store)
        assert {int(e.job): e.transcript_hash() for e in store} == free
        assert len(store) == len(free)


# -- the kit itself


def test_a_plan_says_the_same_in_every_process_and_breaks_its_share():
    plan = Faults(rate={"env": 0.1, "agent": 0.02}, seed=5)
    moments = list(itertools.product(range(2000), (0, 1), range(4)))
    drawn = [plan.find("env", *moment) for moment in moments]
    again = pickle.loads(pickle.dumps(plan))
    assert drawn == [again.find("env", *moment) for moment in moments]
    hits = [fault for fault in drawn if fault]
    assert 320 < len(hits) < 480  # of 4000 attempts
    assert {fault.kind for fault in hits} == {"fail", "raise", "slow", "garbage"}
    other = replace(plan, seed=6)
    assert drawn != [other.find("env", *moment) for moment in moments]
    assert not any(plan.find("tool", *moment) for moment in moments)


def test_attempts_are_counted_here_or_in_a_folder_for_all_processes(tmp_path):
    here, shared = Faults(), Faults(folder=str(tmp_path))
    for plan, after in ((here, 0), (shared, 2)):
        assert [plan.attempt("env", 7) for _ in range(2)] == [0, 1]
        assert plan.attempt("tool", 7) == 0
        assert pickle.loads(pickle.dumps(plan)).attempt("env", 7) == after


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Fault("house", "die"), "accepted: env"),
        (lambda: Fault("grader", "full-disk"), "accepted: fail"),
        (lambda: Fault("env", "fail", at=-1), "0 or more"),
        (lambda: Fault("env", "fail", times=0), "1 or more"),
        (lambda: Faults(rate=1.5), "0 to 1"),
        (lambda: Faults(rate={"nowhere": 0.5}), "0 to 1"),
        (lambda: Faults(kinds={"env": ("die",)}), "accepted: fail"),
        (lambda: Faults(within=0), "1 or more"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(make, said):
    with pytest.raises(BadArgument, match=said):
        make()


def test_a_faulty_environment_is_made_again_from_its_task():
    plan = Faults((Fault("env", "raise", at=1),))
    env = FaultyWrapper(gem.make("game:GuessTheNumber-v0-easy"), plan)
    again = gem.make(task_of(env))
    env.reset(seed=1)
    again.reset(seed=1)
    for each in (env, again):
        with pytest.raises(Fell):
            each.step("1")


def test_the_main_process_is_not_killed():
    with pytest.raises(BadArgument, match="main process"):
        kill_process()


def test_a_full_disk_takes_a_part_then_nothing_and_leaves_other_files_alone(tmp_path):
    path, other = tmp_path / "full", tmp_path / "other"
    with path.open("wb", buffering=0) as full, other.open("wb", buffering=0) as free:
        with full_disk(path, 3):
            assert os.write(full.fileno(), b"hello") == 3
            with pytest.raises(OSError, match="space") as found:
                os.write(full.fileno(), b"lo")
            assert found.value.errno == errno.ENOSPC
            assert os.write(free.fileno(), b"hello") == 5
        assert os.write(full.fileno(), b"lo") == 2
    assert path.read_bytes() == b"hello"


def test_what_is_held_counts_files_threads_and_processes():
    before = count_held()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
    now = count_held()
    assert now == Held(before.files + 1, before.threads + 1, before.processes + 1)
    assert child.pid in descendants()
    assert not now.within(before)
    stop.set()
    thread.join()
    child.kill()
    child.communicate()
    assert held_after(before).within(before)


def test_every_boundary_of_the_kit_is_in_the_table():
    assert set(KINDS) == {"env", "worker", "tool", "sandbox", "grader", "agent", "endpoint", "store"}
    played = {
        "env": {row[1] for row in ENV_ROWS if row[0] == "env"} | {"garbage"},
        "worker": {row[1] for row in ENV_ROWS if row[0] == "worker"},
        "tool": {row[0] for row in TOOL_ROWS} | {"garbage"},
        "sandbox": {row[0] for row in SANDBOX_ROWS} | {"garbage"},
        "grader": {"fail", "raise", "slow", "garbage"},
        "agent": {row[0] for row in AGENT_ROWS} | {"garbage"},
        "endpoint": {row[0] for row in ENDPOINT_ROWS} | {"garbage"},
        "store": {"fail", "raise", "full-disk", "half-written"},
    }
    left_out = {"sandbox": {"hang"}, "grader": {"hang"}, "store": {"slow"}}  # see above; a slow store is slow
    for boundary, kinds in KINDS.items():
        assert set(kinds) == played[boundary] | left_out.get(boundary, set()), boundary
