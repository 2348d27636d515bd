import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import Interval, exact, mean_interval, wilson

FLOATS = st.floats(-100, 100)


def test_the_classical_interval_by_hand():
    # variance of 1, 2, 3, 4: 5/3; t(0.975, 3) = 3.182446
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * math.sqrt(5 / 3 / 4)
    assert interval == pytest.approx((2.5, 2.5 - half, 2.5 + half, 4, 4), abs=1e-5)


def test_the_clustered_interval_by_hand():
    # Deviations from 2.5: a: -1.5 - 0.5 = -2, b: 0.5, c: 1.5; sum of squares 6.5; t(0.975, 2) = 4.302653
    interval = mean_interval([1.0, 2.0, 3.0, 4.0], clusters=["a", "a", "b", "c"])
    half = 4.302653 * math.sqrt(3 / 2 * 6.5 / 16)
    assert interval == pytest.approx((2.5, 2.5 - half, 2.5 + half, 4, 3), abs=1e-5)


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
    assert wilson(0, 20) == pytest.approx((0.0, 0.0, 0.1611, 20, 20), abs=5e-5)


@given(n=st.integers(1, 500), data=st.data())
def test_wilson_holds_the_rate_and_mirrors_failures(n, data):
    successes = data.draw(st.integers(0, n))
    interval, mirrored = wilson(successes, n), wilson(n - successes, n)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.low < interval.high
    assert mirrored[1:3] == pytest.approx((1 - interval.high, 1 - interval.low))


def test_exact_has_no_width():
    assert exact([0.0, 1.0, 1.0, 1.0]) == Interval(0.75, 0.75, 0.75, 4, 4)


@pytest.mark.parametrize("compute", [mean_interval, exact])
def test_what_has_no_mean_is_refused(compute):
    with pytest.raises(BadArgument, match="at least one"):
        compute([])
    with pytest.raises(BadArgument, match="without a verdict"):
        compute([1.0, math.nan])


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
