import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import ConfidenceSequence, wilson

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=25)


def capital(values, mean, level=0.95):
    """What the better of the two gamblers has in the end, of a half each; the formula written out."""
    up = down = 0.5
    for t in range(1, len(values) + 1):
        before = values[: t - 1]
        squares = 0.25
        for i, value in enumerate(before, 1):
            squares += (value - (0.5 + sum(before[:i])) / (i + 1)) ** 2
        bet = math.sqrt(2 * math.log(2 / (1 - level)) / (squares / t * t * math.log(t + 1)))
        up *= 1 + min(bet, 0.5 / mean if mean else math.inf) * (values[t - 1] - mean)
        down *= 1 - min(bet, 0.5 / (1 - mean) if mean < 1 else math.inf) * (values[t - 1] - mean)
    return max(up, down)


def after(values, **options):
    sequence = ConfidenceSequence(**options)
    for value in values:
        sequence.add(value)
    return sequence


@settings(deadline=None, max_examples=50)
@given(values=VALUES, place=st.integers(0, 1000))
def test_a_mean_is_ruled_out_where_a_gambler_grew_rich_on_it(values, place):
    mean = place / 1000
    interval = after(values).interval
    rich = max(capital(values[:t], mean) for t in range(1, len(values) + 1))
    if rich < 20 * (1 - 1e-9):
        assert interval.low <= mean <= interval.high
    elif rich > 20 * (1 + 1e-9):
        assert not interval.low + 0.001 < mean < interval.high - 0.001


@settings(deadline=None, max_examples=50)
@given(values=VALUES)
def test_intervals_only_shrink_and_count_the_values(values):
    sequence, before = ConfidenceSequence(), (0.0, 1.0)
    assert sequence.interval == (0.5, 0.0, 1.0, 0, 0, False)
    for number, value in enumerate(values, 1):
        sequence.add(value)
        interval = sequence.interval
        assert before[0] <= interval.low <= interval.high <= before[1]
        assert (interval.n, interval.mean) == (number, pytest.approx(np.mean(values[:number])))
        before = interval[1:3]


@settings(deadline=None, max_examples=30)
@given(values=VALUES)
def test_the_range_of_values_is_the_callers(values):
    plain, scaled = after(values).interval, after([20 * v - 10 for v in values], low=-10, high=10).interval
    assert scaled[:3] == pytest.approx([20 * each - 10 for each in plain[:3]], abs=0.03)


def test_failures_mirror_successes():
    values = (np.random.default_rng(0).random(80) < 0.9).astype(float)
    one, other = after(values).interval, after(1 - values).interval
    assert one[1:3] == pytest.approx((1 - other.high, 1 - other.low))


def test_it_is_wider_than_an_interval_of_one_moment_and_not_by_much():
    values = (np.random.default_rng(1).random(400) < 0.7).astype(float)
    interval, fixed = after(values.tolist()).interval, wilson(int(values.sum()), 400)
    assert 1.2 < (interval.high - interval.low) / (fixed.high - fixed.low) < 2.2


def test_it_stops_when_narrow_enough_or_decided():
    sequence = ConfidenceSequence()
    assert not sequence.stop_when(width=0.99)
    stopped = {}
    for number in range(1, 400):
        sequence.add(1.0)
        for name, rule in (("width", {"width": 0.1}), ("threshold", {"threshold": 0.5})):
            if sequence.stop_when(**rule):
                stopped.setdefault(name, number)
    assert stopped["threshold"] < stopped["width"] < 100
    assert sequence.interval.low >= 0.9
    assert sequence.stop_when(width=0.001, threshold=0.5)
    assert not sequence.stop_when(threshold=1.0)


def test_wrong_arguments_are_refused():
    for bounds in ((1.0, 0.0), (0.0, math.inf), (math.nan, 1.0), (1.0, 1.0)):
        with pytest.raises(BadArgument, match="finite bounds"):
            ConfidenceSequence(*bounds)
    with pytest.raises(BadArgument, match="level is 95"):
        ConfidenceSequence(level=95)
    sequence = ConfidenceSequence()
    for value in (-0.1, 1.5, math.nan):
        with pytest.raises(BadArgument, match=r"accepted: 0\.0 to 1\.0"):
            sequence.add(value)
    assert sequence.count == 0
    with pytest.raises(BadArgument, match="would never stop"):
        sequence.stop_when()
    with pytest.raises(BadArgument, match="width is 0"):
        sequence.stop_when(width=0)


def ever_wrong(rng, rate, tasks, samples, trials, make):
    """How often an interval lacks the rate at any of the moments after task 5."""
    wrong = 0
    for _ in range(trials):
        own = rng.beta(2 * rate, 2 * (1 - rate), tasks) if samples > 1 else np.full(tasks, rate)
        wrong += make((rng.binomial(samples, own) / samples).tolist(), rate)
    return wrong / trials


def by_betting(values, rate):
    sequence = ConfidenceSequence()
    for value in values:
        sequence.add(value)
    # Intervals only shrink: the last one lacks what any of them lacked.
    return not sequence.interval.low <= rate <= sequence.interval.high


def by_peeking(values, rate):
    """An interval of one moment, looked at after every task."""
    won, wrong = 0, False
    for number, value in enumerate(values, 1):
        won += int(value)
        interval = wilson(won, number)
        wrong |= number > 5 and not interval.low <= rate <= interval.high
    return wrong


def test_looking_after_every_task_keeps_the_promise_and_breaks_that_of_an_ordinary_interval():
    rng = np.random.default_rng(0)
    assert ever_wrong(rng, 0.5, 100, 1, 300, by_betting) <= 0.05
    assert ever_wrong(rng, 0.5, 100, 1, 300, by_peeking) > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.02, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("samples", [1, 4])
def test_it_is_wrong_at_any_time_no_more_often_than_it_says(rate, samples):
    rng, trials = np.random.default_rng([round(100 * rate), samples]), 500
    margin = 3 * math.sqrt(0.05 * 0.95 / trials)  # of the simulation
    assert ever_wrong(rng, rate, 500, samples, trials, by_betting) <= 0.05 + margin
