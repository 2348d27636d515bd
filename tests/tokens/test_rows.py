import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import episode, turn

from gem.errors import BadArgument
from gem.record import SEAT, Turn
from gem.tokens.rows import BLANK, Row, rows

IDS = st.lists(st.integers(0, 3), max_size=4).map(tuple)  # few ids, so that prefixes happen by accident too


def plain(row):
    """A row as tuples."""
    return Row(tuple(row.ids), tuple(row.mask), tuple(row.logprobs), tuple(row.turn))


def chat(*said, **fields):
    """Turns, each of which may go on behind any earlier one."""
    made = []
    for prompt, answer, *mask in said:
        made.append(turn(prompt, answer, mask=mask[0] if mask else None, after=made, **fields))
    return made


@st.composite
def conversations(draw):
    """Turns that go on behind the last one or an earlier one, drop the end of its past, or begin anew."""
    turns = []
    for _ in range(draw(st.integers(0, 6))):
        held = ()
        if turns:
            behind = draw(st.sampled_from([turns[-1], draw(st.sampled_from(turns))]))
            held = (*behind.prompt_ids, *behind.token_ids)
        start = held[: draw(st.sampled_from([len(held), len(held), max(0, len(held) - 1), 0]))]
        prompt = (*start, *draw(IDS), 3)
        answer = draw(IDS)
        mask = tuple(draw(st.lists(st.integers(0, 1), min_size=len(answer), max_size=len(answer))))
        after = turns[-1:] if draw(st.booleans()) else turns  # who keeps one conversation, and who keeps all
        turns.append(turn(prompt, answer, mask=mask, after=after))
    return episode(*turns)


def test_an_append_only_conversation_is_one_row():
    (row,) = rows(episode(*chat(((1, 2), (3,)), ((1, 2, 3, 4), (5, 6)))))
    assert plain(row) == Row(
        ids=(1, 2, 3, 4, 5, 6),
        mask=(0, 0, 1, 0, 1, 1),
        logprobs=(0.0, 0.0, -0.5, 0.0, -0.5, -1.5),
        turn=(-1, -1, 0, -1, 1, 1),
    )


def test_a_prompt_that_does_not_begin_with_what_was_held_starts_a_row():
    made = rows(episode(*chat(((1, 2), (3,)), ((1, 9, 3, 4), (5,)), ((1, 9, 3, 4, 5, 6), (7,)))))
    assert [tuple(row.ids) for row in made] == [(1, 2, 3), (1, 9, 3, 4, 5, 6, 7)]
    assert [tuple(row.turn) for row in made] == [(-1, -1, 0), (-1, -1, -1, -1, 1, -1, 2)]


def test_a_prompt_that_drops_sampled_tokens_does_not_overwrite_them():
    made = rows(episode(*chat(((1,), (2, 3)), ((1, 2), (4,)))))
    assert [tuple(row.ids) for row in made] == [(1, 2, 3), (1, 2, 4)]


def test_conversations_that_take_turns_are_a_row_each():
    """As sub-agents are, which act in one seat."""
    one, other = (1, 2), (8, 9)
    made = rows(
        episode(
            *chat(
                (one, (3,)),
                (other, (7,)),
                ((*one, 3, 4), (5,)),
                ((*other, 7, 4), (6,)),
            )
        )
    )
    assert [tuple(row.ids) for row in made] == [(1, 2, 3, 4, 5), (8, 9, 7, 4, 6)]
    assert [tuple(row.turn) for row in made] == [(-1, -1, 0, -1, 2), (-1, -1, 1, -1, 3)]
    assert sum(map(sum, (row.mask for row in made))) == 4


def test_two_turns_behind_one_parent_are_two_rows_and_the_parent_is_learned_on_once():
    made = rows(episode(*chat(((1,), (2,)), ((1, 2, 3), (4,)), ((1, 2, 5), (6,)), ((1, 2, 5, 6, 7), (8,)))))
    assert [tuple(row.ids) for row in made] == [(1, 2, 3, 4), (1, 2, 5, 6, 7, 8)]
    assert [tuple(row.mask) for row in made] == [(0, 1, 0, 1), (0, 0, 0, 1, 0, 1)]
    assert [tuple(row.turn) for row in made] == [(-1, 0, -1, 1), (-1, -1, -1, 2, -1, 3)]


def test_a_turn_that_asks_again_is_a_row_of_its_own():
    """Parallel samples: the same prompt, two answers."""
    made = rows(episode(*chat(((1, 2), (3,)), ((1, 2), (4,)))))
    assert [tuple(row.ids) for row in made] == [(1, 2, 3), (1, 2, 4)]


@given(made=conversations())
def test_every_sampled_token_that_is_learned_on_stands_once_behind_its_own_context(made):
    expected = [
        (number, (*turn.prompt_ids, *turn.token_ids[:i]), token, turn.logprobs[i])
        for number, turn in enumerate(made.turns)
        for i, token in enumerate(turn.token_ids)
        if turn.mask[i]
    ]
    found = [
        (row.turn[t], tuple(row.ids[:t]), row.ids[t], row.logprobs[t])
        for row in rows(made)
        for t in range(len(row.ids))
        if row.mask[t]
    ]
    assert sorted(found, key=lambda token: token[:2]) == expected


@given(made=conversations())
def test_rows_are_parallel_and_blank_where_nothing_was_sampled(made):
    for row in rows(made):
        assert len(row.ids) == len(row.mask) == len(row.logprobs) == len(row.turn)
        for mask, logprob, number in zip(row.mask, row.logprobs, row.turn, strict=True):
            assert number >= 0 or (mask == 0 and logprob == 0.0)
        assert any(row.mask)


@given(made=conversations())
def test_one_turn_behind_each_whole_conversation_shares_its_row(made):
    extended = {
        id(turn.parent)
        for turn in made.turns
        if turn.parent and turn.kept == turn.parent.prompt_length + len(turn.parent.token_ids)
    }
    assert len(rows(made)) <= len(made.turns) - len(extended)


def test_a_masked_turn_is_context_but_not_learned_on():
    (row,) = rows(episode(*chat(((1,), (2,), (0,)), ((1, 2, 3), (4,)))))
    assert tuple(row.mask) == (0, 0, 0, 1)
    assert tuple(row.turn) == (-1, 0, -1, 1)


def test_rows_without_anything_to_learn_are_left_out():
    assert rows(episode(*chat(((1,), (2,), (0,))))) == []
    assert rows(episode()) == []


def test_only_the_seats_turns_are_taken_and_numbered():
    x = chat(((1,), (2,)), ((1, 2, 3), (4,)), seat="x")
    o = chat(((7,), (8,)), seat="o")
    game = episode(x[0], *o, x[1])
    assert rows(game, "x") == rows(episode(*chat(((1,), (2,)), ((1, 2, 3), (4,)))))
    assert rows(game, "o") == rows(episode(*chat(((7,), (8,)))))


def test_log_probabilities_that_nobody_knows_are_nan():
    (row,) = rows(episode(turn((1, 2), (3, 4), logprobs=None)))
    assert list(row.logprobs[:2]) == [0.0, 0.0]
    assert all(map(math.isnan, row.logprobs[2:]))
    assert tuple(row.mask) == (0, 0, 1, 1)


def test_turns_without_tokens_are_refused():
    with pytest.raises(BadArgument, match=r"turn 1 of 'agent' has no prompt_ids; .* local model"):
        rows(episode(turn((1,), (2,)), Turn(SEAT, "", "7")))


def test_a_row_is_split_where_sampling_begins():
    (row,) = rows(episode(*chat(((1, 2), (3,)), ((1, 2, 3, 4), (5,)))))
    prompt, completion = row.split()
    assert plain(prompt) == Row((1, 2), (0, 0), (0.0, 0.0), (-1, -1))
    assert plain(completion) == Row((3, 4, 5), (1, 0, 1), (-0.5, 0.0, -0.5), (0, -1, 1))
    assert row.first(4).split()[1] == completion.first(2)
    assert row.first(None) == row
    shown = row.first(2)
    assert tuple(map(plain, shown.split())) == (plain(shown), BLANK)


def test_a_masked_answer_belongs_to_the_completion():
    (row,) = rows(episode(*chat(((1,), (2,), (0,)), ((1, 2, 3), (4,)))))
    prompt, completion = row.split()
    assert (tuple(prompt.ids), tuple(completion.mask)) == ((1,), (0, 0, 1))


def test_the_blank_row_holds_nothing():
    assert BLANK.split() == (BLANK, BLANK)
    assert BLANK.first(3) == BLANK
    assert 1 not in BLANK.mask
