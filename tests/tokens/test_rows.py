import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.record import Episode, Turn
from gem.tokens.rows import Row, rows

IDS = st.lists(st.integers(0, 3), max_size=4).map(tuple)  # few ids, so that prefixes happen by accident too


def turn(prompt, answer, mask=None, seat="agent"):
    logprobs = tuple(-0.5 - i for i in range(len(answer)))
    return Turn(
        seat,
        "",
        "move",
        prompt_ids=prompt,
        token_ids=answer,
        logprobs=logprobs,
        mask=mask or (1,) * len(answer),
    )


def episode(*turns):
    return Episode("e", "game:X", 0, turns=list(turns))


@st.composite
def conversations(draw):
    """Turns of which some extend what was held, some were shortened and some are new."""
    turns, held = [], ()
    for _ in range(draw(st.integers(0, 5))):
        start = held[: draw(st.sampled_from([len(held), len(held), max(0, len(held) - 1), 0]))]
        prompt = (*start, *draw(IDS), 3)
        answer = draw(IDS)
        mask = tuple(draw(st.lists(st.integers(0, 1), min_size=len(answer), max_size=len(answer))))
        turns.append(turn(prompt, answer, mask))
        held = prompt + answer
    return episode(*turns)


def test_an_append_only_conversation_is_one_row():
    assert rows(episode(turn((1, 2), (3,)), turn((1, 2, 3, 4), (5, 6)))) == [
        Row(
            ids=(1, 2, 3, 4, 5, 6),
            mask=(0, 0, 1, 0, 1, 1),
            logprobs=(0.0, 0.0, -0.5, 0.0, -0.5, -1.5),
            turn=(-1, -1, 0, -1, 1, 1),
        )
    ]


def test_a_prompt_that_does_not_begin_with_what_was_held_starts_a_row():
    made = rows(episode(turn((1, 2), (3,)), turn((1, 9, 3, 4), (5,)), turn((1, 9, 3, 4, 5, 6), (7,))))
    assert [row.ids for row in made] == [(1, 2, 3), (1, 9, 3, 4, 5, 6, 7)]
    assert [row.turn for row in made] == [(-1, -1, 0), (-1, -1, -1, -1, 1, -1, 2)]


def test_a_prompt_that_drops_sampled_tokens_does_not_overwrite_them():
    made = rows(episode(turn((1,), (2, 3)), turn((1, 2), (4,))))
    assert [row.ids for row in made] == [(1, 2, 3), (1, 2, 4)]


@given(made=conversations())
def test_every_sampled_token_that_is_learnt_on_stands_once_behind_its_own_context(made):
    expected = [
        (number, turn.prompt_ids + turn.token_ids[:i], token, turn.logprobs[i])
        for number, turn in enumerate(made.turns)
        for i, token in enumerate(turn.token_ids)
        if turn.mask[i]
    ]
    found = [
        (row.turn[t], row.ids[:t], row.ids[t], row.logprobs[t])
        for row in rows(made)
        for t in range(len(row.ids))
        if row.mask[t]
    ]
    assert found == expected


@given(made=conversations())
def test_rows_are_parallel_and_blank_where_nothing_was_sampled(made):
    for row in rows(made):
        assert len(row.ids) == len(row.mask) == len(row.logprobs) == len(row.turn)
        for mask, logprob, number in zip(row.mask, row.logprobs, row.turn, strict=True):
            assert number >= 0 or (mask == 0 and logprob == 0.0)
        assert any(row.mask)


def test_a_masked_turn_is_context_but_not_learnt_on():
    (row,) = rows(episode(turn((1,), (2,), mask=(0,)), turn((1, 2, 3), (4,))))
    assert row.mask == (0, 0, 0, 1)
    assert row.turn == (-1, 0, -1, 1)


def test_rows_without_anything_to_learn_are_left_out():
    assert rows(episode(turn((1,), (2,), mask=(0,)))) == []
    assert rows(episode()) == []


def test_only_the_seats_turns_are_taken_and_numbered():
    game = episode(turn((1,), (2,), seat="x"), turn((7,), (8,), seat="o"), turn((1, 2, 3), (4,), seat="x"))
    assert rows(game, "x") == rows(episode(turn((1,), (2,)), turn((1, 2, 3), (4,))))
    assert rows(game, "o") == rows(episode(turn((7,), (8,))))


def test_turns_without_tokens_are_refused():
    with pytest.raises(BadArgument, match=r"turn 1 of 'agent' has no prompt_ids; .* local model"):
        rows(episode(turn((1,), (2,)), Turn("agent", "", "7")))
    with pytest.raises(BadArgument, match="1 token_ids, 0 logprobs and 1 mask"):
        rows(episode(Turn("agent", "", "7", prompt_ids=(1,), token_ids=(2,), mask=(1,))))
