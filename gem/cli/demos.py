"""The command ``gem-gym demos``: write expert episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem import seeding
from gem.wrappers.wrapper_factory import tool_wrappers


def demos(
    env_id: Annotated[Positional[str], arg(metavar="ID")],
    out: Path,
    episodes: Annotated[int, arg(aliases=["-n"])] = 1000,
    seed: int = 0,
    lost: bool = False,
    tools: tuple[str, ...] = (),
) -> int:
    """Write episodes played by the environment's own solver to a store, for a supervised warm-up.

    To continue after an interruption, run the same command again: stored episodes are not played again.

    Args:
        env_id: the environment, or a class as path/file.py:Class; `gem-gym list` shows which have a solver.
        out: the store; new episodes are appended.
        episodes: how many episodes of this seed the store holds at the end.
        seed: the same seed gives the same episodes.
        lost: also keep the episodes that the solver lost.
        tools: tools that are added to the environment, which the solver calls where they help: python,
            search, world_search, or your own as file.py:function.
    """
    from gem.rollout.demos import write_demos

    done = write_demos(
        env_id, out, episodes=episodes, seed=seeding.check(seed), lost=lost, wrappers=tool_wrappers(tools)
    )
    if done.stored:
        print(f"{out} already holds {done.stored} episodes of {env_id} with seed {seed}: not played again")
    print(f"wrote {done.kept} episodes of {env_id} to {out}")
    if done.kept:
        left_out = done.played - done.kept
        print(f"{done.turns} turns, mean return {done.reward:.3f}; {left_out} lost ones left out")
    return 0
