"""Power of a suite of environments: the smallest difference that it can show, from runs or from a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gem.errors import BadArgument, check_argument, check_least
from gem.evals.outcomes import Metric, Outcome, advise_on_seats, group_environments, have_rates, share_names
from gem.statistics import Noise, noise, noise_of_rate, smallest_difference, smallest_rate_difference
from gem.statistics.combining import count_clusters
from gem.statistics.intervals import members_of
from gem.statistics.paired import subtract_pairs
from gem.statistics.power import LARGEST, count_pairs, find_smallest


@dataclass(frozen=True, slots=True)
class Suite:
    """The noise on one environment, as far as it is known.

    `own` has the noise of each agent: of one (the other agent is then assumed to have the same), or of two.
    `difference` is the noise of the differences of two agents on the same samples. `tasks` and `samples` (the
    mean per task) are the observed numbers; `scored` of `total` samples have a verdict, by both agents if
    there are two. If the split of the noise into between and within tasks is unknown, the worst split is
    assumed. Environments of one `group` share tasks; None: it shares
    none. `of_rates`: the figures are rates of success.
    """

    env: str
    tasks: int
    samples: float
    scored: int
    total: int
    own: tuple[Noise, ...]
    difference: Noise | None = None
    group: int | None = None
    of_rates: bool = False

    def alone(self, tasks: int, samples: int) -> float:
        """Return the variance of a figure, for the agent with more noise."""
        return max(_variance(own, tasks, samples) for own in self.own)

    def unpaired_variance(self, tasks: int, samples: int) -> float:
        """Return the variance of the difference of agents on different tasks."""
        return _variance(self.own[0], tasks, samples) + _variance(self.own[-1], tasks, samples)

    def paired_variance(self, tasks: int, samples: int, alike: float) -> float:
        """Return the variance of the difference of agents on the same tasks.

        `alike` is the correlation of the agents' task means; for two runs it is measured, and `alike` is not
        used.
        """
        if self.difference is not None:
            return _variance(self.difference, tasks, samples)
        return 2 * _variance(self.own[0], tasks, samples, alike)

    def split(self, share: float) -> Suite:
        """Return it with this share of the noise between tasks, where the split is unknown."""

        def split(of: Noise) -> Noise:
            if of.within is not None:
                return of
            return of._replace(between=share * of.between, within=(1 - share) * of.between)

        own = tuple(map(split, self.own))
        return replace(self, own=own, difference=self.difference and split(self.difference))

    def scale(self, difference: float) -> float:
        """Return by how much noise changes if one of two rates is on the side of 1/2, by a difference.

        Over several environments, the difference may be larger than this one's can be: then by the largest.
        For figures that are no rates, and two runs, it is as observed.
        """
        own = self.own[0]
        variance = own.between + (own.within or 0.0)
        if not self.of_rates or len(self.own) > 1 or not variance:
            return 1.0
        other = min(1.0, max(0.0, own.mean + (difference if own.mean < 0.5 else -difference)))
        return (variance + other * (1 - other)) / (2 * variance)

    @property
    def most(self) -> float:
        """The largest difference that is possible; infinite for figures that are no rates."""
        rate = self.own[0].mean
        return math.inf if not self.of_rates else 1.0 if len(self.own) > 1 else max(rate, 1 - rate)


def _variance(of: Noise, tasks: int, samples: int, alike: float = 0.0) -> float:
    if of.within is not None:
        return of.variance(tasks, samples, alike)
    splits = (of._replace(within=0.0), of._replace(between=0.0, within=of.between))
    return max(each.variance(tasks, samples, alike) for each in splits)


RETURNS: dict[Metric, str] = {
    "success": " If an environment does not report success, use the return: --metric return.",
    "return": "",
}


def suites(runs: Sequence[Sequence[Outcome]], metric: Metric = "success") -> list[Suite]:
    """Return the noise on each environment, from one run, or from two runs on the same tasks.

    Environments with fewer than two tasks with a verdict are left out. Of rates (`have_rates`), the variance
    is at least that of a rate with two added successes and two added failures, so that a run which won
    everything still has noise.

    Raises:
        BadArgument: when no environment has two tasks with a verdict.
    """
    runs = [runs[0], *(share_names(runs[0], run) for run in runs[1:])]
    suites, played = [], list[Outcome]()
    for env in dict.fromkeys(outcome.env for run in runs for outcome in run):
        by_run = [
            {(o.task, o.sample, o.repeat): o.value(metric) for o in run if o.env == env} for run in runs
        ]
        by_sample = {
            key: [value for run in by_run if (value := run.get(key)) is not None]
            for key in dict.fromkeys(key for run in by_run for key in run)
        }
        whole = {key: values for key, values in by_sample.items() if len(values) == len(runs)}
        outcomes = {(o.task, o.sample, o.repeat): o for o in runs[0] if o.env == env}
        tasks = [outcomes[key].cluster for key in whole]
        if len({*tasks}) < 2:
            continue
        played += [outcomes[key] for key in whole]
        sides = [[values[i] for values in whole.values()] for i in range(len(runs))]
        differences = subtract_pairs(sides[0], sides[-1])
        own = tuple(noise(side, tasks) for side in sides)
        between_them = noise(differences, tasks) if len(runs) > 1 else None
        of_rates = have_rates((o for run in runs for o in run if o.env == env), metric)
        if of_rates:
            own = tuple(_at_least(each, _of_rate(each.mean, len({*tasks}))) for each in own)
            if between_them is not None:
                differ = _plus_four(math.fsum(map(abs, differences)) / len(tasks), len({*tasks}))
                between_them = _at_least(between_them, differ - between_them.mean**2)
        suites.append(
            Suite(
                env,
                tasks=len({*tasks}),
                samples=len(tasks) / len({*tasks}),
                scored=len(whole),
                total=len(by_sample),
                own=own,
                difference=between_them,
                of_rates=of_rates,
            )
        )
    groups = group_environments(played, [suite.env for suite in suites])
    suites = [replace(suite, group=group) for suite, group in zip(suites, groups, strict=True)]
    if not suites:
        both = " that both runs played" if len(runs) > 1 else ""
        seats = advise_on_seats(o for run in runs for o in run) if metric == "success" else ""
        advice = f" Where the seats of a game end differently, each has its own success: {seats}."
        raise BadArgument(
            f"no environment has two tasks with a {metric}{both}; a variance needs two or more."
            f"{advice if seats else RETURNS[metric]}"
        )
    return suites


def find_left_out(runs: Sequence[Sequence[Outcome]], known: Sequence[Suite]) -> list[str]:
    """Return the environments of the runs that have no known noise; see suites()."""
    runs = [runs[0], *(share_names(runs[0], run) for run in runs[1:])]
    here = {suite.env for suite in known}
    return [env for env in dict.fromkeys(o.env for run in runs for o in run) if env not in here]


def _plus_four(rate: float, tasks: int) -> float:
    """Return a rate with two added successes and two added failures.

    If few tasks or none have the rarer outcome, their variance would suggest that there is no noise. Source:
    Agresti and Coull, The American Statistician 52 (1998).
    """
    return (rate * tasks + 2) / (tasks + 4)


def _of_rate(rate: float, tasks: int) -> float:
    rate = _plus_four(rate, tasks)
    return rate * (1 - rate)


def _at_least(observed: Noise, variance: float) -> Noise:
    """Return noise with at least this total variance; the missing part is added between tasks."""
    lacks = variance - observed.between - (observed.within or 0.0)
    return observed._replace(between=observed.between + max(0.0, lacks))


def plan_noise(rate: float, within: float | None = None) -> Suite:
    """Return the noise of a suite that has not been played, from the expected rate of success.

    Args:
        rate: the rate of success.
        within: the variance within a task, at most ``rate * (1 - rate)``; None: the worst case.

    Raises:
        BadArgument: for an invalid rate, or `within` outside the range that the rate allows.
    """
    check_argument("rate", rate, 0 < rate < 1, "between 0 and 1, where success varies")
    own = noise_of_rate(rate, within or 0.0)
    own = own if within is not None else own._replace(within=None)
    return Suite("plan", 0, 0, 0, 0, (own,), of_rates=True)


@dataclass(frozen=True, slots=True)
class Floor:
    """The noise floor for a number of tasks and samples: the standard error, and the smallest differences.

    None: nothing varied, so the noise is unknown.
    """

    env: str
    tasks: int
    samples: int
    error: float | None
    unpaired: float | None
    paired: float | None


def floors(
    known: Sequence[Suite],
    scales: Sequence[float] = (1.0,),
    *,
    tasks: int | None = None,
    samples: int | None = None,
    alike: float = 0.5,
    level: float = 0.95,
    power: float = 0.8,
) -> list[Floor]:
    """Return the noise floor of each environment, and for several ones that of their unweighted mean.

    Args:
        known: the noise by environment.
        scales: factors for the number of tasks; each gives a floor.
        tasks: the tasks per environment; None: the observed number.
        samples: the samples per task; None: the observed number, rounded.
        alike: the correlation of two agents' task means, if only one agent was observed.
        level: the level of the interval that must exclude 0.
        power: the probability to show the difference.

    Raises:
        BadArgument: for arguments that are not accepted.
    """
    check_argument("alike", alike, 0 <= alike <= 1, "between 0 and 1")
    for name, value, least in (("tasks", tasks, 2), ("samples", samples, 1)):
        check_least(name, value, least)
    floors: list[Floor] = []
    for members in ([suite] for suite in known):
        for scale in scales:
            sizes = [_size(suite, scale, tasks, samples) for suite in members]
            floors.append(_floor(members[0].env, members, sizes, alike, level, power))
    for scale in scales if len(known) > 1 else ():
        sizes = [_size(suite, scale, tasks, samples) for suite in known]
        floors.append(_floor("all", known, sizes, alike, level, power))
    return floors


def _size(suite: Suite, scale: float, tasks: int | None, samples: int | None) -> tuple[int, int]:
    return max(2, round(scale * (tasks or suite.tasks))), samples or max(1, round(suite.samples))


def _floor(
    env: str,
    known: Sequence[Suite],
    sizes: Sequence[tuple[int, int]],
    alike: float,
    level: float,
    power: float,
) -> Floor:
    """Return the noise floor of the mean over environments, with a number of tasks and samples for each."""
    groups = [suite.env if suite.group is None else suite.group for suite in known]
    tasks = count_clusters([n for n, _ in sizes], groups)
    of_rates = all(suite.of_rates for suite in known)
    most = min(math.fsum(suite.most for suite in known) / len(known), LARGEST)

    def mean(variances: Iterable[float]) -> float:
        # Errors on the same tasks do not cancel; see `combined`.
        own = members_of([math.sqrt(each) / len(known) for each in variances], groups)
        return math.fsum(math.fsum(each) ** 2 for each in own)

    def paired_variance(difference: float) -> float:
        return mean(
            suite.paired_variance(n, k, alike) * suite.scale(difference)
            for suite, (n, k) in zip(known, sizes, strict=True)
        )

    def unpaired_variance(difference: float) -> float:
        return mean(
            suite.unpaired_variance(n, k) * suite.scale(difference)
            for suite, (n, k) in zip(known, sizes, strict=True)
        )

    def find(variance: Callable[[float], float], paired: bool) -> float:
        if not of_rates:
            return smallest_difference(variance(0.0), tasks, level, power, paired=paired)
        if paired and 2.0 ** (1 - tasks) >= 1 - level:  # p if all tasks differ the same way
            return math.inf
        return find_smallest(
            lambda d: d >= smallest_difference(variance(d), tasks, level, power, paired=paired), most
        )

    paired = find(paired_variance, True)
    if of_rates and len(known) == 1 and paired < math.inf:
        splits = (known[0].split(share) for share in (0.0, 1.0))
        paired = max(_paired_rate(each, *sizes[0], alike, level, power) for each in splits)
    return Floor(
        env,
        tasks,
        max(k for _, k in sizes),
        math.sqrt(mean(suite.alone(n, k) for suite, (n, k) in zip(known, sizes, strict=True))) or None,
        find(unpaired_variance, False) or None,
        paired or None,
    )


def _paired_rate(suite: Suite, tasks: int, samples: int, alike: float, level: float, power: float) -> float:
    """Return the smallest difference of two rates that McNemar's test would show."""
    one, mean = suite.paired_variance(1, 1, alike), suite.paired_variance(tasks, samples, alike)
    pairs = tasks if samples == 1 else count_pairs(one, mean, tasks, level, power)
    return smallest_rate_difference(lambda d: one * suite.scale(d), pairs, level, power, suite.most)
