"""Cost of an episode of `mcp:Postgres-v0`: its database, its MCP server, a call, the verdict and the end.

``python -m bench.mcp_postgres [--rounds N]``. It uses the server of GEM_POSTGRES_DSN, or starts one. Figures
are medians of wall time, and depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from bench.common import choose_size, left_out_where_missing, parse_args, postgres, table, write_json
from gem.envs.database.mcp import McpPostgresEnv

CALL = '<tool_call>{"name": "execute_sql", "arguments": {"sql": "SELECT 1"}}</tool_call>'
PARTS = ("database, made and filled", "first call, which starts the MCP server", "a call", "verdict and end")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of an episode of mcp:Postgres-v0.")
    parser.add_argument("--rounds", type=int, default=choose_size(20, 1))
    rounds = parse_args(parser).rounds
    with McpPostgresEnv() as env:
        episode(env, 0)  # asks which tools there are, and makes the database that the others are cloned from
        figures = [episode(env, seed) for seed in range(1, 1 + rounds)]
    medians = [statistics.median(part) * 1e3 for part in zip(*figures, strict=True)]
    table("An episode: median, in ms", ("", "ms"), list(zip(PARTS, medians, strict=True)))
    write_json("mcp_postgres", dict(zip(PARTS, medians, strict=True)))


def episode(env: McpPostgresEnv, seed: int) -> list[float]:
    """Return seconds for each of PARTS."""
    env.reset(seed=seed)
    doing: list[Callable[[], object]] = [
        env._open, lambda: env.step(CALL), lambda: env.step(CALL), lambda: env.step("<submit/>")
    ]  # fmt: skip
    return [seconds(each) for each in doing]


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    with left_out_where_missing(), postgres():
        main()
