"""The command ``gem-gym power``: the noise of a suite, and the smallest difference that it can detect."""

from __future__ import annotations

import json as json_module
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.compare import damaged_of, refuse_training
from gem.cli.terms import MaybeFloat, MaybeInt, MaybeText, table
from gem.content import printable
from gem.errors import BadArgument
from gem.evals import read_run
from gem.evals.outcomes import Metric, check_returns
from gem.evals.power import Floor, Suite, find_left_out, floors, plan_noise, suites

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors of the number of tasks; the table has a row for each."""


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
    """Estimate the smallest difference that a suite can detect, from one run, two runs, or a planned --rate.

    A figure varies because tasks differ (`between`) and because samples of one task differ (`within`). More
    samples reduce only `within`; more tasks reduce both. `unpaired` is the smallest difference between two
    agents on different tasks that a 95% interval detects with the probability --power; `paired` is the same
    for two agents on the same tasks. With two runs, the noise of their differences is measured. `all` is the
    mean over several environments.

    Success is compared with McNemar's exact test, as by `gem-gym compare`. The noise is that of the rate and
    of one on the side of 50% by that difference: a rate on the other side has less noise, but less room too.
    The sign `-` means that so few tasks can detect no difference at all.

    If each task was sampled once, `between` and `within` cannot be separated, and the worst split is assumed.

    Args:
        run: a folder of `gem-gym eval --out`, or a file of episodes; a second one is of another agent.
        tasks: tasks of each environment; as many as the run has if left out.
        samples: samples of each task; if left out, as many as the run has, or 1 without a run.
        rate: without a run: the expected success rate.
        within: without a run: the variance within a task, at most rate * (1 - rate); the worst if left out.
        alike: the correlation of two agents' success rates over the tasks, from 0 to 1; measured if two runs
            are given.
        power: the probability of detecting the difference.
        metric: success or return.
        seat: in a game of several seats, the seat whose success and return are used.
        json: print the figures as JSON.
    """
    if len(run) > 2:
        raise BadArgument(f"{len(run)} runs were named; accepted: one, or two of different agents.")
    if run:
        if rate is not None or within is not None:
            raise BadArgument("rate and variance are measured from the run; leave --rate and --within out.")
        refuse_training("power", *run)
        runs = [read_run(each, seat) for each in run]
        for each in runs:
            if each.damaged:
                print(printable(f"warning: {damaged_of(each)}"), file=sys.stderr)
        try:
            means = check_returns(o for each in runs for o in each.outcomes) if metric == "return" else []
            for warning in means:
                print(printable(f"warning: {warning}"), file=sys.stderr)
            known = suites([each.outcomes for each in runs], metric)
            for env in find_left_out([each.outcomes for each in runs], known):
                why = f"fewer than two tasks with a {metric}" + " in both runs" * (len(runs) > 1)
                print(printable(f"warning: {env} is left out, also of `all`: {why}."), file=sys.stderr)
        except BadArgument as error:
            raise BadArgument(f"{', '.join(map(str, run))}: {error}") from error
    elif rate is None or tasks is None:
        raise BadArgument(
            "name a run, or give -n (tasks) and --rate, as in `gem-gym power -n 200 --rate 0.6`."
        )
    elif metric != "success":
        raise BadArgument("--rate is a success rate; to estimate the noise of the return, name a run.")
    else:
        known, samples = [plan_noise(rate, within)], samples or 1
    smallest = floors(known, SCALES, tasks=tasks, samples=samples, alike=alike, power=power)
    smallest = list(dict.fromkeys(map(_without_infinite, smallest)))  # of few tasks several scales are alike
    if json:
        print(
            json_module.dumps(
                {"noise": [_plain(each) for each in known], "floors": list(map(asdict, smallest))}
            )
        )
        return 0
    if run:
        _show_noise(known, metric)
    if any(own.within is None for suite in known for own in suite.own):
        print("The variance between and within tasks is not known separately: the worst case is assumed.\n")
    side = ", to a rate on the side of 50%" if len(run) < 2 else ""
    print(f"the smallest difference{f', in percentage points{side}' if metric == 'success' else ''}:\n")
    rows = [_cells(each, metric) for each in smallest]
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
                    f"{suite.scored / suite.total:.1%}",
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


def _without_infinite(floor: Floor) -> Floor:
    """Return a floor without differences beyond those that rates can have."""
    unpaired, paired = (
        None if value is None or math.isinf(value) else value for value in (floor.unpaired, floor.paired)
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
