"""Play the benchmark's episodes with Inspect: ``inspect_trial.py URL EPISODES IN_FLIGHT TURNS``.

A solver that steps the environment and asks the model through Inspect's own provider for such endpoints; the
log is written, as it is by default.
"""

import json
import os
import random
import resource
import sys
import tempfile
import time


class Echo:
    """The same environment as gem's EchoEnv."""

    def __init__(self, turns, seed):
        self.turns, self.turn, self.right, self.rng = turns, 0, 0, random.Random(seed)

    def ask(self):
        """Name a number."""
        self.number = self.rng.randrange(1000)
        return f"Say {self.number}."

    def step(self, action):
        """Compare."""
        right = action.strip() == str(self.number)
        self.turn += 1
        self.right += right
        done = self.turn == self.turns
        return f"{self.right} of {self.turns} were right." if done else self.ask(), right / self.turns, done


def cpu_s():
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main():
    url, episodes, in_flight, turns = sys.argv[1], *map(int, sys.argv[2:])
    os.environ["OPENAI_API_KEY"] = "none"

    from inspect_ai import Task
    from inspect_ai import eval as inspect_eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser
    from inspect_ai.scorer import Score, mean, scorer
    from inspect_ai.solver import solver

    @solver
    def play():
        async def solve(state, generate):
            env, earned, done = Echo(turns, state.metadata["seed"]), 0.0, False
            state.messages = [ChatMessageUser(content=env.ask())]
            while not done:
                state = await generate(state)
                shown, reward, done = env.step(state.output.completion)
                earned += reward
                state.messages.append(ChatMessageUser(content=shown))
            state.metadata["earned"] = earned
            return state

        return solve

    @scorer(metrics=[mean()])
    def earned():
        async def score(state, target):
            return Score(value=state.metadata["earned"])

        return score

    samples = [Sample(id=number, input="play", metadata={"seed": number}) for number in range(episodes)]
    task = Task(dataset=MemoryDataset(samples), solver=play(), scorer=earned())
    with tempfile.TemporaryDirectory() as folder:
        began, wall = cpu_s(), time.perf_counter()
        (log,) = inspect_eval(
            task,
            model="openai/bench/plain",
            model_base_url=url,
            max_connections=in_flight,
            max_samples=in_flight,
            display="none",
            log_dir=folder,
            model_args={"responses_api": False},
        )
        spent, wall = cpu_s() - began, time.perf_counter() - wall
        scored = sum(
            bool(sample.scores) and sample.scores["earned"].value > 0.99 for sample in log.samples or ()
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps({"scored": scored, "cpu_s": spent, "wall_s": wall, "peak_mb": peak, "status": log.status})
    )


if __name__ == "__main__":
    main()
