import math

import pytest
from records import episode, turn

from gem.errors import BadArgument
from gem.record import Failure, RunInfo, StopReason, Verdict
from gem.rollout import EpisodeStore, indexed_file

RUN = RunInfo("run")
STOPS = (StopReason.SOLVED, StopReason.FAILED, StopReason.ERROR)


def made(number):
    stop = STOPS[number % 3]
    turns = [turn((1,), (2,) * (number % 4), reward=(number * 7 % 5) / 4)] * (1 + number % 2)
    error = Failure("env", "E", "broke") if stop is StopReason.ERROR else None
    return episode(*turns, stop=stop, seed=number, run=RUN, job=f"{number % 5}-{number}", error=error)


@pytest.fixture(params=[0, 7, 23], ids=["all in the index", "some new", "none in the index"])
def store(request, tmp_path, monkeypatch):
    """A store of 23 episodes that is being written, of which some are not in the index yet."""
    monkeypatch.setattr(indexed_file, "SAVE_EVERY", 1000)
    path = tmp_path / "episodes.jsonl"
    with EpisodeStore(path) as writer:
        for number in range(23 - request.param):
            writer.append(made(number))
    with EpisodeStore(path) as writer:
        for number in range(23 - request.param, 23):
            writer.append(made(number))
        with EpisodeStore(path, read_only=True) as store:
            yield store


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["number", "reward", "stop", "turns", "success"])
@pytest.mark.parametrize("wanted", [{}, {"stop": "solved"}, {"job_prefix": "3-"}, {"min_reward": 0.5}])
def test_pages_are_the_parts_of_what_is_selected(store, order, descending, wanted):
    def key(entry):
        value = getattr(entry, order)
        return value is not None, 0 if value is None else value, entry.number

    every = [entry for entry in store.select() if entry in store.page(count=99, **wanted)[0]]
    every.sort(key=key, reverse=descending)
    pages = []
    for start in range(0, 30, 4):
        page, total = store.page(order=order, descending=descending, start=start, count=4, **wanted)
        assert total == len(every)
        pages += page
    assert pages == every
    assert 0 < len(every) <= 23


def test_a_tally_has_the_sums_of_what_is_selected(store):
    for wanted in ({}, {"stop": "failed"}, {"job_prefix": "1-"}):
        entries = store.page(count=99, **wanted)[0]
        tallies = store.tally(**wanted)
        assert sum(tally.episodes for tally in tallies) == len(entries)
        assert sum(tally.turns for tally in tallies) == sum(entry.turns for entry in entries)
        assert sum(tally.tokens for tally in tallies) == sum(entry.tokens for entry in entries)
        rewards = [entry.reward for entry in entries if entry.reward is not None]
        assert math.isclose(sum(tally.reward for tally in tallies), math.fsum(rewards))
        squares = sum(tally.reward_squares for tally in tallies)
        assert math.isclose(squares, math.fsum(reward**2 for reward in rewards))
        assert sum(tally.rates for tally in tallies) == sum(reward in (0, 1) for reward in rewards)
        keys = {tally[:5] for tally in tallies}
        assert keys == {(e.spec, e.env, e.stop, e.verdict, e.success) for e in entries}


def test_sums_by_task_are_of_the_episodes_with_a_verdict(store):
    scored = [entry for entry in store.select() if entry.verdict == Verdict.SCORED]
    tasks = {task[:4]: task for task in store.tasks()}
    assert tasks.keys() == {(entry.spec, entry.env, entry.group, entry.seed) for entry in scored}
    for key, task in tasks.items():
        own = [entry for entry in scored if (entry.spec, entry.env, entry.group, entry.seed) == key]
        told = [entry.success for entry in own if entry.success is not None]
        assert (task.scored, task.known, task.solved) == (len(own), len(told), sum(told))
        assert math.isclose(task.reward, math.fsum(entry.reward for entry in own))


def test_a_byte_of_the_file_belongs_to_an_episode(store):
    for entry in store.select():
        assert store.holding(entry.start) == store.holding(entry.end - 1) == entry
    assert store.holding(0) is None  # the line of the run
    assert store.holding(10**9) is None


def test_what_cannot_be_asked_for_says_so(store):
    with pytest.raises(BadArgument, match=r"order is 'rewards'; accepted: number, id"):
        store.page(order="rewards")
    with pytest.raises(BadArgument, match=r"start is -1 and count is 100; accepted: 0 or more"):
        store.page(start=-1)
    with pytest.raises(BadArgument, match=r"cannot be selected by 'spek'.* Did you mean 'spec'"):
        store.tally(spek="x")
    with pytest.raises(BadArgument, match="cannot be selected by"):
        store.page(**{'number" OR 1 --': 1})
