"""A test double of an environment: EchoEnv, the simplest one that keeps the whole contract."""

from __future__ import annotations

from gem.core import Env, Start, Step
from gem.errors import check_least
from gem.record import StopReason


class EchoEnv(Env):
    """Say the number that is asked for, a few times over.

    Task:
        In each of `turns` turns a number from 0 to 999 is named; say it.
    Action:
        The number, as plain text.
    Observation:
        ``Say 123.``; after the last turn, how many were right.
    Reward:
        ``1 / turns`` for each number said right; the return is 1 when all are.
    End:
        After `turns` turns.
    Source:
        A double for tests.
    """

    def __init__(self, turns: int = 3) -> None:
        """Set the number of turns."""
        check_least("turns", turns)
        self.turns = turns
        self.turn = self.right = self.number = 0

    def reset(self, seed: int | None = None) -> Start:
        """Name the first number."""
        super().reset(seed)
        self.turn = self.right = 0
        return Start(self._ask(), {})

    def step(self, action: str) -> Step:
        """Compare, and name the next number."""
        right = action.strip() == str(self.number)
        self.turn += 1
        self.right += right
        reward = right / self.turns
        if self.turn < self.turns:
            return Step(self._ask(), reward, False, False, {})
        success = self.right == self.turns
        stop = StopReason.SOLVED if success else StopReason.FAILED
        info = {"success": success, "stop": stop.value}
        return Step(f"{self.right} of {self.turns} were right.", reward, True, False, info)

    def _ask(self) -> str:
        self.number = self.rng.randrange(1000)
        return f"Say {self.number}."

    def sample_random_action(self) -> str:
        """Say any number."""
        return str(self.actor_rng.randrange(1000))

    def solve(self) -> str:
        """Say the number."""
        return str(self.number)
