"""RayRunner: play jobs on a Ray cluster; whole episodes run on the nodes, next to their environments.

The driver does the bookkeeping, like every Runner: which job is next, its result, whether to play it again.
Players (`gem.rollout.ray_player`), one per core of the cluster, play their jobs with their own runners. Only
jobs and the stored form of episodes are sent over the network.

A player that died, or sent nothing for `heartbeat_s`, is given up. Each of its episodes counts as broken by
infrastructure, and is played again elsewhere while `retries` last. A new player replaces it after a pause,
which doubles with each loss on the same node; a node that does not respond gets no new player.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import re
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeAlias

from gem import codec
from gem.agents.base import BaseAgent
from gem.agents.named import AgentByName
from gem.agents.ray_model import ModelActor
from gem.agents.seats import SeatAgents
from gem.errors import BadArgument, DuplicateEpisode, GemError, WorkerDied
from gem.history import HistoryPolicy
from gem.hosts import auto_kind
from gem.hosts.ray_cluster import CPU, Cluster, Node, Nodes, added_folders, own_error, reserves
from gem.record import SEAT, Agent, AgentInfo, Episode, Failure, Limits, RunInfo
from gem.rollout.episode import NO_LIMITS, versions
from gem.rollout.places import Recipe, expected, maker, pool_key
from gem.rollout.ray_player import Heard, Hello, Orders, Parcel, Player, check_own, drop_spool
from gem.rollout.resume import Held
from gem.rollout.runner import Job, Numbered, Runner, Store, Trial, spec_of
from gem.rollout.store import EpisodeStore
from gem.sandbox.base import SandboxFailed
from gem.source_files import with_sources
from gem.specs import Needs

HEARTBEAT_S = 5.0
"""Seconds for which a player may send nothing."""

POLL_S = 1.0
"""Seconds that a player waits for an ended episode before it returns none."""

START_S = 60.0
"""Seconds that a player may take to start."""

CLOSE_S = 5.0
"""Seconds that players may take to close; then they are killed."""

AT_ONCE = 100
"""Number of episodes of a spool that are sent together."""

BACKLOG = 16
"""Limit on jobs that wait for players of another kind, as a multiple of the episodes in flight."""

STAY_S = 10.0
"""Shortest life in seconds of a player that has jobs, even if another kind of player needs its place."""

RECIPES = 4096
"""Number of recipes that a player keeps; beyond that, it forgets all."""

AHEAD = 0.25
"""Extra jobs for a player, as a share of those that it plays, so that it does not have to wait."""

RayAgent: TypeAlias = "str | AgentByName | Agent"
"""An agent's name, to make it on each node, or an agent, which is sent there."""


class RayRunner(Runner):
    """A Runner on a Ray cluster; it is used like a Runner, and gives the same episodes.

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
        host: str = "auto",
        limits: Limits = NO_LIMITS,
        history: HistoryPolicy | None = None,
        concurrency: int = 128,
        players: int | None = None,
        retries: int = 3,
        store: Store | None = None,
        resume: bool = False,
        retry_failed: bool = False,
        admit: Callable[[int], bool] | None = None,
        on_episode: Callable[[Episode], None] | None = None,
        secrets: Sequence[str] = (),
        spool: str | Path | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """Connect to the cluster; players are started by the first stream.

        Args:
            agent: the agent of all seats; or a mapping from seats to agents.
            address: see `gem.hosts.ray_cluster.Cluster`.
            host: the host for each player's environments: serial, thread, process, or auto.
            limits: see Runner.
            history: see Runner.
            concurrency: episodes in flight, of all players together.
            players: the most players; None: one per core of the cluster.
            retries: how often an episode that infrastructure broke is played again. Nodes count as
                infrastructure here.
            store: see Runner.
            resume: see Runner.
            retry_failed: see Runner.
            admit: see Runner.
            on_episode: see Runner.
            secrets: environment variables, by name, that every node must have; their values stay there.
            spool: the folder on each node for the spool; by default a folder of this user in the node's
                folder for temporary files.
            heartbeat_s: seconds for which a player may send nothing. An environment must not block its whole
                process for longer, as a long call into C can do.

        Raises:
            BadArgument: for invalid numbers, or no cluster. MissingExtra: without Ray.
        """
        if players is not None and players < 1:
            raise BadArgument(f"players is {players}; accepted: 1 or more, or None for one per core.")
        if not heartbeat_s > POLL_S:
            raise BadArgument(f"heartbeat_s is {heartbeat_s}; accepted: more than {POLL_S:g} seconds.")
        if not isinstance(host, str):
            raise BadArgument(f"host is {host!r:.80}; each player makes its own host: give its name.")
        self._agents = _for_nodes(agent)
        super().__init__(
            _stand_ins(self._agents),
            limits=limits,
            history=history,
            concurrency=concurrency,
            retries=retries,
            store=store,
            resume=resume,
            retry_failed=retry_failed,
            admit=admit,
            on_episode=on_episode,
        )
        self._kind, self._most, self._secrets = host, players, tuple(secrets)
        self._heartbeat_s = heartbeat_s
        self._recipes: dict[Any, tuple[str, Recipe]] = {}  # name and recipe, by pool_key
        self._published: tuple[int, Any] | None = None
        self._crew = _Crew(Cluster(address), self)
        self._spools = _Spool(store, spool) if isinstance(store, EpisodeStore) else None
        self._spool = None if self._spools is None else self._spools.folder
        self._known_infos = False

    # -- differences from Runner

    def _prepare(self) -> None:
        if self._kind == "auto":
            self._kind = auto_kind(spec for job in self._submitted if (spec := spec_of(job.env)) is not None)
        if not self._known_infos and self._submitted:
            self._introduce(self._crew.first_hello(self._submitted[0]))
        if self._resume and isinstance(self.store, EpisodeStore) and self._held is None:
            self._crew.collect(self.store)
            self._held = Held(self.store)
        self._runs_now.clear()

    def _introduce(self, hello: Hello) -> None:
        """Record the info that a player sent about its agents."""
        self._known_infos = True
        held = self.agent.agents if isinstance(self.agent, SeatAgents) else {SEAT: self.agent}
        for seat, stand_in in held.items():
            assert isinstance(stand_in, _StandIn)
            stand_in.told = hello.about[seat]

    def _rounds(self, jobs: Iterable[Job] = ()) -> Iterator[Numbered]:
        self._open(jobs)
        whole = False
        try:
            self._take_first()
            self._prepare()
            yield from self._crew.play()
            whole = True
        finally:
            if not whole:  # episodes in flight are dropped, and the players with them
                self._crew.dismiss()
            self._leave()

    def _take_first(self) -> None:
        jobs = []
        for job in self._jobs:
            jobs.append(job)
            if len(jobs) >= self.concurrency:
                break
        self.submit(*jobs)

    async def _paces(self, jobs: Iterable[Job] = ()) -> AsyncGenerator[Numbered, None]:
        played = self._rounds(jobs)
        try:
            while (numbered := await asyncio.to_thread(next, played, None)) is not None:
                yield numbered
        finally:
            await asyncio.to_thread(played.close)  # type: ignore[attr-defined]

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
        if weights is not None and len(shared) < len({id(each) for each in given}):
            self._published = version, self._crew.cluster.ray.put(weights)
        else:
            self._published = version, None
        self.version = version
        self._crew.published()

    def close(self) -> None:
        """End the players, remove their spools and leave the cluster. Calling it twice is harmless."""
        if not self._closed:
            self._closed = True
            self._crew.close()
            if self._spools is not None:
                self._spools.end()

    @property
    def _full(self) -> bool:
        served, waiting = self._crew.loads
        return served >= self.concurrency * (1 + AHEAD) or waiting >= self.concurrency * BACKLOG

    @property
    def _in_flight(self) -> int:
        return self._crew.in_flight

    def _may_play_alone(self) -> bool:
        return True

    def _agent_of(self, job: Job) -> Agent:
        agent = super()._agent_of(job)
        if job.agents is not None:
            raise BadArgument("a job on Ray is played by the runner's agents; leave out the job's agents.")
        return agent

    # -- for the crew

    def orders(self, host: str, concurrency: int, node: Node, needs: Needs) -> Orders:
        """Return the orders for a player on a node."""
        spool = None if self._spool is None else str(self._spool / f"{node.id}.jsonl")
        last = added_folders()
        return Orders(host, self.limits, concurrency, versions(), self._secrets, spool, needs.sandbox, last)

    @functools.cached_property
    def packed_agents(self) -> Any:
        """The Ray reference of the agents, which may hold a model: they are sent to each node once.

        Raises:
            BadArgument: when they cannot be sent.
        """
        return self._crew.cluster.ray.put(self.packed(self._agents, "the agent"))

    def packed(self, what: Any, name: str) -> bytes:
        """Return an object pickled, including functions and classes of the main module and of named files.

        Raises:
            BadArgument: when it cannot be pickled.
        """
        try:
            return with_sources(self._crew.cluster.ray.cloudpickle.dumps(what))
        except Exception as error:
            raise BadArgument(f"{name} cannot be sent to another node: {error!r:.300}") from error

    def parcel(self, trials: Sequence[Trial], member: _Member) -> bytes:
        """Return trials in the form for a player: with their runs, and the recipes that it lacks.

        Raises:
            BadArgument: when they cannot be sent.
        """
        if len(self._recipes) > RECIPES:
            self._recipes.clear()
            self._crew.forget_recipes()
        sent: list[Trial] = []
        new: dict[str, Recipe] = {}
        for trial in trials:
            job = trial.job
            key = pool_key(job.env)
            if key not in self._recipes:  # this keeps the recipe alive, as a key may be its address in memory
                self._recipes[key] = f"@{len(self._recipes)}", maker(job.env)
            name, recipe = self._recipes[key]
            if name not in member.has:
                new[name] = recipe
            run = self._run_of(job, trial.agent)
            plain = replace(job, env=name)
            sent.append(replace(trial, job=plain, run=run, agent=None))  # type: ignore[arg-type]
        packed = self.packed(Parcel(sent, new, member.anew), "a job")
        member.has.update(new)
        member.anew = False
        return packed

    def ended(self, trial: Trial, episode: Episode, *, alone: bool = True) -> None:
        """Record the result of a trial; `alone`: after a loss it is played separately from others."""
        if self.store is not None:
            with suppress(DuplicateEpisode):  # a spool had it
                self.store.append(episode)
        again = trial.again(episode, self.retries)
        if again is not None and not alone:
            again = replace(again, alone=False)
        if again is None:
            self._ended.append((trial.number, episode))
        else:
            self._again.append(again)

    def lost(self, trial: Trial, why: str, *, alone: bool) -> None:
        """Record a trial whose player is gone."""
        job = trial.job
        episode = Episode(
            replace(expected(maker(job.env)), seed=job.seed),
            self._run_of(job, trial.agent),
            trial.key,
            job.sample,
            trial.attempt,
            salt=job.salt,
            group=job.group,
            error=Failure("host", WorkerDied.__name__, why),
        )
        self.ended(trial, episode, alone=alone)


class _StandIn(BaseAgent):
    """A placeholder in the driver for an agent that plays on other nodes."""

    told: AgentInfo = AgentInfo()

    @property
    def info(self) -> AgentInfo:
        """The info that the players sent about it."""
        return self.told


class _Kind:
    """Trials that the same players can play: they have equal needs, and are all separate or all shared."""

    def __init__(self, needs: Needs, careful: bool) -> None:
        self.needs, self.careful = needs, careful
        self.waiting: deque[Trial] = deque()
        self.players = 0
        self.unfit: dict[str, GemError] = {}  # nodes that cannot play it, and why


@dataclass(eq=False)
class _Member:
    """The driver's end of a player."""

    actor: Any
    node: Node
    room: int  # trials that it may have at a time
    kind: _Kind
    takes: Mapping[str, float]  # the resources that it reserves on its node
    began: float
    greeting: Any = None  # the reference of its hello, while that is awaited
    call: Any = None  # the reference of its exchange, while one is in flight
    trials: dict[int, Trial] = field(default_factory=dict)
    version: int | None = None  # the version last published to it
    has: set[str] = field(default_factory=set)  # the recipes that were sent to it
    anew: bool = False  # it has to forget earlier recipes
    hired: float = field(default_factory=monotonic)
    leaving: bool = False  # it gets no more jobs, and ends when it has finished

    @property
    def up(self) -> bool:
        return self.greeting is None


class _Crew:
    """The players of a runner: starts them, gives them jobs, receives episodes, and gives them up."""

    def __init__(self, cluster: Cluster, books: RayRunner) -> None:
        self.cluster, self.books = cluster, books
        self.members: list[_Member] = []
        self.kinds: dict[tuple[str, bool], _Kind] = {}
        self.nodes = Nodes(cluster)
        self.used: dict[str, Node] = {}  # nodes that may have a spool
        self.hello: Hello | None = None  # the last first message of a player
        self.carried = 0  # trials that players have

    @property
    def in_flight(self) -> int:
        return self.carried + sum(len(kind.waiting) for kind in self.kinds.values())

    @property
    def loads(self) -> tuple[int, int]:
        """The number of trials that players have or will get next, and of those that wait for their kind."""
        kinds = self.kinds.values()
        served = self.carried + sum(len(kind.waiting) for kind in kinds if kind.players)
        return served, sum(len(kind.waiting) for kind in kinds if not kind.players)

    # -- the main loop

    def play(self) -> Iterator[Numbered]:
        """Play until no job is left."""
        books = self.books
        while True:
            yield from books._hand_on()
            while not books._full and (trial := books._next()) is not None:
                self.kind_of(trial.job, trial.alone).waiting.append(trial)
            if not self.in_flight and not books._ended:
                return
            self.hire()
            self.give()
            self.listen(0.1)

    def first_hello(self, job: Job) -> Hello:
        """Return the first message of the first player for a job.

        Raises:
            GemError: the error that kept it from starting. BadArgument: when none starts.
        """
        until = monotonic() + START_S
        kind = self.kind_of(job, False)
        while True:
            self.hire(kind)
            self.listen(0.1)
            if self.hello is not None:
                return self.hello
            if not self.members:  # the node is paused, or there is none
                sleep(0.1)
            if monotonic() > until:
                raise BadArgument(
                    f"no player started within {START_S:g} s; the cluster needs free resources for one, and "
                    f"has {len(self.nodes.living)} nodes."
                )

    def kind_of(self, job: Job, careful: bool) -> _Kind:
        """Return the kind of players that can play a job."""
        spec = spec_of(job.env)
        needs = Needs() if spec is None else spec.needs
        key = repr(needs), careful
        if key not in self.kinds:
            self.kinds[key] = _Kind(needs, careful)
        return self.kinds[key]

    # -- starting players

    def hire(self, first: _Kind | None = None) -> None:
        """Start players where resources are free and trials wait, or for the kind `first`."""
        self.nodes.look()
        for kind in self.kinds.values():
            if kind.waiting or kind is first:
                self.hire_for(kind)

    def hire_for(self, kind: _Kind) -> None:
        """Start players of one kind.

        Raises:
            GemError: when no node can play it; the message has the reason.
        """
        books, nodes = self.books, self.nodes
        takes = reserves(kind.needs, 1)
        whole = nodes.whole(takes)
        if nodes.living and not kind.players:
            if not whole:
                raise BadArgument(f"no node of the cluster has what an environment needs: {kind.needs}.")
            if kind.unfit.keys() >= nodes.living.keys():
                raise next(reversed(kind.unfit.values()))
        most = 1 if kind.careful else min(whole, books._most or whole, books.concurrency)
        share = -(-books.concurrency // max(1, min(whole, books._most or whole)))
        while share > 1 and not nodes.whole(reserves(kind.needs, share)):
            share = share // 2  # the memory of a node is too small for so many
        takes = reserves(kind.needs, share)
        if kind.careful:  # it must not wait for a free core: its work is in separate processes
            takes.pop(CPU, None)
        idle = sum(not member.trials for member in self.members if member.kind is kind)
        wanted = min(most, max(1, kind.players - idle + -(-len(kind.waiting) // share)))
        while kind.players < wanted:
            room = nodes.fitting(takes, [(member.node.id, member.takes) for member in self.members])
            room = {node: fits for node, fits in room.items() if fits and node not in kind.unfit}
            if not room:
                break
            self.start(nodes.living[max(room, key=lambda each: room[each])], kind, share, takes)
        if not kind.players and nodes.open():
            self.make_room()

    def make_room(self) -> None:
        """End a player of another kind, an idle one if possible."""
        if any(member.leaving for member in self.members):
            return
        now = monotonic()
        may_leave = [
            member
            for member in self.members
            if member.up and (now - member.hired > STAY_S or not (member.trials or member.kind.waiting))
        ]
        if may_leave:
            min(may_leave, key=lambda member: len(member.trials)).leaving = True

    def start(self, node: Node, kind: _Kind, concurrency: int, takes: Mapping[str, float]) -> _Member:
        """Start a player."""
        orders = self.books.orders(
            "process" if kind.careful else self.books._kind, concurrency, node, kind.needs
        )
        actor = self.cluster.actor(Player, node.id, orders, self.books.packed_agents, reserves=takes)
        room = concurrency + max(1, int(concurrency * AHEAD))
        member = _Member(actor, node, room, kind, takes, monotonic(), greeting=actor.hello.remote())
        self.members.append(member)
        kind.players += 1
        self.used[node.id] = node
        return member

    # -- sending jobs and receiving episodes

    def give(self) -> None:
        """Send waiting trials to players that have started, and ask them for ended episodes."""
        for member in list(self.members):
            if not member.up or member.call is not None:
                continue
            if member.leaving and not member.trials:
                self.part([member])
                continue
            waiting = member.kind.waiting
            taken: list[Trial] = []
            while waiting and not member.leaving and len(member.trials) + len(taken) < member.room:
                taken.append(waiting.popleft())
            if not taken and not member.trials:
                continue
            try:
                packed = self.books.parcel(taken, member)
            except BaseException:
                waiting.extendleft(reversed(taken))
                raise
            version, weights = None, None
            published = self.books._published
            if published is not None and published[0] != member.version:
                version, weights = published
                member.version = version
            member.trials.update((trial.number, trial) for trial in taken)
            self.carried += len(taken)
            member.began = monotonic()
            member.call = member.actor.exchange.remote(packed, POLL_S, version, weights)

    def published(self) -> None:
        """Make every player load the last published weights with its next jobs."""
        for member in self.members:
            member.version = None

    def forget_recipes(self) -> None:
        """Send every recipe again, and make players forget theirs."""
        for member in self.members:
            member.has.clear()
            member.anew = True

    def listen(self, wait_s: float) -> None:
        """Receive the messages of players, and give up silent players.

        Raises:
            GemError: the error that stops a player.
        """
        ray = self.cluster.ray
        calls = {call: each for each in self.members if (call := each.greeting or each.call) is not None}
        if not calls:
            return
        ready, _ = ray.wait(list(calls), num_returns=1, timeout=wait_s)
        if ready:  # and all others that are ready by now
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        now = monotonic()
        for call in ready:
            self.take_in(calls.pop(call), call)
        for member in calls.values():
            patience = self.books._heartbeat_s if member.up else START_S
            if now - member.began > patience:
                self.give_up(member, f"it sent nothing for {patience:g} s", silent=True)

    def take_in(self, member: _Member, call: Any) -> None:
        """Process the result of a player's call.

        Raises:
            GemError: the error of the call.
        """
        exceptions = self.cluster.ray.exceptions
        try:
            found = self.cluster.ray.get(call)
        except exceptions.RayTaskError as error:
            met = _of_node(own_error(error), member.node)
            if not isinstance(met, SandboxFailed):
                raise met from error
            member.kind.unfit[member.node.id] = met
            self.part([member])
        except exceptions.ActorUnavailableError:  # it may be alive, but its node cannot be reached
            self.give_up(member, "it cannot be reached", silent=True)
        except exceptions.RayError as error:
            self.give_up(member, type(error).__name__, silent=False)
        else:
            if isinstance(found, Hello):
                member.greeting = None
                self.hello = found
            else:
                member.call = None
                self.hear(member, found)

    def hear(self, member: _Member, heard: Heard) -> None:
        """Process the episodes of a player.

        Raises:
            GemError: the error that stops the player, after its episodes.
        """
        for number, line in heard.ended:
            trial = member.trials.pop(number, None)
            if trial is not None:
                self.carried -= 1
                run: RunInfo = self.books._run_of(trial.job, trial.agent)
                episode = codec.decode(line, run)
                episode.task = replace(episode.task, foreign=False)  # the player's: it is of this program
                self.books.ended(trial, episode)
        if heard.broken is not None:
            broken: BaseException = pickle.loads(heard.broken)
            if isinstance(broken, Exception):
                raise _of_node(broken, member.node)
            self.give_up(member, f"{type(broken).__name__} ended it", silent=False)

    def give_up(self, member: _Member, why: str, *, silent: bool) -> None:
        """Give a player up; its jobs are played again while their retries last."""
        self.strike(member)
        self.cluster.kill(member.actor)
        node = member.node
        gone = self.nodes.lost(node.id, silent=silent)
        for trial in member.trials.values():
            self.books.lost(trial, f"its player on {node.name} is lost: {why}.", alone=not gone)

    def strike(self, member: _Member) -> None:
        """Remove a player and its trials from the counts."""
        self.members.remove(member)
        member.kind.players -= 1
        self.carried -= len(member.trials)

    # -- spools, and the end

    def collect(self, store: EpisodeStore) -> None:
        """Copy the episodes in the nodes' spools into the store."""
        folder = self.books._spool
        if folder is None:
            return
        self.nodes.look()
        self.used |= self.nodes.living
        ray = self.cluster.ray
        known = ray.put({entry.id for entry in store.select()})
        for parts in [self.cluster.call(read_spool, node, str(folder), known) for node in self.nodes.living]:
            with suppress(ray.exceptions.RayError):  # the node died meanwhile
                for part in parts:
                    for run, line in ray.get(part):
                        with suppress(DuplicateEpisode):
                            store.append(codec.decode(line, codec.decode_run(run)))

    def dismiss(self, *, drop: bool = False) -> None:
        """End every player; their episodes in flight are lost."""
        for kind in self.kinds.values():
            kind.waiting.clear()
        self.part(list(self.members), drop=drop)

    def part(self, members: Sequence[_Member], *, drop: bool = False) -> None:
        """Close players, with `drop` remove their spools, and end them."""
        closing = []
        for member in members:
            self.strike(member)
            with suppress(Exception):
                closing.append(member.actor.close.remote(drop))
        self.cluster.wait_for(closing, CLOSE_S)
        for member in members:
            self.cluster.kill(member.actor)

    def close(self) -> None:
        """End every player, remove the spools, and leave the cluster."""
        try:
            done = {member.node.id for member in self.members if member.up}
            self.dismiss(drop=True)
            folder = self.books._spool
            if folder is not None:
                self.nodes.look()
                left = [node.id for node in self.nodes.open() if node.id in self.used.keys() - done]
                self.cluster.wait_for(
                    [self.cluster.call(drop_spool, node, str(folder)) for node in left], 5.0
                )
        finally:
            self.cluster.close()


# -- on the nodes


def read_spool(folder: str, known: set[str]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the run and stored line of each episode in a folder's spools that is not in `known`."""
    found = sorted(Path(folder).glob("*.jsonl"))
    if found:
        check_own(Path(folder))
    for path in found:
        with EpisodeStore(path, read_only=True) as spool:
            new = [entry.number for entry in spool.select() if entry.id and entry.id not in known]
            for start in range(0, len(new), AT_ONCE):
                episodes = [spool[number] for number in new[start : start + AT_ONCE]]
                yield [(codec.encode_run(episode.run), codec.encode(episode)) for episode in episodes]


def _of_node(error: BaseException, node: Node) -> BaseException:
    """Return a gem error with the name of its node added; others are returned unchanged."""
    return type(error)(f"{error} This was on node {node.name}.") if isinstance(error, GemError) else error


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


class _Spool:
    """The folder on the nodes for ended episodes, used by one store only.

    A file beside the store has its name, so that a resuming driver finds it, and a new store at the same path
    does not.
    """

    def __init__(self, store: EpisodeStore, home: str | Path | None) -> None:
        self._path = store.path.with_name(f"{store.path.name}.spool")
        inode = store.path.stat().st_ino
        with suppress(OSError, ValueError):
            name, of = self._path.read_text(encoding="ascii").split()
            if re.fullmatch("[0-9a-f]{16}", name) and int(of) == inode:
                self.folder = self._in(home, name)
                return
        name = os.urandom(8).hex()
        self._path.write_text(f"{name} {inode}", encoding="ascii")
        self.folder = self._in(home, name)

    @staticmethod
    def _in(home: str | Path | None, name: str) -> Path:
        if home is not None:
            return Path(home) / name
        return Path(tempfile.gettempdir()) / f"gem-gym-spool-{os.getuid()}-{name}"

    def end(self) -> None:
        """Remove the file with the name: the nodes have no more episodes."""
        self._path.unlink(missing_ok=True)
