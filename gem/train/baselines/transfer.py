"""Results of policies on environments that they were not trained on, over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from gem.statistics import Interval
from gem.train.baselines import rows
from gem.train.baselines.runs import measured
from gem.train.baselines.study import Cell
from gem.train.baselines.summary import Measure, Summary, measure_of, over_seeds

MOVED = ("random", "before", "after")
"""The policies that have figures on other environments."""


@dataclass(frozen=True)
class Moved:
    """The results of a cell's policies on another environment: figures over seeds, by policy (`MOVED`)."""

    cell: Cell
    elsewhere: str
    measure: Measure
    figures: dict[str, Interval | None]


def moved(summary: Summary) -> list[Moved]:
    """Return the results of each cell's policies on other environments; those not run are left out."""
    found = []
    for each in summary.cells:
        wanted = summary.study.transfers(each.cell, summary.study.config(each.cell))
        for name, config in wanted.items():
            task = rows.task_of(config)
            every = [run.transfer[name] for run in each.runs.values() if name in run.transfer]
            runs = [found.figures for found in every if found.task == task]
            if not runs:
                continue
            reached = [figures for run in runs for figures in run.values()]
            silent = any(one.success is None for one in reached)
            measure = measure_of(summary.study, silent)
            figures = {}
            for policy in MOVED:
                scores = [measured(run.get(policy), measure) for run in runs]
                known = [score for score in scores if score is not None]
                figures[policy] = over_seeds(known, measure) if len(known) == len(runs) else None
            found.append(Moved(each.cell, name, measure, figures))
    return found
