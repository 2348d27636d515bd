"""Statistics: intervals that say how sure a mean or a rate is."""

from gem.statistics.fisher import fisher_exact
from gem.statistics.intervals import Interval, clustered_rate, exact, mean_interval, rate_interval, wilson

__all__ = [
    "Interval",
    "clustered_rate",
    "exact",
    "fisher_exact",
    "mean_interval",
    "rate_interval",
    "wilson",
]
