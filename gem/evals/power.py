"""Power of a suite of environments: the smallest difference that it can show, from runs or from a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gem.errors import BadArgument, check_argument, check_least
from gem.evals.outcomes import Metric, Outcome, advise_on_seats, group_environments, share_names
from gem.statistics import Noise, noise, noise_of_rate, smallest_difference
from gem.statistics.combining import count_clusters
from gem.statistics.intervals import members_of


@dataclass(frozen=True, slots=True)
class Suite:
    """The noise on one environment, as far as it is known.

    `own` has the noise of each agent: of one (the other agent is then assumed to have the same), or of two.
    `difference` is the noise of the differences of two agents on the same samples. `tasks` and `samples` (the
    mean per task) are the observed numbers; `scored` of `total` samples have a verdict, by both agents if
    there are two. If the split of the noise into between and within tasks is unknown, the worst split is
    assumed. Environments of one `group` share tasks; None: it shares
    none.
    """

    env: str
    tasks: int
    samples: float
    scored: int
    total: int
    own: tuple[Noise, ...]
    difference: Noise | None = None
    group: int | None = None

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

    Environments with fewer than two tasks with a verdict are left out. For success, the variance is at least
    that of a rate with two added successes and two added failures, so that a run which won everything still
    has noise.

    Raises:
        BadArgument: when no environment has two tasks with a verdict.
    """
    runs = [runs[0], *(share_names(runs[0], run) for run in runs[1:])]
    suites = []
    for env in dict.fromkeys(outcome.env for run in runs for outcome in run):
        by_run = [
            {(o.task, o.sample, o.repeat): o.value(metric) for o in run if o.env == env} for run in runs
        ]
        by_sample = {
            key: [value for run in by_run if (value := run.get(key)) is not None]
            for key in dict.fromkeys(key for run in by_run for key in run)
        }
        whole = {key: values for key, values in by_sample.items() if len(values) == len(runs)}
        clusters = {(o.task, o.sample, o.repeat): o.cluster for o in runs[0] if o.env == env}
        tasks = [clusters[key] for key in whole]
        if len({*tasks}) < 2:
            continue
        sides = [[values[i] for values in whole.values()] for i in range(len(runs))]
        differences = [values[-1] - values[0] for values in whole.values()]
        own = tuple(noise(side, tasks) for side in sides)
        between_them = noise(differences, tasks) if len(runs) > 1 else None
        if metric == "success":
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
            )
        )
    groups = group_environments(runs[0], [suite.env for suite in suites])
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
    return Suite("plan", 0, 0, 0, 0, (own if within is not None else own._replace(within=None),))


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
    for suite in known:
        for scale in scales:
            n, k = _size(suite, scale, tasks, samples)
            variances = suite.alone(n, k), suite.unpaired_variance(n, k), suite.paired_variance(n, k, alike)
            floors.append(_floor(suite.env, n, k, variances, level, power))
    for scale in scales if len(known) > 1 else ():
        sizes = [_size(suite, scale, tasks, samples) for suite in known]
        each = [
            (suite.alone(n, k), suite.unpaired_variance(n, k), suite.paired_variance(n, k, alike))
            for suite, (n, k) in zip(known, sizes, strict=True)
        ]
        groups = [suite.env if suite.group is None else suite.group for suite in known]
        # Errors on the same tasks do not cancel; see `combined`.
        means = [
            math.fsum(math.fsum(own) ** 2 for own in members_of([*map(math.sqrt, column)], groups))
            / len(known) ** 2
            for column in zip(*each, strict=True)
        ]
        independent = count_clusters([n for n, _ in sizes], groups)
        floors.append(_floor("all", independent, max(k for _, k in sizes), means, level, power))
    return floors


def _size(suite: Suite, scale: float, tasks: int | None, samples: int | None) -> tuple[int, int]:
    return max(2, round(scale * (tasks or suite.tasks))), samples or max(1, round(suite.samples))


def _floor(
    env: str, tasks: int, samples: int, variances: Sequence[float], level: float, power: float
) -> Floor:
    alone, unpaired, paired = variances
    return Floor(
        env,
        tasks,
        samples,
        math.sqrt(alone) or None,
        smallest_difference(unpaired, tasks, level, power, paired=False) or None,
        smallest_difference(paired, tasks, level, power) or None,
    )
