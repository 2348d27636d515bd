"""Compare the seeds that a training run plays at every checkpoint: what changed, and when.

Two episodes of a seed use the same random numbers, so they differ only where the policy does. Outcomes come
from the store's index; only the episodes of one seed are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from gem.rollout.index import Entry
from gem.viewer.sources import WATCHED, Source
from gem.viewer.stretches import LONG_LINE, SHOWN, job_numbers, short_action

MOST_ENTRIES = 2000
CHECKPOINTS = 40
"""The most checkpoints shown, counted from the last."""
SEEDS = 12
"""The most seeds shown."""


@dataclass(slots=True)
class Seed:
    """A seed's episodes by the checkpoint's iteration; `known`: whether they say that it was solved."""

    number: int
    seed: int
    spec: str
    known: bool
    entries: dict[int, Entry] = field(default_factory=dict)

    @property
    def returns(self) -> tuple[float | None, float | None]:
        """The returns at the first checkpoint and at the last."""
        entries = list(self.entries.values())
        return entries[0].reward, entries[-1].reward

    @property
    def first_solved(self) -> int | None:
        """The first checkpoint at which it was solved."""
        return next((at for at, entry in self.entries.items() if entry.success), None)

    @property
    def solved_since(self) -> int | None:
        """The checkpoint since which it was always solved; None if the last one was not."""
        since = None
        for at, entry in self.entries.items():
            since = (since if since is not None else at) if entry.success else None
        return since

    @property
    def changes(self) -> int:
        """How often the outcome differed from that of the checkpoint before."""
        outcomes = [(entry.success, entry.turns, entry.reward) for entry in self.entries.values()]
        return sum(one != other for one, other in pairwise(outcomes))


class Played(NamedTuple):
    """A seed's episode at a checkpoint.

    `parts`: the first turn whose action differs from the checkpoint `before`; None if there is none before,
    or nothing differs. `read`: whether its actions could be read.
    """

    at: int
    entry: Entry
    actions: list[str]
    read: bool
    before: Entry | None
    parts: int | None


class Watched(NamedTuple):
    """A run's watched seeds: the checkpoints, the alarms up to each, and the episodes of one seed."""

    source: Source
    checkpoints: list[int]
    seeds: list[Seed]
    alarms: dict[int, list[dict[str, Any]]]
    chosen: Seed
    played: list[Played]


def compare_checkpoints(sources: Sequence[Source], run: Source, number: int | None = None) -> Watched | None:
    """Return the watched seeds of a training run; None if it has none.

    Args:
        sources: all open sources.
        run: the training run.
        number: the seed whose episodes are read; by default the one that changed most often.
    """
    path = run.folder / WATCHED
    source = next((each for each in sources if each.path == path), None) if run.training else None
    if source is None:
        return None
    entries, _ = source.store.page(descending=True, count=MOST_ENTRIES)
    by_seed: dict[int, dict[int, Entry]] = {}
    for entry in reversed(entries):  # if an episode was repeated, the last attempt counts
        numbers = job_numbers(entry.job)
        if len(numbers) == 2:
            by_seed.setdefault(numbers[1], {})[numbers[0]] = entry
    checkpoints = sorted({at for by_checkpoint in by_seed.values() for at in by_checkpoint})[-CHECKPOINTS:]
    seeds, silent = [], source.find_silent()
    for each in sorted(by_seed)[:SEEDS]:
        entries_of_seed = {at: by_seed[each][at] for at in checkpoints if at in by_seed[each]}
        if entries_of_seed:
            last = next(reversed(entries_of_seed.values()))
            known = any(
                entry.success is not None and entry.env not in silent for entry in entries_of_seed.values()
            )
            seeds.append(Seed(each, last.seed, last.spec, known, entries_of_seed))
    if not seeds:
        return None
    chosen = next((seed for seed in seeds if seed.number == number), None)
    chosen = chosen or max(seeds, key=lambda seed: seed.changes)
    return Watched(
        source, checkpoints, seeds, _alarms(run, checkpoints), chosen, _read_played(source, chosen)
    )


def _alarms(run: Source, checkpoints: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return each alarm at the first checkpoint at or after it; those after all checkpoints, at the last."""
    by_checkpoint: dict[int, list[dict[str, Any]]] = {}
    for alarm in run.alarms():
        at = next((each for each in checkpoints if each >= alarm["iteration"]), checkpoints[-1])
        by_checkpoint.setdefault(at, []).append(alarm)
    return by_checkpoint


def _read_played(source: Source, seed: Seed) -> list[Played]:
    played: list[Played] = []
    before: tuple[Entry, list[str]] | None = None
    for at, entry in seed.entries.items():
        episode = source.read_episode(entry, LONG_LINE)
        if episode is None:
            played.append(Played(at, entry, [], False, None, None))
            continue
        actions = [turn.action or "" for turn in episode.turns]
        parts = None if before is None else _parting(before[1], actions)
        firsts = [short_action(each) for each in actions[:SHOWN]]
        played.append(Played(at, entry, firsts, True, before and before[0], parts))
        before = entry, actions
    return played


def _parting(one: Sequence[str], other: Sequence[str]) -> int | None:
    """Return the first index at which two lists differ; None if they are equal."""
    pairs = enumerate(zip_longest(one, other))
    return next((place for place, (action, before) in pairs if action != before), None)
