import math

import pytest

from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.core import Env
from gem.errors import BadArgument, NoSolver, UnknownEnv
from gem.evals import evaluate
from gem.evals.evaluate import summarise
from gem.record import Episode, Failure, StopReason, Turn, Verdict
from gem.registry import ENV_REGISTRY, EnvSpec, register
from gem.testing.doubles import EchoEnv


def played(stop, verdict=Verdict.SCORED, reward=0.0, error=None):
    return Episode(
        "x",
        "test:X",
        0,
        turns=[Turn("agent", "?", "!", reward=reward)],
        stop=stop,
        verdict=verdict,
        error=error,
    )


def test_the_solver_wins_and_random_play_does_not():
    best = evaluate(SolverAgent(), "game:GuessTheNumber-v0-easy", episodes=50)
    chance = evaluate(RandomAgent(), "game:GuessTheNumber-v0-easy", episodes=50)
    assert best.success.mean == 1.0
    assert best.reward.mean == pytest.approx(1.0)
    assert best.coverage == chance.coverage == 1.0
    assert chance.success.high < 0.8


def test_the_same_seed_gives_the_same_figures():
    one = evaluate(RandomAgent(), "game:GuessTheNumber-v0-easy", episodes=20, seed=3)
    other = evaluate(RandomAgent(), "game:GuessTheNumber-v0-easy", episodes=20, seed=3)
    assert one == other


def test_an_episode_without_verdict_is_no_failure_but_lowers_the_bound():
    broken = played(StopReason.ERROR, Verdict.NONE, None, Failure("host", "WorkerDied", "gone"))
    result = summarise("test:X", [played(StopReason.SOLVED, reward=1.0), broken])
    assert result.success.mean == 1.0
    assert result.at_least == 0.5
    assert result.coverage == 0.5
    assert result.reward.mean == 1.0
    assert result.errors == {"host: WorkerDied": 1}


def test_nothing_is_made_up_where_nothing_was_scored():
    broken = played(StopReason.ERROR, Verdict.NONE, None, Failure("env", "ValueError", "no"))
    result = summarise("test:X", [broken])
    assert result.success is result.reward is result.turns is None


def test_a_cancelled_episode_is_dropped():
    cancelled = played(StopReason.CANCELLED, Verdict.NONE, None)
    result = summarise("test:X", [played(StopReason.SOLVED, reward=1.0), cancelled])
    assert (result.episodes, result.coverage, result.at_least) == (1, 1.0, 1.0)
    assert math.isnan(summarise("test:X", [cancelled]).coverage)


def test_an_environment_that_does_not_say_has_no_success():
    result = summarise("test:X", [played(StopReason.ENDED, reward=0.5)])
    assert result.success is None
    assert result.reward.mean == 0.5


def test_an_agent_that_the_environment_has_not_is_refused(monkeypatch):
    class Mute(EchoEnv):
        sample_random_action = Env.sample_random_action

    monkeypatch.setattr("gem.registry.ENV_REGISTRY", dict(ENV_REGISTRY))
    register(EnvSpec("test:Mute", Mute))
    with pytest.raises(NoSolver, match=r"no random actor: Mute lacks sample_random_action\(\)"):
        evaluate(RandomAgent(), "test:Mute", episodes=3)


def test_bad_input_is_refused():
    with pytest.raises(BadArgument, match="episodes is 0"):
        evaluate(RandomAgent(), "game:GuessTheNumber-v0-easy", episodes=0)
    with pytest.raises(UnknownEnv, match="Did you mean"):
        evaluate(RandomAgent(), "game:GuessTheNumber-v0-esy")
