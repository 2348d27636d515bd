import math
from array import array
from itertools import chain

import numpy as np
import pytest

from gem.content import Message, ToolCall, ToolSpec, written_tools
from gem.dialogue import Dialogue
from gem.errors import BadArgument, ContractBroken
from gem.history import CHAT, LAST, HistoryPolicy
from gem.record import SEAT, Reply


def dialogue(policy=CHAT, **fields):
    return Dialogue(SEAT, "e", 7, policy=policy, **fields)


def take(talk, obs, reply, info=None):
    """One turn: shown `obs`, answered with `reply`."""
    turn = talk.open(obs, info or {})
    asked = talk.ask()
    talk.answer(reply)
    turn.action, turn.info = reply.text, {}
    return asked


def said(prompt, answer, text="a", **more):
    return Reply(text, prompt, answer, tuple(-0.5 for _ in answer), **more)


def test_what_is_held_is_the_last_prompt_and_answer():
    talk = dialogue()
    first = take(talk, "o1", said((1, 2), (3,)))
    second = take(talk, "o2", said((1, 2, 3, 4), (5,)))
    third = take(talk, "o3", Reply("text alone"))
    fourth = take(talk, "o4", said((9,), (8,)))
    assert [ask.held for ask in (first, second, third, fourth)] == [(), (1, 2, 3), (1, 2, 3, 4, 5), ()]
    assert [ask.fresh for ask in (first, second, third, fourth)] == [1, 1, 1, 7]
    assert [ask.turn for ask in (first, second, third, fourth)] == [0, 1, 2, 3]
    one, two, _, four = talk.turns
    assert (two.parent, two.kept, list(two.new_ids)) == (one, 3, [4])
    assert (four.parent, four.kept) == (None, 0)


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_reply_may_bring_any_sequence(kind):
    talk = dialogue()
    take(talk, "o1", said(kind((1, 2)), kind((3,))))
    asked = take(talk, "o2", said(kind((1, 2, 3, 4)), kind((5,))))
    assert asked.held == (1, 2, 3)
    assert (talk.turns[1].parent, talk.turns[1].kept) == (talk.turns[0], 3)


def test_a_prompt_that_went_another_way_keeps_what_it_shares():
    """An agent that renders anew may write the past in other tokens."""
    talk = dialogue()
    take(talk, "o1", said((1, 2), (3, 4)))
    take(talk, "o2", said((1, 2, 3, 9), (5,)))
    one, two = talk.turns
    assert (two.parent, two.kept, list(two.prompt_ids)) == (one, 3, [1, 2, 3, 9])


@pytest.mark.parametrize("policy", [LAST, HistoryPolicy("chat", window=2)])
def test_nothing_is_held_where_the_past_is_rewritten(policy):
    talk = dialogue(policy)
    for number in range(3):
        assert take(talk, f"o{number}", said((1, 2), (3,))).held == ()


def test_what_a_model_said_beside_its_text_is_its_reply():
    talk = dialogue()
    call = ToolCall("1", "look", "{}")
    take(talk, "o1", said((1,), (2,), reasoning="hm", tool_calls=(call,)))
    take(
        talk, "o2", said((1, 2, 3), (4,), usage={"completion_tokens": 1}, extra={"id": "r"}, policy_version=3)
    )
    one, two = talk.turns
    assert one.reply == Message("assistant", "a", reasoning="hm", tool_calls=(call,))
    assert (one.usage, one.extra, one.policy_version) == (None, None, None)
    assert two.reply is None
    assert (two.usage, two.extra, two.policy_version) == ({"completion_tokens": 1}, {"id": "r"}, 3)


def test_tools_that_a_step_names_are_offered_from_then_on_with_a_new_prompt():
    look, sort = ToolSpec("look", "Look around.", {}), ToolSpec("sort", "Sort it.", {})
    talk = dialogue(tools=(look,))
    take(talk, "o1", said((1,), (2,)), {"tools": written_tools([look])})
    second = take(talk, "o2", said((1, 2, 3), (4,)), {"tools": written_tools([look, sort])})
    third = take(talk, "o3", said((9, 2, 3, 5), (6,)), {"tools": 3})
    fourth = take(talk, "o4", said((9, 2, 3, 5, 6), (7,)))
    assert [ask.tools for ask in (second, third, fourth)] == [(look, sort)] * 3
    assert [(ask.held, ask.fresh) for ask in (second, fourth)] == [((), 3), ((9, 2, 3, 5, 6), 1)]


def test_results_of_calls_come_behind_what_is_held_one_message_for_each():
    one, two = ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")
    told = {"tool_results": [{"shown": 1}, {"shown": 1}]}
    talk = dialogue(tools=(ToolSpec("look", "Look around."),))
    first = take(talk, "o1", said((1,), (2,), tool_calls=(one, two)))
    second = take(talk, "a\nb", said((1, 2, 3), (4,), tool_calls=(one,)), told)
    third = take(talk, "c", said((1, 2, 3, 4, 5), (6,)))
    fourth = talk.open("d", {}) and talk.ask()
    assert [len(ask.tools) for ask in (first, second, third, fourth)] == [1, 1, 1, 1]
    assert [(ask.held, ask.fresh) for ask in (second, third)] == [((1, 2), 2), ((1, 2, 3, 4), 1)]
    assert [each.role for each in fourth.messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user")
    ]
    assert [each.content for each in fourth.messages if each.role == "tool"] == ["a", "b", "c"]
    assert third.messages == fourth.messages[:6]


def test_calls_are_recalled_with_their_turn():
    call = ToolCall("1", "look", "{}")
    first = dialogue()
    take(first, "o1", said((1,), (2,), tool_calls=(call,)))
    again = dialogue()
    again.open("o1", {})
    again.recall(first.turns[0])
    again.turns[0].action = first.turns[0].action
    again.open("o2", {})
    asked = again.ask()
    assert (asked.held, asked.fresh) == ((1, 2), 1)
    assert asked.messages[-1] == Message("tool", "o2", tool_call_id="1", name="look")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("text", "an answer is a Reply"),
        (Reply(None), "an answer is a Reply"),
        (Reply("a", (1,), (2,), (math.nan,)), "not finite"),
        (Reply("a", (1,), (2,), (-0.5, -0.5)), "1 token_ids has 2 logprobs"),
        (Reply("a", (1,), ("x",)), "32-bit integers"),
        (Reply("a", tool_calls=("look",)), "tool_calls"),
        (Reply("a", tool_calls=(ToolCall("1", "look", {}),)), "tool_calls"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(reply, message):
    talk = dialogue()
    talk.open("o", {})
    talk.ask()
    with pytest.raises(BadArgument, match=message):
        talk.answer(reply)


def test_tokens_are_counted_here_or_by_the_server():
    talk = dialogue()
    talk.open("o", {})
    talk.ask()
    assert talk.answer(said((1,), (2, 3), usage={"completion_tokens": 7})) == 2
    assert talk.answer(Reply("text", usage={"completion_tokens": 7})) == 7
    assert talk.answer(Reply("text")) == 0


def test_seeds_follow_from_seed_sample_salt_seat_and_turn():
    def seeds(**fields):
        talk = Dialogue(**{"seat": SEAT, "episode": "e", "seed": 7, **fields})
        return [take(talk, "o", Reply("a")).seed for _ in range(3)]

    one = seeds()
    assert one == seeds(episode="other", policy=LAST)
    others = [seeds(seed=8), seeds(sample=1), seeds(salt=1), seeds(seat="o"), seeds(sample=1, salt=1)]
    assert len({*one, *chain(*others)}) == 18


# -- an answer that is recalled


def recorded():
    talk = dialogue()
    take(talk, "o1", said((1, 2), (3,), reasoning="hm", usage={"completion_tokens": 1}, policy_version=3))
    take(talk, "o2", said((1, 2, 3, 4), (5, 6), extra={"id": "r"}, finish="length"))
    talk.turns[0].value = 0.25
    return talk.turns


def test_an_answer_is_recalled_as_it_was_and_not_learned_on():
    turns, talk = recorded(), dialogue()
    for turn in turns:
        mine = talk.open(turn.observation, {})
        assert talk.recall(turn) == len(turn.token_ids)
        mine.action = turn.action
        for name in (
            "seat",
            "reply",
            "finish",
            "kept",
            "value",
            "policy_version",
            "usage",
            "extra",
            "sampling",
        ):
            assert getattr(mine, name) == getattr(turn, name)
        assert (mine.prompt_ids, mine.token_ids) == (turn.prompt_ids, turn.token_ids)
        assert mine.logprobs == turn.logprobs
        assert mine.mask == bytes(len(turn.token_ids))
        assert mine.parent is not turn.parent or mine.parent is None
    assert talk.turns[1].parent is talk.turns[0]
    asked = take(talk, "o3", said((1, 2, 3, 4, 5, 6, 7), (8,)))
    assert (asked.turn, asked.held, asked.fresh) == (2, (1, 2, 3, 4, 5, 6), 1)
    assert talk.turns[2].mask == b"\1"


def test_a_recalled_answer_without_tokens_leaves_nothing_held():
    talk, old = dialogue(), dialogue()
    take(old, "o1", Reply("text", usage={"completion_tokens": 4}))
    talk.open("o1", {})
    assert talk.recall(old.turns[0]) == 4
    talk.turns[0].action = "text"
    asked = take(talk, "o2", said((1,), (2,)))
    assert (asked.held, asked.fresh, len(asked.messages)) == ((), 3, 3)


def test_another_observation_than_was_recorded_is_refused():
    talk = dialogue()
    talk.open("something else", {})
    with pytest.raises(
        ContractBroken, match=r"turn 0 of seat 'agent' was shown 'o1' .* and 'something else' now"
    ):
        talk.recall(recorded()[0])


@pytest.mark.parametrize(
    "kind", [list, np.array, lambda values: array("d" if 0.5 in values else "i", values)]
)
def test_tokens_may_come_as_any_sequence_of_numbers(kind):
    talk = dialogue()
    take(talk, "o1", Reply("a", kind([1, 2]), kind([3, 4]), kind([0.5, 0.5])))
    held = take(talk, "o2", Reply("b", kind([1, 2, 3, 4, 5]), kind([6]), kind([0.5]))).held
    assert held == (1, 2, 3, 4)
    assert all(type(token) is int for token in held)
    one, two = talk.turns
    assert (two.parent, two.kept, list(two.new_ids), list(two.logprobs)) == (one, 4, [5], [0.5])


@pytest.mark.parametrize(
    "wrong", [{"finish": None}, {"reasoning": 5}, {"policy_version": "v1"}, {"tool_calls": ["search"]}]
)
def test_a_reply_that_no_store_could_hold_is_refused(wrong):
    talk = dialogue()
    talk.open("o1", {})
    talk.ask()
    with pytest.raises(BadArgument, match=next(iter(wrong))):
        talk.answer(Reply("a", **wrong))
