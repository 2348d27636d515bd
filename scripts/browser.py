"""Chromium for the scripts that take pictures: find it, and save small pictures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

LARGEST = 150_000
"""Bytes that a picture may have."""

ROOT = Path(__file__).parents[1]


def find_chromium() -> str | None:
    """Return the Chromium named by the variable CHROMIUM, else the one on PATH; None if there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def need_chromium() -> str:
    """Return the Chromium of find_chromium(), or exit with an explanation."""
    if (found := find_chromium()) is None:
        raise SystemExit("there is no Chromium on PATH; name one by the variable CHROMIUM")
    return found


def save(page: Page, path: Path, colours: int) -> None:
    """Save a picture of a page as a PNG with this many colours, and refuse one that is too large."""
    from PIL import Image

    page.screenshot(path=path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"{path.name} has {size:,} bytes; accepted: {LARGEST:,}")
