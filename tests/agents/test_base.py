import asyncio
import pickle
import threading
from dataclasses import fields

import pytest

import gem.agents
from gem.agents.base import BaseAgent, BatchBroken, batch_answers
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.errors import AgentUnavailable, BadArgument, NoVerdict
from gem.record import Agent, AgentInfo, Ask, Reply


def asks(*turns):
    return [Ask(f"e{i}", "agent", turn, ()) for i, turn in enumerate(turns)]


class Batches(BaseAgent):
    def __init__(self):
        self.batches = []

    def __call__(self, asks):
        self.batches.append([ask.episode for ask in asks])
        return [Reply(ask.episode) for ask in asks]


class OneByOne(BaseAgent):
    async def ask(self, ask):
        if ask.turn < 0:
            raise ValueError(f"turn {ask.turn}")
        await asyncio.sleep(0)
        return Reply(ask.episode)


async def ask_all(agent, asks):
    return await asyncio.gather(*(agent.ask(ask) for ask in asks), return_exceptions=True)


def texts(replies):
    return [reply.text for reply in replies]


def test_every_agent_keeps_the_protocol():
    for agent in (Batches(), OneByOne(), RandomAgent(), ScriptedAgent([])):
        assert isinstance(agent, Agent)


def test_ask_follows_from_call_and_takes_the_moments_asks_together():
    agent = Batches()
    assert texts(asyncio.run(ask_all(agent, asks(0, 0, 0)))) == ["e0", "e1", "e2"]
    assert texts(asyncio.run(ask_all(agent, asks(0)))) == ["e0"]
    assert agent.batches == [["e0", "e1", "e2"], ["e0"]]


def test_an_ask_that_was_cancelled_is_not_asked():
    async def main(agent):
        tasks = [asyncio.ensure_future(agent.ask(ask)) for ask in asks(0, 0)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    agent = Batches()
    cancelled, reply = asyncio.run(main(agent))
    assert isinstance(cancelled, asyncio.CancelledError)
    assert reply.text == "e1"
    assert agent.batches == [["e1"]]


def test_an_event_loop_that_stopped_leaves_nobody_waiting():
    agent = Batches()
    stopped = asyncio.new_event_loop()
    left = stopped.create_task(agent.ask(*asks(0)))
    stopped.call_soon(stopped.stop)
    stopped.run_forever()  # as far as the question, and no further
    reply = asyncio.run(asyncio.wait_for(agent.ask(*asks(0)), 20))
    assert reply == Reply("e0")
    assert agent.batches == [["e0"]]
    left.cancel()
    stopped.run_until_complete(asyncio.wait([left]))
    stopped.close()


def test_call_follows_from_ask_with_and_without_a_running_loop():
    async def inside(agent):
        return agent(asks(0, 0))

    with OneByOne() as agent:
        assert texts(agent(asks(0, 0, 0))) == ["e0", "e1", "e2"]
        assert texts(asyncio.run(inside(agent))) == ["e0", "e1"]


def test_call_asks_all_at_the_same_time():
    class Meets(BaseAgent):
        async def ask(self, ask):
            self.here = getattr(self, "here", 0) + 1
            while self.here < 5:
                await asyncio.sleep(0)
            return Reply("met")

    with Meets() as agent:
        assert texts(agent(asks(0, 0, 0, 0, 0))) == ["met"] * 5


def test_closing_ends_the_agents_thread():
    agent = OneByOne()
    before = set(threading.enumerate())
    agent(asks(0))
    (thread,) = set(threading.enumerate()) - before
    assert thread.name == "gem-agent-loop"
    agent.close()
    agent.close()
    assert not thread.is_alive()


def test_closing_ends_the_generators_that_an_ask_left_open():
    class Leaves(BaseAgent):
        ended = False

        async def pieces(self):
            try:
                yield "a"
                yield "b"
            finally:
                self.ended = True

        async def ask(self, ask):
            self.open = self.pieces()
            return Reply(await anext(self.open))

    with Leaves() as agent:
        assert agent(asks(0)) == [Reply("a")]
        assert not agent.ended
    assert agent.ended


def test_what_failed_is_told_beside_what_was_answered():
    with (
        OneByOne() as agent,
        pytest.raises(BatchBroken, match=r"1 of 2 asks failed: ValueError: turn -1") as caught,
    ):
        agent(asks(0, -1))
    reply, error = caught.value.answers
    assert (reply.text, str(error)) == ("e0", "turn -1")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.answers[0] == reply


def test_an_exhausted_iterator_in_an_agent_is_an_error_like_others():
    class Exhausted(BaseAgent):
        def __call__(self, asks):
            return [next(iter(()))]

    (answer,) = batch_answers(Exhausted(), asks(0))
    assert isinstance(answer, RuntimeError)
    (answer,) = asyncio.run(ask_all(Exhausted(), asks(0)))
    assert "StopIteration" in str(answer)


def test_an_agent_that_defines_neither_says_so():
    agent = RandomAgent()
    with pytest.raises(NotImplementedError, match=r"RandomAgent must define __call__\(asks\) or async ask"):
        agent(asks(0))
    with pytest.raises(NotImplementedError, match="RandomAgent"):
        asyncio.run(agent.ask(asks(0)[0]))


def test_a_script_answers_by_turn_or_by_function():
    reply = Reply("tokens", (1,), (2,))
    assert ScriptedAgent(["a", reply])(asks(0, 1)) == [Reply("a"), reply]
    assert texts(ScriptedAgent(lambda ask: f"turn {ask.turn}")(asks(4))) == ["turn 4"]


def test_a_script_that_is_too_short_breaks_the_ask_that_it_cannot_answer():
    with pytest.raises(BatchBroken) as caught:
        ScriptedAgent(["a"])(asks(0, 1))
    reply, error = caught.value.answers
    assert reply == Reply("a")
    assert isinstance(error, BadArgument)
    assert "has 1 answers; turn 1" in str(error)


def test_a_script_that_is_one_text_is_refused():
    with pytest.raises(BadArgument, match="give a list"):
        ScriptedAgent("abc")


@pytest.mark.parametrize("name", sorted({*gem.agents.__all__} - {"Endpoint"}))  # a value for agents
def test_every_agent_is_in_the_room_by_its_name(name):
    try:
        agent = getattr(gem.agents, name)
    except ImportError as absent:
        pytest.skip(str(absent))
    assert issubclass(agent, BaseAgent)
    assert agent.__name__ == name


def test_an_agent_that_is_not_there_is_missed():
    with pytest.raises(AttributeError, match="NoAgent"):
        gem.agents.NoAgent  # noqa: B018


# -- what runs ask of an agent


def test_an_agent_names_itself():
    assert Batches().info == AgentInfo("Batches")


def test_a_new_version_is_counted_and_weights_need_a_model():
    agent = Batches()
    assert agent.policy_version is None
    agent.publish(3)
    assert agent.policy_version == 3
    with pytest.raises(BadArgument, match="Batches holds no model to load weights into"):
        agent.publish(4, {})
    assert agent.policy_version == 3


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_answers_is_an_error_for_each(count):
    class Breaks(Batches):
        def __call__(self, asks):
            raise BatchBroken([Reply("x")] * count)

    answers = batch_answers(Breaks(), asks(0, 0))
    assert [str(answer) for answer in answers] == [f"the agent answered 2 asks with {count} replies."] * 2
    assert [type(each) for each in asyncio.run(ask_all(Breaks(), asks(0, 0)))] == [NoVerdict] * 2


@pytest.mark.parametrize("end", [StopIteration, GeneratorExit])
def test_an_end_that_no_future_can_carry_is_another_error(end):
    class Ends(Batches):
        def __call__(self, asks):
            raise BatchBroken([end("over"), Reply("x")])

    first, second = asyncio.run(ask_all(Ends(), asks(0, 0)))
    assert (type(first), str(first)) == (RuntimeError, f"the agent raised {end.__name__}: over")
    assert second.text == "x"


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_coroutine_goes_to_the_caller_and_the_agent_lives_on(end):
    class Leaves(BaseAgent):
        async def ask(self, ask):
            if ask.turn:
                raise end
            return Reply("x")

    with Leaves() as agent:
        (answer,) = batch_answers(agent, asks(1))
        assert type(answer) is end
        assert texts(agent(asks(0))) == ["x"]


# -- a batch that an exception broke


class Fragile(Batches):
    """Breaks the batches in which there is an ask of a turn below 0."""

    def __init__(self, error=ValueError):
        super().__init__()
        self.error = error

    def __call__(self, asks):
        self.batches.append(len(asks))
        bad = [ask.episode for ask in asks if ask.turn < 0]
        if bad:
            raise self.error(*bad)
        return [Reply(ask.episode) for ask in asks]


@pytest.mark.parametrize("bad", [(), (0,), (6,), (2, 3), (0, 1, 2, 3, 4, 5, 6)])
def test_the_asks_that_break_a_batch_are_found_and_keep_their_own_error(bad):
    agent = Fragile()
    turns = [-1 if place in bad else 0 for place in range(7)]
    answers = batch_answers(agent, asks(*turns))
    for place, answer in enumerate(answers):
        if place in bad:
            assert isinstance(answer, ValueError)
            assert answer.args == (f"e{place}",)
        else:
            assert answer.text == f"e{place}"
    assert len(agent.batches) <= 13


def test_an_agent_whose_every_ask_fails_is_called_less_than_twice_per_ask():
    for count in (1, 2, 3, 10, 64, 100):
        agent = Fragile()
        answers = batch_answers(agent, asks(*[-1] * count))
        assert [answer.args for answer in answers] == [(f"e{place}",) for place in range(count)]
        assert len(agent.batches) == 2 * count - 1


@pytest.mark.parametrize("error", [AgentUnavailable, asyncio.CancelledError, GeneratorExit])
def test_what_no_smaller_batch_would_change_is_not_asked_again(error):
    agent = Fragile(error)
    answers = batch_answers(agent, asks(0, -1, 0, 0))
    assert agent.batches == [4]
    assert all(isinstance(answer, BaseException) for answer in answers)


def test_an_interrupt_in_a_batch_goes_to_the_caller_at_once():
    agent = Fragile(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        batch_answers(agent, asks(0, -1, 0, 0))
    assert agent.batches == [4]


def test_an_agent_that_tells_or_does_not_want_it_is_not_asked_again():
    class Tells(Fragile):
        def __call__(self, asks):
            self.batches.append(len(asks))
            raise BatchBroken([ValueError("odd"), Reply("x")])

    class Once(Fragile):
        splits_batches = False

    told, once = Tells(), Once()
    assert isinstance(batch_answers(told, asks(0, 0))[0], ValueError)
    assert [type(each) for each in batch_answers(once, asks(0, -1))] == [ValueError] * 2
    assert told.batches == once.batches == [2]


def test_who_is_gone_in_the_midst_of_the_halves_is_not_asked_on():
    class Goes(Batches):
        def __call__(self, asks):
            self.batches.append(len(asks))
            raise ValueError("too many") if len(asks) > 2 else AgentUnavailable("gone")

    agent = Goes()
    answers = batch_answers(agent, asks(*[0] * 8))
    assert [str(answer) for answer in answers] == ["gone"] * 8
    assert agent.batches == [8, 4, 2]


def test_another_number_of_replies_is_asked_again_in_halves():
    class Short(Batches):
        def __call__(self, asks):
            super().__call__(asks)
            return [Reply(ask.episode) for ask in asks if ask.turn >= 0]

    agent = Short()
    answers = batch_answers(agent, asks(0, -1, 0))
    assert [getattr(answer, "text", None) for answer in answers] == ["e0", None, "e2"]
    assert str(answers[1]) == "the agent answered 1 asks with 0 replies."


def test_what_a_broken_batch_held_is_free_when_a_smaller_one_is_tried():
    class Memory:
        held = 0

        def __init__(self, size):
            self.size = size
            Memory.held += size
            if Memory.held > 4:
                raise MemoryError(f"{Memory.held} of 4")

        def __del__(self):
            Memory.held -= self.size

    class Big(Batches):
        def __call__(self, asks):
            super().__call__(asks)
            kept = [Memory(9 if ask.turn < 0 else 1) for ask in asks]
            return [Reply(str(each.size)) for each in kept]

    agent = Big()
    answers = batch_answers(agent, asks(*[0] * 5, -1, *[0] * 10))
    assert [isinstance(answer, MemoryError) for answer in answers] == [place == 5 for place in range(16)]
    assert answers[5].args == ("9 of 4",)


def test_once_nobody_is_answered_the_asks_of_the_moment_are_not_waited_for():
    class Goes(BaseAgent):
        cancelled = 0

        async def ask(self, ask):
            if ask.turn == 1:
                raise AgentUnavailable("the key is refused")
            if ask.turn == 2:
                return Reply("in time")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

    with Goes() as agent:
        answers = batch_answers(agent, asks(0, 2, 1, 0))
    assert [getattr(answer, "text", str(answer)) for answer in answers] == [
        "the key is refused",
        "in time",
        "the key is refused",
        "the key is refused",
    ]
    assert agent.cancelled == 1  # the last one had not begun


def test_a_reply_that_is_timed_keeps_all_else():
    class Timed(BaseAgent):
        def __call__(self, asks):
            return [given for _ in asks]

    values = {field.name: object() for field in fields(Reply)}
    given = Reply(**{**values, "policy_s": None})
    (timed,) = batch_answers(Timed(), asks(0))
    assert timed.policy_s >= 0.0
    assert given.policy_s is None
    assert {name: getattr(timed, name) for name in values if name != "policy_s"} == {
        name: value for name, value in values.items() if name != "policy_s"
    }
