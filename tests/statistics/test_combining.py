import math
import random
from statistics import NormalDist

import pytest

from gem.errors import BadArgument
from gem.statistics import (
    Interval,
    Rate,
    combine,
    combined,
    combined_rate,
    exact,
    mean_interval,
    pass_at_k,
    rate_interval,
    return_interval,
    wilson,
)
from gem.statistics.combining import group_shared


def test_of_one_figure_it_is_that_figure():
    one = wilson(3, 10)
    assert combined([one]) == pytest.approx(one)


def test_symmetric_intervals_combine_as_standard_errors_do():
    z = NormalDist().inv_cdf(0.975)
    parts = [Interval(m, m - z * se, m + z * se, 10, 10) for m, se in ((1.0, 0.3), (3.0, 0.4))]
    found = combined(parts)
    assert found.mean == pytest.approx(2.0)
    assert (found.high - found.mean) / z == pytest.approx(0.25)  # sqrt(0.3^2 + 0.4^2) / 2
    assert (found.n, found.clusters, found.exact) == (20, 20, False)


def test_weights_count_and_need_not_sum_to_one():
    parts = [exact([0.0]), exact([1.0])]
    assert combined(parts, [1, 3]).mean == 0.75
    assert combined(parts, [1, 3]).exact


def test_rates_at_their_ends_stay_between_0_and_1():
    found = combined([wilson(0, 5), wilson(0, 50)])
    assert found.low == 0
    assert 0 < found.high < 1
    assert combined([wilson(5, 5), wilson(50, 50)]).high == 1


def test_the_mean_of_rates_is_covered_as_often_as_it_is_to_be():
    rng = random.Random(0)
    rates, n, trials = (0.02, 0.5, 0.9, 0.97), 50, 400
    truth = sum(rates) / len(rates)
    held = 0
    for _ in range(trials):
        found = combined([wilson(sum(rng.random() < rate for _ in range(n)), n) for rate in rates])
        held += found.low <= truth <= found.high
    assert held / trials > 0.93


@pytest.mark.parametrize("weights", [[1], [0, 1], [-1, 1], [float("inf"), 1]])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(BadArgument):
        combined([wilson(1, 2), wilson(1, 2)], weights)


def test_no_figures_are_refused():
    with pytest.raises(BadArgument):
        combined([])


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


def test_estimates_of_the_same_tasks_give_the_interval_of_one():
    one, other = wilson(3, 10), wilson(9, 10)
    assert combined([one] * 8, None, ["rows"] * 8)[1:5] == pytest.approx((one.low, one.high, 80, 10))
    # Two groups of equal parts are two independent estimates.
    grouped = combined([one, one, other, other], None, ["a", "a", "b", "b"])
    assert grouped[:3] == pytest.approx(combined([one, other])[:3])
    assert grouped.clusters == 20
    assert combined([one, other], None, ["a", "b"]) == combined([one, other])
    open_ended = Interval(0.0, -math.inf, math.inf, 1, 1)
    assert combined([one, open_ended, other], None, "aab")[1:3] == (-math.inf, math.inf)
    with pytest.raises(BadArgument):
        combined([one, other], None, ["a"])


def test_what_is_made_of_rates_alone_is_combined_as_rates():
    rates = [
        wilson(20, 20),
        rate_interval([1, 1, 0, 1], "aabb"),
        return_interval([1.0, 0.0]),
        pass_at_k([[True, False], [True, True]], 2),
        exact([1.0, 0.0]),
    ]
    found = combine(rates, [1, 2, 3, 4, 5])
    assert found == combined_rate(rates, [1, 2, 3, 4, 5])
    assert isinstance(found, Rate)  # as is a mean over means
    for other in (mean_interval([0.5, 1.0]), return_interval([1.0, 1.0]), exact([0.5])):
        assert combine([*rates, other]) == combined([*rates, other])


def test_sets_that_share_a_key_are_one_group():
    assert group_shared([{1}, {2}, {3}, {1, 3}, set(), {4}]) == [0, 1, 0, 0, 4, 5]
    assert group_shared([{1}, {2}, {2, 1}, {2}]) == [0, 0, 0, 0]
    assert group_shared([]) == []


@pytest.mark.parametrize("rate", [0.05, 0.95])
def test_the_mean_of_many_rates_is_covered_near_0_and_1_too(rate):
    rng = random.Random(0)
    n, environments, trials = 10, 24, 300
    held = missed = 0
    for _ in range(trials):
        parts = [wilson(sum(rng.random() < rate for _ in range(n)), n) for _ in range(environments)]
        found, before = combined_rate(parts), combined(parts)
        assert found.mean == before.mean
        held += found.low <= rate <= found.high
        missed += not before.low <= rate <= before.high
    assert held / trials > 0.95
    assert missed / trials > 0.06  # what combined() is not for


def test_rates_of_one_part_or_of_the_same_tasks_keep_their_interval():
    for one in (wilson(3, 10), wilson(0, 10), wilson(10, 10), rate_interval([1, 0, 0, 0], "aabb")):
        assert combined_rate([one])[:3] == pytest.approx(one[:3])
        assert combined_rate([one] * 5, [1, 2, 3, 4, 5], "aaaaa")[:3] == pytest.approx(one[:3])
    two, pooled = combined_rate([wilson(30, 100)] * 2), wilson(60, 200)
    assert two[:3] == pytest.approx(pooled[:3], abs=0.001)
    assert combined_rate([exact([1.0, 0.0]), exact([1.0])]) == (0.75, 0.75, 0.75, 3, 3, True)
    unknown = Interval(1.0, 0.0, 1.0, 4, 1)  # a single task
    found = combined_rate([unknown, *[wilson(20, 20)] * 23])
    assert found.high == 1
    assert 0.85 < found.low < 0.97
