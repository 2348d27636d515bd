"""Write demonstrations: episodes played by an environment's solver, for a supervised warm-up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gem import registry, seeding
from gem.agents.solver import SolverAgent
from gem.errors import NoSolver, NoVerdict, check_least
from gem.hosts import Host
from gem.record import Episode
from gem.rollout.jobs import Job
from gem.rollout.runner import Runner
from gem.rollout.store import EpisodeStore
from gem.sandbox.choice import check_needs
from gem.specs import TaskRef

ROUND = 256
"""Number of episodes per round; after each round, the missing ones are counted."""


@dataclass(slots=True)
class DemoCounts:
    """Counts of episodes played, kept and broken, and the kept ones' turns and return.

    `stored` episodes were in the store before.
    """

    played: int = 0
    kept: int = 0
    turns: int = 0
    total: float = 0.0
    broken: int = 0
    stored: int = 0

    @property
    def reward(self) -> float:
        """The mean return of the kept episodes; NaN where none was kept."""
        return self.total / self.kept if self.kept else math.nan

    @property
    def available(self) -> int:
        """The number of episodes that the store holds."""
        return self.stored + self.kept

    def add(self, episode: Episode, keep: bool) -> None:
        """Count an episode that was played, and is kept or not."""
        self.played += 1
        self.broken += not episode.scored
        if keep:
            self.kept += 1
            self.turns += len(episode.turns)
            self.total += episode.reward()


def write_demos(
    env_id: str,
    out: str | Path,
    *,
    episodes: int = 1000,
    seed: int = 0,
    lost: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    host: str | Host = "auto",
) -> DemoCounts:
    """Play episodes with the environment's solver until the store at `out` has `episodes` of them for `seed`.

    `wrappers` are names of the wrapper factory, the innermost first; with a tool, the solver calls it where
    it helps. Episodes that the solver lost are left out and replaced by others, unless `lost` keeps them.
    Episode `i` has the seed ``derive(seed, "demos", i)``: no episode of training or evaluation has it. Each
    is stored as it ends, and stored episodes are not played again: after an interrupted call, the same call
    writes the rest.

    Raises:
        BadArgument: for `episodes` below 1. NoSolver: where there is no solver. StoreError: for a store that
            cannot be written. NoVerdict: when at most one in a hundred episodes can be kept.
    """
    check_least("episodes", episodes)
    maker, key = _make_solvable(env_id, kwargs, wrappers)
    env_id = maker.spec.id
    counts, numbers = DemoCounts(), count()

    def accept(episode: Episode) -> bool:
        return episode.scored and (lost or bool(episode.success))

    def enter(episode: Episode) -> None:
        if accept(episode):
            store.append(episode)
        counts.add(episode, accept(episode))

    # One at a time: they are stored in their order, and Ctrl-C loses one alone.
    with (
        EpisodeStore(out) as store,
        Runner(SolverAgent(), host=host, concurrency=1, on_episode=enter) as runner,
    ):
        same_env = (store[entry.number] for entry in store.select(spec=env_id))
        stored = {episode.seed: accept(episode) for episode in same_env if _env_key(episode.task) == key}
        while counts.available < episodes:
            jobs = _plan_round(maker, seed, numbers, stored, counts, episodes)
            try:
                latest = runner.play(jobs)
            except KeyboardInterrupt as stop:
                done = f"{counts.available} of {episodes} episodes are in {out}"
                stop.add_note(f"{done}; the same command continues from there")
                raise
            if counts.played > max(ROUND, 100 * counts.kept) and counts.available < episodes:
                why = next((str(each.error) for each in latest if each.error), "the solver lost every one")
                raise NoVerdict(f"{env_id}: no episode worth keeping among the last {len(latest)}: {why}.")
    return counts


def _plan_round(
    maker: registry.Maker,
    seed: int,
    numbers: Iterator[int],
    stored: Mapping[int, bool],
    counts: DemoCounts,
    episodes: int,
) -> list[Job]:
    """Return the next jobs whose episodes are not in `stored`; count those there that are kept."""
    jobs: list[Job] = []
    while len(jobs) < ROUND and counts.available + len(jobs) < episodes:
        number = next(numbers)
        child = seeding.derive(seed, "demos", number)
        if child in stored:
            counts.stored += stored[child]
        else:
            jobs.append(Job(maker, child, group=str(number)))
    return jobs


def _make_solvable(
    env_id: str, kwargs: Mapping[str, Any] | None, wrappers: Sequence[str]
) -> tuple[registry.Maker, str]:
    """Return what makes the environment, and its key; refuse one without solver, or that cannot be made."""
    maker = registry.Maker(env_id, dict(kwargs or {}), tuple(wrappers))
    spec = registry.claims_of(maker)
    if spec.solver == "none":
        raise NoSolver(
            f"{spec.id} has no solver to write demonstrations; `gem-gym list` shows which have one."
        )
    check_needs([spec], wrappers, kwargs or {})
    with maker() as env:  # an unknown keyword or a missing package fails before a store is made
        return maker, _env_key(registry.task_of(env))


def _env_key(task: TaskRef) -> str:
    """Return a key of a task's environment, which is the same before and after storing the task."""
    return json.dumps(
        [task.spec, task.kwargs, [each.name for each in task.wrappers]], sort_keys=True, default=repr
    )
