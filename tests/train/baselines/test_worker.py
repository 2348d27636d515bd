"""What a run's process measures on other environments."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")
import runs

from gem.train.baselines.worker import _elsewhere
from gem.train.learn.learner import Learner
from gem.train.learn.training import train


def test_an_agent_is_told_of_the_weights_that_are_measured_elsewhere(tmp_path, monkeypatch):
    """It may keep what other weights have computed, as the keys and values of a shared prompt."""
    config = replace(runs.QUICK, eval_episodes=2, out=tmp_path)
    train(config)
    done = []
    monkeypatch.setattr(Learner, "publish", lambda learner, version: done.append("published"))
    monkeypatch.setattr("gem.train.report.figures.take_figures", lambda trainer, name, *_: done.append(name))
    _elsewhere(config, config)
    assert done == ["random", "published", "before", "published", "after"]
