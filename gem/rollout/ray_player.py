"""Player: the Ray actor of a RayRunner that plays episodes, with its own runner and environments.

The driver sends jobs and receives episodes through one call that is always in flight, `exchange`. The call
returns as soon as an episode has ended, and after `wait_s` in any case, so it also serves as heartbeat. Ended
episodes are written to the spool, a store on the node's own disk, before the driver receives them.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from types import ModuleType
from typing import Any, NamedTuple, Self

from gem import codec
from gem.agents.base import answers_one_by_one
from gem.agents.named import AgentByName
from gem.core import Env
from gem.errors import BadArgument
from gem.hosts.ray_cluster import look_last_in, ray_module
from gem.record import Agent, AgentInfo, Episode, Limits
from gem.rollout.episode import versions
from gem.rollout.jobs import Agents, Trial
from gem.rollout.places import Recipe, maker
from gem.rollout.ray_spool import drop_spool, spool_store
from gem.rollout.runner import Runner
from gem.rollout.trials import infos_of
from gem.sandbox import default_sandbox
from gem.trust import note_addresses

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


class Report(NamedTuple):
    """The result of an exchange: job numbers with the stored lines of their episodes, and an error if any."""

    ended: list[tuple[int, bytes]]
    error: bytes | None


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
        self._error: bytes | None = None
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
        note_addresses(orders.host)  # whoever named it is the driver's to say
        if orders.host == "process":  # its workers would import the main module of Ray's worker
            sys.modules["__main__"] = ModuleType("__main__")
        agent: Agents = (
            {seat: _make(each) for seat, each in given.items()}
            if isinstance(given, Mapping)
            else _make(given)
        )
        self._store = None if orders.spool is None else spool_store(Path(orders.spool))
        self._runner = Runner(
            agent,
            host=orders.host,
            limits=orders.limits,
            concurrency=orders.concurrency,
            retries=0,
            store=self._store,
        )
        self._thread = Thread(target=self._play, args=(answers_one_by_one(agent),), daemon=True)
        self._thread.start()
        return Hello(infos_of(self._runner.agent), os.getpid())

    def exchange(self, parcel: bytes, wait_s: float, version: int | None, weights: Any = None) -> Report:
        """Accept jobs, and return ended episodes as soon as there is one, or after `wait_s`.

        Args:
            parcel: a pickled Parcel; its jobs are queued after those that already wait.
            wait_s: seconds to wait for an episode.
            version: the policy version for these jobs and later ones; None: unchanged.
            weights: the weights of that version, for the agents to load.
        """
        try:
            taken = self._unpack(pickle.loads(parcel))
        except Exception as error:
            why = f"a job cannot be unpickled here: {error!r}; its modules must be on every node."
            return Report([], _pickle(BadArgument(why)))
        with self._changed:
            if version is not None:
                self._published = version, weights
            self._inbox.extend(taken)
            self._changed.notify_all()
            self._runner.wake()
            until = monotonic() + wait_s
            while not self._outbox and self._error is None and (left := until - monotonic()) > 0:
                self._changed.wait(left)
            if self._outbox and self._error is None:
                enough = self._orders.concurrency // 4
                self._changed.wait_for(lambda: len(self._outbox) > enough or not self._pending, LINGER_S)
            ended, self._outbox = self._outbox, []
            return Report(ended, self._error)

    def _unpack(self, parcel: Parcel) -> list[Trial]:
        if parcel.anew:
            self._recipes.clear()
        for name, recipe in parcel.recipes.items():
            self._recipes[name] = Portable(recipe) if self._orders.host == "process" else recipe
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
    def _pending(self) -> bool:
        """Whether a job waits or is being played."""
        return bool(self._inbox) or self._runner.in_flight > 0

    def __iter__(self) -> Self:
        """Return self: the jobs of the runner's stream are the trials that have come."""
        return self

    def __next__(self) -> Any:
        """Return the next trial, after loading published weights.

        Raises:
            StopIteration: while there is none; more may come later.
        """
        with self._changed:
            published, self._published = self._published, None
            trial = self._inbox.popleft() if self._inbox else None
        if published is not None:
            self._runner.publish(*published)
        if trial is None:
            raise StopIteration
        return trial

    def _play(self, one_by_one: bool) -> None:
        try:
            with asyncio.Runner() as loop:
                self._play_on(loop, one_by_one)
        except BaseException as error:  # any error is sent to the driver
            with self._changed:
                self._error = _pickle(error)
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
                for number, episode in self._runner.stream_numbered(self):
                    self._report(number, episode)

    async def _at_their_own_pace(self) -> None:
        async with aclosing(self._runner.stream_numbered_async(self)) as played:
            async for number, episode in played:
                self._report(number, episode)

    def _report(self, number: int, episode: Episode) -> None:
        line = codec.encode(episode)
        with self._changed:
            self._outbox.append((number, line))
            self._changed.notify_all()


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


def _make(agent: Agent | AgentByName) -> Agent:
    return agent.make() if isinstance(agent, AgentByName) else agent


def _pickle(error: BaseException) -> bytes:
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # an exception with its own constructor often fails only here
        return pickled
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
