"""Cost of a served step and of an idle session: gem's server compared with OpenEnv's own.

``python -m bench.serve [--sessions 2000]``. Both have the same environment, the same messages over WebSocket
and the same client in a separate process, on one machine. All sessions are opened, each starts an episode,
then all step at the same time, `--steps` times each. CPU is that of the server process, user and system.
Memory is the growth of its resident set from one session to all, divided by their number. Finally, gem's
remote host calls as many environments over one connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.common import HERE, choose_size, left_out_where_missing, parse_args, peer_python, table, write_json
from gem.hosts.remote import Elsewhere, Remote
from gem.specs import TaskRef

OPENENV = "openenv==0.10.0"
CONNECTING = 64
"""Connections that are made at the same time."""

ECHO = Elsewhere(TaskRef("bench:Echo"))
OURS = """
import sys
from gem.registry import register
from gem.specs import EnvSpec
from gem.serve.environments import ServeLimits
from gem.serve.environments.server import EnvironmentServer
register(EnvSpec("bench:Echo", "gem.testing.doubles:EchoEnv", {"turns": 1_000_000}))
limits = ServeLimits(sessions=int(sys.argv[2]), steps=10**9)
EnvironmentServer(["bench:Echo"], port=int(sys.argv[1]), limits=limits).serve()
"""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid: int) -> float:
    """Return the resident set of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def ask(client: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message and return its answer."""
    await client.send(json.dumps(message))
    answer = json.loads(await client.recv())
    if answer["type"] == "error":
        raise RuntimeError(answer["data"]["message"])
    data: dict[str, Any] = answer["data"]
    return data


async def opened(url: str, seed: int) -> ClientConnection:
    """Return a session whose episode has begun."""
    client = await connect(url, compression=None, ping_interval=None, open_timeout=300, proxy=None)
    await ask(client, {"type": "reset", "data": {"seed": seed}})
    return client


async def stepping(client: ClientConnection, steps: int, late: list[float]) -> None:
    """Step a session, and note how long each answer took."""
    for _ in range(steps):
        began = time.perf_counter()
        await ask(client, {"type": "step", "data": {"text": "123"}})
        late.append(time.perf_counter() - began)


async def measured(pid: int, port: int, sessions: int, steps: int) -> dict[str, Any]:
    """Return the figures of one server."""
    url = f"ws://127.0.0.1:{port}/ws"
    for _ in range(600):
        try:
            first = await opened(url, 0)
            break
        except OSError:
            await asyncio.sleep(0.1)
    await stepping(first, 20, [])
    before_kib = resident_kib(pid)
    gate = asyncio.Semaphore(CONNECTING)

    async def open_one(seed: int) -> ClientConnection:
        async with gate:
            return await opened(url, seed)

    began = time.perf_counter()
    clients = [first, *await asyncio.gather(*(open_one(seed) for seed in range(1, sessions)))]
    opening_s = time.perf_counter() - began
    waiting_kib = (resident_kib(pid) - before_kib) / (sessions - 1)
    late: list[float] = []
    before_s, began = cpu_s(pid), time.perf_counter()
    await asyncio.gather(*(stepping(client, steps, late) for client in clients))
    wall_s, spent_s = time.perf_counter() - began, cpu_s(pid) - before_s
    after_kib = (resident_kib(pid) - before_kib) / (sessions - 1)
    percentiles = statistics.quantiles(late, n=100)
    figures = {
        "opens per s": (sessions - 1) / opening_s,
        "steps per s": sessions * steps / wall_s,
        "p50, ms": percentiles[49] * 1000,
        "p99, ms": percentiles[98] * 1000,
        "CPU per step, us": spent_s / (sessions * steps) * 1e6,
        "KiB per session": waiting_kib,
        "KiB per session, after the steps": after_kib,
        "threads": threads(pid),
    }
    for client in clients:
        client.transport.abort()
    return figures


def measured_host(pid: int, port: int, sessions: int, steps: int) -> dict[str, Any]:
    """Return the figures of gem's server and gem's remote host: all sessions over one connection."""
    with Remote(address=f"http://127.0.0.1:{port}", patience_s=60.0) as host:
        first = host.add(ECHO)
        while host.map([first], "reset", [0])[1]:
            time.sleep(0.1)
        host.map([first], "step", ["123"])
        before_kib = resident_kib(pid)
        began = time.perf_counter()
        envs = [first, *(host.add(ECHO) for _ in range(1, sessions))]
        host.map(envs, "reset", range(sessions))
        opening_s = time.perf_counter() - began
        waiting_kib = (resident_kib(pid) - before_kib) / (sessions - 1)
        before_s, began = cpu_s(pid), time.perf_counter()
        for _ in range(steps):
            _, errors = host.map(envs, "step", ["123"] * sessions)
            assert not errors
        wall_s, spent_s = time.perf_counter() - began, cpu_s(pid) - before_s
        return {
            "opens per s": (sessions - 1) / opening_s,
            "steps per s": sessions * steps / wall_s,
            "CPU per step, us": spent_s / (sessions * steps) * 1e6,
            "KiB per session": waiting_kib,
            "KiB per session, after the steps": (resident_kib(pid) - before_kib) / (sessions - 1),
            "threads": threads(pid),
        }


def served(
    command: list[str], sessions: int, steps: int, port: int, by: Callable[..., Any]
) -> dict[str, Any]:
    """Return the figures of the server that a command starts, by what measures them."""
    root = HERE.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    server = subprocess.Popen(command, env=environment, cwd=root, stderr=subprocess.DEVNULL)
    try:
        found = by(server.pid, port, sessions, steps)
        figures: dict[str, Any] = asyncio.run(found) if asyncio.iscoroutine(found) else found
        return figures
    finally:
        server.kill()
        server.wait()


def main() -> None:
    """Measure both servers, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=choose_size(2000, 4))
    parser.add_argument("--steps", type=int, default=choose_size(10, 2), help="steps of each session")
    parser.add_argument("--openenv", type=Path, help="a Python with openenv; by default one is made")
    given = parse_args(parser)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a socket for each session, at both ends
    room, figures, ours = str(given.sessions + 8), {}, [sys.executable, "-c", OURS]
    servers: dict[str, tuple[list[str], Callable[..., Any]]] = {
        "gem": (ours, measured),
        "gem, one connection": (ours, measured_host),
    }
    with left_out_where_missing():
        peer = given.openenv or peer_python(OPENENV, "msgspec", "numpy")
        servers = {"openenv": ([str(peer), str(HERE / "peers" / "openenv_server.py")], measured), **servers}
    for name, (command, by) in servers.items():
        port = free_port()
        figures[name] = served([*command, str(port), room], given.sessions, given.steps, port, by)
    rows = []
    for name, mine in figures["gem"].items():
        theirs, one = figures.get("openenv", {}).get(name, math.nan), figures["gem, one connection"].get(name)
        ratio = f"{mine / theirs:.2f}" if theirs else ""
        rows.append((name, f"{theirs:,.1f}", f"{mine:,.1f}", ratio, "" if one is None else f"{one:,.1f}"))
    title = f"{given.sessions:,} sessions, {given.steps} steps each"
    table(title, ("", OPENENV, "gem", "gem / OpenEnv", "gem's remote host, one connection"), rows)
    settings = {"sessions": given.sessions, "steps": given.steps, "peer": OPENENV}
    write_json("serve", {**settings, "figures": figures})


if __name__ == "__main__":
    main()
