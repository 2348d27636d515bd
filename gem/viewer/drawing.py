"""Charts as inline SVG: no script, no request; the page's style sheet gives the colours, light or dark.

A chart is drawn at the size at which it is shown, so that its text is as large as the page's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from gem.viewer.formats import percent, short
from gem.viewer.text import visible

MOST_POINTS = 400
"""The most points of a line; if there are more, neighbours are averaged."""
LEFT, RIGHT, TOP, BOTTOM = 46.0, 10.0, 8.0, 22.0
"""The margins of a chart, for its text."""


class Line(NamedTuple):
    """A curve; `low` and `high` are the edges of a band, as long as `y`; `style` is its CSS class."""

    x: Sequence[float]
    y: Sequence[float]
    style: str
    label: str = ""
    low: Sequence[float] = ()
    high: Sequence[float] = ()


class Point(NamedTuple):
    """A value with its interval."""

    x: float
    y: float
    low: float
    high: float
    style: str
    label: str


class Level(NamedTuple):
    """A horizontal reference line, as the score of another policy."""

    y: float
    label: str
    style: str


class Mark(NamedTuple):
    """An event, drawn on the horizontal axis: its position, a short label, and its description."""

    x: float
    label: str
    title: str


def thin_curve(
    x: Sequence[float], y: Sequence[float], most: int = MOST_POINTS
) -> tuple[list[float], list[float]]:
    """Return a curve with about `most` points, each the mean of neighbours; NaN where all are missing."""
    size = -(-len(x) // most) if x else 1
    starts = range(0, len(x), size)
    return [mean(x[i : i + size]) for i in starts], [mean(y[i : i + size]) for i in starts]


def mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, at least two: one alone shows no scale."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / max(1, count)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [value * step for value in range(first, last + 1)] if first < last else ticks(low, high, count + 1)


def format_number(value: float) -> str:
    """Return a number in few characters."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return short(value)
    if abs(value) < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-").replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def share(value: float) -> str:
    """Return a share as a percentage in few characters."""
    return f"{value * 100:.3g}%"


def chart(
    lines: Sequence[Line],
    *,
    width: float,
    height: float,
    shares: bool = False,
    points: Sequence[Point] = (),
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
    name: str = "",
    unit: str = "",
    extent: float | None = None,
) -> Markup:
    """Return a chart.

    Args:
        lines: the curves, the last on top; missing values make a gap.
        width: the width of the chart, in CSS pixels.
        height: the height, in CSS pixels.
        shares: whether the values are shares; the axis then goes from 0 to 1, or just above the highest.
        points: values with intervals.
        levels: horizontal reference lines.
        marks: events on the horizontal axis.
        name: a description of the chart, for screen readers.
        unit: the unit of the horizontal axis.
        extent: the least end of the horizontal axis.
    """
    known = [
        v for line in lines for series in (line.y, line.low, line.high) for v in series if math.isfinite(v)
    ]
    known += [v for point in points for v in (point.y, point.low, point.high) if math.isfinite(v)]
    known += [level.y for level in levels if math.isfinite(level.y)]
    across = [v for line in lines for v in line.x] + [point.x for point in points]
    if not known or not across:
        return Markup('<p class="empty">no figures yet</p>')
    low, high = (0.0, min(1.0, max(known) * 1.08 + 0.02)) if shares else _range(known)
    first, last = min(0.0, *across), max(*across, extent or 0.0, 1.0)
    inner, tall = width - LEFT - RIGHT, height - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        up = (min(max(y, low), high) - low) / (high - low)
        return LEFT + inner * (x - first) / (last - first), TOP + tall * (1 - up)

    form = share if shares else format_number
    pieces = [_axes(width, ticks(low, high, max(2, int(tall // 32))), form, at)]
    pieces += [_foot(ticks(first, last, max(2, int(inner // 90))), height, at, unit, width)]
    for level in levels:
        if math.isfinite(level.y):
            _, y = at(0, level.y)
            pieces.append(
                _fill(
                    '<line class="level {}" x1="{}" x2="{}" y1="{}" y2="{}"/>',
                    level.style,
                    LEFT,
                    width - RIGHT,
                    y,
                    y,
                )
            )
    for line in lines:
        if len(line.low) and len(line.high):
            pieces += [_fill('<path class="band {}" d="{}"/>', line.style, each) for each in _bands(line, at)]
    pieces += [
        _fill('<path class="line {}" d="{}"/>', line.style, _path(line.x, line.y, at)) for line in lines
    ]
    for mark in marks:
        x, _ = at(mark.x, low)
        title = _fill("<title>{}</title>", visible(mark.title))
        pieces.append(
            _fill('<g class="mark">{}<line x1="{}" x2="{}" y1="{}" y2="{}"/>', title, x, x, TOP, TOP + tall)
            + _fill('<path d="M{} {}l-4-7h8z"/></g>', x, TOP + tall)
        )
    for point in points:
        x, y = at(point.x, point.y)
        title = _fill("<title>{}</title>", visible(point.label))
        bar = Markup("")
        if math.isfinite(point.low) and math.isfinite(point.high):
            bar = _fill(
                '<line x1="{}" x2="{}" y1="{}" y2="{}"/>', x, x, at(0, point.low)[1], at(0, point.high)[1]
            )
        pieces.append(
            _fill(
                '<g class="point {}">{}{}<circle cx="{}" cy="{}" r="3"/></g>', point.style, title, bar, x, y
            )
        )
    head = _fill(
        '<svg class="drawn" viewBox="0 0 {} {}" role="img" aria-label="{}">', width, height, visible(name)
    )
    return head + Markup("").join(pieces) + Markup("</svg>")


def bar(parts: Sequence[tuple[str, str, float]]) -> Markup:
    """Return a bar with its parts drawn in proportion; each part has a name, CSS class and amount."""
    whole = math.fsum(amount for _, _, amount in parts)
    if not whole > 0:
        return Markup("")
    at, pieces = 0.0, []
    for name, style, amount in parts:
        wide = 100 * amount / whole
        label = f"{name}: {percent(amount / whole)}"
        pieces.append(
            _fill(
                '<rect class="{}" x="{}" y="0" width="{}" height="8"><title>{}</title></rect>',
                style,
                at,
                wide,
                label,
            )
        )
        at += wide
    summary = ", ".join(f"{name} {percent(amount / whole)}" for name, _, amount in parts)
    head = _fill(
        '<svg class="stops" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">',
        summary,
    )
    return head + Markup("").join(pieces) + Markup("</svg>")


def _range(known: Sequence[float]) -> tuple[float, float]:
    """Return the range of an axis: from 0 if the values are near it, and never empty."""
    low, high = min(known), max(known)
    if low >= 0 and low < 0.6 * high:
        low = 0.0
    span = high - low or abs(high) or 1.0
    return (low if low == 0 else low - 0.08 * span), high + 0.08 * span


At = Callable[[float, float], tuple[float, float]]


def _axes(width: float, values: Sequence[float], form: Callable[[float], str], at: At) -> Markup:
    axes = Markup("")
    for value in values:
        _, y = at(0, value)
        axes += _fill('<line class="rule" x1="{}" x2="{}" y1="{}" y2="{}"/>', LEFT, width - RIGHT, y, y)
        axes += _fill(
            '<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>', LEFT - 6, y + 3.5, form(value)
        )
    return axes


def _foot(values: Sequence[float], height: float, at: At, unit: str, width: float) -> Markup:
    pieces = []
    for value in values:
        x, _ = at(value, 0)
        last = x > width - RIGHT - 30
        label = f"{format_number(value)} {unit}" if unit and value == values[-1] else format_number(value)
        anchor = "end" if last else "middle"
        pieces.append(
            _fill(
                '<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>',
                min(x, width - 2),
                height - 6,
                anchor,
                label,
            )
        )
    return Markup("").join(pieces)


def _path(x: Sequence[float], y: Sequence[float], at: At) -> str:
    """Return the path of a curve; an isolated point becomes a short stroke."""
    pieces, pen = [], "M"
    for one, other in zip(x, y, strict=True):
        if not math.isfinite(other):
            pen = "M"
            continue
        across, up = at(one, other)
        pieces.append(f"{pen}{across:.1f} {up:.1f}" + ("h.1" if pen == "M" else ""))
        pen = "L"
    return "".join(pieces)


def _bands(line: Line, at: At) -> list[str]:
    """Return the outlines of a band, one for each piece without a gap."""
    stretches: list[list[int]] = [[]]
    for place, (low, high) in enumerate(zip(line.low, line.high, strict=True)):
        if math.isfinite(low) and math.isfinite(high):
            stretches[-1].append(place)
        elif stretches[-1]:
            stretches.append([])
    outlines = []
    for places in stretches:
        there = [at(line.x[i], line.high[i]) for i in places]
        back = [at(line.x[i], line.low[i]) for i in reversed(places)]
        if len(places) > 1:
            outlines.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in there + back) + "z")
    return outlines


def _fill(form: str, *values: object) -> Markup:
    """Return a piece of SVG; texts are escaped."""
    return Markup(form).format(*(f"{v:.1f}" if isinstance(v, float) else v for v in values))
