"""The part of a RayRunner that plays: an actor near its environments, with a runner of its own.

The driver sends jobs and hears of episodes by one call that is always in flight, `exchange`. It comes back as
soon as an episode has ended, and after `wait_s` in any case, so that it is the heartbeat too. What has ended
stands in the spool, a store on the node's own disk, before the driver hears of it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import stat
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from types import ModuleType
from typing import Any, NamedTuple

from gem import codec
from gem.agents.base import answers_one_by_one
from gem.agents.named import AgentByName
from gem.core import Env
from gem.errors import BadArgument, StoreError
from gem.hosts.ray_cluster import ray_module
from gem.record import Agent, AgentInfo, Episode, Limits
from gem.rollout.episode import versions
from gem.rollout.places import Recipe, maker
from gem.rollout.runner import Agents, Runner, Trial, infos_of
from gem.rollout.store import EpisodeStore
from gem.sandbox import default_sandbox

LINGER_S = 0.005
"""How long an episode that has ended waits for others, so that they travel together: for no more than a
quarter of those in flight, or the player would run out of jobs."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a player is told when it starts."""

    host: str
    limits: Limits
    concurrency: int
    versions: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    spool: str | None = None
    sandbox: bool = False


class Parcel(NamedTuple):
    """Jobs on their way to a player. A recipe travels once: a job's `env` is its name among the recipes.

    `anew`: forget the recipes of before.
    """

    trials: list[Trial]
    recipes: dict[str, Recipe]
    anew: bool = False


class Hello(NamedTuple):
    """What a player says when it is up: who answers, and the process that it is."""

    about: dict[str, AgentInfo]
    pid: int


class Heard(NamedTuple):
    """What an exchange brings: the numbers of jobs, each with its episode's stored line; and what broke."""

    ended: list[tuple[int, bytes]]
    broken: bytes | None


class Player:
    """Plays whole episodes. Its methods are called by the driver, each in a thread of its own."""

    def __init__(self, orders: Orders, agents: bytes) -> None:
        """Keep the orders and the pickled agents; `hello` can tell what is wrong with them."""
        self._orders, self._agents = orders, agents
        self._changed = Condition()
        self._inbox: deque[Trial] = deque()
        self._outbox: list[tuple[int, bytes]] = []
        self._recipes: dict[str, Recipe] = {}
        self._published: tuple[int, Any] | None = None
        self._broken: bytes | None = None
        self._closed = False
        self._thread: Thread | None = None

    def hello(self) -> Hello:
        """Get ready to play.

        Raises:
            SandboxFailed: where the node has no sandbox that isolates, and one is needed. GemError: where it
                lacks what the agent needs, a variable, or the driver's version of gem.
        """
        orders, here = self._orders, versions()
        if here != orders.versions:
            raise BadArgument(
                f"the driver has {dict(orders.versions)}, this node has {here}; make them equal."
            )
        missing = [name for name in orders.secrets if not os.environ.get(name)]
        if missing:
            raise BadArgument(f"this node has no {', '.join(missing)} among its environment variables.")
        if orders.sandbox:
            default_sandbox()  # which tests what it can be on this node
        given, self._agents = pickle.loads(self._agents), b""
        if orders.host == "process":  # whose workers would import what Ray began with
            sys.modules["__main__"] = ModuleType("__main__")
        agent: Agents = (
            {seat: _made(each) for seat, each in given.items()}
            if isinstance(given, Mapping)
            else _made(given)
        )
        self._store = None if orders.spool is None else spool_store(Path(orders.spool))
        self._runner = _NodeRunner(self, agent, orders, self._store)
        self._thread = Thread(target=self._play, args=(answers_one_by_one(agent),), daemon=True)
        self._thread.start()
        return Hello(infos_of(self._runner.agent), os.getpid())

    def exchange(self, parcel: bytes, wait_s: float, version: int | None, weights: Any = None) -> Heard:
        """Take in jobs, and return the episodes that have ended once there is one, or after `wait_s`.

        Args:
            parcel: pickled; its jobs come behind those that wait already.
            wait_s: how long to wait for an episode.
            version: of the policy that is to answer from these jobs on; None: as before.
            weights: what the agents are to load for it.
        """
        try:
            taken = self._unpacked(pickle.loads(parcel))
        except Exception as error:
            why = f"a job cannot be taken up here: {error!r}; its modules must be on every node."
            return Heard([], _pickled(BadArgument(why)))
        with self._changed:
            if version is not None:
                self._published = version, weights
            self._inbox.extend(taken)
            self._changed.notify_all()
            self._runner.wake()
            until = monotonic() + wait_s
            while not self._outbox and self._broken is None and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            if self._outbox and self._broken is None:
                enough = self._runner.concurrency // 4
                self._changed.wait_for(lambda: len(self._outbox) > enough or not self.pending, LINGER_S)
            ended, self._outbox = self._outbox, []
            return Heard(ended, self._broken)

    def _unpacked(self, parcel: Parcel) -> list[Trial]:
        if parcel.anew:
            self._recipes.clear()
        for name, recipe in parcel.recipes.items():
            self._recipes[name] = Portable(recipe) if self._runner.in_processes else recipe
        return [
            replace(trial, job=replace(trial.job, env=self._recipes[str(trial.job.env)]))
            for trial in parcel.trials
        ]

    def close(self, drop: bool) -> None:
        """Close the environments and the spool, and `drop` it; the episodes in flight are lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._runner.close()
            getattr(self._runner.agent, "close", lambda: None)()
            if self._store is not None:
                self._store.close()
                if drop:
                    drop_spool(str(self._store.path.parent))

    # -- the thread that plays

    @property
    def pending(self) -> bool:
        """Whether there is anything to play, or being played."""
        return bool(self._inbox) or self._runner.in_flight > 0

    def next_trial(self) -> Trial | None:
        """Return what is to be played next, after loading what was published; None where there is nothing."""
        with self._changed:
            published, self._published = self._published, None
            trial = self._inbox.popleft() if self._inbox else None
        if published is not None:
            self._runner.publish(*published)
        return trial

    def _play(self, one_by_one: bool) -> None:
        try:
            with asyncio.Runner() as loop:
                self._play_on(loop, one_by_one)
        except BaseException as error:  # the driver is told, whatever it is
            with self._changed:
                self._broken = _pickled(error)
                self._changed.notify_all()

    def _play_on(self, loop: asyncio.Runner, one_by_one: bool) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inbox or self._closed)
                if self._closed:
                    return
            if one_by_one:
                loop.run(self._at_their_own_pace())
            else:
                for number, episode in self._runner._rounds():
                    self._ended(number, episode)

    async def _at_their_own_pace(self) -> None:
        async with aclosing(self._runner._paces()) as played:
            async for number, episode in played:
                self._ended(number, episode)

    def _ended(self, number: int, episode: Episode) -> None:
        line = codec.encode(episode)
        with self._changed:
            self._outbox.append((number, line))
            self._changed.notify_all()


class _NodeRunner(Runner):
    """A runner whose jobs come from the driver, which has done the bookkeeping: keys, attempts, runs."""

    def __init__(self, player: Player, agent: Agents, orders: Orders, store: EpisodeStore | None) -> None:
        super().__init__(
            agent,
            host=orders.host,
            limits=orders.limits,
            concurrency=orders.concurrency,
            retries=0,
            store=store,
        )
        self._player = player
        self.in_processes = orders.host == "process"

    @property
    def in_flight(self) -> int:
        """How many episodes are being played."""
        return self._in_flight

    def wake(self) -> None:
        """Let new jobs begin where every episode in flight waits; called in another thread."""
        pump = self._pump
        if pump is not None and pump.loop is not None and not pump.loop.is_closed():
            pump.loop.call_soon_threadsafe(pump.heard.set)

    def _next(self) -> Trial | None:
        self._check_open()
        if len(self._ended) >= self.concurrency:
            return None
        trial = self._player.next_trial()
        if trial is None:
            return None
        return trial.of(self.agent)


class Portable:
    """A recipe that can go on to another process, where its class is one that came without its module."""

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe."""
        self.func = recipe

    def __call__(self) -> Env:
        """Make the environment."""
        return maker(self.func)()

    def __reduce__(self) -> Any:
        """Pickle it as Ray does: a class that cannot be imported by value."""
        return pickle.loads, (ray_module().cloudpickle.dumps(self.func),)


def spool_store(path: Path) -> EpisodeStore:
    """Open a spool.

    Raises:
        StoreError: when its folder is somebody else's.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(path.parent)
    return EpisodeStore(path)


def drop_spool(folder: str) -> None:
    """Remove the spools in a folder."""
    shutil.rmtree(folder, ignore_errors=True)


def check_own(folder: Path) -> None:
    """Refuse a folder of another user, who could put episodes into it.

    Raises:
        StoreError: when it is one.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StoreError(f"{folder} is not a folder of this user; choose another one for the spool.")


def _made(agent: Agent | AgentByName) -> Agent:
    return agent.made() if isinstance(agent, AgentByName) else agent


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # an exception with a constructor of its own often fails only here
        return pickled
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
