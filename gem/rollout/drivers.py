"""Drivers: they carry out what `play` asks for, many episodes at a time, and give identical episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

from gem.agents.base import batch_answers
from gem.errors import BadArgument, WorkerDied
from gem.history import HistoryPolicy
from gem.record import Agent, Ask, Call, Episode, Limits
from gem.rollout.play import NO_LIMITS, OutOfTime, Playing, play
from gem.rollout.stage import Place, Places, Recipe

HostKind = Literal["serial", "thread", "process"]


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: which environment, from which seed.

    `env`: an id, a Maker, or any callable that makes an environment. `group` names the task that several
    samples share; `sample` numbers them.
    """

    env: Recipe
    seed: int
    group: str = ""
    sample: int = 0


def rollout(
    jobs: Iterable[Job],
    agent: Agent,
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: HostKind = "serial",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job and return the episodes in the order of the jobs.

    Up to `concurrency` episodes are in flight. Each round carries out what environments have to do and then
    asks the agent once, with every ask of the moment. Environments are reused from episode to episode; one
    whose call failed is thrown away.

    Args:
        jobs: what to play.
        agent: who acts; it is told to forget each episode once.
        limits: limits from outside; see Limits.
        history: which past turns the agent sees; see `play`.
        concurrency: episodes in flight, and so the largest batch.
        host: where environments live.
        on_episode: called with each episode as it ends.

    Raises:
        GemError: when an environment cannot be made for a reason that is the caller's: an unknown id or
            keyword, a missing package. Whatever else breaks, breaks one episode and stands in its record.
    """
    with _Batched(list(jobs), agent, limits, history, concurrency, on_episode) as driver:
        return driver.run()


async def rollout_async(
    jobs: Iterable[Job],
    agent: Agent,
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: HostKind = "serial",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job, each episode at its own pace; otherwise as `rollout`.

    The agent is awaited for each ask by itself, and no longer than `limits.policy_s` allows.
    """
    driver = _Async(list(jobs), agent, limits, history, concurrency, on_episode)
    return await driver.run()


class _Flight:
    """An episode in flight."""

    __slots__ = ("asks", "id", "index", "place", "playing")

    def __init__(self, index: int, id: str, place: Place, playing: Playing) -> None:
        self.index, self.id, self.place, self.playing = index, id, place, playing
        self.asks: tuple[Ask, ...] = ()


class _Driver:
    """What both drivers share: the beginning, the calls and the end of an episode."""

    policy_clock: Callable[[], float] = staticmethod(perf_counter)

    def __init__(
        self,
        jobs: Sequence[Job],
        agent: Agent,
        limits: Limits,
        history: HistoryPolicy | None,
        concurrency: int,
        on_episode: Callable[[Episode], None] | None,
    ) -> None:
        if concurrency < 1:
            raise BadArgument(f"concurrency is {concurrency}; accepted: 1 or more episodes in flight.")
        self.jobs, self.agent, self.limits, self.history = jobs, agent, limits, history
        self.on_episode = on_episode
        self.actor: str | None = getattr(agent, "verb", None)
        self.places = Places(min(concurrency, len(jobs)))
        self.flights: dict[int, _Flight] = {}
        self.episodes: dict[int, Episode] = {}
        self.begun = 0

    def begin(self) -> _Flight:
        """Begin the next job's episode."""
        index, self.begun = self.begun, self.begun + 1
        job = self.jobs[index]
        place = self.places.take(job.env)
        id = f"{index}-{job.seed:x}-{job.sample}"
        playing = play(
            place,
            job.seed,
            self.limits,
            history=self.history,
            episode=id,
            group=job.group,
            sample=job.sample,
            actor=self.actor,
            policy_clock=self.policy_clock,
        )
        flight = self.flights[index] = _Flight(index, id, place, playing)
        return flight

    def call(self, place: Place, call: Call) -> Any:
        """Carry out a call here and now."""
        limit = self.limits.call_s
        verb, args = place.request(call)
        began = perf_counter()
        result = getattr(place.stage, verb)(*args)
        if limit is not None and (took := perf_counter() - began) > limit:
            place.stage.close()
            raise WorkerDied(f"{call.verb} took {took:.3g} s; call_s allows {limit:g} s.")
        return result

    def end(self, flight: _Flight, episode: Episode) -> None:
        """Take note of a finished episode."""
        del self.flights[flight.index]
        self.episodes[flight.index] = episode
        self.places.give_back(flight.place)
        self.agent.forget(flight.id)
        if self.on_episode is not None:
            self.on_episode(episode)

    def result(self) -> list[Episode]:
        """Return the episodes in the order of the jobs."""
        return [self.episodes[index] for index in range(len(self.jobs))]

    def close(self) -> None:
        """Close every environment and forget what was cut off; all of it, even where some of it fails."""
        with ExitStack() as last:
            for place in self.places.all:
                last.callback(place.stage.close)
            for flight in self.flights.values():
                last.callback(self.agent.forget, flight.id)
                last.callback(flight.playing.close)


class _Batched(_Driver):
    """Rounds: what environments have to do, then one question to the agent."""

    def __enter__(self) -> _Batched:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self) -> list[Episode]:
        self.asked_s = 0.0
        self.policy_clock = lambda: self.asked_s
        self.asking: list[_Flight] = []
        while self.asking or self.begun < len(self.jobs):
            while self.begun < len(self.jobs) and len(self.flights) < self.places.size:
                flight = self.begin()
                self.go_on(flight, flight.playing.send, None)
            if self.asking:
                self.ask()
        return self.result()

    def go_on(self, flight: _Flight, resume: Callable[[Any], Any], value: Any) -> None:
        """Resume an episode and carry out its calls, until it asks the agent or ends."""
        place = flight.place
        try:
            while True:
                wanted = resume(value)
                if type(wanted) is tuple:
                    flight.asks = wanted
                    self.asking.append(flight)
                    return
                try:
                    value, resume = self.call(place, wanted), flight.playing.send
                except Exception as error:
                    place.empty()
                    value, resume = error, flight.playing.throw
                else:
                    value = place.receive(wanted, value)
        except StopIteration as end:
            self.end(flight, end.value)

    def ask(self) -> None:
        """Ask the agent for the actions of every episode that waits for one."""
        flights, self.asking = self.asking, []
        began = perf_counter()
        answers = batch_answers(self.agent, [ask for flight in flights for ask in flight.asks])
        self.asked_s += perf_counter() - began
        at = 0
        for flight in flights:
            mine = answers[at : at + len(flight.asks)]
            at += len(mine)
            broken = next((answer for answer in mine if isinstance(answer, BaseException)), None)
            if broken is None:
                self.go_on(flight, flight.playing.send, tuple(mine))
            else:
                self.go_on(flight, flight.playing.throw, broken)


class _Async(_Driver):
    """One coroutine per place, each playing one episode after another."""

    async def run(self) -> list[Episode]:
        tasks = [asyncio.create_task(self.play_on()) for _ in range(self.places.size)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.close()
        return self.result()

    async def play_on(self) -> None:
        """Play jobs until none is left to begin."""
        while self.begun < len(self.jobs):
            flight = self.begin()
            self.end(flight, await self.play(flight))

    async def play(self, flight: _Flight) -> Episode:
        """Play one episode to its end."""
        playing, place, left_s = flight.playing, flight.place, self.limits.policy_s
        resume: Callable[[Any], Any] = playing.send
        value: Any = None
        while True:
            try:
                wanted = resume(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            resume = playing.send
            if type(wanted) is tuple:
                began = perf_counter()
                try:
                    value = await self.answers(wanted, left_s)
                except Exception as error:
                    value, resume = error, playing.throw
                except asyncio.CancelledError as error:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    value, resume = error, playing.throw  # the agent gave up by itself
                if left_s is not None:
                    left_s -= perf_counter() - began
            else:
                try:
                    value = self.call(place, wanted)
                except Exception as error:
                    place.empty()
                    value, resume = error, playing.throw
                else:
                    value = place.receive(wanted, value)

    async def answers(self, asks: tuple[Ask, ...], left_s: float | None) -> tuple[Any, ...]:
        """Return the agent's replies, or raise OutOfTime when they are not there in time."""
        try:
            async with asyncio.timeout(left_s) as deadline:
                if len(asks) == 1:
                    return (await self.agent.ask(asks[0]),)
                return tuple(await asyncio.gather(*(self.agent.ask(ask) for ask in asks)))
        except TimeoutError:
            if deadline.expired():
                raise OutOfTime from None
            raise
