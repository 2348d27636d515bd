"""Make the pictures of docs/guides/watching_a_run.md: real runs, their pages, Chromium.

    python scripts/report_pictures.py [--runs FOLDER]

Missing runs are made in FOLDER (three of the tiny model, minutes each), by default a temporary folder. Needs
playwright, Pillow and a Chromium (on PATH, or named by the variable CHROMIUM).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import need_chromium, save
from playwright.sync_api import sync_playwright

from gem.viewer.report import write_report

IMAGES = Path(__file__).parents[1] / "docs/images"
RUNS = {
    "fast-0": ("--lr", "0.002", "--seed", "0"),
    "fast-1": ("--lr", "0.002", "--seed", "1"),
    "slow-0": ("--lr", "0.0005", "--seed", "0"),
}
SETTINGS = ("--episodes", "20480", "--eval-every", "4", "--eval-episodes", "200", "--threads", "1")
PICTURES = {
    "report_run": (["fast-1"], 1280, 1560, "light"),
    "report_runs": (list(RUNS), 1280, 1130, "dark"),
    "report_phone": (["fast-1"], 390, 1130, "dark"),
}
"""Of which runs, width and height in CSS pixels, and colours."""
COLOURS = 128


def make_runs(folder: Path) -> None:
    """Make the missing runs."""
    for name, own in RUNS.items():
        if not (folder / name / "summary.json").exists():
            words = ["train", *SETTINGS, *own, "--out", str(folder / name), "--overwrite"]
            subprocess.run([sys.executable, "-m", "gem", *words], check=True)


def take(folder: Path, chromium: str) -> None:
    """Write the pages of the runs, and take the pictures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (runs, width, height, scheme) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            written = write_report([folder / run for run in runs], folder / f"{name}.html")
            page.goto(written.resolve().as_uri())
            save(page, IMAGES / f"{name}.png", COLOURS)
            page.close()
        browser.close()


def main() -> None:
    """Make the runs, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="folder of the runs; made where they are not there")
    given = parser.parse_args().runs
    chromium = need_chromium()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given or Path(temporary)
        make_runs(folder)
        take(folder, chromium)


if __name__ == "__main__":
    main()
