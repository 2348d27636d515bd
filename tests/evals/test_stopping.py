"""Stopping early, with an interval that holds however often one looks."""

import random

import pytest

from gem.agents.random import RandomAgent
from gem.errors import BadArgument
from gem.evals import evaluate
from gem.evals.stopping import Stopper
from gem.record import Episode, SeatEnd, StopReason, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef

EASY = "game:GuessTheNumber-v0-easy"


def episode(number, won, sample=0, scored=True):
    stop = StopReason.SOLVED if won else StopReason.FAILED
    found = Episode(TaskRef("x:Y"), group=str(number), sample=sample, ends={"agent": SeatEnd(stop, True)})
    found.stop, found.verdict = stop, Verdict.SCORED if scored else Verdict.NONE
    return found


def test_tasks_count_in_the_order_in_which_they_were_drawn():
    rng = random.Random(0)
    won = [rng.random() < 0.7 for _ in range(300)]
    in_order, mixed = Stopper(0.2), Stopper(0.2)
    for number, each in enumerate(won):
        in_order.hear(episode(number, each))
    order = list(range(300))
    for start in range(0, 300, 20):  # as they end, where twenty are in flight
        part = order[start : start + 20]
        rng.shuffle(part)
        order[start : start + 20] = part
    for number in order:
        mixed.hear(episode(number, won[number]))
    assert mixed._sequence.interval == in_order._sequence.interval
    assert in_order.enough


def test_it_is_enough_once_it_was_narrow_and_samples_of_a_task_are_one_value():
    stopper = Stopper(0.5, samples=2)
    count = 0
    while stopper.admit(0):
        stopper.hear(episode(count, True))
        stopper.hear(episode(count, False, sample=1))
        count += 1
        assert count < 200
    assert stopper._sequence.count == count
    assert stopper._sequence.interval.mean == 0.5
    stopper.hear(episode(count, True))
    assert stopper.enough


def test_what_has_no_verdict_is_left_out():
    stopper = Stopper(0.3)
    for number in range(50):
        stopper.hear(episode(number, True, scored=number % 2 == 0))
    assert stopper._sequence.count == 25


def test_an_evaluation_stops_and_goes_on_to_the_same_figures(tmp_path):
    def run(agent, **options):
        stopper = Stopper(0.3)
        result = evaluate(
            agent, EASY, episodes=500, admit=stopper.admit, on_episode=stopper.hear, concurrency=4, **options
        )
        return stopper.figures(result), stopper

    with EpisodeStore(tmp_path / "s") as store:
        first, stopper = run(RandomAgent(), store=store, resume=True)
        assert stopper.enough
        assert 20 < first.played == first.episodes < 300
        assert (first.unplayed, first.coverage) == (0, 1.0)
        assert first.success.high - first.success.low <= 0.3 + 1e-9
        stored = len(store)
    with EpisodeStore(tmp_path / "s") as store:
        second, _ = run(RandomAgent(), store=store, resume=True)
        assert len(store) == stored  # nothing more was begun
    assert second == first


def test_where_it_is_never_narrow_enough_all_is_played():
    stopper = Stopper(0.01)
    result = evaluate(RandomAgent(), EASY, episodes=30, admit=stopper.admit, on_episode=stopper.hear)
    found = stopper.figures(result)
    assert (found.played, found.unplayed, stopper.enough) == (30, 0, False)
    assert found.success.high - found.success.low > result.success.high - result.success.low


def test_without_any_outcome_the_figures_stay_as_they_are():
    stopper = Stopper(0.1)
    assert stopper.figures(result := evaluate(RandomAgent(), EASY, episodes=1)) is result


@pytest.mark.parametrize("width", [0, -1, 1, float("nan")])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(BadArgument, match="stop_at_width"):
        Stopper(width)
