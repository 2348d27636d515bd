"""Warm-ups that are kept, beside those that each run makes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from gem.agents.random import RandomAgent
from gem.agents.tiny import TinyConfig
from gem.errors import StoreError
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.policy import TinyPolicy
from gem.train.learn.training import train
from gem.train.learn.warmup import balance_weights, cloned_rows
from gem.train.learn.warmup_cache import WarmUps
from gem.train.report.run_folder import RunFolder
from gem.train.report.watcher import Watcher

QUICK = TrainConfig(
    env_kwargs={"max_number": 4, "max_turns": 3},
    episodes=32,
    batch=16,
    warmup_steps=6,
    warmup_batch=8,
    width=16,
    layers=1,
    heads=2,
    eval_episodes=8,
    watch=0,
    store="none",
)


class Steps(Watcher):
    """Counts the steps of warm-ups."""

    def __init__(self):
        self.warm = 0

    def warmed(self, step, steps, loss):
        self.warm += 1


def run(config, folder, warm_ups):
    steps = Steps()
    summary = train(replace(config, out=folder), watcher=steps, warm_ups=warm_ups)
    return steps.warm, summary, checkpoint.load(RunFolder(folder).checkpoint)["model"]


@pytest.mark.system
def test_other_weights_to_begin_with_are_another_warm_up(tmp_path):
    kept, config = WarmUps(tmp_path / "kept"), replace(QUICK, start_from=str(tmp_path / "source"))
    for seed in (1, 2):
        train(replace(QUICK, warmup_steps=0, seed=seed, out=tmp_path / "source"), overwrite=True)
        assert run(config, tmp_path / f"run {seed}", kept)[0] == 6
    assert run(config, tmp_path / "again", kept)[0] == 0


@pytest.mark.system
def test_a_run_that_takes_a_warm_up_is_the_run_that_makes_it(tmp_path):
    kept = WarmUps(tmp_path / "kept")
    alone, wanted, weights = run(QUICK, tmp_path / "alone", None)
    made, summary, first = run(QUICK, tmp_path / "made", kept)
    assert (alone, made) == (6, 6)
    taken, again, second = run(QUICK, tmp_path / "taken", kept)
    assert taken == 0
    for figures, found in ((summary, first), (again, second)):
        assert figures["before"] == wanted["before"]
        assert figures["after"] == wanted["after"]
        assert all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.system
def test_another_algorithm_takes_it_and_another_start_does_not(tmp_path):
    kept = WarmUps(tmp_path / "kept")
    counts = [
        run(replace(QUICK, **given), tmp_path / str(place), kept)[0]
        for place, given in enumerate(
            [{}, {"algorithm": "ppo", "gamma": 0.9}, {"seed": 1}, {"warmup_lr": 1e-2}, {"width": 32}]
        )
    ]
    assert counts == [6, 0, 6, 6, 6]


def test_what_a_check_of_the_format_depends_on_is_part_of_its_name(tmp_path):
    kept, policy, made = WarmUps(tmp_path), TinyPolicy(TinyConfig(width=16, layers=1, heads=2), 0), []
    for given in ({}, {"answer_prefix": "x"}, {"stop": ("}",)}, {"stop": ("}",)}):
        kept.take(replace(QUICK, model="some/model", **given), policy, lambda: made.append(1))
    assert len(made) == 3


@pytest.mark.system
def test_its_cpu_seconds_count_for_each_run(tmp_path):
    kept = WarmUps(tmp_path / "kept")
    run(QUICK, tmp_path / "made", kept)
    (path,) = (tmp_path / "kept").glob("*.pt")
    checkpoint.save(path, {**checkpoint.load(path), "cpu_s": 1000.0})
    _, summary, _ = run(QUICK, tmp_path / "taken", kept)
    assert 1000 < summary["cpu_s"] < 1100
    first = json.loads((tmp_path / "taken" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["cpu_s"] > 1000


def test_a_damaged_one_is_made_anew(tmp_path):
    kept = WarmUps(tmp_path / "kept")
    run(QUICK, tmp_path / "made", kept)
    (path,) = (tmp_path / "kept").glob("*.pt")
    path.write_bytes(path.read_bytes()[:100])
    assert run(QUICK, tmp_path / "again", kept)[0] == 6
    assert run(QUICK, tmp_path / "third", kept)[0] == 0


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"):
        run(QUICK, tmp_path / "run", WarmUps(tmp_path / "kept"))


def test_what_the_environment_says_is_learnt_to_the_end():
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0)
    (episode,) = rollout([Job(Maker(QUICK.env, QUICK.env_kwargs), 3)], RandomAgent())
    (answers,) = cloned_rows(policy, [episode], "answers")
    (whole,) = cloned_rows(policy, [episode], "all")
    text = policy.renderer.decode(whole.row.ids)
    assert text.startswith(policy.renderer.decode(answers.row.ids))
    assert text.endswith(episode.final_observation)
    first = whole.row.mask.index(1)
    assert all(whole.row.mask[first:])
    for place, learn in enumerate(answers.row.mask):
        assert whole.row.turn[place] == answers.row.turn[place]
        assert not learn or whole.row.mask[place]


def test_answers_count_half_however_much_the_environment_says():
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0)
    maker = Maker(QUICK.env, QUICK.env_kwargs)
    episodes = rollout([Job(maker, seed) for seed in range(8)], RandomAgent())
    weights = {True: 0.0, False: 0.0}
    for item in balance_weights(cloned_rows(policy, episodes, "all")):
        for at in item.row.learnt:
            turn = item.row.turn[at]
            weights[turn >= 0] += item.targets[turn].advantage
    assert weights[True] == pytest.approx(weights[False])
    alone = balance_weights(cloned_rows(policy, episodes, "answers"))
    assert {target.advantage for item in alone for target in item.targets.values()} == {1.0}
