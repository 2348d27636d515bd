"""Show text of models and environments as HTML: always escaped, with invisible characters made visible.

Control characters, marks that change the direction of writing, and half surrogates are shown by their names,
so that they cannot affect the page. Long text is cut; the full text has its own address.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from markupsafe import Markup, escape

from gem.content import Image

LONGEST = 20_000
"""The most characters of one text that a page shows."""
BOARD_LINES = 3
"""The fewest lines of a board."""
BOARD_CELLS = 1600
"""The most cells of a board; a larger one is shown as text."""

TRACEBACK = "Traceback (most recent call last):"

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_RULE = frozenset("-+|= \t")
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
"""The first bytes of the picture types that a page shows; the declared type is not trusted. SVG is not
accepted, because it can contain scripts."""


def visible(text: str) -> str:
    """Return text with invisible characters replaced by their names."""
    return _UNSEEN.sub(lambda match: f"<{_name(match[0])}>", text)


def render_text(text: object, longest: int = LONGEST) -> Markup:
    """Return text as HTML, cut after `longest` characters with a note of how many more there are."""
    given = str(text)
    whole = given[:longest]
    pieces: list[Markup] = []
    at = 0
    for match in _UNSEEN.finditer(whole):
        pieces.append(escape(whole[at : match.start()]))
        pieces.append(Markup('<span class="unseen">{}</span>').format(_name(match[0])))
        at = match.end()
    pieces.append(escape(whole[at:]))
    if len(given) > longest:
        pieces.append(Markup('<span class="cut"> … {:,} more characters</span>').format(len(given) - longest))
    return Markup("").join(pieces)


def _name(character: str) -> str:
    code = ord(character)
    return "ESC" if code == 0x1B else f"U+{code:04X}"


def pretty(text: str) -> str:
    """Return JSON text indented, one value per line; other text unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) if len(text) < LONGEST else text
    except (ValueError, RecursionError):
        return text


def picture_type(image: Image) -> str | None:
    """Return the media type of a picture by its first bytes; None if that type is not shown."""
    if image.data[:4] == b"RIFF" and image.data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _PICTURES if image.data.startswith(start)), None)


class Cell(NamedTuple):
    """A cell of a board: its text, position, and kind; the kind "label" is a row or column label."""

    text: str
    x: float
    y: float
    kind: str


class Board(NamedTuple):
    """A board: its cells, the lines between its parts, and its size in cells."""

    cells: list[Cell]
    lines: list[tuple[float, float, float, float]]
    width: float
    height: float
    text: str


def blocks(text: str) -> list[str | Board]:
    """Split a text into prose and boards; a board is lines with the same number of short words."""
    pieces: list[str | Board] = []
    prose: list[str] = []
    lines = text[:LONGEST].split("\n")
    at = 0
    while at < len(lines):
        end = _board_end(lines, at)
        board = _board(lines[at:end]) if end - at >= BOARD_LINES else None
        if board is None:  # all that was looked at, or text of many such lines would take a long time
            end = max(end, at + 1)
            prose += lines[at:end]
            at = end
            continue
        if prose:
            pieces.append("\n".join(prose))
            prose = []
        pieces.append(board)
        at = end
    if prose:
        pieces.append("\n".join(prose))
    return pieces


def split_code(text: str) -> list[tuple[bool, str]]:
    """Split a text into prose and code, in order; True: code, which is fenced, or a traceback of Python."""
    pieces: list[tuple[bool, list[str]]] = []
    fence = ""
    trace = False
    for line in text.split("\n"):
        bare = line.strip()
        ticks = bare[: len(bare) - len(bare.lstrip("`"))]
        opens = not fence and len(ticks) >= 3 and "`" not in bare[len(ticks) :]
        trace = not fence and (bool(bare) if trace else bare == TRACEBACK)
        code = bool(fence) or opens or trace
        if not pieces or pieces[-1][0] != code or opens:
            pieces.append((code, []))
        pieces[-1][1].append(line)
        if opens:
            fence = ticks
        elif fence and bare == ticks and len(ticks) >= len(fence):
            fence = ""
    return [(code, "\n".join(lines)) for code, lines in pieces]


def diff_lines(code: str) -> list[tuple[str, str]] | None:
    """Return the lines of a fenced diff, each with its kind: add, del, or same; None for other code."""
    first, *lines = code.split("\n")
    if first.strip().strip("`").strip() not in ("diff", "patch"):
        return None
    kinds = {"+": "add", "-": "del"}
    return [("same", first), *((kinds.get(line[:1], "same"), line) for line in lines)]


def _words(line: str) -> list[str]:
    """Return the cells of a line of a board, without the separators between them."""
    words = line.split()
    if len(words) < 3 or max(map(len, words)) > 2:
        return []
    return words


def _board_end(lines: list[str], start: int) -> int:
    """Return the line after the board that starts at `start`; `start` if none starts there."""
    first = _words(lines[start])
    if not first:
        return start
    end = start
    cells = len([word for word in first if word != "|"])
    while end < len(lines):
        words = [word for word in _words(lines[end]) if word != "|"]
        rule = end > start and _is_rule(lines[end])
        # A line of labels above has no label of its own in front.
        if not rule and len(words) != cells and not (end == start + 1 and len(words) == cells + 1):
            break
        if not rule:
            cells = len(words)
        end += 1
    while end > start and _is_rule(lines[end - 1]):
        end -= 1
    return end


def _is_rule(line: str) -> bool:
    """Return whether a line is a drawn separator between parts of a board."""
    return "-" in line and _RULE.issuperset(line) and not _words(line)


def _board(lines: list[str]) -> Board | None:
    rows: list[list[str]] = []
    cuts_y: set[int] = set()
    cuts_x: set[int] = set()
    for line in lines:
        if _is_rule(line):
            cuts_y.add(len(rows))
            continue
        row: list[str] = []
        for word in line.split():
            if word == "|":
                cuts_x.add(len(row))
            else:
                row.append(word)
        rows.append(row)
    width = max(map(len, rows))
    if len(rows) < BOARD_LINES or len(rows) * width > BOARD_CELLS:
        return None
    numbers = [str(number) for number in range(width + 1)]
    head = rows[0] in (numbers[1:], numbers[1:width], numbers[:width], numbers[: width - 1])
    foot = not head and rows[-1] in (numbers[1:], numbers[:width])
    side = head and len(rows[0]) == width - 1
    cells = []
    for y, row in enumerate(rows):
        gap = width - len(row)
        for x, word in enumerate(row):
            label = (y == 0 and head) or (y == len(rows) - 1 and foot) or (x == 0 and side and y > 0)
            kind = "label" if label else _kind(word)
            cells.append(Cell(word, x + gap, y, kind))
    across = [(float(x), 0.0, float(x), float(len(rows))) for x in cuts_x if 0 < x < width]
    down = [(0.0, float(y), float(width), float(y)) for y in cuts_y if 0 < y < len(rows)]
    return Board(cells, across + down, width, len(rows), "\n".join(lines))


def _kind(word: str) -> str:
    if word in (".", "_", "-", "~", "?"):
        return "empty"
    if word.isdigit():
        return f"n{int(word) % 10}" if len(word) < 5 and word.isascii() else "other"
    known = {
        "X": "one",
        "O": "two",
        "F": "three",
        "*": "bad",
        "#": "wall",
        "x": "one",
        "o": "two",
        "@": "three",
    }
    return known.get(word, "other")
