"""How small a difference a suite of environments can show: of a stored run, of two, or of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gem.errors import BadArgument
from gem.evals.outcomes import Metric, Outcome
from gem.statistics import Noise, noise, noise_of_rate, smallest_difference


@dataclass(frozen=True, slots=True)
class Suite:
    """What is known of the noise on one environment.

    `own` has the noise of each agent: of one, then another like it is what it will be compared with; or of
    two. `difference` is that of the differences of two agents on the same samples of tasks. `tasks` and
    `samples` (of a task, the mean) were seen, `scored` of `held` samples with a verdict, by both agents where
    there are two. Where nobody knows how noise splits into that between tasks and that within, the split is
    taken that is worst for what is asked.
    """

    env: str
    tasks: int
    samples: float
    scored: int
    held: int
    own: tuple[Noise, ...]
    difference: Noise | None = None

    def alone(self, tasks: int, samples: int) -> float:
        """Return the variance of a figure, of the noisier agent."""
        return max(_variance(own, tasks, samples) for own in self.own)

    def unpaired(self, tasks: int, samples: int) -> float:
        """Return the variance of the difference of agents on tasks of their own."""
        return _variance(self.own[0], tasks, samples) + _variance(self.own[-1], tasks, samples)

    def paired(self, tasks: int, samples: int, alike: float) -> float:
        """Return the variance of the difference of agents on the same tasks.

        `alike` is the correlation of the agents' own means of the tasks; of two runs it was measured, and is
        not asked for.
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
    "success": " Where an environment does not say what success is, take the return: --metric return.",
    "return": "",
}


def suites(runs: Sequence[Sequence[Outcome]], metric: Metric = "success") -> list[Suite]:
    """Return what one run, or two on the same tasks, tell of the noise on each environment.

    An environment of fewer than two tasks with a verdict tells nothing, and is left out. Of success the
    variance is that of a rate with two successes and two failures more, at least: so that a run which won
    everything is not taken to be without noise.

    Raises:
        BadArgument: where no environment tells anything.
    """
    found = []
    for env in dict.fromkeys(outcome.env for run in runs for outcome in run):
        mine = [{(o.task, o.sample, o.repeat): o.value(metric) for o in run if o.env == env} for run in runs]
        told = {
            key: [value for run in mine if (value := run.get(key)) is not None]
            for key in dict.fromkeys(key for run in mine for key in run)
        }
        whole = {key: values for key, values in told.items() if len(values) == len(runs)}
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
        found.append(
            Suite(
                env,
                tasks=len({*tasks}),
                samples=len(tasks) / len({*tasks}),
                scored=len(whole),
                held=len(told),
                own=own,
                difference=between_them,
            )
        )
    if not found:
        both = " that both runs played" if len(runs) > 1 else ""
        raise BadArgument(
            f"no environment has two tasks with a {metric}{both}; a variance takes two or more."
            f"{RETURNS[metric]}"
        )
    return found


def _plus_four(rate: float, tasks: int) -> float:
    """Return a rate with two successes and two failures more.

    Where few tasks or none hold the rarer outcome, their variance would say that there is no noise. Source:
    Agresti and Coull, The American Statistician 52 (1998).
    """
    return (rate * tasks + 2) / (tasks + 4)


def _of_rate(rate: float, tasks: int) -> float:
    rate = _plus_four(rate, tasks)
    return rate * (1 - rate)


def _at_least(found: Noise, variance: float) -> Noise:
    """Return noise of at least a variance in all; what lacks is taken to be between tasks."""
    lacks = variance - found.between - (found.within or 0.0)
    return found._replace(between=found.between + max(0.0, lacks))


def planned(rate: float, within: float | None = None) -> Suite:
    """Return the noise of a suite that nobody has played, from the rate of success that is expected.

    Args:
        rate: of success.
        within: the variance within a task, ``rate * (1 - rate)`` at most; None: whatever is worst.

    Raises:
        BadArgument: for a rate that is none, or `within` outside what the rate allows.
    """
    if not 0 < rate < 1:
        raise BadArgument(f"rate is {rate}; accepted: between 0 and 1, where success varies.")
    own = noise_of_rate(rate, within or 0.0)
    return Suite("plan", 0, 0, 0, 0, (own if within is not None else own._replace(within=None),))


@dataclass(frozen=True, slots=True)
class Floor:
    """What so many tasks and samples show: the standard error, and the smallest differences.

    None: nothing varied, so that nothing is known of the noise.
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
    """Return the noise floor of each environment, and over several of the mean that counts each alike.

    Args:
        known: the noise by environment.
        scales: for each of them a floor is found, with so many times as many tasks.
        tasks: of each environment; None: as many as were seen.
        samples: of each task; None: as many as were seen, rounded.
        alike: the correlation between two agents' own means of the tasks, where only one was seen.
        level: of the interval that must not hold 0.
        power: how often the difference is to be shown.

    Raises:
        BadArgument: for arguments that are not accepted.
    """
    if not 0 <= alike <= 1:
        raise BadArgument(f"alike is {alike}; accepted: between 0 and 1.")
    for name, value, least in (("tasks", tasks, 2), ("samples", samples, 1)):
        if value is not None and value < least:
            raise BadArgument(f"{name} is {value}; accepted: {least} or more.")
    found: list[Floor] = []
    for suite in known:
        for scale in scales:
            n, k = _size(suite, scale, tasks, samples)
            variances = suite.alone(n, k), suite.unpaired(n, k), suite.paired(n, k, alike)
            found.append(_floor(suite.env, n, k, variances, level, power))
    for scale in scales if len(known) > 1 else ():
        sizes = [_size(suite, scale, tasks, samples) for suite in known]
        each = [
            (suite.alone(n, k), suite.unpaired(n, k), suite.paired(n, k, alike))
            for suite, (n, k) in zip(known, sizes, strict=True)
        ]
        means = [math.fsum(column) / len(known) ** 2 for column in zip(*each, strict=True)]
        found.append(_floor("all", sum(n for n, _ in sizes), max(k for _, k in sizes), means, level, power))
    return found


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
