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


class SelfTable(Walk):
    """The same, by a table of its own methods, and by a part that knows its world."""

    def reset(self, seed: int | None = None) -> Start:
        start = super().reset(seed)
        self.walker = Walker(self)
        self.table = {"1": self.win, "0": self.lose}
        self.won = False
        return start

    def win(self) -> None:
        self.won = True

    def lose(self) -> None:
        self.won = False

    def step(self, action: str) -> Step:
        self.table[action]()
        self.walker.walk()
        shown, _, *rest = super().step(action)
        return Step(f"{shown} {self.walker.world.turn}", float(self.won), *rest)


class Walker:
    """A part of SelfTable."""

    def __init__(self, world: SelfTable) -> None:
        self.world = world
        self.walked = 0

    def walk(self) -> None:
        self.walked += 1 + self.world.turn


class LambdaTable(SelfTable):
    """The same, by functions that keep the environment: no copy could follow them."""

    def reset(self, seed: int | None = None) -> Start:
        start = super().reset(seed)
        self.table = {"1": lambda: self.win(), "0": lambda: self.lose()}
        return start


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
