"""What every search engine is: a query in, the best documents out, always in the same order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gem.errors import BadArgument, NoVerdict

MAX_WORDS = 64
"""How many different words of a query count, so that no query takes long."""

MAX_QUERY_CHARS = 2000
MAX_TOPK = 100

_WORD = re.compile(r"\w+")


class SearchFailed(NoVerdict):
    """The engine itself failed: its service does not answer, its index cannot be read."""

    status: int = 0
    """What a service answered, in HTTP's numbers; 0 where there was no answer."""


class Document(NamedTuple):
    """A text that can be found. The id is unique in its corpus; the title may be empty."""

    id: str
    title: str
    text: str


class Hit(NamedTuple):
    """A document that was found, and how well it fits: higher is better, on the engine's own scale."""

    id: str
    title: str
    text: str
    score: float


class SearchEngine:
    """A search engine. Subclasses define `search`, which any thread may call.

    An engine is pickled as how it was made; what it holds open is opened again on the other side.
    """

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return the best documents for a query, best first; the same query gives the same list.

        Raises:
            SearchFailed: when the engine itself fails.
        """
        raise NotImplementedError(f"{type(self).__name__} must define search().")

    def close(self) -> None:
        """Release what the engine holds; twice is harmless."""


def check_topk(topk: int) -> int:
    """Return `topk`.

    Raises:
        BadArgument: unless it is from 1 to 100.
    """
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MAX_TOPK:
        raise BadArgument(f"topk is {topk!r:.60}; accepted: a whole number from 1 to {MAX_TOPK}.")
    return topk


def words(query: str) -> list[str]:
    """Return the different words of a query in order, in lower case, MAX_WORDS at most.

    Engines are asked by these alone: what a model wrote is never read as the syntax of a query.
    """
    return list(dict.fromkeys(_WORD.findall(query[:MAX_QUERY_CHARS].lower())))[:MAX_WORDS]


def plain(query: str) -> str:
    """Return a query that any service can take: one line of valid Unicode, MAX_QUERY_CHARS at most."""
    return " ".join(query.encode("utf-8", "replace").decode().replace("\0", " ").split())[:MAX_QUERY_CHARS]


def best_passage(passages: Sequence[str], query: str) -> str:
    """Return the first of the passages that hold the most different words of a query."""
    wanted = set(words(query))
    return max(passages, key=lambda text: len(wanted.intersection(_WORD.findall(text.lower()))), default="")
