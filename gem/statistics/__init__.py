"""Statistics: intervals of means, rates and differences, statistical power, pass@k, and tests."""

from gem.statistics.agreement import cohen_kappa
from gem.statistics.combining import combine, combined, combined_rate
from gem.statistics.fisher import fisher_exact
from gem.statistics.interquartile import interquartile_mean, stratified_interval
from gem.statistics.intervals import (
    Interval,
    Rate,
    clustered_rate,
    exact,
    mean_interval,
    rate_interval,
    return_interval,
    surely_below,
    wilson,
)
from gem.statistics.normalise import normalised
from gem.statistics.paired import (
    holm,
    mcnemar,
    paired_bootstrap,
    paired_difference,
    paired_p,
    score_difference,
    sign_flip_p,
    sign_flips,
)
from gem.statistics.passes import pass_at_k, pass_hat_k
from gem.statistics.power import Noise, noise, noise_of_rate, smallest_difference, smallest_rate_difference
from gem.statistics.ratios import ratio_interval
from gem.statistics.sequential import ConfidenceSequence
from gem.statistics.trend import mann_kendall, moving_average

__all__ = [
    "ConfidenceSequence",
    "Interval",
    "Noise",
    "Rate",
    "clustered_rate",
    "cohen_kappa",
    "combine",
    "combined",
    "combined_rate",
    "exact",
    "fisher_exact",
    "holm",
    "interquartile_mean",
    "mann_kendall",
    "mcnemar",
    "mean_interval",
    "moving_average",
    "noise",
    "noise_of_rate",
    "normalised",
    "paired_bootstrap",
    "paired_difference",
    "paired_p",
    "pass_at_k",
    "pass_hat_k",
    "rate_interval",
    "ratio_interval",
    "return_interval",
    "score_difference",
    "sign_flip_p",
    "sign_flips",
    "smallest_difference",
    "smallest_rate_difference",
    "stratified_interval",
    "surely_below",
    "wilson",
]
