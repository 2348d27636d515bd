"""Runner: play jobs, many episodes at a time, with one agent on one host.

A runner has a schedule (`gem.rollout.schedule`: which job is next, which is played again) and the episodes
in flight on its host (`gem.rollout.flights`). Two drivers run them: `stream` in rounds
(`gem.rollout.rounds`), and `stream_async` with each episode at its own pace (`gem.rollout.paces`). Both give
identical episodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from gem.agents.seats import SeatAgents
from gem.closing import Closing
from gem.errors import BadArgument, NoSolver
from gem.hosts import Host, auto_kind, make_host
from gem.record import Agent, Episode
from gem.rollout.flights import Flights
from gem.rollout.jobs import Agents, Job, spec_of
from gem.rollout.options import RunOptions
from gem.rollout.paces import Paces
from gem.rollout.rounds import Rounds
from gem.rollout.schedule import Numbered, Schedule, in_order
from gem.rollout.trials import Trials


class BaseRunner(Closing, ABC):
    """The calls that Runner and RayRunner share. One stream is open at a time."""

    version: int | None = None
    """The policy version published last."""

    def __init__(self, trials: Trials, options: RunOptions, most: int | None = None) -> None:
        """Keep the options; `most`: the most episodes in flight, by default `concurrency`."""
        self.options = options
        self._trials = trials
        self._schedule = Schedule(trials, options, most)

    @property
    def agent(self) -> Agent:
        """The agent of every seat."""
        return self._trials.agent

    @abstractmethod
    def stream_numbered(self, jobs: Iterable[Job] = ()) -> Iterator[Numbered]:
        """Play like `stream`, and yield each episode with the number of its job."""

    @abstractmethod
    def stream_numbered_async(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Numbered, None]:
        """Play like `stream_async`, and yield each episode with the number of its job."""

    @abstractmethod
    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy for later answers."""

    @abstractmethod
    def close(self) -> None:
        """Release everything. Calling it twice is harmless."""

    def submit(self, *jobs: Job) -> None:
        """Add jobs; the open stream, or the next one, plays them.

        Raises:
            GemError: for a job that cannot be played: an unknown id, a seat without agent.
        """
        self._schedule.submit(jobs)

    @property
    def submitted(self) -> int:
        """The number of submitted jobs that have not started."""
        return len(self._schedule.submitted)

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
        for _, episode in self.stream_numbered(jobs):
            yield episode

    async def stream_async(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Episode, None]:
        """Play jobs, each episode at its own pace, and yield them as they end; otherwise like `stream`.

        Each ask is awaited separately, for at most the time that `limits.policy_s` allows. On the serial host
        calls run in the event loop, which is the fastest for calls of microseconds. An environment that waits
        should be on another host, as it would block all episodes. While the caller is busy, up to
        `concurrency` ended episodes are kept; then no new ones start. To leave the loop early, use ``async
        with contextlib.aclosing(...)``: otherwise Python closes the stream later.
        """
        async with aclosing(self.stream_numbered_async(jobs)) as played:
            async for _, episode in played:
                yield episode

    def play(self, jobs: Iterable[Job]) -> list[Episode]:
        """Play jobs in rounds and return the episodes in the order of the jobs; otherwise like `stream`."""
        return in_order(self.stream_numbered(jobs))


class Runner(BaseRunner):
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

    def __init__(self, agent: Agents, *, options: RunOptions | None = None, **keywords: Any) -> None:
        """Set up the runner; host and environments are made with the first job.

        Args:
            agent: the agent of every seat; or a mapping from seats to agents; one agent may have several
                seats. `forget` of each agent is called once per episode.
            options: the settings.
            **keywords: fields of RunOptions, such as ``concurrency=8``, which replace those of `options`.

        Raises:
            UnknownArgument: for a keyword that is no field of RunOptions.
            BadArgument: for invalid settings, or no agent.
        """
        options = RunOptions.merge(options, keywords)
        super().__init__(Trials(agent, options), options)
        self._flights: Flights | None = None
        self._rounds: Rounds | None = None
        self._paces: Paces | None = None

    @property
    def host(self) -> Host:
        """The host of the environments.

        Raises:
            BadArgument: before the first stream, if `host` is a name.
        """
        if self._flights is not None:
            return self._flights.host
        if isinstance(self.options.host, Host):
            return self.options.host
        raise BadArgument("the runner has no host before its first stream.")

    def stream_numbered(self, jobs: Iterable[Job] = ()) -> Iterator[Numbered]:
        """Play like `stream`, and yield each episode with the number of its job."""
        self._schedule.open(jobs)
        try:
            flights = self._prepare()
            if self._rounds is None:
                self._rounds = Rounds(flights, self._schedule, lambda: self.version)
            yield from self._rounds.run()
        finally:
            self._leave()

    async def stream_numbered_async(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Numbered, None]:
        """Play like `stream_async`, and yield each episode with the number of its job."""
        self._schedule.open(jobs)
        try:
            self._paces = paces = Paces(self._prepare(), self._schedule, lambda: self.version)
            try:
                async with aclosing(paces.run()) as played:
                    async for numbered in played:
                        yield numbered
            finally:
                await paces.stop()
        finally:  # also where the stop is cancelled
            self._leave()

    def wake(self) -> None:
        """Let an open `stream_async` take jobs that have come meanwhile; from another thread too."""
        if self._paces is not None:
            self._paces.wake()

    @property
    def in_flight(self) -> int:
        """The number of episodes in flight."""
        return self._schedule.in_flight

    def _prepare(self) -> Flights:
        """Make what the stream needs; an error here ends the stream."""
        schedule, options = self._schedule, self.options
        schedule.take_ahead()
        if self._flights is None:
            host = options.host
            if host == "auto":
                specs = (spec_of(job.env) for job in schedule.submitted)
                host = auto_kind(spec for spec in specs if spec is not None)
            made = make_host(host, call_s=options.limits.call_s)
            self._flights = Flights(made, schedule, options, self._trials.run_of)
        self._trials.begin_stream()
        self._flights.reclaim()
        return self._flights

    def _leave(self) -> None:
        """Give up the unfinished work of a stream."""
        self._schedule.leave()
        if self._flights is not None:
            self._flights.drop()

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
        agent = self.agent
        agents = agent.agents.values() if isinstance(agent, SeatAgents) else (agent,)
        takers = {id(each): each for each in agents if hasattr(each, "publish")}
        if weights is not None and not takers:
            raise BadArgument("no agent of this runner loads weights; leave them out.")
        for each in takers.values():
            each.publish(version, weights)
        self.version = version

    def close(self) -> None:
        """Close the host and its environments, unless the caller passed it. Calling it twice is harmless."""
        self._schedule.close()
        flights = self._flights
        if flights is None:
            return
        try:
            flights.drop()
        finally:
            if isinstance(self.options.host, Host):
                flights.clear()
            else:
                flights.host.close()


def rollout(
    jobs: Iterable[Job], agent: Agents, *, options: RunOptions | None = None, **keywords: Any
) -> list[Episode]:
    """Play all jobs in rounds and return the episodes in the order of the jobs; for arguments see Runner.

    Raises:
        GemError: when an environment cannot be made because of the caller, before any job is played.
        AgentUnavailable: when an agent can answer no request; ended episodes are in the store.
    """
    jobs = list(jobs)
    with _runner_for(jobs, agent, options, keywords) as runner:
        return runner.play(()) if jobs else []


async def rollout_async(
    jobs: Iterable[Job], agent: Agents, *, options: RunOptions | None = None, **keywords: Any
) -> list[Episode]:
    """Play all jobs, each episode at its own pace; otherwise like `rollout`."""
    jobs = list(jobs)
    with _runner_for(jobs, agent, options, keywords) as runner:
        return in_order([numbered async for numbered in runner.stream_numbered_async()] if jobs else ())


def _runner_for(
    jobs: Sequence[Job], agent: Agents, options: RunOptions | None, keywords: dict[str, Any]
) -> Runner:
    """Return a runner with `jobs` submitted, so that a job that cannot be played raises before any starts."""
    options = RunOptions.merge(options, keywords)
    runner = Runner(agent, options=options, concurrency=min(options.concurrency, len(jobs) or 1))
    runner.submit(*jobs)
    return runner


def check_actor(played: Sequence[Episode]) -> None:
    """Check that episodes did not all end because the environment lacks the actor that was to play them.

    Raises:
        NoSolver: where all did.
    """
    failed = [episode.error for episode in played if episode.error is not None]
    if failed and len(failed) == len(played) and {error.type for error in failed} == {NoSolver.__name__}:
        raise NoSolver(failed[0].message)
