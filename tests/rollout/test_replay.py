from dataclasses import replace

import pytest

from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.content import Image
from gem.errors import BadArgument
from gem.record import Failure, Limits, StopReason, Verdict
from gem.registry import accept_task
from gem.rollout import EpisodeStore, Job, rollout
from gem.rollout.replay import explain_difference, first_difference, replay

GUESS = "game:GuessTheNumber-v0-easy"
IDS = [
    GUESS,
    "game:Minesweeper-v0-easy",
    "game:Sudoku-v0-easy",
    "multi:ConnectFour-v0",
    "multi:MatrixGame-v0",
]


def played(env=GUESS, seed=3, agent=None, **limits):
    (episode,) = rollout([Job(env, seed)], agent or RandomAgent(), limits=Limits(**limits))
    return episode


@pytest.mark.parametrize("env", IDS)
def test_a_stored_episode_plays_again_to_the_same_transcript(env, tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        rollout([Job(env, seed) for seed in range(3)], RandomAgent(), store=store)
        for stored in store:
            found = replay(stored)
            assert found.difference is None
            assert found.whole
            assert found.episode.transcript_hash() == stored.transcript_hash()


def test_a_limit_of_turns_is_played_again():
    stored = played(turns=2, seed=5, agent=ScriptedAgent(["\\boxed{1}", "\\boxed{2}"]))
    assert stored.stop is StopReason.TURN_LIMIT
    found = replay(stored)
    assert found.whole
    assert found.episode.transcript_hash() == stored.transcript_hash()


def test_of_a_limit_that_binds_the_agent_the_turns_are_compared():
    stored = played(turns=2, seed=5, agent=ScriptedAgent(["\\boxed{1}", "\\boxed{2}"]))
    stored.run = replace(stored.run, limits=Limits(tokens=10))
    stored.stop = StopReason.TOKEN_LIMIT
    found = replay(stored)
    assert (found.difference, found.whole) == (None, False)
    stored.turns[1].reward = 9.0
    assert replay(stored).difference.what == "reward"


@pytest.mark.parametrize(
    ("change", "turn", "what"),
    [
        (lambda e: setattr(e.turns[0], "observation", "Other rules."), 0, "observation"),
        (lambda e: setattr(e.turns[1], "reward", 0.5), 1, "reward"),
        (lambda e: setattr(e.ends["agent"], "observation", "Well done."), 4, "final observation"),
        (lambda e: setattr(e, "stop", StopReason.SOLVED), 4, "stop"),
        (lambda e: e.turns.pop(), 3, "stop"),
        (lambda e: setattr(e, "task", replace(e.task, seed=4)), None, None),
    ],
)
def test_the_first_difference_is_told(change, turn, what):
    stored = played(agent=ScriptedAgent(["\\boxed{1}"] * 4), seed=3)
    assert len(stored.turns) == 4
    change(stored)
    found = replay(stored)
    assert found.difference is not None
    if turn is not None:
        assert (found.difference.turn, found.difference.what) == (turn, what)


def test_pictures_differ_by_their_bytes():
    one, other = (
        played(agent=ScriptedAgent(["\\boxed{1}"] * 4)),
        played(agent=ScriptedAgent(["\\boxed{1}"] * 4)),
    )
    assert first_difference(one, other) is None
    one.turns[0].observation = (Image(b"1"),)
    other.turns[0].observation = (Image(b"2"),)
    assert first_difference(one, other).what == "observation"


def test_what_cannot_be_played_again_says_why():
    stored = played()
    with pytest.raises(BadArgument, match=r"could not be stored: Env\.tokenizer"):
        replay(replace(stored, task=replace(stored.task, opaque=("Env.tokenizer",))))
    with pytest.raises(BadArgument, match="its seed was not stored"):
        replay(replace(stored, task=replace(stored.task, seed=None)))
    broken = replace(
        stored, stop=StopReason.ERROR, verdict=Verdict.NONE, error=Failure("env", "OSError", "x")
    )
    with pytest.raises(BadArgument, match=r"did not reach its end \(error: OSError in env\)"):
        replay(broken)


@pytest.mark.parametrize("env", IDS)
def test_a_task_of_a_registered_environment_is_known(env):
    accept_task(replace(played(env).task, foreign=True))
    assert explain_difference(played(env).task) == []
