"""How many requests an endpoint gets at a time, and when it counts as gone."""

import asyncio
import threading

import pytest

from gem.agents.pace import FIRST, SERVED_S, Pace
from gem.content import Message
from gem.errors import AgentUnavailable, NoVerdict
from gem.record import Ask
from gem.testing.stub_server import RawAnswer, StubServer
from gem.waiting import describe_waits


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def pace_of(most=64):
    clock = Clock()
    return Pace(most, clock), clock


def busy(pace, clock, times=1, wait_s=0.0):
    for _ in range(times):
        pace.busy(clock.now, wait_s)


def test_it_begins_with_a_few_and_doubles_in_a_round_of_answers():
    pace, _ = pace_of()
    assert pace.limit == FIRST
    for _ in range(int(FIRST)):
        pace.note_answer()
    assert pace.limit == 2 * FIRST
    for _ in range(200):
        pace.note_answer()
    assert pace.limit == 64


def test_where_it_is_too_much_the_limit_is_halved_once_and_grows_slowly_afterwards():
    pace, clock = pace_of()
    pace.limit, pace.inside = 40.0, 39
    sent = clock.now
    clock.now += 1
    pace.busy(sent)
    assert pace.limit == 20
    pace.busy(sent)  # it was on its way when the limit was halved: it tells the same
    assert pace.limit == 20
    for _ in range(20):
        pace.note_answer()
    assert pace.limit == pytest.approx(21, abs=0.1)
    clock.now += 1
    pace.inside = 20
    pace.busy(clock.now)
    assert pace.limit == pytest.approx(10.5, abs=0.1)


def test_the_limit_never_falls_below_one_nor_exceeds_what_is_allowed():
    pace, clock = pace_of(most=3)
    assert pace.limit == 3
    pace.note_answer()
    assert pace.limit == 3
    for _ in range(10):
        clock.now += 1
        busy(pace, clock)
    assert pace.limit == 1


def test_who_is_cancelled_while_waiting_leaves_no_place_taken():
    async def main():
        pace, _ = pace_of(most=1)

        async def go():
            async with pace:
                await asyncio.sleep(0)

        async with pace:
            tasks = [asyncio.ensure_future(go()) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.sleep(0)
        tasks[1].cancel()  # at the moment at which it is given the place
        await asyncio.gather(*tasks, return_exceptions=True)
        assert pace.inside == 0
        return [task.cancelled() for task in tasks]

    assert asyncio.run(main()) == [True, True, False]


def test_a_wait_that_the_endpoint_asks_for_holds_everybody_and_one_timer_wakes_them():
    async def main():
        pace = Pace(4)
        order = []

        async def go(number):
            async with pace:
                order.append(number)

        pace.busy(0.0, 0.05)
        tasks = [asyncio.ensure_future(go(number)) for number in range(6)]
        await asyncio.sleep(0.01)
        assert order == []
        timer = pace._timer
        await asyncio.gather(*tasks)
        assert timer is not None
        assert pace._timer is None
        return order

    assert asyncio.run(main()) == list(range(6))


def test_silence_is_broken_by_an_answer_and_by_what_may_still_be_answered():
    pace, clock = pace_of()
    assert not pace.silent(0.0)  # nothing failed
    pace.note_failure()
    clock.now += 30
    assert pace.silent(30)
    assert not pace.silent(31)
    request = object()
    pace.send(request)
    assert pace.silent(30)  # it may be turned away at once
    clock.now += SERVED_S
    assert not pace.silent(30)
    pace.end(request)
    assert pace.silent(30)
    pace.note_answer()
    assert not pace.silent(0.0)


# -- with a real server

httpx = pytest.importorskip("httpx")


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(text="hello", **changes):
    return Ask("e", "agent", 0, (Message("user", text),), **changes)


def agent_of(server, **options):
    from gem.agents.openai import OpenAIAgent

    return OpenAIAgent("m", base_url=server.base_url, backoff_s=0.001, **options)


class Bears:
    """An endpoint that bears so many requests at a time and answers 429 to the others."""

    def __init__(self, most):
        self.most, self.inside, self.refused = most, 0, 0
        self.lock, self.answered = threading.Lock(), 0

    def __call__(self, body):
        with self.lock:
            if self.inside >= self.most:
                self.refused += 1
                return RawAnswer.error(429, "slow down")
            self.inside += 1
        threading.Event().wait(0.002)
        with self.lock:
            self.inside -= 1
            self.answered += 1
        return "fine"


@pytest.mark.system
def test_an_endpoint_that_bears_little_answers_everybody_in_the_end():
    endpoint = Bears(2)
    with StubServer(endpoint) as server, agent_of(server, concurrency=64, retries=3) as agent:
        replies = agent([ask(seed=i) for i in range(60)])
        assert [reply.text for reply in replies] == ["fine"] * 60  # none was given up, though some 429 often
        assert agent._pace.limit < 16
    assert endpoint.refused > 0


def test_a_rate_limit_that_lasts_is_given_up_where_nobody_is_answered():
    with StubServer(RawAnswer.error(429)) as server, agent_of(server, retries=2) as agent:
        with pytest.raises(NoVerdict, match="tried 3 times"):
            agent.loop.run(agent.ask(ask()))
        assert len(server.requests) == 3


def test_an_endpoint_that_answers_nobody_is_gone_after_one_plain_question():
    questions = []

    def answer(body):
        questions.append(body["messages"][0]["content"])
        return RawAnswer.error(500, "broken")

    with (
        StubServer(answer) as server,
        agent_of(server, silence_s=0.02, retries=10**6) as agent,
        pytest.raises(AgentUnavailable, match=r"no request was answered for 0\.02 s"),
    ):
        agent.loop.run(agent.ask(ask()))
    assert questions.count("Say yes.") == 1


def test_a_conversation_that_always_breaks_the_server_does_not_end_the_run():
    def answer(body):
        return RawAnswer.error(500) if body["messages"][0]["content"] == "hello" else "yes"

    with StubServer(answer) as server, agent_of(server, silence_s=0.0, retries=4) as agent:
        with pytest.raises(NoVerdict, match="tried 5 times") as caught:
            agent.loop.run(agent.ask(ask()))
        assert not isinstance(caught.value, AgentUnavailable)
        assert agent.loop.run(agent.ask(ask("another"))).text == "yes"


def test_retry_after_holds_the_requests_of_everybody():
    with StubServer("fine", [RawAnswer.error(429, retry_after="0.05")]) as server:
        with agent_of(server, concurrency=1) as agent:
            assert [reply.text for reply in agent([ask(seed=i) for i in range(3)])] == ["fine"] * 3
            assert agent._pace._closed_until > 0
        assert len(server.requests) == 4


def test_what_is_waited_for_names_the_pause_that_a_server_asked_for():
    pace, clock = pace_of()

    async def pause():
        pace.busy(clock.now, 25.0)
        pace._timer.cancel()

    pace.asks = 1
    asyncio.run(pause())
    clock.now += 7
    assert describe_waits() == "the end of a pause that the server asked for (18 s left)"
    pace.asks = 0
    assert describe_waits() == ""
    pace.asks = 1
    clock.now += 18
    assert describe_waits() == ""
