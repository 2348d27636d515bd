"""ZimIndex: searches the articles of a ZIM file, such as Wikipedia, with its built-in full-text index."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, MissingData, needs_extra
from gem.tools.search.base import Hit, OpenedEngine, SearchFailed, best_passage, check_topk, words
from gem.tools.search.corpus import passages

MAX_HTML = 4 << 20
"""The most bytes of an article that are read."""

_SILENT = frozenset({"script", "style", "head", "noscript", "template", "svg", "math", "sup"})
_BLOCKS = frozenset({"p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "section", "table"})


class ZimIndex(OpenedEngine):
    """An offline search of a ZIM file; a result's text is the article's passage that fits the query best.

    Args:
        path: a ZIM file with a full-text index, for example from library.kiwix.org.

    Raises:
        MissingData: when there is no such file. BadArgument: when it is not a ZIM file, or has no full-text
            index. MissingExtra: without libzim.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._open()

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the matching articles, in the order of the file's own index; see SearchEngine.search.

        An article's id is its path in the file; scores are 1, 1/2, 1/3, ..., because libzim gives none.
        """
        check_topk(topk)
        wanted = " ".join(words(query))
        if not wanted:
            return []
        with self._opening:  # the full-text index of a file is not for several threads at once
            archive = self._open()
            from libzim.search import Query, Searcher

            try:
                paths = Searcher(archive).search(Query().set_query(wanted)).getResults(0, topk)
                articles = [_article(archive, path) for path in paths]
            except (RuntimeError, KeyError, OSError) as error:
                raise SearchFailed(f"{self.path} cannot be read: {error}") from error
        return [
            Hit(path, title, best_passage(passages(text_of(html)), query), 1.0 / rank)
            for rank, (path, title, html) in enumerate(articles, 1)
        ]

    def _make(self) -> Any:
        with needs_extra("searching a ZIM file", "libzim", "search"):
            from libzim.reader import Archive
        if not self.path.is_file():
            raise MissingData(f"there is no file {self.path}; download ZIM files from library.kiwix.org.")
        try:
            archive = Archive(self.path)
        except RuntimeError as error:
            raise BadArgument(f"{self.path} is not a ZIM file: {error}") from error
        if not archive.has_fulltext_index:
            raise BadArgument(
                f"{self.path} has no full-text index; accepted: a ZIM file that was made with one."
            )
        return archive


def text_of(html: str) -> str:
    """Return the visible text of an HTML page, one line per block, without scripts and footnote marks."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _article(archive: Any, path: str) -> tuple[str, str, str]:
    entry = archive.get_entry_by_path(path)
    for _ in range(8):
        if not entry.is_redirect:
            break
        entry = entry.get_redirect_entry()
    item = entry.get_item()
    return path, item.title, bytes(item.content[:MAX_HTML]).decode("utf-8", "replace")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silent = ""  # the tag that silences, until it closes
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if self._silent:
            self._depth += tag == self._silent
        elif tag in _SILENT:
            self._silent, self._depth = tag, 1
        elif tag in _BLOCKS:
            self.pieces.append("\n\n" if tag == "p" else "\n")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        if tag in _BLOCKS and not self._silent:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            self._depth -= tag == self._silent
            if not self._depth:
                self._silent = ""
        elif tag in _BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(data)
