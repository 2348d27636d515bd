"""What a study's rows come to: each cell's figures over seeds, and how variants compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gem.statistics import Interval, mean_interval
from gem.train.baselines import rows
from gem.train.baselines.rows import Row, Run
from gem.train.baselines.runs import row_changes, score_of
from gem.train.baselines.study import Cell, Study


@dataclass(frozen=True)
class CellSummary:
    """A cell over its seeds; a figure is the mean over them, with Student's t interval.

    `over` are the seeds whose run took more CPU seconds than the study says.
    """

    cell: Cell
    runs: Mapping[int, Run]
    failed: Mapping[int, Run]
    missing: tuple[int, ...]
    figures: Mapping[str, Interval]
    cpu_s: float
    over: tuple[int, ...]
    stale: tuple[str, ...]
    row: Row | None

    @property
    def state(self) -> str:
        """What there is to say of a cell that is not whole; empty where it is."""
        if self.stale:
            return f"not run: its row is of another {', '.join(self.stale)}"
        if not self.runs and not self.failed:
            return "not run"
        said = []
        if self.missing:
            said.append(f"seeds {', '.join(map(str, self.missing))} not run")
        if self.failed:
            said.append(f"seeds {', '.join(map(str, self.failed))} failed")
        if self.over:
            said.append(f"over {self.cell.environment.cpu_s:g} CPU s: seeds {', '.join(map(str, self.over))}")
        return "; ".join(said)


POLICIES = ("random", "before", "after", "greedy", "optimum")


def summarised(study: Study) -> list[CellSummary]:
    """Return the summary of every cell of a study, in its order.

    Raises:
        StoreError: for a row that cannot be read.
    """
    return [_summary(study, cell) for cell in study.cells]


def _summary(study: Study, cell: Cell) -> CellSummary:
    row = rows.read_row(study.row_of(cell))
    stale: list[str] = [] if row is None else row_changes(study, cell, row)
    if stale:
        row = None
    found = (
        {} if row is None else {seed: row.runs[str(seed)] for seed in study.seeds if str(seed) in row.runs}
    )
    runs = {seed: run for seed, run in found.items() if run.error is None}
    figures = {}
    for policy in POLICIES:
        scores = [score_of(run, study.score, policy) for run in runs.values()]
        if scores and all(score is not None for score in scores):
            figures[policy] = mean_interval([score for score in scores if score is not None])
    claimed = cell.environment.cpu_s
    return CellSummary(
        cell=cell,
        runs=runs,
        failed={seed: run for seed, run in found.items() if run.error is not None},
        missing=tuple(seed for seed in study.seeds if seed not in found),
        figures=figures,
        cpu_s=math.fsum(run.cpu_s for run in runs.values()) / len(runs) if runs else math.nan,
        over=tuple(seed for seed, run in runs.items() if claimed is not None and run.cpu_s > claimed),
        stale=tuple(stale),
        row=row,
    )


def shown(interval: Interval | None, interval_too: bool = False) -> str:
    """Return a mean over seeds, with its interval where that is wanted."""
    if interval is None:
        return "-"
    text = f"{interval.mean:.3f}"
    if not interval_too or interval.n < 2:
        return text
    return f"{text} ({interval.low:.3f} to {interval.high:.3f})"
