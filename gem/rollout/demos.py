"""Write demonstrations: episodes played by an environment's solver, for a supervised warm-up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from gem import registry, seeding
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, NoSolver, NoVerdict
from gem.hosts import Host
from gem.record import Episode
from gem.rollout.jobs import Job
from gem.rollout.runner import Runner
from gem.rollout.store import EpisodeStore
from gem.specs import TaskRef

ROUND = 256
"""Number of episodes per round; after each round, the missing ones are counted."""


class Written(NamedTuple):
    """Counts of episodes played, kept and broken, and the kept ones' turns and mean return.

    `stored` episodes were in the store before. The mean return is NaN where none was kept.
    """

    played: int
    kept: int
    turns: int
    reward: float
    broken: int
    stored: int = 0


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
) -> Written:
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
    if episodes < 1:
        raise BadArgument(f"episodes is {episodes}; accepted: 1 or more.")
    spec = registry.spec_named(env_id)
    env_id = spec.id
    if spec.solver == "none":
        raise NoSolver(
            f"{env_id} has no solver to write demonstrations; `gem-gym list` shows which have one."
        )
    maker = registry.Maker(env_id, dict(kwargs or {}), tuple(wrappers))
    env = maker()  # an unknown keyword or a missing package fails before a store is made
    played_in = _written(registry.task_of(env))
    env.close()

    def wanted(episode: Episode) -> bool:
        return episode.scored and (lost or bool(episode.success))

    numbers = count()
    stored = played = kept = turns = broken = 0
    reward = 0.0
    with EpisodeStore(out) as store, ExitStack() as last:
        before = len(store)
        theirs = (store[entry.number] for entry in store.select(spec=env_id))
        held = {episode.seed: wanted(episode) for episode in theirs if _written(episode.task) == played_in}

        def keep(episode: Episode) -> None:
            if wanted(episode):
                store.append(episode)

        # One at a time: they are stored in their order, and Ctrl-C loses one alone.
        runner = last.enter_context(Runner(SolverAgent(), host=host, concurrency=1, on_episode=keep))
        while stored + kept < episodes:
            jobs: list[Job] = []
            while len(jobs) < ROUND and stored + kept + len(jobs) < episodes:
                number = next(numbers)
                child = seeding.derive(seed, "demos", number)
                if child in held:
                    stored += held[child]
                else:
                    jobs.append(Job(maker, child, group=str(number)))
            try:
                found = runner.play(jobs)
            except KeyboardInterrupt as stop:
                done = stored + len(store) - before
                stop.add_note(
                    f"{done} of {episodes} episodes are in {out}; the same command continues from there"
                )
                raise
            for episode in filter(wanted, found):
                kept += 1
                turns += len(episode.turns)
                reward += episode.reward()
            played += len(found)
            broken += sum(not episode.scored for episode in found)
            if played > max(ROUND, 100 * kept) and stored + kept < episodes:
                failed = next((episode.error for episode in found if episode.error), None)
                why = str(failed) if failed else "the solver lost every one"
                raise NoVerdict(f"{env_id}: no episode worth keeping among the last {len(found)}: {why}.")
    return Written(played, kept, turns, reward / kept if kept else math.nan, broken, stored)


def _written(task: TaskRef) -> str:
    """Return a key of a task's environment, which is the same before and after storing the task."""
    return json.dumps(
        [task.spec, task.kwargs, [each.name for each in task.wrappers]], sort_keys=True, default=repr
    )
