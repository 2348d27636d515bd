"""How often 95% intervals of a rate cover it, and how wide they are: ``python -m bench.intervals``.

Success over clusters of trials, as of tasks that are each tried several times: a cluster's own rate is drawn
from a beta distribution around the true one, whose spread is the intra-cluster correlation. Compared are
`gem.statistics.clustered_rate` and the cluster-robust t-interval around the mean (`mean_interval`), cut to
[0, 1]. Rates above a half mirror those below. Coverage of 0.95 is known to about 0.01.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from bench.common import table, write_json
from gem.statistics import Interval, clustered_rate, mean_interval

RATES = (0.02, 0.05, 0.5)
CLUSTERS = (5, 10, 50, 200)
SIZES = (1, 4, 16, 64)
CORRELATIONS = (0.0, 0.2, 0.6)
ENOUGH = 0.93
"""Coverage that counts as that of 0.95."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    rng = np.random.default_rng(0)
    rows = []
    for clusters, size, correlation in itertools.product(CLUSTERS, SIZES, CORRELATIONS):
        if size == 1 and correlation:
            continue  # one trial of a cluster resembles no other
        found = [measured(rng, rate, clusters, size, correlation, trials) for rate in RATES]
        rows += [
            {"clusters": clusters, "size": size, "correlation": correlation, "rate": rate, **each}
            for rate, each in zip(RATES, found, strict=True)
        ]
    columns = ("clusters", "size", "correlation", "rate", "coverage", "t_coverage", "width", "t_width")
    table(f"{trials} samples of each", columns, [[row[name] for name in columns] for row in rows])
    low = [row for row in rows if row["coverage"] < ENOUGH]
    t_low = [row for row in rows if row["t_coverage"] < ENOUGH]
    both = [row for row in rows if row["coverage"] >= ENOUGH and row["t_coverage"] >= ENOUGH]
    wider = statistics.geometric_mean(row["width"] / row["t_width"] for row in both)
    print(f"clustered_rate covers less than {ENOUGH:.0%} in {len(low)} of {len(rows)}: ", end="")
    print(
        ", ".join(f"{row['clusters']}x{row['size']} at {row['rate']}: {row['coverage']:.1%}" for row in low)
    )
    least = min(row["t_coverage"] for row in rows)
    print(
        f"the t-interval in {len(t_low)}, {least:.1%} at worst; where both cover, {wider:.2f} times as wide"
    )
    write_json("intervals", rows)


def measured(
    rng: np.random.Generator, rate: float, clusters: int, size: int, correlation: float, trials: int
) -> dict[str, float]:
    """Return the coverage and mean width of both intervals over `trials` samples."""
    new, old = [], []
    for successes in samples(rng, rate, clusters, size, correlation, trials):
        new.append(clustered_rate(successes, [size] * clusters))
        # Of clusters of one size, means are all that the cluster-robust interval depends on.
        t = mean_interval([count / size for count in successes])
        old.append(t._replace(low=max(0.0, t.low), high=min(1.0, t.high)))
    return {
        "coverage": coverage(new, rate),
        "t_coverage": coverage(old, rate),
        "width": statistics.fmean(each.high - each.low for each in new),
        "t_width": statistics.fmean(each.high - each.low for each in old),
    }


def samples(
    rng: np.random.Generator, rate: float, clusters: int, size: int, correlation: float, trials: int
) -> Iterator[list[int]]:
    """Yield the successes of each cluster, `trials` times."""
    own = np.full((trials, clusters), rate)
    if correlation:
        spread = (1 - correlation) / correlation
        own = rng.beta(rate * spread, (1 - rate) * spread, own.shape)
    yield from rng.binomial(size, own).tolist()


def coverage(intervals: Sequence[Interval], rate: float) -> float:
    return statistics.fmean(each.low <= rate <= each.high for each in intervals)


if __name__ == "__main__":
    main()
