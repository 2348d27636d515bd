import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import (
    Interval,
    clustered_rate,
    exact,
    mean_interval,
    rate_interval,
    return_interval,
    wilson,
)

FLOATS = st.floats(-100, 100)


def test_the_classical_interval_by_hand():
    # variance of 1, 2, 3, 4: 5/3; t(0.975, 3) = 3.182446
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * math.sqrt(5 / 3 / 4)
    assert interval == pytest.approx((2.5, 2.5 - half, 2.5 + half, 4, 4, False), abs=1e-5)


def test_the_clustered_interval_by_hand():
    # Deviations from 2.5: a: -1.5 - 0.5 = -2, b: 0.5, c: 1.5; sum of squares 6.5; t(0.975, 2) = 4.302653
    interval = mean_interval([1.0, 2.0, 3.0, 4.0], clusters=["a", "a", "b", "c"])
    half = 4.302653 * math.sqrt(3 / 2 * 6.5 / 16)
    assert interval == pytest.approx((2.5, 2.5 - half, 2.5 + half, 4, 3, False), abs=1e-5)


@given(values=st.lists(FLOATS, min_size=2, max_size=10), copies=st.integers(1, 4))
def test_copies_of_a_sample_add_no_certainty(values, copies):
    many = mean_interval(values * copies, clusters=list(range(len(values))) * copies)
    once = mean_interval(values)
    assert many[:3] == pytest.approx(once[:3], abs=1e-6)
    assert (many.n, many.clusters) == (len(values) * copies, len(values))


@given(values=st.lists(FLOATS, min_size=2, max_size=10))
def test_a_higher_level_is_wider_around_the_same_mean(values):
    narrow, wide = mean_interval(values, level=0.5), mean_interval(values, level=0.99)
    assert wide.low <= narrow.low <= narrow.mean == wide.mean <= narrow.high <= wide.high


def test_clustered_intervals_cover_the_mean_as_often_as_they_say():
    rng = Random(0)
    trials, covered = 2000, 0
    for _ in range(trials):
        tasks = [rng.gauss(0, 1) for _ in range(8)]
        values = [task + rng.gauss(0, 0.5) for task in tasks for _ in range(5)]
        interval = mean_interval(values, clusters=[i // 5 for i in range(40)], level=0.9)
        covered += interval.low <= 0 <= interval.high
    assert covered / trials == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / trials))


def test_one_cluster_says_nothing_about_others():
    assert mean_interval([1.0, 3.0], clusters=["a", "a"]) == Interval(2.0, -math.inf, math.inf, 2, 1)


def test_wilson_by_hand():
    # Newcombe (1998), table I: 81 of 263, and 0 of 20
    assert wilson(81, 263)[1:3] == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.0, 0.1611, 20, 20, False), abs=5e-5)


@given(n=st.integers(1, 500), data=st.data())
def test_wilson_holds_the_rate_and_mirrors_failures(n, data):
    successes = data.draw(st.integers(0, n))
    interval, mirrored = wilson(successes, n), wilson(n - successes, n)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.low < interval.high
    assert mirrored[1:3] == pytest.approx((1 - interval.high, 1 - interval.low))


COUNTS = st.integers(1, 30).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size)))


def test_the_clustered_rate_by_hand():
    # Successes 4, 4, 3, 0 of 4 each: rate 11/16; deviations 1.25, 1.25, 0.25, -2.75: squares sum to 10.75,
    # fourth powers to 62.078; deff = 4/3 * 10.75/16 / (55/256) = 4.1697. It is held by 2 clusters with the
    # rarer outcome, so beyond the 4 of clusters all of one outcome, and stays: at most 4 * 4/3.
    interval = clustered_rate([4, 4, 3, 0], [4, 4, 4, 4])
    kurtosis = 4 * 62.078125 / 10.75**2
    assert 2 * 4 / (kurtosis - 1) > 3  # so that there are 3 degrees of freedom: t = 3.182446
    n, z2 = 16 / (4 / 3 * 10.75 / 16 / (55 / 256)), 3.182446**2
    centre = (11 / 16 + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (55 / 256 + z2 / (4 * n)) / n) / (1 + z2 / n)
    assert interval == pytest.approx((11 / 16, centre - half, centre + half, 16, 4, False), abs=1e-6)


def test_where_all_clusters_succeed_each_counts_once():
    z2 = 2.262157**2  # t(0.975, 9)
    assert clustered_rate([16] * 10, [16] * 10)[:3] == pytest.approx((1.0, 1 / (1 + z2 / 10), 1.0), abs=1e-6)


def test_one_cluster_of_many_trials_says_nothing_about_others():
    assert clustered_rate([3], [4]) == Interval(0.75, 0.0, 1.0, 4, 1)


@given(counts=st.lists(COUNTS, min_size=2, max_size=12))
def test_the_clustered_rate_holds_the_rate_and_mirrors_failures(counts):
    won, sizes = zip(*counts, strict=True)
    interval = clustered_rate(won, sizes)
    mirrored = clustered_rate([size - own for own, size in counts], sizes)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.low < interval.high
    assert mirrored[1:3] == pytest.approx((1 - interval.high, 1 - interval.low), abs=1e-9)


@given(counts=st.lists(COUNTS, min_size=2, max_size=12))
def test_clusters_are_never_taken_for_more_than_their_trials(counts):
    won, sizes = zip(*counts, strict=True)
    clustered, independent = clustered_rate(won, sizes), wilson(sum(won), sum(sizes))
    assert clustered.low <= independent.low + 1e-12
    assert clustered.high >= independent.high - 1e-12


@given(counts=st.lists(COUNTS, min_size=1, max_size=12), level=st.floats(0.1, 0.99))
def test_the_rate_of_values_is_that_of_their_counts(counts, level):
    values = [float(i < own) for own, size in counts for i in range(size)]
    names = [str(cluster) for cluster, (_, size) in enumerate(counts) for _ in range(size)]
    won, sizes = zip(*counts, strict=True)
    assert rate_interval(values, names, level) == clustered_rate(won, sizes, level)
    assert rate_interval(values, level=level) == wilson(sum(won), sum(sizes), level)


def test_a_rate_is_of_zeros_and_ones():
    with pytest.raises(BadArgument, match=r"a value is 0\.5"):
        rate_interval([1.0, 0.5])
    with pytest.raises(BadArgument, match="at least one"):
        rate_interval([])
    with pytest.raises(BadArgument, match="3 successes of 2"):
        clustered_rate([1, 3], [2, 2])
    for successes, sizes in [([], []), ([1], [1, 1])]:
        with pytest.raises(BadArgument, match="one each per cluster"):
            clustered_rate(successes, sizes)


def samples(rng, rate, clusters, size, correlation, trials):
    """Successes of clusters whose own rates are spread around the true one by a beta distribution."""
    own = np.full((trials, clusters), rate)
    if correlation:
        spread = (1 - correlation) / correlation
        own = rng.beta(rate * spread, (1 - rate) * spread, own.shape)
    return rng.binomial(size, own).tolist()


def covered(rate, clusters, size, correlation, trials):
    rng = np.random.default_rng([round(100 * rate), clusters, size, round(10 * correlation)])
    found = samples(rng, rate, clusters, size, correlation, trials)
    intervals = [clustered_rate(successes, [size] * clusters) for successes in found]
    return sum(each.low <= rate <= each.high for each in intervals) / trials


def test_clustered_rates_are_covered_where_the_t_interval_fails():
    assert covered(0.95, clusters=10, size=16, correlation=0.6, trials=600) >= 0.93
    assert covered(0.02, clusters=10, size=4, correlation=0.2, trials=600) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [5, 10, 50, 200])
@pytest.mark.parametrize("size", [4, 16, 64])
def test_clustered_rates_are_covered_as_often_as_they_say(clusters, size):
    trials = 1500
    margin = 3 * math.sqrt(0.93 * 0.07 / trials)  # of the simulation
    for correlation in (0.0, 0.2, 0.6):
        for rate in (0.02, 0.05, 0.5):  # those above a half mirror them
            share = covered(rate, clusters, size, correlation, trials)
            assert share >= 0.93 - margin, (rate, correlation, share)


def test_wilson_covers_independent_trials_but_for_what_its_page_says():
    """Exactly, by summing the probability of every count."""
    low = {}
    for n in (5, 10, 50, 200):
        for rate in (0.02, 0.05, 0.5):
            intervals = [wilson(k, n) for k in range(n + 1)]
            share = math.fsum(
                math.comb(n, k) * rate**k * (1 - rate) ** (n - k)
                for k, each in enumerate(intervals)
                if each.low <= rate <= each.high
            )
            if share < 0.93:
                low[n, rate] = round(share, 3)
    assert low == {(5, 0.02): 0.904, (50, 0.02): 0.922, (10, 0.05): 0.914}


def test_exact_has_no_width_and_says_that_nothing_was_sampled():
    assert exact([0.0, 1.0, 1.0, 1.0]) == Interval(0.75, 0.75, 0.75, 4, 4, exact=True)
    assert not mean_interval([1.0, 1.0, 1.0]).exact


@pytest.mark.parametrize("compute", [mean_interval, exact])
def test_what_has_no_mean_is_refused(compute):
    with pytest.raises(BadArgument, match="at least one"):
        compute([])
    with pytest.raises(BadArgument, match="without a verdict"):
        compute([1.0, math.nan])


def test_values_too_large_to_be_squared_have_no_bounds():
    assert mean_interval([1e200, -1e200, 0.0])[:3] == (0.0, -math.inf, math.inf)
    with pytest.raises(BadArgument, match="sum of the values overflows"):
        mean_interval([1.7e308] * 3)


def test_wrong_arguments_are_refused():
    with pytest.raises(BadArgument, match="2 values and 1 clusters"):
        mean_interval([1.0, 2.0], clusters=["a"])
    for level in (0, 1, 95):
        with pytest.raises(BadArgument, match="level"):
            mean_interval([1.0, 2.0], level=level)
        with pytest.raises(BadArgument, match="level"):
            wilson(1, 2, level=level)
    for successes, n in [(0, 0), (3, 2), (-1, 2)]:
        with pytest.raises(BadArgument, match="successes"):
            wilson(successes, n)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.25, 0.75, "0.2 to 0.8"),
        (-math.inf, 0.75, "none to 0.8"),
        (0.25, math.inf, "0.2 to none"),
        (-math.inf, math.inf, "no bounds"),
    ],
)
def test_an_open_bound_is_written_in_words(low, high, text):
    assert Interval(0.5, low, high, 3, 3).write_bounds("{:.1f}".format) == text


def test_returns_of_0_and_1_are_a_rate_and_equal_ones_have_no_bounds():
    tasks = [1, 1, 2, 2, 3, 3]
    for same, solved in ((1.0, True), (0.0, False)):
        assert return_interval([same] * 6)[1:3] == (-math.inf, math.inf)  # what others may be is not known
        assert return_interval([same] * 6, successes=[solved] * 6) == wilson(6 * solved, 6)
        assert return_interval([same] * 6, successes=[None] * 6)[1:3] == (-math.inf, math.inf)
    assert return_interval([1.0, 0, 0, 0, 0, 0], tasks) == rate_interval([1.0, 0, 0, 0, 0, 0], tasks)
    assert return_interval([0.5, 0.0, 1.0]) == mean_interval([0.5, 0.0, 1.0])
    assert return_interval([-1.0] * 6)[:3] == (-1.0, -math.inf, math.inf)
    for values in ([], [math.nan]):
        with pytest.raises(BadArgument):
            return_interval(values)


def test_returns_that_are_rarely_high_are_covered():
    rng = Random(0)
    found = [return_interval([10.0 * (rng.random() < 0.02) for _ in range(20)]) for _ in range(400)]
    assert sum(each.low <= 0.2 <= each.high for each in found) > 380


def test_rounding_is_no_spread():
    halves = [i // 2 for i in range(40)]
    for values, clusters in (([0.1 + 0.2, 0.3] * 20, None), ([0.5, 0.0] * 20, halves)):
        assert return_interval(values, clusters)[1:3] == (-math.inf, math.inf)
        around = mean_interval(values, clusters)
        assert around.low == around.high
    small = mean_interval([1e6, 1e6 + 1])
    assert small.low < 1e6 < small.high
