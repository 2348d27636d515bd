"""Going on with a store: which of its episodes stand for jobs that are to be played now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from gem import codec
from gem.errors import SchemaMismatch, StoreError
from gem.record import Episode, RunInfo
from gem.registry import EnvSpec
from gem.rollout.index import Entry
from gem.rollout.store import EpisodeStore

if TYPE_CHECKING:
    from gem.rollout.runner import Job


class Held:
    """What a store holds when it is opened to go on with: of each job and sample its latest attempt.

    The index answers; an episode is read when its job comes up.
    """

    def __init__(self, store: EpisodeStore) -> None:
        """Claim the store, and ask the index.

        Raises:
            StoreError: when somebody else is going on with it.
        """
        store.claim()
        self._store = store
        self._runs = store.runs
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        for entry in store.latest():
            if entry.job:
                self._entries.setdefault((entry.job, entry.sample), []).append(entry)
        self._equal: dict[str, set[str]] = {}  # the runs of equal settings, by the run of now

    @property
    def left(self) -> bool:
        """Whether it holds episodes whose jobs have not come up."""
        return bool(self._entries)

    def run(self, run: RunInfo) -> RunInfo:
        """Return the stored run to go on with, the last of equal settings and versions; else `run`."""
        settings = _settings(run)
        equal = [stored for stored in self._runs if _settings(stored) == settings]
        if equal and equal[-1].versions == run.versions:
            run = equal[-1]
        self._equal[run.id] = {stored.id for stored in equal}
        return run

    def find(self, job: Job, spec: EnvSpec | None, key: str, run: RunInfo) -> tuple[Episode | None, int]:
        """Return a job's stored episode, None where it has none, and the number of its next attempt.

        Raises:
            SchemaMismatch: when the job is stored under other settings alone, or is another job of that key.
        """
        entries = self._entries.pop((key, job.sample), ())
        mine = [entry for entry in entries if entry.run in self._equal[run.id]]
        if not mine:
            if entries:
                self._refuse(key, entries[-1], run)
            return None, 0
        entry = mine[-1]
        try:
            episode = self._store[entry.number]
        except StoreError:  # its line is damaged
            return None, entry.attempt + 1
        here = (job.seed, job.salt, job.group, episode.spec if spec is None else spec.id)
        there = (episode.seed, episode.salt, episode.group, episode.spec)
        if here != there:
            raise SchemaMismatch(
                f"job {key!r} is (seed, salt, group, environment) {there} in {self._store.path} and {here} "
                "here; give other jobs other keys, or take another store."
            )
        return episode, entry.attempt + 1

    def _refuse(self, key: str, entry: Entry, run: RunInfo) -> None:
        stored = next((each for each in self._runs if each.id == entry.run), RunInfo(entry.run))
        what = "; ".join(differences(_settings(stored), _settings(run)))
        raise SchemaMismatch(
            f"{self._store.path} holds job {key!r} ({entry.spec}, seed {entry.seed}) under other settings: "
            f"{what}. Go on with the same settings, or take another store."
        )


def _settings(run: RunInfo) -> RunInfo:
    """Return what makes episodes comparable, as it is after being stored."""
    return replace(codec.decode_run(codec.encode_run(run)), id="", versions={})


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Return in words where two records differ, by the names of their fields."""
    one, other = _parts(there), _parts(here)
    if one is None or other is None:
        return [] if there == here else [f"{name} is {there!r:.80} there and {here!r:.80} here"]
    found: list[str] = []
    for part in dict.fromkeys((*one, *other)):
        found += differences(one.get(part), other.get(part), f"{name}.{part}" if name else str(part))
    return found


def _parts(value: Any) -> Mapping[Any, Any] | None:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return value if isinstance(value, Mapping) else None
