"""Runner: plays jobs, many episodes at a time, with one agent, on one host, for as long as it lives.

The bookkeeping (which job is next, where it is played, how an episode begins, goes on, ends and is tried
again) is written once, without I/O or waiting. Two pumps move it: `stream`, in rounds, which asks the agent
once per round with every ask of the moment, so that the same jobs give the same batches; and `stream_async`,
where each episode goes at its own pace. Both give identical episodes.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from threading import Lock
from time import perf_counter
from typing import Any, Protocol, Self, TypeAlias

from gem import registry, seeding
from gem.agents.base import batch_answers, hold_up, timed, unavailable
from gem.agents.seats import SeatAgents
from gem.errors import AgentUnavailable, BadArgument, EnvClosed, GemError, NoVerdict
from gem.history import HistoryPolicy
from gem.hosts import Host, auto_kind, make_host
from gem.hosts.base import NO_KWARGS, Command, Outcome
from gem.hosts.serial import Serial
from gem.record import SEAT, Agent, AgentInfo, Ask, Call, Episode, Limits, Reply, RunInfo
from gem.rollout.episode import NO_LIMITS, Branch, Playing, play, versions
from gem.rollout.places import Place, Places, Recipe, expected, maker
from gem.rollout.resume import Held
from gem.rollout.store import EpisodeStore
from gem.specs import TaskRef

SERVE_S = 0.005
"""How long a new call of the asynchronous pump may wait while the host is listened to."""

Agents: TypeAlias = "Agent | Mapping[str, Agent]"
"""Who acts: one agent in every seat, or an agent for each."""


class Store(Protocol):
    """Where a runner writes episodes: `gem.rollout.EpisodeStore` is one."""

    def append(self, episode: Episode) -> None:
        """Write one episode."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: which environment, from which seed.

    `env`: an id, a TaskRef, a Maker, or any callable that makes an environment. `group` names the task that
    several samples share; `sample` numbers them. `limits`, `history` and `agents` take the place of the
    runner's own, but for `call_s`, which is the host's. `salt`: another number is other noise for the same
    seed and sample. `key`: names the job in its episode's id; by default a hash of what is to be played and
    the ordinal among equal jobs of the runner, the same after a restart. `start`: begin behind the first
    turns of another episode.
    """

    env: Recipe | TaskRef
    seed: int
    group: str = ""
    sample: int = 0
    limits: Limits | None = None
    history: HistoryPolicy | None = None
    agents: Agents | None = None
    salt: int = 0
    key: str = ""
    start: Branch | None = None

    def __post_init__(self) -> None:
        """Refuse what no episode can be begun with."""
        object.__setattr__(self, "seed", seeding.check(self.seed))
        if not isinstance(self.env, str | TaskRef) and not callable(self.env):
            raise BadArgument(
                f"env is {self.env!r:.80}; accepted: an id, a TaskRef, a Maker, or a callable that makes an "
                "environment (an environment itself cannot be played twice at a time)."
            )


class Runner:
    """Plays jobs with one agent.

    Environments live on its host and are reused from episode to episode of the same task; one whose call
    failed is thrown away. Up to `concurrency` episodes are in flight. One stream is open at a time.

    An episode that infrastructure broke (its worker died or hung, or the environment said NoVerdict) is
    played again from its seed, with the same noise, up to `retries` times; after the death of a worker each
    of the episodes that shared it is played in a worker of its own, so that the innocent ones come to their
    end. Whatever else breaks, an agent above all, is not tried again: then a policy could choose to.

    When an agent says AgentUnavailable, every episode that has ended is stored and handed on, those in flight
    are dropped, and the stream raises that error: what was not played stays unplayed, and no job is lost. A
    runner with `resume`, on the same store, goes on from there.
    """

    def __init__(
        self,
        agent: Agents,
        *,
        host: str | Host = "auto",
        limits: Limits = NO_LIMITS,
        history: HistoryPolicy | None = None,
        concurrency: int = 128,
        retries: int = 1,
        store: Store | None = None,
        resume: bool = False,
        retry_failed: bool = False,
        admit: Callable[[int], bool] | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        """Play with `agent`; nothing is made before the first job.

        Args:
            agent: who acts, in every seat; or a mapping from seats to agents, of which one may hold several.
                Each is told to forget each episode once.
            host: where environments live: ``serial``, in this thread; ``thread``, for those that wait (tools,
                networks); ``process``, for those that compute; another name that a package registers; a
                host, whose owner closes it; or ``auto``: ``thread`` where one of the first jobs has an
                environment that waits, else ``serial``.
            limits: limits from outside; see Limits.
            history: which past turns the agent sees; see `play`.
            concurrency: episodes in flight, and so the largest batch.
            retries: how often an episode that infrastructure broke is played again.
            store: every episode is written there as it ends, those that are played again too.
            resume: go on with what `store`, an EpisodeStore, holds. A job that came to its end there is not
                played again; its stored episode is handed on in its place. One that infrastructure broke is
                tried again while `retries` last, with the next attempt number. New episodes join the stored
                run of the same agent, model and settings; where a job was stored under others, that is told.
            retry_failed: with `resume`, play again every stored job that something broke, whatever it was.
            admit: asked before an episode begins, with the number of those in flight, whether one more may.
                After a no it is asked again when an episode has ended. A no while none is in flight ends the
                stream: what has not begun stays unplayed. Stored episodes are handed on all the same.
            on_episode: called with the last attempt of each job as it ends.

        Raises:
            BadArgument: for numbers that make no sense, no agent, or `resume` without an EpisodeStore.
        """
        if concurrency < 1:
            raise BadArgument(f"concurrency is {concurrency}; accepted: 1 or more episodes in flight.")
        if retries < 0:
            raise BadArgument(f"retries is {retries}; accepted: 0 or more.")
        self.agent = _seated(agent)
        self.limits, self.history = limits, history
        self.concurrency, self.retries = concurrency, retries
        if resume and not isinstance(store, EpisodeStore):
            raise BadArgument(f"resume goes on with an EpisodeStore; store is {store!r:.80}.")
        if retry_failed and not resume:
            raise BadArgument("retry_failed plays stored episodes again; it goes with resume.")
        self.store, self.on_episode = store, on_episode
        self._resume, self._retry_failed, self._admit = resume, retry_failed, admit
        self._held: Held | None = None  # what the store holds, where that is gone on with
        self.version: int | None = None
        """The policy version that was published last."""
        self._given = host
        self._host: Host | None = host if isinstance(host, Host) else None
        self._places: Places | None = None
        self._runs: dict[Any, RunInfo] = {}  # by what is in them
        self._runs_now: dict[Any, RunInfo] = {}  # those of this stream, by limits and history
        self._known: set[str] = set()  # ids that the agent can play
        self._keys: set[int] = set()  # hashes: a runner may live for millions of jobs
        self._ordinals: dict[int, int] = {}  # of the last of equal jobs
        self._begun = 0
        self._submitted: deque[Job] = deque()
        self._jobs: Iterator[Job] = iter(())
        self._again: deque[Trial] = deque()  # to be played again
        self._put_off: deque[Trial] = deque()  # to be played once they are admitted
        self._flights: dict[int, _Flight] = {}  # by the index of their place
        self._cut_off: list[Place] = []  # where an episode was given up that may still be in a call
        self._ended: deque[Numbered] = deque()
        self._streaming = False
        self._pump: _Paces | None = None
        self._closed = False

    # -- what callers do

    def submit(self, *jobs: Job) -> None:
        """Add jobs; the stream that is open, or the next one, plays them.

        Raises:
            GemError: for a job that nothing can play: an unknown id, a seat without agent.
        """
        for job in jobs:
            self._agent_of(job)
        self._submitted.extend(jobs)

    def stream(self, jobs: Iterable[Job] = ()) -> Iterator[Episode]:
        """Play jobs in rounds and yield the episodes as they end; submitted jobs come first.

        `jobs` may be endless: no more are taken than there is room for, and nothing is played while the
        caller keeps the stream waiting. Each job yields one episode, its last attempt. Leaving the loop early
        drops the episodes in flight, and forgets what was submitted.

        Raises:
            GemError: when an environment cannot be made for a reason that is the caller's: an unknown id or
                keyword, a missing package. Whatever else breaks, breaks one episode and stands in its record.
            AgentUnavailable: when an agent can answer nobody, after all that has ended was yielded.
            SchemaMismatch: with `resume`, for a job that is stored under other settings, or is another.
        """
        for _, episode in self._rounds(jobs):
            yield episode

    def _rounds(self, jobs: Iterable[Job] = ()) -> Iterator[Numbered]:
        self._open(jobs)
        try:
            self._prepare()
            yield from _Rounds(self).run()
        finally:
            self._leave()

    async def stream_async(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Episode, None]:
        """Play jobs, each episode at its own pace, and yield them as they end; otherwise as `stream`.

        The agent is awaited for each ask by itself, and no longer than `limits.policy_s` allows. On the
        serial host calls run in the event loop, which costs least where they take microseconds; an
        environment that waits belongs on another host, or everybody waits with it. Episodes that have ended
        while the caller was busy wait for it, up to `concurrency`; then no more are begun. Leave the loop
        early from within ``async with contextlib.aclosing(...)``: else Python closes the stream later.
        """
        async with aclosing(self._paces(jobs)) as played:
            async for _, episode in played:
                yield episode

    async def _paces(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Numbered, None]:
        self._open(jobs)
        try:
            self._prepare()
            self._pump = pump = _Paces(self)
            try:
                async with aclosing(pump.run()) as played:
                    async for numbered in played:
                        yield numbered
            finally:
                await pump.stop()
        finally:  # also where the stop is cancelled
            self._leave()

    def play(self, jobs: Iterable[Job]) -> list[Episode]:
        """Play jobs in rounds and return the episodes in the order of the jobs; otherwise as `stream`."""
        return _in_order(self._rounds(jobs))

    def publish(self, version: int, weights: Any = None) -> None:
        """Let another policy answer from now on.

        Turns in flight finish as they began; each turn carries the version that sampled it, in one episode
        several where they are published while it is played.

        Args:
            version: stamped on the turns that are sampled from now on.
            weights: what the agent is to load; None where it shares them with the caller.

        Raises:
            BadArgument: for weights, where no agent of the runner takes any.
        """
        agents = self.agent.agents.values() if isinstance(self.agent, SeatAgents) else (self.agent,)
        takers = [each for each in agents if hasattr(each, "publish")]
        if weights is not None and not takers:
            raise BadArgument("no agent of this runner takes weights; leave them out.")
        for each in {id(taker): taker for taker in takers}.values():
            each.publish(version, weights)
        self.version = version

    def close(self) -> None:
        """Close the host, unless it was given, and with it every environment. Twice is harmless."""
        self._closed = True
        with ExitStack() as last:
            last.callback(self._close_host)
            self._drop_flights(last)

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    @property
    def submitted(self) -> int:
        """How many submitted jobs have not begun."""
        return len(self._submitted)

    # -- bookkeeping: which job is next, and where

    @property
    def host(self) -> Host:
        """Where environments live.

        Raises:
            BadArgument: before the first stream, where `host` is a name.
        """
        if self._host is None:
            raise BadArgument("the runner has no host before its first stream.")
        return self._host

    def _open(self, jobs: Iterable[Job]) -> None:
        self._check_open()
        if self._streaming:
            raise BadArgument("a stream of this runner is open; finish or close it, or submit() the jobs.")
        self._jobs = iter(jobs)
        self._streaming = True

    def _prepare(self) -> None:
        """Make what the stream needs; what fails here ends it."""
        self.submit(*islice(self._jobs, self.concurrency))
        if self._host is None or self._places is None:
            given = self._given
            if given == "auto":
                given = auto_kind(spec for job in self._submitted if (spec := spec_of(job.env)) is not None)
            self._host = make_host(given, call_s=self.limits.call_s)
            self._places = Places(self._host, self.concurrency)
        if self._resume and isinstance(self.store, EpisodeStore) and self._held is None:
            self._held = Held(self.store)
        self._places.abandon(self._cut_off)
        if self._host.busy:
            raise BadArgument(
                "somebody else's calls are in flight on the host; one stream at a time uses it."
            )
        self._runs_now.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise EnvClosed("the runner is closed; make a new one.")

    def _leave(self) -> None:
        """Give up what a stream has not finished."""
        self._streaming = False
        self._submitted.clear()
        self._again.clear()
        self._put_off.clear()
        self._ended.clear()
        self._jobs = iter(())
        with ExitStack() as last:
            self._drop_flights(last)

    def _drop_flights(self, last: ExitStack) -> None:
        """End the episodes in flight; all of them, even where some of it fails."""
        flights, self._flights = list(self._flights.values()), {}
        for flight in flights:
            last.callback(flight.trial.agent.forget, flight.record.id)
            last.callback(flight.playing.close)
            self._cut_off.append(flight.place)

    def _close_host(self) -> None:
        if self._host is not None and self._given is not self._host:
            self._host.close()
        elif self._places is not None:
            self._places.abandon(self._cut_off)
            self._places.clear()

    @property
    def _in_flight(self) -> int:
        return len(self._flights)

    @property
    def _full(self) -> bool:
        return self._in_flight >= self.concurrency

    def _next(self) -> Trial | None:
        """Return what is to be begun next; None where there is nothing, or no worker free for it yet.

        None too where nothing more is admitted, or as many episodes as there is room for wait to be handed
        on, such as stored ones.

        Raises:
            EnvClosed: after close(). SchemaMismatch: for a job that is stored under other settings.
        """
        self._check_open()
        while len(self._ended) < self.concurrency:
            if self._again and (not self._again[0].alone or self._may_play_alone()):
                if self._admitted():
                    return self._again.popleft()
            elif self._put_off and self._admitted():
                return self._put_off.popleft()
            if self._put_off and (self._held is None or not self._held.left or self._ended):
                return None  # until it is admitted; no stored episode could be handed on before
            job = self._submitted.popleft() if self._submitted else next(self._jobs, None)
            if job is None:
                return None
            number, self._begun = self._begun, self._begun + 1
            trial = Trial(job, self._agent_of(job), self._key_of(job), number)
            wanted = trial if self._held is None else self._taken_up(trial, self._held)
            if wanted is not None and wanted.alone:
                self._again.append(wanted)
            elif wanted is not None and (self._put_off or not self._admitted()):
                self._put_off.append(wanted)
            elif wanted is not None:
                return wanted
        return None

    def _admitted(self) -> bool:
        """Tell whether an episode may begin now; not before those that have ended were handed on."""
        return self._admit is None or (not self._ended and self._admit(self._in_flight))

    def _may_play_alone(self) -> bool:
        """Tell whether one more episode may have a worker of its own."""
        return self._places is not None and self._places.alone < ALONE

    def _taken_up(self, trial: Trial, held: Held) -> Trial | None:
        """Return what is to be played of a job that a store may hold; None where that is handed on.

        Raises:
            SchemaMismatch: when it is stored under other settings, or is another job.
        """
        job = trial.job
        run = self._run_of(job, trial.agent)
        episode, attempt = held.find(job, spec_of(job.env), trial.key, run)
        if episode is None:
            return replace(trial, attempt=attempt)
        if self._retry_failed and episode.error is not None:
            return replace(trial, attempt=attempt)
        again = replace(trial, attempt=episode.attempt).again(episode, self.retries)
        if again is None:
            self._ended.append((trial.number, episode))
            return None
        return replace(again, attempt=attempt)

    def _agent_of(self, job: Job) -> Agent:
        """Return who plays a job.

        Raises:
            UnknownEnv: for an id that nobody registered. BadArgument: for no Job, or seats without agents.
        """
        if not isinstance(job, Job):
            raise BadArgument(f"a job is {job!r:.80}; accepted: a gem.rollout.Job.")
        agent = self.agent if job.agents is None else _seated(job.agents)
        if isinstance(job.env, str) and job.env in self._known and job.agents is None:
            return agent
        spec = spec_of(job.env)
        if spec is not None and isinstance(agent, SeatAgents):
            agent.check(spec.seats)
        if isinstance(job.env, str) and job.agents is None:
            self._known.add(job.env)
        return agent

    def _key_of(self, job: Job) -> str:
        """Return a job's key; a job that is equal to an earlier one is told apart by its ordinal."""
        name = job.key
        if not name:
            start = job.start and (job.start.episode.id, job.start.turns)
            task = job.env if isinstance(job.env, str) else expected(maker(job.env))
            played = (task, job.seed, job.group, job.salt, start, job.limits, job.history)
            name = blake2b(repr(played).encode(errors="surrogatepass"), digest_size=8).hexdigest()
        first, key = hash((name, job.sample)), name
        while (mark := hash((key, job.sample))) in self._keys:
            self._ordinals[first] = self._ordinals.get(first, 0) + 1
            key = f"{name}.{self._ordinals[first]}"
        self._keys.add(mark)
        return key

    def _run_of(self, job: Job, agent: Agent) -> RunInfo:
        """Return how a job is played, for its record; equal settings are one run."""
        limits = self.limits if job.limits is None else job.limits
        history = self.history if job.history is None else job.history
        if job.agents is None and (limits, history) in self._runs_now:
            return self._runs_now[limits, history]
        about = infos_of(agent)
        settings = (limits, history, repr(about))
        if settings not in self._runs:
            one = next(iter(about.values()))
            run = RunInfo(
                agent=one.agent,
                model=one.model,
                sampling=one.sampling,
                vocabulary=one.vocabulary,
                limits=limits,
                history=history,
                versions=versions(),
                seats=about if len(about) > 1 else {},
            )
            self._runs[settings] = run if self._held is None else self._held.run(run)
        if job.agents is None:
            self._runs_now[limits, history] = self._runs[settings]
        return self._runs[settings]

    # -- bookkeeping: one episode

    def _begin(self, trial: Trial) -> _Flight:
        """Begin an episode."""
        assert self._places is not None
        job, agent = trial.job, trial.agent
        run = self._run_of(job, agent) if trial.run is None else trial.run
        place = self._places.take(job.env, trial.alone)
        record = Episode(
            replace(place.task, seed=job.seed),
            run,
            trial.key,
            job.sample,
            trial.attempt,
            salt=job.salt,
            group=job.group,
        )
        actor = agent.verbs if isinstance(agent, SeatAgents) else getattr(agent, "verb", None)
        playing = play(
            place,
            job.seed,
            run.limits,
            history=run.history,
            record=record,
            actor=actor or None,
            start=job.start,
        )
        flight = self._flights[place.index] = _Flight(trial, record, place, playing)
        return flight

    def _command(self, flight: _Flight) -> Command:
        """Return what the host has to do next for the call that an episode waits for."""
        if not flight.place.described:
            return flight.place.index, "describe", (), NO_KWARGS
        return flight.place.index, flight.call.verb, flight.call.args, flight.call.kwargs

    def _carried_out(self, flight: _Flight, outcome: Outcome) -> Resume | None:
        """Return how an episode goes on; None when its environment has been made, and the call is next.

        Raises:
            GemError: when the environment cannot be made through the caller's fault.
        """
        place, error = flight.place, outcome.error
        if error is None:
            if place.described:
                return flight.playing.send, outcome.value
            place.occupy(outcome.value)
            flight.record.task = replace(place.task, seed=flight.trial.job.seed)
            return None
        if not place.described and isinstance(error, GemError) and not isinstance(error, NoVerdict):
            raise error
        place.vacate()
        self.host.renew(place.index)
        return flight.playing.throw, error

    def _end(self, flight: _Flight, episode: Episode) -> None:
        """Take note of a finished episode: store it, and play it again or hand it on.

        Raises:
            EnvClosed: after close(), which cut the episode off.
        """
        self._check_open()
        assert self._places is not None
        del self._flights[flight.place.index]
        self._places.give_back(flight.place)
        try:
            if self.store is not None:
                self.store.append(episode)
        finally:
            flight.trial.agent.forget(episode.id)
        self._decide(flight.trial, episode)

    def _decide(self, trial: Trial, episode: Episode) -> None:
        """Play a job again, or hand its episode on."""
        again = trial.again(episode, self.retries)
        if again is None:
            self._ended.append((trial.number, episode))
        else:
            self._again.append(again)

    def _hand_on(self) -> Iterator[Numbered]:
        """Yield what has ended."""
        while self._ended:
            number, episode = self._ended.popleft()
            if self.on_episode is not None:
                self.on_episode(episode)
            yield number, episode


ALONE = os.cpu_count() or 1
"""How many episodes are played in workers of their own at the same time."""

Numbered: TypeAlias = tuple[int, Episode]
"""An episode, and the number of its job among those of the runner."""

Resume: TypeAlias = "tuple[Callable[[Any], Any], Any]"
"""How an episode goes on: `send` or `throw`, and what."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A job that is to be played, by whom, and how often it has been tried.

    `run`: how it is played, where somebody else has said so.
    """

    job: Job
    agent: Agent
    key: str
    number: int
    attempt: int = 0
    alone: bool = False
    run: RunInfo | None = None

    def of(self, agent: Agent) -> Trial:
        """Return the same trial, played by `agent`."""
        return replace(self, agent=agent)

    def again(self, episode: Episode, retries: int) -> Trial | None:
        """Return the next attempt where infrastructure broke this one; see Runner."""
        error = episode.error
        if error is None or self.attempt >= retries:
            return None
        if error.boundary == "host":
            return replace(self, attempt=self.attempt + 1, alone=True)
        if error.boundary == "env" and error.type in _names(NoVerdict):
            return replace(self, attempt=self.attempt + 1)
        return None


def _names(error: type[Exception]) -> set[str]:
    """Return the names of an error's class and of those below it; a record has no more of an error."""
    return {error.__name__}.union(*map(_names, error.__subclasses__()))


class _Flight:
    """An episode in flight: what it waits for is its `call` or its `asks`."""

    __slots__ = ("asks", "call", "place", "playing", "record", "trial")

    def __init__(self, trial: Trial, record: Episode, place: Place, playing: Playing) -> None:
        self.trial, self.record, self.place, self.playing = trial, record, place, playing
        self.asks: tuple[Ask, ...] = ()
        self.call = Call(place, "reset")

    def holder(self, ask: Ask) -> Agent:
        """Return who answers an ask."""
        agent = self.trial.agent
        return agent.holder(ask) if isinstance(agent, SeatAgents) else agent


class _Rounds:
    """Rounds: what environments have to do, then one question to each agent."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.host = runner.host
        self.waits = not isinstance(self.host, Serial)
        self.asking: list[_Flight] = []
        self.commands: list[Command] = []

    def run(self) -> Iterator[Numbered]:
        try:
            yield from self.rounds()
        except AgentUnavailable:  # what has ended counts all the same
            yield from self.runner._hand_on()
            raise

    def rounds(self) -> Iterator[Numbered]:
        runner, host = self.runner, self.host
        while True:
            yield from runner._hand_on()
            while not runner._full and (trial := runner._next()) is not None:
                flight = runner._begin(trial)
                self.resume(flight, flight.playing.send, None)
            if self.commands:
                commands, self.commands = self.commands, []
                host.submit_all(commands)
            if host.busy and self.take_in():
                continue
            if self.asking:
                self.ask()
            elif not runner._flights and not runner._ended:
                return

    def take_in(self) -> bool:
        """Take in what the host has done; wait for it only when there is nothing to ask meanwhile."""
        if self.waits:
            outcomes = self.host.ready(1, 0.0 if self.asking else None)
        else:
            outcomes = self.host.ready(len(self.host.busy))
        for outcome in outcomes:
            flight = self.runner._flights[outcome.index]
            resume = self.runner._carried_out(flight, outcome)
            if resume is None:
                self.commands.append(self.runner._command(flight))
            else:
                self.resume(flight, *resume)
        return bool(outcomes)

    def resume(self, flight: _Flight, how: Callable[[Any], Any], value: Any) -> None:
        """Let an episode go on until it wants something."""
        try:
            wanted = how(value)
        except StopIteration as end:
            self.runner._end(flight, end.value)
            return
        if type(wanted) is tuple:
            flight.asks = wanted
            self.asking.append(flight)
        else:
            flight.call = wanted
            self.commands.append(self.runner._command(flight))

    def ask(self) -> None:
        """Ask for the actions of every episode that waits for one: each agent once.

        Raises:
            AgentUnavailable: when an agent says so.
        """
        flights, self.asking = self.asking, []
        asks = [ask for flight in flights for ask in flight.asks]
        answers: list[Any] = [None] * len(asks)
        batches: dict[int, tuple[Agent, list[int]]] = {}
        place = 0
        for flight in flights:
            for ask in flight.asks:
                try:
                    holder = flight.holder(ask)
                    batches.setdefault(id(holder), (holder, []))[1].append(place)
                except BadArgument as error:  # nobody holds the seat
                    answers[place] = error
                place += 1
        version = self.runner.version
        for holder, places in batches.values():
            found = batch_answers(holder, [asks[i] for i in places])
            if (gone := unavailable(found)) is not None:
                raise gone
            for at, answer in zip(places, found, strict=True):
                answers[at] = answer
        place = 0
        for flight in flights:
            mine = answers[place : place + len(flight.asks)]
            place += len(mine)
            broken = next((answer for answer in mine if isinstance(answer, BaseException)), None)
            if broken is None:
                self.resume(flight, flight.playing.send, stamped(mine, version))
            else:
                self.resume(flight, flight.playing.throw, broken)


class _Paces:
    """One task per episode in flight, and one that uses the host for all of them."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.host = runner.host
        self.waits = not isinstance(self.host, Serial)
        self.waiting: dict[int, asyncio.Future[Outcome]] = {}
        self.commands: list[Command] = []
        self.wanted = asyncio.Event()  # the host has something to do, or all is over
        self.heard = asyncio.Event()  # an episode has ended, or something broke
        self.over = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.broken: BaseException | None = None
        self.listening = Lock()  # a cancelled task leaves its thread behind, in the host
        self.loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> AsyncGenerator[Numbered, None]:
        runner = self.runner
        self.loop = asyncio.get_running_loop()
        if self.waits:
            self._start(self.serve())
        while True:
            self.begin_more()
            if self.broken is not None:
                if isinstance(self.broken, AgentUnavailable):  # what has ended counts all the same
                    await self.stop()
                    for numbered in runner._hand_on():
                        yield numbered
                raise self.broken
            if runner._ended:
                for numbered in runner._hand_on():
                    yield numbered
            elif runner._flights:
                self.heard.clear()
                await self.heard.wait()
            else:
                return

    def begin_more(self) -> None:
        """Begin episodes while there is room for them, and for those that the caller has not taken yet."""
        runner = self.runner
        try:
            while not runner._full and len(runner._ended) < runner.concurrency and self.broken is None:
                trial = runner._next()
                if trial is None:
                    return
                self._start(self.play(runner._begin(trial)))
        except Exception as error:
            self.broken = self.broken or error
            self.heard.set()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.heard.set()
        if task.cancelled():
            if not self.over:
                self.broken = self.broken or NoVerdict(
                    "an agent cancelled the task that its episode runs in."
                )
            return
        error = task.exception()
        if error is not None:
            self.broken = self.broken or error
        elif not self.over:
            self.begin_more()

    async def stop(self) -> None:
        """End every task; the host is free again afterwards."""
        self.over = True
        self.wanted.set()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            with self.listening:
                pass

    async def play(self, flight: _Flight) -> None:
        """Play one episode to its end."""
        how: Callable[[Any], Any] = flight.playing.send
        value: Any = None
        while True:
            try:
                wanted = how(value)
            except StopIteration as end:
                self.runner._end(flight, end.value)
                return
            if type(wanted) is tuple:
                how, value = await self.answered(flight, wanted)
            else:
                flight.call = wanted
                resume = None
                while resume is None:
                    outcome = await self.outcome(self.runner._command(flight))
                    resume = self.runner._carried_out(flight, outcome)
                how, value = resume

    async def answered(self, flight: _Flight, asks: tuple[Ask, ...]) -> Resume:
        """Ask for the actions."""
        throw = flight.playing.throw
        version = self.runner.version

        async def ask_one(ask: Ask) -> Reply:
            try:
                return await timed(flight.holder(ask), ask)
            except AgentUnavailable as error:
                self.broken = self.broken or error
                self.heard.set()
                raise

        try:
            if len(asks) == 1:
                replies: list[Any] = [await ask_one(asks[0])]
            else:  # all are waited for: none goes on when the episode is over
                replies = await asyncio.gather(*map(ask_one, asks), return_exceptions=True)
            gone = unavailable(replies)
            if gone is not None:
                raise gone
            broken = next((reply for reply in replies if isinstance(reply, BaseException)), None)
            if broken is not None:
                return throw, broken
            return flight.playing.send, stamped(replies, version)
        except AgentUnavailable:
            raise  # the run ends, and this episode with it
        except Exception as error:
            return throw, error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return throw, error  # the agent gave up by itself

    async def outcome(self, command: Command) -> Outcome:
        """Have a call carried out: in this thread by the serial host, else wherever the environment lives."""
        if not self.waits:
            began = perf_counter()
            self.host.submit_all([command])
            (done,) = self.host.ready()
            hold_up(perf_counter() - began)
            return done
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


def rollout(
    jobs: Iterable[Job],
    agent: Agents,
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: str | Host = "auto",
    retries: int = 1,
    store: Store | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    admit: Callable[[int], bool] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job in rounds and return the episodes in the order of the jobs; the rest is as in Runner.

    Raises:
        GemError: when an environment cannot be made for a reason that is the caller's, before any is played.
        AgentUnavailable: when an agent can answer nobody; what has ended is in the store.
    """
    jobs = list(jobs)
    options: dict[str, Any] = {"limits": limits, "history": history, "host": host, "retries": retries}
    options |= {"store": store, "resume": resume, "on_episode": on_episode}
    options |= {"retry_failed": retry_failed, "admit": admit}
    with _runner_for(jobs, agent, concurrency, **options) as runner:
        return runner.play(()) if jobs else []


async def rollout_async(
    jobs: Iterable[Job],
    agent: Agents,
    *,
    limits: Limits = NO_LIMITS,
    history: HistoryPolicy | None = None,
    concurrency: int = 128,
    host: str | Host = "auto",
    retries: int = 1,
    store: Store | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    admit: Callable[[int], bool] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play every job, each episode at its own pace; otherwise as `rollout`."""
    jobs = list(jobs)
    options: dict[str, Any] = {"limits": limits, "history": history, "host": host, "retries": retries}
    options |= {"store": store, "resume": resume, "on_episode": on_episode}
    options |= {"retry_failed": retry_failed, "admit": admit}
    with _runner_for(jobs, agent, concurrency, **options) as runner:
        return _in_order([numbered async for numbered in runner._paces()] if jobs else ())


def _runner_for(jobs: Sequence[Job], agent: Agents, concurrency: int, **options: Any) -> Runner:
    """Return a runner to which `jobs` were submitted: one that cannot be played is told before any is."""
    runner = Runner(agent, concurrency=min(concurrency, len(jobs) or 1), **options)
    runner.submit(*jobs)
    return runner


def _in_order(played: Iterable[Numbered]) -> list[Episode]:
    return [episode for _, episode in sorted(played, key=lambda numbered: numbered[0])]


def _seated(agent: Agents) -> Agent:
    if isinstance(agent, Mapping):
        return SeatAgents(agent)
    if isinstance(agent, type) or not isinstance(agent, Agent):
        raise BadArgument(
            f"the agent is {agent!r:.80}; accepted: an Agent, or a mapping from seats to agents."
        )
    return agent


def spec_of(recipe: Recipe) -> registry.EnvSpec | None:
    """Return the spec of an environment that is named.

    Raises:
        UnknownEnv: for an id that nobody registered.
    """
    if isinstance(recipe, TaskRef):
        recipe = registry.Maker(recipe)
    if isinstance(recipe, registry.Maker):
        return recipe.spec
    return registry.spec(recipe) if isinstance(recipe, str) else None


def infos_of(agent: Agent) -> dict[str, AgentInfo]:
    """Return who plays which seat."""
    if isinstance(agent, SeatAgents):
        return {seat: next(iter(infos_of(each).values())) for seat, each in agent.agents.items()}
    return {SEAT: getattr(agent, "info", None) or AgentInfo(type(agent).__name__)}


def stamped(replies: Sequence[Any], version: int | None) -> tuple[Any, ...]:
    """Return replies; those that do not say which version answered are given `version`."""
    if version is None:
        return tuple(replies)
    return tuple(
        replace(reply, policy_version=version) if _unversioned(reply) else reply for reply in replies
    )


def _unversioned(reply: Any) -> bool:
    return isinstance(reply, Reply) and reply.policy_version is None
