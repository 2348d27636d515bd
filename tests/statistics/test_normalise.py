import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.statistics import Interval, exact, mean_interval, normalised, wilson

LEVEL = st.integers(0, 20)


def symmetric(mean, half):
    return Interval(mean, mean - half, mean + half, 100, 100)


def test_random_play_is_0_and_the_solver_1():
    random, solver = exact([0.2]), exact([0.7])
    for score, ratio in ((0.2, 0.0), (0.7, 1.0), (0.45, 0.5), (0.1, -0.2), (0.9, 1.4)):
        found = normalised(exact([score]), random, solver)
        assert found == pytest.approx((ratio, ratio, ratio, 1, 1, True))


@given(score=LEVEL, random=st.integers(0, 6), solver=st.integers(14, 20))
def test_references_that_are_known_scale_the_interval(score, random, solver):
    interval, low, high = wilson(score, 20), random / 20, solver / 20
    found = normalised(interval, exact([low]), exact([high]))
    assert found[:3] == pytest.approx([(value - low) / (high - low) for value in interval[:3]], abs=1e-9)
    assert not found.exact


@pytest.mark.parametrize(("score", "random", "solver"), [(0.5, 0.1, 0.9), (0.1, 0.1, 0.4), (1.2, 0.0, 0.8)])
def test_of_even_intervals_it_is_fiellers(score, random, solver):
    """Solved as a quadratic, with the covariance that random play brings into both differences."""
    halves = (0.05, 0.04, 0.03)
    found = normalised(*map(symmetric, (score, random, solver), halves))
    vs, vr, vv = (half**2 for half in halves)
    top, bottom = score - random, solver - random
    a, b, c = bottom**2 - (vv + vr), -2 * (top * bottom - vr), top**2 - (vs + vr)
    root = math.sqrt(b * b - 4 * a * c)
    assert found[:3] == pytest.approx((top / bottom, (-b - root) / (2 * a), (-b + root) / (2 * a)))


def test_where_random_play_and_the_solver_are_not_shown_to_differ_it_is_undefined():
    assert normalised(wilson(5, 20), wilson(4, 20), wilson(6, 20)) is None
    assert normalised(exact([0.5]), exact([0.3]), exact([0.3])) is None
    assert normalised(exact([0.5]), exact([0.3]), mean_interval([0.9])) is None  # one cluster
    assert normalised(wilson(5, 20), wilson(4, 20), wilson(20, 20)) is not None


def test_a_scale_turned_round_is_one_too():
    found = normalised(exact([3.0]), exact([10.0]), exact([0.0]))  # such as turns, of which fewer are better
    assert found.mean == pytest.approx(0.7)


def test_a_score_that_says_nothing_has_no_bounds():
    found = normalised(mean_interval([0.5]), exact([0.0]), exact([1.0]))
    assert found[:3] == (0.5, -math.inf, math.inf)


def covered(score, random, solver, n, trials):
    rng, hits, told = np.random.default_rng([round(100 * score), n]), 0, 0
    for _ in range(trials):
        rates = (wilson(int(rng.binomial(n, rate)), n) for rate in (score, random, solver))
        found = normalised(*rates)
        if found is not None:
            told += 1
            hits += found.low <= (score - random) / (solver - random) <= found.high
    return hits / told


def test_it_is_covered_near_0_and_1():
    assert covered(0.06, 0.05, 0.95, 40, 200) >= 0.93
    assert covered(0.95, 0.1, 0.97, 40, 200) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 50, 200])
def test_it_is_covered_as_often_as_it_says(n):
    trials = 1000
    for rates in (
        (0.3, 0.05, 0.95),
        (0.02, 0.02, 0.99),
        (0.98, 0.1, 0.98),
        (0.5, 0.3, 0.75),
        (0.05, 0.0, 1.0),
    ):
        assert covered(*rates, n, trials) >= 0.93 - 3 * math.sqrt(0.93 * 0.07 / trials), rates
