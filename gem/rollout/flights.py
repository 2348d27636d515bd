"""Flights: the episodes in flight on a host. Drivers wait for their calls and asks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakSet

from gem.agents.seats import SeatAgents
from gem.errors import BadArgument, GemError, NoVerdict
from gem.hosts import Host, Outcome
from gem.hosts.base import NO_KWARGS, Command
from gem.hosts.serial import Serial
from gem.record import Agent, Ask, Call, Episode, Reply, RunInfo
from gem.rollout.episode import Playing, play
from gem.rollout.jobs import Trial
from gem.rollout.options import RunOptions
from gem.rollout.places import Place, Places, expected_task
from gem.rollout.schedule import Schedule
from gem.trust import name_values
from gem.waiting import add_source, report_news

ALONE = os.cpu_count() or 1
"""Limit on episodes that run in separate workers at the same time."""

MANY_TURNS = 100
"""Turns from which on an episode may never end."""

Resume: TypeAlias = "tuple[Callable[[Any], Any], Any]"
"""How an episode continues: `send` or `throw` of its generator, and the value."""


class Flight:
    """An episode in flight; it waits for its `call` or its `asks`."""

    __slots__ = ("asks", "call", "place", "playing", "record", "trial")

    def __init__(self, trial: Trial, record: Episode, place: Place, playing: Playing) -> None:
        """Start at the reset of the environment."""
        self.trial, self.record, self.place, self.playing = trial, record, place, playing
        self.asks: tuple[Ask, ...] = ()
        self.call = Call(place, "reset")

    def holder(self, ask: Ask) -> Agent:
        """Return the agent that answers an ask.

        Raises:
            BadArgument: for a seat without an agent.
        """
        agent = self.trial.agent
        return agent.holder(ask) if isinstance(agent, SeatAgents) else agent

    @property
    def command(self) -> Command:
        """The next command to the host, for the call that the episode waits for."""
        if not self.place.described:
            return self.place.index, "describe", (), NO_KWARGS
        return self.place.index, self.call.verb, self.call.args, self.call.kwargs


class Flights:
    """The episodes in flight on a host, which keeps their environments for later ones of the same task."""

    def __init__(
        self, host: Host, schedule: Schedule, options: RunOptions, run_of: Callable[[Trial], RunInfo]
    ) -> None:
        """Start without episodes; `run_of` returns the run of a trial, for its record."""
        self.host = host
        self.waits = not isinstance(host, Serial)
        """Whether calls run elsewhere while the driver goes on."""
        self._schedule, self._store, self._run_of = schedule, options.store, run_of
        self._places = Places(host, options.concurrency)
        self._by_index: dict[int, Flight] = {}
        self._cut_off: list[Place] = []  # of dropped episodes whose call may still run
        _OPEN.add(self)

    def reclaim(self) -> None:
        """Take the places of dropped episodes back, after their running calls.

        Raises:
            BadArgument: when another runner uses the host.
        """
        self._places.abandon(self._cut_off)
        if self.host.busy:
            raise BadArgument("other calls are in flight on the host; only one stream at a time may use it.")

    def begin(self) -> Flight | None:
        """Begin the next episode of the schedule; None if none may start now."""
        trial = self._schedule.next(alone=self._places.alone < ALONE)
        if trial is None:
            return None
        job, agent, run = trial.job, trial.agent, self._run_of(trial)
        place = self._places.take(job.env, trial.alone)
        record = Episode(
            place.task_with(job.seed),
            run,
            trial.key,
            job.sample,
            trial.attempt,
            salt=job.salt,
            group=job.group,
        )
        actor = agent.verbs if isinstance(agent, SeatAgents) else getattr(agent, "verb", None)
        if (play_whole := getattr(agent, "play_whole", None)) is not None:  # an agent program
            if job.start is not None:
                raise BadArgument("a program plays whole episodes; it does not go on from turns of another.")
            playing = play_whole(place, job.seed, record)
        else:
            start = job.start
            if start is not None and not self.host.takes_states:
                start = replace(start, state=None)  # the recorded actions are played again there
            playing = play(
                place,
                job.seed,
                run.limits,
                history=run.history,
                record=record,
                actor=actor or None,
                start=start,
            )
        flight = self._by_index[place.index] = Flight(trial, record, place, playing)
        return flight

    def take(self, outcome: Outcome) -> tuple[Flight, Resume | None]:
        """Return the episode of an outcome, and how it continues.

        It continues with None when its environment has been made, and its command is next.

        Raises:
            GemError: when the environment cannot be made because of the caller.
        """
        flight = self._by_index[outcome.index]
        place, error = flight.place, outcome.error
        if error is None:
            if place.described:
                return flight, (flight.playing.send, outcome.value)
            if flight.trial.run is None:  # else the driver's user made the task, on another machine
                name_values(expected_task(place.maker))
            place.occupy(outcome.value)
            flight.record.task = place.task_with(flight.trial.job.seed)
            return flight, None
        if not place.described and isinstance(error, GemError) and not isinstance(error, NoVerdict):
            raise error
        place.vacate()
        self.host.renew(place.index)
        return flight, (flight.playing.throw, error)

    def end(self, flight: Flight, episode: Episode) -> None:
        """Store an ended episode, and report it to the schedule.

        Raises:
            EnvClosed: after close(), which cancelled the episode.
        """
        self._schedule.check_open()
        report_news()
        del self._by_index[flight.place.index]
        self._places.give_back(flight.place)
        try:
            if self._store is not None:
                self._store.append(episode)
        finally:
            flight.trial.agent.forget(episode.id)
        self._schedule.end(flight.trial, episode)

    def drop(self) -> None:
        """End all episodes in flight, even if ending some of them fails."""
        flights, self._by_index = list(self._by_index.values()), {}
        with ExitStack() as last:
            for flight in flights:
                last.callback(flight.trial.agent.forget, flight.record.id)
                last.callback(flight.playing.close)
                self._cut_off.append(flight.place)

    def clear(self) -> None:
        """Remove all environments from the host."""
        self._places.abandon(self._cut_off)
        self._places.clear()


_OPEN: WeakSet[Flights] = WeakSet()


def describe_flights() -> str:
    """Return what the episodes in flight in this process wait for, with counts; empty if there are none.

    It may be called from any thread.
    """
    waits: Counter[str] = Counter()
    most_turns = 0
    with suppress(RuntimeError, BadArgument):  # an episode began or ended meanwhile; a seat has no agent
        for flights in list(_OPEN):
            for flight in list(flights._by_index.values()):
                if flight.record.run.limits.turns is None:
                    most_turns = max(most_turns, len(flight.record.turns))
                for ask in flight.asks:
                    waits[f"answers of {_name_agent(flight.holder(ask))}"] += 1
                if not flight.asks:
                    alone = "" if flights.waits else ", which has no limit of time on the host serial"
                    waits[f"calls of {flight.record.spec}: {flight.call.verb}{alone}"] += 1
    text = ", ".join(f"{what} ({count})" for what, count in waits.most_common(4))
    if text and most_turns >= MANY_TURNS:
        text += (
            f"; an episode has had {most_turns:,} turns so far, and no limit of them is set (as by --turns)"
        )
    return text


add_source(describe_flights)


def _name_agent(agent: Agent) -> str:
    info = getattr(agent, "info", None)
    return f"{info.agent} {info.model or ''}".strip() if info else type(agent).__name__


def stamp(replies: list[Any], version: int | None) -> tuple[Any, ...]:
    """Return the replies with `version` as policy version where they have none."""
    if version is None:
        return tuple(replies)
    return tuple(
        replace(reply, policy_version=version)
        if isinstance(reply, Reply) and reply.policy_version is None
        else reply
        for reply in replies
    )
