"""Worlds of other packages, through gem and as their packages run them: CPU time, hosts, memory.

``python -m bench.worlds [ID ...] [--alone]``. Each row plays the same recorded actions twice: through gem's
environment, and by the package's own calls alone, without any text; each side in turn, in one process, so the
ratio holds where other programs take the processor's time. Also the time of a fork, whether two plays say the
same, and the lines of this file that each way takes. Then 64 episodes at once on each host, unless
``--alone``, with the memory of one environment. A world that was not fetched is left out.
"""

from __future__ import annotations

import argparse
import inspect
import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gem
from bench.common import choose_size, cpu_rate, parse_args, table, write_json
from gem.agents.solver import SolverAgent
from gem.registry import FAMILIES
from gem.rollout import Job, rollout
from gem.seeding import derive

SEEDS = choose_size(10, 2)
CPU_S = choose_size(1.0, 0.01)
AT_ONCE = choose_size(64, 4)
HOSTS = ("serial", "thread", "process")

Plays = list[tuple[int, list[Any]]]
"""Recorded episodes: the seed and the actions, by seat where there are several."""

Own = Callable[[str, Plays], Callable[[bool], int]]
"""What prepares a package's own way of playing the records of an id: it returns the number of episodes."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Worlds of other packages: CPU time, forks, hosts, memory.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="measure these alone")
    parser.add_argument("--alone", action="store_true", help="leave out many episodes at once")
    args = parse_args(parser)
    figures = {}
    for env_id, (own, copies) in OWN.items():
        if args.ids and env_id not in args.ids:
            continue
        if FAMILIES[env_id.partition(":")[0]].is_here():
            figures[env_id] = {**measure(env_id, own), "own_forks": copies}
            if not args.alone:
                figures[env_id].update(measure_hosts(env_id))
        else:
            print(f"left out: {env_id}, whose world or package is not here")
    table(
        "CPU time per episode and step; gem's includes the text",
        ["id", "ms a reset", "package", "us a step", "package"],
        [
            (
                env_id,
                *(f"{one[key]:.2f}" for key in ("reset_ms", "own_reset_ms")),
                *(f"{one[key]:.0f}" for key in ("step_us", "own_step_us")),
            )
            for env_id, one in figures.items()
        ],
    )
    table(
        "The same actions by gem and by the package alone, and what either takes",
        [
            *("id", "steps per CPU s", "package", "ratio", "ms a fork", "package's fork", "same twice"),
            *("lines", "package"),
        ],
        [
            (
                env_id,
                *(f"{one[key]:.0f}" for key in ("steps_per_s", "own_steps_per_s")),
                f"{one['steps_per_s'] / one['own_steps_per_s']:.2f}",
                f"{one['fork_ms']:.1f}",
                one["own_forks"],
                "yes" if one["same_twice"] else "no",
                *(str(one[key]) for key in ("lines", "own_lines")),
            )
            for env_id, one in figures.items()
        ],
    )
    if args.alone:
        write_json("worlds", figures)
        return
    table(
        f"{AT_ONCE} episodes at once, played by the solver: steps per second of wall time; MB an environment",
        ["id", *HOSTS, "MB"],
        [
            (env_id, *(f"{one[host]:.0f}" for host in HOSTS), f"{one['memory_mb']:.2f}")
            for env_id, one in figures.items()
        ],
    )
    write_json("worlds", figures)


def measure(env_id: str, own: Own) -> dict[str, Any]:
    """Return the figures of one id."""
    plays, said = record(env_id)
    replays = {"": replay_here(env_id, plays), "own_": own(env_id.partition(":")[2], plays)}
    figures: dict[str, Any] = {
        "same_twice": record(env_id) == (plays, said),
        "fork_ms": 1000 / cpu_rate(fork_midway(env_id, plays), CPU_S),
        "lines": count_lines(replay_here),
        "own_lines": count_lines(own),
    }
    for side, replay in replays.items():
        reset_s = 1 / cpu_rate(lambda play=replay: play(False), CPU_S)
        whole_s = SEEDS / cpu_rate(lambda play=replay: play(True), CPU_S)
        steps = sum(len(actions) for _, actions in plays)
        figures[f"{side}reset_ms"] = 1000 * reset_s
        figures[f"{side}step_us"] = max(0.0, 1e6 * (whole_s - SEEDS * reset_s) / steps)
        figures[f"{side}steps_per_s"] = steps / whole_s
    return figures


def measure_hosts(env_id: str) -> dict[str, float]:
    """Return the steps per wall second of many episodes at once, by host, and the memory of one."""
    figures = {"memory_mb": memory_mb(env_id)}
    for host in HOSTS:
        began = time.perf_counter()
        jobs = [Job(env_id, seed) for seed in range(AT_ONCE)]
        episodes = rollout(jobs, SolverAgent(), host=host, concurrency=AT_ONCE)
        figures[host] = sum(len(each.turns) for each in episodes) / (time.perf_counter() - began)
    return figures


def record(env_id: str) -> tuple[Plays, list[str]]:
    """Return the solver's actions on some seeds, and all that was said and paid."""
    plays, said = [], []
    with gem.make(env_id) as env:
        for seed in range(SEEDS):
            said.append(str(env.reset(seed).obs))
            actions: list[Any] = []
            over = False
            while not over:
                actions.append(env.solve())
                step = env.step(actions[-1])
                said.append(f"{step.obs} {step[1]}")
                over = step.done
            plays.append((seed, actions))
    return plays, said


def fork_midway(env_id: str, plays: Plays) -> Callable[[], int]:
    """Return what forks an episode that is half played."""
    env = gem.make(env_id)
    seed, actions = plays[0]
    env.reset(seed)
    for action in actions[: len(actions) // 2]:
        env.step(action)

    def fork() -> int:
        env.fork()
        return 1

    return fork


def count_lines(function: Callable[..., Any]) -> int:
    """Return the lines of code of a function, without its docstring and blank lines."""
    text = inspect.getsource(function)
    lines = [line for line in text.replace(f'"""{function.__doc__}"""', "").splitlines() if line.strip()]
    return len(lines)


def replay_here(env_id: str, plays: Plays) -> Callable[[bool], int]:
    """Return what plays the records through gem; it returns the number of episodes."""
    env = gem.make(env_id)

    def replay(steps: bool) -> int:
        for seed, actions in plays:
            env.reset(seed)
            for action in actions if steps else ():
                env.step(action)
        return len(plays)

    return replay


def grid_alone(prefix: str) -> Callable[[str, Plays], Callable[[bool], int]]:
    """Return what plays the records of a grid by the package's own calls."""

    def prepare(name: str, plays: Plays) -> Callable[[bool], int]:
        import gymnasium

        from gem.envs.bridges.minigrid import ACTIONS

        world: Any = gymnasium.make(prefix + name, disable_env_checker=True).unwrapped
        numbered = [(seed, [ACTIONS.index(each[7:-1]) for each in actions]) for seed, actions in plays]

        def replay(steps: bool) -> int:
            for seed, actions in numbered:
                world.reset(seed=derive(seed, "minigrid") % 2**31)
                for action in actions if steps else ():
                    world.step(action)
            return len(plays)

        return replay

    return prepare


def office_alone(name: str, plays: Plays) -> Callable[[bool], int]:
    """Return what plays the records of AgentDojo by the package's own calls."""
    from gem.envs.bridges import agentdojo as bridge
    from gem.tools.calls import find

    suite, runtime = bridge._suite(name), bridge._runtime(name)
    with gem.make(f"agentdojo:{name}") as env:
        tasks = [suite.user_tasks[env.reset(seed).info["task"]] for seed, _ in plays]
    made = [[match.call for action in actions for match in find(action, ())] for _, actions in plays]

    def replay(steps: bool) -> int:
        for task, calls in zip(tasks, made, strict=True):
            world = task.init_environment(suite.load_and_inject_default_environment({}))
            before = world.model_copy(deep=True)
            if steps:
                for call in calls:
                    runtime.run_function(world, call.name, call.arguments)
                suite._check_user_task_utility(
                    task, [{"type": "text", "content": str(task.GROUND_TRUTH_OUTPUT)}], before, world, []
                )
        return len(plays)

    return replay


def conversations_alone(name: str, plays: Plays) -> Callable[[bool], int]:
    """Return what plays the records of BFCL by the package's own calls: it runs all calls twice, to score."""
    from gem.envs.bridges.bfcl import read_references, read_rows

    utils, checker = (
        import_module(f"bfcl_eval.eval_checker.multi_turn_eval.multi_turn_{part}")
        for part in ("utils", "checker")
    )
    tasks = list_tasks(f"bfcl:{name}", plays)
    long = name.endswith("long_context")

    def replay(steps: bool) -> int:
        for task in tasks:
            row, turns = read_rows(name)[task], read_references(name)[task]
            for calls in turns if steps else ([],):
                utils.execute_multi_turn_func_call(
                    calls, row["initial_config"], row["involved_classes"], "alone", task, long
                )
            if steps:
                checker.multi_turn_checker([[turn] for turn in turns], turns, row, name, "alone")
            for made in [key for key in vars(utils) if key.endswith("_instance")]:
                del vars(utils)[made]
        return len(plays)

    return replay


def answers_alone(name: str, plays: Plays) -> Callable[[bool], int]:
    """Return what scores the records of a BFCL category with one turn by the package's checker alone."""
    from gem.envs.bridges.bfcl import read_references, read_rows
    from gem.envs.bridges.bfcl_calls import Language, ast_checker, read_calls

    rows = [(read_rows(name)[task]["function"], task) for task in list_tasks(f"bfcl:{name}", plays)]
    answers = [read_calls(actions[0], row) for (row, _), (_, actions) in zip(rows, plays, strict=True)]

    def replay(steps: bool) -> int:
        for (row, task), made in zip(rows, answers, strict=True) if steps else ():
            ast_checker.ast_checker(row, made, read_references(name)[task], Language.PYTHON, name, "")
        return len(plays)

    return replay


def service_alone(name: str, plays: Plays) -> Callable[[bool], int]:
    """Return what plays the records of tau2-bench by its orchestrator, and judges them by its evaluator."""
    from gem.tools.calls import find
    from gem.worlds import _hollow_modules

    tasks = list_tasks(f"tau2:{name}", plays)
    with _hollow_modules(("litellm", "litellm.caching", "litellm.caching.caching", "litellm.main", "pandas")):
        from tau2.agent.base import BaseAgent
        from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage
        from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation
        from tau2.orchestrator.orchestrator import Orchestrator
        from tau2.registry import registry
        from tau2.user.base import BaseUser

    def said_by(seat: str, actions: list[Any]) -> Any:
        """Return a player of the package that says what a seat said."""
        role, message = ("user", UserMessage) if seat == "user" else ("assistant", AssistantMessage)
        lines = iter([action[seat] for action in actions if seat in action])

        def answer(self: Any, heard: Any, state: Any) -> Any:
            text = next(lines)
            calls = [
                ToolCall(id=str(n), name=each.call.name, arguments=dict(each.call.arguments), requestor=role)
                for n, each in enumerate(find(text, ()))
                if each.call
            ]
            return message(role=role, content=None if calls else text, tool_calls=calls or None), state

        methods = {
            "__init__": lambda self: None,
            "generate_next_message": answer,
            "get_init_state": lambda self, message_history=None: None,
            "is_stop": lambda self, message: False,
            "set_seed": lambda self, seed: None,
            "stop": lambda self, message, state: None,
        }
        return type("Recorded", (BaseUser if seat == "user" else BaseAgent,), methods)()

    def replay(steps: bool) -> int:
        for task, (_, actions) in zip(tasks, plays, strict=True):
            world = registry.get_env_constructor(name)()
            runner = Orchestrator(
                name, said_by("agent", actions), said_by("user", actions), world, task, max_steps=200
            )
            if steps:
                played = runner.run()
                assert evaluate_simulation(played, task, EvaluationType.ALL, False, name).reward == 1.0
            else:
                runner.initialize()
        return len(plays)

    return replay


def list_tasks(env_id: str, plays: Plays) -> list[Any]:
    """Return the package's task of each record, or its id."""
    with gem.make(env_id) as env:
        return [env.reset(seed) and env.unwrapped.task for seed, _ in plays]


def adventures_alone(name: str, plays: Plays) -> Callable[[bool], int]:
    """Return what plays the records of TextWorld by the package's own runner; the games are made before."""
    import textworld

    from gem.envs.bridges.textworld import _NAMED

    with gem.make(f"textworld:{name}") as env:
        games = [env.reset(seed) and env._game for seed, _ in plays]
    commands = [[action[7:-1] for action in actions] for _, actions in plays]

    def replay(steps: bool) -> int:
        for game, given in zip(games, commands, strict=True):
            with game.files() as path:
                world = textworld.start(path, _NAMED)
                world.reset()
            for command in given if steps else ():
                world.step(command)
        return len(plays)

    return replay


def memory_mb(env_id: str) -> float:
    """Return the memory that one more environment takes after its reset, in MB."""
    held = [gem.make(env_id)]
    held[0].reset(0)
    before = resident_mb()
    for seed in range(1, AT_ONCE + 1):
        held.append(gem.make(env_id))
        held[-1].reset(seed)
    return max(0.0, resident_mb() - before) / AT_ONCE


def resident_mb() -> float:
    """Return the memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


OWN: dict[str, tuple[Own, str]] = {
    "babyai:GoToLocal-v0": (grid_alone("BabyAI-"), "deepcopy"),
    "babyai:BossLevel-v0": (grid_alone("BabyAI-"), "deepcopy"),
    "agentdojo:banking": (office_alone, "deepcopy"),
    "agentdojo:workspace": (office_alone, "deepcopy"),
    "bfcl:multi_turn_base": (conversations_alone, "none"),
    "bfcl:multi_turn_long_context": (conversations_alone, "none"),
    "bfcl:live_multiple": (answers_alone, "one turn"),
    "tau2:airline": (service_alone, "none"),
    "tau2:retail": (service_alone, "none"),
    "tau2:telecom": (service_alone, "none"),
    "textworld:coin_collector": (adventures_alone, "copy()"),
}
"""The ids that are measured, their packages' own way, and what forks an episode there: a copy of its objects,
or nothing, where the runner keeps a part of the episode elsewhere."""

if __name__ == "__main__":
    main()
