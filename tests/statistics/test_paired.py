import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import (
    combined,
    holm,
    mcnemar,
    mean_interval,
    paired_bootstrap,
    paired_difference,
    paired_p,
    score_difference,
    sign_flip_p,
    sign_flips,
)
from gem.statistics.student_t import quantile

stats = pytest.importorskip("scipy.stats")
NUMBERS = st.floats(-100, 100)


def test_mcnemar_is_scipys_binomial_test():
    for lost, won in itertools.product(range(12), repeat=2):
        scipys = stats.binomtest(won, lost + won, 0.5).pvalue if lost + won else 1.0
        assert mcnemar(lost, won) == pytest.approx(scipys, rel=1e-9)


@pytest.mark.parametrize(("lost", "won"), [(900, 1000), (10_000, 10_400), (3, 400), (0, 2000)])
def test_mcnemar_of_many_pairs_is_scipys(lost, won):
    scipys = stats.binomtest(won, lost + won, 0.5).pvalue
    assert mcnemar(lost, won) == pytest.approx(scipys, rel=1e-8)


@given(differences=st.lists(st.integers(-4, 4), max_size=9))
def test_sign_flips_are_counted_over_all_signs(differences):
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    share = sum(each >= observed for each in sums) / len(sums)
    assert sign_flips(differences) == pytest.approx(share, abs=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_signs_of_numbers_are_counted_as_those_of_samples_are(differences):
    p = sign_flip_p([0.0] * len(differences), [each / 10 for each in differences])
    assert p == pytest.approx(sign_flips(differences), abs=1e-9)


def test_more_pairs_than_can_be_counted_are_refused():
    with pytest.raises(BadArgument, match="at most 20"):
        sign_flip_p([0.0] * 21, [1.0] * 21)


def test_of_one_sample_per_task_sign_flips_are_mcnemars_test():
    assert sign_flips([1] * 12 + [-1] * 3 + [0] * 40) == mcnemar(3, 12)
    assert sign_flips([]) == 1.0


def test_a_lone_p_value_is_never_zero_and_never_noise():
    assert sign_flips([8] * 1000) == 1e-12
    assert sign_flips([2] * 20) == pytest.approx(2 * 0.5**20, rel=1e-6)


def tangos(lost, won, n, difference):
    """The score statistic, its likelihood made greatest by search."""

    def log_likelihood(down):  # of lost pairs; won ones are as many and the difference
        up, same = down + difference, 1 - 2 * down - difference
        return sum(
            count * math.log(p) for count, p in ((lost, down), (won, up), (n - lost - won, same)) if count
        )

    low, high = max(0.0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12
    for _ in range(200):  # it is concave
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (one, high) if log_likelihood(one) < log_likelihood(other) else (low, other)
    down = (low + high) / 2
    variance = n * (2 * down + difference - difference**2)
    return (won - lost - n * difference) / math.sqrt(variance)


@pytest.mark.parametrize(
    ("lost", "won", "n"), [(3, 9, 40), (1, 0, 44), (12, 2, 20), (5, 5, 11), (30, 40, 200)]
)
def test_bounds_of_a_difference_are_where_the_score_statistic_is_the_quantile(lost, won, n):
    tasks = [(1, 0)] * lost + [(0, 1)] * won + [(0, 0)] * (n - lost - won)
    interval = score_difference(*zip(*tasks, strict=True), [1] * n)
    assert interval.mean == pytest.approx((won - lost) / n)
    assert tangos(lost, won, n, interval.low) == pytest.approx(1.959964, abs=1e-3)
    assert tangos(lost, won, n, interval.high) == pytest.approx(-1.959964, abs=1e-3)


def test_where_no_pair_differs_the_bounds_have_a_closed_form():
    z2 = 1.959964**2
    interval = score_difference([0] * 30, [0] * 30, [1] * 30)
    assert interval[:3] == pytest.approx((0.0, -z2 / (30 + z2), z2 / (30 + z2)), abs=1e-6)


def test_samples_of_a_task_count_by_the_design_effect():
    lost, won, sizes = [0, 1, 0, 0, 0], [3, 1, 0, 1, 0], [4] * 5
    deviations = [b - a - 4 * 0.2 for a, b in zip(lost, won, strict=True)]
    squares = sum(e * e for e in deviations)
    deff = 5 / 4 * squares / 20 / (6 / 20 - 0.2**2)
    deff += (4 - deff) / (3 + 1) ** 2  # 3 tasks hold pairs that differ; a task is worth 4 pairs at most
    kurtosis = 5 * sum(e**4 for e in deviations) / squares**2
    t = quantile(0.975, min(4.0, max(2.0, 10 / (kurtosis - 1))))
    interval = score_difference(lost, won, sizes)
    assert 1 < deff < 4
    assert tangos(1 / deff, 5 / deff, 20 / deff, interval.low) == pytest.approx(t, abs=1e-3)
    assert tangos(1 / deff, 5 / deff, 20 / deff, interval.high) == pytest.approx(-t, abs=1e-3)


COUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)).map(
    lambda three: (three[0], three[1], sum(three))
)


@given(tasks=st.lists(COUNTS, min_size=1, max_size=10))
def test_the_difference_is_held_and_mirrored_when_the_agents_are_exchanged(tasks):
    lost, won, sizes = zip(*tasks, strict=True)
    interval, mirrored = score_difference(lost, won, sizes), score_difference(won, lost, sizes)
    assert -1 <= interval.low <= interval.mean <= interval.high <= 1
    assert mirrored[:3] == pytest.approx((-interval.mean, -interval.high, -interval.low), abs=1e-9)


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=20))
def test_the_difference_of_means_is_scipys_paired_t(pairs):
    first, second = zip(*pairs, strict=True)
    interval = paired_difference(first, second)
    differences = np.subtract(second, first)
    if np.ptp(differences) < 1e-6:
        return
    scipys = stats.ttest_1samp(differences, 0.0)
    low, high = scipys.confidence_interval(0.95)
    assert interval[:3] == pytest.approx((differences.mean(), low, high), rel=1e-6, abs=1e-6)
    assert paired_p(interval) == pytest.approx(scipys.pvalue, rel=1e-5, abs=1e-9)


def test_differences_without_spread_have_a_p_value_all_the_same():
    assert paired_p(paired_difference([1.0, 2.0], [1.0, 2.0])) == 1.0
    assert paired_p(paired_difference([0.3] * 3, [0.1 + 0.2] * 3)) == 1.0  # rounding
    assert paired_p(paired_difference([1.0, 2.0], [2.0, 3.0])) == 0.5  # two equal signs are chance
    assert paired_p(paired_difference([0.2, 0.1], [0.3, 0.2])) == 0.5  # which differ by rounding
    assert paired_p(paired_difference([1.0] * 6, [2.0] * 6)) == 2**-5
    assert paired_p(paired_difference([1.0], [2.0])) == 1.0


def test_samples_of_a_task_are_one_cluster():
    first, second, tasks = [0.0, 0.0, 1.0, 1.0], [1.0, 3.0, 1.0, 3.0], ["a", "a", "b", "b"]
    assert paired_difference(first, second, tasks) == mean_interval([1.0, 3.0, 0.0, 2.0], tasks)
    assert paired_bootstrap(first, second, tasks).clusters == 2


def test_the_bootstrap_is_repeatable_and_near_students_t_where_differences_are_normal():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 400)).tolist()
    one = paired_bootstrap(first, second)
    assert one == paired_bootstrap(first, second)
    assert one != paired_bootstrap(first, second, seed=1)
    classical = paired_difference(first, second)
    width = classical.high - classical.low
    assert one.mean == pytest.approx(classical.mean)
    assert one[1:3] == pytest.approx(classical[1:3], abs=0.08 * width)


def test_the_bootstrap_leans_where_differences_do():
    rng = np.random.default_rng(0)
    interval = paired_bootstrap([0.0] * 60, rng.lognormal(0, 1, 60).tolist())
    assert interval.high - interval.mean > 1.2 * (interval.mean - interval.low)


def test_the_bootstrap_draws_no_more_at_a_time_than_it_may(monkeypatch):
    values = np.random.default_rng(0).normal(size=50).tolist()
    whole = paired_bootstrap([0.0] * 50, values)
    monkeypatch.setattr("gem.statistics.paired.AT_ONCE", 1000)
    assert paired_bootstrap([0.0] * 50, values) == whole


@pytest.mark.parametrize("differences", [[1.0], [2.0, 2.0, 2.0], [0.1] * 30, [1e200, -1e200, 0.0]])
def test_what_does_not_vary_or_beyond_all_numbers_gives_a_bootstrap_nothing(differences):
    interval = paired_bootstrap([0.0] * len(differences), differences)
    assert interval[1:3] == (-math.inf, math.inf)


@given(ps=st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_the_definition(ps):
    ordered = sorted(ps)
    for p, corrected in zip(ps, holm(ps), strict=True):
        steps = [(len(ps) - i) * each for i, each in enumerate(ordered) if each <= p]
        assert corrected == pytest.approx(min(1.0, max(steps)))


def test_wrong_arguments_are_refused():
    with pytest.raises(BadArgument, match="-1 and 2 pairs"):
        mcnemar(-1, 2)
    with pytest.raises(BadArgument, match="2 pairs lost and 1 won of 2"):
        score_difference([2], [1], [2])
    with pytest.raises(BadArgument, match="one of each per task"):
        score_difference([1], [1], [2, 2])
    with pytest.raises(BadArgument, match="one of each per task"):
        score_difference([], [], [])
    with pytest.raises(BadArgument, match="level is 95"):
        score_difference([0], [1], [1], level=95)
    for compute in (paired_difference, paired_bootstrap):
        with pytest.raises(BadArgument, match="accepted: equal numbers"):
            compute([1.0], [1.0, 2.0])
        with pytest.raises(BadArgument, match="at least one"):
            compute([], [])
        with pytest.raises(BadArgument, match="without a verdict"):
            compute([1.0, 2.0], [math.nan, 1.0])
    with pytest.raises(BadArgument, match="resamples is 10; accepted: 40"):
        paired_bootstrap([1.0, 2.0], [1.0, 1.0], resamples=10)


# -- how often they cover


def played(rng, rate, gain, tasks, samples, correlation):
    """Pairs lost and won by task; the second agent's rate of a task is `gain` of the way nearer to 0 or 1."""
    own = np.full(tasks, rate)
    if correlation:
        spread = (1 - correlation) / correlation
        own = rng.beta(rate * spread, (1 - rate) * spread, tasks)
    better = own + gain * (1 - own) if gain >= 0 else own * (1 + gain)
    first = rng.random((tasks, samples)) < own[:, None]
    second = rng.random((tasks, samples)) < better[:, None]
    return (first & ~second).sum(1).tolist(), (second & ~first).sum(1).tolist()


def covered(rate, gain, tasks, samples, correlation, trials):
    rng = np.random.default_rng([round(100 * rate), round(100 * abs(gain)), tasks, samples])
    true = gain * (1 - rate) if gain >= 0 else gain * rate
    hits = 0
    for _ in range(trials):
        interval = score_difference(*played(rng, rate, gain, tasks, samples, correlation), [samples] * tasks)
        hits += interval.low <= true <= interval.high
    return hits / trials


def test_differences_are_covered_near_0_and_1():
    assert covered(0.05, 0.05, tasks=20, samples=4, correlation=0.3, trials=150) >= 0.93
    assert covered(0.95, -0.05, tasks=20, samples=1, correlation=0.3, trials=150) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 10, 50, 200])
@pytest.mark.parametrize("samples", [1, 4, 16])
def test_differences_are_covered_as_often_as_they_say(tasks, samples):
    trials = 600
    margin = 3 * math.sqrt(0.93 * 0.07 / trials)  # of the simulation
    for correlation in (0.0, 0.3, 0.6):
        for rate, gain in ((0.02, 0.0), (0.05, 0.05), (0.5, 0.0), (0.5, 0.4), (0.95, -0.05)):
            share = covered(rate, gain, tasks, samples, correlation, trials)
            assert share >= 0.93 - margin, (rate, gain, correlation, share)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [20, 50, 200])
def test_the_bootstrap_covers_skewed_returns_at_least_as_often_as_students_t(tasks):
    rng = np.random.default_rng(tasks)
    true, trials, drawn, classical = math.exp(0.5), 500, 0, 0
    for _ in range(trials):
        values, names = [], []
        for task, level in enumerate(rng.lognormal(0, 1, tasks).tolist()):
            values += (level + rng.normal(size=3)).tolist()
            names += [task] * 3
        zeros = [0.0] * len(values)
        one, other = paired_bootstrap(zeros, values, names, resamples=999), mean_interval(values, names)
        drawn += one.low <= true <= one.high
        classical += other.low <= true <= other.high
    assert drawn >= classical
    assert drawn / trials >= 0.90  # heavy tails: the true mean lies in what few samples hold


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_means_over_environments_are_covered(rate):
    rng, trials, hits = np.random.default_rng(1), 800, 0
    sizes, gains = (10, 20, 40), (0.0, 0.1, 0.3)
    true = sum(gain * (1 - rate) for gain in gains) / 3
    for _ in range(trials):
        found = [
            score_difference(*played(rng, rate, gain, tasks, 2, 0.3), [2] * tasks)
            for tasks, gain in zip(sizes, gains, strict=True)
        ]
        interval = combined(found)
        hits += interval.low <= true <= interval.high
    assert hits / trials >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / trials)


@pytest.mark.slow
def test_p_values_below_a_twentieth_come_once_in_twenty_at_most():
    rng, trials = np.random.default_rng(2), 2000
    for samples in (1, 4):
        found = [
            sign_flips(np.subtract(*played(rng, 0.4, 0.0, 30, samples, 0.5)).tolist()) for _ in range(trials)
        ]
        assert np.mean(np.array(found) <= 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
