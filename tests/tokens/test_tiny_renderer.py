import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gem.agents.random import RandomAgent
from gem.content import Image, Message, Text
from gem.rollout import Job, rollout
from gem.tokens.tiny import ASSISTANT, BRACE, END, SPECIAL, SYSTEM, USER, TinyRenderer

RENDERER = TinyRenderer()
VOCAB_HASH = "902f2634e51394f9"
CONTROL = set(range(len(SPECIAL)))

any_text = st.text(st.characters(exclude_categories=()), max_size=60) | st.text(
    "\\boxed{} 0123a\n", max_size=30
)


@given(any_text)
@example("\\boxed{42} The secret is higher than 7.")
@example("a lone surrogate \ud800 and its pair \udfff\ud800, then é and 数 and 🎲")
@example("123 12 1234 ٣٤ 1２")
@example("<|end|><|user|>")
def test_text_comes_back_from_its_ids(text):
    encoded = RENDERER.encode(text)
    assert RENDERER.decode(encoded) == text
    assert not CONTROL & set(encoded)


@given(st.lists(st.integers(0, len(RENDERER) - 1), max_size=30))
def test_any_ids_are_some_text(sampled):
    assert isinstance(RENDERER.decode(sampled), str)


def test_ids_keep_their_meaning():
    # A checkpoint is weights over these ids. Change this hash only together with a reason to train anew.
    assert RENDERER.vocab_hash == VOCAB_HASH


def test_ids_do_not_depend_on_the_hash_seed():
    program = "from gem.tokens.tiny import TinyRenderer; print(TinyRenderer().vocab_hash)"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == VOCAB_HASH


def test_every_piece_can_be_met_and_none_twice():
    pieces = [RENDERER.decode([i]) for i in range(len(SPECIAL) + 256, len(RENDERER))]
    assert len(set(pieces)) == len(pieces)
    for number, piece in enumerate(pieces):
        assert RENDERER.encode(piece) == (len(SPECIAL) + 256 + number,)


def test_the_chat_format():
    chat = [Message("system", "a"), Message("user", "b"), Message("assistant", "}"), Message("tool", "c")]
    a, b, c = (RENDERER.encode(letter)[0] for letter in "abc")
    expected = (SYSTEM, a, END, USER, b, END, ASSISTANT, BRACE, END, USER, c, END, ASSISTANT)
    assert RENDERER.prompt(chat) == expected


def test_a_picture_appears_as_its_alternative_text():
    picture = Message("user", (Text("see"), Image(b"", alt="a board")))
    assert RENDERER.prompt([picture]) == RENDERER.prompt([Message("user", "see\na board")])


@given(st.lists(st.tuples(any_text, any_text), min_size=1, max_size=4), any_text)
@example([("x", "")], "y")
@example([("x", "\\boxed{7}"), ("y", "\\boxed{7} ")], "z")
def test_turn_by_turn_is_the_whole_conversation(exchanges, last):
    chat = [Message("user", exchanges[0][0])]
    held = RENDERER.prompt(chat)
    for number, (_, answer) in enumerate(exchanges):
        following = exchanges[number + 1][0] if number + 1 < len(exchanges) else last
        chat += [Message("assistant", answer), Message("user", following)]
        held += RENDERER.answer(answer)
        assert held[-1] in RENDERER.stop_ids
        held += RENDERER.delta(held, chat[-1:])
    assert held == RENDERER.prompt(chat)


def test_a_cut_answer_is_closed():
    chat = [Message("user", "x"), Message("assistant", "I guess"), Message("user", "y")]
    held = RENDERER.prompt(chat[:1]) + RENDERER.encode("I guess")
    assert held + RENDERER.delta(held, chat[2:]) == RENDERER.prompt(chat)


@given(st.sampled_from(SPECIAL), any_text, any_text)
def test_spelt_control_tokens_are_text(name, before, after):
    """An environment or a model that writes <|end|> neither ends a message nor begins one."""
    chat = [Message("user", before + name + after)]
    rendered = RENDERER.prompt(chat)
    assert [i for i in rendered if i in CONTROL] == [USER, END, ASSISTANT]


def test_the_rules_of_a_game_are_words_not_letters():
    (episode,) = rollout([Job("game:GuessTheNumber-v0-hard", 0)], RandomAgent())
    rules = episode.turns[0].observation
    assert len(RENDERER.encode(rules)) < len(rules) / 3


@pytest.mark.parametrize("ended_by", ["}", ""])
def test_an_answer_carries_the_id_that_ends_it(ended_by):
    answer = RENDERER.answer("\\boxed{7" + ended_by)
    assert answer[-1] == (BRACE if ended_by else END)
    assert sum(i in RENDERER.stop_ids for i in answer) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *("\\boxed{7}", '\\boxed{{"0": {}, "1": 2}}', "{1: {}} is \\boxed{\\frac{1}{2}}", "7}", "{} }"),
        *("\\boxed {7}", "\\boxed{\\left\\{ x \\right.}", "\\boxed{\\} }", "\\boxed{\\boxed{1} \\boxed{2}}"),
    ],
)
def test_an_answer_ends_with_the_brace_that_closes_its_box(answer):
    ids = RENDERER.encode(answer)
    assert [n for n in range(1, len(ids) + 1) if RENDERER.ends(ids[:n])] == [len(ids)]
    assert RENDERER.ends((*ids[:-1], END))


@given(any_text)
@example('{"move": 7}')
@example("\\boxed{\\}")
def test_a_given_answer_ends_as_a_sampled_one_does(text):
    """Else a model that imitates it never learns to end it."""
    ids = RENDERER.answer(text)
    assert RENDERER.ends(ids)
    assert ids in (RENDERER.encode(text), (*RENDERER.encode(text), END))


def test_a_renderer_can_be_sent_to_another_process():
    renderer = TinyRenderer()
    sent = pickle.loads(pickle.dumps(renderer))
    assert sent.vocab_hash == renderer.vocab_hash
    assert sent.encode("guess 7") == renderer.encode("guess 7")
