"""Statistics: intervals that say how sure a mean or a rate is."""

from gem.statistics.intervals import Interval, exact, mean_interval, wilson

__all__ = ["Interval", "exact", "mean_interval", "wilson"]
