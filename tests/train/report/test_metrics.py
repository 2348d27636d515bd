"""The metrics of an iteration that say whether there is something to learn, and how far a step goes."""

import json
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import records
from runs import QUICK

from gem.agents.tiny import TinyConfig
from gem.estimators import View
from gem.record import SEAT, StopReason
from gem.tokens.rows import Row
from gem.train.learn import policy_gradient
from gem.train.learn.batch import Target, Weighted
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import TinyPolicy
from gem.train.learn.policy_gradient import compare_returns
from gem.train.learn.steps import Progress, explained_variance
from gem.train.learn.training import make_trainer
from gem.train.report.loggers import group_metrics
from gem.train.report.run_folder import RunFolder


def trained(tmp_path, **settings):
    trainer = make_trainer(replace(QUICK, out=tmp_path, kl=0.0, **settings))
    episodes = trainer.sample()
    for number, episode in enumerate(episodes):  # four groups of four, the returns of two of them equal
        for turn in episode.turns:
            turn.reward = 0.0
        episode.turns[-1].reward = [1.0, 0.0, float(number % 2), float(number)][number // 4]
    norms = []
    step = trainer.learner.step
    trainer.learner.step = lambda: norms.append(step()) or norms[-1]
    metrics = trainer.summarise(episodes, trainer.learn(episodes), 0.0, 0.0)
    trainer.close()
    return metrics, episodes, norms


def test_the_metrics_of_a_batch(tmp_path):
    metrics, episodes, norms = trained(tmp_path, algorithm="grpo", gamma=1.0, max_grad_norm=1e-3)
    returns = [1.0] * 4 + [0.0] * 4 + [0.0, 1.0] * 2 + [12.0, 13.0, 14.0, 15.0]
    mean = sum(returns) / 16
    assert metrics.reward_std == pytest.approx(math.sqrt(sum((each - mean) ** 2 for each in returns) / 16))
    assert metrics.flat_groups == 0.5
    turns = [turn for episode in episodes for turn in episode.turns]
    tokens = sum(len(turn.token_ids) for turn in turns)
    assert metrics.answer_tokens == pytest.approx(tokens / len(turns))
    assert metrics.episode_tokens == tokens / 16
    assert metrics.grad_norm == pytest.approx(sum(norms) / len(norms))
    assert metrics.grad_norm > 1e-3  # before it is scaled down
    assert math.isnan(metrics.explained_variance)
    assert {
        name for name in group_metrics(metrics) if "std" in name or "groups" in name or "norm" in name
    } == {
        "train/reward_std",
        "train/flat_groups",
        "steps/grad_norm",
    }


def test_only_samples_of_a_task_have_flat_groups(tmp_path):
    assert math.isnan(trained(tmp_path, algorithm="rebn")[0].flat_groups)
    assert all(map(math.isnan, compare_returns([])))


def view(returns, groups="aabb", seat=SEAT, starts=(0, 0, 0, 0)):
    return View([], seat, returns, returns, list(groups), starts)


def test_returns_are_compared_within_a_seat_and_within_a_group():
    """Of two seats that earn the opposite of each other the mean is always 0."""
    won = [[1.0], [-1.0], [1.0], [1.0]]
    lost = [[-each] for (each,) in won]
    assert compare_returns([view(won), view(lost)]) == (pytest.approx(math.sqrt(0.75)), 0.5)
    always, never = [[2.0]] * 4, [[-2.0]] * 4
    assert compare_returns([view(always), view(never)]) == (0.0, 1.0)
    assert compare_returns([view([[2.0], [], [2.0], [0.0]])])[1] == 0.5  # who had no turn does not count
    branched = [[5.0, 1.0], [6.0, 1.0], [5.0, 1.0], [5.0, 2.0]]
    assert compare_returns([view(branched, starts=(1, 1, 0, 0))])[1] == 1.0  # from where a group branches


def by_length(episode, turns):
    return [float(len(turn.token_ids)) for turn in turns]


@pytest.mark.parametrize(("pays", "reward"), [((0.0,), by_length), ((0.0, 1.0), lambda e, t: [0.0] * len(t))])
def test_they_are_the_returns_that_are_learnt_from(pays, reward):
    learner = Learner(TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0), Settings())
    config = replace(QUICK, algorithm="grpo", kl=0.0, epochs=1, gamma=1.0, reward=reward)
    games = []
    for number in range(4):
        ids = tuple(range(13, 14 + number))
        said = records.turn((11, 12), ids, logprobs=(-0.1,) * len(ids))
        said.reward = pays[number % len(pays)]
        games.append(records.episode(said, stop=StopReason.SOLVED, group="0"))
    steps = policy_gradient.learn(learner, games, config, Progress(0, 10))
    assert (
        (steps.positions > 0) == (steps.reward_std > 0) == (steps.flat_groups == 0) == (reward is by_length)
    )


def test_a_game_of_two_seats_has_the_spread_of_each_seat(tmp_path):
    config = replace(QUICK, env="multi:KuhnPoker-v0", env_kwargs={}, algorithm="grpo", kl=0.0, out=tmp_path)
    trainer = make_trainer(config)
    episodes = trainer.sample()
    for number, each in enumerate(episodes):
        for one in each.turns:
            one.reward = 0.0
        for sign, seat in zip((1, -1), each.seats, strict=True):
            each.ends[seat] = replace(each.ends[seat], unearned=0.0)
            if turns := each.turns_of(seat):
                turns[-1].reward = float(sign * (number % 2))
    metrics = trainer.summarise(episodes, trainer.learn(episodes), 0.0, 0.0)
    trainer.close()
    assert metrics.reward_std > 0.4
    assert metrics.flat_groups == 0.0


def test_the_variance_that_a_critic_explains(tmp_path):
    targets = {0: Target(0.0, 1.0, 0.5), 1: Target(0.0, 3.0, 3.5), 2: Target(9.0, 99.0, 0.0)}
    row = Row((5, 6, 7, 8), (0, 1, 1, 1), (0.0,) * 4, (-1, 0, 0, 1))  # turn 2 is cut off, turn 0 counts once
    # targets 1 and 3 have variance 1; what is left, 0.5 and -0.5, has 0.25
    assert explained_variance([Weighted(row, targets)]) == pytest.approx(0.75)
    assert math.isnan(explained_variance([Weighted(row, {0: Target(0.0, 2.0), 1: Target(0.0, 2.0)})]))
    metrics, *_ = trained(tmp_path, algorithm="ppo")
    assert metrics.explained_variance == 0.0  # the critic begins with 0 everywhere


def test_a_line_of_an_earlier_version_is_read(tmp_path):
    metrics, *_ = trained(tmp_path)
    folder = RunFolder(tmp_path)
    folder.append(metrics)
    values = json.loads(folder.metrics.read_text())
    for name in ("grad_norm", "reward_std", "flat_groups", "answer_tokens", "episode_tokens"):
        del values[name]
    folder.metrics.write_text(json.dumps(values) + "\n")
    (read,) = folder.history()
    assert math.isnan(read.grad_norm)
    assert read.reward == metrics.reward
