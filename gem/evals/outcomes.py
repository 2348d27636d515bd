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
from gem.record import RunInfo, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef

Metric = Literal["success", "return"]
METRICS: tuple[Metric, ...] = ("success", "return")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one sample of a task ended.

    `task` stands for environment, keywords, wrappers and seed: equal where they are, whoever played. Several
    episodes of one task and sample number are told apart by `repeat`. `success` and `reward` (the return) are
    None without verdict, and `success` also where the environment does not say what success is.
    """

    env: str
    task: str
    sample: int
    repeat: int
    success: bool | None
    reward: float | None

    def value(self, metric: Metric) -> float | None:
        """Return the figure that is compared; None where there is none."""
        if metric == "return":
            return self.reward
        return None if self.success is None else float(self.success)


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """A run: where it is stored, who played, how each sample ended, and how many lines are damaged."""

    name: str
    agent: str
    outcomes: tuple[Outcome, ...]
    damaged: int = 0


def read_run(path: str | Path) -> RunOutcomes:
    """Return the outcomes of a run: a file of episodes, or a folder with ``episodes.jsonl`` in it.

    Of what was played again only the last attempt counts (`EpisodeStore.latest`). No episode is read beyond
    its task.

    Raises:
        BadArgument: where nothing is stored, or several agents' episodes of the same tasks.
        StoreError, SchemaMismatch: where the store cannot be read.
    """
    file = _file(Path(path))
    with EpisodeStore(file, read_only=True) as store:
        runs = {run.id: run for run in store.runs}
        entries = store.latest()
        found, damaged = [], 0
        repeats: dict[tuple[str, int], list[str]] = {}  # who played each of them
        for entry in entries:
            if not entry.id:
                damaged += 1
                continue
            try:
                task = task_key(store.task(entry.number))
            except StoreError:
                damaged += 1
                continue
            before = repeats.setdefault((task, entry.sample), [])
            run = runs.get(entry.run) or RunInfo(entry.run)
            scored = entry.verdict == Verdict.SCORED
            found.append(
                Outcome(
                    entry.spec,
                    task,
                    entry.sample,
                    len(before),
                    entry.success if scored else None,
                    entry.reward if scored else None,
                )
            )
            before.append(repr(replace(run, id="", versions={})))
    for played in repeats.values():
        if len({*played}) > 1:
            agents = sorted({who(run) for run in runs.values()})
            raise BadArgument(
                f"{file} holds the same tasks played under several settings (agents: {', '.join(agents)}); a "
                "run is one agent's. Evaluate each into a folder of its own."
            )
    if not found:
        raise BadArgument(f"{file} holds no episode; compare runs that were played.")
    agents = sorted({who(run) for run in runs.values() if who(run)})
    return RunOutcomes(str(path), ", ".join(agents), tuple(found), damaged)


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
