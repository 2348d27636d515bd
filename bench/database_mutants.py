"""How many questions of `db:` take a query that leaves out one of their conditions.

``python -m bench.database_mutants [--seeds N]``. Such a query is the reference without one part that AND
joins, a bound, a DISTINCT, or the LEFT of a join. Some are as right as the reference on every database that
can be drawn. The cost of a reset is CPU time, and its median depends on the machine; the other figures do
not.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import time
from collections.abc import Iterator

from bench.common import choose_size, parse_args, table, write_json
from gem.envs.database.domains import DOMAINS, Question
from gem.envs.database.env import DatabaseEnv, _rows
from gem.envs.database.mutants import find_mutants
from gem.graders.sql import same_rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Questions of db: that take an answer without a condition.")
    parser.add_argument("--seeds", type=int, default=choose_size(120, 1))
    seeds = parse_args(parser).seeds
    columns = ("questions", "that take one", "wrong queries", "of them taken", "reset, ms")
    rows = [(name, *measure(name, seeds)) for name in DOMAINS]
    sums = [sum(row[place] for row in rows) for place in range(1, 5)]
    rows.append(("all", *sums, statistics.median(row[5] for row in rows)))
    table("Answers without a condition of the question", ("", *columns), rows)
    write_json("database_mutants", {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows})


def measure(domain: str, seeds: int) -> tuple[int, int, int, int, float]:
    """Return the figures of a domain's questions."""
    env = DatabaseEnv(domain)
    env.reset(seed=0)  # loads the domain
    taken, wrong, seconds = [], 0, []
    for seed in range(seeds):
        begin = time.process_time()
        env.reset(seed=seed)
        seconds.append(time.process_time() - begin)
        taken.append(len([*find_taken(env)]))
        assert isinstance(env.task, Question)
        wrong += len(find_mutants(env.task.sql))
    return seeds, sum(map(bool, taken)), wrong, sum(taken), 1e3 * statistics.median(seconds)


def find_taken(env: DatabaseEnv) -> Iterator[str]:
    """Yield the queries without a condition that would solve the task of an environment."""
    assert isinstance(env.task, Question)
    scripts = (env._script, env._second_script)
    wanted = [_rows(script, env.task.sql) for script in scripts]
    for query in find_mutants(env.task.sql):
        try:
            got = [_rows(script, query) for script in scripts]
        except sqlite3.Error:
            continue
        if not any(map(same_rows, got, wanted, [env.task.ordered] * len(scripts))):
            yield query


if __name__ == "__main__":
    main()
