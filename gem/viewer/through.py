"""A run from its first episode to its last: when a way to act appeared, and one episode of each stretch.

The store is parted into stretches of equal numbers of episodes, in the order in which they were played,
whole iterations where it is a training run's; of each some are read, evenly spread, for the first ones to end
are the short ones. The seeds that a training run learns on do not come again, so that its stretches hold
other episodes of the same task; where a seed does come again, `same_start` has its episodes of all runs.
Those that it plays at every checkpoint are `gem.viewer.watched`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gem.errors import GemError
from gem.record import Episode
from gem.rollout.index import Entry
from gem.viewer.conversation import tools_used
from gem.viewer.sources import Source

STRETCHES = 32
READ = 32
"""Episodes that are read of a stretch at most."""
LOOKED_AT = 256
"""Episodes of a stretch whose outcome counts, at most."""
LONG_LINE = 1 << 18
"""Bytes of a line above which an episode is not read here."""
SHOWN = 12
"""Actions of an episode that are shown in a list."""
WAYS = 10
"""First actions that are shown."""


@dataclass(slots=True)
class Stretch:
    """Some episodes in a row; `did` says for each that was read what it did first."""

    first: Entry
    read: int = 0
    solved: int = 0
    known: int = 0
    openings: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    example: tuple[Entry, list[str]] | None = None


class Way(NamedTuple):
    """A first action, and its share of each stretch's episodes."""

    action: str
    shares: list[float]


class Through(NamedTuple):
    """A run in stretches."""

    stretches: list[Stretch]
    ways: list[Way]
    others: list[float]
    tools: list[Way]


def through(source: Source, spec: str = "", turn: int = 0) -> Through:
    """Return a run in stretches, and the actions that its episodes took at a turn.

    Args:
        source: the run.
        spec: the episodes of this environment alone; "": all.
        turn: which turn's action is told apart, from 0.
    """
    wanted: dict[str, Any] = {"spec": spec} if spec else {}
    _, total = source.store.page(count=0, **wanted)
    size = _size(source, total)
    stretches: list[Stretch] = []
    for start in range(0, total, size):
        entries, _ = source.store.page(start=start, count=min(LOOKED_AT, size), **wanted)
        if not entries:
            break
        stretch = Stretch(entries[0])
        for entry in entries:
            if entry.success is not None:
                stretch.known += 1
                stretch.solved += entry.success
        for entry in entries[:: -(-len(entries) // READ)]:
            _count_in(stretch, source, entry, turn)
        _exemplify(stretch, source, min(entries, key=lambda each: (_played(each), each.number)))
        stretches.append(stretch)
    every: dict[str, float] = {}
    used = Counter[str]()
    for stretch in stretches:
        for action, times in stretch.openings.items():
            every[action] = every.get(action, 0.0) + times / max(1, stretch.read)
        used.update(stretch.tools)
    first = sorted(every, key=lambda action: -every[action])[:WAYS]
    first.sort(key=lambda action: _when(stretches, action))
    ways = [Way(action, [s.openings[action] / max(1, s.read) for s in stretches]) for action in first]
    others = [1 - sum(way.shares[i] for way in ways) for i in range(len(stretches))]
    tools = [
        Way(name, [s.tools[name] / max(1, s.read) for s in stretches]) for name, _ in used.most_common(WAYS)
    ]
    return Through(stretches, ways, [max(0.0, share) for share in others], tools)


def _when(stretches: Sequence[Stretch], action: str) -> float:
    """Return when an action was taken, as the mean over the stretches, weighed by its shares."""
    shares = [stretch.openings[action] / max(1, stretch.read) for stretch in stretches]
    return sum(place * share for place, share in enumerate(shares)) / sum(shares)


def _size(source: Source, total: int) -> int:
    """Return the episodes of a stretch: of a training run whole iterations, as far as they can be told."""
    batch = source.config.get("batch")
    unit = batch if isinstance(batch, int) and batch > 0 else 1
    return unit * max(1, -(-total // (unit * STRETCHES)))


def _played(entry: Entry) -> tuple[int, ...]:
    """Return the numbers of a training run's job, iteration and task; the order of the store elsewhere."""
    numbers = job_numbers(entry.job.partition("@")[0])
    return (*numbers, entry.sample) if numbers else ()


def job_numbers(job: str) -> tuple[int, ...]:
    """Return the numbers that a training run's job is made of; () for another job."""
    numbers = job.split("-")
    known = all(each.isascii() and each.isdigit() and len(each) < 10 for each in numbers)
    return tuple(map(int, numbers)) if known else ()


def _exemplify(stretch: Stretch, source: Source, entry: Entry) -> None:
    if entry.end - entry.start <= LONG_LINE:
        with suppress(GemError):  # a damaged line
            stretch.example = entry, short_actions(source.store[entry.number])


def _count_in(stretch: Stretch, source: Source, entry: Entry, turn: int) -> None:
    if entry.end - entry.start > LONG_LINE:
        return
    try:
        episode = source.store[entry.number]
    except GemError:  # a damaged line
        return
    stretch.read += 1
    actions = short_actions(episode, turn + 1)
    stretch.openings[actions[turn] if turn < len(actions) else "(over before)"] += 1
    for each in episode.turns:
        stretch.tools.update(tools_used(each))


def short_actions(episode: Episode, count: int = SHOWN) -> list[str]:
    """Return an episode's first actions, each in one short line."""
    return [short_action(turn.action or "") for turn in episode.turns[:count]]


def short_action(action: str) -> str:
    """Return an action in one short line."""
    return " ".join(action[:200].split())[:60]


class Start(NamedTuple):
    """An episode of a start: of which run, and what it did."""

    source: Source
    entry: Entry
    version: int | None
    actions: list[str]


def same_start(sources: Sequence[Source], spec: str, seed: int, most: int = 200) -> list[Start]:
    """Return the episodes of an environment and seed in all runs, in the order of their policies."""
    found: list[Start] = []
    for source in sources:
        entries, _ = source.store.page(spec=spec, seed=seed, count=most)
        for entry in entries[: most - len(found)]:
            try:
                episode = source.store[entry.number]
            except GemError:  # a damaged line
                continue
            found.append(Start(source, entry, episode.policy_version, short_actions(episode)))
    return sorted(found, key=lambda start: (start.source.number, start.version or 0, start.entry.number))
