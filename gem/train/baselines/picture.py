"""The learning curves of a study as a picture: a panel per environment, a colour per variant."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gem.evals.picture import check_picture, escape_formula
from gem.files import replace_file
from gem.train.baselines.study import Part, Study
from gem.train.baselines.summary import CellSummary, Summary, references

FORM = 4
"""Version number of the drawing: pictures of another version are drawn again."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart; their yellow is too light for lines."""

DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)))
"""Line styles of the first seven variants, of the next seven, and so on."""

STYLES: list[dict[str, Any]] = [{"color": colour, "linestyle": dash} for dash in DASHES for colour in COLOURS]

ACROSS = 3
"""Maximum number of panels side by side."""

MOST_SEEDS = 6
"""Maximum number of variants of a panel whose seeds are drawn. More would hide one another."""


def picture_path(study: Study, folder: Path) -> Path:
    """Return the path of a study's picture."""
    return folder / f"{study.name}.png"


def write_picture(summary: Summary, folder: Path) -> Path | None:
    """Draw the curves of a study into a folder, unless the file there shows the same ones.

    Returns None where there is nothing to draw.

    Raises:
        StoreError: when it cannot be written. MissingExtra: without matplotlib.
    """
    if not any(each.curves for each in summary.cells):
        return None
    path = picture_path(summary.study, folder)
    if shows(path, summary):
        return path
    check_picture(path)
    with replace_file(path, parents=True) as partial:
        _draw(summary, partial)
    return path


def shows(path: Path, summary: Summary) -> bool:
    """Return whether a picture was drawn of exactly these curves: it holds their digest."""
    try:
        return digest(summary).encode() in path.read_bytes()
    except OSError:
        return False


def digest(summary: Summary) -> str:
    """Return a digest of everything that is drawn."""
    drawn = [
        [each.cell.environment.name, each.cell.variant.name, each.measure, each.curves]
        for each in summary.cells
    ]
    spans = [levels(summary.of(part)) for part in summary.study.environments]
    return hashlib.sha256(json.dumps([FORM, summary.study.title, drawn, spans]).encode()).hexdigest()


def panels(summary: Summary) -> list[Part]:
    """Return the environments that have a curve."""
    return [part for part in summary.study.environments if any(each.curves for each in summary.of(part))]


def draws_seeds(cells: Sequence[CellSummary]) -> bool:
    """Return whether a panel has few enough variants to show each seed."""
    return sum(bool(each.curves) for each in cells) <= MOST_SEEDS


def levels(cells: Sequence[CellSummary]) -> tuple[float, float] | None:
    """Return the heights of the lines of random play and the solver: their scores, in the unit of the curve.

    A curve of turns has the length of every episode; a score in turns counts a failure as one more.
    """
    span = references(cells)
    if span is None or cells[0].measure != "turns":
        return span
    runs = [run for each in cells for run in each.runs.values()]
    random, solver = ([run.figures[name].turns or 0.0 for run in runs] for name in ("random", "optimum"))
    return fmean(random), fmean(solver)


def _draw(summary: Summary, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

    parts = panels(summary)
    across = min(ACROSS, len(parts))
    down = -(-len(parts) // across)
    figure = Figure(figsize=(max(6.4, 3.9 * across), 0.9 + 3.1 * down), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    every = figure.subplots(down, across, squeeze=False).flatten()
    handles: dict[str, Any] = {}
    for axes, part in itertools.zip_longest(every, parts):
        if part is None:
            axes.set_visible(False)
            continue
        cells = summary.of(part)
        seeds = draws_seeds(cells)
        for each, style in zip(cells, itertools.cycle(STYLES), strict=False):
            if each.curves:
                handles.setdefault(each.cell.variant.name, _draw_cell(axes, each, style, seeds))
        if (span := levels(cells)) is not None:
            for level, dash, name in ((span[0], ":", "random play"), (span[1], "--", "solver")):
                line = axes.axhline(level, color="#666666", linewidth=1.1, linestyle=dash, zorder=0)
                handles.setdefault(name, line)
        success = cells[0].measure == "success"
        if success:
            axes.set_ylim(-0.02, 1.04)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_title(escape_formula(part.name), fontsize=10)
        axes.set_xlabel("training episodes", fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_ylabel({"turns": "turns per episode"}.get(cells[0].measure, cells[0].measure), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
        for edge in ("top", "right"):
            axes.spines[edge].set_visible(False)
    named = ("random play", "solver")
    order = [*(name for name in handles if name not in named), *(name for name in named if name in handles)]
    entry = 0.6 + 0.08 * max(len(name) for name in order)  # inches, of a line and a name of 9 points
    figure.legend(
        [handles[name] for name in order],
        [escape_formula(name) for name in order],
        loc="outside lower center",
        ncols=min(len(order), max(1, int(figure.get_figwidth() / entry))),
        fontsize=9,
        frameon=False,
    )
    figure.savefig(path, format="png", metadata={"Description": digest(summary)})


def _draw_cell(axes: Any, each: CellSummary, style: dict[str, Any], seeds: bool) -> Any:
    """Draw the mean of a cell's seeds and, if `seeds`, each seed and their range.

    Each seed alone where they have no points in common.
    """
    if not each.alike:
        lines = [axes.plot(*curve, linewidth=1.1, alpha=0.8, **style)[0] for curve in each.curves]
        return lines[0]
    episodes = each.curves[0].episodes
    at = list(zip(*(curve.scores for curve in each.curves), strict=True))
    if seeds:
        lowest, highest = [min(values) for values in at], [max(values) for values in at]
        axes.fill_between(episodes, lowest, highest, color=style["color"], alpha=0.1, linewidth=0)
        for curve in each.curves:
            axes.plot(*curve, linewidth=0.6, alpha=0.45, **style)
    (line,) = axes.plot(episodes, [fmean(values) for values in at], linewidth=1.8, **style)
    return line
