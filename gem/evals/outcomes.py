"""What a stored run says of each task that it played: the plain form in which runs are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from gem import codec
from gem.content import printable
from gem.errors import BadArgument, StoreError
from gem.evals.evaluator import who
from gem.record import Verdict
from gem.rollout import EpisodeStore
from gem.rollout.index import Entry
from gem.specs import TaskRef

Metric = Literal["success", "return"]
METRICS: tuple[Metric, ...] = ("success", "return")

LARGEST = 1e100
"""Returns from here on, and those that are no numbers, have no mean and no variance worth the name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one sample of a task ended.

    `task` stands for environment, keywords, wrappers and seed: equal where they are, whoever played. Of an
    episode that branched off another one (`Job.start`) it says where too, for its first turns were given.
    Several episodes of one task and sample number are told apart by `repeat`. `success` and `reward` (the
    return) are None without verdict, and `success` also where the environment does not say what success is.
    `instance` names what several tasks share that differ by their seeds alone; samples of one instance are
    one cluster.
    """

    env: str
    task: str
    sample: int
    repeat: int
    success: bool | None
    reward: float | None
    instance: str = ""

    @property
    def cluster(self) -> str:
        """What the outcomes resemble one another within: the task, or the instance that it shares."""
        return self.instance or self.task

    def value(self, metric: Metric) -> float | None:
        """Return the figure that is compared; None where there is none, or a return beyond LARGEST."""
        if metric == "return":
            return None if self.reward is None or not abs(self.reward) < LARGEST else self.reward
        return None if self.success is None else float(self.success)


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """A run: where it is stored, who played, how each sample ended, and how many lines are damaged."""

    name: str
    agent: str
    outcomes: tuple[Outcome, ...]
    damaged: int = 0


def read_run(path: str | Path, seat: str | None = None) -> RunOutcomes:
    """Return the outcomes of a run: a file of episodes, or a folder with ``episodes.jsonl`` in it.

    Of what was played again only the last attempt counts (`EpisodeStore.latest`). No episode is read beyond
    its task, but where a seat is asked for.

    Args:
        path: the file or folder.
        seat: of a game of several, whose success and return they are; None: the episode's success, and the
            mean return over the seats.

    Raises:
        BadArgument: where nothing is stored, several agents' episodes of the same tasks are, or an episode
            has no such seat.
        StoreError, SchemaMismatch: where the store cannot be read.
    """
    file = _file(Path(path))
    found: list[tuple[Outcome, str]] = []  # and its group
    played: dict[tuple[str, int], list[str]] = {}  # by task and sample: under which settings
    damaged = 0
    with EpisodeStore(file, read_only=True) as store:
        runs = {run.id: run for run in store.runs}
        settings = {run.id: repr(replace(run, id="", versions={})) for run in runs.values()}
        for entry in store.latest():
            try:
                outcome = _outcome(store, entry, seat)
            except StoreError:
                damaged += 1
                continue
            before = played.setdefault((outcome.task, outcome.sample), [])
            found.append((replace(outcome, repeat=len(before)), entry.group))
            before.append(settings.get(entry.run, entry.run))
    agents = ", ".join(sorted({who(run) for run in runs.values()} - {""}))
    if any(len({*each}) > 1 for each in played.values()):
        raise BadArgument(
            f"{file} holds the same tasks played under several settings (agents: {agents}); a run is one "
            "agent's. Evaluate each into a folder of its own."
        )
    if not found:
        raise BadArgument(f"{file} holds no episode; compare runs that were played.")
    return RunOutcomes(str(path), agents, _with_instances(found), damaged)


def _outcome(store: EpisodeStore, entry: Entry, seat: str | None) -> Outcome:
    if not entry.id:
        raise StoreError("a damaged line")
    task, success, reward = task_key(store.task(entry.number)), entry.success, entry.reward
    begun, instance = task, ""
    if b'"origin":' in store.line(entry.number) and (origin := store[entry.number].origin) is not None:
        begun, instance = f"{task} behind turn {origin.turns} of {origin.episode}", task
    if entry.verdict != Verdict.SCORED:
        success = reward = None
    elif seat is not None:
        episode = store[entry.number]
        if seat not in episode.ends:
            raise BadArgument(
                f"{entry.spec} has no seat {seat!r}; it has {', '.join(map(repr, episode.ends)) or 'none'}."
            )
        success, reward = episode.succeeded(seat), episode.reward(seat)
    return Outcome(entry.spec, begun, entry.sample, 0, success, reward, instance)


def _with_instances(found: Sequence[tuple[Outcome, str]]) -> tuple[Outcome, ...]:
    """Return outcomes with what they are instances of.

    Samples of an instance share their group, and each has a number of its own, whatever their seeds. A group
    that has one number several times for several tasks is none: stores were merged that number their groups
    alike.
    """
    tasks: dict[tuple[str, str, int], set[str]] = {}
    for outcome, group in found:
        tasks.setdefault((outcome.env, group, outcome.sample), set()).add(outcome.task)
    merged = {key[:2] for key, own in tasks.items() if len(own) > 1}
    return tuple(
        replace(outcome, instance=group) if group and (outcome.env, group) not in merged else outcome
        for outcome, group in found
    )


def task_key(task: TaskRef) -> str:
    """Return what tells a task from others: environment, keywords, wrappers and seed, in a canonical form."""
    wire = msgspec.json.decode(codec.pack(replace(task, entry_point=None, opaque=())))
    return msgspec.json.encode(wire, order="deterministic").decode()


def _file(path: Path) -> Path:
    """Return the file of episodes that a path names.

    Raises:
        BadArgument: where there is none; where it is a folder of several agents, it names them.
    """
    if not path.is_dir():
        if not path.exists():
            raise BadArgument(f"{path} is not there; accepted: a folder of `gem-gym eval --out`, or a file.")
        return path
    file = path / "episodes.jsonl"
    if file.exists():
        return file
    agents = sorted(each.parent.name for each in path.glob("*/episodes.jsonl"))
    if agents:
        shown = ", ".join(str(path / printable(name)) for name in agents[:8])
        raise BadArgument(f"{path} holds the runs of {len(agents)} agents; name one of them: {shown}.")
    raise BadArgument(f"{path} holds no episodes.jsonl; `gem-gym eval --out {path} ID` would write it.")


def envs_of(runs: Sequence[RunOutcomes]) -> list[str]:
    """Return the environments of runs, in the order in which they were played."""
    return list(dict.fromkeys(outcome.env for run in runs for outcome in run.outcomes))
