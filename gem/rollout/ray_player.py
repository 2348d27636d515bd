"""Player: the Ray actor of a RayRunner that plays episodes, with its own runner and environments.

The driver sends jobs and receives episodes through one call that is always in flight, `exchange`. The call
returns as soon as an episode has ended, and after `wait_s` in any case, so it also serves as heartbeat. Ended
episodes are written to the spool, a store on the node's own disk, before the driver receives them.
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
from gem.hosts.ray_cluster import look_last_in, ray_module
from gem.record import Agent, AgentInfo, Episode, Limits
from gem.rollout.episode import versions
from gem.rollout.places import Recipe, maker
from gem.rollout.runner import Agents, Runner, Trial, infos_of
from gem.rollout.store import EpisodeStore
from gem.sandbox import default_sandbox

LINGER_S = 0.005
"""Seconds that an ended episode waits for others, to be sent together: for at most a quarter of those in
flight, so that the player does not run out of jobs."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The settings that a player gets when it starts.

    `last`: folders of Python's path on the node that are to be at its end.
    """

    host: str
    limits: Limits
    concurrency: int
    versions: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    spool: str | None = None
    sandbox: bool = False
    last: tuple[str, ...] = ()


class Parcel(NamedTuple):
    """A message of jobs to a player. A recipe is sent once: a job's `env` is its name among the recipes.

    `anew`: forget all earlier recipes.
    """

    trials: list[Trial]
    recipes: dict[str, Recipe]
    anew: bool = False


class Hello(NamedTuple):
    """The first message of a player: its agents, and its process id."""

    about: dict[str, AgentInfo]
    pid: int


class Heard(NamedTuple):
    """The result of an exchange: job numbers with the stored lines of their episodes, and an error if any."""

    ended: list[tuple[int, bytes]]
    broken: bytes | None


class Player:
    """An actor that plays whole episodes. The driver calls its methods, each in a separate thread."""

    def __init__(self, orders: Orders, agents: bytes) -> None:
        """Keep the orders and the pickled agents; `hello` checks them."""
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
            SandboxFailed: when the node needs an isolating sandbox and has none. GemError: when it lacks
                packages of the agent, an environment variable, or the driver's version of gem.
        """
        look_last_in(self._orders.last)
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
        if orders.host == "process":  # its workers would import the main module of Ray's worker
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
        """Accept jobs, and return ended episodes as soon as there is one, or after `wait_s`.

        Args:
            parcel: a pickled Parcel; its jobs are queued after those that already wait.
            wait_s: seconds to wait for an episode.
            version: the policy version for these jobs and later ones; None: unchanged.
            weights: the weights of that version, for the agents to load.
        """
        try:
            taken = self._unpacked(pickle.loads(parcel))
        except Exception as error:
            why = f"a job cannot be unpickled here: {error!r}; its modules must be on every node."
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
        """Close the environments and the spool; with `drop`, remove the spool. Running episodes are lost."""
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
        """Whether a job waits or is being played."""
        return bool(self._inbox) or self._runner.in_flight > 0

    def next_trial(self) -> Trial | None:
        """Return the next trial to play, after loading published weights; None if there is none."""
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
        except BaseException as error:  # any error is sent to the driver
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
    """A runner with jobs from the driver, which has already set keys, attempts and runs."""

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
        """The number of episodes in flight."""
        return self._in_flight

    def wake(self) -> None:
        """Start new jobs while every episode in flight waits; called from another thread."""
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
    """A recipe that can be pickled again for another process, even if its class has no importable module."""

    def __init__(self, recipe: Recipe) -> None:
        """Keep the recipe."""
        self.func = recipe

    def __call__(self) -> Env:
        """Make the environment."""
        return maker(self.func)()

    def __reduce__(self) -> Any:
        """Pickle it as Ray does: classes that cannot be imported are pickled by value."""
        return pickle.loads, (ray_module().cloudpickle.dumps(self.func),)


def spool_store(path: Path) -> EpisodeStore:
    """Open a spool.

    Raises:
        StoreError: when its folder belongs to another user.
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
        StoreError: when it belongs to another user.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StoreError(f"{folder} is not a folder of this user; choose another one for the spool.")


def _made(agent: Agent | AgentByName) -> Agent:
    return agent.made() if isinstance(agent, AgentByName) else agent


def _pickled(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # an exception with its own constructor often fails only here
        return pickled
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
