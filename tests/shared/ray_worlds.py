"""Environments for the tests of playing on Ray; players on the nodes import them too."""

from __future__ import annotations

import os
import signal
from time import sleep

from gem.core import Env, Start, Step


class Waits(Env):
    """Some steps, each of which waits and says a number of the world's."""

    def __init__(self, wait_s: float = 0.0, steps: int = 3) -> None:
        self.wait_s, self.steps = wait_s, steps

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.turn = 0
        return Start(f"world {self.rng.randrange(10**6)}", {})

    def step(self, action: str) -> Step:
        sleep(self.wait_s)
        self.turn += 1
        done = self.turn == self.steps
        return Step(f"{self.rng.randrange(10**6)}", 1.0, done, False, {"success": True} if done else {})

    def sample_random_action(self) -> str:
        return str(self.actor_rng.randrange(100))


class Poison(Waits):
    """Kills the process that it is in, where its seed is 13."""

    def step(self, action: str) -> Step:
        if self.seed == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
