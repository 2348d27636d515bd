"""Statistics: intervals that say how sure a mean or a rate is."""

from gem.statistics.fisher import fisher_exact
from gem.statistics.intervals import Interval, exact, mean_interval, wilson

__all__ = ["Interval", "exact", "fisher_exact", "mean_interval", "wilson"]
