import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import (
    Noise,
    mcnemar,
    mean_interval,
    noise,
    noise_of_rate,
    smallest_difference,
    smallest_rate_difference,
)
from gem.statistics.power import MANY, count_pairs, mcnemar_power

stats = pytest.importorskip("scipy.stats")


def test_the_components_are_those_of_a_table_worked_out_by_hand():
    # Means 2, 4, 9; within: (2 + 8 + 2) / 3 = 4; between: ((9 + 1 + 16) * 2 / 2 - 4) / 2 = 11.
    found = noise([1, 3, 2, 6, 8, 10], ["a", "a", "b", "b", "c", "c"])
    assert found == pytest.approx(Noise(5.0, 11.0, 4.0))


def test_tasks_of_unequal_numbers_of_samples_count_by_them():
    # Mean 4.5; between: 1 * 4.5^2 + 3 * 1.5^2 = 27; within: (4 + 0 + 4) / 2; samples: (4 - 10 / 4) / 1 = 1.5.
    assert noise([0, 4, 6, 8], ["a", "b", "b", "b"]) == pytest.approx(Noise(4.5, (27 - 4) / 1.5, 4.0))


def test_the_standard_error_of_what_was_played_is_the_clustered_one():
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(30, 1)) + rng.normal(size=(30, 4))).ravel().tolist()
    tasks = [i // 4 for i in range(120)]
    interval = mean_interval(values, tasks)
    half = (interval.high - interval.low) / 2 / stats.t.ppf(0.975, 29)
    assert math.sqrt(noise(values, tasks).variance(30, 4)) == pytest.approx(half)


def test_components_are_unbiased_for_tasks_of_unequal_numbers_of_samples():
    rng, found = np.random.default_rng(1), []
    sizes = [1, 2, 3, 5, 8] * 6
    tasks = [task for task, size in enumerate(sizes) for _ in range(size)]
    for _ in range(400):
        own = rng.normal(0, 1.5, len(sizes))
        found.append(noise((own[tasks] + rng.normal(0, 2.0, len(tasks))).tolist(), tasks))
    assert np.mean([each.between for each in found]) == pytest.approx(2.25, rel=0.05)
    assert np.mean([each.within for each in found]) == pytest.approx(4.0, rel=0.05)


def test_samples_that_differ_more_than_tasks_leave_nothing_between():
    assert noise([0, 1, 0, 1], ["a", "a", "b", "b"]) == (0.5, 0.0, 0.5)


def test_rounding_is_no_noise():
    assert noise([0.1 + 0.2, 0.3] * 4, range(8)).between == 0
    assert noise([0.1 + 0.2, 0.3] * 4, [0, 0, 1, 1, 2, 2, 3, 3])[1:] == (0, 0)


def test_one_sample_of_each_task_does_not_tell_the_components_apart():
    found = noise([0.0, 1.0, 1.0, 0.0], list("abcd"))
    assert found == pytest.approx(Noise(0.5, 1 / 3, None), nan_ok=True)
    assert found.variance(100, 1) == pytest.approx(1 / 300)
    for asked in ({"samples": 2}, {"samples": 1, "alike": 0.5}):
        with pytest.raises(BadArgument, match="sampled once"):
            found.variance(100, **asked)


@given(rate=st.floats(0, 1), share=st.floats(0, 1), samples=st.integers(1, 50))
def test_the_noise_of_a_rate_has_closed_forms(rate, share, samples):
    whole = rate * (1 - rate)
    assert noise_of_rate(rate, share * whole).variance(10, 1) == pytest.approx(whole / 10)
    assert noise_of_rate(rate, whole).variance(10, samples) == pytest.approx(whole / 10 / samples)
    assert noise_of_rate(rate, 0.0).variance(10, samples) == pytest.approx(whole / 10)
    assert noise_of_rate(rate, share * whole).variance(10, samples, alike=1.0) == pytest.approx(
        share * whole / 10 / samples
    )


@pytest.mark.parametrize("tasks", [5, 20, 200])
@pytest.mark.parametrize("paired", [True, False])
def test_the_smallest_difference_is_shown_as_often_as_it_is_to_be(tasks, paired):
    """By the noncentral t, of which it is an approximation."""
    difference = smallest_difference(1.0, tasks, paired=paired)
    df = tasks - 1 if paired else 2 * (tasks - 1)
    quantile = stats.t.ppf(0.975, df)
    power = stats.nct.sf(quantile, df, difference) + stats.nct.cdf(-quantile, df, difference)
    assert power == pytest.approx(0.8, abs=0.02)


def test_more_power_and_less_doubt_take_a_larger_difference():
    sizes = [
        smallest_difference(1.0, 50, level, power) for level, power in ((0.9, 0.8), (0.95, 0.8), (0.95, 0.9))
    ]
    assert sizes == sorted(sizes)
    assert smallest_difference(4.0, 50) == pytest.approx(2 * smallest_difference(1.0, 50))
    assert smallest_difference(1.0, 100_000) == pytest.approx(1.959964 + 0.841621, abs=1e-4)
    assert smallest_difference(1.0, 1) == math.inf


def test_a_difference_of_that_size_is_shown_by_four_runs_in_five():
    """Played: two agents on the same 60 tasks, 3 samples of each."""
    rng = np.random.default_rng(2)
    between, within = 0.04, 0.2  # of the differences
    gain = smallest_difference(Noise(0.0, between, within).variance(60, 3), 60)
    shown, tasks = 0, [i // 3 for i in range(180)]
    for _ in range(400):
        own = rng.normal(gain, math.sqrt(between), (60, 1))
        shown += (
            mean_interval((own + rng.normal(0, math.sqrt(within), (60, 3))).ravel().tolist(), tasks).low > 0
        )
    assert shown / 400 == pytest.approx(0.8, abs=0.05)


def test_wrong_arguments_are_refused():
    with pytest.raises(BadArgument, match="1 tasks"):
        noise([1.0, 2.0], ["a", "a"])
    with pytest.raises(BadArgument, match="one task per value"):
        noise([1.0, 2.0], ["a"])
    for value in (math.nan, math.inf, 1e200):
        with pytest.raises(BadArgument, match=r"not between -1e\+150"):
            noise([1.0, value], ["a", "b"])
    with pytest.raises(BadArgument, match=r"rate is 1\.5"):
        noise_of_rate(1.5, 0.0)
    with pytest.raises(BadArgument, match=r"within is 0\.3; .* between 0 and 0\.24"):
        noise_of_rate(0.6, 0.3)
    with pytest.raises(BadArgument, match="0 tasks of 1 samples"):
        Noise(0.5, 0.1, 0.1).variance(0, 1)
    for wrong in ({"power": 0.0}, {"power": 80}, {"level": 95}):
        with pytest.raises(BadArgument, match="accepted: between 0 and 1"):
            smallest_difference(1.0, 10, **wrong)
    with pytest.raises(BadArgument, match="variance is -1"):
        smallest_difference(-1.0, 10)


def test_the_power_of_mcnemars_test_is_the_sum_over_all_outcomes():
    tasks, lost, won = 9, 0.1, 0.6
    total = sum(
        math.comb(tasks, a) * math.comb(tasks - a, b) * lost**a * won**b * (1 - lost - won) ** (tasks - a - b)
        for a in range(tasks + 1)
        for b in range(tasks + 1 - a)
        if b > a and mcnemar(a, b) < 0.05
    )
    assert mcnemar_power(tasks, won - lost, won + lost, 0.05) == pytest.approx(total)
    assert mcnemar_power(5, 1.0, 1.0, 0.05) == 0  # 2 * 0.5^5 is above 0.05
    assert mcnemar_power(6, 1.0, 1.0, 0.05) == pytest.approx(1)
    near, far = (mcnemar_power(tasks, 0.1, 0.4, 0.05) for tasks in (MANY * 10 // 4, MANY * 10 // 4 + 4))
    assert near == pytest.approx(far, abs=0.01)  # where the normal form begins


def test_the_smallest_difference_of_rates_has_the_power_that_it_is_for():
    for tasks, variance in ((10, 0.0), (40, 0.3), (300, 0.1)):
        least = smallest_rate_difference(variance, tasks)
        share = max(least, variance + least**2)
        assert mcnemar_power(tasks, least, share, 0.05) == pytest.approx(0.8, abs=0.01)
    assert smallest_rate_difference(0.1, 5) == math.inf
    assert smallest_rate_difference(0.3, 40, most=0.2) == math.inf
    assert smallest_rate_difference(0.3, 40, power=0.9) > smallest_rate_difference(0.3, 40)


def test_samples_of_a_task_are_worth_as_many_pairs_as_their_variance_says():
    assert count_pairs(0.4, 0.001, 1000) == 399  # of many tasks
    assert count_pairs(0.4, 0.02, 10) < 17  # 20, but for the few tasks
    assert count_pairs(0.0, 0.0, 10) == 10
