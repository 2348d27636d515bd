"""The serial host: every call runs in the caller's thread, when the caller waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from gem.core import Env
from gem.errors import NoVerdict
from gem.hosts.base import (
    NO_KWARGS,
    Command,
    Host,
    Mapped,
    Outcome,
    Recipe,
    Slot,
    carry_out,
    overdue,
)
from gem.hosts.foreign import ForeignCode
from gem.hosts.verbs import VERBS, wrap_exception
from gem.waiting import name_wait

CLOSES = "close() of an environment, which has no limit of time on the host serial"


class Serial(Host):
    """A host in the caller's thread: the least overhead, and no parallel calls."""

    forks = True

    def __init__(self, call_s: float | None = None) -> None:
        """Start without environments."""
        super().__init__(call_s)
        self._slots: dict[int, Slot] = {}
        self._todo: deque[Command] = deque()
        self._done: list[Outcome] = []

    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        self._slots[index] = Slot(recipe)

    def _remove(self, index: int) -> None:
        with name_wait(CLOSES):
            self._slots.pop(index).close()

    def _renew(self, index: int, recipe: Recipe | None) -> None:
        slot = self._slots[index]
        with name_wait(CLOSES):
            slot.close()
        slot.recipe = recipe or slot.recipe

    def env(self, index: int) -> Env:
        """Return the environment at `index`; see Host.env."""
        self._check_open()
        self._check_known(index)
        return self._slots[index].make()

    def _start(self, commands: Sequence[Command]) -> None:
        self._todo.extend(commands)

    def _collect_outcomes(self, at_least: int, timeout: float | None) -> list[Outcome]:
        todo, done, slots, call_s = self._todo, self._done, self._slots, self.call_s
        timed = timeout is not None or call_s is not None
        until = perf_counter() + timeout if timeout is not None else float("inf")
        while len(done) < at_least:
            command = todo.popleft()
            began = perf_counter() if timed else 0.0
            try:
                done.append(carry_out(slots[command[0]], command))
            except BaseException as interrupt:  # Ctrl-C inside a call loses that call, not the others
                done.append(Outcome(command[0], None, _wrap_interrupt(interrupt)))
                raise
            if timed:
                now = perf_counter()
                if call_s is not None and now - began > call_s:
                    slots[command[0]].close()
                    done[-1] = Outcome(command[0], None, overdue(command[1], call_s))
                if now > until:
                    break
        self._done = []
        return done

    def map(self, indices: Sequence[int], verb: str, *columns: Sequence[Any]) -> Mapped:
        """Call in a loop without overhead; see Host.map."""
        slots = self._slots
        try:
            envs = [slots[index].env for index in indices]
        except KeyError:  # the base class has the error message
            envs = [None]
        if self._closed or self.busy or self.call_s is not None or verb not in VERBS or not all(envs):
            return super().map(indices, verb, *columns)
        values: list[Any] = []
        errors: dict[int, Exception] = {}
        forks = ForeignCode.forks
        calls = map(VERBS[verb], envs, *columns)  # continues after a call that raised
        while True:
            try:
                with ForeignCode():
                    for value in calls:
                        values.append(value)
                        if forks != ForeignCode.forks:
                            break  # this is a fork that returned from its call: it ends here
                if len(values) == len(indices):
                    return values, errors
                errors[len(values)] = StopIteration()  # a call raised it: for the loop it is an end
            except Exception as error:
                errors[len(values)] = error
            except KeyboardInterrupt as interrupt:  # as above: the other calls stay in flight
                errors[len(values)] = _wrap_interrupt(interrupt)
                ended = enumerate(zip(indices, [*values, None], strict=False))
                self._done = [Outcome(index, value, errors.get(at)) for at, (index, value) in ended]
                rows = zip(indices, zip(*columns, strict=True), strict=True)
                commands = [(index, verb, row, NO_KWARGS) for index, row in rows]
                self._todo.extend(commands[len(self._done) :])
                self.busy.update(indices)
                raise
            except BaseException as error:
                errors[len(values)] = wrap_exception(error)
            values.append(None)

    def _close(self) -> None:
        self._todo.clear()
        with name_wait(CLOSES):
            for slot in self._slots.values():
                slot.close()


def _wrap_interrupt(interrupt: BaseException) -> NoVerdict:
    return NoVerdict(f"interrupted by {type(interrupt).__name__}.")
