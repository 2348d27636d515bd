"""Environments that do as they are told; worker processes import them as well."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from typing import Any, ClassVar

from gem.content import Image, Text, ToolSpec
from gem.core import Env, Start, Step
from gem.errors import BadArgument, NoVerdict


class Obeying(Env):
    """Echoes an action, or does what its first word says; an episode has `length` steps."""

    tool_specs = (
        ToolSpec("echo", "Say it again.", {"type": "object", "properties": {"it": {"type": "string"}}}),
    )
    gate: ClassVar[threading.Event] = threading.Event()
    closed: ClassVar[list[int]] = []

    def __init__(self, length: int = 3) -> None:
        if length < 0:
            raise BadArgument(f"length is {length}; accepted: 0 or more.")
        self.length = length

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.turn = 0
        return Start(f"start {self.rng.randrange(10**6)}", {})

    def step(self, action: str) -> Step:
        self.turn += 1
        word = action.partition(" ")[0]
        info: dict[str, Any] = {"turn": self.turn}
        if word == "die":
            os._exit(3)
        if word == "secret":
            raise RuntimeError("/etc/secret-path")
        if word == "broken":
            raise NoVerdict("the tool server is gone")
        if word == "argument":
            raise BadArgument("the database's address is wrong")
        if word == "nan":
            return Step("x", float("nan"), False, False, info)
        if word == "error":
            return Step("x", 0.0, False, True, {"stop": "error", "error": "a tool died"})
        if word == "picture":
            return Step((Text("see"), Image(b"\x89PNG", alt="[a cat]")), 0.0, False, False, info)
        if word == "cut":
            return Step("cut", 0.5, False, True, {"stop": "token_limit"})
        if word == "surrogate":
            return Step("half \ud800", 0.0, False, False, {"\ud800": "\ud800"})
        if word == "bytes":
            return Step(b"x", 0.5, False, False, info)  # type: ignore[arg-type]
        if word == "knot":
            info["me"] = info
        if word == "fraction":
            return Step("x", Fraction(1, 4), True, False, info)  # type: ignore[arg-type]
        if word == "wait":
            assert self.gate.wait(20), "nobody opened the gate"
        done = self.turn >= self.length
        return Step(f"{action} {self.rng.randrange(10**6)}", self.turn / 8, done, False, info)

    def sample_random_action(self) -> str:
        return f"move {self.actor_rng.randrange(10)}"

    def close(self) -> None:
        if self._phase != "closed":
            self.closed.append(id(self))
        super().close()


class Reusing(Env):
    """Returns the same info from every call; the first step ends the episode."""

    def __init__(self) -> None:
        self.info = {"success": False}

    def reset(self, seed: int | None = None) -> Start:
        super().reset(seed)
        self.info["success"] = False
        return Start("A door.", self.info)

    def step(self, action: str) -> Step:
        self.info["success"] = True
        return Step("It is open.", 1.0, True, False, self.info)
