"""The command ``gem-gym power``: the noise floor of a suite, and the smallest difference that it can show."""

from __future__ import annotations

import json as json_module
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.compare import damaged_of
from gem.cli.terms import MaybeFloat, MaybeInt, MaybeText, table
from gem.content import printable
from gem.errors import BadArgument
from gem.evals import read_run
from gem.evals.outcomes import Metric
from gem.evals.power import Floor, Suite, floors, planned, suites

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The table goes over so many times as many tasks."""


def power(
    run: Annotated[Positional[tuple[Path, ...]], arg(metavar="[RUN [RUN_B]]", help_behavior_hint="")] = (),
    tasks: Annotated[MaybeInt, arg(aliases=["-n"])] = None,
    samples: Annotated[MaybeInt, arg(aliases=["-k"])] = None,
    rate: MaybeFloat = None,
    within: MaybeFloat = None,
    alike: float = 0.5,
    power: float = 0.8,
    metric: Metric = "success",
    seat: MaybeText = None,
    json: bool = False,
) -> int:
    """Say how small a difference a suite can show: of a stored run, of two, or of a plan by its --rate.

    A figure varies because tasks differ (`between`) and because samples of one task do (`within`); more
    samples lower the latter alone, more tasks both. `unpaired` is the smallest difference that two agents on
    tasks of their own show, `paired` on the same tasks, at a 95% interval and with the probability --power.
    Of two runs the noise of their differences is measured. Over several environments `all` is their mean.

    Where so few tasks show no difference at all, there is none (`-`).

    Where each task was sampled once, nobody can tell `between` from `within`, and the worst split is taken.

    Args:
        run: a folder of `gem-gym eval --out`, or a file of episodes; a second one of another agent.
        tasks: tasks of each environment; as many as the run has when left out.
        samples: samples of each task; as many as the run has when left out, and 1 in a plan.
        rate: without a run: the rate of success that is expected.
        within: without a run: the variance within a task, at most rate * (1 - rate); the worst when left out.
        alike: how alike two agents find the tasks hard: the correlation of their rates, from 0 to 1; of two
            runs it is measured.
        power: how often such a difference is to be shown.
        metric: success or return.
        seat: of a game of several, whose success and return vary.
        json: print the figures as JSON.
    """
    if len(run) > 2:
        raise BadArgument(f"{len(run)} runs were named; accepted: one, or two of different agents.")
    if run:
        if rate is not None or within is not None:
            raise BadArgument("a run tells its rate and variances; leave --rate and --within out.")
        runs = [read_run(each, seat) for each in run]
        for each in runs:
            if each.damaged:
                print(printable(f"warning: {damaged_of(each)}"), file=sys.stderr)
        known = suites([each.outcomes for each in runs], metric)
    elif rate is None or tasks is None:
        raise BadArgument(
            "name a run, or give -n (tasks) and --rate, as in `gem-gym power -n 200 --rate 0.6`."
        )
    elif metric != "success":
        raise BadArgument("--rate is a rate of success; the noise of a return takes a run.")
    else:
        known, samples = [planned(rate, within)], samples or 1
    found = floors(known, SCALES, tasks=tasks, samples=samples, alike=alike, power=power)
    if metric == "success":
        found = [_within_rates(each) for each in found]
    found = list(dict.fromkeys(found))  # of few tasks several scales are alike
    if json:
        print(
            json_module.dumps({"noise": [_plain(each) for each in known], "floors": list(map(asdict, found))})
        )
        return 0
    if run:
        _show_noise(known, metric)
    if any(own.within is None for suite in known for own in suite.own):
        print("What varies between tasks, and what within, is not known: the worst is taken.\n")
    print(f"the smallest difference{', in percentage points' if metric == 'success' else ''}:\n")
    rows = [_cells(each, metric) for each in found]
    table("env", "tasks", "samples", "standard error", "unpaired", "paired", rows=rows)
    return 0


def _show_noise(known: list[Suite], metric: Metric) -> None:
    rows: list[tuple[object, ...]] = []
    for suite in known:
        for i, own in enumerate(suite.own):
            rows.append(
                (
                    printable(suite.env),
                    "AB"[i],
                    suite.tasks,
                    f"{suite.samples:.3g}",
                    f"{own.mean:.1%}" if metric == "success" else f"{own.mean:.3f}",
                    *_split(own.between, own.within),
                    f"{suite.scored / suite.held:.1%}",
                )
            )
    head = ["env", "run", "tasks", "samples", metric, "between", "within", "coverage"]
    if len(known[0].own) == 1:
        head.remove("run")
        rows = [(row[0], *row[2:]) for row in rows]
    table(*head, rows=rows)
    print()


def _split(between: float, within: float | None) -> tuple[str, str]:
    return ("-", "-") if within is None else (f"{between:.4f}", f"{within:.4f}")


def _within_rates(floor: Floor) -> Floor:
    """Return a floor without the differences that no two rates have: so few tasks show none."""
    unpaired, paired = (
        None if value is None or value >= 1 else value for value in (floor.unpaired, floor.paired)
    )
    return replace(floor, unpaired=unpaired, paired=paired)


def _cells(floor: Floor, metric: Metric) -> list[str]:
    figures = [_amount(value, metric) for value in (floor.error, floor.unpaired, floor.paired)]
    return [printable(floor.env), str(floor.tasks), str(floor.samples), *figures]


def _amount(value: float | None, metric: Metric) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{100 * value:.1f}" if metric == "success" else f"{value:.3g}"


def _plain(suite: Suite) -> dict[str, object]:
    plain = {**asdict(suite), "own": [own._asdict() for own in suite.own]}
    return {**plain, "difference": suite.difference and suite.difference._asdict()}
