"""Search engines: full-text and dense indexes, ZIM files, services; `open_engine` opens any by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem.errors import BadArgument, MissingData
from gem.tools.search.base import Document, Hit, SearchEngine, SearchFailed
from gem.tools.search.corpus import WORLD

__all__ = ["ACCEPTED", "PROVIDERS", "WORLD", "Document", "Hit", "SearchEngine", "SearchFailed", "open_engine"]

ACCEPTED = "http://host:port/retrieve, serpapi, google, world, a .zim file, a .jsonl corpus, a folder"
PROVIDERS = ("serpapi", "google")
"""The services that have a name."""


def open_engine(
    source: str | Path, *, index_dir: str | Path | None = None, timeout_s: float | None = None
) -> SearchEngine:
    """Open the engine that a text names.

    Args:
        source: ``http://...``, a server with the /retrieve protocol; ``serpapi`` or ``google``; ``world``,
            the built-in corpus; or a path: a .zim file, a .jsonl corpus, a folder of text files.
        index_dir: the folder of a full-text index; see FullTextIndex.
        timeout_s: the time limit of a service; see RemoteEngine.

    Raises:
        MissingData, BadArgument: for a source that is missing or cannot be read. MissingExtra: without the
            package.
    """
    if not isinstance(source, str | Path):
        raise BadArgument(f"the source is {source!r:.80}; accepted: {ACCEPTED}.")
    text = str(source)
    if text in PROVIDERS or text.startswith(("http://", "https://")):
        from gem.tools.search import remote

        limits: dict[str, Any] = {} if timeout_s is None else {"timeout_s": timeout_s}
        if text == "serpapi":
            return remote.SerpApiEngine(**limits)
        return remote.GoogleEngine(**limits) if text == "google" else remote.RetrieveEngine(text, **limits)
    if text.endswith(".zim"):
        from gem.tools.search.zim import ZimIndex

        return ZimIndex(text)
    if text != WORLD and not Path(source).exists():
        raise MissingData(f"there is no {text!r} to search; accepted: {ACCEPTED}.")
    from gem.tools.search.full_text import FullTextIndex

    return FullTextIndex(source if text == WORLD else Path(source), index_dir=index_dir)
