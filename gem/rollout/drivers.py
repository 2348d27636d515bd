"""Drivers: they carry out what `play` asks for, many episodes at a time, and give identical episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias

from gem import registry, seeding
from gem.agents.base import batch_answers
from gem.agents.seats import SeatAgents
from gem.errors import BadArgument, GemError, NoVerdict
from gem.history import HistoryPolicy
from gem.hosts.base import NO_KWARGS, Command, Kind, Outcome, make_host
from gem.record import Agent, Ask, Call, Episode, Limits
from gem.rollout.places import Place, Places, Recipe, maker
from gem.rollout.play import NO_LIMITS, OutOfTime, Playing, play

SERVE_S = 0.005
"""How long a new call of the async driver may wait while the host is listened to."""


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

    def __post_init__(self) -> None:
        """Refuse what no episode can be begun with."""
        object.__setattr__(self, "seed", seeding.check(self.seed))
        if not isinstance(self.env, str) and not callable(self.env):
            raise BadArgument(
                f"env is {self.env!r:.80}; accepted: an id, a Maker, or a callable that makes an environment "
                "(an environment itself cannot be played twice at a time)."
            )


def rollout(
    jobs: Iterable[Job],
    agent: Agent | Mapping[str, Agent],
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: Kind = "serial",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job and return the episodes in the order of the jobs.

    Up to `concurrency` episodes are in flight. Each round carries out what environments have to do and then
    asks the agent once, with every ask of the moment. Environments are reused from episode to episode; one
    whose call failed is thrown away.

    Args:
        jobs: what to play.
        agent: who acts, in every seat; or a mapping from seats to agents, of which one may hold several. Each
            is told to forget each episode once.
        limits: limits from outside; see Limits.
        history: which past turns the agent sees; see `play`.
        concurrency: episodes in flight, and so the largest batch.
        host: where environments live: ``serial``, in this thread; ``thread``, for those that wait (tools,
            networks); ``process``, for those that compute.
        on_episode: called with each episode as it ends.

    Raises:
        GemError: when an environment cannot be made for a reason that is the caller's: an unknown id or
            keyword, a missing package. Whatever else breaks, breaks one episode and stands in its record.
    """
    jobs = list(jobs)
    if not jobs:
        return []
    driver = _Batched(jobs, agent, limits, history, concurrency, host, on_episode)
    try:
        return driver.run()
    finally:
        driver.close()


async def rollout_async(
    jobs: Iterable[Job],
    agent: Agent | Mapping[str, Agent],
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: Kind = "serial",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job, each episode at its own pace; otherwise as `rollout`.

    The agent is awaited for each ask by itself, and no longer than `limits.policy_s` allows. On the serial
    host calls run in the event loop, which costs least where they take microseconds; an environment that
    waits belongs on another host, or everybody waits with it.
    """
    jobs = list(jobs)
    if not jobs:
        return []
    driver = _Async(jobs, agent, limits, history, concurrency, host, on_episode)
    return await driver.run()


class _Flight:
    """An episode in flight: what it waits for is its `call` or its `asks`."""

    __slots__ = ("asks", "call", "id", "index", "place", "playing")

    def __init__(self, index: int, id: str, place: Place, playing: Playing) -> None:
        self.index, self.id, self.place, self.playing = index, id, place, playing
        self.asks: tuple[Ask, ...] = ()
        self.call = Call(place, "reset")


Resume: TypeAlias = "tuple[Callable[[Any], Any], Any]"
"""How an episode goes on: `send` or `throw`, and what."""


class _Driver:
    """What both drivers share: how an episode begins, has its calls carried out, and ends."""

    def __init__(
        self,
        jobs: Sequence[Job],
        agent: Agent | Mapping[str, Agent],
        limits: Limits,
        history: HistoryPolicy | None,
        concurrency: int,
        host: str,
        on_episode: Callable[[Episode], None] | None,
    ) -> None:
        if concurrency < 1:
            raise BadArgument(f"concurrency is {concurrency}; accepted: 1 or more episodes in flight.")
        seated = SeatAgents(agent) if isinstance(agent, Mapping) else agent
        named = (job.env.env_id if isinstance(job.env, registry.Maker) else job.env for job in jobs)
        for env_id in dict.fromkeys(name for name in named if isinstance(name, str)):
            spec = registry.spec(env_id)  # an unknown id is told before anything is played
            if isinstance(seated, SeatAgents):
                seated.check(spec.seats)
        self.jobs, self.agent, self.limits, self.history = jobs, seated, limits, history
        self.on_episode = on_episode
        self.actor: str | Mapping[str, str] | None = (
            seated.verbs if isinstance(seated, SeatAgents) else getattr(seated, "verb", None)
        )
        self.size = min(concurrency, len(jobs))
        recipes = [job.env for job in jobs[: self.size]]
        self.places = Places(recipes)
        self.host = make_host(host, [maker(recipe) for recipe in recipes], call_s=limits.call_s)
        self.serial = host == "serial"
        self.flights: dict[int, _Flight] = {}  # by the index of their place
        self.episodes: dict[int, Episode] = {}
        self.begun = 0

    def policy_clock(self) -> float:
        """Return seconds of a clock that runs while the agent is at work."""
        return perf_counter()

    def begin(self) -> _Flight:
        """Begin the next job's episode."""
        index, self.begun = self.begun, self.begun + 1
        job = self.jobs[index]
        place, other = self.places.take(job.env)
        if other:
            self.host.renew(place.index, place.maker)
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
        flight = self.flights[place.index] = _Flight(index, id, place, playing)
        return flight

    def command(self, flight: _Flight) -> Command:
        """Return what the host has to do next for the call that an episode waits for."""
        if not flight.place.described:
            return flight.place.index, "describe", (), NO_KWARGS
        return flight.place.index, flight.call.verb, flight.call.args, flight.call.kwargs

    def carried_out(self, flight: _Flight, outcome: Outcome) -> Resume | None:
        """Return how an episode goes on; None when its environment has been made, and the call is next.

        Raises:
            GemError: when the environment cannot be made through the caller's fault.
        """
        place, error = flight.place, outcome.error
        if error is None:
            if place.described:
                return flight.playing.send, outcome.value
            place.occupy(outcome.value)
            return None
        if not place.described and isinstance(error, GemError) and not isinstance(error, NoVerdict):
            raise error
        place.vacate()
        self.host.renew(place.index)
        return flight.playing.throw, error

    def end(self, flight: _Flight, episode: Episode) -> None:
        """Take note of a finished episode."""
        del self.flights[flight.place.index]
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
            last.callback(self.host.close)
            for flight in self.flights.values():
                last.callback(self.agent.forget, flight.id)
                last.callback(flight.playing.close)


class _Batched(_Driver):
    """Rounds: what environments have to do, then one question to the agent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked_s = 0.0
        self.asking: list[_Flight] = []
        self.commands: list[Command] = []

    def policy_clock(self) -> float:
        return self.asked_s

    def run(self) -> list[Episode]:
        while True:
            while self.begun < len(self.jobs) and len(self.flights) < self.size:
                flight = self.begin()
                self.resume(flight, flight.playing.send, None)
            if self.commands:
                commands, self.commands = self.commands, []
                self.host.submit_all(commands)
            if self.host.busy and self.take_in():
                continue
            if not self.asking:
                return self.result()
            self.ask()

    def take_in(self) -> bool:
        """Take in what the host has done; wait for it only when there is nothing to ask meanwhile."""
        wanted, timeout = (len(self.host.busy), None) if self.serial else (1, 0.0 if self.asking else None)
        outcomes = self.host.ready(wanted, timeout)
        for outcome in outcomes:
            flight = self.flights[outcome.index]
            resume = self.carried_out(flight, outcome)
            if resume is None:
                self.commands.append(self.command(flight))
            else:
                self.resume(flight, *resume)
        return bool(outcomes)

    def resume(self, flight: _Flight, how: Callable[[Any], Any], value: Any) -> None:
        """Let an episode go on until it wants something."""
        try:
            wanted = how(value)
        except StopIteration as end:
            self.end(flight, end.value)
            return
        if type(wanted) is tuple:
            flight.asks = wanted
            self.asking.append(flight)
        else:
            flight.call = wanted
            self.commands.append(self.command(flight))

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
                self.resume(flight, flight.playing.send, tuple(mine))
            else:
                self.resume(flight, flight.playing.throw, broken)


class _Async(_Driver):
    """One coroutine per place, each playing one episode after another."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: dict[int, asyncio.Future[Outcome]] = {}
        self.commands: list[Command] = []
        self.wanted = asyncio.Event()
        self.over = False
        self.listening = Lock()  # a cancelled task leaves its thread behind, in the host that is to be closed

    async def run(self) -> list[Episode]:
        tasks = [asyncio.create_task(self.play_on()) for _ in range(self.size)]
        serving = None if self.serial else asyncio.create_task(self.serve())
        try:
            await asyncio.gather(*tasks, *filter(None, (serving,)))
        finally:
            self.over = True
            self.wanted.set()
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, *filter(None, (serving,)), return_exceptions=True)
            finally:
                with self.listening:
                    self.close()
        return self.result()

    async def play_on(self) -> None:
        """Play jobs until none is left to begin."""
        while self.begun < len(self.jobs):
            flight = self.begin()
            self.end(flight, await self.play(flight))
        if not self.flights:
            self.over = True
            self.wanted.set()

    async def play(self, flight: _Flight) -> Episode:
        """Play one episode to its end."""
        left_s = self.limits.policy_s
        how: Callable[[Any], Any] = flight.playing.send
        value: Any = None
        while True:
            try:
                wanted = how(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if type(wanted) is tuple:
                began = perf_counter()
                how, value = await self.answered(flight, wanted, left_s)
                if left_s is not None:
                    left_s -= perf_counter() - began
            else:
                flight.call = wanted
                resume = None
                while resume is None:
                    resume = self.carried_out(flight, await self.outcome(self.command(flight)))
                how, value = resume

    async def answered(self, flight: _Flight, asks: tuple[Ask, ...], left_s: float | None) -> Resume:
        """Ask the agent, for as long as the episode's policy may still take."""
        throw = flight.playing.throw
        try:
            async with asyncio.timeout(left_s) as deadline:
                if len(asks) == 1:
                    return flight.playing.send, (await self.agent.ask(asks[0]),)
                return flight.playing.send, tuple(await asyncio.gather(*map(self.agent.ask, asks)))
        except TimeoutError as error:
            return throw, OutOfTime() if deadline.expired() else error
        except Exception as error:
            return throw, error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return throw, error  # the agent gave up by itself

    async def outcome(self, command: Command) -> Outcome:
        """Have a call carried out: in this thread by the serial host, else wherever the environment lives."""
        if self.serial:
            self.host.submit_all([command])
            return self.host.ready()[0]
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.waiting[command[0]] = future
        self.commands.append(command)
        self.wanted.set()
        return await future

    async def serve(self) -> None:
        """Use the host, for all episodes: one task, because one thread at a time may."""
        while not self.over:
            if self.commands:
                commands, self.commands = self.commands, []
                self.host.submit_all(commands)
            if not self.host.busy:
                self.wanted.clear()
                await self.wanted.wait()
                continue
            for outcome in await asyncio.to_thread(self.listen):
                future = self.waiting.pop(outcome.index)
                if not future.done():
                    future.set_result(outcome)

    def listen(self) -> list[Outcome]:
        """Hear for a while what the host has done."""
        with self.listening:
            return [] if self.over else self.host.ready(1, SERVE_S)
