"""Compare two runs on the same tasks: which agent is better, by how much, and what could be shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gem.errors import BadArgument, GemError, check_argument
from gem.evals.fairness import unfair
from gem.evals.outcomes import (
    METRICS,
    Metric,
    Outcome,
    advise_on_seats,
    check_returns,
    group_environments,
    have_rates,
    share_names,
)
from gem.evals.results import EnvResult, bounds
from gem.evals.scorecard import MIN_COVERAGE
from gem.rollout.store import EpisodeStore, find_store
from gem.statistics import (
    Interval,
    combine,
    holm,
    paired_bootstrap,
    paired_difference,
    paired_p,
    rate_interval,
    return_interval,
    score_difference,
    sign_flips,
    smallest_rate_difference,
    student_t,
)
from gem.statistics.combining import count_clusters
from gem.statistics.power import POWER, count_pairs

ALL = "all"
"""The name of the row over environments."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Two runs, A and B, compared on one environment, or over all of them.

    A pair is one sample of one task that both played. `of` is the number of samples in either run; in `pairs`
    of them, from `tasks` tasks, the success (or return) of both is known. All figures are from these pairs.
    `a_held` and `b_held` are the numbers of samples in each run, `a_scored` and `b_scored` the known ones.

    `a`, `b` and `difference` (B - A) are means with their intervals, `bootstrap` is the difference with a
    bootstrap interval. Only A won `lost` pairs, only B won `won` pairs. `p` is the p-value of no difference,
    `corrected` is corrected for the number of environments. `at_least` and `at_most` are the bounds of the
    difference of success, with all that are not known counted for A or for B. `smallest` is the smallest
    difference that this number of tasks would show with a power of 80%, where p is below the corrected level;
    None if none could be shown.

    `better` is the better run, if that is shown; `headline` is the result in words. If coverage is too low,
    there is no headline, and `withheld` has the reason.
    """

    env: str
    tasks: int
    pairs: int
    of: int
    a_held: int
    a_scored: int
    b_held: int
    b_scored: int
    a: Interval | None = None
    b: Interval | None = None
    difference: Interval | None = None
    bootstrap: Interval | None = None
    lost: int | None = None
    won: int | None = None
    p: float | None = None
    corrected: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    smallest: float | None = None
    better: Literal["A", "B"] | None = None
    headline: str | None = None
    withheld: str | None = None

    @property
    def coverage(self) -> float:
        """The share of samples in either run whose success (or return) is known in both."""
        return self.pairs / self.of if self.of else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; numbers that are not finite become None."""
        plain: dict[str, Any] = {**asdict(self), "coverage": self.coverage}
        for name in ("a", "b", "difference", "bootstrap"):
            plain[name] = bounds(getattr(self, name))
        return plain


@dataclass(frozen=True, slots=True)
class Change:
    """A pair whose two values differ: success as 0 or 1, or the return; with the ids of its episodes.

    `task` is the id of the row of data, where `name_changes` read it.
    """

    env: str
    seed: int | None
    sample: int
    a: float
    b: float
    a_episode: str
    b_episode: str
    task: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs: by environment, and the mean over environments with equal weights.

    `alone` has the environments that only one run has; they are left out of all figures, and `overall` has no
    headline then: the run that lacks one might have lost there. `warnings` say where
    the comparison is not fair. `changes` has the pairs that differ, the largest loss of B first.
    """

    metric: Metric
    level: float
    min_coverage: float
    rows: tuple[Paired, ...]
    overall: Paired
    alone: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "metric": self.metric,
            "level": self.level,
            "min_coverage": self.min_coverage,
            "environments": [row.to_json() for row in self.rows],
            "overall": self.overall.to_json(),
            "alone": list(self.alone),
            "warnings": list(self.warnings),
            "changes": [asdict(change) for change in self.changes],
        }


def compare(
    a: Sequence[Outcome],
    b: Sequence[Outcome],
    *,
    metric: Metric = "success",
    min_coverage: float = MIN_COVERAGE,
    level: float = 0.95,
) -> Comparison:
    """Compare two runs on the samples of tasks that both played, with the same agent or different ones.

    For success, the interval is `score_difference`, and p is McNemar's exact test (`sign_flips` for several
    samples per task), and for returns that are rates (`have_rates`). For others, both use Student's t
    (`paired_difference`); where all tasks differ alike, p is that of equal signs. The samples of a task are
    one cluster. A bootstrap interval (`paired_bootstrap`) is reported too. On one environment an agent is
    better if p, corrected for the number of environments (Holm), is below ``1 - level`` and the interval is
    on one side of 0. Over several environments, the interval of the mean must be on one side of 0. Those
    whose pairs share tasks (prompts of the same rows, keywords or tools of the same id, seats of the same
    game) count there as one sample.

    Samples whose success (or return) is not known in a run, and samples in only one run, are left out of all
    figures; both lower the coverage.

    Args:
        a: the outcomes of the first run.
        b: the outcomes of the second run.
        metric: success, or return.
        min_coverage: the share of pairs of which both values are known that a headline needs.
        level: the level of the intervals.

    Raises:
        BadArgument: when there are no pairs, or for arguments that are not accepted.
    """
    check_argument("metric", metric, metric in METRICS, ", ".join(METRICS))
    check_argument("min_coverage", min_coverage, 0 <= min_coverage <= 1, "between 0 and 1, such as 0.95")
    b = share_names(a, b)
    named = dict.fromkeys(outcome.env for outcome in (*a, *b))
    envs = [{outcome.env for outcome in run} for run in (a, b)]
    rows, warnings, changes, paired = [], [], list[Change](), list[Outcome]()
    for env in named:
        if not all(env in each for each in envs):
            continue
        one, other = ({_key(o): o for o in run if o.env == env} for run in (a, b))
        pairs = [*_pair(one, other, metric)]
        rows.append(_row(env, one, other, pairs, metric, level, len(envs[0] & envs[1])))
        changes += _changes(pairs)
        paired += [of_a for of_a, *_ in pairs]
        warnings += [f"{env}: {each}" for each in _unfair(rows[-1])]
    if not {_key(one) for one in a} & {_key(other) for other in b}:
        raise BadArgument(_nothing_pairs(a, b))
    if not any(row.pairs for row in rows):
        raise BadArgument(
            _nothing_scored(rows, metric, advise_on_seats((*a, *b)) if metric == "success" else "")
        )
    if metric == "return":
        warnings += check_returns(o for o in (*a, *b) if o.env in envs[0] & envs[1])
    ps = [row.p for row in rows if row.p is not None]
    corrected = iter(holm(ps))
    rows = [row if row.p is None else replace(row, corrected=next(corrected)) for row in rows]
    rows = [_add_headline(row, metric, min_coverage, 1 - level) for row in rows]
    alone = tuple(env for env in named if not all(env in each for each in envs))
    groups = group_environments(paired, [row.env for row in rows])
    overall = _overall(rows, groups, metric, min_coverage, level)
    if alone and overall.withheld is None:
        lost = {name: [env for env in named if env not in own] for name, own in zip("AB", envs, strict=True)}
        why = "; ".join(f"{name} lacks {', '.join(those)}" for name, those in lost.items() if those)
        overall = replace(overall, better=None, headline=None, withheld=f"no headline: {why}")
    changes.sort(key=lambda change: change.b - change.a)
    return Comparison(
        metric, level, min_coverage, tuple(rows), overall, alone, tuple(warnings), tuple(changes)
    )


Key = tuple[str, int, int]


def _key(outcome: Outcome) -> Key:
    return outcome.task, outcome.sample, outcome.repeat


Pair = tuple[Outcome, Outcome, float, float]
"""A sample of both runs, and its value in each."""


def _pair(a: dict[Key, Outcome], b: dict[Key, Outcome], metric: Metric) -> Iterator[Pair]:
    """Yield the samples that have a value in both runs."""
    for key, one in a.items():
        if (other := b.get(key)) is not None:
            first, second = one.value(metric), other.value(metric)
            if first is not None and second is not None:
                yield one, other, first, second


def _row(
    env: str,
    a: dict[Key, Outcome],
    b: dict[Key, Outcome],
    pairs: Sequence[Pair],
    metric: Metric,
    level: float,
    tests: int,
) -> Paired:
    """Return the figures of an environment, without a headline, which depends on all environments.

    `tests`: the number of environments, for which p is corrected.
    """
    keys = dict.fromkeys((*a, *b))
    low = high = 0.0
    for key in keys:
        one, other = (run[key].value(metric) if key in run else None for run in (a, b))
        low += (0.0 if other is None else other) - (1.0 if one is None else one)
        high += (1.0 if other is None else other) - (0.0 if one is None else one)
    tasks = [of_a.cluster for of_a, *_ in pairs]
    row = Paired(
        env=env,
        tasks=len({*tasks}),
        pairs=len(pairs),
        of=len(keys),
        a_held=len(a),
        a_scored=sum(outcome.value(metric) is not None for outcome in a.values()),
        b_held=len(b),
        b_scored=sum(outcome.value(metric) is not None for outcome in b.values()),
        at_least=low / len(keys) if metric == "success" else None,
        at_most=high / len(keys) if metric == "success" else None,
    )
    if not pairs:
        return row
    first, second = [value for *_, value, _ in pairs], [value for *_, value in pairs]
    # Most returns are rates, of which by Student's t a few equal ones would be certain.
    rates = have_rates((*a.values(), *b.values()), metric)
    compare_pairs = _compare_rates if rates else _compare_values
    row = compare_pairs(row, tasks, first, second, level, 1 - (1 - level) / tests)
    row = replace(row, bootstrap=paired_bootstrap(first, second, tasks, level))
    if metric == "success":
        return row
    same = all(map(math.isclose, first, second))
    return replace(row, lost=None, won=None, smallest=0.0 if same else row.smallest)


def _compare_rates(
    row: Paired,
    tasks: Sequence[str],
    first: Sequence[float],
    second: Sequence[float],
    level: float,
    needed: float,
) -> Paired:
    """Return a row with the figures of pairs of 0 and 1; `needed`: the level of p, corrected for tests."""
    counts: dict[str, list[int]] = {}
    for task, one, other in zip(tasks, first, second, strict=True):
        own = counts.setdefault(task, [0, 0, 0])
        own[0] += one > other
        own[1] += other > one
        own[2] += 1
    lost, won, sizes = zip(*counts.values(), strict=True)
    smallest = math.inf
    if not _is_too_few(row.tasks, needed):
        changes = paired_difference(first, second, tasks, level)
        one = math.fsum((b - a - changes.mean) ** 2 for a, b in zip(first, second, strict=True)) / row.pairs
        error = (changes.high - changes.mean) / student_t.quantile((1 + level) / 2, row.tasks - 1)
        worth = row.tasks if row.pairs == row.tasks else count_pairs(one, error**2, row.tasks, level)
        smallest = smallest_rate_difference(one, worth, needed)
    return replace(
        row,
        a=rate_interval(first, tasks, level),
        b=rate_interval(second, tasks, level),
        difference=score_difference(lost, won, sizes, level),
        lost=sum(lost),
        won=sum(won),
        p=sign_flips([up - down for down, up in zip(lost, won, strict=True)]),
        smallest=smallest if smallest <= 1 else None,
    )


def _compare_values(
    row: Paired,
    tasks: Sequence[str],
    first: Sequence[float],
    second: Sequence[float],
    level: float,
    needed: float,
) -> Paired:
    """Return a row with the figures of pairs of any values; see _compare_rates()."""
    difference = paired_difference(first, second, tasks, level)
    p = paired_p(difference, level)
    if difference.low == difference.high and _is_too_few(row.tasks, level):  # so few equal ones are chance
        difference = difference._replace(low=-math.inf, high=math.inf)
    return replace(
        row,
        a=return_interval(first, tasks, level),
        b=return_interval(second, tasks, level),
        difference=difference,
        p=p,
        smallest=None if _is_too_few(row.tasks, needed) else _find_smallest(difference, level, needed),
    )


def _is_too_few(tasks: int, level: float) -> bool:
    """Return whether p is too large even where all tasks differ in the same direction."""
    return 2.0 ** (1 - tasks) >= 1 - level


def _changes(pairs: Iterable[Pair]) -> Iterator[Change]:
    for one, other, first, second in pairs:
        if not math.isclose(first, second):
            yield Change(one.env, one.seed, one.sample, first, second, one.episode, other.episode)


def name_changes(comparison: Comparison, run: str | Path) -> Comparison:
    """Return a comparison whose changes have the ids of their rows, read from the store of run A."""
    named = []
    with EpisodeStore(find_store(Path(run)), read_only=True) as store:
        for change in comparison.changes:
            with suppress(GemError):  # what cannot be read has none
                change = replace(change, task=store.get(change.a_episode).task_id)
            named.append(change)
    return replace(comparison, changes=tuple(named))


def _find_smallest(difference: Interval, level: float, needed: float, most: float = math.inf) -> float | None:
    """Return the difference that would be shown with a power of 80%; None if none below `most` would.

    It follows from the width of the interval at `level`, where a difference is shown at the level `needed`.
    """
    df = difference.clusters - 1
    if df < 1:
        return None
    asked, given = (student_t.quantile((1 + each) / 2, df) for each in (needed, level))
    half = (difference.high - difference.low) / 2
    smallest = half * (asked + student_t.quantile(POWER, df)) / given
    return smallest if smallest < most else None


def _add_headline(row: Paired, metric: Metric, min_coverage: float, alpha: float) -> Paired:
    """Return a row with its headline, or with the reason why there is none."""
    if row.coverage < min_coverage or row.difference is None:
        return replace(row, withheld=_why(row, metric, min_coverage))
    significant = row.corrected is None or row.corrected < alpha
    better: Literal["A", "B"] | None = None
    if significant and row.difference.low > 0:
        better = "B"
    elif significant and row.difference.high < 0:
        better = "A"
    return replace(row, better=better, headline=_headline(row, better, significant, metric))


def _headline(row: Paired, better: str | None, significant: bool, metric: Metric) -> str:
    """Return the result in words; `significant`: whether p alone would show a difference."""
    if better and row.difference is not None:
        return f"{better} is better, by {amount(abs(row.difference.mean), metric)}"
    if row.difference is not None and row.corrected is not None:
        if not row.difference.low <= 0 <= row.difference.high:
            return f"no difference shown: the interval does not contain 0, but p is {row.corrected:.3f}"
        if significant:
            return f"no difference shown: p is {row.corrected:.3f}, but the interval contains 0"
    if row.smallest == 0:  # only for returns; other runs could still show a difference
        if row.pairs > row.tasks:
            return f"no difference: each of {row.tasks} tasks has the same mean {metric}"
        return f"no difference: each of {row.pairs} pairs has the same {metric}"
    if row.smallest is None:
        return f"no difference shown, and none could be: too few tasks ({row.tasks})"
    return f"no difference shown; smallest that could be seen: {amount(row.smallest, metric)}"


def _why(row: Paired, metric: Metric, min_coverage: float) -> str:
    """Return why a row has no headline."""
    both = row.a_held + row.b_held - row.of
    lacks = {
        f"{metric} not known": {"A": row.a_held - row.a_scored, "B": row.b_held - row.b_scored},
        "in one run alone": {"A": row.a_held - both, "B": row.b_held - both},
    }
    reasons = []
    for what, counts in lacks.items():
        if named := [f"{count} of {name}" for name, count in counts.items() if count]:
            reasons.append(f"{what}: {', '.join(named)}")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"no headline: coverage is {row.coverage:.1%}, {row.pairs} of {row.of} pairs{why}; "
        f"{min_coverage:.0%} is asked for"
    )


def amount(value: float, metric: Metric) -> str:
    """Return a difference as text; for rates, in percentage points."""
    return f"{100 * value:.1f} points" if metric == "success" else f"{value:.3g}"


def _overall(
    rows: Sequence[Paired], groups: Sequence[int], metric: Metric, min_coverage: float, level: float
) -> Paired:
    """Return the mean over environments; for a single environment, its row.

    Those of one group share tasks, so they are no independent evidence; see `combined`.
    """
    if len(rows) == 1:
        return replace(rows[0], env=ALL)
    known = [row for row in rows if row.difference is not None]
    of_known = [group for row, group in zip(rows, groups, strict=True) if row.difference is not None]
    sums = {
        name: sum(getattr(row, name) for row in rows)
        for name in ("pairs", "of", "a_held", "a_scored", "b_held", "b_scored")
    }
    of_success = metric == "success"
    difference = combine([row.difference for row in known if row.difference is not None], None, of_known)
    overall = Paired(
        env=ALL,
        tasks=count_clusters([row.tasks for row in rows], groups),
        **sums,
        a=combine([row.a for row in known if row.a is not None], None, of_known),
        b=combine([row.b for row in known if row.b is not None], None, of_known),
        difference=difference,
        bootstrap=combine([row.bootstrap for row in known if row.bootstrap is not None], None, of_known),
        lost=sum(row.lost or 0 for row in known) if of_success else None,
        won=sum(row.won or 0 for row in known) if of_success else None,
        at_least=sum(row.at_least or 0.0 for row in rows) / len(rows) if of_success else None,
        at_most=sum(row.at_most or 0.0 for row in rows) / len(rows) if of_success else None,
        smallest=_find_smallest(difference, level, level, 1.0 if of_success else math.inf),
    )
    if low := [row.env for row in rows if row.withheld]:
        return replace(overall, withheld=f"no headline: coverage is too low on {', '.join(low)}")
    return _add_headline(overall, metric, min_coverage, 1 - level)


def _unfair(row: Paired) -> list[str]:
    counts = {"A": (row.a_held, row.a_scored), "B": (row.b_held, row.b_scored)}
    return unfair({name: EnvResult(row.env, *own, None, None, None, None) for name, own in counts.items()})


def _nothing_pairs(a: Sequence[Outcome], b: Sequence[Outcome]) -> str:
    """Return an error text: the tasks of each run, and how they differ."""
    sides = "; ".join(f"{name} holds {_holds(run)}" for name, run in (("A", a), ("B", b)))
    if {o.env for o in a} & {o.env for o in b}:
        why = "their tasks differ: evaluate both with the same --seed, keywords, wrappers and files"
    else:
        why = "they share no environment"
    return f"the runs have no pairs, because {why}. {sides}."


def _holds(run: Sequence[Outcome]) -> str:
    if not run:
        return "nothing"
    parts = []
    for env in list(dict.fromkeys(o.env for o in run))[:5]:
        own = [o for o in run if o.env == env]
        parts.append(
            f"{len(own)} samples of {len({o.task for o in own})} tasks of {env}, as {own[0].task:.160}"
        )
    more = len({o.env for o in run}) - len(parts)
    return ", ".join(parts) + (f" and {more} environments more" if more > 0 else "")


def _nothing_scored(rows: Sequence[Paired], metric: Metric, seats: str) -> str:
    sides = "; ".join(
        f"{row.env}: A has {row.a_scored} of {row.a_held}, B {row.b_scored} of {row.b_held}"
        for row in rows[:5]
    )
    way_out = (
        f" Where the seats of a game end differently, each has its own success: {seats}."
        if seats
        else " If an environment does not report success, compare the return: --metric return."
        if metric == "success"
        else ""
    )
    return f"no pair has a {metric} on both sides ({sides}).{way_out}"
