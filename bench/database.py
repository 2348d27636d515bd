"""Cost of an episode of `db:` on SQLite in the sandbox and on PostgreSQL.

``python -m bench.database [--rounds N]``. It uses the server of GEM_POSTGRES_DSN, or starts one. Both sides
play the same seeds, in turn. The first episode, which makes the database that others are cloned from, is not
counted. Figures are medians of wall time, and depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import pairwise

from bench.common import choose_size, left_out_where_missing, parse_args, postgres, table, write_json
from gem.envs.database.env import Backend, DatabaseEnv, Kind

BACKENDS: tuple[Backend, ...] = ("sqlite", "postgres")
TURNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of an episode of db:.")
    parser.add_argument("--rounds", type=int, default=choose_size(20, 1))
    rounds = parse_args(parser).rounds
    rows = []
    for kind in ("questions", "operations"):
        pairs = [[episode(backend, kind, seed) for backend in BACKENDS] for seed in range(1 + rounds)][1:]
        for backend, figures in zip(BACKENDS, zip(*pairs, strict=True), strict=True):
            parts = [statistics.median(part) * 1e3 for part in zip(*figures, strict=True)]
            rows.append((f"{kind}, {backend}", *parts))
    columns = ("first turn", "a turn", "solution and verdict", "close")
    table("An episode: median, in ms", ("", *columns), rows)
    write_json("database", {name: dict(zip(columns, parts, strict=True)) for name, *parts in rows})


def episode(backend: Backend, kind: Kind, seed: int) -> tuple[float, float, float, float]:
    """Return seconds for the first turn, a further turn, the solution with its verdict, and closing."""
    env = DatabaseEnv("Shop", kind, backend=backend)
    env.reset(seed=seed)
    at = [time.perf_counter()]
    for turn in range(1 + TURNS):
        env.step("<sql>SELECT city, count(*) FROM customers GROUP BY city</sql>")
        if turn in (0, TURNS):
            at.append(time.perf_counter())
    assert env.step(env.solve()).reward == 1.0
    at.append(time.perf_counter())
    env.close()
    at.append(time.perf_counter())
    first, turns, verdict, closed = (end - begin for begin, end in pairwise(at))
    return first, turns / TURNS, verdict, closed


if __name__ == "__main__":
    with left_out_where_missing(), postgres():
        main()
