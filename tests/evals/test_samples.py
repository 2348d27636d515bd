"""Several samples of each task."""

import json
from itertools import product

import pytest

from gem.agents.base import BaseAgent, BatchBroken
from gem.agents.random import RandomAgent
from gem.errors import BadArgument, NoVerdict
from gem.evals import EnvResult, Instances, Stopping, evaluate
from gem.record import Reply
from gem.rollout import EpisodeStore, Job, RunOptions, rollout
from gem.specs import TaskRef
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


def test_a_stored_task_is_not_played_again_at_another_place(tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        for seeds in ((3, 4), (2, 3, 4), (4, 2)):
            found = evaluate(RandomAgent(), EASY, seeds=seeds, samples=2, store=store, resume=True)
            assert (found.episodes, found.success.clusters) == (2 * len(seeds), len(seeds))
        assert sorted((each.seed, each.sample) for each in store) == [*product((2, 3, 4), (0, 1))]
    with pytest.raises(BadArgument, match=r"seeds is \(5, 5\); accepted: each seed once"):
        evaluate(RandomAgent(), EASY, seeds=(5, 5))


@pytest.mark.parametrize("runs", [[(3, 4)], [(3, 4), (2, 3, 4)]])
def test_a_store_whose_groups_are_places_is_continued(tmp_path, runs):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        for seeds in runs:  # as earlier versions did
            jobs = [Job(EASY, seed, str(place)) for place, seed in enumerate(seeds)]
            rollout(jobs, RandomAgent(), store=store, resume=True)
        before, heard = len(store), []
        stop = Stopping(width=0.1)
        options = RunOptions(store=store, resume=True, on_episode=heard.append)
        found = evaluate(RandomAgent(), EASY, seeds=(0, *runs[-1]), stop=stop, options=options)
        assert (found.episodes, len(store)) == (len(runs[-1]) + 1, before + 1)
        assert stop.sequence.count == len({each.group for each in heard}) == found.episodes
        other = TaskRef(EASY, {"max_number": 20})  # seeds and groups are the same, the task is not
        evaluate(RandomAgent(), other, seeds=runs[-1], options=options)
        assert len(store) == before + 1 + len(runs[-1])


def test_a_task_that_lost_a_sample_is_in_the_pass_figures_of_fewer():
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
    assert found.passes["pass@2"].clusters == found.passes["pass^2"].clusters == len(whole)
    assert (found.passes["pass@1"].clusters, found.tasks) == (12, 12)


def test_one_sample_has_no_pass_figures_and_wrong_numbers_are_refused():
    assert evaluate(RandomAgent(), EASY, episodes=3).passes == {}
    for wrong in ({"samples": 0}, {"samples": 2, "instances": Instances(((1,),), True)}, {"episodes": 0}):
        with pytest.raises(BadArgument):
            evaluate(RandomAgent(), EASY, **wrong)


def test_given_seeds_are_played_as_they_are():
    episodes = []
    evaluate(RandomAgent(), EASY, episodes=3, seeds=range(3), on_episode=episodes.append)
    assert sorted(episode.seed for episode in episodes) == [0, 1, 2]
