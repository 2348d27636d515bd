"""Results of policies on environments that they were not trained on, over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from gem.statistics import Interval, paired_difference
from gem.train.baselines import rows
from gem.train.baselines.runs import scores_of
from gem.train.baselines.study import Cell
from gem.train.baselines.summary import Measure, Summary, measure_of, over_seeds

MOVED = ("random", "before", "after")
"""The policies that have figures on other environments."""


@dataclass(frozen=True)
class Moved:
    """The results of a cell's policies on another environment: figures over seeds, by policy (`MOVED`).

    `gains`: how much better the trained policy does than each other one, over seeds in pairs; None where a
    figure is missing or only one seed has run.
    """

    cell: Cell
    elsewhere: str
    measure: Measure
    figures: dict[str, Interval | None]
    gains: dict[str, Interval | None]


def summarise_transfer(summary: Summary) -> list[Moved]:
    """Return the results of each cell's policies on other environments; those not run are left out."""
    results = []
    for each in summary.cells:
        wanted = summary.study.transfers(each.cell, summary.study.config(each.cell))
        for name, config in wanted.items():
            task = rows.task_of(config)
            every = [run.transfer[name] for run in each.runs.values() if name in run.transfer]
            runs = [one.figures for one in every if one.task == task]
            if not runs:
                continue
            reached = [figures for run in runs for figures in run.values()]
            silent = any(one.success is None for one in reached)
            measure = measure_of(summary.study, silent)
            scores = {policy: scores_of(runs, measure, policy) for policy in MOVED}
            figures = {policy: over_seeds(own, measure) if own else None for policy, own in scores.items()}
            trained = scores.pop("after")
            gains = {
                policy: paired_difference(own, trained) if own and trained and len(runs) > 1 else None
                for policy, own in scores.items()
            }
            results.append(Moved(each.cell, name, measure, figures, gains))
    return results
