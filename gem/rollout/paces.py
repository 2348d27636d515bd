"""Paces: the asynchronous driver. Each episode goes on at its own pace, in one task of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from threading import Lock
from time import perf_counter
from typing import Any

from gem.agents.base import ask_in_time, hold_up, unavailable
from gem.errors import AgentUnavailable, NoVerdict
from gem.hosts import Outcome
from gem.hosts.base import Command
from gem.record import Ask, Reply
from gem.rollout.flights import Flight, Flights, Resume, stamp
from gem.rollout.schedule import Numbered, Schedule

SERVE_S = 0.005
"""Seconds that a new call may wait while a thread waits for the host's results."""


class Paces:
    """The driver of `Runner.stream_async`, for one stream."""

    def __init__(self, flights: Flights, schedule: Schedule, version: Callable[[], int | None]) -> None:
        """Drive the episodes in flight; `version` returns the policy version of the next ask."""
        self._flights, self._schedule, self._version = flights, schedule, version
        self._host = flights.host
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._commands: list[Command] = []
        self._has_work = asyncio.Event()  # there are calls for the host, or all is over
        self._changed = asyncio.Event()  # an episode has ended, a trial may start, or something broke
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._listening = Lock()  # a cancelled task leaves its thread behind, in the host
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self) -> None:
        """Look for trials that may start now; may be called from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: all is over
                self._loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> AsyncGenerator[Numbered, None]:
        """Play until no trial is left, and yield the results.

        Raises:
            AgentUnavailable: when an agent can answer no request, after all results.
        """
        schedule = self._schedule
        self._loop = asyncio.get_running_loop()
        if self._flights.waits:
            self._start(self._serve())
        while True:
            self._begin()
            if self._error is not None:
                if isinstance(self._error, AgentUnavailable):  # what has ended counts all the same
                    await self.stop()
                    for numbered in schedule.results():
                        yield numbered
                raise self._error
            if schedule.has_results:
                for numbered in schedule.results():
                    yield numbered
            elif not schedule.idle:
                self._changed.clear()
                await self._changed.wait()
            else:
                return

    async def stop(self) -> None:
        """End every task; the host can be used again afterwards."""
        self._over = True
        self._has_work.set()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            with self._listening:
                pass

    def _begin(self) -> None:
        """Start every episode that may start."""
        try:
            while self._error is None and (flight := self._flights.begin()) is not None:
                self._start(self._play(flight))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        if task.cancelled():
            if not self._over:
                self._fail(NoVerdict("an agent cancelled the task that its episode runs in."))
            return
        error = task.exception()
        if error is not None:
            self._fail(error)
        elif not self._over:
            self._begin()

    # -- one episode

    async def _play(self, flight: Flight) -> None:
        """Play one episode to its end."""
        how: Callable[[Any], Any] = flight.playing.send
        value: Any = None
        while True:
            try:
                wanted = how(value)
            except StopIteration as end:
                self._flights.end(flight, end.value)
                return
            if type(wanted) is tuple:
                flight.asks = wanted
                how, value = await self._answer(flight, wanted)
            else:
                flight.call, flight.asks = wanted, ()
                resume = None
                while resume is None:
                    _, resume = self._flights.take(await self._call(flight.command))
                how, value = resume

    async def _answer(self, flight: Flight, asks: tuple[Ask, ...]) -> Resume:
        """Ask for the actions."""
        throw = flight.playing.throw
        version = self._version()

        async def ask_one(ask: Ask) -> Reply:
            try:
                return await ask_in_time(flight.holder(ask), ask)
            except AgentUnavailable as error:
                self._fail(error)
                raise

        try:
            if len(asks) == 1:
                replies: list[Any] = [await ask_one(asks[0])]
            else:  # all are waited for: none goes on when the episode is over
                replies = await asyncio.gather(*map(ask_one, asks), return_exceptions=True)
            gone = unavailable(replies)
            if gone is not None:
                raise gone
            error = next((reply for reply in replies if isinstance(reply, BaseException)), None)
            if error is not None:
                return throw, error
            return flight.playing.send, stamp(replies, version)
        except AgentUnavailable:
            raise  # the run ends, and this episode with it
        except Exception as error:
            return throw, error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return throw, error  # the agent cancelled itself

    # -- the host

    async def _call(self, command: Command) -> Outcome:
        """Run a call: in this thread on the serial host, else where the environment runs."""
        if not self._flights.waits:
            began = perf_counter()
            self._host.submit_all([command])
            (outcome,) = self._host.ready()
            hold_up(perf_counter() - began)
            return outcome
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[command[0]] = future
        self._commands.append(command)
        self._has_work.set()
        return await future

    async def _serve(self) -> None:
        """Use the host for all episodes, in one task, because only one thread at a time may use it."""
        while not self._over:
            if self._commands:
                commands, self._commands = self._commands, []
                self._host.submit_all(commands)
            if not self._host.busy:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            for outcome in await asyncio.to_thread(self._listen):
                future = self._waiting.pop(outcome.index)
                if not future.done():
                    future.set_result(outcome)

    def _listen(self) -> list[Outcome]:
        """Wait a short time for results of the host."""
        with self._listening:
            return [] if self._over else self._host.ready(1, SERVE_S)
