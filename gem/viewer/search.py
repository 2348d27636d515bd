"""Full-text search: a scan of the store's lines for what may match, and a look at each one that does.

The file is read in order, without an index: a store of a gigabyte takes a few seconds, and what was written
a moment ago is found too. A search that takes longer than `SEARCH_S` stops, and says where to go on.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from gem.errors import BadArgument, GemError
from gem.record import Episode
from gem.rollout.index import Entry, matches
from gem.rollout.store import EpisodeStore
from gem.viewer.conversation import words_of

SEARCH_S = 2.0
CHUNK = 4 << 20
LONGEST = 200
"""Characters that are searched for at most."""
AROUND = 70
"""Characters shown before and behind what was found."""


class Hit(NamedTuple):
    """An episode that holds what was searched for: the turn it stands in, and the text around it."""

    entry: Entry
    turn: int
    before: str
    found: str
    behind: str


class Found(NamedTuple):
    """What a search found; `next` is the byte to go on from, None where the whole store was searched."""

    hits: list[Hit]
    next: int | None
    searched: int
    size: int


def search(
    store: EpisodeStore,
    text: str,
    *,
    start: int = 0,
    count: int = 100,
    seconds: float = SEARCH_S,
    **wanted: Any,
) -> Found:
    """Return episodes in which `text` was said, heard or thought, whatever the case of its letters.

    Args:
        store: where to look.
        text: what to look for, as it stands; there are no wildcards.
        start: the byte of the store to begin at: `next` of the search before.
        count: how many episodes to return at most.
        seconds: how long to look.
        **wanted: values that the episodes have to have; see EpisodeStore.page.

    Raises:
        BadArgument: for no text, or one that is too long.
    """
    if not text or len(text) > LONGEST:
        raise BadArgument(f"the text to search for has {len(text)} characters; accepted: 1 to {LONGEST}.")
    if not len(store):
        return Found([], None, 0, 0)
    needle = text.lower()
    try:
        wire = msgspec.json.encode(text)[1:-1].lower()
    except UnicodeEncodeError:  # half a surrogate pair, which is not stored as text
        return Found([], None, 0, 0)
    # Beyond ASCII a letter's other case has other bytes: a long piece of ASCII is looked for, if it has one.
    piece = max(bytes(c if c < 128 else 0 for c in wire).split(b"\0"), key=len)
    wire = piece if len(piece) > 2 else wire
    until = monotonic() + seconds
    hits: list[Hit] = []
    fd = os.open(store.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        at = start
        while at < size:
            if monotonic() > until:
                return Found(hits, at, at - start, size)
            data = os.pread(fd, CHUNK + len(wire) - 1, at).lower()
            place = data.find(wire)
            while place >= 0:
                entry = store.holding(at + place)
                if entry is None:
                    place = data.find(wire, place + 1)
                    continue
                if matches(entry, wanted) and (hit := _hit(store, entry, needle)) is not None:
                    hits.append(hit)
                    if len(hits) >= count:
                        return Found(hits, entry.end if entry.end < size else None, entry.end - start, size)
                if monotonic() > until:
                    return Found(hits, entry.end, entry.end - start, size)
                if entry.end >= at + len(data):
                    at, data = entry.end, b""
                    break
                place = data.find(wire, entry.end - at)
            if data:
                at += CHUNK
        return Found(hits, None, size - start, size)
    finally:
        os.close(fd)


def _hit(store: EpisodeStore, entry: Entry, needle: str) -> Hit | None:
    try:
        episode: Episode = store[entry.number]
    except GemError:  # a damaged line
        return None
    texts = [(number, words_of(turn)) for number, turn in enumerate(episode.turns)]
    ends = [(len(episode.turns), str(end.observation)) for end in episode.ends.values()]
    error = [(len(episode.turns), episode.error.message)] if episode.error else []
    for number, text in (*texts, *ends, *error):
        place = text.lower().find(needle)
        if place >= 0:
            end = place + len(needle)
            return Hit(
                entry,
                number,
                text[max(0, place - AROUND) : place],
                text[place:end],
                text[end : end + AROUND],
            )
    return None
