"""Play the benchmark's episodes with verifiers: ``verifiers_trial.py URL EPISODES IN_FLIGHT TURNS``.

A taskset whose environment steps the game on the host, with the harness that only chats, in the runtime that
is a process of this machine: the lightest that verifiers 0.4 has. The harness is a program of its own, which
uv prepares; one episode before the clock starts pays for that.
"""

import asyncio
import json
import os
import random
import resource
import sys
import time
from types import ModuleType


def cpu_s():
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main():
    url, episodes, in_flight, turns = sys.argv[1], *map(int, sys.argv[2:])
    os.environ["FAKE_KEY"] = "none"
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # where uv is

    import verifiers.v1 as vf
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig
    from verifiers.v1.env import RunSlot
    from verifiers.v1.types import SamplingConfig
    from verifiers.v1.utils.loaders import env_config_type, load_environment

    class EchoData(vf.TaskData):
        seed: int

    class EchoTask(vf.Task[EchoData, vf.State, vf.TaskConfig]):
        pass

    class EchoConfig(vf.TasksetConfig):
        pass

    class EchoTaskset(vf.Taskset[EchoTask, EchoConfig]):
        def load(self):
            for seed in range(episodes):
                number = random.Random(seed).randrange(1000)
                yield EchoTask(EchoData(name=str(seed), prompt=f"Say {number}.", seed=seed), self.config.task)

    class EchoEnvConfig(vf.EnvConfig):
        player: vf.AgentConfig = vf.AgentConfig()

    class EchoEnv(vf.Env[EchoEnvConfig]):
        async def run(self, task, agents):
            rng, right = random.Random(task.data.seed), 0
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()
                for turn in range(1, turns + 1):
                    right += segment.last_reply.strip() == str(rng.randrange(1000))
                    if turn == turns or segment.terminated:
                        break
                    ahead = random.Random()
                    ahead.setstate(rng.getstate())
                    segment = await interaction.turn(f"Say {ahead.randrange(1000)}.")
            interaction.trace.record_reward("right", right / turns, 1.0)

    module = ModuleType("echo_game")
    module.__all__ = ["EchoTaskset", "EchoEnv"]
    module.EchoTaskset, module.EchoEnv = EchoTaskset, EchoEnv
    sys.modules["echo_game"] = module
    for each in (EchoTaskset, EchoEnv):
        each.__module__ = "echo_game"

    player = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    config = env_config_type("echo_game").model_validate({"taskset": {"id": "echo_game"}, "player": player})
    env = load_environment(config)
    client = EvalClientConfig(base_url=url, api_key_var="FAKE_KEY")
    context = ModelContext(client=client, model="bench/plain", sampling=SamplingConfig())

    async def play():
        gate, tasks = asyncio.Semaphore(in_flight), list(env.taskset)
        async with env.serving():
            await env.run_slot(RunSlot(task=tasks[0]), context, gate)
            began, wall = cpu_s(), time.perf_counter()
            played = await asyncio.gather(
                *(env.run_slot(RunSlot(task=task), context, gate) for task in tasks)
            )
            return played, cpu_s() - began, time.perf_counter() - wall

    played, spent, wall = asyncio.run(play())
    scored = sum(any(trace.reward > 0.99 for trace in episode.traces) for episode in played)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"scored": scored, "cpu_s": spent, "wall_s": wall, "peak_mb": peak}))


if __name__ == "__main__":
    main()
