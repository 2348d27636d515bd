"""An environment without a random actor or a solver is trained like any other; its figures there are "-"."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log

import gem
from gem.agents.random import RandomAgent
from gem.core import Env, Start, Step
from gem.errors import BadArgument, MissingData, NoSolver
from gem.registry import ENV_REGISTRY, ids, register
from gem.rollout import EpisodeStore, Runner
from gem.rollout.forks import turn_values
from gem.train.command import command
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder
from gem.viewer.report import write_report


class Relay(Env):
    """Say the digit that is asked for, three times; it has no random actor, no solver and no success."""

    def reset(self, seed=None):
        super().reset(seed)
        self.left, self.wanted = 3, str(self.rng.randrange(1, 4))
        return Start(f"Say {self.wanted}.", {})

    def step(self, action):
        right, self.left = self.wanted in action, self.left - 1
        self.wanted = str(self.rng.randrange(1, 4))
        return Step(f"Say {self.wanted}.", right / 3, self.left == 0, False, {})


class Solved(Relay):
    """The same with a solver and no random actor; its spec states nothing."""

    def solve(self):
        return self.wanted


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("my:Relay", Relay)
    register("my:Solved", Solved)


SMALL = replace(QUICK, env="my:Relay", env_kwargs={}, episodes=32, warmup_steps=80, eval_every=1, held_out=8)


@pytest.mark.system
def test_a_run_has_no_figure_of_random_play_and_of_the_solver(tmp_path):
    out = tmp_path / "run"
    log = Log()
    summary = train(replace(SMALL, out=out), watcher=log)
    assert not {"random", "optimum"} & summary.keys()
    assert all(summary[name]["reward"] for name in ("before", "after"))
    assert [m.iteration for m in RunFolder(out).history()] == [1, 2]
    assert len(RunFolder(out).evaluated()) == 3
    assert any("no warm-up" in stage and "my:Relay" in stage for stage in log.stages)
    assert log.losses == []  # it took no warm-up step
    page = write_report([out]).read_text()
    for who in ("random play", "solver"):
        (row,) = [line for line in page.splitlines() if f'<th scope="row">{who}</th>' in line]
        assert "–" in row


def test_the_command_shows_a_dash(tmp_path, capsys):
    words = [f"--{name}={value}" for name, value in {"env": "my:Relay", "episodes": 8, "batch": 4}.items()]
    words += [
        "--minibatch=4",
        "--eval-episodes=4",
        "--watch=0",
        "--width=16",
        "--layers=1",
        f"--out={tmp_path}",
    ]
    assert command(words, "gem-gym train") == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if "│" in line]
    for who in ("random play", "solver"):
        (row,) = [line for line in rows if who in line]
        assert row.replace("│", " ").split()[-2:] == ["-", "-"]
    assert "nan" not in shown


def test_a_warm_up_on_random_play_that_was_asked_for_is_refused(tmp_path):
    with pytest.raises(NoSolver, match=r"warmup_steps is 5.*my:Relay has no random actor.*demos"):
        train(replace(SMALL, warmup_steps=5, out=tmp_path))
    assert not any(tmp_path.iterdir())


@pytest.mark.system
def test_a_solver_that_no_spec_states_is_measured_and_cloned(tmp_path):
    log = Log()
    config = replace(SMALL, env="my:Solved", warmup_by="solver", warmup_steps=2, out=tmp_path)
    summary = train(config, watcher=log)
    assert summary["optimum"]["reward"]["mean"] == pytest.approx(1.0)
    assert "random" not in summary
    assert len(log.losses) == 2


@pytest.mark.system
def test_a_warm_up_plays_the_environments_that_can_play_at_random(tmp_path):
    log = Log()
    parts = ({"id": "my:Relay"}, {"id": "game:GuessTheNumber-v0-easy"})
    train(
        replace(
            SMALL, env=QUICK.env, environments=parts, warmup_steps=3, eval_every=0, held_out=200, out=tmp_path
        ),
        watcher=log,
    )
    assert len(log.losses) == 3
    (said,) = [stage for stage in log.stages if "no warm-up" in stage]
    assert "random play of my:Relay:" in said


@pytest.mark.system
def test_a_random_opponent_that_a_game_lacks_is_refused(tmp_path):
    pytest.importorskip("textarena")
    config = replace(SMALL, env="ta:Nim-v0", eval_every=0, held_out=200)
    with pytest.raises(BadArgument, match="ta:Nim-v0 has no random actor to play against"):
        train(replace(config, opponent=("random",), out=tmp_path))
    summary = train(replace(config, pool=1, pool_every=1, out=tmp_path / "pool"))
    assert list(summary["environments"]) == ["ta:Nim-v0 against the pool"]


@pytest.mark.system
def test_values_of_an_absent_actor_are_refused(tmp_path):
    out = tmp_path / "run"
    train(replace(SMALL, eval_every=0, held_out=200, out=out))
    with EpisodeStore(RunFolder(out).episodes, read_only=True) as store:
        episode = store[0]
    with Runner(RandomAgent()) as runner, pytest.raises(NoSolver, match="my:Relay has no random actor"):
        turn_values(episode, runner, 2)


TOO_LONG = ("ta:SettlersOfCatan-v0",)
"""Games whose first prompt does not fit the context of the tiny model."""


def train_textarena(env_id, out):
    config = replace(QUICK, env=env_id, env_kwargs={}, episodes=4, batch=4, minibatch=64, warmup_steps=80)
    train(replace(config, eval_episodes=2, watch=0, max_turns=6, max_tokens=4, out=out))
    (metrics,) = RunFolder(out).history()
    assert metrics.no_verdict == 0
    assert metrics.tokens_sampled > 0 or env_id in TOO_LONG


@pytest.mark.parametrize("env_id", ["ta:Nim-v0", "ta:TowerOfHanoi-v0"])
def test_textarena_is_trained(tmp_path, env_id):
    pytest.importorskip("textarena")
    train_textarena(env_id, tmp_path)


@pytest.mark.slow
def test_every_game_of_textarena_that_can_be_played_is_trained(tmp_path):
    pytest.importorskip("textarena")
    failed, played = {}, 0
    for number, env_id in enumerate(ids("ta")):
        try:
            gem.make(env_id).reset(0)
        except MissingData:  # this release of the package, or this Python, has not got the game
            continue
        played += 1
        try:
            train_textarena(env_id, tmp_path / str(number))
        except Exception as error:
            failed[env_id] = repr(error)
    assert not failed
    assert played > len(ids("ta")) / 2
