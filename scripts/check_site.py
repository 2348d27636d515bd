"""Check the built site and its sources: ``python scripts/check_site.py``, after build_site.py.

Refuses dead links and anchors, headings that skip a level, pictures without alternative text, files that a
page would fetch from elsewhere, pages with more than LONGEST lines, palette colours with too little contrast
(WCAG 2.2, AA), and code on a page that no test runs. Checks that need a browser are in site_pictures.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
DOCS = ROOT / "docs"

TEXT_PAIRS = [(name, ground) for ground in ("page", "panel") for name in ("text", "quiet", "link", "mark")]
TEXT_PAIRS += [(name, "panel") for name in ("number", "keyword", "function", "string", "comment")]
"""Text and what it stands on, in the names of docs/style.css: 4.5 to 1 is asked."""

MARK_PAIRS = [("quiet", "page"), ("quiet", "panel")]
"""Borders of fields and their ground: 3 to 1 is asked."""

LANGUAGES = {"python", "text", "json", "sh", "toml", "yaml"}
"""What a block of code may be: test_pages.py runs the Python, test_repository.py knows the commands."""

BLOCKS = {"p", "li", "tr", "dt", "dd", "pre", "summary", *(f"h{level}" for level in range(1, 7))}
"""Tags of what stands on lines of its own."""

WIDTH, LONGEST = 86, 320
"""Letters of a line on a desktop, and the lines that a page may have. Both are rough: a line, or a gap, takes
17 to 25 pixels, and pictures are not counted. site_pictures.py measures pages in Chromium."""

SCROLLING = {"said": 18, "doc-signature": 12}
"""Lines of blocks that scroll by themselves, by their class in docs/style.css."""

FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ ]*([\w+-]*)([^\n]*)$", re.MULTILINE)


@dataclass
class Page(HTMLParser):
    """A page of the site: its anchors, links, headings and pictures."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    main: bool = False
    lines: int = 0
    text: str = ""
    folded: int = 0
    most: int = LONGEST

    def __post_init__(self) -> None:
        """Read the page."""
        super().__init__()
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag says."""
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "article":
            self.main = True
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script", "source", "iframe") and given.get("src"):
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(given["href"])
        if self.main and re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag in BLOCKS:
            self.end_block()
        for name in given.get("class", "").split():
            self.most = SCROLLING.get(name, self.most)
        if tag == "img" and not given.get("alt", "").strip():
            self.unnamed.append(given.get("src", ""))

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a block, and of the page's own part."""
        if tag in BLOCKS:
            self.end_block(as_it_is=tag == "pre")
        self.folded += {"summary": 1, "details": -1}.get(tag, 0)  # the title of what is folded is shown
        if tag == "article":
            self.main = False

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data

    def end_block(self, as_it_is: bool = False) -> None:
        """Count the lines of a block and the gap below it; what is folded has none."""
        lines = self.text.strip().splitlines() if as_it_is else [" ".join(self.text.split())]
        if self.main and any(lines) and not self.folded:
            self.lines += 1 + min(self.most, sum(max(1, -(-len(line) // WIDTH)) for line in lines))
        self.text, self.most = "", LONGEST if as_it_is else self.most


def main() -> int:
    """Print each problem on a line; return 1 if there is any."""
    if not SITE.is_dir():
        print(f"{SITE} is not there: run scripts/build_site.py first.", file=sys.stderr)
        return 1
    pages = {path: Page(path) for path in sorted(SITE.rglob("*.html")) if path.name != "404.html"}
    wrong = [*check_pages(pages), *check_palette((DOCS / "style.css").read_text("utf-8"))]
    for path in sorted(DOCS.rglob("*.md")):
        wrong += [f"{path.relative_to(ROOT)}: {one}" for one in check_code(path.read_text("utf-8"))]
    for line in wrong:
        print(line, file=sys.stderr)
    links = sum(len(page.links) for page in pages.values())
    print(f"site/: {len(pages)} pages, {links} links, {len(wrong)} wrong")
    return 1 if wrong else 0


def check_pages(pages: dict[Path, Page]) -> Iterator[str]:
    """Yield the problems of built pages: links, headings, pictures, files fetched from elsewhere."""
    for path, page in pages.items():
        where = path.relative_to(SITE) if path.is_relative_to(SITE) else path
        for link in sorted({*page.links, *page.fetched}):
            if why := dead(link, path, pages):
                yield f"{where}: {link}: {why}"
        for address in page.fetched:
            if urlsplit(address).netloc:
                yield f"{where}: {address} would be fetched from elsewhere"
        if page.lines > LONGEST:
            yield f"{where}: {page.lines} lines, more than {LONGEST}: split it by what readers look for"
        if page.headings.count(1) != 1:
            yield f"{where}: {page.headings.count(1)} headings of the first level"
        for above, below in zip(page.headings, page.headings[1:], strict=False):
            if below > above + 1:
                yield f"{where}: a heading of level {below} right below one of level {above}"
        for picture in page.unnamed:
            yield f"{where}: {picture} has no alternative text"


def dead(link: str, path: Path, pages: dict[Path, Page]) -> str:
    """Return why a link is dead; empty if it is not, or leads out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = path.parent / unquote(parts.path) if parts.path else path
    target = target.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such page or file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""


def palettes(css: str) -> dict[str, dict[str, str]]:
    """Return the colours of each scheme of a style sheet, by name without ``--gem-``."""
    found: dict[str, dict[str, str]] = {}
    for selector, body in re.findall(
        r'^\[data-md-color-scheme="(\w+)"\] \{\n(.*?)^\}', css, re.MULTILINE | re.DOTALL
    ):
        if colours := dict(re.findall(r"--gem-(\w+): (#[0-9a-f]{6});", body)):
            found[selector] = colours
    return found


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.2, section 1.4.3)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2, section 1.4.3)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def check_palette(css: str) -> Iterator[str]:
    """Yield the pairs of colours with too little contrast."""
    schemes = palettes(css)
    if set(schemes) != {"default", "slate"}:
        yield f"style.css: has the schemes {sorted(schemes)}, not default and slate"
    for scheme, colours in schemes.items():
        for least, pairs in ((4.5, TEXT_PAIRS), (3.0, MARK_PAIRS)):
            for name, ground in pairs:
                found = contrast(colours[name], colours[ground])
                if found < least:
                    yield f"style.css: {scheme}: {name} on {ground} is {found:.2f} to 1, less than {least}"


def check_code(text: str) -> Iterator[str]:
    """Yield the code blocks of a page that no test runs, or with an unknown language."""
    opened = ""
    for found in FENCE.finditer(text):
        indent, fence, language, rest = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if opened:
            if fence.startswith(opened) and not language:
                opened = ""
            continue
        opened = fence
        if language not in LANGUAGES:
            known = ", ".join(sorted(LANGUAGES))
            yield f"line {line}: a block of {language or 'no language'}; known are {known}"
        elif "title=" in rest and not re.fullmatch(r' title="[^"]+"', rest):
            yield f"line {line}: a title without quotes, so the block would be shown as text"
        elif language == "python" and (indent or (rest and "title=" not in rest)):
            yield f"line {line}: a Python block that no test runs: it is indented, or has options"


if __name__ == "__main__":
    sys.exit(main())
