"""Make the pictures of docs/guides/reading_episodes.md: real runs, the viewer over them, Chromium.

    python scripts/screenshots.py [--runs FOLDER]

Missing runs are made in FOLDER (three short training runs of the tiny model, and an evaluation: some
minutes), by default a temporary folder. Needs playwright, Pillow and a Chromium (on PATH, or named by the
variable CHROMIUM).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from browser import need_chromium, save
from playwright.sync_api import Page, sync_playwright

from gem.rollout import EpisodeStore
from gem.viewer.server import Server
from gem.viewer.sources import Source, open_sources

IMAGES = Path(__file__).parents[1] / "docs/images"
SEEDS = 3
GAMES = ("game:Minesweeper-v0-easy", "game:Sudoku-v0-easy", "game:Hangman-v0-easy")
COLOURS = 256


def make_runs(folder: Path) -> list[Path]:
    """Make the missing runs, and return the folders of all."""

    def gem(*words: object) -> None:
        subprocess.run([sys.executable, "-m", "gem", *map(str, words)], check=True)

    runs = []
    for seed in range(SEEDS):
        run = folder / f"guess-seed-{seed}"
        if not (run / "summary.json").exists():
            settings = ("--episodes", 20480, "--lr", 0.002, "--eval-episodes", 50, "--store", "tokens")
            gem("train", *settings, "--threads", 1, "--seed", seed, "--out", run, "--overwrite")
        runs.append(run)
    if not (folder / "games").exists():
        gem(
            "eval",
            *GAMES,
            "--agent",
            "random",
            "--agent",
            "solver",
            "--episodes",
            40,
            "--out",
            folder / "games",
        )
    return [*runs, folder / "games"]


def take(sources: list[Source], url: str, chromium: str) -> None:
    """Take the pictures."""
    by_name = {source.name: source for source in sources}
    trained, random, solver = by_name["guess-seed-1"], by_name["random"], by_name["solver"]
    doubted = _doubted(trained)
    lost = random.store.select(spec=GAMES[0], success=False)[0].number
    turns = random.store[lost].turns
    mine = (turns[-1].action or "").replace("reveal", "flag")
    won = max(solver.store.select(spec=GAMES[0], success=True), key=lambda entry: entry.turns).number
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])

        def page(width: int = 1280, height: int = 800, scheme: str = "light") -> Page:
            return browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)

        light, dark, phone = page(), page(scheme="dark"), page(390, 800)
        for name, on, address in (
            ("viewer_runs", light, ""),
            ("viewer_run", dark, f"run/{trained.number}"),
            ("viewer_episode", light, f"run/{trained.number}/episode/{doubted}"),
            ("viewer_phone", phone, f"run/{trained.number}/episode/{doubted}?colour=advantage"),
            ("viewer_through", light, f"run/{trained.number}/through"),
            ("viewer_boards", dark, f"run/{solver.number}/episode/{won}#turn-3"),
        ):
            shown = on.goto(url + address)
            if shown is None or not shown.ok:
                raise SystemExit(f"the viewer does not show /{address}")
            on.wait_for_load_state("networkidle")
            save(on, IMAGES / f"{name}.png", COLOURS)
        light.goto(f"{url}run/{random.number}/episode/{lost}/whatif?turn={len(turns) - 1}")
        light.fill("textarea", mine)
        light.select_option("select", "solver")
        light.get_by_role("button", name="Play").click()
        light.wait_for_selector(".sides")
        save(light, IMAGES / "viewer_what_if.png", COLOURS)
        browser.close()


def _doubted(source: Source) -> int:
    """Return a late episode in which the policy said something unlikely, and won."""
    store: EpisodeStore = source.store
    late = store.select(success=True)[-400:]

    def doubt(number: int) -> float:
        turns = store[number].turns
        return min((logprob for turn in turns[1:] for logprob in turn.logprobs or ()), default=0.0)

    return min((entry.number for entry in late if entry.turns == 3), key=doubt)


def main() -> None:
    """Make the runs, serve them, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="folder of the runs; made where they are not there")
    given = parser.parse_args().runs
    chromium = need_chromium()
    with tempfile.TemporaryDirectory() as temporary:
        sources = open_sources(make_runs(given or Path(temporary)))
        server = Server(sources)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            take(sources, server.url, chromium)
        finally:
            server.stop()
            thread.join()


if __name__ == "__main__":
    main()
