"""Runner: play jobs, many episodes at a time, with one agent on one host.

The bookkeeping (which job is next, where it is played, how an episode starts, continues, ends and is tried
again) has no I/O and no waiting. Two methods drive it. `stream` works in rounds: each round sends all current
asks to the agent as one batch, so the same jobs give the same batches. `stream_async` lets each episode run
at its own pace. Both give identical episodes.
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
from gem.errors import AgentUnavailable, BadArgument, EnvClosed, GemError, NoSolver, NoVerdict
from gem.history import HistoryPolicy
from gem.hosts import Host, auto_kind, make_host
from gem.hosts.base import NO_KWARGS, Command, Outcome
from gem.hosts.serial import Serial
from gem.naming import is_fixed, is_path, name_in_file
from gem.record import SEAT, Agent, AgentInfo, Ask, Call, Episode, Limits, Reply, RunInfo
from gem.rollout.episode import NO_LIMITS, Branch, Playing, play, versions
from gem.rollout.places import Place, Places, Recipe, expected, maker
from gem.rollout.resume import Held
from gem.rollout.store import EpisodeStore
from gem.specs import TaskRef

SERVE_S = 0.005
"""Seconds that a new call of `stream_async` may wait while a thread waits for the host's results."""

Agents: TypeAlias = "Agent | Mapping[str, Agent]"
"""One agent for every seat, or a mapping from seats to agents."""


class Store(Protocol):
    """The interface of a store to which a runner writes episodes, such as `gem.rollout.EpisodeStore`."""

    def append(self, episode: Episode) -> None:
        """Write one episode."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: an environment and a seed.

    `env`: an id, a TaskRef, a Maker, or any callable that makes an environment. `group`: the name that the
    samples of one task share; `sample`: the number of this sample. `limits`, `history` and `agents` replace
    those of the runner, except `call_s`, which belongs to the host. `salt`: another salt gives other sampling
    seeds for the same seed and sample. `key`: the job's name in its episode's id; by default a hash of the
    other fields and the number among equal jobs of the runner, the same after a restart. `start`: start after
    the first turns of another episode.
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
        """Refuse values with which no episode can start."""
        object.__setattr__(self, "seed", seeding.check(self.seed))
        if is_path(self.env):  # the file as it is now, in every attempt
            object.__setattr__(self, "env", registry.spec_named(str(self.env)).id)
        if isinstance(self.env, TaskRef):
            object.__setattr__(self, "env", registry.accept_task(self.env))
        if not isinstance(self.env, str | TaskRef) and not callable(self.env):
            raise BadArgument(
                f"env is {self.env!r:.80}; accepted: an id, a TaskRef, a Maker, or a callable that makes an "
                "environment (one environment cannot play two episodes at a time)."
            )


class Runner:
    """A runner that plays jobs with one agent.

    Its host runs the environments and reuses them for episodes of the same task; an environment whose call
    failed is discarded. Up to `concurrency` episodes are in flight. One stream is open at a time.

    An episode broken by infrastructure (its worker died or hung, or the environment raised NoVerdict) is
    played again with the same seeds, up to `retries` times. After a worker died, each of its episodes is
    played in a separate worker, so that the episodes that did not cause it can end. Other failures, above all
    of an agent, are not retried: otherwise a policy could choose to fail.

    When an agent raises AgentUnavailable, all ended episodes are stored and yielded, those in flight are
    dropped, and the stream raises that error. No job is lost: a runner with `resume` on the same store plays
    the rest.
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
        """Set up the runner; host and environments are made with the first job.

        Args:
            agent: the agent of every seat; or a mapping from seats to agents; one agent may have several
                seats. `forget` of each agent is called once per episode.
            host: the host for environments: ``serial``, in this thread; ``thread``, for those that wait
                (tools, networks); ``process``, for those that compute; another name that a package
                registers; a host, which the caller closes; or ``auto``: ``thread`` if one of the first jobs
                has an environment that waits, else ``serial``.
            limits: limits from outside the task; see Limits.
            history: which past turns the agent sees; see `play`.
            concurrency: episodes in flight; this is also the largest batch.
            retries: how often an episode that infrastructure broke is played again.
            store: every episode is written there when it ends, including those that are played again.
            resume: continue from the episodes in `store`, an EpisodeStore. A job that has ended there is not
                played again; its stored episode is yielded instead. One that infrastructure broke is tried
                again while `retries` last, with the next attempt number. New episodes join the stored run
                with the same agent, model and settings; a job stored with other settings raises.
            retry_failed: with `resume`, play every stored job again that broke, for any reason.
            admit: called before an episode starts, with the number of episodes in flight; returns whether
                one more may start. After False it is called again when an episode has ended. False while
                none is in flight ends the stream; jobs that have not started stay unplayed. Stored
                episodes are yielded in any case.
            on_episode: called with the last attempt of each job when it ends.

        Raises:
            BadArgument: for invalid numbers, no agent, or `resume` without an EpisodeStore.
        """
        if concurrency < 1:
            raise BadArgument(f"concurrency is {concurrency}; accepted: 1 or more episodes in flight.")
        if retries < 0:
            raise BadArgument(f"retries is {retries}; accepted: 0 or more.")
        self.agent = _seated(agent)
        self.limits, self.history = limits, history
        self.concurrency, self.retries = concurrency, retries
        if resume and not isinstance(store, EpisodeStore):
            raise BadArgument(f"resume needs an EpisodeStore; store is {store!r:.80}.")
        if retry_failed and not resume:
            raise BadArgument("retry_failed plays stored episodes again; it needs resume=True.")
        self.store, self.on_episode = store, on_episode
        self._resume, self._retry_failed, self._admit = resume, retry_failed, admit
        self._held: Held | None = None  # the stored episodes, when resuming
        self.version: int | None = None
        """The policy version published last."""
        self._given = host
        self._host: Host | None = host if isinstance(host, Host) else None
        self._places: Places | None = None
        self._runs: dict[Any, RunInfo] = {}  # by their settings
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
        self._cut_off: list[Place] = []  # places of given-up episodes whose call may still run
        self._ended: deque[Numbered] = deque()
        self._streaming = False
        self._pump: _Paces | None = None
        self._closed = False

    # -- for callers

    def submit(self, *jobs: Job) -> None:
        """Add jobs; the open stream, or the next one, plays them.

        Raises:
            GemError: for a job that cannot be played: an unknown id, a seat without agent.
        """
        for job in jobs:
            self._agent_of(job)
        self._submitted.extend(jobs)

    def stream(self, jobs: Iterable[Job] = ()) -> Iterator[Episode]:
        """Play jobs in rounds and yield the episodes as they end; submitted jobs come first.

        `jobs` may be endless: the stream takes jobs only when it can start them, and plays nothing while the
        caller does not read it. Each job yields one episode, its last attempt. Leaving the loop early drops
        the episodes in flight and the submitted jobs.

        Raises:
            GemError: when an environment cannot be made because of the caller: an unknown id or keyword, a
                missing package. Any other error breaks one episode and is stored in its record.
            AgentUnavailable: when an agent can answer no request, after all ended episodes were yielded.
            SchemaMismatch: with `resume`, for a job stored with other settings, or another job with its key.
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
        """Play jobs, each episode at its own pace, and yield them as they end; otherwise like `stream`.

        Each ask is awaited separately, for at most the time that `limits.policy_s` allows. On the serial host
        calls run in the event loop, which is the fastest for calls of microseconds. An environment that waits
        should be on another host, as it would block all episodes. While the caller is busy, up to
        `concurrency` ended episodes are kept; then no new ones start. To leave the loop early, use ``async
        with contextlib.aclosing(...)``: otherwise Python closes the stream later.
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
        """Play jobs in rounds and return the episodes in the order of the jobs; otherwise like `stream`."""
        return _in_order(self._rounds(jobs))

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy for all later answers.

        Turns in flight finish with the old policy. Each turn has the version that sampled it, so an episode
        that runs during a publish has several versions.

        Args:
            version: the policy version of the turns sampled from now on.
            weights: the weights for the agent to load; None if it shares them with the caller.

        Raises:
            BadArgument: for weights, if no agent of the runner loads any.
        """
        agents = self.agent.agents.values() if isinstance(self.agent, SeatAgents) else (self.agent,)
        takers = [each for each in agents if hasattr(each, "publish")]
        if weights is not None and not takers:
            raise BadArgument("no agent of this runner loads weights; leave them out.")
        for each in {id(taker): taker for taker in takers}.values():
            each.publish(version, weights)
        self.version = version

    def close(self) -> None:
        """Close the host and its environments, unless the caller passed it. Calling it twice is harmless."""
        self._closed = True
        with ExitStack() as last:
            last.callback(self._close_host)
            self._drop_flights(last)

    def __enter__(self) -> Self:
        """Return self; the runner is closed at the end of the block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    @property
    def submitted(self) -> int:
        """The number of submitted jobs that have not started."""
        return len(self._submitted)

    # -- bookkeeping: which job is next, and where

    @property
    def host(self) -> Host:
        """The host of the environments.

        Raises:
            BadArgument: before the first stream, if `host` is a name.
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
        """Make what the stream needs; an error here ends the stream."""
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
            raise BadArgument("other calls are in flight on the host; only one stream at a time may use it.")
        self._runs_now.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise EnvClosed("the runner is closed; make a new one.")

    def _leave(self) -> None:
        """Give up the unfinished work of a stream."""
        self._streaming = False
        self._submitted.clear()
        self._again.clear()
        self._put_off.clear()
        self._ended.clear()
        self._jobs = iter(())
        with ExitStack() as last:
            self._drop_flights(last)

    def _drop_flights(self, last: ExitStack) -> None:
        """End all episodes in flight, even if ending some of them fails."""
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
        """Return the next trial to start; None if there is none, or no free worker for it yet.

        Also None if no more episodes are admitted, or if `concurrency` episodes (such as stored ones) already
        wait to be yielded.

        Raises:
            EnvClosed: after close(). SchemaMismatch: for a job stored with other settings.
        """
        self._check_open()
        while len(self._ended) < self.concurrency:
            if self._again and (not self._again[0].alone or self._may_play_alone()):
                if self._admitted():
                    return self._again.popleft()
            elif self._put_off and self._admitted():
                return self._put_off.popleft()
            if self._put_off and (self._held is None or not self._held.left or self._ended):
                return None  # until it is admitted; no stored episode could be yielded before
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
        """Return whether an episode may start now; ended episodes are yielded first."""
        return self._admit is None or (not self._ended and self._admit(self._in_flight))

    def _may_play_alone(self) -> bool:
        """Return whether one more episode may have a separate worker."""
        return self._places is not None and self._places.alone < ALONE

    def _taken_up(self, trial: Trial, held: Held) -> Trial | None:
        """Return the trial to play for a job that may be stored; None if its stored episode is yielded.

        Raises:
            SchemaMismatch: when it is stored with other settings, or its key has another job.
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
        """Return the agent that plays a job.

        Raises:
            UnknownEnv: for an unknown id. BadArgument: for an object that is not a Job, or seats without
                agents.
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
        """Return a job's key; equal jobs are distinguished by their number."""
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
        """Return the run of a job, for its record; equal settings are one run."""
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
        """Return the next command to the host, for the call that an episode waits for."""
        if not flight.place.described:
            return flight.place.index, "describe", (), NO_KWARGS
        return flight.place.index, flight.call.verb, flight.call.args, flight.call.kwargs

    def _carried_out(self, flight: _Flight, outcome: Outcome) -> Resume | None:
        """Return how an episode continues; None when its environment has been made, and the call is next.

        Raises:
            GemError: when the environment cannot be made because of the caller.
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
        """Process an ended episode: store it, and play it again or yield it.

        Raises:
            EnvClosed: after close(), which cancelled the episode.
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
        """Play a job again, or yield its episode."""
        again = trial.again(episode, self.retries)
        if again is None:
            self._ended.append((trial.number, episode))
        else:
            self._again.append(again)

    def _hand_on(self) -> Iterator[Numbered]:
        """Yield the ended episodes."""
        while self._ended:
            number, episode = self._ended.popleft()
            if self.on_episode is not None:
                self.on_episode(episode)
            yield number, episode


ALONE = os.cpu_count() or 1
"""Limit on episodes that run in separate workers at the same time."""

Numbered: TypeAlias = tuple[int, Episode]
"""An episode, and the number of its job among those of the runner."""

Resume: TypeAlias = "tuple[Callable[[Any], Any], Any]"
"""How an episode continues: `send` or `throw` of its generator, and the value."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A job to play, with its agent and the number of earlier attempts.

    `run`: its run, if it was already set elsewhere.
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
        """Return the next attempt, if infrastructure broke this one and `retries` last; else None."""
        error = episode.error
        if error is None or self.attempt >= retries:
            return None
        if error.boundary == "host":
            return replace(self, attempt=self.attempt + 1, alone=True)
        if error.boundary == "env" and error.type in _names(NoVerdict):
            return replace(self, attempt=self.attempt + 1)
        return None


def _names(error: type[Exception]) -> set[str]:
    """Return the names of an error class and its subclasses; a record stores only the name."""
    return {error.__name__}.union(*map(_names, error.__subclasses__()))


class _Flight:
    """An episode in flight; it waits for its `call` or its `asks`."""

    __slots__ = ("asks", "call", "place", "playing", "record", "trial")

    def __init__(self, trial: Trial, record: Episode, place: Place, playing: Playing) -> None:
        self.trial, self.record, self.place, self.playing = trial, record, place, playing
        self.asks: tuple[Ask, ...] = ()
        self.call = Call(place, "reset")

    def holder(self, ask: Ask) -> Agent:
        """Return the agent that answers an ask."""
        agent = self.trial.agent
        return agent.holder(ask) if isinstance(agent, SeatAgents) else agent


class _Rounds:
    """The loop of `stream`: run the environments' calls, then send one batch to each agent."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.host = runner.host
        self.waits = not isinstance(self.host, Serial)
        self.asking: list[_Flight] = []
        self.commands: list[Command] = []

    def run(self) -> Iterator[Numbered]:
        try:
            yield from self.rounds()
        except AgentUnavailable:  # ended episodes count in any case
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
        """Process results of the host; wait for them only if there are no asks to send."""
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
        """Continue an episode until it needs a call or an answer."""
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
        """Ask for the actions of all waiting episodes, with one batch to each agent.

        Raises:
            AgentUnavailable: when an agent raises it.
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
                except BadArgument as error:  # no agent has the seat
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
    """The loop of `stream_async`: one task per episode in flight, and one that uses the host for all."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.host = runner.host
        self.waits = not isinstance(self.host, Serial)
        self.waiting: dict[int, asyncio.Future[Outcome]] = {}
        self.commands: list[Command] = []
        self.wanted = asyncio.Event()  # there are calls for the host, or all is over
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
        """Start episodes while fewer than `concurrency` are in flight or wait for the caller."""
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
        """End every task; the host can be used again afterwards."""
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
            return throw, error  # the agent cancelled itself

    async def outcome(self, command: Command) -> Outcome:
        """Run a call: in this thread on the serial host, else where the environment runs."""
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
        """Use the host for all episodes, in one task, because only one thread at a time may use it."""
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
        """Wait a short time for results of the host."""
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
    """Play all jobs in rounds and return the episodes in the order of the jobs; for arguments see Runner.

    Raises:
        GemError: when an environment cannot be made because of the caller, before any job is played.
        AgentUnavailable: when an agent can answer no request; ended episodes are in the store.
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
    """Play all jobs, each episode at its own pace; otherwise like `rollout`."""
    jobs = list(jobs)
    options: dict[str, Any] = {"limits": limits, "history": history, "host": host, "retries": retries}
    options |= {"store": store, "resume": resume, "on_episode": on_episode}
    options |= {"retry_failed": retry_failed, "admit": admit}
    with _runner_for(jobs, agent, concurrency, **options) as runner:
        return _in_order([numbered async for numbered in runner._paces()] if jobs else ())


def check_actor(played: Sequence[Episode]) -> None:
    """Check that episodes did not all end because the environment lacks the actor that was to play them.

    Raises:
        NoSolver: where all did.
    """
    failed = [episode.error for episode in played if episode.error is not None]
    if failed and len(failed) == len(played) and {error.type for error in failed} == {NoSolver.__name__}:
        raise NoSolver(failed[0].message)


def _runner_for(jobs: Sequence[Job], agent: Agents, concurrency: int, **options: Any) -> Runner:
    """Return a runner with `jobs` submitted, so that a job that cannot be played raises before any starts."""
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
    """Return the spec of a recipe, or None if it is a plain callable.

    Raises:
        UnknownEnv: for an id that is not registered.
    """
    if isinstance(recipe, TaskRef):
        recipe = registry.Maker(recipe)
    if isinstance(recipe, registry.Maker):
        return recipe.spec
    return registry.spec_named(recipe) if isinstance(recipe, str) else None


def infos_of(agent: Agent) -> dict[str, AgentInfo]:
    """Return the info of each seat's agent."""
    if isinstance(agent, SeatAgents):
        return {seat: next(iter(infos_of(each).values())) for seat, each in agent.agents.items()}
    info: AgentInfo = getattr(agent, "info", None) or AgentInfo(type(agent).__name__)
    own = name_in_file(f"{type(agent).__module__}:{type(agent).__qualname__}")
    if is_fixed(own) and info.agent == type(agent).__name__:
        info = replace(info, agent=own)  # another content is another agent
    return {SEAT: info}


def stamped(replies: Sequence[Any], version: int | None) -> tuple[Any, ...]:
    """Return the replies with `version` as policy version where they have none."""
    if version is None:
        return tuple(replies)
    return tuple(
        replace(reply, policy_version=version) if _unversioned(reply) else reply for reply in replies
    )


def _unversioned(reply: Any) -> bool:
    return isinstance(reply, Reply) and reply.policy_version is None
