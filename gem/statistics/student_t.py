"""Quantiles of Student's t distribution."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

from gem.errors import check_argument


@functools.lru_cache(1024)
def quantile(p: float, df: float) -> float:
    """Return the `p`-quantile of Student's t with `df` degrees of freedom, to about ten digits.

    It uses Newton's method on `upper_tail`, which is convex. It starts at the normal quantile, which is
    smaller, so the steps never pass the quantile, except by rounding.

    Raises:
        BadArgument: for `p` outside (0, 1), or `df` that is not positive and finite.
    """
    check_argument("p", p, 0 < p < 1, "between 0 and 1")
    check_argument("df", df, 0 < df < math.inf, "above 0")
    if p < 0.5:
        return -quantile(1 - p, df)
    t = max(0.0, NormalDist().inv_cdf(p))
    while (further := t + (upper_tail(t, df) - (1 - p)) / _density(t, df)) > t * (1 + 1e-15):
        t = further
    return t


def _density(t: float, df: float) -> float:
    log = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return math.exp(log - (df + 1) / 2 * math.log1p(t * t / df))


def upper_tail(t: float, df: float) -> float:
    """Return the probability that Student's t with `df` degrees of freedom exceeds `t`, for t >= 0.

    ``I_x(df / 2, 1 / 2) / 2`` at ``x = df / (df + t^2)``. Source: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.1.
    """
    whole = df + t * t
    return _incomplete_beta(df / whole, t * t / whole, df / 2, 0.5) / 2


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function ``I_x(a, b)``; ``y`` is ``1 - x``, given exactly.

    It uses the continued fraction of NIST's Digital Library of Mathematical Functions, 8.17.22, on the side
    where it converges fast, by ``I_x(a, b) = 1 - I_y(b, a)``.
    """
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(y, x, b, a)
    front = math.exp(a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    return front / (a * _continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate ``1 + d1 / (1 + d2 / (1 + ...))`` by Lentz's method."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, 100_000):
        m = n // 2
        if n % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + numerator * d or tiny)
        c = 1 + numerator / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
