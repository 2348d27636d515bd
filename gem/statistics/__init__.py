"""Statistics: intervals that say how sure a mean or a rate is, pass@k, and tests."""

from gem.statistics.fisher import fisher_exact
from gem.statistics.intervals import Interval, clustered_rate, exact, mean_interval, rate_interval, wilson
from gem.statistics.passes import pass_at_k, pass_hat_k
from gem.statistics.trend import mann_kendall

__all__ = [
    "Interval",
    "clustered_rate",
    "exact",
    "fisher_exact",
    "mann_kendall",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "rate_interval",
    "wilson",
]
