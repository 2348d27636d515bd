"""The built-in world: a small encyclopedia whose pages link to one another.

WikiGame walks it, `qa:Facts` asks about it, and the search tool indexes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_LINK = re.compile(r"\[\[(.+?)\]\]")


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Pages and their links, which are indices of pages. A world is equal only to itself."""

    name: str
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    links: tuple[tuple[int, ...], ...]
    _distances: dict[int, dict[int, int]] = field(default_factory=dict)

    def distances(self, target: int) -> dict[int, int]:
        """Return each page's distance to `target` in clicks; pages that cannot reach it are left out."""
        if target not in self._distances:
            clicks = {target: 0}
            for page in (queue := [target]):
                for before in _backlinks(self)[page]:
                    if before not in clicks:
                        clicks[before] = clicks[page] + 1
                        queue.append(before)
            self._distances[target] = clicks
        return self._distances[target]


@cache
def _backlinks(world: World) -> tuple[tuple[int, ...], ...]:
    sources: list[list[int]] = [[] for _ in world.titles]
    for page, links in enumerate(world.links):
        for linked in links:
            sources[linked].append(page)
    return tuple(map(tuple, sources))


@cache
def built_in() -> World:
    """Return the built-in encyclopedia."""
    text = Path(__file__).with_name("wiki_world.tsv").read_text(encoding="utf-8")
    articles = dict(line.split("\t") for line in text.splitlines())
    number = {title: page for page, title in enumerate(articles)}
    return World(
        "gem's small encyclopedia",
        tuple(articles),
        tuple(_LINK.sub(r"\1", words) for words in articles.values()),
        tuple(tuple(dict.fromkeys(number[to] for to in _LINK.findall(words))) for words in articles.values()),
    )
