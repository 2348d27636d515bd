"""Several samples of each task."""

import json

import pytest

from gem.agents.base import BaseAgent, BatchBroken
from gem.agents.random import RandomAgent
from gem.errors import BadArgument, NoVerdict
from gem.evals import EnvResult, Instances, evaluate
from gem.record import Reply
from gem.statistics import pass_at_k, pass_hat_k, rate_interval

EASY = "game:GuessTheNumber-v0-easy"


class Guesses(BaseAgent):
    """Guesses by the seed of the ask."""

    def __call__(self, asks):
        return [Reply(rf"\boxed{{{ask.seed % 10 + 1}}}") for ask in asks]


def test_samples_of_a_task_share_its_start_and_have_noise_of_their_own():
    episodes = []
    found = evaluate(Guesses(), EASY, episodes=20, samples=3, on_episode=episodes.append)
    assert (found.episodes, found.samples, len(episodes)) == (60, 3, 60)
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    assert {len(group) for group in groups.values()} == {3}
    assert all(len({episode.seed for episode in group}) == 1 for group in groups.values())
    assert any(len({episode.transcript_hash() for episode in group}) > 1 for group in groups.values())
    won = [[bool(episode.success) for episode in group] for group in groups.values()]
    assert found.success == rate_interval(
        [float(each) for own in won for each in own], [str(i) for i, own in enumerate(won) for _ in own]
    )
    assert list(found.passes) == ["pass@1", "pass@2", "pass@3", "pass^1", "pass^2", "pass^3"]
    assert found.passes["pass@2"] == pass_at_k(won, 2)
    assert found.passes["pass^3"] == pass_hat_k(won, 3)
    assert found.passes["pass@1"].mean == pytest.approx(found.success.mean)
    values = json.loads(json.dumps(found.to_json()))
    assert EnvResult.from_json(values) == found


def test_more_tasks_or_samples_are_the_first_ones_and_others(tmp_path):
    def played(**options):
        found = []
        evaluate(RandomAgent(), EASY, on_episode=found.append, **options)
        return {(episode.job, episode.sample): episode.transcript_hash() for episode in found}

    few, many = played(episodes=5, samples=2), played(episodes=7, samples=4)
    assert few.items() <= many.items()
    assert played(episodes=5).items() <= few.items()


def test_a_task_that_lost_a_sample_is_in_no_pass_figure():
    episodes = []

    class Drops(Guesses):
        def __call__(self, asks):
            answers = super().__call__(asks)
            lost = [ask.episode.split("-")[2] == "1" and ask.seed % 3 == 0 for ask in asks]
            if any(lost):
                raise BatchBroken(
                    [NoVerdict("x") if gone else a for gone, a in zip(lost, answers, strict=True)]
                )
            return answers

    found = evaluate(Drops(), EASY, episodes=12, samples=2, on_episode=episodes.append)
    whole = {episode.group for episode in episodes} - {e.group for e in episodes if not e.scored}
    assert 0 < len(whole) < 12
    assert found.passes["pass@2"].clusters == len(whole)


def test_one_sample_has_no_pass_figures_and_wrong_numbers_are_refused():
    assert evaluate(RandomAgent(), EASY, episodes=3).passes == {}
    for wrong in ({"samples": 0}, {"samples": 2, "instances": Instances(((1,),), True)}, {"episodes": 0}):
        with pytest.raises(BadArgument):
            evaluate(RandomAgent(), EASY, **wrong)


def test_given_seeds_are_played_as_they_are():
    episodes = []
    evaluate(RandomAgent(), EASY, episodes=3, seeds=range(3), on_episode=episodes.append)
    assert sorted(episode.seed for episode in episodes) == [0, 1, 2]
