"""Show how a run changed from its first episode to its last: the common actions over time, and examples.

The store is split into stretches with equal numbers of episodes, in the order of play; in a training run a
stretch is one or more whole iterations. Some episodes of each stretch are read, evenly spread, because the
first ones to end are the short ones. The seeds that a training run learns on are not repeated, so its
stretches hold different episodes of the same task. For seeds that are repeated, `same_start` returns the
episodes of all runs. Seeds played at every checkpoint are in `gem.viewer.watched`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gem.record import Episode
from gem.rollout.index import Entry
from gem.viewer.conversation import tools_used
from gem.viewer.sources import Source

STRETCHES = 32
READ = 32
"""The most episodes of a stretch that are read."""
LOOKED_AT = 256
"""The most episodes of a stretch whose outcomes are counted."""
LONG_LINE = 1 << 18
"""Episodes whose stored line has more bytes are not read here."""
SHOWN = 12
"""The most actions of an episode that a list shows."""
REASON_AT_MOST = 160
"""The most characters of a reason that a list shows."""
WAYS = 10
"""The most different actions that are shown."""


@dataclass(slots=True)
class Stretch:
    """Some consecutive episodes: outcomes, actions at one turn, tool calls, and one example."""

    first: Entry
    read: int = 0
    solved: int = 0
    known: int = 0
    openings: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    example: tuple[Entry, list[str]] | None = None


class Way(NamedTuple):
    """An action, and its share of each stretch's episodes."""

    action: str
    shares: list[float]


class Split(NamedTuple):
    """A run split into stretches."""

    stretches: list[Stretch]
    ways: list[Way]
    others: list[float]
    tools: list[Way]


def split_run(source: Source, spec: str = "", turn: int = 0) -> Split:
    """Split a run into stretches, and count the actions that its episodes took at a turn.

    Args:
        source: the run.
        spec: only the episodes of this environment, by its name; "": all.
        turn: the turn whose actions are counted, from 0.
    """
    wanted = source.filter_of(spec)
    _, total = source.store.page(count=0, **wanted)
    size = _size(source, total)
    silent = source.find_silent()
    stretches: list[Stretch] = []
    for start in range(0, total, size):
        entries, _ = source.store.page(start=start, count=min(LOOKED_AT, size), **wanted)
        if not entries:
            break
        stretch = Stretch(entries[0])
        for entry in entries:
            if entry.success is not None and entry.env not in silent:
                stretch.known += 1
                stretch.solved += entry.success
        for entry in entries[:: -(-len(entries) // READ)]:
            _count_in(stretch, source, entry, turn)
        example = min(entries, key=lambda each: (_order_key(each), each.number))
        if (episode := source.read_episode(example, LONG_LINE)) is not None:
            stretch.example = example, short_actions(episode)
        stretches.append(stretch)
    used = Counter[str]()
    for stretch in stretches:
        used.update(stretch.tools)
    actions = dict.fromkeys(action for stretch in stretches for action in stretch.openings)
    every = [Way(each, [s.openings[each] / max(1, s.read) for s in stretches]) for each in actions]
    ways = sorted(sorted(every, key=lambda way: -sum(way.shares))[:WAYS], key=_mean_position)
    others = [1 - sum(way.shares[i] for way in ways) for i in range(len(stretches))]
    tools = [
        Way(name, [s.tools[name] / max(1, s.read) for s in stretches]) for name, _ in used.most_common(WAYS)
    ]
    return Split(stretches, ways, [max(0.0, share) for share in others], tools)


def _mean_position(way: Way) -> float:
    """Return the mean position of an action over the stretches, weighted by its shares."""
    return sum(place * share for place, share in enumerate(way.shares)) / sum(way.shares)


def _size(source: Source, total: int) -> int:
    """Return the number of episodes per stretch; for a training run, whole iterations if possible."""
    batch = source.config.get("batch")
    unit = batch if isinstance(batch, int) and batch > 0 else 1
    return unit * max(1, -(-total // (unit * STRETCHES)))


def _order_key(entry: Entry) -> tuple[int, ...]:
    """Return a sort key: a training run's job numbers (iteration and task), else the order of the store."""
    numbers = job_numbers(entry.job.partition("@")[0])
    return (*numbers, entry.sample) if numbers else ()


def job_numbers(job: str) -> tuple[int, ...]:
    """Return the numbers in the job name of a training run; () for any other job name."""
    numbers = job.split("-")
    known = all(each.isascii() and each.isdigit() and len(each) < 10 for each in numbers)
    return tuple(map(int, numbers)) if known else ()


def _count_in(stretch: Stretch, source: Source, entry: Entry, turn: int) -> None:
    episode = source.read_episode(entry, LONG_LINE)
    if episode is None:
        return
    stretch.read += 1
    actions = short_actions(episode, turn + 1)
    stretch.openings[actions[turn] if turn < len(actions) else "(over before)"] += 1
    for each in episode.turns:
        stretch.tools.update(tools_used(each))


def short_actions(episode: Episode, count: int = SHOWN) -> list[str]:
    """Return an episode's first actions, each on one short line."""
    return [short_action(turn.action or "") for turn in episode.turns[:count]]


def short_action(action: str, longest: int = 60) -> str:
    """Return an action on one line of `longest` characters at most."""
    return " ".join(action[:200].split())[:longest]


class Summary(NamedTuple):
    """Why an episode ended so, each on one short line: the right answer, the given one, the reason."""

    target: str
    answer: str
    reason: str


def summary_of(episode: Episode) -> Summary | None:
    """Return the target, the answer and the reason that the last info of an episode has; None without any."""
    info: Mapping[str, Any] = episode.ends[episode.seats[0]].info if episode.seats else {}
    test = info.get("public")
    test = test if isinstance(test, Mapping) else {}
    target = info.get("target", info.get("reference", test.get("wanted")))
    answer = test.get("got", info.get("parsed_action"))
    reason = info.get("why") or test.get("why") or (episode.error.message if episode.error else None)
    if target is None and not reason:
        return None
    target, answer, reason = ("" if each is None else str(each) for each in (target, answer, reason))
    return Summary(short_action(target), short_action(answer), short_action(reason, REASON_AT_MOST))


class Start(NamedTuple):
    """An episode of a given id and seed: its run, environment's name, policy version, and actions."""

    source: Source
    env: str
    entry: Entry
    version: int | None
    actions: list[str]


def same_start(sources: Sequence[Source], spec: str, seed: int, most: int = 200) -> list[Start]:
    """Return the episodes of an environment and seed in all runs, ordered by policy version."""
    starts: list[Start] = []
    for source in sources:
        entries, _ = source.store.page(spec=spec, seed=seed, count=most - len(starts))
        names = source.names() if entries else {}
        for entry in entries:
            if (episode := source.read_episode(entry)) is not None:
                name, actions = names.get(entry.env, spec), short_actions(episode)
                starts.append(Start(source, name, entry, episode.policy_version, actions))
    return sorted(starts, key=lambda start: (start.source.number, start.version or 0, start.entry.number))
