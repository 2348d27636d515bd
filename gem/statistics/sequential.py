"""Confidence sequences: intervals that stay valid if one checks after each task, and stops early."""

from __future__ import annotations

import math

import numpy as np

from gem.errors import BadArgument, check_argument
from gem.statistics.intervals import Interval, check_level

GRID = 1000
"""Number of steps in the grid of candidate means, from the lowest to the highest value."""

LARGEST_BET = 0.5
"""The largest share of the capital that one value can take."""


class ConfidenceSequence:
    """The mean of bounded values, with an interval that is valid at all times simultaneously.

    With probability `level` the true mean is in every interval from the first value to the last. An ordinary
    interval is valid only at one time that was fixed before. With repeated checks and early stopping, it is
    wrong far more often.

    For each candidate mean, two gamblers bet on the next value: one that the mean is larger, one that it is
    smaller. For the true mean, their capital ever exceeds ``2 / (1 - level)`` with probability at most
    ``1 - level``. So a candidate at which it does is excluded permanently. Source: Waudby-Smith and Ramdas,
    Estimating means of bounded random variables by betting, J. Royal Statistical Society B 86 (2024), arXiv
    2010.09686, theorem 3 (hedged capital), with the bets given below it: those of a predictable plug-in,
    ``sqrt(2 log(2 / alpha) / (variance * t * log(t + 1)))``, capped so that one value takes at most half of
    the capital.

    Add values in the order in which they were drawn, not in which they ended: early ends may be the easy
    cases. Values must be independent, or have the same mean given the earlier ones. For tasks that are
    sampled several times, the unit is the task, and its value the mean of its samples. The caller leaves out
    and counts values without verdict.
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, level: float = 0.95) -> None:
        """Start without values: the interval is the whole range.

        Args:
            low: the lowest possible value.
            high: the highest possible value.
            level: the coverage, in (0, 1).

        Raises:
            BadArgument: for bounds that are not finite or in the wrong order, or an invalid level.
        """
        check_level(level)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise BadArgument(f"low is {low} and high is {high}; accepted: finite bounds, low < high.")
        self.low, self.high, self.level = low, high, level
        self.count = 0
        self._sum = 0.0  # of values scaled to [0, 1], like all the following
        self._squares = 0.25  # squared deviations from the running means, plus a prior variance
        self._means = np.linspace(0.0, 1.0, GRID + 1)
        self._ups = np.zeros(GRID + 1)  # log capital of the bets on a larger mean
        self._downs = np.zeros(GRID + 1)
        self._least, self._most = 0, GRID  # range of the means that are not excluded

    def add(self, value: float) -> None:
        """Add the next value.

        Raises:
            BadArgument: for a value outside the bounds.
        """
        if not self.low <= value <= self.high:  # also refuses NaN
            raise BadArgument(f"a value is {value}; accepted: {self.low} to {self.high}.")
        x = (value - self.low) / (self.high - self.low)
        t = self.count + 1
        variance = self._squares / t  # of earlier values: a bet is made before its value is known
        bet = math.sqrt(2 * math.log(2 / (1 - self.level)) / (variance * t * math.log1p(t)))
        with np.errstate(divide="ignore"):
            up = np.minimum(bet, LARGEST_BET / self._means)
            down = np.minimum(bet, LARGEST_BET / (1 - self._means))
        self._ups += np.log1p(up * (x - self._means))
        self._downs += np.log1p(down * (self._means - x))
        self.count = t
        self._sum += x
        self._squares += (x - (0.5 + self._sum) / (t + 1)) ** 2
        # Each gambler has half of the capital.
        kept = np.flatnonzero(np.maximum(self._ups, self._downs) < math.log(2 / (1 - self.level)))
        if len(kept) and kept[0] <= self._most and kept[-1] >= self._least:
            self._least, self._most = max(self._least, int(kept[0])), min(self._most, int(kept[-1]))

    @property
    def interval(self) -> Interval:
        """The mean so far, and the range of means that are not excluded.

        Excluded means stay excluded, so the mean so far may be near a bound, or even outside. Bounds are
        rounded outwards to the grid of candidate means. If all are excluded, which is as improbable as an
        error of the interval, the last remaining ones are returned.
        """
        wide = self.high - self.low
        mean = self._sum / self.count if self.count else 0.5
        low = max(0, self._least - 1) / GRID if self._least else 0.0
        high = min(GRID, self._most + 1) / GRID if self._most < GRID else 1.0
        return Interval(
            self.low + wide * mean, self.low + wide * low, self.low + wide * high, self.count, self.count
        )

    def stop_when(self, *, width: float | None = None, threshold: float | None = None) -> bool:
        """Return whether to stop: the interval is as narrow as `width`, or on one side of `threshold`.

        If both are given, one is enough. It is valid to check this after every value.

        Raises:
            BadArgument: when neither is given, or for a width that is not above 0.
        """
        if width is None and threshold is None:
            raise BadArgument("neither width nor threshold is given; pass one, or it would never stop.")
        check_argument("width", width, width is None or width > 0, "above 0, such as 0.1")
        interval = self.interval
        if width is not None and interval.high - interval.low <= width + 1e-12:
            return True
        return threshold is not None and not interval.low <= threshold <= interval.high
