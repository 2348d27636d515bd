"""Intervals that hold at every moment, so that one may look after each task, and stop."""

from __future__ import annotations

import math

import numpy as np

from gem.errors import BadArgument
from gem.statistics.intervals import Interval, check_level

GRID = 1000
"""The means that are tried: so many steps between the least and the largest value."""

LARGEST_BET = 0.5
"""The share of the capital that one value can take at most."""


class ConfidenceSequence:
    """The mean of bounded values, with an interval that holds at all times at once.

    With probability `level` the true mean lies in every interval from the first value to the last. An
    ordinary interval promises that of one moment that was chosen beforehand: whoever looks at it again and
    again, and stops when it pleases, is wrong far more often.

    For each mean that may be, two gamblers bet on the next value, one that the mean is larger and one that it
    is smaller. Is it the true one, their capital grows beyond ``2 / (1 - level)`` with probability
    ``1 - level`` at most, whenever one looks; so a mean at which it did is ruled out, for good. Source:
    Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, J. Royal Statistical
    Society B 86 (2024), arXiv 2010.09686, theorem 3 (hedged capital), with the bets that stand below it:
    those of a predictable plug-in, ``sqrt(2 log(2 / alpha) / (variance * t * log(t + 1)))``, cut off where a
    value could take more than half of the capital.

    Values are added in the order in which they were drawn, not in that in which they ended: what ends early
    may be what is easy. They are independent, or each has the same mean given those before it. Of tasks that
    are sampled several times the unit is the task, and its value the mean of its samples. What has no verdict
    is left out and counted by the caller.
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, level: float = 0.95) -> None:
        """Begin without values: the interval is all that may be.

        Args:
            low: the least value that may come.
            high: the largest value that may come.
            level: the coverage, in (0, 1).

        Raises:
            BadArgument: for bounds that are not finite or in the wrong order, or another level.
        """
        check_level(level)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise BadArgument(f"values lie between {low} and {high}; accepted: finite bounds, low < high.")
        self.low, self.high, self.level = low, high, level
        self.count = 0
        self._sum = 0.0  # of values scaled to [0, 1], as all that follows
        self._squares = 0.25  # off the means of their moments, and a guess of their variance
        self._means = np.linspace(0.0, 1.0, GRID + 1)
        self._ups = np.zeros(GRID + 1)  # logarithms of the capital that bets on a larger mean
        self._downs = np.zeros(GRID + 1)
        self._least, self._most = 0, GRID  # of the means that are not ruled out

    def add(self, value: float) -> None:
        """Take in the next value.

        Raises:
            BadArgument: for a value outside the bounds.
        """
        if not self.low <= value <= self.high:  # NaN too
            raise BadArgument(f"a value is {value}; accepted: {self.low} to {self.high}.")
        x = (value - self.low) / (self.high - self.low)
        t = self.count + 1
        variance = self._squares / t  # of the values before: a bet is made before its value is known
        bet = math.sqrt(2 * math.log(2 / (1 - self.level)) / (variance * t * math.log1p(t)))
        with np.errstate(divide="ignore"):
            up = np.minimum(bet, LARGEST_BET / self._means)
            down = np.minimum(bet, LARGEST_BET / (1 - self._means))
        self._ups += np.log1p(up * (x - self._means))
        self._downs += np.log1p(down * (self._means - x))
        self.count = t
        self._sum += x
        self._squares += (x - (0.5 + self._sum) / (t + 1)) ** 2
        # Either gambler may have half of the capital.
        kept = np.flatnonzero(np.maximum(self._ups, self._downs) < math.log(2 / (1 - self.level)))
        if len(kept) and kept[0] <= self._most and kept[-1] >= self._least:
            self._least, self._most = max(self._least, int(kept[0])), min(self._most, int(kept[-1]))

    @property
    def interval(self) -> Interval:
        """The mean so far, and the means that no value until now ruled out.

        What was ruled out once stays so: the mean may lie near an end, and where it wandered beyond it.
        Between the means that are tried none is ruled out, so that bounds are rounded outwards. Where all are
        ruled out, which is as improbable as being wrong, the last that were not are given.
        """
        wide = self.high - self.low
        mean = self._sum / self.count if self.count else 0.5
        low = max(0, self._least - 1) / GRID if self._least else 0.0
        high = min(GRID, self._most + 1) / GRID if self._most < GRID else 1.0
        return Interval(
            self.low + wide * mean, self.low + wide * low, self.low + wide * high, self.count, self.count
        )

    def stop_when(self, *, width: float | None = None, threshold: float | None = None) -> bool:
        """Return whether enough is known: an interval as narrow as `width`, or on one side of `threshold`.

        Either will do where both are given. Asked after every value, it is as right as asked once.

        Raises:
            BadArgument: where neither is given, or a width that is not above 0.
        """
        if width is None and threshold is None:
            raise BadArgument("neither width nor threshold is given; nothing would ever be enough.")
        if width is not None and not width > 0:
            raise BadArgument(f"width is {width}; accepted: above 0, such as 0.1.")
        found = self.interval
        if width is not None and found.high - found.low <= width + 1e-12:
            return True
        return threshold is not None and not found.low <= threshold <= found.high
