"""Demonstrations: episodes that an environment's own solver plays, for a supervised warm-up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gem import registry, seeding
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, NoSolver, NoVerdict
from gem.rollout.drivers import Job, rollout
from gem.rollout.store import EpisodeStore

ROUND = 256
"""Episodes that are played before any of them is written."""


class Written(NamedTuple):
    """What was played and kept: episodes, turns and the mean return of the kept ones, episodes that broke."""

    played: int
    kept: int
    turns: int
    reward: float
    broken: int


def write_demos(
    env_id: str,
    out: str | Path,
    *,
    episodes: int = 1000,
    seed: int = 0,
    lost: bool = False,
    kwargs: Mapping[str, Any] | None = None,
) -> Written:
    """Append `episodes` episodes by the environment's solver to the store at `out`.

    Episodes that the solver lost are left out, and others played in their stead, unless `lost` keeps them.
    Episode `i` has the seed ``derive(seed, "demos", i)``: no episode of training or evaluation has it.

    Raises:
        BadArgument: for no episodes. NoSolver: where there is no solver. StoreError: for a store that cannot
            be written. NoVerdict: when the solver's episodes are lost or broken, but for one in a hundred.
    """
    if episodes < 1:
        raise BadArgument(f"episodes is {episodes}; accepted: 1 or more.")
    spec = registry.spec(env_id)
    if spec.solver == "none":
        raise NoSolver(
            f"{env_id} has no solver to write demonstrations; `gem-gym list` shows which have one."
        )
    maker = registry.Maker(env_id, dict(kwargs or {}))
    maker().close()  # an unknown keyword or a missing package is told before a store is made
    played = kept = turns = broken = 0
    reward = 0.0
    with EpisodeStore(out) as store:
        while kept < episodes:
            numbers = range(played, played + min(ROUND, episodes - kept))
            jobs = [Job(maker, seeding.derive(seed, "demos", i), group=str(i)) for i in numbers]
            found = rollout(jobs, SolverAgent())
            wanted = [episode for episode in found if episode.scored and (lost or episode.success)]
            for episode in wanted:
                store.append(episode)
                turns += len(episode.turns)
                reward += episode.reward()
            played += len(found)
            kept += len(wanted)
            broken += sum(not episode.scored for episode in found)
            if played > max(ROUND, 100 * kept) and kept < episodes:
                failed = next((episode.error for episode in found if episode.error), None)
                why = str(failed) if failed else "the solver lost every one"
                raise NoVerdict(f"{env_id}: no episode worth keeping among the last {len(found)}: {why}.")
    return Written(played, kept, turns, reward / kept, broken)
