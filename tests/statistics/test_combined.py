import math

import pytest

from gem.errors import BadArgument
from gem.statistics import Interval, combined, exact, wilson


def test_the_mean_of_estimates_is_the_closed_form_of_equal_variances():
    one, other = Interval(0.2, 0.1, 0.3, 9, 9), Interval(0.6, 0.5, 0.7, 9, 9)
    half = 0.1 / math.sqrt(2)
    assert combined([one, other]) == pytest.approx((0.4, 0.4 - half, 0.4 + half, 18, 18, False))
    assert combined([one]) == pytest.approx(one)
    assert combined([exact([1.0]), exact([0.0])]) == (0.5, 0.5, 0.5, 2, 2, True)
    assert combined([one, Interval(0.0, -math.inf, math.inf, 1, 1)])[1:3] == (-math.inf, math.inf)
    uneven = combined([wilson(0, 20), wilson(0, 20)])
    assert (uneven.low, uneven.mean) == (0.0, 0.0)
    assert uneven.high == pytest.approx(wilson(0, 20).high / math.sqrt(2))


def test_weights_are_shares():
    one, other = Interval(0.2, 0.1, 0.3, 9, 9), Interval(0.6, 0.5, 0.7, 9, 9)
    assert combined([one, other], [3, 1]).mean == pytest.approx(0.3)
    assert combined([one, other], [6, 2]) == pytest.approx(combined([one, other], [3, 1]))
    for parts, weights in (([], None), ([one], [1, 2]), ([one], [0]), ([one], [math.nan])):
        with pytest.raises(BadArgument, match="one above 0 for each"):
            combined(parts, weights)
