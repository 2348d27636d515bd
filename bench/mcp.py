"""Cost of MCPTool compared with the plain SDK, over local HTTP, and of many sessions at once.

``python -m bench.mcp [--sessions N]``. Both sides use the same server of ours, in a separate process. Figures
are medians of wall time over interleaved rounds, and depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.common import choose_size, parse_args, table, write_json
from gem.tools.mcp_tool import MCPTool

ROUNDS, CALLS = choose_size((5, 40), (1, 2))
COUNT = '<tool_call>{"name": "count", "arguments": {}}</tool_call>'


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of MCPTool.")
    parser.add_argument("--sessions", type=int, default=choose_size(256, 4))
    sessions = parse_args(parser).sessions
    command = [sys.executable, "-m", "gem.tools.mcp_server.notes_mcp", "--http", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        url = server.stdout.readline().strip()
        figures = [(asyncio.run(sdk(url)), tool(url)) for _ in range(ROUNDS)]
        results: dict[str, Any] = {
            side: {
                what: statistics.median(pair[number][which] for pair in figures) * 1e3
                for which, what in enumerate(("session_ms", "call_ms"))
            }
            for number, side in enumerate(("sdk", "tool"))
        }
        results["many"] = many(url, sessions)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    table(
        "One session: median, in ms",
        ("", "open and close", "call"),
        [(side, results[side]["session_ms"], results[side]["call_ms"]) for side in ("sdk", "tool")],
    )
    table(f"{sessions} sessions open at once", ("", "figure"), list(results["many"].items()))
    write_json("mcp", results)


async def sdk(url: str) -> tuple[float, float]:
    """Return seconds for a session and for a call of the SDK, in an event loop as its users write it."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    begun = time.perf_counter()
    async with streamable_http_client(url) as streams, ClientSession(*streams) as client:
        await client.initialize()
        opened = time.perf_counter()
        for _ in range(CALLS):
            await client.call_tool("count", {})
        called = time.perf_counter()
    return time.perf_counter() - called + opened - begun, (called - opened) / CALLS


def tool(url: str) -> tuple[float, float]:
    """Return the same for MCPTool, whose list of tools is known, as in every episode but the first."""
    made = MCPTool(url)
    made.reset(0)
    made.close()
    begun = time.perf_counter()
    made._session(made._servers["server"])
    opened = time.perf_counter()
    for _ in range(CALLS):
        made.execute_action(COUNT)
    called = time.perf_counter()
    made.close()
    return time.perf_counter() - called + opened - begun, (called - opened) / CALLS


def many(url: str, sessions: int) -> dict[str, float]:
    """Return what `sessions` at once take, each used from a thread of its own."""
    tools = [MCPTool(url, timeout=300, connect_timeout=300) for _ in range(sessions)]
    with ThreadPoolExecutor(sessions) as pool:
        begun = time.perf_counter()
        list(pool.map(MCPTool.offered, tools))
        opened = time.perf_counter()
        answers = [list(pool.map(lambda tool: tool.execute_action(COUNT), tools)) for _ in range(3)]
        called = time.perf_counter()
        list(pool.map(MCPTool.close, tools))
    right = sum(
        all(f"\n{n}\n" in text for n, (_, _, text, _) in enumerate(turns, 1))
        for turns in zip(*answers, strict=True)
    )
    return {
        "all opened and listed, s": opened - begun,
        "calls per s": 3 * sessions / (called - opened),
        "sessions that counted 1, 2, 3 for themselves": right,
    }


if __name__ == "__main__":
    main()
