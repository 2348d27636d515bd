"""Episodes that are admitted one by one, and stored ones that are played again because something broke."""

import asyncio

import pytest

from gem.agents.base import BaseAgent, BatchBroken
from gem.errors import BadArgument, NoVerdict
from gem.evals import evaluate
from gem.record import Reply
from gem.rollout import EpisodeStore, Job, Runner, rollout, rollout_async

EASY = "game:GuessTheNumber-v0-easy"
JOBS = [Job(EASY, seed, key=str(seed)) for seed in range(30)]


def batched(jobs, agent, **options):
    return rollout(jobs, agent, **options)


def one_by_one(jobs, agent, **options):
    return asyncio.run(rollout_async(jobs, agent, **options))


both = pytest.mark.parametrize("drive", [batched, one_by_one])


class Guesses(BaseAgent):
    """Guesses; loses its connection in the episodes of the jobs that are named."""

    def __init__(self, breaks=()):
        self.breaks, self.asked = breaks, []

    def __call__(self, asks):
        self.asked += [ask.episode.split("-")[1] for ask in asks]
        answers = [
            NoVerdict("connection lost") if ask.episode.split("-")[1] in self.breaks else Reply(r"\boxed{5}")
            for ask in asks
        ]
        if any(isinstance(answer, NoVerdict) for answer in answers):
            raise BatchBroken(answers)
        return answers


class Gate:
    """Admits so many episodes, and no more than `at_once` at a time."""

    def __init__(self, many, at_once=10**9):
        self.left, self.at_once, self.most = many, at_once, 0

    def __call__(self, in_flight):
        if self.left == 0 or in_flight >= self.at_once:
            return False
        self.left -= 1  # the runner begins one for each yes, as long as jobs are left
        self.most = max(self.most, in_flight + 1)
        return True


@both
def test_what_is_not_admitted_stays_unplayed(drive):
    played = drive(JOBS, Guesses(), admit=Gate(7))
    assert [episode.job for episode in played] == [str(seed) for seed in range(7)]
    assert all(episode.scored for episode in played)


@both
def test_no_for_now_is_asked_again_when_an_episode_has_ended(drive):
    gate = Gate(10**9, at_once=2)
    assert len(drive(JOBS, Guesses(), admit=gate)) == 30
    assert gate.most == 2


@both
def test_stored_episodes_are_handed_on_though_nothing_is_admitted(drive, tmp_path):
    with EpisodeStore(tmp_path / "s") as store:
        drive([JOBS[number] for number in (1, 5, 29)], Guesses(), store=store)
    agent = Guesses()
    with EpisodeStore(tmp_path / "s") as store:
        played = drive(JOBS, agent, store=store, resume=True, admit=Gate(0), concurrency=4)
        assert ([episode.job for episode in played], agent.asked) == (["1", "5", "29"], [])
    with EpisodeStore(tmp_path / "s") as store:
        played = drive(JOBS, agent, store=store, resume=True, concurrency=4)
        assert [episode.job for episode in played] == [job.key for job in JOBS]
        assert len(store) == 30
        assert not {"1", "5", "29"} & set(agent.asked)


@both
def test_what_broke_for_good_is_played_again_where_that_is_asked_for(drive, tmp_path):
    with EpisodeStore(tmp_path / "s") as store:
        first = drive(JOBS[:6], Guesses(breaks={"2", "4"}), store=store)
    assert [episode.scored for episode in first] == [True, True, False, True, False, True]
    agent = Guesses()
    with EpisodeStore(tmp_path / "s") as store:
        again = drive(JOBS[:6], agent, store=store, resume=True)
        assert (agent.asked, [each.scored for each in again].count(False)) == ([], 2)
        again = drive(JOBS[:6], agent, store=store, resume=True, retry_failed=True)
        assert set(agent.asked) == {"2", "4"}
        assert all(episode.scored for episode in again)
        assert [episode.attempt for episode in again] == [0, 0, 1, 0, 1, 0]
        agent.asked = []
        assert drive(JOBS[:6], agent, store=store, resume=True, retry_failed=True) == again
        assert agent.asked == []


def test_playing_again_goes_with_a_store():
    with pytest.raises(BadArgument, match="needs resume=True"):
        Runner(Guesses(), retry_failed=True)


def test_an_evaluation_counts_what_was_not_played():
    found = evaluate(Guesses(), EASY, episodes=10, admit=Gate(4))
    assert (found.episodes, found.unplayed, found.played, found.scored, found.unscored) == (10, 6, 4, 4, 0)
    assert found.coverage == 0.4
    assert found.success.n == 4
    nothing = evaluate(Guesses(), EASY, episodes=10, admit=Gate(0))
    assert (nothing.scored, nothing.success, nothing.no_verdict, nothing.coverage) == (0, None, None, 0.0)
