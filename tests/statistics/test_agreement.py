import math
from itertools import product

import pytest

from gem.errors import BadArgument
from gem.statistics import cohen_kappa


@pytest.mark.parametrize(
    ("cells", "kappa"),
    [
        ((20, 5, 10, 15), 0.4),  # Wikipedia, "Cohen's kappa", the simple example
        ((45, 15, 25, 15), 0.1304),  # and its two with equal agreement
        ((25, 35, 5, 35), 0.2593),
        ((5, 0, 0, 5), 1.0),
        ((0, 5, 5, 0), -1.0),
    ],
)
def test_kappa_is_that_of_the_literature(cells, kappa):
    interval = cohen_kappa(*cells)
    assert interval.mean == pytest.approx(kappa, abs=5e-5)
    assert -1 <= interval.low < interval.high <= 1
    assert interval.low <= interval.mean <= interval.high


def test_the_raters_may_change_places():
    assert cohen_kappa(7, 2, 5, 9) == pytest.approx(cohen_kappa(7, 5, 2, 9))
    assert cohen_kappa(7, 2, 5, 9) == pytest.approx(cohen_kappa(9, 2, 5, 7))


def test_kappa_is_not_defined_where_both_say_the_same_of_all():
    interval = cohen_kappa(5, 0, 0, 0)
    assert math.isnan(interval.mean)
    assert (interval.low, interval.high) == (-1.0, 1.0)


@pytest.mark.parametrize("cells", [(0, 0, 0, 0), (1, -1, 0, 0)])
def test_counts_that_cannot_be_are_refused(cells):
    with pytest.raises(BadArgument, match="counts"):
        cohen_kappa(*cells)


@pytest.mark.parametrize(("prevalence", "right"), [(0.5, 0.8), (0.5, 0.95), (0.8, 0.9)])
def test_the_interval_covers_at_twenty_items(prevalence, right):
    """The exact coverage: the probability of the tables of 20 items whose interval has the true kappa."""
    p = (
        prevalence * right,
        prevalence * (1 - right),
        (1 - prevalence) * (1 - right),
        (1 - prevalence) * right,
    )
    expected = (p[0] + p[1]) * (p[0] + p[2]) + (p[2] + p[3]) * (p[1] + p[3])
    true = (p[0] + p[3] - expected) / (1 - expected)
    covered = 0.0
    for a, b, c in product(range(21), repeat=3):
        if (d := 20 - a - b - c) >= 0:
            interval = cohen_kappa(a, b, c, d)
            ways = math.factorial(20) / math.prod(map(math.factorial, (a, b, c, d)))
            covered += (
                (interval.low <= true <= interval.high)
                * ways
                * math.prod(each**count for each, count in zip(p, (a, b, c, d), strict=True))
            )
    assert 0.94 <= covered <= 0.99
