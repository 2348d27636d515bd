"""Run environment calls in the server's own thread, or on a host.

A cheap environment steps in microseconds: passing it to another thread would cost more than the step. An
environment that waits for a sandbox or a network would block every other session, so it runs on a host, which
one thread uses for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from gem.errors import NoVerdict
from gem.hosts.base import NO_KWARGS, Command, Host, Outcome, Recipe, Slot, carry_out
from gem.hosts.verbs import wrap_exception

LOG = logging.getLogger("gem.serve")

LISTEN_S = 0.002
"""Seconds to wait for the host before checking for new calls."""


class Inline:
    """Runs environments in the server's own thread."""

    inline = True
    """Whether calls run at once in the server's own thread."""

    def add(self, recipe: Recipe) -> Slot:
        """Take in an environment."""
        return Slot(recipe)

    async def call(
        self, place: Slot, verb: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> Outcome:
        """Run one call immediately."""
        try:
            return carry_out(place, (0, verb, args, kwargs))
        except KeyboardInterrupt as error:  # raised by the environment: the server handles signals itself
            return Outcome(0, None, wrap_exception(error))

    def remove(self, place: Slot) -> None:
        """Close an environment."""
        place.close()


class _Place:
    """What stands for an environment on a host: its index, or why it could not be added."""

    __slots__ = ("error", "index")

    def __init__(self) -> None:
        self.index: int | None = None
        self.error: Exception | None = None


class OnHost:
    """Runs environments on a host, which is used by a separate thread, started with the first environment."""

    inline = False

    def __init__(self, host: Host) -> None:
        """Take over the host: from now on only that thread uses it; close() closes it."""
        self._host = host
        self._todo: SimpleQueue[Callable[[Host], Command | None] | None] = SimpleQueue()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Outcome]]] = {}
        self._leaving: set[int] = set()  # removed while a call was in flight that nobody waits for any more
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """What the host itself raised; then it is closed, and each call returns this."""

    def add(self, recipe: Recipe) -> _Place:
        """Take in an environment."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="gem-serve-host", daemon=True)
            self._thread.start()
        place = _Place()

        def add(host: Host) -> None:
            try:
                place.index = host.add(recipe)
            except Exception as error:  # as a recipe that cannot be pickled: the first call tells it
                place.error = error

        self._todo.put(add)
        return place

    async def call(
        self, place: _Place, verb: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> Outcome:
        """Run one call on the host."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def call(_: Host) -> Command | None:
            if self.failure or place.index is None:
                _resolve(loop, future, Outcome(-1, None, self.failure or place.error))
                return None
            self._waiting[place.index] = loop, future
            return place.index, verb, args, kwargs

        self._todo.put(call)
        return await future

    def remove(self, place: _Place) -> None:
        """Close an environment."""

        def remove(host: Host) -> None:
            if place.index in host.busy:
                self._leaving.add(place.index)
            elif place.index is not None and self.failure is None:
                host.remove(place.index)

        self._todo.put(remove)

    def close(self) -> None:
        """Close the host, and wait for its thread."""
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join()
        self._host.close()

    def _serve(self) -> None:
        """Use the host until it is closed."""
        with self._host as host:
            while True:
                wanted: list[Callable[[Host], Command | None] | None] = []
                with suppress(Empty):
                    wanted.append(self._todo.get(block=not host.busy))
                    while True:
                        wanted.append(self._todo.get_nowait())
                for act in wanted:
                    if act is None:
                        break
                    command = act(host)
                    if command is not None:
                        try:
                            host.submit_all([command])
                        except Exception as error:  # what cannot be pickled: that caller's affair alone
                            self._deliver(host, Outcome(command[0], None, error))
                if None in wanted:
                    break
                if host.busy:
                    for outcome in self._collect(host):
                        self._deliver(host, outcome)
        for index, (loop, future) in self._waiting.items():
            _resolve(loop, future, Outcome(index, None, NoVerdict("the server ended during the call.")))
        self._waiting.clear()

    def _collect(self, host: Host) -> list[Outcome]:
        """Return the finished calls; if the host itself fails, close it and return its error for all."""
        try:
            return host.ready(1, LISTEN_S)
        except Exception as error:
            LOG.error("the host of environments failed; its environments serve no more", exc_info=error)
            self.failure = error
            host.close()
            return [Outcome(index, None, error) for index in self._waiting]

    def _deliver(self, host: Host, outcome: Outcome) -> None:
        _resolve(*self._waiting.pop(outcome.index), outcome)
        if outcome.index in self._leaving:
            self._leaving.discard(outcome.index)
            host.remove(outcome.index)


Carrier: TypeAlias = Inline | OnHost
"""What holds environments and runs their calls; a handle has one call at a time."""


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    """Hand an outcome to the thread that waits for it."""

    def resolve() -> None:
        if not future.done():
            future.set_result(outcome)

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(resolve)
