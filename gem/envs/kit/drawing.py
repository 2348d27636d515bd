"""Pictures of boards: a canvas with a few drawing methods, which each game's `draw_board` uses.

Everything is drawn at twice its size and scaled down, so that curves and letters are smooth. The font is
Pillow's own, so the machine's fonts do not matter: the same state gives the same bytes under the same release
of Pillow. Pillow is imported when a canvas is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import Any, TypeAlias

from gem.errors import needs_extra

PAPER, INK, RULE, SHADE = "#fbfaf7", "#1f2328", "#8d949e", "#e3e6ea"
RED, GREEN, AMBER, BLUE, GREY = "#c0392b", "#4f9a57", "#c9a227", "#1f5fbf", "#787c7e"
WHITE = "#ffffff"

COLOURS = (
    *("#e6553f", "#3f7fd0", "#4f9a57", "#e0a526", "#8a5cc2", "#3aa6a0", "#d9699e", "#8a6a4f", "#6b7480"),
)
"""Nine colours that are easy to distinguish, for pegs and disks, which also show their numbers."""

SCALE = 2
"""How many times larger than the final picture everything is drawn."""

MARGIN = 12
"""The margin around the drawing, in pixels."""

Point: TypeAlias = tuple[float, float]


class Canvas:
    """A picture to draw on: x runs to the right and y down, in pixels of the final picture."""

    def __init__(self, width: int, height: int, ground: str = PAPER) -> None:
        """Begin with an empty background.

        Raises:
            MissingExtra: without Pillow.
        """
        image, draw, _ = pillow()
        self.width, self.height = width, height
        self._image = image.new("RGB", (width * SCALE, height * SCALE), ground)
        self._draw = draw.Draw(self._image)

    def box(
        self,
        at: Point,
        size: Point,
        fill: str | None = None,
        outline: str | None = None,
        line: float = 1,
        corner: float = 0,
    ) -> None:
        """Draw a rectangle from its upper left corner."""
        (x, y), (width, height) = at, size
        edges = (x * SCALE, y * SCALE, (x + width) * SCALE - 1, (y + height) * SCALE - 1)
        self._draw.rounded_rectangle(edges, corner * SCALE, fill, outline, round(line * SCALE))

    def disk(
        self,
        centre: Point,
        radius: float,
        fill: str | None = None,
        outline: str | None = None,
        line: float = 1,
    ) -> None:
        """Draw a disk or, without `fill`, a ring."""
        x, y = centre
        edges = tuple(v * SCALE for v in (x - radius, y - radius, x + radius, y + radius))
        self._draw.ellipse(edges, fill, outline, round(line * SCALE))

    def line(self, points: Sequence[Point], colour: str = INK, width: float = 1) -> None:
        """Draw a line through the points."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self._draw.line(scaled, colour, round(width * SCALE), "curve")

    def polygon(self, points: Sequence[Point], fill: str) -> None:
        """Fill a polygon."""
        self._draw.polygon([(x * SCALE, y * SCALE) for x, y in points], fill)

    def text(
        self,
        at: Point,
        words: str,
        size: int = 18,
        colour: str = INK,
        anchor: str = "mm",
        bold: bool = False,
    ) -> None:
        """Write a line of text; `anchor`, in Pillow's two letters, says which point of the text is `at`."""
        x, y = at
        stroke = SCALE * size // 36 if bold else 0
        self._draw.text(
            (x * SCALE, y * SCALE),
            words,
            colour,
            font(size * SCALE),
            anchor,
            stroke_width=stroke,
            stroke_fill=colour,
        )

    def png(self) -> bytes:
        """Return the picture as a PNG."""
        written = BytesIO()
        self._image.reduce(SCALE).save(written, "PNG")
        return written.getvalue()


class CellCanvas(Canvas):
    """A canvas with cells in rows and columns, counted from 0.

    With `numbered`, rows and columns are labelled from 1. `above`, `below` and `beside` are the pixels left
    free over the cells, under them, and to the right of them.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        cell: int = 44,
        *,
        numbered: bool = False,
        above: int = 0,
        below: int = 0,
        beside: int = 0,
        ground: str = PAPER,
    ) -> None:
        """Begin with an empty grid."""
        self.cell = cell
        self.left = MARGIN + (22 if numbered else 0)
        self.top = above + self.left
        self.right, self.bottom = self.left + columns * cell, self.top + rows * cell
        super().__init__(self.right + MARGIN + beside, self.bottom + MARGIN + below, ground)
        if numbered:
            for row in range(rows):
                self.text((self.left - 12, self.centre(row, 0)[1]), str(row + 1), 14, GREY)
            for column in range(columns):
                self.text((self.centre(0, column)[0], self.top - 12), str(column + 1), 14, GREY)

    def corner(self, row: float, column: float) -> Point:
        """Return the upper left corner of a cell."""
        return self.left + column * self.cell, self.top + row * self.cell

    def centre(self, row: float, column: float) -> Point:
        """Return the middle of a cell."""
        return self.corner(row + 0.5, column + 0.5)

    def tile(
        self,
        row: int,
        column: int,
        words: str = "",
        fill: str = WHITE,
        colour: str = INK,
        size: int = 0,
        outline: str = RULE,
        bold: bool = False,
    ) -> None:
        """Draw a cell with a few letters in it."""
        self.box(self.corner(row, column), (self.cell, self.cell), fill, outline)
        self.text(self.centre(row, column), words, size or self.cell // 2, colour, bold=bold)

    def block(
        self, row: int, column: int, words: str, fill: str, colour: str = INK, size: int = 0, inset: float = 3
    ) -> None:
        """Draw a rounded cell with a gap to its neighbours."""
        x, y = self.corner(row, column)
        side = self.cell - 2 * inset
        self.box((x + inset, y + inset), (side, side), fill, None, 1, self.cell / 12)
        self.text(self.centre(row, column), words, size or self.cell // 2, colour, bold=True)


def wrap_words(words: str, width: float, size: int) -> list[str]:
    """Return `words` in lines of at most `width` pixels; a longer word has its own line."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def text_width(words: str, size: int) -> float:
    """Return the width of a line of text in pixels."""
    return float(font(size * SCALE).getlength(words)) / SCALE


@cache
def font(size: int) -> Any:
    """Return Pillow's own font in a size."""
    return pillow()[2].load_default(size)


def pillow() -> tuple[Any, Any, Any]:
    """Return Pillow's modules Image, ImageDraw and ImageFont.

    Raises:
        MissingExtra: without Pillow.
    """
    with needs_extra('render_mode="image"', "pillow", "vision"):
        from PIL import Image, ImageDraw, ImageFont
    return Image, ImageDraw, ImageFont
