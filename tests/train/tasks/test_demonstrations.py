"""Cloning demonstrations, alone and with some kept apart."""

import json
import math
from dataclasses import asdict, replace

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log, assert_same_run, same_weights, weights

from gem.errors import BadArgument
from gem.rollout import EpisodeStore
from gem.rollout.demos import write_demos
from gem.train.command import command
from gem.train.config import TrainConfig
from gem.train.learn.learner import Learner
from gem.train.learn.policy import make_policy
from gem.train.learn.training import make_trainer as make
from gem.train.learn.training import train, trained_agent
from gem.train.report.run_folder import RunFolder
from gem.train.tasks import demonstrations as cloning


class Told(Log):
    def __init__(self):
        super().__init__()
        self.apart = []

    def cloned(self, step, held_out_loss):
        self.apart.append((step, held_out_loss))


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    store = tmp_path_factory.mktemp("demos") / "demos.jsonl"
    write_demos(QUICK.env, store, episodes=40, kwargs=QUICK.env_kwargs)
    return store


@pytest.fixture
def config(demos, tmp_path):
    return replace(
        QUICK,
        episodes=0,
        demos=demos,
        warmup_steps=40,
        warmup_batch=16,
        eval_episodes=40,
        out=tmp_path / "run",
    )


# -- cloning alone


@pytest.mark.system
def test_cloning_alone_trains_and_measures(config):
    log = Log()
    summary = train(config, watcher=log)
    assert {name for name in summary if isinstance(summary[name], dict) and "success" in summary[name]} == {
        "random", "untrained", "after", "greedy", "optimum"
    }  # fmt: skip
    assert summary["untrained"]["success"]["high"] < summary["after"]["success"]["low"]
    assert (summary["algorithm"], summary["episodes"]) == ("cloning", 0)
    assert log.iterations == []
    assert "training" not in log.stages
    folder = RunFolder(config.out)
    steps = folder.warmed()
    assert [each.step for each in steps] == list(range(1, 41))
    assert [each.loss for each in steps] == log.losses
    assert steps[-1].loss < steps[0].loss / 2
    assert all(each.held_out_loss is None for each in steps)
    assert summary["warmup"] == asdict(steps[-1])
    assert not folder.reference.exists()


@pytest.mark.system
def test_the_model_that_was_cloned_can_be_played_and_measured_again(config):
    train(config)
    fresh = dict(make_policy(config).model.named_parameters())
    stored = weights(config.out)
    assert same_weights(trained_agent(config.out).model.state_dict(), stored)
    assert not same_weights(fresh, stored)
    again = replace(config, out=config.out.parent / "again")
    train(again)
    train(again, resume=True)
    assert_same_run(config.out, again.out)


@pytest.mark.system
def test_held_out_evaluation_goes_with_cloning(config):
    summary = train(replace(config, eval_every=1, held_out=8))
    assert summary["held_out"]["last_iteration"] == 0
    assert "best" not in summary


def test_from_the_command_line(config, demos, capsys):
    flags = [
        *("--env-kwargs", json.dumps(QUICK.env_kwargs), "--width", "16", "--layers", "1", "--heads", "2"),
        *("--demos", str(demos), "--demos-held-out", "0.2", "--episodes", "0", "--warmup-steps", "4"),
        *("--eval-episodes", "8", "--out", str(config.out)),
    ]
    assert command(flags, "gem-gym train") == 0
    said = capsys.readouterr().out
    assert "loss on held-out demonstrations after step 4: " in said
    assert "before cloning" in said
    assert "training episodes" not in said
    assert "Picture" not in said


# -- demonstrations that are kept apart


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5])
def test_tasks_are_on_one_side(demos, share):
    with EpisodeStore(demos, read_only=True) as store:
        cloned, apart = cloning.split(store, share, 0)
        assert len(cloned) + len(apart) == len(store) == 40
        sides = [{episode.task.seed for episode in side} for side in (cloned, apart)]
        assert not sides[0] & sides[1]
        assert len(apart) == max(1, round(40 * share))
        assert list(cloning.split(store, share, 0)[1].numbers) == list(apart.numbers)
        assert list(cloning.split(store, 0.5, 1)[1].numbers) != list(cloning.split(store, 0.5, 0)[1].numbers)


def test_a_store_of_one_task_cannot_be_split(tmp_path):
    write_demos(QUICK.env, tmp_path / "demos.jsonl", episodes=1, kwargs=QUICK.env_kwargs)
    with (
        EpisodeStore(tmp_path / "demos.jsonl", read_only=True) as store,
        pytest.raises(BadArgument, match=r"demos_held_out is 0.5; .* of 1 task, which leaves none to clone"),
    ):
        cloning.split(store, 0.5, 0)


@pytest.mark.system
def test_the_loss_on_those_kept_apart_is_measured_now_and_then(config):
    log = Told()
    train(replace(config, demos_held_out=0.25), watcher=log)
    steps = RunFolder(config.out).warmed()
    measured = {each.step: each.held_out_loss for each in steps if each.held_out_loss is not None}
    assert sorted(measured) == list(range(2, 41, 2))
    assert dict(log.apart) == measured
    assert measured[40] < measured[2] / 2
    assert all(0 < loss < 20 for loss in measured.values())


@pytest.mark.system
def test_measuring_it_changes_nothing(config, monkeypatch):
    apart = replace(config, demos_held_out=0.25)
    train(apart)
    monkeypatch.setattr(cloning, "loss_on", lambda *given: 1.0)
    other = replace(apart, out=config.out.parent / "other")
    train(other)
    assert same_weights(weights(apart.out), weights(other.out))


def test_the_loss_is_that_of_the_cloned_tokens(config, demos):
    """A model that knows nothing: about the logarithm of the number of words."""
    trainer = make(replace(config, store="none", watch=0))
    learner = Learner(trainer.policy)
    with EpisodeStore(demos, read_only=True) as store:
        answers = cloning.loss_on(learner, store, "answers")
        assert answers == pytest.approx(math.log(len(trainer.policy.renderer)), rel=0.15)
        assert cloning.loss_on(learner, store, "all") != answers
    trainer.close()


# -- what cannot be


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"episodes": 0},
            r"episodes is 0, which needs demonstrations; name a store .*warmup_by",
        ),
        ({"demos_held_out": 0.1}, r"demos_held_out is 0.1, which needs demonstrations"),
        (
            {"demos_held_out": 1.0, "demos": "x"},
            "demos_held_out is 1.0; accepted: 0 or more, and less than 1",
        ),
        (
            {"demos_held_out": math.nan, "demos": "x"},
            "demos_held_out is nan; accepted: 0 or more, and less than 1",
        ),
        ({"demos": "x", "warmup_steps": 0}, "demonstrations are cloned in the warm-up"),
        (
            {"warmup_by": "solver", "warmup_steps": 0},
            "demonstrations are cloned in the warm-up",
        ),
        (
            {"demos": "x", "warmup_by": "solver"},
            "warmup_by is 'solver', and demos name a store",
        ),
        ({"warmup_by": "solver", "warmup_check": 5}, "warmup_check tests the format alone"),
        ({"episodes": -1}, "episodes is -1; accepted: 0 or more"),
    ],
)
def test_settings_that_clone_nothing_are_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(**given)
