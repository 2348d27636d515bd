import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics import fisher_exact

stats = pytest.importorskip("scipy.stats")


def scipys(count, n, other, m):
    return stats.fisher_exact([[count, n - count], [other, m - other]]).pvalue


def test_every_small_table_is_scipys():
    for n, m in itertools.product(range(1, 8), repeat=2):
        for count, other in itertools.product(range(n + 1), range(m + 1)):
            assert fisher_exact(count, n, other, m) == pytest.approx(scipys(count, n, other, m), abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0, 1), st.floats(0, 1))
def test_large_tables_are_scipys(n, m, rate, other_rate):
    count, other = round(n * rate), round(m * other_rate)
    assert fisher_exact(count, n, other, m) == pytest.approx(scipys(count, n, other, m), rel=1e-6, abs=1e-300)


def test_what_one_expects():
    assert fisher_exact(30, 200, 2, 200) < 1e-6
    assert fisher_exact(0, 200, 0, 200) == 1.0
    assert fisher_exact(200, 200, 100, 100) == 1.0
    assert fisher_exact(5, 100, 50, 1000) == pytest.approx(1.0)
    assert fisher_exact(3, 20, 1, 30) == pytest.approx(fisher_exact(1, 30, 3, 20))
    assert fisher_exact(0, 50_000, 50_000, 50_000) == 0.0  # below every number


@pytest.mark.parametrize("table", [(-1, 5, 0, 5), (6, 5, 0, 5), (0, 0, 0, 5), (0, 5, 0, 0), (0, 5, 6, 5)])
def test_no_table_is_refused(table):
    with pytest.raises(BadArgument, match="accepted: 0 to n"):
        fisher_exact(*table)
