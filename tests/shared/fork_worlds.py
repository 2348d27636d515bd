"""Environments for the tests of forks; workers and players import them too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import ClassVar

from gem.core import Env, Start, Step
from gem.seats import MultiStart, MultiStep, SeatedEnv

_EVERY_STEP = count()


class Walk(Env):
    """Five steps; each earns what was chosen (1 or 0), and the world says a number of its own."""

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.turn = 0
        return Start(f"world {self.rng.randrange(10**6)}", {})

    def step(self, action: str) -> Step:
        self.turn += 1
        shown = f"{action} {self.rng.randrange(10**6)}"
        return Step(shown, float(action == "1"), self.turn == 5, False, {"turn": self.turn})

    def sample_random_action(self) -> str:
        return str(self.actor_rng.randrange(2))


class SoloWalk(SeatedEnv):
    """The same as a game of seats that has only one."""

    seats = ("p0",)

    def reset(self, seed: int | None = None) -> MultiStart:
        super().reset(seed)
        self.turn = 0
        return MultiStart({"p0": f"world {self.rng.randrange(10**6)}"}, {"p0": {}})

    def step(self, actions: Mapping[str, str]) -> MultiStep:
        self.turn += 1
        obs = {"p0": f"{actions['p0']} {self.rng.randrange(10**6)}"}
        earned, over = {"p0": float(actions["p0"] == "1")}, {"p0": self.turn == 5}
        return MultiStep(obs, earned, over, {"p0": False}, {"p0": {"turn": self.turn}})

    def random_action(self, seat: str) -> str:
        return str(self.actor_rng_of(seat).randrange(2))


class FarWalk(Walk):
    """The same, where nobody can copy it."""

    forkable: ClassVar[bool] = False


class Moody(Walk):
    """Pays by how often this process has stepped anything."""

    def step(self, action: str) -> Step:
        shown, _, *rest = super().step(action)
        return Step(shown, float(next(_EVERY_STEP)), *rest)


class Forgetful(Walk):
    """Shows how often this process has stepped anything."""

    def step(self, action: str) -> Step:
        _, *rest = super().step(action)
        return Step(str(next(_EVERY_STEP)), *rest)
