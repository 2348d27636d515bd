"""The base class of search engines: a query in, the best documents out, always in the same order."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from gem.errors import BadArgument, NoVerdict, replace_surrogates

MAX_WORDS = 64
"""The most different words of a query that count, so that no query takes long."""

MAX_QUERY_CHARS = 2000
MAX_TOPK = 100

_WORD = re.compile(r"\w+")


class SearchFailed(NoVerdict):
    """The engine itself failed: its service does not answer, or its index cannot be read."""

    status: int = 0
    """The HTTP status of a service's answer; 0 if there was no answer."""


class Document(NamedTuple):
    """A document that can be searched. The id is unique in its corpus; the title may be empty."""

    id: str
    title: str
    text: str


class Hit(NamedTuple):
    """A found document and its score: higher is better, on the engine's own scale."""

    id: str
    title: str
    text: str
    score: float


class SearchEngine:
    """The base class of search engines. Subclasses define `search`, which any thread may call.

    An engine is pickled as its constructor arguments; the receiver opens its resources again.
    """

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the best documents for a query, best first; the same query gives the same list.

        Raises:
            SearchFailed: when the engine itself fails.
        """
        raise NotImplementedError(f"{type(self).__name__} must define search().")

    def close(self) -> None:
        """Release the engine's resources; calling it twice is harmless."""


class OpenedEngine(SearchEngine):
    """The base of engines that open something once per process; it is left out when they are pickled."""

    def __init__(self) -> None:
        self._opening = threading.RLock()
        self._opened: Any = None

    def _open(self) -> Any:
        """Return what `_make` made the first time."""
        with self._opening:
            if self._opened is None:
                self._opened = self._make()
            return self._opened

    def _make(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define _make().")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what was opened."""
        return {key: value for key, value in vars(self).items() if key not in ("_opening", "_opened")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state; it is opened again when first needed."""
        OpenedEngine.__init__(self)
        vars(self).update(state)


def check_topk(topk: int) -> int:
    """Return `topk` if it is valid.

    Raises:
        BadArgument: unless it is from 1 to 100.
    """
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MAX_TOPK:
        raise BadArgument(f"topk is {topk!r:.60}; accepted: a whole number from 1 to {MAX_TOPK}.")
    return topk


def words(query: str) -> list[str]:
    """Return the different words of a query in order, in lower case, MAX_WORDS at most.

    Engines get only these words, so a model's text is never parsed as query syntax.
    """
    return list(dict.fromkeys(_WORD.findall(query[:MAX_QUERY_CHARS].lower())))[:MAX_WORDS]


def plain(query: str) -> str:
    """Return a query that any service can take: one line of valid Unicode, MAX_QUERY_CHARS at most."""
    return " ".join(replace_surrogates(query).replace("\0", " ").split())[:MAX_QUERY_CHARS]


def best_passage(passages: Sequence[str], query: str) -> str:
    """Return the first of the passages that hold the most different words of a query."""
    wanted = set(words(query))
    return max(passages, key=lambda text: len(wanted.intersection(_WORD.findall(text.lower()))), default="")
