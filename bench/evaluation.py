"""Cost of evaluation against an endpoint: with a thousand episodes at a time, and compared with Inspect.

``python -m bench.evaluation [--quick]``. The endpoint is a separate local process (`bench.endpoint`), which
streams, calls tools, limits rates, is slow, cuts its answers off, and sends invalid JSON and HTML.

Load: each behaviour has its own process, which plays all its episodes at the same time. The table shows its
peak memory, its CPU per episode, and the number of scored episodes. Overhead: gem, Inspect and verifiers play
the same episodes against the same endpoint in turn, in several rounds. The table shows the CPU of all their
processes per episode, without the start: it is computed from the difference of a long and a short run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import (
    choose_size,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)
from bench.endpoint import MODES
from gem.agents.openai import OpenAIAgent
from gem.content import ToolSpec, written_tools
from gem.core import Start, Step
from gem.evals import evaluate
from gem.registry import EnvSpec, register
from gem.rollout import EpisodeStore
from gem.testing.doubles import EchoEnv

PEERS = {"inspect": ("inspect-ai==0.3.285", "openai==3.52.0"), "verifiers": ("verifiers==0.4.0", "uv")}
IN_FLIGHT = 64
TURNS = 4


class Say(EchoEnv):
    """EchoEnv whose numbers are said through a tool."""

    tools_offered = (
        ToolSpec("say", "Say a number.", {"type": "object", "properties": {"number": {"type": "integer"}}}),
    )

    def reset(self, seed: int | None = None) -> Start:
        """Name the first number."""
        return Start(super().reset(seed).obs, {"tools": written_tools(self.tools_offered)})

    def step(self, action: str) -> Step:
        """Take the number of the call."""
        found = re.search(r'"number": (\d+)', action)
        return super().step(found[1] if found else action)


def register_envs() -> None:
    register(EnvSpec("bench:Echo", EchoEnv, {"turns": TURNS}))
    register(EnvSpec("bench:Say", Say, {"turns": TURNS}))


@contextmanager
def endpoint() -> Iterator[str]:
    """Serve in another process; give the address."""
    command = [sys.executable, "-m", "bench.endpoint"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            assert process.stdin is not None
            process.stdin.close()


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that ended."""
    return sum(
        use.ru_utime + use.ru_stime
        for use in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# -- what runs in processes of its own


def play(url: str, mode: str, episodes: int, in_flight: int) -> dict[str, Any]:
    """Evaluate in this process and return what it took."""
    register_envs()
    env = "bench:Say" if mode == "tools" else "bench:Echo"
    agent = OpenAIAgent(
        f"bench/{mode}",
        base_url=url,
        stream=mode == "stream",
        concurrency=in_flight,
        retries=12,
        backoff_s=0.02,
        timeout_s=60,
    )
    with tempfile.TemporaryDirectory() as folder, EpisodeStore(Path(folder) / "episodes.jsonl") as store:
        began, wall = cpu_s(), time.perf_counter()
        result = evaluate(agent, env, episodes=episodes, concurrency=in_flight, store=store)
        spent, wall = cpu_s() - began, time.perf_counter() - wall
        agent.close()
    return {
        "episodes": episodes,
        "scored": result.scored,
        "success": result.success.mean if result.success is not None else None,
        "cpu_ms": spent / episodes * 1e3,
        "cpu_s": spent,
        "wall_s": wall,
        "peak_mb": peak_mb(),
    }


def peak_mb() -> float:
    """Return the most memory that this process held. `ru_maxrss` would count what its parent held too."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def play_apart(*args: Any) -> dict[str, Any]:
    """Do the same in a process of its own."""
    command = [sys.executable, "-m", "bench.evaluation", "--play", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the parts


async def _ask(url: str, requests: int) -> None:
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    message = {"role": "user", "content": "Say 123."}
    body = json.dumps({"model": "bench/plain", "messages": [message]}).encode()
    for _ in range(requests):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))  # type: ignore[index]
    writer.close()


def alone(requests: int, connections: int = 64) -> dict[str, float]:
    """Return what the endpoint takes by itself: asked by sockets that do nothing else."""

    async def ask_all() -> None:
        await asyncio.gather(*(_ask(url, requests // connections) for _ in range(connections)))

    with endpoint() as url:
        began, wall = stats(url)["cpu_s"], time.perf_counter()
        asyncio.run(ask_all())
        wall = time.perf_counter() - wall
        found = stats(url)
    return {
        "request_us": (found["cpu_s"] - began) / found["requests"] * 1e6,
        "per_s": found["requests"] / wall,
    }


def load(modes: tuple[str, ...], episodes: int) -> dict[str, Any]:
    """Return what a thousand episodes in flight take, by how the endpoint behaves."""
    figures = {}
    for mode in modes:
        with endpoint() as url:
            found = play_apart(url, mode, episodes, episodes)
            figures[mode] = {**found, "server": stats(url)}
    return figures


def play_by_peer(name: str, python: Path, url: str, episodes: int) -> Any:
    """Return what the same episodes take a peer."""
    return run_peer(python, f"{name}_trial.py", url, str(episodes), str(IN_FLIGHT), str(TURNS))


def overhead(episodes: int, short: int, rounds: int, peers: dict[str, Any]) -> dict[str, Any]:
    """Return the CPU of an episode, by who plays it: the difference of a long and a short run."""
    players: dict[str, Any] = {"gem": lambda url, count: play_apart(url, "plain", count, IN_FLIGHT), **peers}
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in players}
    for _ in range(rounds):
        for name, run in players.items():
            few, many = (short, episodes) if name != "verifiers" else choose_size((2, 10), (1, 2))
            with endpoint() as url:
                one, other = run(url, few), run(url, many)
                served = stats(url)["requests"]
            if other["scored"] != many:
                raise SystemExit(f"{name} scored {other['scored']} of {many} episodes")
            more = many - few
            taken[name].append(
                {
                    "cpu_ms": (other["cpu_s"] - one["cpu_s"]) / more * 1e3,
                    "wall_ms": (other["wall_s"] - one["wall_s"]) / more * 1e3,
                    "requests": served / (few + many),
                    "episodes": many,
                }
            )
    return {
        name: {key: median(each[key] for each in runs) for key in runs[0]} | {"rounds": runs}
        for name, runs in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer episodes, and no peers")
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=MODES,
        default=choose_size(list(MODES), ["tools"]),
        help="ways to behave",
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[*PEERS])
    parser.add_argument(
        "--play", nargs=4, metavar=("URL", "MODE", "EPISODES", "IN_FLIGHT"), help="(internal)"
    )
    options = parse_args(parser)
    if options.play:
        url, mode, episodes, in_flight = options.play
        print(json.dumps(play(url, mode, int(episodes), int(in_flight))))
        return
    quick = options.quick
    figures: dict[str, Any] = {
        "cores": os.cpu_count(),
        "endpoint": alone(choose_size(2_000 if quick else 20_000, 64)),
    }
    table(
        "The endpoint by itself",
        ("", "CPU us per request", "requests/s"),
        [("64 connections", figures["endpoint"]["request_us"], figures["endpoint"]["per_s"])],
    )
    episodes = choose_size(100 if quick else 1000, 4)
    figures["load"] = load(tuple(options.modes), episodes)
    columns = (
        "endpoint",
        "scored",
        "peak MB (wanted: < 1024)",
        "CPU ms per episode",
        "wall s",
        "connections",
        "asked at once",
        "faults",
    )
    rows = [
        (
            mode,
            f"{each['scored']} of {each['episodes']}",
            each["peak_mb"],
            each["cpu_ms"],
            each["wall_s"],
            each["server"]["connections"] - 1,
            each["server"]["most_at_once"],
            each["server"]["faults"],
        )
        for mode, each in figures["load"].items()
    ]
    table(f"{episodes} episodes of {TURNS} turns, all in flight", columns, rows)
    peers: dict[str, Any] = {}
    for name in () if options.quick else options.peers:
        with left_out_where_missing():
            python = peer_python(*PEERS[name])
            peers[name] = partial(play_by_peer, name, python)
    sizes = (40, 20, 1) if quick else (400, 100, 3)
    figures["overhead"] = overhead(*choose_size(sizes, (8, 4, 1)), peers)
    mine = figures["overhead"]["gem"]["cpu_ms"]
    rows = [
        (name, each["episodes"], each["requests"], each["cpu_ms"], each["wall_ms"], each["cpu_ms"] / mine)
        for name, each in figures["overhead"].items()
    ]
    columns = (
        "",
        "episodes",
        "requests each",
        "CPU ms per episode",
        "wall ms per episode",
        "over gem's (wanted: 3)",
    )
    table(f"The same episodes of {TURNS} turns, {IN_FLIGHT} in flight, medians of the rounds", columns, rows)
    write_json("evaluation", figures)


if __name__ == "__main__":
    main()
