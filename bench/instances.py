"""Distinct instances and solution lengths of every game, compared with the same ids of gem-llm.

``python -m bench.instances``, or ``python -m bench.envs --instances``. Each side makes instances from 10,000
seeds of each id, or as many as fit into the CPU time of an id. Instances are compared completely, including
their hidden part. One player measures the lengths of solutions on both sides: our solver, which also plays
gem-llm's positions, loaded into our game, without a turn limit. A length is the number of turns to win. It is
the shortest possible for the Tower of Hanoi and WikiGame, a lower bound of every solution for Sudoku,
Crosswords and WordSearch, and the solver's own for the others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gem
from bench.common import HERE, choose_size, left_out_where_missing, parse_args, peer_python, table, write_json
from gem.envs.games.fifteen_puzzle import distance, solvable
from gem.envs.games.sokoban import Level
from gem.envs.games.sudoku import EMPTY, FEWEST_CLUES

PEER = "gem-llm==0.1.0"
PEER_CANNOT = (
    *("game:FifteenPuzzle-v0-random", "game:Crosswords-"),
    *("game:Hangman-", "game:Wordle-", "game:WordSearch-", "game:WikiGame-"),
)
"""Beginnings of ids that the peer's package cannot make as it installs, or for which it fetches words or
pages from a network."""

SEEDS = choose_size((10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000), (5, 10))
"""Numbers of seeds at which different instances are counted."""

DEAL_S = choose_size(15.0, 0.2)
"""CPU-seconds of dealing per id and side."""

PLAYED = choose_size(100, 2)
MOST_TURNS = 5_000
"""Instances that the solver plays for the lengths of solutions, and about how many turns in all."""

NO_LIMIT = 10**6
"""Turns that no game needs."""

HOPELESS, SOLVED = "hopeless", "solved"
"""What the peer deals beside games: what nobody can win, and what is won already."""


def ids() -> list[str]:
    """Return the games that are compared."""
    return choose_size(gem.ids("game"), ["game:Hangman-v0-easy", "game:TowerofHanoi-v0-easy"])


def compare() -> None:
    """Deal and solve on both sides, a process per core, and print what was found."""
    began = time.perf_counter()
    both: list[str] = []
    with left_out_where_missing():
        python = peer_python(PEER)
        both = [env_id for env_id in ids() if not env_id.startswith(PEER_CANNOT)]
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        of_peer = {env_id: pool.submit(peer, env_id, python) for env_id in both}
        of_ours = {env_id: pool.submit(ours, env_id) for env_id in ids()}
        found = {
            env_id: {"ours": of_ours[env_id].result(), "peer": of_peer[env_id].result()}
            if env_id in of_peer
            else {"ours": of_ours[env_id].result()}
            for env_id in ids()
        }
    for sides in found.values():
        if "peer" in sides:
            sides["compared"] = compared(**sides)
    table(
        f"Different instances, beside {PEER}; at the last number of seeds that both reached, ours and its",
        ["id", "seeds", "different", "peer's seeds", "different", "at", "ours", "peer"],
        [[env_id, *instance_row(**sides)] for env_id, sides in found.items()],
    )
    table(
        f"Turns in which our solver wins, beside {PEER}'s instances: won of played, 10%, median, 90%, mean",
        ["id", "won", "10%", "median", "90%", "mean", "peer's", "10%", "median", "90%", "mean", "as long"],
        [[env_id, *length_row(**sides)] for env_id, sides in found.items()],
    )
    wall_s = time.perf_counter() - began
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = spent.ru_utime + spent.ru_stime
    print(f"{wall_s:.0f} s, {cpu_s:.0f} CPU-seconds")
    write_json("instances", {"peer": PEER, "wall_s": wall_s, "cpu_s": cpu_s, "games": found})


def ours(env_id: str) -> dict[str, Any]:
    """Return how many instances of ours differ, and how long their solutions are."""
    env = gem.make(env_id)
    seen, different, until = set(), {}, time.process_time() + DEAL_S
    for seed in range(SEEDS[-1]):
        env.reset(seed=seed)
        seen.add(env.instance())
        over = time.process_time() > until
        if seed + 1 in SEEDS or over:
            different[seed + 1] = len(seen)
        if over:
            break

    def dealt() -> Iterable[gem.Env]:
        for seed in range(played(env)):
            fresh = gem.make(env_id)
            fresh.reset(seed=seed)
            yield fresh

    return {"different": different, **lengths(dealt())}


def peer(env_id: str, python: Path) -> dict[str, Any]:
    """Return the same of the peer's, as far as it comes in its time."""
    handed = played(gem.make(env_id))
    script = HERE / "peers" / "instances_trial.py"
    command = [str(python), "-I", str(script), env_id, str(DEAL_S), str(handed), *map(str, SEEDS)]
    done = subprocess.run(command, capture_output=True, cwd=python.parent, check=False)
    hung = done.returncode == -signal.SIGXCPU
    if done.returncode and not hung:
        raise RuntimeError(f"{script.name} {env_id}:\n{done.stderr.decode()[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"[")]
    dealt = [line[1] for line in lines if line[0] == "instance"]
    different = {line[1]: line[2] for line in lines if line[0] == "dealt"}
    if hung and len(dealt) < handed:  # it printed no count: each instance that it handed over was dealt
        different[len(dealt)] = len({json.dumps(instance) for instance in dealt})
    port = PORTS[env_id.partition(":")[2].partition("-")[0]]

    def ported() -> Iterable[gem.Env | str]:
        for number, instance in enumerate(dealt):
            env = port(instance)
            if isinstance(env, gem.Env):
                env.rng.seed(number)  # what comes later, as 2048's tiles, differs from game to game
            yield env

    return {"different": different, "hung": hung, **lengths(ported())}


def played(env: gem.Env) -> int:
    """Return how many instances of a game the solver plays."""
    return min(PLAYED, MOST_TURNS // env.max_turns)


def lengths(envs: Iterable[gem.Env | str]) -> dict[str, Any]:
    """Return how many games there were and the turns of those that the solver won, sorted."""
    count, found = 0, []
    for env in envs:
        count += 1
        if env in (HOPELESS, SOLVED):
            found += [0] * (env == SOLVED)
            continue
        env.max_turns = NO_LIMIT
        turns, step = env.turn, None
        while step is None or not step.done:
            step = env.step(env.solve())
            turns += 1
        if step.info["success"]:
            found.append(turns)
    return {"played": count, "turns": sorted(found)}


def compared(ours: dict[str, Any], peer: dict[str, Any]) -> dict[str, Any]:
    """Return different instances at the last number of seeds that both reached, and whether ours are as long.

    They are not where their mean is below the peer's by more than twice the difference's standard error.
    """
    at = max(set(ours["different"]) & set(peer["different"]), default=0)
    as_long = None
    if len(peer["turns"]) > 1:
        sides = [side["turns"] for side in (ours, peer)]
        error = math.sqrt(sum(statistics.variance(turns) / len(turns) for turns in sides))
        as_long = statistics.mean(sides[0]) >= statistics.mean(sides[1]) - 2 * error
    return {
        "seeds": at,
        "ours": ours["different"].get(at, 0),
        "peer": peer["different"].get(at, 0),
        "as_long": as_long,
    }


def instance_row(
    ours: dict[str, Any], peer: dict[str, Any] | None = None, compared: dict[str, Any] | None = None
) -> list[Any]:
    """Return a row of the table of instances."""
    if peer is None or compared is None:
        return [*list(ours["different"].items())[-1], *["-"] * 5]
    of_peer = list(peer["different"].items())[-1] if peer["different"] else ("hangs", "-")
    return [
        *list(ours["different"].items())[-1],
        *of_peer,
        *(compared[key] for key in ("seeds", "ours", "peer")),
    ]


def length_row(
    ours: dict[str, Any], peer: dict[str, Any] | None = None, compared: dict[str, Any] | None = None
) -> list[Any]:
    """Return a row of the table of lengths."""
    row = spread(ours)
    if peer is None or compared is None:
        return [*row, *["-"] * 6]
    return [*row, *spread(peer), {True: "yes", False: "no", None: "-"}[compared["as_long"]]]


def spread(side: dict[str, Any]) -> list[Any]:
    """Return won of played, then 10%, median, 90% and mean of the turns."""
    turns, won = side["turns"], f"{len(side['turns'])} of {side['played']}"
    if not turns:
        return [won, *["-"] * 4]
    last = len(turns) - 1
    return [won, *(turns[round(last * share)] for share in (0.1, 0.5, 0.9)), statistics.mean(turns)]


# -- the peer's instances in our games


def _dealt(name: str, **kwargs: Any) -> Any:
    env = gem.make(f"game:{name}-v0-hard", max_turns=1000, **kwargs)
    env.reset(seed=0)
    return env


def guess_the_number(dealt: dict[str, Any]) -> gem.Env:
    env = _dealt("GuessTheNumber", min_number=dealt["min_number"], max_number=dealt["max_number"])
    env.secret = dealt["game_number"]
    return env


def mastermind(dealt: dict[str, Any]) -> gem.Env:
    names = ("code_length", "num_numbers", "duplicate_numbers")
    env = _dealt("Mastermind", **{name: dealt[name] for name in names})
    env.secret = "".join(map(str, dealt["game_code"]))
    return env


def fifteen_puzzle(dealt: dict[str, Any]) -> gem.Env | str:
    env = _dealt("FifteenPuzzle", num_rows=dealt["num_rows"])
    env.tiles = tuple(tile or 0 for row in dealt["board"] for tile in row)
    env.gap = env.tiles.index(0)
    env._distance = distance(env.side, env.tiles)
    if not solvable(env.side, env.tiles):
        return HOPELESS
    return env if env._distance else SOLVED


def game_2048(dealt: dict[str, Any]) -> gem.Env:
    env = _dealt("Game2048", target=dealt["target_tile"])
    env.tiles = [tile for row in dealt["board"] for tile in row]
    return env


def minesweeper(dealt: dict[str, Any]) -> gem.Env:
    env = _dealt("Minesweeper", **{name: dealt[name] for name in ("rows", "cols", "num_mines")})
    under = [number for row in dealt["grid"] for number in row]
    env.mines = frozenset(cell for cell, number in enumerate(under) if number == -1)
    env.step(f"\\boxed{{reveal {env.rows // 2 + 1} {env.cols // 2 + 1}}}")
    return env


def sokoban(dealt: dict[str, Any]) -> gem.Env:
    height, width = dealt["dim_room"]
    fixed, state = ([sign for row in dealt[name] for sign in row] for name in ("room_fixed", "room_state"))
    env = _dealt("Sokoban", height=height, width=width, num_boxes=dealt["num_boxes"])
    env.level = Level(
        height,
        width,
        floor=frozenset(cell for cell, sign in enumerate(fixed) if sign),
        goals=frozenset(cell for cell, sign in enumerate(fixed) if sign == 2),
        boxes=frozenset(cell for cell, sign in enumerate(state) if sign in (3, 4)),
        player=state.index(5),
        moves=0,
        pushes=0,
    )
    env.boxes, env.player = env.level.boxes, env.level.player
    return env


def sudoku(dealt: dict[str, Any]) -> gem.Env:
    cells = [str(digit) if digit else EMPTY for row in dealt["board"] for digit in row]
    clues = len(cells) - cells.count(EMPTY)
    env = _dealt("Sudoku", scale=dealt["scale"], clues=max(clues, FEWEST_CLUES[dealt["scale"]]))
    env.puzzle, env.cells = "".join(cells), cells
    env.empty = cells.count(EMPTY)
    return env


def tower_of_hanoi(dealt: dict[str, Any]) -> gem.Env:
    env = _dealt("TowerofHanoi", num_disks=dealt["num_disks"])
    env.target = 2
    env.pegs = tuple("".join(map(str, dealt["board"][peg])) for peg in "ABC")
    return env


PORTS: dict[str, Callable[[dict[str, Any]], gem.Env | str]] = {
    "GuessTheNumber": guess_the_number,
    "Mastermind": mastermind,
    "FifteenPuzzle": fifteen_puzzle,
    "Game2048": game_2048,
    "Minesweeper": minesweeper,
    "Sokoban": sokoban,
    "Sudoku": sudoku,
    "TowerofHanoi": tower_of_hanoi,
}


if __name__ == "__main__":
    parse_args(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    compare()
