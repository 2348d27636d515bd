"""Trials: who plays a job, under which key and in which run, and its episode in a store to resume from."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

from gem.agents.seats import SeatAgents
from gem.errors import BadArgument
from gem.naming import is_fixed, name_in_file
from gem.record import SEAT, Agent, AgentInfo, Episode, RunInfo
from gem.rollout.episode import versions
from gem.rollout.jobs import Agents, Job, Trial, seat_agents, spec_of
from gem.rollout.options import RunOptions
from gem.rollout.places import expected_task, maker
from gem.rollout.resume import StoredEpisodes
from gem.rollout.store import EpisodeStore


class Trials:
    """The source of a runner's schedule: it makes the trials of jobs."""

    def __init__(self, agent: Agents, options: RunOptions, *, elsewhere: bool = False) -> None:
        """Play with an agent, or with one for each seat; `elsewhere`: on other machines.

        Raises:
            BadArgument: for an object that is no agent.
        """
        self.agent = seat_agents(agent)
        self._options, self._elsewhere = options, elsewhere
        self._stored: StoredEpisodes | None = None
        self._runs: dict[Any, RunInfo] = {}  # by their settings
        self._runs_now: dict[Any, RunInfo] = {}  # those of this stream, by limits and history
        self._known: set[str] = set()  # ids that the agent can play
        self._keys: set[int] = set()  # hashes: a runner may live for millions of jobs
        self._ordinals: dict[int, int] = {}  # of the last of equal jobs

    def begin_stream(self) -> None:
        """Read the store to resume from, once; the agents may have changed since the last stream."""
        options = self._options
        if options.resume and isinstance(options.store, EpisodeStore) and self._stored is None:
            self._stored = StoredEpisodes(options.store)
        self._runs_now.clear()

    @property
    def resumes(self) -> bool:
        """Whether a store to resume from has not been read yet."""
        return self._options.resume and self._stored is None

    @property
    def remembers(self) -> bool:
        """Whether there are stored episodes whose jobs have not come yet."""
        return self._stored is not None and self._stored.left

    def check(self, job: Job | Trial) -> Agent:
        """Return the agent that plays a job.

        Raises:
            UnknownEnv: for an unknown id. BadArgument: for an object that is not a Job, seats without agents,
                or a job with its own agents for another machine.
        """
        if isinstance(job, Trial):  # of a driver on another machine, which has checked it
            return self.agent
        if not isinstance(job, Job):
            raise BadArgument(f"a job is {job!r:.80}; accepted: a gem.rollout.Job.")
        agent = self.agent if job.agents is None else seat_agents(job.agents)
        if isinstance(job.env, str) and job.env in self._known and job.agents is None:
            return agent
        spec = spec_of(job.env)
        if spec is not None and isinstance(agent, SeatAgents):
            agent.check(spec.seats)
        if self._elsewhere and job.agents is not None:
            raise BadArgument("a job on Ray is played by the runner's agents; leave out the job's agents.")
        if isinstance(job.env, str) and job.agents is None:
            self._known.add(job.env)
        return agent

    def make(self, job: Job | Trial, number: int) -> Trial:
        """Return the first trial of a job; a Trial of a driver on another machine stays what it is."""
        if isinstance(job, Trial):
            return replace(job, agent=self.agent)
        return Trial(job, self.check(job), self._key_of(job), number)

    def recall(self, trial: Trial) -> tuple[Trial, Episode | None]:
        """Return the next attempt at a job, and its stored episode (None where it has none).

        Raises:
            SchemaMismatch: see `StoredEpisodes.find`.
        """
        if self._stored is None:
            return trial, None
        return self._stored.find(trial, self.run_of(trial))

    def _key_of(self, job: Job) -> str:
        """Return a job's key; equal jobs are distinguished by their number."""
        name = name_job(job)
        first, key = hash((name, job.sample)), name
        while (mark := hash((key, job.sample))) in self._keys:
            self._ordinals[first] = self._ordinals.get(first, 0) + 1
            key = f"{name}.{self._ordinals[first]}"
        self._keys.add(mark)
        return key

    def run_of(self, trial: Trial) -> RunInfo:
        """Return the run of a trial, for its record; equal settings are one run."""
        if trial.run is not None:
            return trial.run
        job, options = trial.job, self._options
        limits = options.limits if job.limits is None else job.limits
        history = options.history if job.history is None else job.history
        if job.agents is None and (limits, history) in self._runs_now:
            return self._runs_now[limits, history]
        about = infos_of(trial.agent)
        settings = (limits, history, repr(about))
        if settings not in self._runs:
            one = next(iter(about.values()))
            run = RunInfo(
                agent=one.agent,
                model=one.model,
                sampling=one.sampling,
                vocabulary=one.vocabulary,
                address=one.address,
                limits=limits,
                history=history,
                versions=versions(),
                seats=about if len(about) > 1 else {},
            )
            self._runs[settings] = run if self._stored is None else self._stored.run(run)
        if job.agents is None:
            self._runs_now[limits, history] = self._runs[settings]
        return self._runs[settings]


def name_job(job: Job) -> str:
    """Return a job's key, or else a hash of its other fields; equal jobs have the same."""
    if job.key:
        return job.key
    start = job.start and (job.start.episode.id, job.start.turns)
    task = job.env if isinstance(job.env, str) else expected_task(maker(job.env))
    played = (task, job.seed, job.group, job.salt, start, job.limits, job.history)
    return blake2b(repr(played).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def infos_of(agent: Agent) -> dict[str, AgentInfo]:
    """Return the info of each seat's agent."""
    if isinstance(agent, SeatAgents):
        return {seat: next(iter(infos_of(each).values())) for seat, each in agent.agents.items()}
    info: AgentInfo = getattr(agent, "info", None) or AgentInfo(type(agent).__name__)
    own = name_in_file(f"{type(agent).__module__}:{type(agent).__qualname__}")
    if is_fixed(own) and info.agent == type(agent).__name__:
        info = replace(info, agent=own)  # another content is another agent
    return {SEAT: info}
