"""Check the built site in Chromium: ``python scripts/site_pictures.py [FOLDER]``, after build_site.py.

Opens pages of every kind, light and dark, 1280 and 390 pixels wide. Refuses a page that scrolls sideways and
an element that is cut off, tests the filter of the environments, and saves a picture of each page in FOLDER
(build/pictures). Refuses every page of the site that is higher than HIGHEST, and an address of before that
leads nowhere. Needs playwright and a Chromium, on PATH or named by the variable CHROMIUM; without them it
prints that, and passes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import find_chromium
from check_site import LONGEST, Page

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
HIGHEST = 6000
"""Pixels that a page may be high in a window 1280 pixels wide, with what is folded on it closed."""

OLD = {
    "reference/gem.train/#gem.train.learn.batch.Batch.turns": "reference/gem.train/learn.batch/",
    "reference/gem/#gem.core.Env.reset": "reference/gem/core.Env/",
    "reference/gem.train/#gem.train.config.run_settings.RunSettings.lr": (
        "reference/gem.train/config.run_settings.the-optimiser-s-steps/"
    ),
    "troubleshooting/#SandboxFailed": "troubleshooting/episodes/",
}
"""Addresses of before these pages were split, and where they lead."""

PAGES = {
    "home": "",
    "start": "start/environment/",
    "environments": "envs/",
    "environment": "envs/sudoku/",
    "guide": "guides/evaluating/",
    "concepts": "concepts/",
    "compare": "compare/",
    "troubleshooting": "troubleshooting/",
    "reference": "reference/gem.train/",
    "class": "reference/gem/core.Env/",
    "log": "log/",
}
"""A page of every kind, by the name of its picture."""

CUT = """() => [...document.querySelectorAll(".md-content__inner *")].filter((one) => {
  const place = one.getBoundingClientRect();
  const edge = document.documentElement.clientWidth + 1;
  if (place.width < 2 || place.height < 2 || place.right <= edge) return false;
  for (let around = one; around; around = around.parentElement)
    if (around.matches("pre, code, .md-code__nav, .highlight")) return false;  // code may scroll by itself
  return true;
}).map((one) => one.outerHTML.slice(0, 120))"""
"""What of a page's own part ends beyond the window."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without logging."""

    def log_message(self, *said: Any) -> None:
        """Say nothing."""


def main() -> int:
    """Check every page; return 1 if something is wrong."""
    chromium = find_chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("skipped: playwright is not installed (pip install playwright).")
        return 0
    if chromium is None:
        print("skipped: there is no Chromium on the path, and CHROMIUM names none.")
        return 0
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        wrong = list(look(browser, f"http://127.0.0.1:{server.server_port}/", folder))
        browser.close()
    server.shutdown()
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(PAGES) * len(WIDTHS) * len(SCHEMES)} pictures in {folder}, {len(wrong)} wrong")
    return 1 if wrong else 0


def look(browser: Any, base: str, folder: Path) -> Iterator[str]:
    """Yield the problems of the shown pages, and save their pictures."""
    from playwright.sync_api import TimeoutError as TooLate

    for scheme in SCHEMES:
        for width in WIDTHS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            page.on("request", lambda asked, errors=errors: errors.extend(elsewhere(asked.url, base)))
            for name, path in PAGES.items():
                page.goto(base + path)
                where = f"{name}, {scheme}, {width} px"
                page.screenshot(path=folder / f"{name}-{scheme}-{width}.png")
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    yield f"{where}: {wide} px wide"
                for cut in page.evaluate(CUT):
                    yield f"{where}: cut off: {cut}"
                yield from (f"{where}: {error}" for error in errors)
                errors.clear()
            page.goto(base + PAGES["environments"])
            yield from (f"filter, {scheme}, {width} px: {one}" for one in try_filter(page))
            context.close()
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900})
    for path in sorted(SITE.rglob("index.html")):
        if Page(path).lines < LONGEST / 2 and "<img" not in path.read_text("utf-8"):
            continue  # no browser is needed to see that it is short
        where = path.relative_to(SITE).parent.as_posix()
        page.goto(f"{base}{where}/")
        high = page.evaluate("document.documentElement.scrollHeight")
        if high > HIGHEST:
            yield f"{where}: {high} px high, more than {HIGHEST}"
    for old, new in OLD.items():
        page.goto(base + old)
        try:
            page.wait_for_url(f"{base}{new}#{old.partition('#')[2]}")
        except TooLate:
            yield f"{old} leads to {page.url}"


def elsewhere(url: str, base: str) -> list[str]:
    """Return a problem if a page requests something from another server."""
    return [] if url.startswith((base, "data:", "blob:")) else [f"asks for {url}"]


def try_filter(page: Any) -> Iterator[str]:
    """Yield the problems of the environments' filter."""

    def shown() -> list[str]:
        lines = page.locator(".env-class li:visible code")
        return [str(text) for text in lines.all_inner_texts()]

    if shown():
        yield "families are open before anything is asked for"
    whole = page.locator(".env-filter output").inner_text()
    page.fill(".env-filter [name=words]", "hanoi")
    if not (found := shown()) or not all("hanoi" in one.lower() for one in found):
        yield f"'hanoi' shows {found}"
    page.fill(".env-filter [name=words]", "")
    page.select_option(".env-filter [name=family]", "terminal")
    if not (found := shown()) or not all(one.startswith("terminal:") for one in found):
        yield f"family terminal shows {found}"
    if "family=terminal" not in page.url:
        yield f"the address of what was asked for is {page.url}"
    page.reload()
    if shown() != found:
        yield "the address of a filtered list opens another list"
    page.select_option(".env-filter [name=family]", "")
    if shown() or page.locator(".env-filter output").inner_text() != whole:
        yield "nothing asked for does not count everything, in families that are closed"


if __name__ == "__main__":
    sys.exit(main())
