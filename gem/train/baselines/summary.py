"""Summary of a study's rows: figures over seeds, trends, differences, means over environments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import fmean, linear_regression
from typing import Literal, NamedTuple, TypeVar

from gem.statistics import (
    Interval,
    holm,
    mann_kendall,
    mean_interval,
    paired_bootstrap,
    paired_difference,
    paired_p,
    sign_flip_p,
    stratified_interval,
    student_t,
    surely_below,
)
from gem.train.baselines import rows
from gem.train.baselines.rows import Bounds, Row, Run
from gem.train.baselines.runs import bounds_of, row_changes, score_of, scores_of
from gem.train.baselines.study import Cell, Part, Study

POLICIES = {
    "random": "random play",
    "before": "before RL",
    "before_greedy": "greedy before",
    "after": "after RL",
    "greedy": "greedy after",
    "optimum": "solver",
}
"""The policies that a row has figures of, and their names in tables."""

P_VALUE = 0.025
"""Largest p-value at which a trend is significant."""

NORMAL = 1.96
"""Half width of a 95% interval, in standard errors, of many values."""

LEAST_POINTS = 10
"""Minimum number of points in the last third of a curve for a trend."""

ENOUGH_SEEDS = 8
"""Minimum number of seeds for a bootstrap and a p-value by signs, which is never below 2^(1 - seeds)."""

LEAST_GAIN = 0.01
"""Smallest change over the last third that counts, as a share of the distance between random play and the
solver; for success, one percentage point."""

Measure = Literal["success", "return", "turns"]


class Curve(NamedTuple):
    """The score over parts of a run, and the episodes at their ends."""

    episodes: list[float]
    scores: list[float]


class Trend(NamedTuple):
    """The trend of the last third of a curve, and its change in the units of the score."""

    says: Literal["rising", "falling", "flat"]
    gain: float


@dataclass(frozen=True)
class CellSummary:
    """A cell over its seeds; a figure is the mean over them, with Student's t interval.

    `over`: the seeds whose run took more CPU seconds than the study expects. `below_random`: the seeds whose
    warm-up ended below random play, beyond noise. `stale`: the settings in which
    the row differs from the present study; nothing of such a row counts.
    """

    cell: Cell
    measure: Measure
    runs: Mapping[int, Run]
    failed: Mapping[int, Run]
    missing: tuple[int, ...]
    figures: Mapping[str, Interval]
    trend: Trend | None
    over: tuple[int, ...]
    below_random: tuple[int, ...]
    stale: tuple[str, ...]
    row: Row | None

    @property
    def cpu_s(self) -> float | None:
        """Mean CPU seconds of a run."""
        return fmean(run.cpu_s for run in self.runs.values()) if self.runs else None

    def count_in_training(self, *names: str) -> float | None:
        """Return the sum, over the training episodes of all runs, of a metric or the product of several.

        It is of the means that the curves hold. None where a curve lacks a metric, as older rows do.
        """
        total = 0.0
        for run in self.runs.values():
            ends, *columns = (run.curve.get(name, []) for name in ("episodes", *names))
            if not ends or any(len(column) != len(ends) or None in column for column in columns):
                return None
            for begin, end, *means in zip([0, *ends], ends, *columns, strict=False):
                total += ((end or 0) - (begin or 0)) * prod(mean or 0 for mean in means)
        return total

    @property
    def whole(self) -> bool:
        """Whether every seed has finished."""
        return not self.failed and not self.missing

    @property
    def scores(self) -> dict[int, float]:
        """The score of each seed's trained policy."""
        measured = {seed: score_of(run.figures, self.measure) for seed, run in self.runs.items()}
        return {seed: score for seed, score in measured.items() if score is not None}

    @property
    def noise(self) -> dict[int, float]:
        """The half width of the interval that the evaluation of each seed's trained policy has by itself."""
        every = {seed: bounds_of(run.figures, self.measure) for seed, run in self.runs.items()}
        return {seed: _half_width(bounds) for seed, bounds in every.items() if bounds is not None}

    def pairs(self, first: str, second: str) -> dict[int, tuple[float, float]]:
        """Return the scores of two policies by seed, of the seeds that have both."""
        pairs = {}
        for seed, run in self.runs.items():
            one, other = (score_of(run.figures, self.measure, policy) for policy in (first, second))
            if one is not None and other is not None:
                pairs[seed] = one, other
        return pairs

    @property
    def narrow(self) -> bool:
        """Whether the interval after RL was narrower than the seeds' evaluations make it; see widen()."""
        scores = list(self.scores.values())
        return len(scores) > 1 and is_too_narrow(mean_interval(scores), list(self.noise.values()))

    @property
    def state(self) -> str:
        """What is missing in a cell that is not whole, as text; empty where it is."""
        if self.stale:
            return f"not run (its row is of another {', '.join(self.stale)})"
        if not self.runs and not self.failed:
            return "not run"
        parts = []
        if self.failed:
            parts.append(f"{_seeds(self.failed)} failed")
        if self.missing:
            parts.append(f"{_seeds(self.missing)} not run")
        return ", ".join(parts)

    @property
    def curves(self) -> list[Curve]:
        """The curve of each seed that has one."""
        name = "reward" if self.measure == "return" else self.measure
        curves = []
        for run in self.runs.values():
            pairs = zip(run.curve.get("episodes", []), run.curve.get(name, []), strict=False)
            known = [(at, value) for at, value in pairs if at is not None and value is not None]
            if known:
                curves.append(Curve([at for at, _ in known], [value for _, value in known]))
        return curves

    @property
    def alike(self) -> bool:
        """Whether all curves have the same points; they have not where a run stopped early."""
        return len({tuple(curve.episodes) for curve in self.curves}) == 1


@dataclass(frozen=True)
class Gain:
    """How much better a cell's trained policy is than that before RL, over seeds in pairs.

    `interval` is of sampled play, `greedy` of greedy play, where all seeds have it: RL that only makes a
    policy surer of what it does gains in the first alone. `corrected` is Holm's p-value over all gains.
    """

    cell: Cell
    measure: Measure
    interval: Interval
    greedy: Interval | None
    p: float | None
    narrow: bool
    corrected: float | None = None


@dataclass(frozen=True)
class Difference:
    """How much higher a variant's score is than the first variant's, over the seeds that both have finished.

    `corrected` is Holm's p-value over the differences that can be tested so far. Both p-values are None where
    all seeds differ by the same amount, which cannot be tested. `narrow`: see is_too_narrow(). `bootstrap`
    and `signs`, the p-value of all choices of signs, assume no normal distribution; they need `ENOUGH_SEEDS`.
    """

    environment: Part
    variant: Part
    measure: Measure
    interval: Interval
    p: float | None
    narrow: bool = False
    corrected: float | None = None
    bootstrap: Interval | None = None
    signs: float | None = None


Tested = TypeVar("Tested", Gain, Difference)


@dataclass(frozen=True)
class Aggregate:
    """A variant over environments: the interquartile mean of its normalised scores."""

    variant: Part
    interval: Interval


@dataclass(frozen=True)
class Summary:
    """All figures of a study that tables show.

    `aggregated` are the environments that the aggregates are over; `left_out` says why others are not.
    `strange` are files beside the rows that belong to no cell.
    """

    study: Study
    cells: tuple[CellSummary, ...]
    gains: tuple[Gain, ...]
    differences: tuple[Difference, ...]
    aggregates: tuple[Aggregate, ...]
    aggregated: tuple[str, ...]
    left_out: Mapping[str, str]
    strange: tuple[str, ...]

    def of(self, environment: Part) -> list[CellSummary]:
        """Return the cells of an environment."""
        return [each for each in self.cells if each.cell.environment is environment]


def summarise_study(study: Study) -> Summary:
    """Summarise the rows of a study.

    Raises:
        StoreError: for a row that cannot be read.
    """
    cells = tuple(each for part in study.environments for each in _cells(study, part))
    known = {study.row_of(cell).name for cell in study.cells}
    files = sorted(path.name for path in study.rows.glob("*.json"))
    spans, left_out = {}, {}
    for part in study.environments:
        own = [each for each in cells if each.cell.environment is part]
        span = references(own)
        if not all(each.whole for each in own):
            left_out[part.name] = "not every cell is finished"
        elif span is None:
            left_out[part.name] = "the solver is missing, or not above random play"
        else:
            spans[part.name] = span
    return Summary(
        study=study,
        cells=cells,
        gains=_gains(cells),
        differences=_differences(study, cells),
        aggregates=_aggregates(study, cells, spans),
        aggregated=tuple(spans),
        left_out=left_out,
        strange=tuple(name for name in files if name not in known),
    )


def _cells(study: Study, environment: Part) -> list[CellSummary]:
    """Return the cells of an environment, all measured alike."""
    read: list[tuple[Cell, Row | None, list[str]]] = []
    for cell in study.cells:
        if cell.environment is environment:
            row = rows.read_row(study.row_of(cell))
            stale = [] if row is None else row_changes(study, cell, row)
            read.append((cell, None if stale else row, stale))
    every = [run for _, row, _ in read if row is not None for run in row.runs.values() if run.error is None]
    silent = any(figures.success is None for run in every for figures in run.figures.values())
    measure = measure_of(study, silent)
    return [_cell(study, cell, row, stale, measure) for cell, row, stale in read]


def measure_of(study: Study, silent: bool) -> Measure:
    """Return the measure that a study's score means; `silent`: the environment does not report success."""
    if study.score == "auto":
        return "return" if silent else "success"
    return study.score


def _cell(study: Study, cell: Cell, row: Row | None, stale: Sequence[str], measure: Measure) -> CellSummary:
    by_seed = (
        {} if row is None else {seed: row.runs[str(seed)] for seed in study.seeds if str(seed) in row.runs}
    )
    runs = {seed: run for seed, run in by_seed.items() if run.error is None}
    figures = {}
    for policy in POLICIES:
        if scores := scores_of([run.figures for run in runs.values()], measure, policy):
            figures[policy] = over_seeds(scores, measure)
    claimed = cell.environment.cpu_s
    summary = CellSummary(
        cell=cell,
        measure=measure,
        runs=runs,
        failed={seed: run for seed, run in by_seed.items() if run.error is not None},
        missing=tuple(seed for seed in study.seeds if seed not in by_seed),
        figures=figures,
        trend=None,
        over=tuple(seed for seed, run in runs.items() if claimed is not None and run.cpu_s > claimed),
        below_random=tuple(seed for seed, run in runs.items() if _below_random(run)),
        stale=tuple(stale),
        row=row,
    )
    if summary.narrow:
        noise = list(summary.noise.values())
        known = {**figures, "after": over_seeds(list(summary.scores.values()), measure, noise)}
        summary = replace(summary, figures=known)
    span = references([summary])
    scale = 1.0 if measure == "success" or span is None else abs(span[1] - span[0])
    curves = [curve.scores for curve in summary.curves]
    return replace(summary, trend=trend(curves, scale) if summary.alike else None)


def _below_random(run: Run) -> bool:
    """Return whether a run's warm-up ended below random play, in success where it is reported."""
    figures = [run.figures[name] for name in ("before", "random") if name in run.figures]
    known = [_interval(bounds) for each in figures if (bounds := each.success or each.reward)]
    return len(known) == 2 and surely_below(*known)


def _interval(bounds: Bounds) -> Interval:
    low = -math.inf if bounds.low is None else bounds.low
    return Interval(bounds.mean, low, math.inf if bounds.high is None else bounds.high, bounds.n, bounds.n)


def _half_width(bounds: Bounds) -> float:
    return 0.0 if bounds.low is None or bounds.high is None else (bounds.high - bounds.low) / 2


def over_seeds(scores: Sequence[float], measure: Measure, noise: Sequence[float] = ()) -> Interval:
    """Return the mean over seeds and Student's t interval; that of a rate is cut at 0 and 1.

    It is widened to what `noise`, the half widths of the scores' own intervals, leaves.
    """
    interval = mean_interval(scores)
    if len(scores) > 1 and is_too_narrow(interval, noise):
        interval = widen(interval, noise)
    if measure != "success":
        return interval
    return interval._replace(low=max(0.0, interval.low), high=min(1.0, interval.high))


def is_too_narrow(interval: Interval, noise: Sequence[float]) -> bool:
    """Return whether an interval over seeds is narrower than the evaluations of its scores alone make it.

    Seeds differ at least as much as their evaluations do by chance, but a few of them may seem to agree.
    `noise`: the half width of the interval of each score; of a difference, the least that it can be.
    """
    return interval.high - interval.low < 2 * math.hypot(*noise) / interval.n


def widen(interval: Interval, noise: Sequence[float]) -> Interval:
    """Return an interval over seeds, as wide as the evaluations alone make it; see is_too_narrow()."""
    half = math.hypot(*noise) / interval.n / NORMAL * student_t.quantile(0.975, interval.n - 1)
    return interval._replace(low=interval.mean - half, high=interval.mean + half)


def least_noise(difference: float, count: int) -> float:
    """Return the smallest half width that evaluations leave of a difference between two rates.

    Both are of the same `count` instances, so that their noise may cancel. But differences of -1, 0 and 1
    whose mean is d have a variance of |d| (1 - |d|) at least.
    """
    share = min(1.0, abs(difference))
    return NORMAL * math.sqrt(share * (1 - share) / count)


def trend(curves: Sequence[Sequence[float]], scale: float) -> Trend | None:
    """Return the trend of the mean of curves in its last third; None where that has too few points.

    It is rising or falling where the Mann-Kendall test is significant at `P_VALUE` and the straight line
    through it changes by more than `LEAST_GAIN` of `scale`. Flat means that neither was seen.
    """
    if not curves or len({len(curve) for curve in curves}) > 1:
        return None
    mean = [fmean(values) for values in zip(*curves, strict=True)]
    last = mean[len(mean) - len(mean) // 3 :]
    if len(last) < LEAST_POINTS:
        return None
    gain = linear_regression(range(len(last)), last).slope * (len(last) - 1)
    rises = mann_kendall(last)
    if rises <= P_VALUE and gain > LEAST_GAIN * scale:
        return Trend("rising", gain)
    if 1 - rises <= P_VALUE and -gain > LEAST_GAIN * scale:
        return Trend("falling", gain)
    return Trend("flat", gain)


def references(cells: Sequence[CellSummary]) -> tuple[float, float] | None:
    """Return the mean scores of random play and of the solver over all runs of an environment.

    None where a run has no solver, or where not every solver is better than all random play.
    """
    if not cells:
        return None
    measure = cells[0].measure
    results = [run.figures for each in cells for run in each.runs.values()]
    low, high = (scores_of(results, measure, policy) for policy in ("random", "optimum"))
    if not low or not high:
        return None
    if max(high) >= min(low) if measure == "turns" else min(high) <= max(low):
        return None
    return fmean(low), fmean(high)


def _gains(cells: Sequence[CellSummary]) -> tuple[Gain, ...]:
    gains = []
    for each in cells:
        sampled, greedy = each.pairs("before", "after"), each.pairs("before_greedy", "greedy")
        if len(sampled) < 2:
            continue
        interval, narrow = _measure_gain(each, sampled, "after")
        of_greedy, _ = _measure_gain(each, greedy, "greedy") if greedy.keys() == sampled.keys() else (None, 0)
        gains.append(Gain(each.cell, each.measure, interval, of_greedy, _p(interval), narrow))
    return tuple(_correct(gains))


def _measure_gain(
    cell: CellSummary, pairs: Mapping[int, tuple[float, float]], policy: str
) -> tuple[Interval, bool]:
    """Return the difference that ends with the scores of a policy, and whether its interval was widened."""
    interval = _pair(pairs)
    noise = _least_noises(cell, {seed: after - before for seed, (before, after) in pairs.items()}, policy)
    narrow = is_too_narrow(interval, noise)
    return widen(interval, noise) if narrow else interval, narrow


def _pair(scores: Mapping[int, tuple[float, float]]) -> Interval:
    return paired_difference([one for one, _ in scores.values()], [other for _, other in scores.values()])


def _least_noises(cell: CellSummary, differences: Mapping[int, float], policy: str = "after") -> list[float]:
    """Return the smallest half width that each seed's evaluation of a policy leaves of a difference.

    It is 0 for what is exact, and for what is no rate.
    """
    known = {seed: run.figures[policy].success for seed, run in cell.runs.items()}
    rates = {seed: bounds for seed, bounds in known.items() if bounds is not None and not bounds.exact}
    if cell.measure != "success":
        rates = {}
    return [least_noise(each, rates[seed].n) if seed in rates else 0.0 for seed, each in differences.items()]


def _p(interval: Interval) -> float | None:
    """Return the p-value of a difference; None where all seeds differ by the same amount."""
    return None if interval.high - interval.low < 1e-9 else paired_p(interval)


def _correct(tested: Sequence[Tested]) -> Iterator[Tested]:
    """Yield gains or differences with Holm's p-value over those that can be tested."""
    corrected = iter(holm([each.p for each in tested if each.p is not None]))
    for each in tested:
        yield each if each.p is None else replace(each, corrected=next(corrected))


def _differences(study: Study, cells: Sequence[CellSummary]) -> tuple[Difference, ...]:
    differences = []
    for part in study.environments:
        first, *others = [each for each in cells if each.cell.environment is part]
        for other in others:
            seeds = [seed for seed in study.seeds if seed in first.scores and seed in other.scores]
            if len(seeds) < 2:
                continue
            pairs = [first.scores[seed] for seed in seeds], [other.scores[seed] for seed in seeds]
            interval = paired_difference(*pairs)
            noise = [abs(first.noise[seed] - other.noise[seed]) for seed in seeds]  # least: the same chance
            least = _least_noises(other, {seed: other.scores[seed] - first.scores[seed] for seed in seeds})
            noise = [max(each) for each in zip(noise, least, strict=True)]
            if narrow := is_too_narrow(interval, noise):
                interval = widen(interval, noise)
            difference = Difference(part, other.cell.variant, other.measure, interval, _p(interval), narrow)
            if len(seeds) >= ENOUGH_SEEDS:
                difference = replace(
                    difference, bootstrap=paired_bootstrap(*pairs), signs=sign_flip_p(*pairs)
                )
            differences.append(difference)
    return tuple(_correct(differences))


def _aggregates(
    study: Study, cells: Sequence[CellSummary], spans: Mapping[str, tuple[float, float]]
) -> tuple[Aggregate, ...]:
    """Return each variant over the environments of `spans`; nothing where these are fewer than two."""
    if len(spans) < 2:
        return ()
    aggregates = []
    for variant in study.variants:
        scores_by_env = []
        for each in cells:
            if each.cell.variant is variant and each.cell.environment.name in spans:
                low, high = spans[each.cell.environment.name]
                scores_by_env.append([(score - low) / (high - low) for score in each.scores.values()])
        aggregates.append(Aggregate(variant, stratified_interval(scores_by_env)))
    return tuple(aggregates)


def _seeds(seeds: Mapping[int, Run] | Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def number(value: float, measure: Measure, signed: bool = False) -> str:
    """Return a score as text for tables: a rate in percent, differences of rates in points."""
    if measure != "success":
        digits = 3 if measure == "return" else 2
        return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}%"


def with_interval(interval: Interval, measure: Measure, signed: bool = False) -> str:
    """Return a mean over seeds as text, with its interval or the reason why there is none."""
    mean = number(interval.mean, measure, signed)
    if interval.n < 2:
        return f"{mean} (one seed)"
    if interval.high - interval.low < 1e-9:
        return f"{mean} (the same on all {interval.n} seeds)"
    bounds = f"{number(interval.low, measure, signed)} to {number(interval.high, measure, signed)}"
    return f"{mean} ({bounds})"
