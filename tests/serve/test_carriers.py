"""The thread that uses a server's host: what it tells those who wait when it ends."""

import asyncio
import threading
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")

from gem.core import Env, Start, Step
from gem.errors import NoVerdict, WorkerDied
from gem.hosts import threads
from gem.hosts.threads import Threads
from gem.serve.environments import app
from gem.serve.environments.carriers import Inline, OnHost

DEADLINE_S = 20.0


class Held(Env):
    """Its step tells that it has begun, and waits for the gate."""

    def __init__(self, begun, gate):
        self.begun, self.gate = begun, gate

    def reset(self, seed=None):
        super().reset(seed)
        return Start("go", {})

    def step(self, action):
        self.begun.set()
        self.gate.wait(DEADLINE_S)
        return Step("done", 0.0, True, False, {})


def test_a_call_in_flight_when_the_server_ends_has_no_verdict(monkeypatch):
    monkeypatch.setattr(threads, "CLOSE_S", 0.01)
    begun, gate = threading.Event(), threading.Event()

    async def run():
        carrier = OnHost(Threads())
        place = carrier.add(partial(Held, begun, gate))
        outcome = await carrier.call(place, "reset", (1,))
        assert outcome.error is None, outcome.error
        stepping = asyncio.ensure_future(carrier.call(place, "step", ("x",)))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        await asyncio.to_thread(carrier.close)
        return await asyncio.wait_for(stepping, DEADLINE_S)

    try:
        error = asyncio.run(run()).error
    finally:
        gate.set()
    assert type(error) is NoVerdict
    assert "the server ended during the call" in str(error)


class Interrupts(Held):
    """Its step raises what Ctrl-C raises."""

    def step(self, action):
        raise KeyboardInterrupt


@pytest.mark.parametrize("make", [Inline, lambda: OnHost(Threads(call_s=0.05))], ids=["inline", "thread"])
def test_an_interrupt_of_an_environment_ends_its_episode_alone(make):
    async def run():
        carrier, recipe = make(), partial(Interrupts, None, None)
        places = [carrier.add(recipe), carrier.add(recipe)]
        for place in places * 2:
            outcome = await asyncio.wait_for(carrier.call(place, "reset", (1,)), DEADLINE_S)
            assert outcome.error is None, outcome.error
            outcome = await asyncio.wait_for(carrier.call(place, "step", ("x",)), DEADLINE_S)
            assert type(outcome.error) is NoVerdict
            await asyncio.sleep(0.1)  # past call_s: the call is not reported again
        if not carrier.inline:
            await asyncio.to_thread(carrier.close)

    asyncio.run(run())


class Looping(Held):
    """Runs an event loop of its own."""

    def step(self, action):
        return asyncio.run(self._step())

    async def _step(self):
        return Step("done", 0.0, True, False, {})


def test_an_environment_may_run_an_event_loop_in_the_servers_own_thread():
    async def run():
        carrier = Inline()
        place = carrier.add(partial(Looping, None, None))
        await carrier.call(place, "reset", (1,))
        return await carrier.call(place, "step", ("x",))

    assert asyncio.run(run()).error is None


class Broken(Threads):
    """A host that fails as it waits for calls."""

    def ready(self, at_least=1, timeout=None):
        raise WorkerDied("the host is broken")


def test_a_host_that_fails_ends_its_calls_and_the_server_is_unhealthy():
    async def run():
        carrier = OnHost(Broken())
        places = [carrier.add(partial(Held, threading.Event(), None)) for _ in range(2)]
        calls = [carrier.call(place, "reset", (1,)) for place in (*places, carrier.add(Held))]
        outcomes = [await asyncio.wait_for(each, DEADLINE_S) for each in calls]
        carrier.remove(places[0])
        later = carrier.call(places[1], "reset", (1,))
        outcomes.append(await asyncio.wait_for(later, DEADLINE_S))
        owner = SimpleNamespace(_hosts={"thread": carrier}, sessions=SimpleNamespace(draining=False))
        answer = await app.Application._health(owner, None)
        await asyncio.to_thread(carrier.close)
        return outcomes, answer

    outcomes, answer = asyncio.run(run())
    assert {str(outcome.error) for outcome in outcomes} == {"the host is broken"}
    assert (answer.status_code, answer.body) == (503, b'{"status":"unhealthy"}')


def test_an_error_of_the_server_itself_has_an_answer_without_details():
    answer = asyncio.run(app._hide_error(SimpleNamespace(), RuntimeError("secret")))
    assert (answer.status_code, answer.body) == (500, b'{"detail":"internal error"}')


@pytest.mark.parametrize(
    ("lease_s", "pause"), [(600.0, app.REAP_S), (app.REAP_S, app.REAP_S / 2), (0.5, 0.25)]
)
def test_sessions_are_looked_through_often_enough_for_their_lease(lease_s, pause, monkeypatch):
    steps = []

    async def sleep(seconds):
        steps.append(seconds)
        if len(steps) == 5:
            raise asyncio.CancelledError

    monkeypatch.setattr(app.asyncio, "sleep", sleep)
    owner = SimpleNamespace(
        limits=SimpleNamespace(lease_s=lease_s), sessions=SimpleNamespace(reap=lambda: steps.append("reap"))
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(app.Application._reap(owner))
    assert steps == [pause, "reap", pause, "reap", pause]
