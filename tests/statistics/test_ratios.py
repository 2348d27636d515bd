"""Fieller's interval of a ratio."""

import math

import numpy as np
import pytest

from gem.errors import BadArgument
from gem.statistics import mean_interval, ratio_interval


def test_its_bounds_are_where_the_mean_of_the_rest_may_be_0():
    amounts, counts = [10, 20, 30, 40, 25, 35, 45, 15], [1, 1, 0, 1, 1, 0, 1, 1]
    tasks = [0, 0, 1, 1, 2, 2, 3, 3]
    for clusters in (None, tasks):
        found = ratio_interval(amounts, counts, clusters)
        assert found.mean == sum(amounts) / sum(counts)
        assert found.low < found.mean < found.high
        low, high = (
            mean_interval([a - r * c for a, c in zip(amounts, counts, strict=True)], clusters)
            for r in (found.low, found.high)
        )
        assert low.low == pytest.approx(0, abs=1e-9)
        assert high.high == pytest.approx(0, abs=1e-9)
        assert (found.n, found.clusters) == (8, 8 if clusters is None else 4)


def test_few_successes_leave_it_open_above():
    found = ratio_interval([90, 110, 100, 95, 105, 100, 98, 102, 100, 100], [1] + [0] * 9)
    assert (found.mean, found.high) == (1000, math.inf)
    assert 100 < found.low < 1000
    wild = ratio_interval([0, 0, 0, 1000], [0, 0, 0, 1])
    assert (wild.low, wild.high) == (0, math.inf)


def test_without_failures_it_is_that_of_the_mean_and_one_value_says_nothing():
    amounts = [90.0, 110.0, 100.0]
    assert ratio_interval(amounts, [1] * 3)[:3] == pytest.approx(mean_interval(amounts)[:3])
    for few in (
        ([5.0] * 4, [1] * 4, None),
        ([0.1 + 0.2, 0.3] * 4, [1] * 8, None),
        ([5.0, 7.0] * 4, [1] * 8, [0, 0, 1, 1, 2, 2, 3, 3]),
        (amounts, [1, 0, 1], ["task"] * 3),
    ):
        assert ratio_interval(*few)[1:3] == (-math.inf, math.inf)


def test_it_covers_the_ratio_of_rare_successes():
    rng = np.random.default_rng(0)
    for n, rate, least in ((10, 0.1, 0.98), (20, 0.3, 0.93), (50, 0.05, 0.98), (100, 0.05, 0.88)):
        covers = tries = 0
        while tries < 200:
            counts = (rng.random(n) < rate).astype(int).tolist()
            if any(counts):
                found = ratio_interval((100 * rng.lognormal(0, 0.5, n)).tolist(), counts)
                covers += found.low <= 100 * math.exp(0.125) / rate <= found.high
                tries += 1
        assert covers / tries >= least


@pytest.mark.parametrize(
    ("amounts", "counts"), [([1.0], []), ([1.0], [0]), ([-1.0], [1]), ([math.nan], [1]), ([], [])]
)
def test_wrong_values_are_refused(amounts, counts):
    with pytest.raises(BadArgument):
        ratio_interval(amounts, counts)
