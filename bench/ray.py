"""Cost of Ray compared with the process host, per episode, and the gain of more nodes.

``python -m bench.ray``, with Ray (``pip install 'gem-gym[ray]'``). The nodes are those of a cluster on this
machine; more nodes than cores help only environments that wait. From these measurements a simulation
(`bench.ray_simulation`) predicts larger clusters; it is first compared with the measured runs.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from bench.common import choose_size, left_out_where_missing, parse_args, table, write_json
from bench.ray_simulation import Costs, simulate
from gem.agents.random import RandomAgent
from gem.core import Env, Start, Step
from gem.hosts.processes import Processes
from gem.hosts.ray_cluster import Cluster, ray_module
from gem.rollout import Job, RayRunner, Runner

GAME = "game:GuessTheNumber-v0-hard"
WORKERS = 2
STEPS = 4
WAITS_S = choose_size((0.005, 0.02), (0.005,))
NODES = choose_size((1, 2, 3, 4), (1,))


class Waits(Env):
    """An episode of a few steps, each of which takes some time and no processor."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def reset(self, seed: int | None = None) -> Start:
        """Begin."""
        super().reset(seed)
        self.turn = 0
        return Start("go", {})

    def step(self, action: str) -> Step:
        """Take some time."""
        time.sleep(self.wait_s)
        self.turn += 1
        return Step("on", 1.0, self.turn == STEPS, False, {})

    def sample_random_action(self) -> str:
        """Do anything."""
        return "a"


@contextlib.contextmanager
def nodes(count: int) -> Iterator[str]:
    """Have a cluster of so many nodes on this machine, each with a core; yield its address."""
    ray_module()  # says how to install it
    from ray.cluster_utils import Cluster as Local

    local = Local(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            local.add_node(num_cpus=1)
        with Cluster(local.address):
            yield local.address
    finally:
        local.shutdown()


def seconds(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def episodes(trials: int) -> dict[str, Any]:
    """Return the microseconds of an episode on warm players and on warm worker processes, in pairs."""
    figures = {}
    for name, env, count in (
        ("a game", GAME, choose_size(2000, 64)),
        ("steps of 2 ms", partial(Waits, 0.002), choose_size(300, 64)),
    ):
        jobs = [Job(env, seed) for seed in range(count)]
        with (
            Runner(RandomAgent(), host=Processes(workers=WORKERS), concurrency=64) as near,
            RayRunner("random", concurrency=64) as far,
        ):
            near.play(jobs[:64])
            far.play(jobs[:64])
            pairs = [
                (seconds(lambda: near.play(jobs)), seconds(lambda: far.play(jobs)))  # noqa: B023
                for _ in range(trials)
            ]
        figures[name] = {
            "process_us": 1e6 * statistics.median(near for near, _ in pairs) / count,
            "ray_us": 1e6 * statistics.median(far for _, far in pairs) / count,
            "ratio": statistics.median(far / near for near, far in pairs),
        }
    return figures


def costs() -> Costs:
    """Return what the parts of playing on Ray cost: of the driver, of a player, of a message."""
    jobs, calls = (
        [Job(partial(Waits, 0.0), seed) for seed in range(choose_size(3000, 64))],
        choose_size(200, 4),
    )
    with Cluster() as cluster, RayRunner("random", players=1, concurrency=64) as runner:
        runner.play(jobs[:200])
        began, began_cpu = perf_counter(), time.process_time()
        runner.play(jobs)
        player_s = (perf_counter() - began) / len(jobs)
        driver_s = (time.process_time() - began_cpu) / len(jobs)
        (member,) = runner._crew.members
        ray = cluster.ray
        empty = runner._crew.sender.parcel([], member)
        began, began_cpu = perf_counter(), time.process_time()
        for _ in range(calls):
            ray.get(member.actor.exchange.remote(empty, 0.0, None))
        round_s = (perf_counter() - began) / calls
        message_s = (time.process_time() - began_cpu) / calls
    return Costs(
        driver_s=driver_s,
        player_s=player_s,
        message_s=message_s,
        latency_s=max(0.0, round_s - message_s) / 2,
    )


def step_s(wait_s: float) -> float:
    """Return how long a step takes that is to wait so long: a sleeper wakes late on a busy machine."""
    env = Waits(wait_s)
    env.reset(seed=0)
    return seconds(lambda: [env.step("a") for _ in range(STEPS)]) / STEPS


def scaling(address: str, count: int) -> dict[float, float]:
    """Return the seconds of a few hundred waiting episodes on so many nodes, by how long a step takes."""
    found = {}
    with RayRunner("random", concurrency=8 * count, address=address) as runner:
        runner.play([Job(partial(Waits, 0.0), seed) for seed in range(choose_size(200, 8))])
        for wait_s in WAITS_S:
            jobs = [Job(partial(Waits, wait_s), seed) for seed in range(episodes_for(wait_s))]
            found[wait_s] = min(seconds(lambda jobs=jobs: runner.play(jobs)) for _ in range(2))
    return found


def episodes_for(wait_s: float) -> int:
    return choose_size(80 if wait_s > 0.01 else 240, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=choose_size(5, 1))
    trials = parse_args(parser).trials
    with nodes(WORKERS):
        figures: dict[str, Any] = {"episode": episodes(trials)}
    columns = ("", "process host, us", "Ray, us", "ratio")
    rows = [
        (name, each["process_us"], each["ray_us"], each["ratio"]) for name, each in figures["episode"].items()
    ]
    table(f"An episode, {WORKERS} workers (wanted: at most 1.3)", columns, rows)
    with nodes(1):
        measured = costs()
    figures["costs"] = measured._asdict()
    table(
        "What the simulation is fed with", ("", "us"), [(k, v * 1e6) for k, v in measured._asdict().items()]
    )
    taken = {wait_s: min(step_s(wait_s) for _ in range(5)) for wait_s in WAITS_S}
    rows, checked = [], []
    for count in NODES:
        with nodes(count) as address:
            found = scaling(address, count)
        for wait_s, spent in found.items():
            drawn = simulate(measured, count, 8, episodes_for(wait_s), STEPS, taken[wait_s])
            checked.append({"nodes": count, "wait_s": wait_s, "measured_s": spent, "simulated_s": drawn})
            rows.append((f"{count} nodes, steps of {wait_s * 1e3:g} ms", spent, drawn, drawn / spent))
    table(
        "Runs here and as they are drawn, s", ("", "measured", "simulated", "ratio (wanted: 0.9-1.1)"), rows
    )
    figures["checked"] = checked
    drawn_rows = []
    figures["drawn"] = []
    for wait_s in (0.001, 0.01, 0.1, 1.0):
        for count in (1, 10, 100):
            total = choose_size(100 * 100, 100) * count // 10
            spent = simulate(measured, count, 100, total, STEPS, wait_s, at_once=100)
            ideal = total * STEPS * wait_s / (100 * count)
            figures["drawn"].append({"nodes": count, "wait_s": wait_s, "episodes": total, "seconds": spent})
            drawn_rows.append((f"{count} nodes, steps of {wait_s:g} s", total / spent, ideal / spent))
    table("Drawn: 100 environments a node, which wait", ("", "episodes/s", "share of the ideal"), drawn_rows)
    write_json("ray", figures)


if __name__ == "__main__":
    with left_out_where_missing():
        main()
