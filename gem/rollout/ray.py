"""RayRunner: play jobs on a Ray cluster; whole episodes run on the nodes, next to their environments.

This process has the schedule: which job is next, its result, whether to play it again. Players
(`gem.rollout.ray_player`), one per core of the cluster, play their jobs with their own runners. Only jobs
and the stored form of episodes are sent over the network (`gem.rollout.ray_crew`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gem.agents.base import BaseAgent
from gem.agents.named import AgentByName
from gem.agents.ray_model import ModelActor
from gem.agents.seats import SeatAgents
from gem.errors import BadArgument, check_argument
from gem.hosts import auto_kind
from gem.hosts.ray_cluster import Cluster
from gem.record import SEAT, Agent, AgentInfo
from gem.rollout.jobs import Job, spec_of
from gem.rollout.options import RunOptions
from gem.rollout.ray_crew import AHEAD, BACKLOG, HEARTBEAT_S, POLL_S, Crew, Sender
from gem.rollout.ray_player import Hello
from gem.rollout.ray_spool import Spool
from gem.rollout.runner import BaseRunner
from gem.rollout.schedule import Numbered
from gem.rollout.store import EpisodeStore
from gem.rollout.trials import Trials
from gem.trust import name_server

RayAgent: TypeAlias = "str | AgentByName | Agent"
"""An agent's name, to make it on each node, or an agent, which is sent there."""

RETRIES = 3
"""Default of `retries`: nodes count as infrastructure here."""


class RayRunner(BaseRunner):
    """A runner on a Ray cluster; it is used like a Runner, and gives the same episodes.

    Each player has its own agent: made on its node if the agent is a name, else a copy. To share one model,
    use an agent with a server address, or a `gem.agents.ray_model.ModelActor`.

    With an EpisodeStore, each node keeps a spool: a store on its own disk, to which an episode is written
    before the driver receives it. To continue after a driver was killed, use ``resume=True``: the episodes in
    the spools are first copied into the store, and the rest is played. Closing the runner removes the spools.

    Jobs, and agents given as objects, are pickled; their modules must be on every node. The spec of an id
    that this process registered is sent with its jobs.
    """

    def __init__(
        self,
        agent: RayAgent | Mapping[str, RayAgent],
        *,
        address: str | None = None,
        players: int | None = None,
        secrets: Sequence[str] = (),
        spool: str | Path | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        options: RunOptions | None = None,
        **keywords: Any,
    ) -> None:
        """Connect to the cluster; players are started by the first stream.

        Args:
            agent: the agent of all seats; or a mapping from seats to agents.
            address: see `gem.hosts.ray_cluster.Cluster`.
            players: the most players; None: one per core of the cluster.
            secrets: environment variables, by name, that every node must have; their values stay there.
            spool: the folder on each node for the spool; by default a folder of this user in the node's
                folder for temporary files.
            heartbeat_s: seconds for which a player may send nothing. An environment must not block its whole
                process for longer, as a long call into C can do.
            options: the settings. `host` is a name: each player makes its own host. `concurrency` counts the
                episodes of all players together.
            **keywords: fields of RunOptions, which replace those of `options`. Without `options`, `retries`
                is 3: nodes count as infrastructure here.

        Raises:
            UnknownArgument: for a keyword that is no field of RunOptions.
            BadArgument: for invalid settings, or no cluster. MissingExtra: without Ray.
        """
        check_argument(
            "players", players, players is None or players >= 1, "1 or more, or None for one per core"
        )
        check_argument("heartbeat_s", heartbeat_s, heartbeat_s > POLL_S, f"more than {POLL_S:g} seconds")
        options = RunOptions.merge(options or RunOptions(retries=RETRIES), keywords)
        if not isinstance(options.host, str):
            raise BadArgument(f"host is {options.host!r:.80}; each player makes its own host: give its name.")
        name_server(options.host)
        self._agents = _for_nodes(agent)
        trials = Trials(_stand_ins(self._agents), options, elsewhere=True)
        super().__init__(trials, options, int(options.concurrency * (1 + AHEAD + BACKLOG)) + 1)
        cluster = Cluster(address)
        store = options.store
        self._spool = Spool(store, spool) if isinstance(store, EpisodeStore) else None
        self._crew = Crew(
            cluster,
            self._schedule,
            trials,
            options,
            Sender(cluster.ray, self._agents),
            players=players,
            heartbeat_s=heartbeat_s,
            secrets=tuple(secrets),
            spool=self._spool,
        )
        self._introduced = self._closed = False

    def stream_numbered(self, jobs: Iterable[Job] = ()) -> Iterator[Numbered]:
        """Play like `stream`, and yield each episode with the number of its job."""
        self._schedule.open(jobs)
        whole = False
        try:
            self._prepare()
            yield from self._crew.run()
            whole = True
        finally:
            if not whole:  # episodes in flight are dropped, and the players with them
                self._crew.dismiss()
            self._schedule.leave()

    async def stream_numbered_async(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Numbered, None]:
        """Play like `stream_async`, in another thread, and yield each episode with the number of its job."""
        played = self.stream_numbered(jobs)
        try:
            while (numbered := await asyncio.to_thread(next, played, None)) is not None:
                yield numbered
        finally:
            await asyncio.to_thread(played.close)  # type: ignore[attr-defined]

    def _prepare(self) -> None:
        """Start the first player, and copy the spools to resume from."""
        schedule, crew, store = self._schedule, self._crew, self.options.store
        schedule.take_ahead()
        if crew.host == "auto":
            specs = (spec_of(job.env) for job in schedule.submitted)
            crew.host = auto_kind(spec for spec in specs if spec is not None)
        if not self._introduced and schedule.submitted:
            self._introduce(crew.first_hello(schedule.submitted[0]))
        if self._trials.resumes and isinstance(store, EpisodeStore):
            crew.collect(store)
        self._trials.begin_stream()

    def _introduce(self, hello: Hello) -> None:
        """Record the info that a player sent about its agents."""
        self._introduced = True
        by_seat = self.agent.agents if isinstance(self.agent, SeatAgents) else {SEAT: self.agent}
        for seat, stand_in in by_seat.items():
            assert isinstance(stand_in, _StandIn)
            stand_in.sent = hello.about[seat]

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy for the jobs that players get from now on.

        Args:
            version: the policy version of the turns sampled from then on.
            weights: the weights for the players' agents, or a ModelActor; they are sent to each node once.
        """
        given = self._agents.values() if isinstance(self._agents, Mapping) else (self._agents,)
        shared = {id(each): each for each in given if isinstance(each, ModelActor)}
        for model in shared.values():
            model.publish(version, weights)
        copied = len(shared) < len({id(each) for each in given})
        self._crew.publish(version, weights if copied else None)
        self.version = version

    def close(self) -> None:
        """End the players, remove their spools and leave the cluster. Calling it twice is harmless."""
        if not self._closed:
            self._closed = True
            self._schedule.close()
            self._crew.close()
            if self._spool is not None:
                self._spool.end()


class _StandIn(BaseAgent):
    """A placeholder in the driver for an agent that plays on other nodes."""

    sent: AgentInfo = AgentInfo()

    @property
    def info(self) -> AgentInfo:
        """The info that the players sent about it."""
        return self.sent


def _for_nodes(agent: Any) -> Any:
    """Return agents in the form for sending."""
    if isinstance(agent, Mapping):
        return {seat: _for_nodes(each) for seat, each in agent.items()}
    if isinstance(agent, str):
        return AgentByName(agent)
    if isinstance(agent, AgentByName) or (isinstance(agent, Agent) and not isinstance(agent, type)):
        return agent
    raise BadArgument(
        f"the agent is {agent!r:.80}; accepted: an agent's name, an AgentByName, an Agent, or a mapping from "
        "seats to these."
    )


def _stand_ins(agents: Any) -> Any:
    if isinstance(agents, Mapping):
        return {seat: _StandIn() for seat in agents}
    return _StandIn()
