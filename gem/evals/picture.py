"""Draw a comparison: each environment's difference and its interval, in rows."""

from __future__ import annotations

import math
from pathlib import Path

from gem.content import printable
from gem.errors import check_argument, needs_extra
from gem.evals.comparison import Comparison, Paired
from gem.files import explain_errors

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = {"A": "#b3541e", "B": "#1f5fa8", None: "#555555"}
"""Colours by the better run; they differ in lightness too."""

LARGEST = 60_000
"""Largest height of a picture in pixels: 2^16 cannot be drawn."""


def check_picture(path: Path) -> None:
    """Check that draw() can write this file, before anything is computed.

    Raises:
        BadArgument: for an unknown kind of file. MissingExtra: without matplotlib.
    """
    check_argument(
        "the picture",
        path.name,
        path.suffix.lower() in SUFFIXES,
        f"a file that ends in {', '.join(SUFFIXES)}",
    )
    with needs_extra("the picture", "matplotlib", "train"):
        import matplotlib  # noqa: F401


def draw(comparison: Comparison, path: Path, a: str = "A", b: str = "B") -> None:
    """Write the picture of a comparison to a PNG, SVG or PDF file; the suffix decides.

    Args:
        comparison: the result of compare().
        path: the file.
        a: the name of the first run.
        b: the name of the second run.

    Raises:
        BadArgument: for an unknown kind of file. MissingExtra: without matplotlib. StoreError: when the file
            cannot be written.
    """
    check_picture(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    several = len(comparison.rows) > 1
    rows = [*comparison.rows, *([comparison.overall] if several else [])]
    scale = 100.0 if comparison.metric == "success" else 1.0
    figure = Figure(figsize=(8.5, 1.6 + 0.42 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.axvline(0, color="#999999", linewidth=1, zorder=0)
    for place, row in enumerate(rows):
        _draw_row(axes, place, row, scale, row is comparison.overall and several)
    if several:
        axes.axhline(len(rows) - 1.5, color="#cccccc", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    what = "difference in success, percentage points" if scale == 100 else "difference in return"
    axes.set_xlabel(f"{what}, with its {comparison.level:.0%} interval")
    title = f"B − A\nA: {_shorten(a)}\nB: {_shorten(b)}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)  # as wide as the whole picture
    side = axes.secondary_yaxis("right")
    side.set_yticks(range(len(rows)), [_figures(row, scale) for row in rows])
    for each in (axes, side):
        each.tick_params(axis="y", length=0, labelsize=9)
    for edge in ("top", "left", "right"):
        axes.spines[edge].set_visible(False)
    side.spines["right"].set_visible(False)
    dpi = min(150.0, LARGEST / figure.get_figheight())
    with explain_errors(path):
        figure.savefig(path, dpi=dpi, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _draw_row(axes: object, place: int, row: Paired, scale: float, bold: bool) -> None:
    if row.difference is None:
        return
    mean, low, high = (scale * value for value in row.difference[:3])
    colour = COLOURS[row.better]
    style = {"color": colour, "alpha": 0.35 if row.withheld else 1.0}
    plot = axes.plot  # type: ignore[attr-defined]
    if math.isfinite(low) and math.isfinite(high):
        plot([low, high], [place, place], linewidth=3 if bold else 1.8, solid_capstyle="butt", **style)
    plot([mean], [place], marker="D" if bold else "o", markersize=7 if bold else 6, **style)


def _label(row: Paired) -> str:
    return f"{_shorten(row.env)}\n{row.tasks} tasks, coverage {row.coverage:.0%}"


def _figures(row: Paired, scale: float) -> str:
    if row.difference is None:
        return "no pair"
    form = "{:+.1f}" if scale == 100 else "{:+.3g}"
    bounds = row.difference.write_bounds(lambda bound: form.format(scale * bound))
    figures = f"{form.format(scale * row.difference.mean)} ({bounds})"
    return f"{figures}, low coverage" if row.withheld else figures


def _shorten(text: str) -> str:
    """Return a line of text for a picture; of long text, the end."""
    line = printable(text).replace("\n", " ").replace("\t", " ")
    return escape_formula(line if len(line) <= 60 else f"…{line[-59:]}")


def escape_formula(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return text.replace("\\", "/").replace("$", r"\$")
