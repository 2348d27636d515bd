"""Resets and steps per second of every game, compared with the same ids of gem-llm.

``python -m bench.envs [--trials N] [--instances]``. Both sides run the same script in turn, each in its own
virtual environment and each trial with other seeds. Figures are medians over trials, per CPU second of one
process. Legal actions are random and drawn outside the timed part. The -random ids draw from different ranges
on each side, so no mean includes them. At the end, or alone with ``--instances``, comes the output of
``bench.instances``: distinct instances, and the lengths of their solutions.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path

from bench import instances
from bench.common import (
    choose_size,
    geometric_mean,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from bench.instances import PEER

PEER_CANNOT = (*instances.PEER_CANNOT, "game:Sokoban-v0-hard", "game:Sokoban-v0-random")
"""What the peer cannot make, and what takes it seconds to minutes a reset."""

KINDS, SIDES = ("resets", "steps"), ("ours", "peer")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the games, compared with gem-llm.")
    parser.add_argument("--trials", type=int, default=choose_size(5, 1))
    parser.add_argument("--instances", action="store_true", help="print only instances and solutions")
    asked = parse_args(parser)
    if not asked.instances:
        speed(asked.trials)
    instances.compare()


def speed(trials: int) -> None:
    """Print resets and steps per second on both sides."""
    ids = instances.ids()
    pythons = {"ours": Path(sys.executable)}
    with left_out_where_missing():
        pythons["peer"] = peer_python(PEER)
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
        games[env_id] = figures = {}
        for kind in KINDS:
            for side in SIDES:
                of_trials = [run[side][env_id][kind] for run in runs if env_id in run.get(side, ())]
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
            [env_id, *(f[f"{k}_{column}"] for k in KINDS for column in (*SIDES, "ratio"))]
            for env_id, f in games.items()
        ],
    )
    table("Geometric means of the ratios, -easy and -hard", ["over", "ratio"], means.items())
    write_json("envs", {"peer": PEER, "trials": trials, "games": games, "geometric_means": means})


if __name__ == "__main__":
    main()
