import dataclasses

import pytest
from records import episode

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.content import Image, Message, Text
from gem.errors import BadArgument
from gem.record import SEAT, Reply, Turn
from gem.rollout import Job, rollout
from gem.testing.doubles import EchoEnv
from gem.tokens.demonstration import tokenise
from gem.tokens.rows import rows
from gem.tokens.tiny import TinyRenderer

RENDERER = TinyRenderer()
JOBS = [Job("game:GuessTheNumber-v0-easy", seed) for seed in range(20)]


class Recorder(BaseAgent):
    """Answers out of a script per episode, and keeps what it was shown."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.prompts = []

    def __call__(self, asks):
        self.prompts += [(ask.turn, RENDERER.prompt(ask.messages)) for ask in asks]
        return [Reply(self.scripts[ask.turn]) for ask in asks]


def test_a_demonstration_is_one_row_with_every_answer_in_it():
    for played in rollout(JOBS, RandomAgent()):
        (row,) = rows(tokenise(played, RENDERER))
        written = [i for i, learn in zip(row.ids, row.mask, strict=True) if learn]
        assert RENDERER.decode(written) == "".join(turn.action for turn in played.turns)
        assert set(row.turn) == {-1, *range(len(played.turns))}
        assert not any(row.logprobs)


def test_prompts_are_what_a_model_would_have_been_shown():
    """A model that warms up on demonstrations meets the same tokens when it plays."""
    (solved,) = rollout(JOBS[:1], SolverAgent())
    agent = Recorder([turn.action for turn in solved.turns])
    (played,) = rollout(JOBS[:1], agent)
    assert played.transcript_hash() == solved.transcript_hash()
    demonstrated = tokenise(solved, RENDERER)
    assert agent.prompts == [(n, tuple(turn.prompt_ids)) for n, turn in enumerate(demonstrated.turns)]
    assert len(agent.prompts) > 1


class Suffixed(EchoEnv):
    """Asks for the form of the answer around its first and third observation."""

    def reset(self, seed=None):
        return super().reset(seed)._replace(info={"suffix": "a number"})

    def step(self, action):
        step = super().step(action)
        return step._replace(info={"prefix": "the last one"}) if self.turn == 2 else step


def test_text_around_an_observation_is_shown_where_it_was():
    (solved,) = rollout([Job(Suffixed, 0)], SolverAgent())
    agent = Recorder([turn.action for turn in solved.turns])
    rollout([Job(Suffixed, 0)], agent)
    demonstrated = tokenise(solved, RENDERER)
    assert agent.prompts == [(n, tuple(turn.prompt_ids)) for n, turn in enumerate(demonstrated.turns)]
    assert len(rows(demonstrated)) == 2  # what is not shown any more is in no later row


def test_the_last_row_is_the_whole_conversation():
    (played,) = rollout(JOBS[:1], SolverAgent())
    chat = []
    for turn in played.turns:
        chat += [Message("user", turn.observation), Message("assistant", turn.action)]
    (row,) = rows(tokenise(played, RENDERER))
    closed = (*row.ids, *RENDERER.delta(row.ids, ()))
    assert closed == RENDERER.prompt(chat)


def test_the_record_itself_stays_as_it_was():
    (played,) = rollout(JOBS[:1], RandomAgent())
    before = dataclasses.asdict(played)
    tokenise(played, RENDERER)
    assert dataclasses.asdict(played) == before


def test_other_seats_keep_their_turns():
    def turn(seat, text):
        return Turn(seat, f"{text}?", text, reward=0.0)

    played = episode(turn("a", "x"), turn("b", "y"), turn("a", "z"))
    shown = tokenise(played, RENDERER, "a")
    assert [t.seat for t in shown.turns] == ["a", "b", "a"]
    assert shown.turns[1] is played.turns[1]
    (row,) = rows(shown, "a")
    assert RENDERER.decode([i for i, learn in zip(row.ids, row.mask, strict=True) if learn]) == "xz"
    assert "y" not in RENDERER.decode(row.ids)


def test_an_unanswered_turn_is_an_empty_answer():
    (row,) = rows(tokenise(episode(Turn(SEAT, "x?", None)), RENDERER))
    assert [i for i, learn in zip(row.ids, row.mask, strict=True) if learn] == list(RENDERER.answer(""))


def test_a_demonstration_that_only_a_picture_shows_is_refused():
    played = episode(Turn(SEAT, (Image(b""), Text("How long is x?")), "3"))
    with pytest.raises(BadArgument, match="no text describes the picture"):
        tokenise(played, RENDERER)
