import asyncio
import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest

import gem
from gem.codec import decode, encode
from gem.content import Message, ToolCall, ToolSpec, written_tools
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import NoVerdict, OutOfTime, WorkerDied
from gem.history import CHAT, LAST, HistoryPolicy, messages
from gem.record import SEAT, Call, Episode, Failure, Limits, Reply, StopReason, Verdict
from gem.rollout.episode import NO_LIMITS, play
from gem.seeding import derive
from gem.specs import TaskRef


class Script(Env):
    """Says what it is told to: one Step, or one exception, per turn."""

    def __init__(self, *steps, start=("start", {})):
        self.steps = steps
        self.start = start

    def reset(self, seed=None):
        super().reset(seed)
        self.at = 0
        if isinstance(self.start, BaseException):
            raise self.start
        return Start(*self.start)

    def step(self, action):
        self.at += 1
        step = self.steps[self.at - 1]
        if isinstance(step, BaseException):
            raise step
        return step


def go(reward=0.0, obs="go on", **info):
    return Step(obs, reward, False, False, info)


def over(reward=1.0, terminated=True, truncated=False, **info):
    return Step("the end", reward, terminated, truncated, info)


def drive(env, agent=lambda ask: Reply("a"), limits=NO_LIMITS, *, record=None, **kwargs):
    """Play to the end with an agent that is a function, or an exception, per ask; return the episode."""
    playing = play(env, 7, limits, record=record, **kwargs)
    resume, value = playing.send, None
    while True:
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        resume = playing.send
        try:
            if isinstance(wanted, Call):
                value = getattr(wanted.env, wanted.verb)(*wanted.args, **wanted.kwargs)
            else:
                value = tuple(agent(ask) for ask in wanted)
        except BaseException as error:
            resume, value = playing.throw, error


def raising(error):
    def agent(ask):
        raise error

    return agent


@pytest.mark.parametrize(
    ("info", "stop"),
    [
        ({"stop": "solved"}, StopReason.SOLVED),
        ({"stop": "failed", "success": True}, StopReason.FAILED),
        ({"stop": "unreadable"}, StopReason.UNREADABLE),
        ({"stop": "turn_budget"}, StopReason.TURN_BUDGET),
        ({"stop": ["?"], "success": False}, StopReason.FAILED),
        ({"success": True}, StopReason.SOLVED),
        ({"correct": False}, StopReason.FAILED),
        ({"correct": None}, StopReason.ENDED),
        ({}, StopReason.ENDED),
    ],
)
def test_the_task_says_in_info_how_it_ended(info, stop):
    episode = drive(Script(go(0.25), over(0.5, **info)))
    assert episode.stop is stop
    assert (episode.terminated, episode.truncated, episode.verdict) == (True, False, Verdict.SCORED)
    assert not episode.bootstrap
    assert episode.reward() == 0.75
    assert [turn.reward for turn in episode.turns] == [0.25, 0.5]
    assert (episode.final_observation, episode.final_info) == ("the end", info)


@pytest.mark.parametrize("key", ["success", "correct"])
@pytest.mark.parametrize("value", ["false", "no", 0.5, 2, float("nan"), [], [False], {"success": False}])
def test_what_is_neither_true_nor_false_is_no_success(key, value):
    episode = drive(Script(over(1.0, **{key: value})))
    assert (episode.verdict, episode.success, episode.error.type) == (Verdict.NONE, None, "ContractBroken")
    assert f"info[{key!r}]" in episode.error.message


@pytest.mark.parametrize(("value", "stop"), [(1, "solved"), (0.0, "failed"), (np.bool_(True), "solved")])
def test_what_equals_true_or_false_is_a_success_or_none(value, stop):
    assert drive(Script(over(1.0, success=value))).stop == stop


@pytest.mark.parametrize(
    ("step", "stop"),
    [
        (over(truncated=True, terminated=False), StopReason.TURN_LIMIT),
        (over(truncated=True, terminated=False, stop="time_limit"), StopReason.TIME_LIMIT),
        (over(truncated=True, terminated=False, stop="failed"), StopReason.TURN_LIMIT),
        (over(truncated=True, terminated=False, stop="ended"), StopReason.ENDED),
        (over(truncated=True, terminated=False, success=False), StopReason.TURN_LIMIT),
        (over(truncated=True, terminated=False, success=True), StopReason.SOLVED),
        (over(truncated=True, terminated=False, correct=1), StopReason.SOLVED),
    ],
)
def test_a_truncation_by_the_environment_is_a_limit_from_outside(step, stop):
    episode = drive(Script(step))
    assert (episode.stop, episode.terminated, episode.truncated) == (stop, False, True)
    assert (episode.scored, episode.bootstrap, episode.reward()) == (True, True, 1.0)


@pytest.mark.parametrize("ends", [(False, True), (True, False), (True, True), (False, False)])
def test_an_environment_that_says_it_broke_gives_no_verdict_however_it_ends(ends):
    broken = drive(Script(go(0.5), over(0.5, *ends, stop="error", error="gone", success=True)))
    assert (broken.stop, broken.error.type, broken.error.message) == (StopReason.ERROR, "NoVerdict", "gone")
    cancelled = drive(Script(over(terminated=False, truncated=True, stop="cancelled")))
    assert (cancelled.stop, cancelled.error) == (StopReason.CANCELLED, None)
    for episode in (broken, cancelled):
        assert (episode.verdict, episode.terminated, episode.truncated) == (Verdict.NONE, False, True)


def test_an_end_that_is_called_both_is_the_tasks_own():
    episode = drive(Script(over(truncated=True, success=True)))
    assert (episode.terminated, episode.truncated, episode.stop) == (True, False, StopReason.SOLVED)


def tokens(count, finish="stop"):
    return lambda ask: Reply("a", (0,) * 9, (1,) * min(count, ask.max_tokens or count), finish=finish)


@pytest.mark.parametrize(
    ("limits", "agent", "turns", "stop"),
    [
        (Limits(turns=2), tokens(1), 2, StopReason.TURN_LIMIT),
        (Limits(turns=0), tokens(1), 0, StopReason.TURN_LIMIT),
        (Limits(tokens=5), tokens(2), 3, StopReason.TOKEN_LIMIT),
        (Limits(tokens=4), tokens(2), 2, StopReason.TOKEN_LIMIT),
        (Limits(tokens=4), lambda ask: Reply("a", usage={"completion_tokens": 2}), 2, StopReason.TOKEN_LIMIT),
        (Limits(context=9), lambda ask: Reply("", finish="context"), 0, StopReason.CONTEXT_LIMIT),
        (Limits(on_time="scored"), raising(OutOfTime("late")), 0, StopReason.TIME_LIMIT),
    ],
)
def test_a_limit_from_outside_truncates_and_keeps_what_was_earned(limits, agent, turns, stop):
    episode = drive(Script(*[go(0.5)] * 9), agent, limits)
    assert (episode.stop, len(episode.turns)) == (stop, turns)
    assert (episode.terminated, episode.truncated, episode.scored, episode.bootstrap) == (
        False,
        True,
        True,
        True,
    )
    assert episode.reward() == 0.5 * turns
    assert episode.final_observation == ("go on" if turns else "start")


@pytest.mark.parametrize("on_time", ["none", "scored"])
def test_the_time_of_the_policy_alone_is_limited_and_its_late_answer_dropped(on_time):
    left = []

    def slow_agent(ask):
        left.append(ask.policy_s)
        return Reply("a", policy_s=1.0)

    episode = drive(Script(*[go(0.5)] * 9), slow_agent, Limits(policy_s=2.5, on_time=on_time))
    assert left == [2.5, 1.5, 0.5]
    assert (episode.stop, len(episode.turns)) == (StopReason.TIME_LIMIT, 2)
    assert episode.scored == (on_time == "scored")
    late = Failure("agent", "OutOfTime", "the agent took 3 s; its limit is 2.5 s.", no_verdict=True)
    assert episode.error == (None if episode.scored else late)
    assert episode.timing["policy_s"] == 3.0
    assert [turn.timing["policy_s"] for turn in episode.turns] == [1.0, 1.0]


def test_an_ask_passes_on_what_the_agent_must_keep():
    asks = []

    def agent(ask):
        asks.append(ask)
        return Reply("a", (), (1, 2))

    drive(
        Script(go(), go(), over()),
        agent,
        Limits(tokens=5, turn_tokens=4, context=50),
        record=Episode(TaskRef("test:Script", seed=7), job="me", sample=3),
    )
    assert [ask.max_tokens for ask in asks] == [4, 3, 1]
    assert {ask.context for ask in asks} == {50}
    assert [(ask.seat, ask.turn) for ask in asks] == [("agent", i) for i in range(3)]
    assert len({ask.episode for ask in asks}) == 1
    assert asks[0].episode.endswith("-me-3-0")
    assert [ask.seed for ask in asks] == [derive(7, "sample", 3, "agent", i) for i in range(3)]


def no_verdict(episode, boundary, kind, message):
    assert (episode.stop, episode.verdict) == (StopReason.ERROR, Verdict.NONE)
    assert (episode.terminated, episode.truncated, episode.bootstrap) == (False, True, False)
    assert episode.reward() != episode.reward()
    assert (episode.error.boundary, episode.error.type) == (boundary, kind)
    assert message in episode.error.message


def test_an_environment_that_breaks_at_reset_gives_no_verdict():
    episode = drive(Script(start=ValueError("no deck")))
    no_verdict(episode, "env", "ValueError", "no deck")
    assert episode.turns == []


@pytest.mark.parametrize(
    ("step", "boundary", "kind", "message"),
    [
        (ZeroDivisionError("oh"), "env", "ZeroDivisionError", "oh"),
        (NoVerdict("the sandbox is gone"), "env", "NoVerdict", "the sandbox is gone"),
        (WorkerDied("worker 3"), "host", "WorkerDied", "worker 3"),
        (go(float("nan")), "env", "ContractBroken", "nan"),
        (go(None), "env", "ContractBroken", "reward is NoneType None; a reward is a finite number"),
        (go(10**400), "env", "ContractBroken", "a reward is a finite number"),
        (go([1.0]), "env", "ContractBroken", "reward is list [1.0]; a reward is a finite number"),
        (go(obs=None), "env", "BadArgument", "observation is NoneType; it must be text"),
        (Step({"x": 1}, 0.0, False, False, {}), "env", "BadArgument", "observation is dict; it must be text"),
        (Step(3, 0.0, False, False, {}), "env", "BadArgument", "observation is int"),
        (Step(None, 0.0, True, False, {}), "env", "BadArgument", "observation is NoneType"),
        (Step("on", 0.0, 0, False, {}), "env", "ContractBroken", "must return a bool"),
        (Step("on", 0.0, False, False, None), "env", "ContractBroken", "info is a NoneType"),
    ],
)
def test_an_environment_that_breaks_at_a_step_gives_no_verdict_and_no_reward(step, boundary, kind, message):
    episode = drive(Script(go(0.5, note=1), step))
    no_verdict(episode, boundary, kind, message)
    assert ("test_episode.py, line" in episode.error.message) is (kind == "ZeroDivisionError")
    assert [(turn.action, turn.reward) for turn in episode.turns] == [("a", 0.5), ("a", None)]
    assert [turn.info for turn in episode.turns] == [{"note": 1}, {}]


@pytest.mark.parametrize(
    ("agent", "kind", "message"),
    [
        (raising(RuntimeError("out of memory")), "RuntimeError", "out of memory"),
        (raising(TimeoutError()), "TimeoutError", ""),
        (raising(WorkerDied("of the agent")), "WorkerDied", "of the agent"),
        (lambda ask: "text", "BadArgument", "'text'"),
        (lambda ask: Reply(None), "BadArgument", "None"),
        (lambda ask: Reply("a", (1,), (1, 2), (0.5,)), "BadArgument", "2 token_ids has 1 logprobs"),
        (lambda ask: Reply("a", (1,), (1,), (float("nan"),)), "BadArgument", "not finite"),
    ],
)
def test_an_agent_that_breaks_gives_no_verdict(agent, kind, message):
    episode = drive(Script(go(0.5), over()), agent)
    no_verdict(episode, "agent", kind, message)
    assert episode.turns == []


def test_ctrl_c_is_nobodys_episode():
    """Wherever it strikes, in `play` itself too, it goes on to the caller."""

    with pytest.raises(KeyboardInterrupt):
        drive(Script(go(0.5), KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        drive(Script(go(0.5), over()), raising(KeyboardInterrupt()))


def test_a_cancelled_episode_has_no_verdict():
    episode = drive(Script(go(0.5), asyncio.CancelledError()))
    assert (episode.stop, episode.verdict, episode.error) == (StopReason.CANCELLED, Verdict.NONE, None)
    assert (episode.terminated, episode.truncated) == (False, True)


def test_closing_an_episode_ends_it_quietly():
    playing = play(Script(), 7)
    next(playing)
    playing.close()
    with pytest.raises(StopIteration):
        next(playing)


@pytest.mark.parametrize(
    "history",
    [
        CHAT,
        LAST,
        HistoryPolicy("concat"),
        HistoryPolicy("concat_with_action", window=2),
        HistoryPolicy("chat", window=2, keep_first=True),
        HistoryPolicy("chat", system="be brief"),
    ],
)
@pytest.mark.parametrize("suffixes", [(), (0,), (1, 2), (0, 1, 2, 3, 4)])
def test_prompts_are_those_of_history_and_held_tokens_only_where_the_prompt_grows(history, suffixes):
    around = [{"suffix": f"say {i}", "prefix": "P"} if i in suffixes else {} for i in range(5)]
    steps = [go(0.0, f"obs {i}", **around[i]) for i in range(1, 5)]
    asks = []

    def agent(ask):
        asks.append(ask)
        return Reply(f"act {ask.turn}", (10, ask.turn), (20, ask.turn))

    class Exchange:
        def __init__(self, observation, action, info):
            self.observation, self.action, self.info, self.reply = observation, action, info, None

    episode = drive(Script(*steps, over(), start=("obs 0", around[0])), agent, history=history)
    record = episode.exchanges()
    for turn, ask in enumerate(asks):
        assert ask.messages == messages(record[: turn + 1], history)
        past = [Exchange(f"obs {i}", f"act {i}", around[i]) for i in range(turn)]
        assert ask.messages == messages([*past, Exchange(f"obs {turn}", None, around[turn])], history)
        if turn == 0:
            assert ask.held == ()
            continue
        before = asks[turn - 1].messages
        grows = history.append_only and ask.messages[: len(before)] == before
        assert ask.held == ((10, turn - 1, 20, turn - 1) if grows else ())
        assert ask.fresh == (1 if grows else len(ask.messages))
    assert len(asks) == 5


class Assembled(EnvWrapper):
    assembles_history = True


def test_over_an_environment_that_assembles_its_history_the_last_observation_is_the_prompt():
    asks = []
    env = EnvWrapper(Assembled(Script(go(0.0, "start and go on"), over())))
    drive(env, lambda ask: asks.append(ask) or Reply("a", (1,), (2,)))
    assert [[message.text for message in ask.messages] for ask in asks] == [["start"], ["start and go on"]]
    assert asks[1].held == ()


def test_a_turn_holds_what_the_agent_saw_and_sampled():
    reply = Reply("a", (1, 2), (3, 4, 5), (-1.0, -2.0, -3.0), "length")
    record = Episode(TaskRef("test:Script", seed=7), group="g", sample=2)
    episode = drive(Script(over(0.5, note="x")), lambda ask: reply, record=record)
    (turn,) = episode.turns
    assert (list(turn.prompt_ids), list(turn.token_ids)) == ([1, 2], [3, 4, 5])
    assert (list(turn.logprobs), list(turn.mask)) == ([-1.0, -2.0, -3.0], [1, 1, 1])
    assert (turn.finish, turn.info) == ("length", {"note": "x"})
    assert set(turn.timing) == {"policy_s", "env_s"}
    assert (episode.seed, episode.group, episode.sample) == (7, "g", 2)


def test_a_mixed_episode_has_the_lowest_policy_version():
    versions = iter([3, 2, None])
    episode = drive(Script(go(), go(), over()), lambda ask: Reply("a", policy_version=next(versions)))
    assert episode.policy_version == 2


def test_an_actor_acts_in_place_of_the_agent():
    episode = drive(gem.make("game:GuessTheNumber-v0-easy"), raising(AssertionError()), actor="solve")
    assert episode.stop is StopReason.SOLVED
    episode = drive(Script(over()), actor="solve")
    assert (episode.verdict, episode.error.type) == (Verdict.NONE, "NoSolver")


def test_samples_of_a_random_actor_are_the_same_world_and_other_actions():
    def said(sample):
        env = EnvWrapper(gem.make("game:GuessTheNumber-v0-hard", max_turns=30))
        record = Episode(TaskRef("test", seed=7), sample=sample)
        episode = drive(env, actor="sample_random_action", record=record)
        return episode.turns[0].observation, [turn.action for turn in episode.turns]

    shown, actions = zip(*map(said, (0, 1, 1, 2)), strict=True)
    assert len(set(shown)) == 1
    assert actions[1] == actions[2]
    assert len({tuple(each) for each in actions}) == 3
    env = gem.make("game:GuessTheNumber-v0-hard", max_turns=30)
    env.reset(seed=7)
    assert actions[0][0] == env.sample_random_action()


def test_an_episode_names_what_makes_its_environment_again():
    episode = drive(gem.make("game:GuessTheNumber-v0-easy", max_turns=2))
    again = drive(gem.make(episode.task))
    assert episode.kwargs["max_turns"] == 2
    assert again.transcript_hash() == episode.transcript_hash()
    assert drive(Script(over())).spec.endswith("test_episode:Script")


def test_info_is_kept_as_it_was_at_its_turn():
    info = {"count": 1}

    class Reuses(Script):
        def step(self, action):
            step = super().step(action)
            info["count"] += 1
            return Step(step.obs, step.reward, step.terminated, step.truncated, info)

    episode = drive(Reuses(go(), over()))
    assert [turn.info["count"] for turn in episode.turns] == [2, 3]


def test_each_turn_has_its_own_policy_version_reasoning_usage_and_extras():
    reply = Reply("a", policy_version=4, reasoning="hm", usage={"completion_tokens": 3}, extra={"id": "r1"})
    (turn,) = drive(Script(over(0.5, rewards={"format": 0.2, "answer": 0.3})), lambda ask: reply).turns
    assert (turn.policy_version, turn.usage, turn.extra) == (4, {"completion_tokens": 3}, {"id": "r1"})
    assert (turn.said.content, turn.said.reasoning) == ("a", "hm")
    assert turn.rewards == {"format": 0.2, "answer": 0.3}


def test_a_turn_keeps_only_what_it_adds_of_a_growing_prompt():
    episode = drive(
        Script(*[go()] * 3, over()),
        lambda ask: Reply("a", (*ask.held, 7, ask.turn), (9, ask.turn), (-1.0, -1.0)),
    )
    assert [list(turn.new_ids) for turn in episode.turns] == [[7, i] for i in range(4)]
    assert [turn.kept for turn in episode.turns] == [0, 4, 8, 12]
    assert episode.turns[3].parent is episode.turns[2]
    assert list(episode.turns[2].prompt_ids) == [7, 0, 9, 0, 7, 1, 9, 1, 7, 2]


@pytest.mark.parametrize("info", [{}, {"k": 3}, None])
def test_a_dict_is_an_observation_of_several_seats_only(info):
    episode = drive(Script(start=({"x": 1}, info)))
    no_verdict(episode, "env", "ContractBroken", "is a dict, {'x': 1}; an observation is text, or a list of")


def test_an_environment_that_neither_goes_on_nor_ends_breaks_its_contract():
    episode = drive(Script(start=({}, {})))
    assert (episode.verdict, episode.error.type) == (Verdict.NONE, "ContractBroken")
    assert "gave no seat an observation" in episode.error.message


def test_what_an_environment_changes_later_stays_as_it_was_said():
    class Board(Env):
        def reset(self, seed=None):
            super().reset(seed)
            self.info = {"board": {"cells": [0]}, "seen": {0}}
            return Start("start", self.info)

        def step(self, action):
            cells = self.info["board"]["cells"]
            cells.append(len(cells))
            self.info["seen"].add(len(cells))
            return Step("on", 0.0, len(cells) == 3, False, self.info)

    episode = drive(Board())
    said = [episode.starts["agent"], *(turn.info for turn in episode.turns), episode.final_info]
    assert [info["board"]["cells"] for info in said] == [[0], [0, 1], [0, 1, 2], [0, 1, 2]]
    assert [info["seen"] for info in said] == [{0}, {0, 2}, {0, 2, 3}, {0, 2, 3}]


@dataclass
class Hand:
    cards: list


class Locked:
    """Cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("value", "change", "before", "after"),
    [
        (Counter("a"), lambda value: value.update("b"), Counter("a"), Counter("ab")),
        (defaultdict(list, a=[1]), lambda value: value["a"].append(2), {"a": [1]}, {"a": [1, 2]}),
        (deque([1]), lambda value: value.append(2), deque([1]), deque([1, 2])),
        (bytearray(b"a"), lambda value: value.extend(b"b"), b"a", b"ab"),
        (Hand([1]), lambda value: value.cards.append(2), Hand([1]), Hand([1, 2])),
        ({"row": (1, [1])}, lambda value: value["row"][1].append(2), {"row": (1, [1])}, {"row": (1, [1, 2])}),
    ],
)
def test_a_value_of_any_type_stays_as_it_was_said(value, change, before, after):
    class Table(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return Start("start", {"it": value})

        def step(self, action):
            change(value)
            return Step("on", 0.0, True, False, {"it": value})

    episode = drive(Table())
    assert (episode.starts["agent"]["it"], episode.turns[0].info["it"]) == (before, after)
    assert type(episode.final_info["it"]) is type(value)


def test_an_array_stays_as_it_was_said_and_what_cannot_be_copied_is_kept():
    board, locked = np.zeros(2), Locked()

    class Table(Script):
        def step(self, action):
            board[:] += 1
            return super().step(action)

    episode = drive(Table(go(board=board, it=locked), over(board=board)))
    assert [turn.info["board"].tolist() for turn in episode.turns] == [[1, 1], [2, 2]]
    assert episode.turns[0].info["it"] is locked


def test_an_action_is_plain_text():
    class Parsed(str):
        def __str__(self):
            return "something else"

    (turn,) = drive(Script(over()), lambda ask: Reply(Parsed("a"))).turns
    assert (type(turn.action), turn.action) == (str, "a")


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def test_an_error_without_words_breaks_its_episode_alone():
    def speechless(ask):
        raise Mute

    for episode, boundary in ((drive(Script(Mute())), "env"), (drive(Script(), speechless), "agent")):
        assert (episode.error.boundary, episode.error.type) == (boundary, "Mute")
        assert "cannot be read" in episode.error.message


# -- native tools


class Tooled(Script):
    tool_specs = (ToolSpec("look", "Look around.", {"type": "object", "properties": {}}),)

    def step(self, action):
        self.heard = [*getattr(self, "heard", ()), action]
        return super().step(action)


def test_tools_are_offered_and_their_calls_reach_the_environment_as_text():
    asks = []
    call = ToolCall("c1", "look", '{"at": "<b>"}')

    def agent(ask):
        asks.append(ask)
        return Reply("so", tool_calls=(call,) if ask.turn == 0 else ())

    env = Tooled(go(0.5, "a lamp"), over())
    episode = drive(env, agent)
    assert [ask.tools for ask in asks] == [Tooled.tool_specs] * 2
    written = 'so\n<tool_call>{"name": "look", "arguments": {"at": "\\u003cb>"}}</tool_call>'
    assert env.heard == [written, "so"]
    assert [turn.action for turn in episode.turns] == env.heard
    assert asks[1].messages[1:] == (
        Message("assistant", "so", tool_calls=(call,)),
        Message("tool", "a lamp", tool_call_id="c1", name="look"),
    )
    assert episode.starts[SEAT] == {"tools": written_tools(Tooled.tool_specs)}
    restored = decode(encode(episode), episode.run)
    assert messages(restored.exchanges()) == messages(episode.exchanges())
    by_text = drive(Tooled(go(0.5, "a lamp"), over()), lambda ask: Reply(env.heard[ask.turn]))
    assert by_text.transcript_hash() == episode.transcript_hash()


@pytest.mark.parametrize("tools", ["hammer", ["hammer"], [{"name": "hammer"}], {"hammer": 1}, 3])
def test_info_that_means_something_else_by_tools_offers_none(tools):
    asks = []
    env = Script(over(), start=("start", {"tools": tools}))
    episode = drive(env, lambda ask: asks.append(ask) or Reply("a"))
    assert episode.scored
    assert asks[0].tools == ()


def test_an_environment_that_is_late_is_no_late_agent():
    episode = drive(Script(OutOfTime("the tool's server is slow")))
    assert (episode.stop, episode.error.boundary, episode.scored) == (StopReason.ERROR, "env", False)
