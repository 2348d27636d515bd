"""Resume a run from a store: find the stored episodes of jobs that would be played now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gem import codec
from gem.codec import task_key
from gem.errors import SchemaMismatch, StoreError
from gem.naming import is_fixed, without_digest
from gem.record import Episode, RunInfo
from gem.registry import EnvSpec, Maker
from gem.rollout.index import Entry
from gem.rollout.jobs import Job, Trial, spec_of
from gem.rollout.places import Recipe, is_plain, pool_key, task_made_by
from gem.rollout.store import EpisodeStore, env_key
from gem.specs import TaskRef


class StoredEpisodes:
    """The episodes of a store to resume from: the latest attempt of each job and sample.

    The index answers queries; an episode is read when its job is next.
    """

    def __init__(self, store: EpisodeStore) -> None:
        """Claim the store, and query the index.

        Raises:
            StoreError: when another process resumes from it.
        """
        store.claim()
        self._store = store
        self._runs = store.runs
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        for entry in store.latest(superseded=True):  # data may be what they were before
            if entry.job:
                self._entries.setdefault((entry.job, entry.sample), []).append(entry)
        specs = {entry.spec for entries in self._entries.values() for entry in entries}
        self._files = {without_digest(name): name for name in specs if is_fixed(name)}
        self._equal: dict[str, set[str]] = {}  # the runs with equal settings, by the current run
        self._tasks: dict[Any, tuple[Recipe, TaskRef]] = {}  # by pool_key, which is only of objects that live

    @property
    def left(self) -> bool:
        """Whether there are episodes whose jobs have not come yet."""
        return bool(self._entries)

    def run(self, run: RunInfo) -> RunInfo:
        """Return the last stored run with equal settings, versions and addresses, or `run` if there is none.

        Warns where all runs with equal settings had their model at other addresses.
        """
        settings = _settings(run)
        equal = [stored for stored in self._runs if _settings(stored) == settings]
        before = {stored.addresses for stored in equal}
        if any(before) and run.addresses and run.addresses not in before:
            warnings.warn(
                f"{self._store.path} was played with the model at {', '.join(sorted(filter(None, before)))}, "
                f"and goes on with the model at {run.addresses}: is it the same model?",
                stacklevel=2,
            )
        if equal and (equal[-1].versions, equal[-1].addresses) == (run.versions, run.addresses):
            run = equal[-1]
        self._equal[run.id] = {stored.id for stored in equal}
        return run

    def find(self, trial: Trial, run: RunInfo) -> tuple[Trial, Episode | None]:
        """Return the next attempt at a job, and its stored episode (None where it has none).

        A key that is a hash does not have all of some recipes: a function has only its name there. If the
        stored episode is of another environment, the job gets another key.

        Raises:
            SchemaMismatch: when the job is stored only with other settings, the key that it was given has
                another job, or nothing can tell whether the stored episode is of the same environment.
        """
        job, key = trial.job, trial.key
        entries = self._entries.get((key, job.sample), ())
        same = [entry for entry in entries if entry.run in self._equal[run.id]]
        spec = spec_of(job.env)
        if not same:
            if entries:
                self._refuse(key, entries[-1], run)
            self._refuse_changed_file("" if spec is None else spec.id)
            return trial, None
        entry = same[-1]
        again = replace(trial, attempt=entry.attempt + 1)
        try:
            episode = self._store[entry.number]
        except StoreError:  # its line is damaged
            del self._entries[key, job.sample]
            return again, None
        here = (job.seed, job.salt, job.group, episode.spec if spec is None else spec.id)
        there = (episode.seed, episode.salt, episode.group, episode.spec)
        if here != there:
            raise SchemaMismatch(
                f"job {key!r} is (seed, salt, group, environment) {there} in {self._store.path} and {here} "
                "here; give other jobs other keys, or use another store."
            )
        if (other := self._other_task(job, episode)) is not None:
            return self.find(replace(trial, key=f"{key}.{env_key(other)}"), run)
        del self._entries[key, job.sample]
        return again, episode

    def _other_task(self, job: Job, episode: Episode) -> TaskRef | None:
        """Return the task of a job if a stored episode is of another; None if it is of this one.

        Raises:
            SchemaMismatch: when it is another and the job was given its key, or when nothing can tell.
        """
        began = episode.starts or episode.task.entry_point  # else its environment was never made
        if not began or (not job.key and is_plain(job.env)):
            return None
        recipe = pool_key(job.env)
        if recipe not in self._tasks:
            self._tasks[recipe] = (job.env, task_made_by(job.env))
        _, task = self._tasks[recipe]
        stored = replace(episode.task, foreign=False)
        if _environment_of(task, job) != _environment_of(stored, job):
            if job.key:
                raise SchemaMismatch(
                    f"job {job.key!r} is of another environment in {self._store.path}: "
                    f"{'; '.join(differences(stored, replace(task, seed=job.seed)))}. Give other jobs other "
                    "keys, or use another store."
                )
            return task
        names = (task.spec, *(wrapper.name for wrapper in task.wrappers))
        unknown = [name for name in names if "<locals>" in name]  # a class that may depend on what is around
        if "<" in getattr(job.env, "__qualname__", "<"):  # no function of a module, which its name tells
            unknown += [name for name in task.opaque if "." in name]  # an argument; the others are classes
        if unknown and not job.key:
            raise SchemaMismatch(
                f"{self._store.path} holds an episode of {task.spec}, seed {job.seed}, but nothing tells "
                f"whether its environment was the same: {', '.join(unknown)} cannot be stored. Use plain "
                "data and what can be imported, give each job a key, or use another store."
            )
        return None

    def _refuse_changed_file(self, name: str) -> None:
        before = self._files.get(without_digest(name), name)
        if before != name:
            raise SchemaMismatch(
                f"{self._store.path} was played with {before}, and the file has changed since: here it is "
                f"{name}. To continue with the content of then, name {before}; else use another store."
            )

    def _refuse(self, key: str, entry: Entry, run: RunInfo) -> None:
        stored = {each.id: each for each in self._runs}.get(entry.run)
        if stored is None and entry.run:
            raise SchemaMismatch(
                f"{self._store.path} holds job {key!r} ({entry.spec}, seed {entry.seed}) without the "
                "settings that it was played with: the line of its run is missing or damaged. Use "
                "another store."
            )
        what = "; ".join(differences(_settings(stored or RunInfo()), _settings(run)))
        unknown = ""
        if "weights is None there" in what:
            unknown = " An earlier gem kept no digest of weights: nothing tells whether these are those."
        raise SchemaMismatch(
            f"{self._store.path} holds job {key!r} ({entry.spec}, seed {entry.seed}) under other settings: "
            f"{what}.{unknown} Use the same settings, or another store."
        )


def _environment_of(task: TaskRef, job: Job) -> Any:
    """Return what makes the environment of a job's task; an id may have moved to another module since."""
    named = isinstance(job.env, Maker) and isinstance(job.env.env_id, EnvSpec)
    return task_key(replace(task, seed=None)), task.entry_point if named else None


def _settings(run: RunInfo) -> RunInfo:
    """Return the settings that make episodes comparable, in their stored form."""
    return codec.decode_run(codec.encode_run(run)).settings


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Return the differences of two records as texts, by field name."""
    one, other = _parts(there), _parts(here)
    if one is None or other is None:
        return [] if there == here else [f"{name} is {there!r:.80} there and {here!r:.80} here"]
    texts: list[str] = []
    for part in dict.fromkeys((*one, *other)):
        texts += differences(one.get(part), other.get(part), f"{name}.{part}" if name else str(part))
    return texts


def _parts(value: Any) -> Mapping[Any, Any] | None:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return value if isinstance(value, Mapping) else None
