"""Rounds: the driver that runs the environments' calls, then sends all asks to each agent as one batch.

On the serial host a round has the calls of all episodes, so the same jobs give the same batches. On other
hosts it takes what is ready: while the agent is quick, a few episodes are enough for a batch, so that those
whose environments wait do not wait for each other as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from gem.agents.base import batch_answers, unavailable
from gem.errors import AgentUnavailable, BadArgument
from gem.hosts import Outcome
from gem.hosts.base import Command
from gem.record import Agent
from gem.rollout.flights import Flight, Flights, stamp
from gem.rollout.schedule import Numbered, Schedule

GATHER_S = 0.0005
"""Seconds for which asks are gathered while others become ready, if the agent answers faster than that."""

AT_ONCE = 8
"""Number of episodes that begin before their calls are submitted, while the agent answers quickly."""


class Rounds:
    """The driver of `Runner.stream`."""

    def __init__(self, flights: Flights, schedule: Schedule, version: Callable[[], int | None]) -> None:
        """Drive the episodes in flight; `version` returns the policy version of the next batch."""
        self._flights, self._schedule, self._version = flights, schedule, version
        self._host = flights.host
        self._asking: list[Flight] = []
        self._commands: list[Command] = []
        self._answer_s = float("inf")  # of the last batches; unknown before
        self._until = 0.0  # when the asks have been gathered for long enough

    def run(self) -> Iterator[Numbered]:
        """Play until no trial is left, and yield the results.

        Raises:
            AgentUnavailable: when an agent can answer no request, after all results.
        """
        self._asking, self._commands = [], []
        try:
            yield from self._run()
        except AgentUnavailable:  # ended episodes count in any case
            yield from self._schedule.results()
            raise

    def _run(self) -> Iterator[Numbered]:
        while True:
            yield from self._schedule.results()
            more = self._begin()
            if self._commands:
                commands, self._commands = self._commands, []
                self._host.submit_all(commands)
            if self._gather(more):
                continue
            if self._asking:
                self._ask()
            elif self._schedule.idle:
                return

    def _begin(self) -> bool:
        """Begin episodes; return whether there may be more that can begin now.

        Where the agent is quick, a few begin at a time: their calls run while the others begin.
        """
        most = AT_ONCE if self._flights.waits and self._answer_s < GATHER_S else None
        begun = 0
        while (flight := self._flights.begin()) is not None:
            self._resume(flight, flight.playing.send, None)
            begun += 1
            if begun == most:
                return True
        return False

    def _gather(self, more: bool) -> bool:
        """Process outcomes of the host; return whether others may be ready before the agents are asked.

        It waits for them only if there is nothing else to do.
        """
        host, asking = self._host, bool(self._asking)
        if not self._flights.waits:
            return bool(host.busy) and self._take(host.ready(len(host.busy)))
        if asking and perf_counter() >= self._until:
            return False
        timeout = 0.0 if asking else GATHER_S if more else None
        took = bool(host.busy) and self._take(host.ready(1, timeout))
        return took or more

    def _take(self, outcomes: Sequence[Outcome]) -> bool:
        for outcome in outcomes:
            flight, resume = self._flights.take(outcome)
            if resume is None:
                self._commands.append(flight.command)
            else:
                self._resume(flight, *resume)
        return bool(outcomes)

    def _resume(self, flight: Flight, how: Callable[[Any], Any], value: Any) -> None:
        """Continue an episode until it needs a call or an answer."""
        try:
            wanted = how(value)
        except StopIteration as end:
            self._flights.end(flight, end.value)
            return
        if type(wanted) is tuple:
            flight.asks = wanted
            if not self._asking:
                self._until = perf_counter() + max(GATHER_S, self._answer_s)
            self._asking.append(flight)
        else:
            flight.call, flight.asks = wanted, ()
            self._commands.append(flight.command)

    def _ask(self) -> None:
        """Ask for the actions of all waiting episodes, with one batch to each agent.

        Raises:
            AgentUnavailable: when an agent raises it.
        """
        flights, self._asking = self._asking, []
        version, began = self._version(), perf_counter()
        answers = _answers(flights)
        self._answer_s = perf_counter() - began
        place = 0
        for flight in flights:
            own = answers[place : place + len(flight.asks)]
            place += len(own)
            error = next((answer for answer in own if isinstance(answer, BaseException)), None)
            if error is None:
                self._resume(flight, flight.playing.send, stamp(own, version))
            else:
                self._resume(flight, flight.playing.throw, error)


def _answers(flights: Sequence[Flight]) -> list[Any]:
    """Return a reply or an error for each ask of the episodes, in order.

    Raises:
        AgentUnavailable: when an agent raises it.
    """
    asks = [ask for flight in flights for ask in flight.asks]
    answers: list[Any] = [None] * len(asks)
    batches: dict[int, tuple[Agent, list[int]]] = {}
    place = 0
    for flight in flights:
        for ask in flight.asks:
            try:
                holder = flight.holder(ask)
                batches.setdefault(id(holder), (holder, []))[1].append(place)
            except BadArgument as error:  # no agent has the seat
                answers[place] = error
            place += 1
    for holder, places in batches.values():
        replies = batch_answers(holder, [asks[i] for i in places])
        if (gone := unavailable(replies)) is not None:
            raise gone
        for i, reply in zip(places, replies, strict=True):
            answers[i] = reply
    return answers
