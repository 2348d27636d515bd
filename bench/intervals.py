"""Coverage and width of 95% intervals: how often they contain the true value. ``python -m bench.intervals``.

The data are successes in clusters of trials, as for tasks that are each tried several times. A cluster's own
rate is drawn from a beta distribution around the true one; its spread is the intra-cluster correlation. Rates
above a half mirror those below. The error of a measured coverage is about 0.01. Name tables to choose them;
the default is the first:

- rates: `gem.statistics.clustered_rate` and the cluster-robust t-interval around the mean
  (`mean_interval`), cut to [0, 1].
- singles: `wilson` of one sample a task: its exact coverage, the least at rates of 2 to 98%, and the mean.
- passes: `pass_at_k`; `pass_hat_k` mirrors it.
- differences: of two agents on the same tasks, `score_difference`, Student's t (`paired_difference`) and the
  bootstrap (`paired_bootstrap`). The second agent's rate of a task is `gain` of the way nearer to 1.
- returns: of returns of 0 or 1, one a task, `return_interval` and Student's t (`mean_interval`); and how
  often two equal agents are said to differ, by McNemar's test and by Student's t (`paired_p`).
- overall: of the mean of rates over environments, `combined_rate` and `combined`. Half of the environments
  have the rate `rate`, the others `other`.
- suites: of the mean over environments, the rate and the difference of two equal agents. Those
  of a `group` are prompts of the same tasks, at which each agent has its own rate on each task.
- power: how often `compare` shows the smallest difference that `gem-gym power` names for a planned `rate`, to
  one on the side of 50%; it names it for 80%. NaN where it names none. Of several samples a task, half of the
  variance is between tasks, and `alike` is 0.5.
- sequences: how often a `ConfidenceSequence` is right at every moment up to the last, compared with a Wilson
  interval that is checked after each task.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from bench.common import choose_size, parse_args, table, write_json
from gem.evals.power import floors, plan_noise
from gem.statistics import (
    ConfidenceSequence,
    Interval,
    clustered_rate,
    combined,
    combined_rate,
    mcnemar,
    mean_interval,
    paired_bootstrap,
    paired_difference,
    paired_p,
    pass_at_k,
    return_interval,
    score_difference,
    sign_flips,
    wilson,
)

RATES = (0.02, 0.05, 0.5)
CLUSTERS = choose_size((5, 10, 50, 200), (10,))
SIZES = choose_size((1, 4, 16, 64), (1, 4))
CORRELATIONS = (0.0, 0.2, 0.6)
ENOUGH = 0.93
"""Coverage that counts as that of 0.95."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; rates if left out")
    parser.add_argument("--trials", type=int, default=choose_size(2000, 20))
    asked = parse_args(parser)
    if unknown := {*asked.tables} - {*TABLES}:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    for name in asked.tables or choose_size(["rates"], [*TABLES]):
        rows = TABLES[name](asked.trials)
        write_json("intervals" if name == "rates" else f"intervals_{name}", rows)


def rates(trials: int) -> list[dict[str, float]]:
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
    return rows


def singles(trials: int) -> list[dict[str, float]]:
    """Return exact figures, whatever the number of trials."""
    rows = []
    for tasks in CLUSTERS:
        intervals = [wilson(won, tasks) for won in range(tasks + 1)]
        found = {}
        for rate in np.arange(20, 981, 4) / 1000:
            shares = [
                math.comb(tasks, won) * rate**won * (1 - rate) ** (tasks - won) for won in range(tasks + 1)
            ]
            held = [each.low <= rate <= each.high for each in intervals]
            found[float(rate)] = float(np.dot(shares, held))
        worst = min(found, key=lambda rate: found[rate])
        rows.append(
            {
                "tasks": tasks,
                "rate": worst,
                "coverage": found[worst],
                "mean": statistics.fmean(found.values()),
            }
        )
    table("one sample a task, exactly", list(rows[0]), [list(row.values()) for row in rows])
    return rows


def passes(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(1)
    rows = []
    for clusters, (size, k), correlation, rate in itertools.product(
        CLUSTERS, ((4, 2), (8, 4), (16, 2), (16, 8)), (0.0, 0.3, 0.7), (0.02, 0.05, 0.5, 0.95)
    ):
        true = true_pass(rate, correlation, k)
        found = [
            pass_at_k([[True] * won + [False] * (size - won) for won in counts], k)
            for counts in samples(rng, rate, clusters, size, correlation, trials)
        ]
        row = {"clusters": clusters, "size": size, "k": k, "correlation": correlation, "rate": rate}
        width = statistics.fmean(each.high - each.low for each in found)
        rows.append({**row, "pass": true, "coverage": coverage(found, true), "width": width})
    _shown("pass@k", trials, rows)
    return rows


def true_pass(rate: float, correlation: float, k: int) -> float:
    """Return 1 - E (1 - p)^k of rates p that are spread by a beta distribution."""
    if not correlation:
        return 1 - (1 - rate) ** k
    spread = (1 - correlation) / correlation
    return 1 - math.prod(((1 - rate) * spread + j) / (spread + j) for j in range(k))


def differences(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(2)
    rows = []
    for tasks, size, correlation, (rate, gain) in itertools.product(
        CLUSTERS, (1, 4, 16), (0.0, 0.3, 0.6), ((0.02, 0.0), (0.05, 0.05), (0.5, 0.0), (0.5, 0.4))
    ):
        true = gain * (1 - rate)
        found: dict[str, list[Interval]] = {"": [], "t_": [], "bootstrap_": []}
        for _ in range(trials):
            first, second = (each.tolist() for each in pairs(rng, rate, gain, tasks, size, correlation))
            names = [i for i in range(tasks) for _ in range(size)]
            lost, won = [0] * tasks, [0] * tasks
            for name, one, other in zip(names, first, second, strict=True):
                lost[name] += one > other
                won[name] += other > one
            found[""].append(score_difference(lost, won, [size] * tasks))
            found["t_"].append(paired_difference(first, second, names))
            found["bootstrap_"].append(paired_bootstrap(first, second, names, resamples=499))
        row = {"tasks": tasks, "size": size, "correlation": correlation, "rate": rate, "gain": gain}
        for name, each in found.items():
            row[f"{name}coverage"] = coverage(each, true)
            # Unbounded ones say nothing; no difference is larger than 1.
            row[f"{name}width"] = statistics.median(min(1.0, i.high) - max(-1.0, i.low) for i in each)
        rows.append(row)
    _shown("differences", trials, rows)
    return rows


def returns(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(5)
    rows = []
    for tasks, rate in itertools.product((2, 5, 10, 20, 50), (0.5, 0.9, 0.98)):
        found: dict[str, list[Interval]] = {"": [], "t_": []}
        wrong = t_wrong = 0
        for first, second in (rng.random((trials, 2, tasks)) < rate).astype(float).tolist():
            found[""].append(return_interval(first, successes=[each == 1 for each in first]))
            found["t_"].append(mean_interval(first))
            lost, won = (
                sum(a > b for a, b in zip(*pair, strict=True)) for pair in ((first, second), (second, first))
            )
            wrong += mcnemar(lost, won) < 0.05
            t_wrong += paired_p(paired_difference(first, second)) < 0.05
        row = {
            "tasks": tasks,
            "rate": rate,
            **{f"{name}coverage": coverage(each, rate) for name, each in found.items()},
        }
        rows.append({**row, "wrong": wrong / trials, "t_wrong": t_wrong / trials})
    _shown("returns", trials, rows)
    return rows


def power(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(7)
    rows = []
    for tasks, size, rate in itertools.product((5, 6, 10, 20, 50, 200), (1, 4), (0.5, 0.7, 0.9)):
        # One sample a task: the worst case is that it is all noise within the tasks.
        within = None if size == 1 else rate * (1 - rate) / 2
        floor = floors([plan_noise(rate, within)], tasks=tasks, samples=size)[0]
        least = floor.paired if floor.paired is not None and floor.paired < 1 else math.nan
        shown = 0
        for _ in range(trials if least == least else 0):
            own = [np.full(tasks, each) for each in (rate, rate - least)]
            if size > 1:
                both = rng.random(tasks) < 0.5  # half of the tasks are alike for both: a correlation of 0.5
                ranks = rng.random((2, tasks))
                ranks[1] = np.where(both, ranks[0], ranks[1])
                # A task has one of two rates, around the mean.
                own = [
                    np.clip(each[0] + np.where(rank < each[0], 1 - each[0], -each[0]) * math.sqrt(0.5), 0, 1)
                    for each, rank in zip(own, ranks, strict=True)
                ]
            first, second = (rng.binomial(1, np.repeat(each, size)).reshape(tasks, size) for each in own)
            lost, won = (first > second).sum(1), (second > first).sum(1)
            difference = score_difference(lost.tolist(), won.tolist(), [size] * tasks)
            p = sign_flips((won - lost).tolist())
            shown += p < 0.05 and not difference.low <= 0 <= difference.high
        row = {"tasks": tasks, "size": size, "rate": rate, "smallest": least}
        rows.append({**row, "power": shown / trials if least == least else math.nan})
    table(f"power, {trials} samples of each", list(rows[0]), [list(row.values()) for row in rows])
    known = [row["power"] for row in rows if not math.isnan(row["power"])]
    print(f"power: {len(known)} of {len(rows)} have one; it is shown in {min(known):.0%} to {max(known):.0%}")
    return rows


def overall(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(6)
    rows = []
    sizes = ((2, 10), (6, 10), (6, 50), (24, 10), (24, 50), (24, 200), (50, 10))
    for (envs, tasks), (rate, other) in itertools.product(
        sizes, ((0.5, 0.5), (0.95, 0.95), (0.98, 0.98), (0.3, 0.98))
    ):
        rates = np.array([rate, other] * (envs // 2))
        found: dict[str, list[Interval]] = {"": [], "mover_": []}
        for counts in rng.binomial(tasks, rates, (trials, envs)).tolist():
            parts = [wilson(won, tasks) for won in counts]
            found[""].append(combined_rate(parts))
            found["mover_"].append(combined(parts))
        row = {"environments": envs, "tasks": tasks, "rate": rate, "other": other}
        for name, each in found.items():
            row[f"{name}coverage"] = coverage(each, float(rates.mean()))
            row[f"{name}width"] = statistics.fmean(i.high - i.low for i in each)
        rows.append(row)
    _shown("overall", trials, rows)
    return rows


def suites(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(4)
    rows = []
    for envs, tasks, group in ((6, 40, 1), (6, 40, 6), (6, 40, 2), (24, 10, 8)):
        found: dict[str, list[Interval]] = {"": [], "apart_": [], "difference_": [], "difference_apart_": []}
        groups = [env // group for env in range(envs)]
        for _ in range(trials):
            # Rates of 0 to 1, most of them near either end, as tasks of a model are.
            own = np.repeat(rng.beta(0.5, 0.5, (2, envs // group, tasks)), group, axis=1)
            first, second = (rng.random(own.shape) < own).astype(int)
            parts = [wilson(int(won.sum()), tasks) for won in first]
            changes = [
                score_difference((one > two).astype(int), (two > one).astype(int), [1] * tasks)
                for one, two in zip(first, second, strict=True)
            ]
            found[""].append(combined_rate(parts, None, groups))
            found["apart_"].append(combined_rate(parts))
            found["difference_"].append(combined(changes, None, groups))
            found["difference_apart_"].append(combined(changes))
        row = {"environments": envs, "tasks": tasks, "group": group}
        for name, each in found.items():
            row[f"{name}coverage"] = coverage(each, 0.0 if "difference" in name else 0.5)
        rows.append(row)
    _shown("suites", trials, rows)
    return rows


def pairs(
    rng: np.random.Generator, rate: float, gain: float, tasks: int, size: int, correlation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return what two agents came to on the same samples, task after task."""
    own = np.full(tasks, rate)
    if correlation:
        spread = (1 - correlation) / correlation
        own = rng.beta(rate * spread, (1 - rate) * spread, tasks)
    own = np.repeat(own, size)
    return (rng.random(len(own)) < own) * 1.0, (rng.random(len(own)) < own + gain * (1 - own)) * 1.0


def sequences(trials: int) -> list[dict[str, float]]:
    rng = np.random.default_rng(3)
    rows = []
    for rate, last in itertools.product((0.02, 0.05, 0.5), (100, 500)):
        right = peeked = 0
        widths = []
        for _ in range(min(trials, 500)):
            sequence, won, held = ConfidenceSequence(), 0, True
            for number, value in enumerate((rng.random(last) < rate).tolist(), 1):
                sequence.add(float(value))
                won += value
                one = wilson(won, number)
                held = held and (number <= 5 or one.low <= rate <= one.high)
            interval = sequence.interval
            right += interval.low <= rate <= interval.high
            peeked += held
            widths.append((interval.high - interval.low) / (one.high - one.low))
        played = min(trials, 500)
        row = {"rate": rate, "tasks": last, "coverage": right / played, "peeking_coverage": peeked / played}
        rows.append({**row, "times_as_wide": statistics.fmean(widths)})
    _shown("sequences", min(trials, 500), rows)
    return rows


def _shown(name: str, trials: int, rows: Sequence[dict[str, float]]) -> None:
    table(f"{name}, {trials} samples of each", list(rows[0]), [list(row.values()) for row in rows])
    for kind in (column for column in rows[0] if column.endswith("coverage")):
        low = sum(row[kind] < ENOUGH for row in rows)
        least = min(row[kind] for row in rows)
        print(f"{name}, {kind}: {low} of {len(rows)} are less than {ENOUGH:.0%}; the least {least:.1%}")


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


TABLES = {
    "rates": rates,
    "singles": singles,
    "passes": passes,
    "differences": differences,
    "returns": returns,
    "power": power,
    "overall": overall,
    "suites": suites,
    "sequences": sequences,
}


if __name__ == "__main__":
    main()
