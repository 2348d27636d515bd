import io

import pytest

import gem
from gem.errors import UnknownEnv
from gem.record import Limits, StopReason
from gem.rollout.session import play_session

EASY = "game:GuessTheNumber-v0-easy"


def play(typed, seed=0, **kwargs):
    shown = io.StringIO()
    episode = play_session(EASY, seed, stdin=io.StringIO(typed), stdout=shown, **kwargs)
    return episode, shown.getvalue()


def secret(seed):
    env = gem.make(EASY)
    env.reset(seed=seed)
    return env.unwrapped.secret


def test_a_bare_number_is_an_answer_and_the_end_is_told():
    episode, shown = play(f"{secret(0)}\n")
    assert episode.stop is StopReason.SOLVED
    assert episode.turns[0].action == rf"\boxed{{{secret(0)}}}"
    assert "between 1 and 10" in shown
    assert "[reward 1]" in shown
    assert shown.endswith("solved after 1 turn, return 1\n")


def test_a_box_is_left_as_it_is_and_each_reward_is_shown():
    wrong = secret(1) % 10 + 1
    episode, shown = play(f"I say \\boxed{{{wrong}}}\n{secret(1)}\n", seed=1)
    assert episode.turns[0].action == f"I say \\boxed{{{wrong}}}"
    assert shown.count("[reward") == 2
    assert "The secret is" in shown


def test_the_end_of_the_input_stops_the_episode():
    episode, shown = play("99\n")
    assert (episode.stop, episode.scored) == (StopReason.CANCELLED, False)
    assert shown.endswith("Stopped after 1 turn.\n")


def test_ctrl_c_stops_the_episode():
    class Interrupted(io.StringIO):
        def readline(self):
            raise KeyboardInterrupt

    episode = play_session(EASY, 0, stdin=Interrupted(), stdout=io.StringIO())
    assert episode.stop is StopReason.CANCELLED


def test_limits_and_keywords_reach_the_episode():
    episode, _ = play("99\n99\n99\n", limits=Limits(turns=2), max_turns=9)
    assert (episode.stop, len(episode.turns)) == (StopReason.TURN_LIMIT, 2)


def test_an_unknown_environment_is_refused():
    with pytest.raises(UnknownEnv):
        play_session("game:Nothing", 0)


def test_a_broken_environment_is_told(monkeypatch):
    def broken(self, action):
        raise RuntimeError("no \x1b[2J more")

    monkeypatch.setattr("gem.envs.games.guess_the_number.GuessTheNumber.step", broken)
    episode, shown = play("5\n")
    assert episode.error.message.startswith("no \x1b[2J more (test_session.py, line ")
    assert "No verdict after 1 turn: RuntimeError in env: no \\x1b[2J more (test_session.py, line " in shown
