"""The data of the viewer: episode stores, and the run folders around them."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from sys import float_info
from tempfile import NamedTemporaryFile
from threading import RLock
from typing import Any

from gem.errors import BadArgument, GemError, SchemaMismatch, StoreError
from gem.evals.environments import name_environments
from gem.evals.reports import file_name
from gem.evals.results import reports_success
from gem.files import read_json as read_file
from gem.record import Episode, StopReason, Verdict
from gem.rollout.index import Entry, Tally, TaskTally
from gem.rollout.store import EpisodeStore, by_end, by_task
from gem.specs import TaskRef
from gem.statistics import Interval, clustered_rate, wilson
from gem.statistics.intervals import ROUNDING, bound_mean
from gem.viewer.json_files import JsonLines, read_json
from gem.viewer.notes import Note, Notes
from gem.viewer.values import ValuesFile

EPISODES, METRICS, CONFIG, RESULT = "episodes.jsonl", "metrics.jsonl", "config.json", "result.json"
WATCHED = "watched.jsonl"
"""The store of the seeds that a training run plays at every checkpoint."""
RANK = re.compile(r"episodes-[0-9]+\.jsonl")
"""The names of the stores of a training run's other processes."""
DEEPEST = 3
"""How many levels of folders are searched for stores."""
MOST = 200
"""The most stores that are opened."""
_LONGEST_HEAD = 1 << 12  # bytes of a first line, which tells one store from another
MUCH_NOTED = 20
"""Of a store with a note on one in so many episodes, all entries are read to find those with one."""


@dataclass(slots=True)
class Figures:
    """Statistics of many episodes; a statistic without data is None.

    `turns` and `calls` (of tools) count episodes with a verdict only. If tasks have several samples, `tasks`
    holds the sums by task: samples of one task are correlated, and intervals take that into account.
    """

    episodes: int = 0
    scored: int = 0
    known: int = 0  # those of which it is known whether they succeeded
    solved: int = 0
    turns: int = 0
    tokens: int = 0
    calls: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    rewards: float = 0.0
    squares: float = 0.0
    rates: int = 0  # the returns that are 0 or 1
    tasks: list[TaskTally] = field(default_factory=list)

    def add(self, tally: Tally) -> None:
        """Add the sums of a tally."""
        self.episodes += tally.episodes
        self.tokens += tally.tokens
        self.stops[tally.stop] = self.stops.get(tally.stop, 0) + tally.episodes
        if tally.verdict == Verdict.SCORED:
            self.scored += tally.episodes
            self.turns += tally.turns
            self.calls += tally.calls
            self.rewards += tally.reward
            self.squares += tally.reward_squares
            self.rates += tally.rates
        if tally.success is not None:
            self.known += tally.episodes
            self.solved += tally.episodes * tally.success

    @property
    def success(self) -> Interval | None:
        """The success rate with its 95% interval: Wilson's, clustered by task if tasks have samples."""
        if graded := [task for task in self.tasks if task.known]:
            return clustered_rate([task.solved for task in graded], [task.known for task in graded])
        return wilson(self.solved, self.known) if self.known else None

    @property
    def reward(self) -> Interval | None:
        """The mean return with its 95% interval: that of `return_interval`, from the sums."""
        n = self.scored
        if not n or not math.isfinite(self.squares):
            return None
        if self.rates == n and (0 < self.rewards < n or (self.known, self.solved) == (n, self.rewards)):
            if self.tasks:
                return clustered_rate(
                    [int(each.reward) for each in self.tasks], [each.scored for each in self.tasks]
                )
            return wilson(int(self.rewards), n)
        mean, g = self.rewards / n, len(self.tasks) or n
        # No more than rounding: as far as the sums tell, all are equal, which says nothing about others.
        squares, rounding = self.squares - n * mean**2, 2 * n * float_info.epsilon
        if self.tasks:
            squares = math.fsum((task.reward - task.scored * mean) ** 2 for task in self.tasks)
            rounding = g * ROUNDING**2 / n
        if squares <= rounding * self.squares:
            return Interval(mean, -math.inf, math.inf, n, g)
        return bound_mean(mean, squares, n, g)

    @property
    def mean_turns(self) -> float | None:
        """The mean number of turns of the episodes with a verdict."""
        return self.turns / self.scored if self.scored else None

    @property
    def mean_calls(self) -> float | None:
        """The mean number of tool calls of the episodes with a verdict."""
        return self.calls / self.scored if self.scored else None

    @property
    def coverage(self) -> float | None:
        """The share of episodes with a verdict."""
        return self.scored / self.episodes if self.episodes else None


class Source:
    """An episode store, with the other files of its folder."""

    def __init__(self, number: int, path: Path, name: str, trust: bool = False) -> None:
        """Open the store at `path` to read it; `trust`: see EpisodeStore.

        Raises:
            StoreError, SchemaMismatch: when it is not a store.
        """
        self.number, self.path, self.name, self.trust = number, path, name, trust
        self._file = _identify(path)
        self._store = EpisodeStore(path, read_only=True, trust=trust) if path.exists() else _empty()
        self.folder = path.parent
        self.notes, self.values = Notes(path), ValuesFile(path)
        self.advantages: dict[tuple[str, str], tuple[int, dict[str, dict[int, float]]]] = {}
        self._lock = RLock()  # pages are made in several threads
        self._metrics = JsonLines(self.folder / METRICS)
        self._alarms: list[dict[str, Any]] = []
        self._alarmed = 0
        self._tally: tuple[int, list[Tally]] | None = None
        self._counted: tuple[tuple[int, Any], list[Tally], list[TaskTally]] | None = None
        self._tasks: dict[str, TaskRef] = {}

    @property
    def store(self) -> EpisodeStore:
        """The episodes; an empty store until a training run has played its first one.

        Where another file has taken its place, as from a copy of the folder, that one is read.
        """
        with self._lock:
            file = _identify(self.path)
            if file not in (None, self._file):
                self._file = file
                with suppress(GemError):  # it is damaged, as reading it tells
                    now = EpisodeStore(self.path, read_only=True, trust=self.trust)
                    before, self._store = self._store, now
                    self._tally, self._counted = None, None
                    self.advantages.clear()
                    self._tasks.clear()
                    before.close()
            return self._store

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of a training run; empty if this is not one."""
        if self.path.name != EPISODES:
            return {}
        return read_json(self.folder / CONFIG)

    def read_notes(self) -> list[tuple[Entry, Note]]:
        """Return the episodes with a note, a flag or a label, in the order of the store."""
        notes, store = self.notes.all(), self.store
        if len(notes) * MUCH_NOTED < len(store):  # then it is quicker to ask the index for each
            entries = [entry for id in notes for entry in store.select(id=id)[:1]]
        else:
            entries = [entry for entry in store.select() if entry.id in notes]
        firsts = {entry.id: entry for entry in reversed(entries)}
        return sorted((entry, notes[id]) for id, entry in firsts.items())

    def costs(self) -> dict[str, float]:
        """Return the cost of each environment's episodes in dollars, by its name, if it was stored."""
        for file, own in ((self.folder / RESULT, None), (self.folder.parent / RESULT, self.folder.name)):
            with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError, LookupError):
                costs: dict[str, float] = {}
                for row in read_file(file)["results"]:
                    belongs = own is None or file_name(row["name"]) == own
                    if belongs and type(row.get("cost")) in (int, float):
                        costs[row["env"]] = row["cost"]
                return costs
        return {}

    @property
    def training(self) -> bool:
        """Whether this is a training run."""
        return bool(self.config)

    @property
    def recipe(self) -> str:
        """A key that is equal for training runs that differ only in their seed."""
        left_out = ("seed", "out", "threads", "watch", "log")
        settings = {name: value for name, value in self.config.items() if name not in left_out}
        return json.dumps(settings, sort_keys=True, default=str)

    @property
    def history(self) -> list[dict[str, Any]]:
        """The metrics of a training run's iterations written so far; new ones are read at each access."""
        if not self.training:
            return []
        with self._lock:
            return [values for values in self._metrics.read() if _is_iteration(values.get("iteration"))]

    def alarms(self) -> list[dict[str, Any]]:
        """Return the alarms of a training run, by iteration; empty if training is not installed."""
        with self._lock:
            history = self.history
            if len(history) < self._alarmed:  # begun anew
                self._alarms, self._alarmed = [], 0
            try:
                from gem.train.config import TrainConfig
                from gem.train.report.alarms import alarms
                from gem.train.report.run_folder import metrics_from_json

                config = TrainConfig.from_json(dict(self.config))
                known = list(map(metrics_from_json, history))
                for end in range(self._alarmed + 1, len(known) + 1):
                    self._alarms += [
                        {"name": alarm.name, "iteration": alarm.iteration, "text": alarm.text}
                        for alarm in alarms(known[:end], config)
                    ]
                self._alarmed = len(known)
            except (GemError, ImportError, TypeError, ValueError, ArithmeticError, AttributeError):
                pass  # a run of another version
            return list(self._alarms)

    def read_episode(self, entry: Entry, most_bytes: float = math.inf) -> Episode | None:
        """Return an entry's episode; None if its stored line is damaged, or has more than `most_bytes`."""
        if entry.end - entry.start > most_bytes:
            return None
        try:
            return self.store[entry.number]
        except GemError:
            return None

    def tally(self) -> list[Tally]:
        """Return the sums over all episodes; they are cached until the store grows."""
        count = len(self.store)
        if self._tally is None or self._tally[0] != count:
            self._tally = count, self.store.tally()
        return self._tally[1]

    def find_silent(self) -> set[str]:
        """Return the keys of the environments that do not report success (`reports_success`)."""
        stops: dict[str, set[str]] = {}
        for tally in self.tally():
            if tally.verdict == Verdict.SCORED:
                stops.setdefault(tally.env, set()).add(tally.stop)
        return {
            env
            for env, own in stops.items()
            if not reports_success(own) or (StopReason.ENDED in own and self._has_seats(env))
        }

    def _has_seats(self, env: str) -> bool:
        """Return whether an environment's first episode with a verdict has several seats."""
        entries, _ = self.store.page(env=env, verdict=Verdict.SCORED, count=1)
        episode = self.read_episode(entries[0]) if entries else None
        return episode is not None and episode.several

    def _counting(self) -> tuple[list[Tally], list[TaskTally]]:
        """Return the sums over the episodes that count: of repeated ones, the last attempt (`latest`).

        Sums by task are given if tasks have several samples. Entries are read one by one only if an episode
        may have been played again, or counts no more.
        """
        store = self.store
        count = len(store), store.superseded
        if self._counted is None or self._counted[0] != count:
            # Watched seeds have one sample each, at every checkpoint.
            several = self.path.name == WATCHED or store.page(sample=1, count=0)[1] > 0
            if count[1] or store.page(attempt=1, count=0)[1] or len(store.runs) > 1:
                entries = store.latest()
                tallies, tasks = by_end((), entries), by_task((), entries) if several else []
            else:
                tasks = store.tasks() if several else []
                tallies = self.tally()  # after them, so that none has an episode that is in no tally
            silent = self.find_silent()
            self._counted = (
                count,
                [each._replace(success=None) if each.env in silent else each for each in tallies],
                [each._replace(known=0, solved=0) if each.env in silent else each for each in tasks],
            )
        return self._counted[1:]

    def figures(self) -> Figures:
        """Return the statistics of all episodes."""
        tallies, tasks = self._counting()
        figures = Figures(tasks=tasks)
        for tally in tallies:
            figures.add(tally)
        return figures

    def names(self) -> dict[str, str]:
        """Return the name of each environment by its key; see `name_environments`."""
        with self._lock:
            return name_environments(self.store, self._tasks)

    def by_env(self) -> dict[str, Figures]:
        """Return the statistics of each environment's episodes, by its name."""
        tallies, tasks = self._counting()
        names, by_env = self.names(), dict[str, Figures]()
        for tally in tallies:
            by_env.setdefault(names.get(tally.env, tally.spec), Figures()).add(tally)
        for task in tasks:  # the store may have grown
            by_env.setdefault(names.get(task.env, task.spec), Figures()).tasks.append(task)
        return dict(sorted(by_env.items()))

    def filter_of(self, name: str) -> dict[str, Any]:
        """Return the filter of an environment's episodes, by its name or id; "": all of them."""
        keys = tuple(key for key, each in self.names().items() if each == name)
        return {} if not name else {"env": keys} if keys else {"spec": name}

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @property
    def date(self) -> str:
        """The day (UTC) on which the store was last written, as 2026-11-28; "" if there is none yet."""
        with suppress(OSError):
            return f"{datetime.fromtimestamp(self.path.stat().st_mtime, UTC):%Y-%m-%d}"
        return ""

    def title(self, env: str | None = None) -> str:
        """Return the run's title, or that of its episodes of one environment: environment, agents, date."""
        envs = [env] if env is not None else sorted({*self.names().values()})
        what = envs[0] if len(envs) == 1 else f"{len(envs)} environments" if envs else self.name
        return ", ".join(filter(None, (what, self.agents, self.date)))

    @property
    def agents(self) -> str:
        """The agents and models that played."""
        names = []
        for run in self.store.runs:
            model = "" if run.model is None else f" {Path(run.model).name}"
            names.append(f"{run.agent}{model}".strip() or "unnamed")
        return ", ".join(dict.fromkeys(names))


def _is_iteration(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


ANY_RUN = (
    "episodes; accepted: a store (episodes.jsonl), the folder of a training run or an evaluation, "
    "or a folder of such folders"
)


def open_sources(
    paths: Sequence[Path], *, watched: bool = True, wanted: str = ANY_RUN, trust: bool = False
) -> list[Source]:
    """Open the stores at or below `paths`: files, folders of runs, or folders of such folders.

    With `watched`, the stores of the seeds that training runs play at every checkpoint come last. The error
    for a path without stores says that it holds no `wanted`. What cannot be read beside what can is left out
    with a warning, if it was found and not named. `trust`: see EpisodeStore.

    Raises:
        BadArgument: for a path without stores, or too many of them.
        StoreError, SchemaMismatch: for a file that is not a store.
    """
    stores: list[Path] = []
    for path in paths:
        below = [path] if path.is_file() else list(find_stores(path))
        if not below:
            raise BadArgument(f"{path} holds no {wanted}.")
        stores += [each for each in below if each not in stores]
    if len(stores) > MOST:
        raise BadArgument(f"there are {len(stores)} stores; accepted: {MOST} at most. Name some of them.")
    named = list(zip(stores, _names(stores), strict=True))
    for path, name in named.copy() if watched else ():
        beside = path.with_name(WATCHED)
        if path.name == EPISODES and beside.is_file() and beside not in stores and len(named) < MOST:
            named.append((beside, f"{name}, watched"))
    sources: list[Source] = []
    refusals: list[GemError] = []
    for path, name in named:
        try:
            sources.append(Source(len(sources), path, name, trust))
        except (StoreError, SchemaMismatch) as refused:
            if path in paths:
                raise
            refusals.append(refused)
    if refusals and not any(each.path in stores for each in sources):
        raise refusals[0]
    for refusal in refusals:
        warnings.warn(f"left out: {refusal}", stacklevel=2)
    return sources


def _identify(path: Path) -> tuple[int, int, bytes] | None:
    """Return which file is at a path, with its first line, as a copy may be written into the same file.

    None: there is none, or it is a folder, a pipe or a device.
    """
    with suppress(OSError):
        state = path.stat()
        if S_ISREG(state.st_mode):
            with path.open("rb") as file:
                return state.st_dev, state.st_ino, file.readline(_LONGEST_HEAD)
    return None


def _empty() -> EpisodeStore:
    """Return an empty store."""
    with NamedTemporaryFile() as file:  # the store keeps using the open file
        return EpisodeStore(file.name, read_only=True)


def find_stores(folder: Path, depth: int = 0) -> Iterable[Path]:
    """Yield the stores in a folder and in those below it; that of a run may not exist yet."""
    if (folder / EPISODES).is_file() or all((folder / name).is_file() for name in (CONFIG, METRICS)):
        yield folder / EPISODES  # does not exist if a training run has just begun, or stores no episodes
    yield from sorted(path for path in folder.glob("episodes-*.jsonl") if RANK.fullmatch(path.name))
    if depth < DEEPEST and folder.is_dir():
        for below in sorted(each for each in folder.iterdir() if each.is_dir()):
            yield from find_stores(below, depth + 1)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a short name for each path: as many of its last parts as make it unique."""
    parts = [path.resolve().parts[:-1] if path.name == EPISODES else path.resolve().parts for path in paths]
    length = 1
    while length < 8 and len({each[-length:] for each in parts}) < len(parts):
        length += 1
    return ["/".join(each[-length:]) or "/" for each in parts]
