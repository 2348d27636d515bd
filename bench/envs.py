"""Resets and steps per second of every game, beside gem-llm's same ids in an environment of its own.

``python -m bench.envs [--trials N] [--instances]``. Both sides run the same script, in turn, each trial on
seeds of its own; figures are medians over trials, per CPU-second of one process. Legal actions are random and
drawn outside the clock. The -random ids draw from other ranges on each side, so no mean counts them. First,
or with ``--instances`` alone, it prints how many different instances the seeds of each id deal and how long
their solutions are.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

import gem
from bench.common import geometric_mean, peer_python, run_peer, table, write_json

PEER = "gem-llm==0.1.0"
PEER_CANNOT = (
    *("game:FifteenPuzzle-v0-random", "game:Crosswords-"),
    *("game:Hangman-", "game:Wordle-", "game:WordSearch-", "game:WikiGame-"),
    *("game:Sokoban-v0-hard", "game:Sokoban-v0-random"),
)
"""Beginnings of ids that the peer's package cannot make as it installs, for which it fetches words or pages
from a network, or that take it seconds to minutes a reset."""

SEEDS = 10_000
SLOW = {
    "game:Sokoban-v0-hard": 1_000,
    "game:Sokoban-v0-random": 1_000,
    "game:Sudoku-v0-hard": 2_500,
    "game:Sudoku-v0-random": 5_000,
}
"""Seeds that are dealt of ids whose resets take milliseconds; the table states them."""

SOLVED = 100
MOST_TURNS = 10_000
"""Episodes that the solver plays for the lengths of solutions, and about how many turns in all."""

KINDS = ("resets", "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the games, beside gem-llm.")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--instances", action="store_true", help="instances and solutions alone")
    asked = parser.parse_args()
    ids = gem.ids("game")
    dealt = instances(ids)
    if asked.instances:
        return
    trials = asked.trials
    pythons = {"ours": Path(sys.executable), "peer": peer_python(PEER)}
    plays = {"ours": ids, "peer": [env_id for env_id in ids if not env_id.startswith(PEER_CANNOT)]}
    runs = [
        {
            side: run_peer(python, "games_trial.py", str(trial), *plays[side])
            for side, python in pythons.items()
        }
        for trial in range(trials)
    ]
    games = {}
    for env_id in ids:
        games[env_id] = figures = dict(dealt[env_id])
        for kind in KINDS:
            for side in pythons:
                of_trials = [run[side][env_id][kind] for run in runs if env_id in run[side]]
                figures[f"{kind}_{side}"] = statistics.median(of_trials or [math.nan])
            figures[f"{kind}_ratio"] = figures[f"{kind}_ours"] / figures[f"{kind}_peer"]
    same = [
        figures
        for env_id, figures in games.items()
        if not env_id.startswith(PEER_CANNOT) and not env_id.endswith("-random")
    ]
    means = {kind: geometric_mean(figures[f"{kind}_ratio"] for figures in same) for kind in KINDS}
    means["both"] = geometric_mean(means.values())

    table(
        f"Games per CPU-second, beside {PEER} ({trials} trials)",
        ["id", "resets/s", "peer", "ratio", "steps/s", "peer", "ratio"],
        [
            [env_id, *(f[f"{k}_{column}"] for k in KINDS for column in (*pythons, "ratio"))]
            for env_id, f in games.items()
        ],
    )
    table("Geometric means of the ratios, -easy and -hard", ["over", "ratio"], means.items())
    write_json("envs", {"peer": PEER, "trials": trials, "games": games, "geometric_means": means})


def instances(ids: list[str]) -> dict[str, dict[str, int | list[int]]]:
    """Print how many different instances the seeds of each id deal, and how many turns its solver needs.

    A solution's length is the number of turns in which the solver wins: the shortest there is for the Tower
    of Hanoi and WikiGame; what every solution has at least for Sudoku, Crosswords and WordSearch; for the
    others the solver's own.
    """
    found = {}
    for env_id in ids:
        seeds = SLOW.get(env_id, SEEDS)
        env = gem.make(env_id)
        seen = set()
        for seed in range(seeds):
            env.reset(seed=seed)
            seen.add(env.instance())
        played, lengths = solutions(env_id)
        found[env_id] = {"seeds": seeds, "distinct": len(seen), "played": played, "solutions": lengths}
    table(
        "Distinct instances, and the turns of the solver's won games",
        ["id", "seeds", "distinct", "played", "won", "least", "10%", "median", "90%", "most"],
        [
            [
                env_id,
                *(f["seeds"], f["distinct"], f["played"], len(f["solutions"])),
                *quantiles(f["solutions"]),
            ]
            for env_id, f in found.items()
        ],
    )
    return found


def solutions(env_id: str) -> tuple[int, list[int]]:
    """Return how many games the solver played, and the turns of those that it won, sorted."""
    env = gem.make(env_id)
    found = []
    played = min(SOLVED, MOST_TURNS // env.max_turns)
    for seed in range(played):
        env.reset(seed=seed)
        turns, step = 0, None
        while step is None or not step.done:
            step = env.step(env.solve())
            turns += 1
        if step.info["success"]:
            found.append(turns)
    return played, sorted(found)


def quantiles(lengths: list[int]) -> list[int | str]:
    """Return least, 10%, median, 90% and most of sorted numbers."""
    last = len(lengths) - 1
    return [lengths[round(last * share)] for share in (0, 0.1, 0.5, 0.9, 1)] if lengths else ["-"] * 5


if __name__ == "__main__":
    main()
