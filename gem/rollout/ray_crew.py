"""Crew: the driver of a RayRunner. It starts players, sends them trials, and receives episodes.

A player that died, or sent nothing for `heartbeat_s`, is given up. Each of its episodes counts as broken by
infrastructure, and is played again elsewhere while `retries` last. A new player replaces it after a pause,
which doubles with each loss on the same node; a node that does not respond gets no new player.
"""

from __future__ import annotations

import functools
import pickle
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any

from gem import codec
from gem.errors import BadArgument, DuplicateEpisode, GemError, WorkerDied
from gem.hosts.ray_cluster import CPU, Cluster, Node, Nodes, added_folders, own_error, reserves
from gem.record import Episode, Failure
from gem.rollout.episode import versions
from gem.rollout.jobs import Job, Trial, spec_of
from gem.rollout.options import RunOptions
from gem.rollout.places import Recipe, expected_task, maker, pool_key
from gem.rollout.ray_player import Hello, Orders, Parcel, Player, Report
from gem.rollout.ray_spool import Spool, drop_spool, read_spool
from gem.rollout.schedule import Numbered, Schedule
from gem.rollout.store import EpisodeStore
from gem.rollout.trials import Trials
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

BACKLOG = 16
"""Limit on jobs that wait for players of another kind, as a multiple of the episodes in flight."""

STAY_S = 10.0
"""Shortest life in seconds of a player that has jobs, even if another kind of player needs its place."""

RECIPES = 4096
"""Number of recipes that a player keeps; beyond that, it forgets all."""

AHEAD = 0.25
"""Extra jobs for a player, as a share of those that it plays, so that it does not have to wait."""


class Kind:
    """Trials that the same players can play: they have equal needs, and are all separate or all shared."""

    def __init__(self, needs: Needs, careful: bool) -> None:
        """Start without trials and players."""
        self.needs, self.careful = needs, careful
        self.waiting: deque[Trial] = deque()
        self.players = 0
        self.unfit: dict[str, GemError] = {}  # nodes that cannot play it, and why


@dataclass(eq=False)
class Member:
    """The driver's end of a player."""

    actor: Any
    node: Node
    room: int  # trials that it may have at a time
    kind: Kind
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
        """Whether it has started."""
        return self.greeting is None


class Sender:
    """The objects that are sent to players, pickled."""

    def __init__(self, ray: Any, agents: Any) -> None:
        """Keep the agents, which are sent to each node once."""
        self.published: tuple[int, Any] | None = None
        """The version published last, and the Ray reference of its weights."""
        self._ray, self._agents = ray, agents
        self._recipes: dict[Any, tuple[str, Recipe]] = {}  # name and recipe, by pool_key

    @functools.cached_property
    def agents(self) -> Any:
        """The Ray reference of the agents, which may hold a model.

        Raises:
            BadArgument: when they cannot be sent.
        """
        return self._ray.put(self._pack(self._agents, "the agent"))

    def publish(self, version: int, weights: Any) -> None:
        """Send weights, if there are any, with the next jobs of every player."""
        self.published = version, None if weights is None else self._ray.put(weights)

    def forget_recipes(self) -> bool:
        """Forget all recipes where they are too many; return whether that is so."""
        if len(self._recipes) <= RECIPES:
            return False
        self._recipes.clear()
        return True

    def parcel(self, trials: Sequence[Trial], member: Member) -> bytes:
        """Return trials in the form for a player: with the recipes that it lacks.

        Raises:
            BadArgument: when they cannot be sent.
        """
        sent: list[Trial] = []
        new: dict[str, Recipe] = {}
        for trial in trials:
            recipe = trial.job.env
            key = pool_key(recipe)
            if key not in self._recipes:  # this keeps the recipe alive, as a key may be its address in memory
                self._recipes[key] = f"@{len(self._recipes)}", maker(recipe)
            name, made = self._recipes[key]
            if name not in member.has:
                new[name] = made
            sent.append(replace(trial, job=replace(trial.job, env=name), agent=None))  # type: ignore[arg-type]
        packed = self._pack(Parcel(sent, new, member.anew), "a job")
        member.has.update(new)
        member.anew = False
        return packed

    def _pack(self, what: Any, name: str) -> bytes:
        """Return an object pickled, including functions and classes of the main module and of named files.

        Raises:
            BadArgument: when it cannot be pickled.
        """
        try:
            return with_sources(self._ray.cloudpickle.dumps(what))
        except Exception as error:
            raise BadArgument(f"{name} cannot be sent to another node: {error!r:.300}") from error


class Crew:
    """The players of a runner."""

    def __init__(
        self,
        cluster: Cluster,
        schedule: Schedule,
        trials: Trials,
        options: RunOptions,
        sender: Sender,
        *,
        players: int | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        secrets: tuple[str, ...] = (),
        spool: Spool | None = None,
    ) -> None:
        """Start without players; for the arguments see RayRunner."""
        self.host = str(options.host)
        """The host for each player's environments."""
        self.members: list[Member] = []
        self._cluster, self._schedule, self._trials, self._options = cluster, schedule, trials, options
        self.sender = sender
        self._most, self._heartbeat_s, self._secrets = players, heartbeat_s, secrets
        self._folder = None if spool is None else spool.folder
        self._kinds: dict[tuple[str, bool], Kind] = {}
        self._nodes = Nodes(cluster)
        self._used: dict[str, Node] = {}  # nodes that may have a spool
        self._hello: Hello | None = None  # the last first message of a player
        self._given = 0  # trials that players have

    # -- the main loop

    def run(self) -> Iterator[Numbered]:
        """Play until no trial is left, and yield the results."""
        schedule = self._schedule
        while True:
            yield from schedule.results()
            while not self._full and (trial := schedule.next()) is not None:
                trial = replace(trial, run=self._trials.run_of(trial))
                self._kind_of(trial.job, trial.alone).waiting.append(trial)
            if schedule.idle:
                return
            self._hire()
            self._give()
            self._listen(0.1)

    @property
    def _full(self) -> bool:
        """Whether players have, or get next, enough trials, or too many wait for their kind of player."""
        kinds = self._kinds.values()
        served = self._given + sum(len(kind.waiting) for kind in kinds if kind.players)
        waiting = sum(len(kind.waiting) for kind in kinds if not kind.players)
        most = self._options.concurrency
        return served >= most * (1 + AHEAD) or waiting >= most * BACKLOG

    def first_hello(self, job: Job) -> Hello:
        """Return the first message of the first player for a job.

        Raises:
            GemError: the error that kept it from starting. BadArgument: when none starts.
        """
        until = monotonic() + START_S
        kind = self._kind_of(job, False)
        while True:
            self._hire(kind)
            self._listen(0.1)
            if self._hello is not None:
                return self._hello
            if not self.members:  # the node is paused, or there is none
                sleep(0.1)
            if monotonic() > until:
                raise BadArgument(
                    f"no player started within {START_S:g} s; the cluster needs free resources for one, and "
                    f"has {len(self._nodes.living)} nodes."
                )

    def _kind_of(self, job: Job, careful: bool) -> Kind:
        """Return the kind of players that can play a job."""
        spec = spec_of(job.env)
        needs = Needs() if spec is None else spec.needs
        key = repr(needs), careful
        if key not in self._kinds:
            self._kinds[key] = Kind(needs, careful)
        return self._kinds[key]

    # -- starting players

    def _hire(self, first: Kind | None = None) -> None:
        """Start players where resources are free and trials wait, or for the kind `first`."""
        self._nodes.look()
        for kind in self._kinds.values():
            if kind.waiting or kind is first:
                self._hire_for(kind)

    def _hire_for(self, kind: Kind) -> None:
        """Start players of one kind.

        Raises:
            GemError: when no node can play it; the message has the reason.
        """
        nodes, concurrency = self._nodes, self._options.concurrency
        takes = reserves(kind.needs, 1)
        whole = nodes.whole(takes)
        if nodes.living and not kind.players:
            if not whole:
                raise BadArgument(f"no node of the cluster has what an environment needs: {kind.needs}.")
            if kind.unfit.keys() >= nodes.living.keys():
                raise next(reversed(kind.unfit.values()))
        most = 1 if kind.careful else min(whole, self._most or whole, concurrency)
        share = -(-concurrency // max(1, min(whole, self._most or whole)))
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
            self._start(nodes.living[max(room, key=lambda each: room[each])], kind, share, takes)
        if not kind.players and nodes.open():
            self._make_room()

    def _make_room(self) -> None:
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

    def _start(self, node: Node, kind: Kind, concurrency: int, takes: Mapping[str, float]) -> None:
        """Start a player."""
        orders = Orders(
            host="process" if kind.careful else self.host,
            limits=self._options.limits,
            concurrency=concurrency,
            versions=versions(),
            secrets=self._secrets,
            spool=None if self._folder is None else str(self._folder / f"{node.id}.jsonl"),
            sandbox=kind.needs.sandbox,
            last=added_folders(),
        )
        actor = self._cluster.actor(Player, node.id, orders, self.sender.agents, reserves=takes)
        room = concurrency + max(1, int(concurrency * AHEAD))
        self.members.append(
            Member(actor, node, room, kind, takes, monotonic(), greeting=actor.hello.remote())
        )
        kind.players += 1
        self._used[node.id] = node

    # -- sending jobs and receiving episodes

    def _give(self) -> None:
        """Send waiting trials to players that have started, and ask them for ended episodes."""
        for member in list(self.members):
            if not member.up or member.call is not None:
                continue
            if member.leaving and not member.trials:
                self._part([member])
                continue
            waiting = member.kind.waiting
            taken: list[Trial] = []
            while waiting and not member.leaving and len(member.trials) + len(taken) < member.room:
                taken.append(waiting.popleft())
            if not taken and not member.trials:
                continue
            if self.sender.forget_recipes():
                for each in self.members:
                    each.has.clear()
                    each.anew = True
            try:
                packed = self.sender.parcel(taken, member)
            except BaseException:
                waiting.extendleft(reversed(taken))
                raise
            version, weights = None, None
            published = self.sender.published
            if published is not None and published[0] != member.version:
                version, weights = published
                member.version = version
            member.trials.update((trial.number, trial) for trial in taken)
            self._given += len(taken)
            member.began = monotonic()
            member.call = member.actor.exchange.remote(packed, POLL_S, version, weights)

    def publish(self, version: int, weights: Any) -> None:
        """Make every player load weights, or only their version, with its next jobs."""
        self.sender.publish(version, weights)
        for member in self.members:
            member.version = None

    def _listen(self, wait_s: float) -> None:
        """Receive the messages of players, and give up silent players.

        Raises:
            GemError: the error that stops a player.
        """
        ray = self._cluster.ray
        calls = {call: each for each in self.members if (call := each.greeting or each.call) is not None}
        if not calls:
            return
        ready, _ = ray.wait(list(calls), num_returns=1, timeout=wait_s)
        if ready:  # and all others that are ready by now
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        now = monotonic()
        for call in ready:
            self._take(calls.pop(call), call)
        for member in calls.values():
            patience = self._heartbeat_s if member.up else START_S
            if now - member.began > patience:
                self._give_up(member, f"it sent nothing for {patience:g} s", silent=True)

    def _take(self, member: Member, call: Any) -> None:
        """Process the result of a player's call.

        Raises:
            GemError: the error of the call.
        """
        exceptions = self._cluster.ray.exceptions
        try:
            message = self._cluster.ray.get(call)
        except exceptions.RayTaskError as error:
            own = _of_node(own_error(error), member.node)
            if not isinstance(own, SandboxFailed):
                raise own from error
            member.kind.unfit[member.node.id] = own
            self._part([member])
        except exceptions.ActorUnavailableError:  # it may be alive, but its node cannot be reached
            self._give_up(member, "it cannot be reached", silent=True)
        except exceptions.RayError as error:
            self._give_up(member, type(error).__name__, silent=False)
        else:
            if isinstance(message, Hello):
                member.greeting = None
                self._hello = message
            else:
                member.call = None
                self._read(member, message)

    def _read(self, member: Member, report: Report) -> None:
        """Process the episodes of a player.

        Raises:
            GemError: the error that stops the player, after its episodes.
        """
        for number, line in report.ended:
            trial = member.trials.pop(number, None)
            if trial is not None:
                self._given -= 1
                episode = codec.decode(line, self._trials.run_of(trial))
                episode.task = replace(episode.task, foreign=False)  # the player's: it is of this program
                self._end(trial, episode)
        if report.error is not None:
            error: BaseException = pickle.loads(report.error)
            if isinstance(error, Exception):
                raise _of_node(error, member.node)
            self._give_up(member, f"{type(error).__name__} ended it", silent=False)

    def _end(self, trial: Trial, episode: Episode, *, alone: bool = True) -> None:
        """Store the episode of a trial, and report it; `alone`: see Schedule.end."""
        if self._options.store is not None:
            with suppress(DuplicateEpisode):  # a spool had it
                self._options.store.append(episode)
        self._schedule.end(trial, episode, alone=alone)

    def _give_up(self, member: Member, why: str, *, silent: bool) -> None:
        """Give a player up; its jobs are played again while their retries last."""
        self._strike(member)
        self._cluster.kill(member.actor)
        node = member.node
        node_lost = self._nodes.record_loss(node.id, silent=silent)
        for trial in member.trials.values():
            job = trial.job
            episode = Episode(
                replace(expected_task(maker(job.env)), seed=job.seed),
                self._trials.run_of(trial),
                trial.key,
                job.sample,
                trial.attempt,
                salt=job.salt,
                group=job.group,
                error=Failure("host", WorkerDied.__name__, f"its player on {node.name} is lost: {why}."),
            )
            self._end(trial, episode, alone=not node_lost)

    def _strike(self, member: Member) -> None:
        """Remove a player and its trials from the counts."""
        self.members.remove(member)
        member.kind.players -= 1
        self._given -= len(member.trials)

    # -- spools, and the end

    def collect(self, store: EpisodeStore) -> None:
        """Copy the episodes in the nodes' spools into the store."""
        if self._folder is None:
            return
        nodes, ray = self._nodes, self._cluster.ray
        nodes.look()
        self._used |= nodes.living
        known = ray.put({entry.id for entry in store.select()})
        folder = str(self._folder)
        for parts in [self._cluster.call(read_spool, node, folder, known) for node in nodes.living]:
            with suppress(ray.exceptions.RayError):  # the node died meanwhile
                for part in parts:
                    for run, line in ray.get(part):
                        with suppress(DuplicateEpisode):
                            store.append(codec.decode(line, codec.decode_run(run)))

    def dismiss(self, *, drop: bool = False) -> None:
        """End every player; their episodes in flight are lost. `drop`: remove their spools."""
        for kind in self._kinds.values():
            kind.waiting.clear()
        self._part(list(self.members), drop=drop)

    def _part(self, members: Sequence[Member], *, drop: bool = False) -> None:
        """Close players, with `drop` remove their spools, and end them."""
        closing = []
        for member in members:
            self._strike(member)
            with suppress(Exception):
                closing.append(member.actor.close.remote(drop))
        self._cluster.wait_for(closing, CLOSE_S)
        for member in members:
            self._cluster.kill(member.actor)

    def close(self) -> None:
        """End every player, remove the spools, and leave the cluster."""
        try:
            done = {member.node.id for member in self.members if member.up}
            self.dismiss(drop=True)
            if self._folder is not None:
                self._nodes.look()
                left = [node.id for node in self._nodes.open() if node.id in self._used.keys() - done]
                folder = str(self._folder)
                self._cluster.wait_for([self._cluster.call(drop_spool, node, folder) for node in left], 5.0)
        finally:
            self._cluster.close()


def _of_node(error: BaseException, node: Node) -> BaseException:
    """Return a gem error with the name of its node added; others are returned unchanged."""
    return type(error)(f"{error} This was on node {node.name}.") if isinstance(error, GemError) else error
