"""PPO's targets, by hand; turn-level GRPO's branches; stale samples."""

import json
import math
from contextlib import suppress
from dataclasses import replace

import pytest
from records import episode, turn

torch = pytest.importorskip("torch")
import runs

from gem.agents.tiny import TinyConfig
from gem.content import Message
from gem.estimators import ALGORITHMS, gae
from gem.estimators.algorithms import make_view
from gem.record import SEAT, SeatEnd, StopReason
from gem.train.config import TrainConfig
from gem.train.config.env_part import EnvPart
from gem.train.learn import policy_gradient
from gem.train.learn.batch import weigh
from gem.train.learn.learner import Critic, Learner
from gem.train.learn.policy import TinyPolicy
from gem.train.learn.policy_gradient import branch_turn, find_branches, keep_turns
from gem.train.learn.preparation import warm
from gem.train.learn.steps import Progress, Steps
from gem.train.learn.training import make_trainer, train
from gem.train.report.run_folder import RunFolder
from gem.train.report.watcher import Watcher
from gem.train.tasks.played_env import PlayedEnv
from gem.train.tasks.schedule import Slot

QUICK = replace(runs.QUICK, algorithm="ppo", gamma=0.9)


class Seen(Learner):
    """Keeps what it is given to learn on, and learns nothing."""

    def update(self, rows, objective, divisor):
        self.rows = list(rows)
        return super().update(rows, objective, divisor)


def valued(weight=0.3):
    policy = TinyPolicy(TinyConfig(width=16, layers=1, heads=2), seed=0)
    critic = Critic(16)
    learner = Seen(policy, critic=critic)
    with torch.no_grad():
        critic.head.weight.fill_(weight)
    return learner


def played(reward, truncated=False):
    first = turn((11, 12), (13,), logprobs=(-0.1,))
    second = turn((11, 12, 13, 14), (15, 16), logprobs=(-0.2, -0.3), after=[first])
    first.reward, second.reward = 0.5, reward
    stop = StopReason.TURN_LIMIT if truncated else StopReason.SOLVED
    ends = {SEAT: SeatEnd(stop, not truncated, truncated, observation="Higher.")}
    return episode(first, second, stop=stop, ends=ends)


def targets(learner, episodes, **how):
    config = replace(QUICK, kl=0.0, whiten=False, epochs=1, minibatch=100, **how)
    policy_gradient.learn(learner, episodes, config, Progress(0, 10))
    return [item.targets for item in sorted(learner.rows, key=lambda item: item.source)]


def test_the_targets_of_turns_are_generalised_advantage_estimates():
    learner = valued()
    (found,) = targets(learner, [played(1.0)], gamma=0.9, lam=0.8)
    values = [found[0].value, found[1].value]
    assert values[0] != pytest.approx(values[1])
    wanted = gae([0.5, 1.0], values, 0.9, 0.8)
    assert [found[t].advantage for t in (0, 1)] == pytest.approx(wanted)
    assert [found[t].returns for t in (0, 1)] == pytest.approx(
        [a + v for a, v in zip(wanted, values, strict=True)]
    )


def test_what_was_cut_off_is_valued_and_what_ended_is_not():
    learner = valued()
    one, cut = targets(learner, [played(1.0), played(1.0, truncated=True)], gamma=0.9, lam=1.0)
    assert one[1].value == pytest.approx(cut[1].value)
    bootstrap = (cut[1].advantage - one[1].advantage) / 0.9
    assert bootstrap != pytest.approx(0.0, abs=1e-3)
    assert cut[0].advantage - one[0].advantage == pytest.approx(0.9**2 * bootstrap)
    learner = valued(weight=0.0)
    one, cut = targets(learner, [played(1.0), played(1.0, truncated=True)], gamma=0.9, lam=1.0)
    assert one == cut  # the critic says 0


def test_whitened_advantages_have_mean_0_and_deviation_1_over_turns():
    learner = valued()
    config = replace(QUICK, kl=0.0, epochs=1, minibatch=100)
    policy_gradient.learn(learner, [played(1.0), played(-2.0), played(0.3)], config, Progress(0, 10))
    flat = [target.advantage for item in learner.rows for target in item.targets.values()]
    assert len(flat) == 6
    assert sum(flat) == pytest.approx(0.0, abs=1e-6)
    assert sum(value * value for value in flat) / 6 == pytest.approx(1.0)


@pytest.mark.parametrize("reward", [-0.1, 0.0, 1.0])
def test_equal_episodes_teach_the_policy_nothing(reward):
    """Neither their common advantage nor its rounding becomes an advantage of full size."""
    learner = valued(weight=0.0)
    same = [played(reward) for _ in range(7)]
    for each in same:
        each.turns[0].reward = reward
    config = replace(QUICK, gamma=1.0, lam=0.0, kl=0.1, epochs=1, minibatch=100)
    steps = policy_gradient.learn(learner, same, config, Progress(0, 10))
    if reward:  # the critic has to learn what they are worth
        assert {target.advantage for item in learner.rows for target in item.targets.values()} == {0.0}
    else:
        assert steps.positions == 0


def test_the_value_of_what_was_cut_off_is_that_of_the_next_prompt(monkeypatch):
    learner, episodes = valued(), [played(1.0, truncated=True)]
    rows, seen = weigh(episodes, SEAT), []
    monkeypatch.setattr(learner, "store_outputs", lambda ends: seen.append(ends[0].row.ids[:-1]))
    monkeypatch.setattr(learner.policy, "prefix_ids", (41, 42))
    renderer, said = learner.policy.renderer, [Message("user", "Higher.")]
    held = (11, 12, 13, 14, 15, 16)
    for assembled, wanted in ((False, (*held, *renderer.delta(held, said))), (True, renderer.prompt(said))):
        with suppress(KeyError):  # nothing was stored
            policy_gradient.compute_bootstraps(learner, episodes, rows, SEAT, [assembled])
        assert seen.pop() == (*wanted, 41, 42)


@pytest.mark.parametrize("normalise_by", ["environment", "batch"])
def test_an_episode_is_valued_by_the_form_of_its_own_environment(monkeypatch, normalise_by):
    given = []
    monkeypatch.setattr(policy_gradient, "compute_bootstraps", lambda *args: given.extend(args[-1]) or {})
    two = (EnvPart("game:GuessTheNumber-v0-easy", name="a"), EnvPart("game:GuessTheNumber-v0-easy", name="b"))
    config = replace(QUICK, env_kwargs={}, environments=two, normalise_by=normalise_by)
    slots = [Slot(part=part) for part in (0, 1, 0, 1)]
    episodes = [played(1.0, truncated=True) for _ in slots]
    policy_gradient.learn(valued(), episodes, config, Progress(0, 10), slots, assembled={1})
    wanted = [False, True, False, True]
    assert given == (wanted if normalise_by == "batch" else sorted(wanted))


def test_a_wrapper_that_assembles_the_conversation_is_known():
    plain, joined = (
        PlayedEnv(part, config)
        for config in (QUICK, replace(QUICK, wrappers=("concat",)))
        for part in config.parts
    )
    assert (plain.assembles_history, joined.assembles_history) == (False, True)


@pytest.mark.system
@pytest.mark.parametrize("critic", ["head", "model"])
def test_the_critic_learns_what_turns_are_worth(tmp_path, critic):
    config = replace(QUICK, critic=critic, warmup_steps=30, episodes=16 * 12, lr=5e-3, kl=0.0, out=tmp_path)
    summary = train(config)
    history = RunFolder(tmp_path).history()
    assert all(math.isfinite(m.value_error) for m in history)
    assert sum(m.value_error for m in history[-3:]) < sum(m.value_error for m in history[:3])
    assert summary["algorithm"] == "ppo"


# -- turn-level GRPO


def test_the_samples_of_a_turn_share_what_came_before_it(tmp_path):
    config = replace(
        QUICK, algorithm="turn_grpo", gamma=1.0, batch=32, warmup_steps=40, store="none", out=tmp_path
    )
    trainer = make_trainer(config)
    warm(trainer)  # before that, its first answer ends every episode
    agent = trainer.policy.agent
    before = agent.tokens_sampled
    episodes = trainer.sample()
    sampled = agent.tokens_sampled - before
    metrics = trainer.summarise(episodes, Steps(), 0.0, 0.0)
    trainer.close()
    lengths = [sum(len(turn.token_ids) for turn in each.turns) for each in episodes]
    assert metrics.tokens_sampled == sampled < sum(lengths)  # without the turns before the branch
    assert metrics.episode_tokens == sum(lengths) / 32
    assert len(episodes) == 32
    groups = {}
    for each in episodes:
        groups.setdefault(each.group, []).append(each)
    assert [len(group) for group in groups.values()] == [4] * 8
    for first, *others in groups.values():
        (turn,) = {branch_turn(each) for each in others}
        for each in others:
            assert each.origin is None if turn == 0 else each.origin.episode == first.id
            assert [t.action for t in each.turns[:turn]] == [t.action for t in first.turns[:turn]]
            assert each.seed == first.seed
    assert len({branch_turn(each) for each in episodes if each.sample}) > 1


def test_a_turn_is_compared_with_the_other_samples_of_it_and_nothing_else_is_learnt():
    group = [
        branched(sample, rewards, at=1) for sample, rewards in enumerate([(0.5, 1.0), (0.5, 3.0), (0.5, 2.0)])
    ]
    other = branched(0, (7.0, 7.0), at=0, task="1")
    episodes = [*group, other]
    branches = find_branches(episodes)
    assert branches == {"0": 1}
    view = make_view(episodes, SEAT, 1.0, starts=[branches.get(each.group, 0) for each in episodes])
    advantages = ALGORITHMS["turn_grpo"].compute_advantages(view)
    chosen = ALGORITHMS["turn_grpo"].select_turns(view)
    rows = [keep_turns(row, chosen[row.source]) for row in weigh(episodes, SEAT)]
    std = math.sqrt(2 / 3)
    assert advantages[:3] == [[0.0, pytest.approx(2 * a / std)] for a in (-1.0, 1.0, 0.0)]  # of two turns
    assert advantages[3] == [0.0, 0.0]  # alone
    for item in rows[:3]:
        assert {t for t, learn in zip(item.row.turn, item.row.mask, strict=True) if learn} == {1}


def branched(sample, rewards, at, task="0"):
    first = turn((11, 12), (13,), logprobs=(-0.1,))
    second = turn((11, 12, 13, 14), (15, 16), logprobs=(-0.2, -0.3), after=[first])
    first.reward, second.reward = rewards
    made = episode(first, second, stop=StopReason.SOLVED, group=task)
    made.job, made.sample = f"0-{task}@{at}", sample
    return made


# -- stale samples


def figures(out):
    names = ("iteration", "success", "loss", "entropy", "logprob_gap", "tokens_sampled")
    lines = (json.loads(line) for line in RunFolder(out).metrics.read_text().splitlines())
    return [tuple(line[name] for name in names) for line in lines]


class Stop(Watcher):
    def __init__(self, at):
        self.at = at

    def iterated(self, metrics, config):
        if metrics.iteration == self.at:
            raise KeyboardInterrupt


@pytest.mark.system
def test_stale_samples_come_from_the_weights_before(tmp_path):
    config = TrainConfig.fit(
        **{**vars(QUICK), "algorithm": "rebn", "staleness": 1, "importance_cap": 2.0, "out": tmp_path / "a"}
    )
    train(config)
    from gem.rollout import EpisodeStore

    with EpisodeStore(RunFolder(config.out).episodes, read_only=True) as store:
        versions = {each.job.partition("-")[0]: each.policy_version for each in store}
    assert versions == {"0": 0, "1": 0, "2": 1, "3": 2}
    history = RunFolder(config.out).history()
    assert history[0].logprob_gap < 1e-4  # nothing had been learnt
    assert history[2].logprob_gap > 1e-3


@pytest.mark.system
@pytest.mark.parametrize("at", [1, 3])
def test_a_run_of_stale_samples_that_was_cut_goes_on_as_the_same_run(tmp_path, at):
    base = {**vars(QUICK), "algorithm": "rebn", "staleness": 1, "importance_cap": 2.0}
    train(TrainConfig(**{**base, "out": tmp_path / "whole"}))
    config = TrainConfig(**{**base, "out": tmp_path / "cut"})
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop(at))
    train(config, resume=True)
    assert figures(tmp_path / "whole") == figures(tmp_path / "cut")


def test_defaults_weigh_stale_samples():
    assert TrainConfig.fit(staleness=1).importance_cap == 2.0
    assert TrainConfig.fit().importance_cap == 0.0
