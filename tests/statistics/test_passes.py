import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import Interval, clustered_rate, pass_at_k, pass_hat_k, wilson
from gem.statistics.student_t import quantile

TASK = st.lists(st.booleans(), min_size=3, max_size=6)


def outcomes(successes, size):
    return [True] * successes + [False] * (size - successes)


@given(tasks=st.lists(TASK, min_size=1, max_size=5), k=st.integers(1, 3))
def test_they_are_the_share_of_all_choices_of_k_samples(tasks, k):
    some = [[any(choice) for choice in itertools.combinations(own, k)] for own in tasks]
    every = [[all(choice) for choice in itertools.combinations(own, k)] for own in tasks]
    assert pass_at_k(tasks, k).mean == pytest.approx(np.mean([np.mean(own) for own in some]))
    assert pass_hat_k(tasks, k).mean == pytest.approx(np.mean([np.mean(own) for own in every]))


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
@pytest.mark.parametrize(("n", "k"), [(4, 1), (4, 3), (6, 2), (5, 5)])
def test_they_are_unbiased(rate, n, k):
    def expected(estimate):
        return math.fsum(
            math.comb(n, c) * rate**c * (1 - rate) ** (n - c) * estimate([outcomes(c, n)], k).mean
            for c in range(n + 1)
        )

    assert expected(pass_at_k) == pytest.approx(1 - (1 - rate) ** k)
    assert expected(pass_hat_k) == pytest.approx(rate**k)


def test_a_case_worked_out_by_hand():
    # 1 - C(2, 2) / C(4, 2) = 5/6; 1 - C(4, 2) / C(4, 2) = 0; C(2, 2) / C(4, 2) = 1/6.
    tasks = [outcomes(2, 4), outcomes(0, 4)]
    assert pass_at_k(tasks, 2).mean == pytest.approx(5 / 12)
    assert pass_hat_k(tasks, 2).mean == pytest.approx(1 / 12)
    assert pass_at_k(tasks, 2)[3:] == (8, 2, False)


def test_the_interval_is_the_formula_worked_out():
    # k = 2, so that tasks of 2, 4 and 6 samples are worth 3 / (2/2 + 2/4 + 2/6) = 18/11 trials each.
    estimates = (1.0, 1 - 1 / 6, 1 - 3 / 15)  # 1 of 2; 2 of 4: 1 - C(2, 2) / C(4, 2); 3 of 6
    rate, worth, n = sum(estimates) / 3, 18 / 11, 54 / 11
    deviations = [worth * (each - rate) for each in estimates]
    squares = sum(e * e for e in deviations)
    assert 3 / 2 * squares / n / (rate * (1 - rate)) < 1  # they differ less than independent trials would
    deff = 1 + (worth - 1) / 9  # 3 tasks hold successes, 2 failures: (2 + 1)^2
    kurtosis = 3 * sum(e**4 for e in deviations) / squares**2
    t = quantile(0.975, min(2.0, max(2.0, 6 / (kurtosis - 1))))
    m = n / deff
    centre = (rate + t * t / (2 * m)) / (1 + t * t / m)
    half = t * math.sqrt((rate * (1 - rate) + t * t / (4 * m)) / m) / (1 + t * t / m)
    found = pass_at_k([outcomes(1, 2), outcomes(2, 4), outcomes(3, 6)], 2)
    assert found == pytest.approx((rate, centre - half, centre + half, 12, 3, False))


@given(counts=st.lists(st.integers(0, 4), min_size=2, max_size=12))
def test_of_one_sample_they_are_the_clustered_rate(counts):
    tasks = [outcomes(own, 4) for own in counts]
    of_trials = clustered_rate(counts, [4] * len(counts))
    for compute in (pass_at_k, pass_hat_k):
        assert compute(tasks, 1) == pytest.approx(of_trials, abs=1e-9)


@given(tasks=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=9))
def test_where_there_are_just_k_samples_each_task_is_one_trial(tasks):
    low, high = wilson(sum(any(own) for own in tasks), len(tasks))[1:3]
    assert pass_at_k(tasks, 3)[1:3] == (low, high)


@given(tasks=st.lists(TASK, min_size=1, max_size=8), k=st.integers(1, 3))
def test_the_interval_holds_the_rate_and_mirrors_failures(tasks, k):
    interval = pass_at_k(tasks, k)
    mirrored = pass_hat_k([[not won for won in own] for own in tasks], k)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.low < interval.high
    assert mirrored[:3] == pytest.approx((1 - interval[0], 1 - interval[2], 1 - interval[1]), abs=1e-9)


def test_more_tries_help_at_k_and_hurt_hat_k():
    tasks = [outcomes(own, 8) for own in (0, 1, 4, 7, 8)]
    at, hat = ([compute(tasks, k).mean for k in range(1, 9)] for compute in (pass_at_k, pass_hat_k))
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert at[0] == pytest.approx(hat[0])


def test_one_task_says_nothing_about_others():
    assert pass_at_k([outcomes(1, 4)], 2) == Interval(pytest.approx(0.5), 0.0, 1.0, 4, 1)


def test_many_samples_are_counted_exactly():
    assert pass_at_k([outcomes(1, 100_000)] * 2, 50_000).mean == pytest.approx(0.5)


def test_tasks_with_too_few_samples_are_told_not_dropped():
    with pytest.raises(BadArgument, match=r"2 of 3 tasks have fewer than k = 4 .*\(the fewest: 0\);.* leave"):
        pass_at_k([outcomes(1, 4), outcomes(1, 3), []], 4)


def test_wrong_arguments_are_refused():
    for compute in (pass_at_k, pass_hat_k):
        with pytest.raises(BadArgument, match="no tasks"):
            compute([], 1)
        with pytest.raises(BadArgument, match="k is 0"):
            compute([[True]], 0)
        with pytest.raises(BadArgument, match="level is 95"):
            compute([[True]], 1, level=95)
        for no_outcome in (None, 0.5, math.nan, 2, "True"):
            with pytest.raises(BadArgument, match="an outcome is"):
                compute([[True, no_outcome]], 1)


def true_pass(rate, correlation, k):
    """1 - E (1 - p)^k of tasks whose own rates p are spread by a beta distribution."""
    if not correlation:
        return 1 - (1 - rate) ** k
    spread = (1 - correlation) / correlation
    return 1 - math.prod(((1 - rate) * spread + j) / (spread + j) for j in range(k))


def covered(rate, tasks, n, k, correlation, trials):
    """How often the intervals of pass@k hold it, and those of pass^k the mirrored one."""
    rng = np.random.default_rng([round(100 * rate), tasks, n, k, round(10 * correlation)])
    own = np.full((trials, tasks), rate)
    if correlation:
        spread = (1 - correlation) / correlation
        own = rng.beta(rate * spread, (1 - rate) * spread, own.shape)
    true = true_pass(rate, correlation, k)
    found = [[outcomes(c, n) for c in counts] for counts in rng.binomial(n, own).tolist()]
    at = [pass_at_k(each, k) for each in found]
    hat = [pass_hat_k([[not won for won in own] for own in each], k) for each in found]
    assert sum(i.low <= true <= i.high for i in at) == pytest.approx(
        sum(i.low <= 1 - true <= i.high for i in hat), abs=1
    )
    return sum(each.low <= true <= each.high for each in at) / trials


def test_they_are_covered_near_0_and_1():
    assert covered(0.02, tasks=20, n=8, k=4, correlation=0.3, trials=300) >= 0.93
    assert covered(0.9, tasks=20, n=8, k=4, correlation=0.3, trials=300) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 10, 50, 200])
@pytest.mark.parametrize(("n", "k"), [(4, 2), (8, 4), (16, 2), (16, 8)])
def test_they_are_covered_as_often_as_they_say(tasks, n, k):
    trials = 1000
    margin = 3 * math.sqrt(0.93 * 0.07 / trials)  # of the simulation
    for correlation in (0.0, 0.3, 0.7):
        for rate in (0.02, 0.05, 0.5, 0.95):
            share = covered(rate, tasks, n, k, correlation, trials)
            assert share >= 0.93 - margin, (rate, correlation, share)
