import sys
from types import SimpleNamespace

import pytest

from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument
from gem.rollout import Job, rollout
from gem.rollout.rewards import compute_rewards, find_reward

ENV = "math:Arithmetic-v0-easy"


@pytest.fixture
def named(monkeypatch):
    """Return a function that gives a reward a name."""

    def name(reward):
        module = f"own_rewards_{id(reward)}"
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(own=reward))
        return f"{module}:own"

    return name


def play(*answers):
    """Return an episode for each answer: two samples of each task."""
    jobs = [Job(ENV, seed, group=f"0-{seed}", sample=sample) for seed in (0, 1) for sample in (0, 1)]
    return [rollout([job], ScriptedAgent([answer]))[0] for job, answer in zip(jobs, answers, strict=True)]


def relative(episode, turns, group):
    lengths = [len(each.turns[-1].action) for each in group]
    return [float(max(lengths) - len(turn.action)) for turn in turns]


def test_a_reward_that_compares_gets_the_samples_of_its_task(named):
    episodes = play("aaaa", "a", "bb", "bbbbbb")
    assert [episode.turns[0].action for episode in episodes] == ["aaaa", "a", "bb", "bbbbbb"]
    assert compute_rewards(named(relative), episodes, "agent") == [[0.0], [3.0], [4.0], [0.0]]
    assert compute_rewards(named(lambda episode, turns: [1.0]), episodes, "agent") == [[1.0]] * 4


@pytest.mark.parametrize("compares", [False, True])
def test_an_episode_without_a_turn_is_not_asked_about(named, compares):
    async def shortest(episode, turns):
        return [-float(len(turns[-1].action))] * len(turns)

    episodes = play("aaaa", "a", "bb", "bbbbbb")
    episodes[1].turns = []
    expected = [[0.0], [], [4.0], [0.0]] if compares else [[-4.0], [], [-2.0], [-6.0]]
    assert compute_rewards(named(relative if compares else shortest), episodes, "agent") == expected


def test_a_reward_that_compares_needs_several_samples(named):
    name = named(relative)
    assert find_reward(name) is relative
    with pytest.raises(BadArgument, match=r"compares the samples of a task.*--algorithm grpo"):
        find_reward(name, grouped=False)
    find_reward(named(lambda episode, turns: [1.0]), grouped=False)
