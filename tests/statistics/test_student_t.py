import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.statistics.student_t import quantile, upper_tail

# Printed tables: two-sided 95 % and 99 %, one-sided 99.95 %.
TABLE = [
    (0.975, 1, 12.706),
    (0.975, 2, 4.303),
    (0.975, 5, 2.571),
    (0.975, 9, 2.262),
    (0.975, 30, 2.042),
    (0.975, 120, 1.980),
    (0.995, 1, 63.657),
    (0.995, 3, 5.841),
    (0.995, 10, 3.169),
    (0.995, 60, 2.660),
    (0.9995, 4, 8.610),
    (0.9995, 40, 3.551),
    (0.75, 1, 1.000),
]


@pytest.mark.parametrize(("p", "df", "printed"), TABLE)
def test_quantiles_of_the_printed_table(p, df, printed):
    assert quantile(p, df) == pytest.approx(printed, abs=5.001e-4)


@given(p=st.floats(0.001, 0.999))
def test_one_and_two_degrees_of_freedom_have_closed_forms(p):
    assert quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-8, abs=1e-9)
    assert quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-8, abs=1e-9)


@given(p=st.floats(0.001, 0.999))
def test_many_degrees_of_freedom_are_the_normal_distribution(p):
    z = NormalDist().inv_cdf(p)
    # Cornish-Fisher's first term; the rest is of order 1 / df^2.
    assert quantile(p, 1e5) == pytest.approx(z + (z**3 + z) / 4e5, abs=1e-7)


@given(p=st.floats(0.5, 0.9999), df=st.floats(0.5, 1000))
def test_the_tail_inverts_the_quantile_and_both_sides_mirror(p, df):
    assert upper_tail(quantile(p, df), df) == pytest.approx(1 - p, rel=1e-7)
    assert quantile(1 - p, df) == pytest.approx(-quantile(p, df), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("p", [0, 1, math.nan])
def test_a_probability_outside_its_range_is_refused(p):
    with pytest.raises(BadArgument, match="p is"):
        quantile(p, 1)


@pytest.mark.parametrize("df", [0, -1, math.inf, math.nan])
def test_degrees_of_freedom_outside_their_range_are_refused(df):
    with pytest.raises(BadArgument, match="df is"):
        quantile(0.9, df)
