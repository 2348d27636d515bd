"""WikiGame: go from one page to another by their links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from gem.envs.games.base import Play, Range, Reward, TextGame, interval
from gem.errors import BadArgument, IllegalMove, missing_extra

BACK = "back"
MOST_CLICKS = 10
MOST_TEXT = 600
"""Characters of a page that are shown."""

_LINK = re.compile(r"\[\[(.+?)\]\]")


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Pages and their links, which are positions in the other tuples. Only the same world is equal."""

    name: str
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    links: tuple[tuple[int, ...], ...]
    _distances: dict[int, dict[int, int]] = field(default_factory=dict)

    def distances(self, target: int) -> dict[int, int]:
        """Return how many clicks each page is from `target`; pages without a way are left out."""
        if target not in self._distances:
            found = {target: 0}
            for page in (queue := [target]):
                for before in _backlinks(self)[page]:
                    if before not in found:
                        found[before] = found[page] + 1
                        queue.append(before)
            self._distances[target] = found
        return self._distances[target]


class WikiGame(TextGame):
    r"""Go from one page to another by their links.

    Task:
        From a start page reach a target page, `clicks` links away by the shortest way (a number, or a
        range (low, high)). Without `zim` the world is a small encyclopedia that gem brings; `zim` is the path
        of any ZIM file, of Wikipedia for one, of which the `pages` nearest to its main page are the world.
    Action:
        The title of a linked page in a box, as ``\boxed{River}``; case does not matter. ``\boxed{back}``
        returns to the page before. Another title is against the rules and costs the turn.
    Observation:
        The rules, the world's name and the target; then, as after each move, the page's title, the
        beginning of its text, and its links.
    Reward:
        Progress is the share of the shortest way that has been gone, by the clicks still needed, so
        going back and forth earns nothing. A won game returns 1.
    End:
        The target is reached, the turns are used up, or an answer is unreadable.
    Source:
        Folklore; ids and parameters follow GEM (arXiv 2510.01051). The pages, in ``wiki_world.tsv``, are
        gem's own.
    """

    shared: ClassVar[tuple[str, ...]] = ("_pairs",)

    def __init__(
        self,
        clicks: Range = (2, 3),
        max_turns: int = 30,
        zim: str | None = None,
        pages: int = 1000,
        reward: Reward = "dense",
    ) -> None:
        """Set the distance, the budget and the world."""
        self.clicks = interval("clicks", clicks, 1, MOST_CLICKS)
        if max_turns < self.clicks[1]:
            raise BadArgument(f"WikiGame got {max_turns=}; {self.clicks[1]} clicks need as many turns.")
        self.zim, self.pages = zim, pages
        self._pairs = pairs(self.world, self.clicks)
        if not self._pairs:
            raise BadArgument(f"clicks is {clicks!r}: no two pages of {self.world.name} are so far apart.")
        super().__init__(max_turns, reward)

    @property
    def world(self) -> World:
        """The pages, read once per process."""
        return built_in() if self.zim is None else from_zim(self.zim, self.pages)

    def deal(self) -> str:
        """Draw the start and the target."""
        self.start, self.target = self._pairs[int(self.rng.random() * len(self._pairs))]
        self.page = self.start
        self.trail: tuple[int, ...] = ()  # the pages before this one
        world = self.world
        return (
            f"Wiki game on {world.name}: go from the page {world.titles[self.start]} to the page "
            f"{world.titles[self.target]} in at most {self.max_turns} turns, by following links. Give the "
            f"title of one of the linked pages, or {BACK} for the page before, inside \\boxed{{}}.\n"
            f"{self.board()}"
        )

    def parse(self, move: str) -> str:
        """Read a title."""
        title = " ".join(move.split()).casefold()
        if not title:
            raise ValueError
        return title

    def play(self, move: str) -> Play:
        """Follow a link."""
        world = self.world
        linked = {world.titles[page].casefold(): page for page in world.links[self.page]}
        if move in linked:
            self.trail = (*self.trail, self.page)
            self.page = linked[move]
        elif move == BACK and self.trail:
            *before, self.page = self.trail
            self.trail = tuple(before)
        else:
            why = "There is no page before." if move == BACK else "This page has no such link."
            raise IllegalMove(f"{why}\n{self.board()}")
        if self.page == self.target:
            return Play.win(f"This is {world.titles[self.page]}, the target.")
        return Play(self.board())

    def board(self) -> str:
        """Return the page: title, text, links; and the target."""
        world = self.world
        links = ", ".join(world.titles[page] for page in world.links[self.page])
        return (
            f"Page: {world.titles[self.page]}\n{world.texts[self.page]}\nLinks: {links or '-'}\n"
            f"Target: {world.titles[self.target]}"
        )

    def progress(self) -> float:
        """Return the share of the shortest way that is gone; 0 when further away than at the start."""
        distances = self.world.distances(self.target)
        return max(0.0, 1.0 - distances.get(self.page, MOST_CLICKS) / distances[self.start])

    def epilogue(self) -> str:
        """Say how far it was."""
        left = self.world.distances(self.target).get(self.page)
        return f"No turns are left. Clicks still needed: {left or 'there is no way from here'}."

    def answer_form(self) -> str:
        """Say what a move looks like."""
        return f"A move is the title of a linked page, or {BACK}, inside \\boxed{{}}."

    def random_move(self) -> str:
        """Follow any link, or go back where there is none."""
        links = self.world.links[self.page]
        return self.world.titles[links[int(self.actor_rng.random() * len(links))]] if links else BACK

    def expert_move(self) -> str:
        """Follow a shortest way, found breadth-first over the links of the world."""
        distances = self.world.distances(self.target)
        links = [page for page in self.world.links[self.page] if page in distances]
        return self.world.titles[min(links, key=distances.__getitem__)] if links else BACK


@cache
def _backlinks(world: World) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in world.titles]
    for page, links in enumerate(world.links):
        for linked in links:
            found[linked].append(page)
    return tuple(map(tuple, found))


@cache
def pairs(world: World, clicks: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return every start and target so many clicks apart."""
    return tuple(
        (start, target)
        for target in range(len(world.titles))
        for start, distance in sorted(world.distances(target).items())
        if clicks[0] <= distance <= clicks[1]
    )


@cache
def built_in() -> World:
    """Return gem's own small encyclopedia."""
    text = Path(__file__).with_name("wiki_world.tsv").read_text(encoding="utf-8")
    found = dict(line.split("\t") for line in text.splitlines())
    number = {title: page for page, title in enumerate(found)}
    return World(
        "gem's small encyclopedia",
        tuple(found),
        tuple(_LINK.sub(r"\1", words) for words in found.values()),
        tuple(tuple(dict.fromkeys(number[to] for to in _LINK.findall(words))) for words in found.values()),
    )


@cache
def from_zim(path: str, pages: int) -> World:
    """Return the `pages` pages nearest to the main page of a ZIM file, breadth-first by their links.

    Raises:
        MissingExtra: without libzim. BadArgument: for what is no ZIM file with a main page.
    """
    try:
        from libzim.reader import Archive
    except ImportError as error:
        raise missing_extra("a ZIM file", "libzim", "search") from error
    try:
        archive = Archive(Path(path))
    except RuntimeError as error:
        raise BadArgument(f"zim is {path!r}; accepted: the path of a ZIM file ({error}).") from error
    if not archive.has_main_entry:
        raise BadArgument(f"zim is {path!r}: it has no main page to begin from.")
    queue = [_landed(archive.main_entry)]
    number = {queue[0].path: 0}
    read: list[_Page] = []
    for entry in queue:
        page = _Page(entry.path)
        page.feed(bytes(entry.get_item().content).decode("utf-8", errors="replace"))
        read.append(page)
        for index, to in enumerate(page.paths):
            landed = _linked(archive, to)
            page.paths[index] = landed.path if landed is not None else ""
            if landed is not None and landed.path not in number and len(queue) < pages:
                number[landed.path] = len(queue)
                queue.append(landed)
    titles = [entry.title for entry in queue]
    return World(
        f"{Path(path).name} ({len(queue)} pages)",
        tuple(t if titles.count(t) == 1 else entry.path for t, entry in zip(titles, queue, strict=True)),
        tuple(" ".join("".join(page.words).split())[:MOST_TEXT] for page in read),
        tuple(
            tuple(dict.fromkeys(number[to] for to in page.paths if number.get(to, own) != own))
            for own, page in enumerate(read)
        ),
    )


def _landed(entry: Any) -> Any:
    """Return where an entry's redirections end."""
    while entry.is_redirect:
        entry = entry.get_redirect_entry()
    return entry


def _linked(archive: Any, path: str) -> Any:
    """Return the page at a path; None for what is no page of the file."""
    if not path or not archive.has_entry_by_path(path):
        return None
    entry = _landed(archive.get_entry_by_path(path))
    return entry if entry.get_item().mimetype.startswith("text/html") else None


class _Page(HTMLParser):
    """A page's words, and the paths within the file that it links to."""

    SILENT = frozenset({"script", "style", "head"})

    def __init__(self, path: str) -> None:
        super().__init__()
        self.folder = dirname(path)
        self.words: list[str] = []
        self.paths: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in self.SILENT
        to = urlsplit(dict(attrs).get("href") or "") if tag == "a" else urlsplit("")
        if to.path and not to.scheme and not to.netloc:
            self.paths.append(normpath(f"{self.folder}/{unquote(to.path)}").lstrip("/"))

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in self.SILENT and self._silent > 0

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)
