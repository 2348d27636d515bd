"""The serial host: every call runs in the caller's thread, when somebody waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from gem.errors import NoVerdict
from gem.vector.host import Command, Host, Mapped, Outcome, Recipe, Slot, carry_out, escaped, overdue


class Serial(Host):
    """Environments in the caller's thread: the least overhead, nothing at the same time."""

    def __init__(self, env_fns: Sequence[Recipe], call_s: float | None = None) -> None:
        """Keep the recipes."""
        super().__init__(env_fns, call_s)
        self.slots = [Slot(env_fn) for env_fn in env_fns]
        self._todo: deque[Command] = deque()
        self._done: list[Outcome] = []

    def _start(self, commands: Sequence[Command]) -> None:
        self._todo.extend(commands)

    def _finished(self, at_least: int, timeout: float | None) -> list[Outcome]:
        todo, done, slots = self._todo, self._done, self.slots
        timed = timeout is not None or self.call_s is not None
        until = perf_counter() + timeout if timeout is not None else float("inf")
        while len(done) < at_least:
            command = todo.popleft()
            began = perf_counter() if timed else 0.0
            try:
                done.append(carry_out(slots[command[0]], command))
            except BaseException as interrupt:  # Ctrl-C inside a call loses that call, not its neighbours
                error = NoVerdict(f"interrupted by {type(interrupt).__name__}.")
                done.append(Outcome(command[0], None, error))
                raise
            if timed:
                now = perf_counter()
                if self.call_s is not None and now - began > self.call_s:
                    slots[command[0]].close()
                    done[-1] = Outcome(command[0], None, overdue(command[1], self.call_s))
                if now > until:
                    break
        self._done = []
        return done

    def map(self, indices: Sequence[int], verb: Callable[..., Any], *columns: Sequence[Any]) -> Mapped:
        """Call in a loop as tight as a bare one; see Host.map."""
        slots = self.slots
        envs = [slots[index].env for index in indices]
        if self._closed or self.busy or self.call_s is not None or not all(envs):
            return super().map(indices, verb, *columns)
        values: list[Any] = []
        errors: dict[int, Exception] = {}
        calls = map(verb, envs, *columns)  # goes on behind a call that raised
        while True:
            try:
                for value in calls:
                    values.append(value)
                return values, errors
            except Exception as error:
                errors[len(values)] = error
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                errors[len(values)] = escaped(error)
            values.append(None)

    def _renew(self, index: int, env_fn: Recipe | None) -> None:
        slot = self.slots[index]
        slot.close()
        slot.recipe = env_fn or slot.recipe

    def _close(self) -> None:
        self._todo.clear()
        for slot in self.slots:
            slot.close()
