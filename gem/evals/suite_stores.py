"""The stores of an evaluation: one per agent, in its folder."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from gem.errors import StoreError, reason
from gem.evals.reports import file_name
from gem.evals.usage import Budget, Usage, spent_on, together
from gem.record import Episode, Verdict
from gem.rollout import EpisodeStore
from gem.rollout.store import UNREADABLE

EPISODES_FILE = "episodes.jsonl"


class CountedStore(EpisodeStore):
    """An episode store that also reports each new episode to a budget."""

    budget: Budget | None = None
    agent = ""

    def append(self, episode: Episode) -> None:
        """See EpisodeStore.append."""
        super().append(episode)
        if self.budget is not None:
            self.budget.append(episode, self.agent)

    def count_stored(self, budget: Budget) -> int:
        """Add the stored episodes to a budget, and return how many lines are damaged and played again."""
        damaged, decided = 0, set()
        for number in range(len(self)):
            try:
                episode = self[number]
            except UNREADABLE:
                damaged += 1
                continue
            job = episode.run.id, episode.job, episode.sample
            if job not in decided:  # a later line of it has only more parts
                budget.append(episode, self.agent)
            if episode.scored:
                decided.add(job)
        return damaged

    def spent_before(self, ids: Collection[str]) -> dict[str, Usage]:
        """Return the usage of the earlier attempts, without verdict, at the jobs of these episodes."""
        if len(self) == len(ids):
            return {}
        entries = self.select()
        jobs = {(entry.job, entry.sample) for entry in entries if entry.id in ids}
        earlier = [
            self[entry.number]
            for entry in entries
            if entry.id not in ids and entry.verdict == Verdict.NONE and (entry.job, entry.sample) in jobs
        ]
        return spent_on(earlier)


class Attempts:
    """What an evaluation without a folder keeps of its attempts: the usage of those without verdict."""

    def __init__(self, budget: Budget | None, agent: str) -> None:
        """Count nothing yet; `budget` counts every attempt of the agent too."""
        self.budget, self.agent = budget, agent
        self._spent: dict[str, dict[str, Usage]] = {}  # by the episode's id

    def append(self, episode: Episode) -> None:
        """Count an attempt."""
        if self.budget is not None:
            self.budget.append(episode, self.agent)
        if not episode.scored:
            self._spent[episode.id] = spent_on((episode,))

    def spent_before(self, ids: Collection[str]) -> dict[str, Usage]:
        """Return the usage of the attempts that are not these."""
        return together(spent for number, spent in self._spent.items() if number not in ids)


def open_store(last: ExitStack, out: Path, name: str, alone: bool) -> CountedStore:
    """Open and claim the store of an agent's episodes, which `last` closes.

    Each agent has its own, as a store has one agent's settings: in `out` if the agent is `alone`, else in a
    folder of its name.

    Raises:
        StoreError: when the folder cannot be made, is a training run's, or another evaluation writes there.
    """
    if any((out / file).exists() for file in ("checkpoint.pt", "metrics.jsonl")):
        raise StoreError(
            f"{out} holds a training run, and an evaluation cannot write there; choose another --out."
        )
    folder = out / file_name(name)
    if alone and not (folder / EPISODES_FILE).exists():
        folder = out
    elif (out / EPISODES_FILE).exists():
        raise StoreError(
            f"{out} holds the episodes of a single agent; for several agents choose another --out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {reason(error)}; choose another --out.") from error
    store = last.enter_context(CountedStore(folder / EPISODES_FILE))
    store.claim()  # at the start: another evaluation may be playing the same episodes
    return store
