"""Draw the pictures of the site that no command makes: ``python scripts/site_images.py``.

images/home.png: boards as the environments draw them. images/social.png: the preview of a link to the site
(1200 by 630, as Open Graph recommends). images/concepts.svg: the parts of gem and their relations.
images/readme.png: made from images/demo_llm.png and images/viewer_episode.png.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path

from env_pages import picture
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

import gem

IMAGES = Path(__file__).parents[1] / "docs/images"
FONTS = Path(get_data_path()) / "fonts/ttf"
PAGE, PANEL, LINE, TEXT, QUIET, LINK = "#fbfaf6", "#f1efe8", "#d9d5c8", "#1e2624", "#55605c", "#0a6b5a"
"""The light palette of docs/style.css; tests hold them equal."""

DARK = {
    PAGE: "#12181a",
    PANEL: "#1b2426",
    LINE: "#354144",
    TEXT: "#e4e8e6",
    QUIET: "#a3afab",
    LINK: "#5ecfb4",
}
"""The dark palette, by the light colour that each stands for."""

BOARDS = (
    "game:Sokoban-v0-easy",
    "game:Mastermind-v0-easy",
    "game:Minesweeper-v0-easy",
    "multi:ConnectFour-v0-vs-random",
    "game:Wordle-v0-easy",
    "game:Sudoku-v0-easy",
)


def main() -> None:
    """Write every picture."""
    boards = [Image.open(BytesIO(picture(gem.spec(name)))).convert("RGB") for name in BOARDS]
    home(boards).save(IMAGES / "home.png", optimize=True)
    social(boards[:4]).save(IMAGES / "social.png", optimize=True)
    (IMAGES / "concepts.svg").write_text(concepts(), "utf-8")
    readme().quantize(256, dither=Image.Dither.NONE).save(IMAGES / "readme.png", optimize=True)


def row(
    canvas: Image.Image, boards: Sequence[Image.Image], left: int, top: int, height: int, gap: int
) -> None:
    """Put boards side by side, with the same height."""
    for board in boards:
        scaled = board.resize((round(board.width * height / board.height), height), Image.Resampling.LANCZOS)
        ImageDraw.Draw(canvas).rectangle(
            (left - 1, top - 1, left + scaled.width, top + height), outline=LINE, width=1
        )
        canvas.paste(scaled, (left, top))
        left += scaled.width + gap


def width_of(boards: Sequence[Image.Image], height: int, gap: int) -> int:
    """Return the width of a row of boards."""
    return sum(round(board.width * height / board.height) + gap for board in boards) - gap


def home(boards: Sequence[Image.Image]) -> Image.Image:
    """Draw the row of boards at the top of the home page."""
    height, gap, edge = 260, 32, 32
    canvas = Image.new("RGB", (width_of(boards, height, gap) + 2 * edge, height + 2 * edge), PANEL)
    row(canvas, boards, edge, edge, height, gap)
    return canvas


def social(boards: Sequence[Image.Image]) -> Image.Image:
    """Draw the preview of a link: the name, the sentence, some boards."""
    canvas = Image.new("RGB", (1200, 630), PAGE)
    draw = ImageDraw.Draw(canvas)
    draw.text((72, 64), "gem", fill=LINK, font=font("DejaVuSans-Bold", 104))
    draw.text((76, 200), "A gym for LLM agents", fill=TEXT, font=font("DejaVuSans", 44))
    draw.text(
        (76, 268), "Environments, agents, training, evaluation", fill=QUIET, font=font("DejaVuSans", 30)
    )
    draw.rectangle((0, 350, 1200, 630), fill=PANEL)
    height, gap = 212, 40
    row(canvas, boards, (1200 - width_of(boards, height, gap)) // 2, 384, height, gap)
    return canvas


HALVES = (
    ("Training: success of a language model", "demo_llm", (0, 0.06, 0.5, 1)),
    ("The viewer: an episode, each sampled token", "viewer_episode", (0.25, 0.06, 0.945, 0.86)),
)
"""Of each half of the README's picture: its title, the picture it is cut from, and where, as shares."""


def readme() -> Image.Image:
    """Draw the README's picture: a learning curve, and an episode in the viewer."""
    height, top, gap, edge = 540, 84, 32, 32
    cuts = []
    for _, name, (left, upper, right, lower) in HALVES:
        with Image.open(IMAGES / f"{name}.png") as whole:
            across, down = whole.size
            box = (round(left * across), round(upper * down), round(right * across), round(lower * down))
            cut = whole.convert("RGB").crop(box)
        wide = round(cut.width * height / cut.height)
        cuts.append(cut.resize((wide, height), Image.Resampling.LANCZOS))
    canvas = Image.new("RGB", (width_of(cuts, height, gap) + 2 * edge, top + height + edge), PANEL)
    row(canvas, cuts, edge, top, height, gap)
    at = edge
    for (title, _, _), cut in zip(HALVES, cuts, strict=True):
        ImageDraw.Draw(canvas).text((at, 30), title, fill=TEXT, font=font("DejaVuSans-Bold", 26))
        at += cut.width + gap
    return canvas


def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Return a font that comes with matplotlib, so that the picture is the same everywhere."""
    return ImageFont.truetype(str(FONTS / f"{name}.ttf"), size)


BOXES = {
    "Environment": (20, 20, "reset, step, fork"),
    "Host": (20, 130, "thread, threads, processes, Ray"),
    "play()": (290, 130, "one episode: asks and calls"),
    "Agent": (560, 130, "model, endpoint, solver, human"),
    "Episode": (290, 240, "turns, tokens, rewards, verdict"),
    "Train": (20, 350, "batches, losses, checkpoints"),
    "Evaluate": (290, 350, "success, intervals, comparison"),
    "Read and export": (560, 350, "viewer, Parquet, other trainers"),
}
ARROWS = (  # from, to, what goes there
    ((130, 130), (130, 82), "step"),
    ((290, 161), (240, 161), "Call"),
    ((510, 161), (560, 161), "Ask"),
    ((400, 192), (400, 240), "returns"),
    ((330, 302), (130, 350), ""),
    ((400, 302), (400, 350), ""),
    ((470, 302), (670, 350), ""),
)


def concepts() -> str:
    """Draw as SVG how an episode is made and used; the colours follow the reader's light or dark mode."""
    parts = []
    for name, (left, top, about) in BOXES.items():
        parts.append(
            f'<rect class="box" x="{left}" y="{top}" width="220" height="62" rx="6"/>'
            f'<text class="name" x="{left + 14}" y="{top + 27}">{escape(name)}</text>'
            f'<text class="about" x="{left + 14}" y="{top + 47}">{escape(about)}</text>'
        )
    for (x1, y1), (x2, y2), says in ARROWS:
        parts.append(f'<path class="arrow" d="M{x1} {y1}L{x2} {y2}" marker-end="url(#tip)"/>')
        if says:
            x, y = ((x1 + x2) / 2, y1 - 8) if y1 == y2 else (x1 + 10, (y1 + y2) / 2 + 4)
            anchor = "middle" if y1 == y2 else "start"
            parts.append(
                f'<text class="says" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(says)}</text>'
            )
    light = (
        f".page{{fill:{PANEL}}}.box{{fill:{PAGE};stroke:{LINE}}}.name{{fill:{TEXT}}}.about,.says{{fill:{QUIET}}}"
        f".arrow{{stroke:{LINK};stroke-width:1.6;fill:none}}.tip{{fill:{LINK}}}"
    )
    dark = re.sub("#[0-9a-f]{6}", lambda colour: DARK[colour[0]], light)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 432" width="800" height="432" role="img" '
        'aria-label="How the parts of gem hang together"><style>'
        f"{light}.name{{font-weight:650;font-size:16px}}.about,.says{{font-size:12.5px}}"
        "text{font-family:ui-sans-serif,system-ui,Segoe UI,Arial,sans-serif}"
        f"@media(prefers-color-scheme:dark){{{dark}}}"
        '</style><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        f'<rect class="page" width="800" height="432" rx="8"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    main()
