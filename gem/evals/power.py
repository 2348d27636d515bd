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
    there are two. `worst`: nobody knows how the noise splits into that between tasks and that within, and the
    worst split is taken.
    """

    env: str
    tasks: int
    samples: float
    scored: int
    held: int
    own: tuple[Noise, ...]
    difference: Noise | None = None
    worst: bool = False

    def error(self, tasks: int, samples: int) -> float | None:
        """Return the standard error of a figure, of the noisier agent; None where it cannot be told."""
        found = [self._variance(each, tasks, samples) for each in self.own]
        return max(math.sqrt(each) for each in found if each is not None) if None not in found else None

    def unpaired(self, tasks: int, samples: int) -> float | None:
        """Return the variance of the difference of agents on tasks of their own."""
        one, other = (self._variance(each, tasks, samples) for each in (self.own[0], self.own[-1]))
        return None if one is None or other is None else one + other

    def paired(self, tasks: int, samples: int, alike: float) -> float | None:
        """Return the variance of the difference of agents on the same tasks.

        `alike` is the correlation of the agents' own means of the tasks; of two runs it was measured, and is
        not asked for.
        """
        if self.difference is not None:
            return self._variance(self.difference, tasks, samples)
        (own,) = self.own
        if self.worst:
            splits = [noise_of_rate(own.mean, share) for share in (0.0, own.mean * (1 - own.mean))]
            return 2 * max(each.variance(tasks, samples, alike) for each in splits)
        one = None if own.within is None and alike else own.variance(tasks, samples, alike)
        return None if one is None else 2 * one

    def _variance(self, of: Noise, tasks: int, samples: int) -> float | None:
        return None if of.within is None and samples > 1 else of.variance(tasks, samples)


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
        tasks = [task for task, _, _ in whole]
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
    own = noise_of_rate(rate, 0.0 if within is None else within)
    return Suite("plan", 0, 0, 0, 0, (own,), worst=within is None)


@dataclass(frozen=True, slots=True)
class Floor:
    """What so many tasks and samples show: the standard error, and the smallest differences.

    None: what was played does not tell: each task was sampled once, or nothing varied.
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
    sums: dict[float, list[tuple[int, int, list[float | None]]]] = {}
    for suite in known:
        for scale in scales:
            n = max(2, round(scale * (tasks or suite.tasks)))
            k = samples or max(1, round(suite.samples))
            error = suite.error(n, k)
            variances = [None if error is None else error**2, suite.unpaired(n, k), suite.paired(n, k, alike)]
            found.append(_floor(suite.env, n, k, variances, level, power))
            sums.setdefault(scale, []).append((n, k, variances))
    if len(known) > 1:
        for each in sums.values():
            columns = zip(*(variances for _, _, variances in each), strict=True)
            means = [
                None if None in column else math.fsum(v or 0.0 for v in column) / len(known) ** 2
                for column in columns
            ]
            n, k = sum(n for n, _, _ in each), max(k for _, k, _ in each)
            found.append(_floor("all", n, k, means, level, power))
    return found


def _floor(
    env: str, tasks: int, samples: int, variances: Sequence[float | None], level: float, power: float
) -> Floor:
    error, unpaired, paired = (each or None for each in variances)  # no noise at all: nothing is known of it
    return Floor(
        env,
        tasks,
        samples,
        None if error is None else math.sqrt(error),
        None if unpaired is None else smallest_difference(unpaired, tasks, level, power, paired=False),
        None if paired is None else smallest_difference(paired, tasks, level, power),
    )
