"""A hook of mkdocs: the pages of studies, which `gem-gym baseline` writes, enter the navigation by title."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

FOLDER = "baselines"
BEFORE = "Environments"
"""The section that the pages stand before."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a section with the pages into the navigation, where there are any."""
    folder = Path(config.docs_dir) / FOLDER
    pages = [{title(path): f"{FOLDER}/{path.name}"} for path in sorted(folder.glob("*.md"))]
    if pages:
        place = next(i for i, entry in enumerate(config.nav) if BEFORE in entry)
        config.nav.insert(place, {"Baselines": pages})
    return config


def title(page: Path) -> str:
    """Return the title of a page: its first line."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
