"""Statistics: intervals that say how sure a mean or a rate is, pass@k, and tests."""

from gem.statistics.fisher import fisher_exact
from gem.statistics.intervals import Interval, clustered_rate, exact, mean_interval, rate_interval, wilson
from gem.statistics.paired import (
    holm,
    mcnemar,
    mean_of,
    paired_bootstrap,
    paired_difference,
    paired_p,
    score_difference,
    sign_flips,
)
from gem.statistics.passes import pass_at_k, pass_hat_k
from gem.statistics.power import Noise, noise, noise_of_rate, smallest_difference
from gem.statistics.trend import mann_kendall

__all__ = [
    "Interval",
    "Noise",
    "clustered_rate",
    "exact",
    "fisher_exact",
    "holm",
    "mann_kendall",
    "mcnemar",
    "mean_interval",
    "mean_of",
    "noise",
    "noise_of_rate",
    "paired_bootstrap",
    "paired_difference",
    "paired_p",
    "pass_at_k",
    "pass_hat_k",
    "rate_interval",
    "score_difference",
    "sign_flips",
    "smallest_difference",
    "wilson",
]
