import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import mann_kendall, moving_average

VALUES = st.lists(st.integers(-5, 5).map(float), min_size=3, max_size=30)


def test_by_hand():
    # 1, 2, 3, 4: all 6 pairs rise; variance 4 * 3 * 13 / 18; z = 2.0381
    assert mann_kendall([1, 2, 3, 4]) == pytest.approx(0.02077, abs=1e-5)
    assert mann_kendall([2.0, 2.0, 2.0]) == 0.5


def test_a_moving_average_of_a_rise_starts_and_ends_where_the_rise_does():
    line = [float(at) for at in range(12)]
    assert moving_average(line, 6) == pytest.approx(line)
    assert moving_average([1.0, math.nan, 3.0, 8.0], 2) == pytest.approx([1.0, 2.0, 5.5, 8.0])
    assert math.isnan(moving_average([math.nan], 4)[0])


@given(values=VALUES)
def test_as_scipy_has_it(values):
    stats = pytest.importorskip("scipy.stats")
    assume(len(set(values)) > 1)
    found = stats.kendalltau(range(len(values)), values, method="asymptotic", alternative="greater")
    assert mann_kendall(values) == pytest.approx(found.pvalue, abs=1e-9)


@given(values=VALUES)
def test_a_falling_trend_is_a_rising_one_backwards(values):
    assert mann_kendall(values[::-1]) == pytest.approx(1 - mann_kendall(values))


def test_what_has_no_trend_is_refused():
    for values in ([1.0, 2.0], [1.0, math.nan, 2.0]):
        with pytest.raises(BadArgument, match="3 or more"):
            mann_kendall(values)
