"""How long hosts wait, and when they give up, by a clock that the test holds."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from clocks import Clock
from host_envs import Scripted

from gem.errors import WorkerDied
from gem.hosts import processes, ray_cluster, remote, serial, threads
from gem.hosts.base import Host, Outcome
from gem.hosts.processes import Processes
from gem.hosts.ray_cluster import Node, Nodes
from gem.hosts.remote import Remote
from gem.hosts.serial import Serial
from gem.hosts.threads import Threads
from gem.specs import TaskRef


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module, name in (
        (serial, "perf_counter"),
        (threads, "perf_counter"),
        (processes, "perf_counter"),
        (remote, "monotonic"),
        (ray_cluster, "monotonic"),
    ):
        monkeypatch.setattr(module, name, clock)
    return clock


def of_four_seconds(clock: Clock) -> type[Scripted]:
    class Slow(Scripted):
        def reset(self, seed: int | None = None) -> Any:
            clock.advance(4.0)
            return super().reset(seed)

    return Slow


def begin(host: Host, count: int) -> None:
    host.submit_all([(index, "reset", (index,), {}) for index in range(count)])


@pytest.mark.parametrize(("timeout", "calls"), [(0.0, 1), (3.9, 1), (4.0, 2), (7.9, 2), (8.0, 3), (100.0, 3)])
def test_the_serial_host_begins_no_call_when_time_is_up(clock: Clock, timeout: float, calls: int) -> None:
    with Serial() as host:
        for _ in range(3):
            host.add(of_four_seconds(clock))
        begin(host, 3)
        assert len(host.ready(3, timeout)) == calls
        assert len(host.busy) == 3 - calls


@pytest.mark.parametrize(("call_s", "late"), [(3.9, True), (4.0, False)])
def test_a_call_on_the_serial_host_may_take_its_limit(clock: Clock, call_s: float, late: bool) -> None:
    with Serial(call_s) as host:
        host.add(of_four_seconds(clock))
        begin(host, 1)
        (outcome,) = host.ready()
        assert isinstance(outcome.error, WorkerDied) == late


class Bell:
    """In place of the lock that the caller of Threads waits for: the wait takes its whole time."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.waits = clock, list[float]()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            self.waits.append(timeout)
            self.clock.advance(timeout)
        return False

    def release(self) -> None:
        """Wake nobody."""


class Entered(Scripted):
    """Tells when its step begins, which then waits for the gate."""

    def __init__(self, entered: threading.Event, gate: threading.Event) -> None:
        super().__init__(gate=gate)
        self.entered = entered

    def step(self, action: str) -> Any:
        self.entered.set()
        return super().step(action)


def test_threads_are_waited_for_until_time_is_up_or_a_call_is_overdue(clock: Clock) -> None:
    entered, gate = threading.Event(), threading.Event()
    with Threads() as host:
        host.add(partial(Entered, entered, gate))
        begin(host, 1)
        host.ready()
        host.call_s = 5.0
        host.submit(0, "step", ("wait",))
        assert entered.wait(20)
        bell = host._enough = Bell(clock)  # type: ignore[assignment]
        assert host.ready(timeout=3.0) == []
        assert host.ready(timeout=1.5) == []
        (outcome,) = host.ready(timeout=9.0)
        assert isinstance(outcome.error, WorkerDied)
        assert bell.waits == [3.0, 1.5, 0.5]
        gate.set()


class Stuck:
    """A thread or process that ends too late."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.joined: float | None = None
        self.killed = False

    def join(self, timeout: float) -> None:
        self.joined = timeout
        self.clock.advance(min(timeout, self.seconds))

    def send(self, message: bytes, indices: Any) -> None:
        assert (message, [*indices]) == (b"", [])

    def kill(self) -> None:
        self.killed = True

    @property
    def process(self) -> Stuck:
        return self


def test_closing_waits_a_while_for_all_threads_together(clock: Clock) -> None:
    host = Threads()
    stuck = [Stuck(clock, 1.5), Stuck(clock, 1.5), Stuck(clock, 1.5)]
    host._threads = stuck  # type: ignore[assignment]
    host.close()
    assert [each.joined for each in stuck] == [2.0, 0.5, 0.0]


def test_closing_waits_a_while_for_all_workers_together_and_kills_each(clock: Clock) -> None:
    workers = [Stuck(clock, 1.5), Stuck(clock, 1.5), Stuck(clock, 1.5)]
    processes._end(workers)  # type: ignore[arg-type]
    assert [each.joined for each in workers] == [2.0, 0.5, 0.0]
    assert all(each.killed for each in workers)


@pytest.mark.parametrize("runs", [True, False])
def test_workers_are_waited_for_until_time_is_up_or_a_message_is_overdue(
    clock: Clock, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, waits = Processes(call_s=5.0), list[float]()
    worker = object.__new__(processes._Worker)
    worker.envs, worker.in_flight, worker.alone = {0}, {0}, False
    worker.exit_end, worker.pipe = 1, "pipe"  # type: ignore[assignment]
    worker._started, worker.heard = clock.now, clock.now if runs else float("inf")
    host._workers = [worker]

    def wait(ends: Any, timeout: float) -> list[Any]:
        waits.append(timeout)
        clock.advance(timeout + 1e-6)
        return []

    def start() -> None:
        worker.in_flight = set()

    monkeypatch.setattr(processes, "wait", wait)
    monkeypatch.setattr(worker, "kill", lambda: None, raising=False)
    monkeypatch.setattr(worker, "start", start, raising=False)
    assert host._collect_outcomes(1, 3.0) == []
    (outcome,) = host._collect_outcomes(1, 1000.0)
    assert isinstance(outcome.error, WorkerDied)
    assert ("5 s" if runs else "120 s") in str(outcome.error)
    assert waits == pytest.approx([3.0, 2.0 if runs else processes.START_S - 3.0], abs=1e-4)


@pytest.mark.parametrize(
    ("met", "patience_s", "seconds"), [(True, 10.0, 10.0), (False, 10.0, 2.0), (False, 1.0, 1.0)]
)
def test_a_server_that_is_gone_is_tried_for_a_while(
    clock: Clock, met: bool, patience_s: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def connect(*_: Any, **__: Any) -> Any:
        tries.append(clock.now)
        raise ConnectionError("refused")

    pause = SimpleNamespace(wait=clock.advance)
    monkeypatch.setattr(remote, "open_web_socket", connect)
    monkeypatch.setattr(remote, "Event", lambda: pause)
    with Remote(address="http://me:hidden@127.0.0.1:1", patience_s=patience_s) as host:
        host._met = met
        index = host.add(remote.Elsewhere(TaskRef("test:Any")))
        host.submit(index, "reset", (1,))
        (outcome,) = host.ready()
    assert isinstance(outcome.error, WorkerDied)
    assert "the server at http://127.0.0.1:1 cannot be reached" in str(outcome.error)
    assert tries[-1] - tries[0] == pytest.approx(seconds)
    assert len(tries) == pytest.approx(seconds / remote.RETRY_S, abs=2.1)


class Connection:
    """In place of a web socket: it keeps what is sent, and an answer never comes."""

    socket = SimpleNamespace(setsockopt=lambda *_: None)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sent: list[str] = []
        self.waits: list[float | None] = []

    def send(self, message: str) -> None:
        self.sent.append(message)

    def recv(self, timeout: float | None) -> str:
        self.waits.append(timeout)
        self.clock.advance(timeout or 0.0)
        raise TimeoutError

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        """End."""


def test_an_answer_of_a_server_is_waited_for_until_time_is_up_or_it_is_overdue(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(clock)
    monkeypatch.setattr(remote, "open_web_socket", lambda *_, **__: connection)
    with Remote(call_s=5.0, address="http://127.0.0.1:1") as host:
        index = host.add(remote.Elsewhere(TaskRef("test:Any")))
        host.submit(index, "reset", (1,))
        assert host.ready(timeout=3.0) == []
        (outcome,) = host.ready(timeout=9.0)
    assert isinstance(outcome.error, WorkerDied)
    assert connection.waits == [3.0, 2.0]


@pytest.mark.parametrize("length", [10, 400, 900, 1100])
def test_requests_go_in_as_few_messages_as_hold_them(
    clock: Clock, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(clock)
    monkeypatch.setattr(remote, "open_web_socket", lambda *_, **__: connection)
    monkeypatch.setattr(remote, "FRAME_BYTES", 1000)
    with Remote(address="http://127.0.0.1:1") as host:
        for _ in range(20):
            host.add(remote.Elsewhere(TaskRef("test:Any")))
        host.submit_all([(index, "step", (f"{index} {'x' * length}",), {}) for index in range(20)])
        frames = [json.loads(each) for each in connection.sent]
        assert [request["args"][0].split()[0] for frame in frames for request in frame] == [
            str(index) for index in range(20)
        ]
        sizes = [len(each) - 1 for each in connection.sent]  # with a comma or bracket behind each request
        assert all(size <= 1000 for size, frame in zip(sizes, frames, strict=True) if len(frame) > 1)
        first = [len(json.dumps(frame[0], separators=(",", ":"))) for frame in frames]
        assert all(size + nxt >= 1000 for size, nxt in zip(sizes, first[1:], strict=False))


def test_a_message_of_a_worker_ends_its_calls_and_says_when_it_was_heard(clock: Clock) -> None:
    host = Processes(call_s=5.0)
    worker = object.__new__(processes._Worker)
    worker.in_flight, worker.heard = {0, 1, 2}, clock.now
    message = processes.pack_outcomes([Outcome(0, "a"), Outcome(2, None, KeyError("b"))])
    received = iter([[], [memoryview(message)]])
    worker.receive = lambda: next(received)  # type: ignore[method-assign]
    clock.advance(3.0)
    host._read(worker)  # a part of it
    assert (host._done, worker.deadline(5.0)) == ([], clock.now + 5.0)
    clock.advance(3.0)
    host._read(worker)
    assert [(each.index, each.value, type(each.error)) for each in host._done] == [
        (0, "a", type(None)),
        (2, None, KeyError),
    ]
    assert (worker.in_flight, worker.deadline(5.0)) == ({1}, clock.now + 5.0)


def test_a_worker_that_sends_anything_else_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    host, replaced = Processes(), []
    monkeypatch.setattr(host, "_replace", lambda worker, error: replaced.append(str(error)))
    host._read(SimpleNamespace(receive=lambda: [memoryview(b"printed")]))  # type: ignore[arg-type]
    assert len(replaced) == 1
    assert "message cannot be loaded" in replaced[0]


def test_messages_come_in_any_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LONGEST", 5)
    messages = [b"", b"short", b"a longer one"]
    near, far = multiprocessing.Pipe()
    channel = processes._Channel(near)
    with far, near:
        for message in messages:
            channel.send(message)
        data = os.read(far.fileno(), 1000)
        assert len(data) == 4 + 9 + 24
        for cut in range(1, len(data)):
            come: list[bytes] = []
            for part in (data[:cut], data[cut:]):
                os.write(far.fileno(), part)
                come += map(bytes, channel.receive())
            assert come == messages
        with pytest.raises(BlockingIOError):
            channel.receive()
        far.close()
        with pytest.raises(EOFError):
            channel.receive()
        channel.close()


@pytest.mark.parametrize("end", [EOFError, OSError, None])
def test_a_worker_whose_caller_is_gone_has_a_while_to_finish(
    end: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    messages = iter([b"one", b"two", b"" if end is None else None])

    def receive() -> bytes:
        message = next(messages)
        if message is None:
            assert end is not None
            raise end
        return message

    monkeypatch.setattr(processes, "sleep", lambda seconds: steps.append(f"slept {seconds:g} s"))
    monkeypatch.setattr(processes.os, "killpg", lambda *sent: steps.append(sent))
    processes._listen(SimpleNamespace(recv_bytes=receive), SimpleNamespace(put=steps.append))  # type: ignore[arg-type]
    assert steps == [b"one", b"two", None, "slept 2 s", (os.getpid(), signal.SIGKILL)]


# -- nodes of a Ray cluster


class Cluster:
    """In place of a Ray cluster: its nodes, and how often they were asked for."""

    def __init__(self, **resources: dict[str, float]) -> None:
        self.there = [Node(name, name, own) for name, own in resources.items()]
        self.looks = 0

    def nodes(self) -> list[Node]:
        self.looks += 1
        return self.there


def test_nodes_are_looked_up_once_in_a_while(clock: Clock) -> None:
    cluster = Cluster(a={"CPU": 4.0})
    nodes = Nodes(cluster)  # type: ignore[arg-type]
    for seconds, looks in ((0.0, 1), (0.9, 1), (0.1, 2), (0.0, 2), (5.0, 3)):
        clock.advance(seconds)
        nodes.look()
        assert cluster.looks == looks


def test_the_pause_of_a_node_doubles_up_to_its_longest_and_begins_again_after_peace(clock: Clock) -> None:
    cluster = Cluster(a={}, b={})
    nodes = Nodes(cluster)  # type: ignore[arg-type]
    nodes.look()
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        assert not nodes.pauses("a")
        assert nodes.record_loss("a", silent=False) is False
        assert [node.id for node in nodes.open()] == ["b"]
        clock.advance(pause - 0.01)
        assert nodes.pauses("a")
        clock.advance(0.01)
    clock.advance(60.01)
    assert nodes.record_loss("a", silent=False) is False
    clock.advance(0.5)
    assert not nodes.pauses("a")


def test_a_silent_or_vanished_node_is_perhaps_lost_itself(clock: Clock) -> None:
    cluster = Cluster(a={}, b={})
    nodes = Nodes(cluster)  # type: ignore[arg-type]
    assert nodes.record_loss("a", silent=True) is True
    clock.advance(29.9)
    assert nodes.pauses("a")
    nodes.record_loss("a", silent=False)  # a shorter pause does not end the longer one
    clock.advance(0.05)
    assert nodes.pauses("a")
    del cluster.there[1]
    assert nodes.record_loss("b", silent=False) is True


def test_as_many_actors_fit_as_the_scarcest_resource_allows() -> None:
    cluster = Cluster(a={"CPU": 4.0, "memory": 10.0}, b={"CPU": 1.0})
    nodes = Nodes(cluster)  # type: ignore[arg-type]
    nodes.look()
    assert nodes.fitting({"CPU": 1.0, "memory": 4.0}, []) == {"a": 2, "b": 0}
    assert nodes.fitting({"CPU": 1.0}, [("a", {"CPU": 1.0}), ("gone", {"CPU": 9.0})]) == {"a": 3, "b": 1}
    assert nodes.fitting({"CPU": 1.0}, [("b", {"CPU": 2.0, "GPU": 1.0})]) == {"a": 4, "b": 0}
    assert nodes.fitting({"GPU": 1.0}, [("b", {"GPU": 1.0})]) == {"a": 0, "b": 0}
    assert nodes.fitting({"GPU": 0.5}, [("b", {"GPU": 0.25})]) == {"a": 0, "b": 0}
    assert nodes.fitting({}, []) == {"a": 1, "b": 1}
    assert nodes.whole({"CPU": 2.0}) == 2
