"""FaultyEnv: an environment that breaks on purpose, to test what carries environments."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Collection
from threading import Event
from typing import ClassVar, Literal

from gem.core import Start, Step
from gem.errors import BadArgument
from gem.testing.doubles import EchoEnv

Fault = Literal["raise", "hang", "die"]
FAULTS: tuple[Fault, ...] = ("raise", "hang", "die")


class Fell(RuntimeError):
    """What FaultyEnv raises."""


class FaultyEnv(EchoEnv):
    """An EchoEnv that breaks at a given moment.

    Task:
        As EchoEnv; in turn `at` (0 is the reset, 1 the first step) of the episodes in `seeds` (None: of
        all) it raises `Fell`, hangs until `released` is set, or kills the process it lives in.
    Action:
        As EchoEnv.
    Observation:
        As EchoEnv.
    Reward:
        As EchoEnv.
    End:
        As EchoEnv.
    Source:
        A double for tests.
    """

    released: ClassVar[Event] = Event()
    """Set it to let go every environment of this process that hangs."""

    def __init__(
        self, fault: Fault = "raise", at: int = 1, seeds: Collection[int] | None = None, turns: int = 3
    ) -> None:
        """Choose the fault and its moment.

        Raises:
            BadArgument: for another fault, or a moment that never comes.
        """
        super().__init__(turns)
        if fault not in FAULTS:
            raise BadArgument(f"fault is {fault!r}; accepted: {', '.join(FAULTS)}.")
        if not 0 <= at <= turns:
            raise BadArgument(f"at is {at}; accepted: 0 (the reset) to {turns}.")
        self.fault = fault
        self.at = at
        self.seeds = seeds

    def reset(self, seed: int | None = None) -> Start:
        """Begin an episode, or break."""
        start = super().reset(seed)
        self._break_at(0)
        return start

    def step(self, action: str) -> Step:
        """Take a step, or break."""
        self._break_at(self.turn + 1)
        return super().step(action)

    def _break_at(self, moment: int) -> None:
        if moment != self.at or (self.seeds is not None and self.seed not in self.seeds):
            return
        if self.fault == "raise":
            raise Fell(f"broken on purpose at turn {moment}")
        if self.fault == "hang":
            self.released.wait()
        elif multiprocessing.parent_process() is None:
            raise BadArgument("fault 'die' would kill the main process; it is for a process host.")
        else:
            os.kill(os.getpid(), signal.SIGKILL)
