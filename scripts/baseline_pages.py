"""Add the pages of studies (`gem-gym baseline`) to the navigation; used by build_site.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = "baselines"


def files() -> dict[str, str | bytes]:
    """Return no files, because the pages are in docs/ already."""
    return {}


def navigation() -> list[Any]:
    """Return a section with the pages by their titles, if there are any."""
    pages = [{title(path): f"{FOLDER}/{path.name}"} for path in sorted((DOCS / FOLDER).glob("*.md"))]
    return [{"Studies": pages}] if pages else []


def title(page: Path) -> str:
    """Return the title of a page: its first line."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
