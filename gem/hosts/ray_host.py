"""The Ray host: step heavy environments that run in actors on the nodes of a cluster.

Each call goes over the network, which takes about a millisecond. So this is for environments that take many
times longer, or that need another machine. For cheap ones, use `gem.rollout.RayRunner`: it plays whole
episodes on the nodes.

All calls for a worker at one time are one message. A worker answers as soon as a call has finished, with all
finished outcomes, and after POLL_S in any case: a worker that is silent for longer is given up.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue
from threading import Condition, Thread
from time import monotonic, sleep
from typing import Any

from gem.errors import BadArgument, WorkerDied
from gem.hosts.base import Command, Host, Outcome, Recipe, Slot, carry_out, overdue
from gem.hosts.processes import packed, received
from gem.hosts.ray_cluster import Cluster, Node, Nodes, added_folders, look_last_in, reserves
from gem.registry import Maker
from gem.source_files import with_sources
from gem.specs import Needs

POLL_S = 1.0
"""Seconds that a worker waits for a call to finish before it answers without outcomes."""

SILENT_S = 5.0
"""Seconds that a running worker may be silent."""

START_S = 60.0
"""Seconds that a worker may take to start, and for which a cluster may have no node for one."""

CLOSE_S = 2.0
"""Seconds that a worker may take to close its environments; then it is killed."""

FLUSH_S = 0.002
"""Seconds that finished outcomes may wait for the rest of their message."""

_REMOVE = ""
"""Sent in place of a verb to close and remove an environment."""


class RayHost(Host):
    """A host with Ray actors; each has a share of the environments and runs its calls one by one.

    Each added environment starts an actor until there are `workers` of them; after that, a new environment
    goes to the actor with the fewest. Each actor reserves the resources of one of its environments. An actor
    that dies, or whose call takes longer than `call_s`, is replaced, on a node that responds. Its calls in
    flight return WorkerDied; so does the next call of its other environments, unless it is a reset.
    """

    def __init__(
        self, call_s: float | None = None, workers: int | None = None, *, address: str | None = None
    ) -> None:
        """Connect to the cluster; the first added environment starts the first actor.

        Args:
            call_s: seconds that a call may take.
            workers: the most actors; None: one per core of the cluster.
            address: see `gem.hosts.ray_cluster.Cluster`.

        Raises:
            BadArgument: for less than one worker, or no cluster. MissingExtra: without Ray.
        """
        super().__init__(call_s)
        if workers is not None and workers < 1:
            raise BadArgument(f"workers is {workers}; accepted: 1 or more, or None for one per core.")
        self._cluster = Cluster(address)
        self._nodes = Nodes(self._cluster)
        self._most = workers
        self._workers: list[_Worker] = []
        self._homes: dict[int, _Worker] = {}
        self._recipes: dict[int, bytes] = {}
        self._made: set[int] = set()  # environments whose worker has the recipe
        self._lost: set[int] = set()  # environments of dead workers; their callers do not know yet
        self._done: list[Outcome] = []

    # -- environments

    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        self._recipes[index] = self._pickled(index, recipe)
        needs = recipe.spec.needs if isinstance(recipe, Maker) else Needs()
        shared = [worker for worker in self._workers if not worker.alone and worker.needs == needs]
        worker = min(shared, key=lambda each: len(each.envs), default=None)
        if alone or worker is None or (worker.envs and len(shared) < self._room(needs)):
            worker = _Worker(self._cluster, self._node(needs), needs, alone)
            self._workers.append(worker)
        worker.envs.add(index)
        self._homes[index] = worker

    def _remove(self, index: int) -> None:
        worker = self._homes.pop(index)
        worker.envs.discard(index)
        del self._recipes[index]
        self._lost.discard(index)
        if worker.alone:
            self._workers.remove(worker)
            self._made.discard(index)
            worker.end()
        else:
            self._unmake(index, worker)

    def _renew(self, index: int, recipe: Recipe | None) -> None:
        if recipe is not None:
            self._recipes[index] = self._pickled(index, recipe)
        self._lost.discard(index)
        self._unmake(index, self._homes[index])

    def _unmake(self, index: int, worker: _Worker) -> None:
        """Make the worker close an environment, if it was made, with its next message."""
        if index in self._made:
            self._made.discard(index)
            worker.later.append((index, _REMOVE, (), {}, None))

    def _room(self, needs: Needs) -> int:
        """Return the limit on workers for such environments."""
        self._nodes.look()
        taken = [
            (worker.node.id, reserves(worker.needs, 1)) for worker in self._workers if worker.needs != needs
        ]
        there = sum(self._nodes.fitting(reserves(needs, 1), taken).values())
        return self._most or max(1, there)

    def _node(self, needs: Needs) -> Node:
        """Return the node for another worker: the one with the most free resources.

        Raises:
            BadArgument: when no node has what the environment needs. WorkerDied: when no node responds.
        """
        until = monotonic() + START_S
        takes = reserves(needs, 1)
        while True:
            self._nodes.look()
            if self._nodes.living and not self._nodes.whole(takes):
                raise BadArgument(f"no node of the cluster has what an environment needs: {needs}.")
            taken = [(worker.node.id, reserves(worker.needs, 1)) for worker in self._workers]
            room = self._nodes.fitting(takes, taken)
            if room:
                return self._nodes.living[max(room, key=lambda node: room[node])]
            if monotonic() > until:
                raise WorkerDied(f"the cluster has had no node for a worker for {START_S:g} s.")
            sleep(0.1)

    def _pickled(self, index: int, recipe: Recipe) -> bytes:
        try:
            return self._cluster.ray.cloudpickle.dumps(recipe)  # type: ignore[no-any-return]
        except Exception as error:
            raise BadArgument(
                f"the recipe of env {index} cannot be sent to another node: {error}."
            ) from error

    # -- calls

    def _start(self, commands: Sequence[Command]) -> None:
        shares: dict[_Worker, list[tuple[Any, ...]]] = {}
        lost = self._lost.intersection([c[0] for c in commands if c[1] != "reset"]) if self._lost else ()
        for index, verb, args, kwargs in commands:
            if index not in lost:
                recipe = None if index in self._made else self._recipes[index]
                shares.setdefault(self._homes[index], []).append((index, verb, args, kwargs, recipe))
        messages = [  # may raise
            with_sources(pickle.dumps([*worker.later, *share])) for worker, share in shares.items()
        ]
        for (worker, share), message in zip(shares.items(), messages, strict=True):
            worker.later.clear()
            indices = [call[0] for call in share]
            worker.send(message, indices)
            self._made.update(indices)
        self._done += [Outcome(index, None, WorkerDied(f"the worker of env {index} died.")) for index in lost]
        self._lost.difference_update([command[0] for command in commands])

    def _finished(self, at_least: int, timeout: float | None) -> list[Outcome]:
        until = monotonic() + timeout if timeout is not None else float("inf")
        while True:
            calls = {call: worker for worker in self._workers for call in worker.calls}
            if calls:
                short = len(self._done) < at_least
                patience = min(POLL_S, max(0.0, until - monotonic())) if short else 0.0
                if self.call_s is not None:
                    patience = min(patience, self.call_s / 4)
                ready, _ = self._cluster.ray.wait(list(calls), num_returns=1, timeout=patience)
                if ready:  # and all others that are ready by now
                    ready, _ = self._cluster.ray.wait(list(calls), num_returns=len(calls), timeout=0)
                for call in ready:
                    self._read(calls[call], call)
            for worker in list(self._workers):
                self._check(worker)
            if len(self._done) >= at_least or monotonic() >= until:
                done, self._done = self._done, []
                return done

    def _read(self, worker: _Worker, call: Any) -> None:
        """Process a message of a worker, or its death."""
        if call not in worker.calls:  # it was replaced meanwhile
            return
        exceptions = self._cluster.ray.exceptions
        try:
            message = self._cluster.ray.get(call)
        except exceptions.ActorUnavailableError:
            self._replace(worker, WorkerDied("this environment's worker cannot be reached."), silent=True)
            return
        except exceptions.RayError as error:
            self._replace(worker, WorkerDied(f"the worker of this environment died: {error}"), silent=False)
            return
        worker.calls.remove(call)
        worker.heard, worker.up = monotonic(), True
        try:
            outcomes = [Outcome(i, value, received(error)) for i, value, error in pickle.loads(message)]
        except Exception as error:  # it is unknown to which call the result belongs
            why = WorkerDied(f"the worker's message cannot be loaded: {error}")
            self._replace(worker, why, silent=None)
            return
        if outcomes:
            worker.progress = monotonic()
        worker.in_flight.difference_update([outcome[0] for outcome in outcomes])
        self._done += outcomes
        if worker.in_flight and not worker.calls:
            worker.ask()

    def _check(self, worker: _Worker) -> None:
        """Give up a worker that is silent, or whose call takes too long."""
        if not worker.in_flight:
            return
        now = monotonic()
        if worker.calls and now - worker.heard > (SILENT_S if worker.up else START_S):
            self._replace(worker, WorkerDied("the worker of this environment is silent."), silent=True)
        elif self.call_s is not None and worker.up and now - worker.progress > self.call_s:
            self._replace(worker, overdue("a call", self.call_s), silent=None)

    def _replace(self, worker: _Worker, error: WorkerDied, *, silent: bool | None) -> None:
        """Replace a worker's actor by another one; `silent` None: its node is not the cause."""
        self._cluster.kill(worker.actor)
        if silent is not None:
            self._nodes.lost(worker.node.id, silent=silent)
        self._lost |= worker.envs & self._made - worker.in_flight
        self._made -= worker.envs
        self._done += [Outcome(index, None, error) for index in sorted(worker.in_flight)]
        worker.start(self._node(worker.needs))

    def _close(self) -> None:
        try:
            self._cluster.wait_for([worker.actor.close.remote() for worker in self._workers], CLOSE_S)
            for worker in self._workers:
                self._cluster.kill(worker.actor)
            self._workers.clear()
        finally:
            self._cluster.close()


class _Worker:
    """The caller's side of an actor, and of its replacement when it dies."""

    def __init__(self, cluster: Cluster, node: Node, needs: Needs, alone: bool) -> None:
        self.cluster, self.needs, self.alone = cluster, needs, alone
        self.envs: set[int] = set()
        self.start(node)

    def start(self, node: Node) -> None:
        self.node = node
        # A separate worker for a single environment must not wait for a free core.
        takes = reserves(Needs(cores=0.0) if self.alone else self.needs, 1)
        self.actor = self.cluster.actor(Worker, node.id, added_folders(), reserves=takes)
        self.in_flight: set[int] = set()
        self.later: list[tuple[Any, ...]] = []  # commands for the next message
        self.calls: list[Any] = []
        self.up = False
        self.heard = self.progress = monotonic()

    def send(self, message: bytes, indices: Sequence[int]) -> None:
        now = monotonic()
        if not self.calls:
            self.heard = now
        if not self.in_flight:
            self.progress = now
        self.in_flight.update(indices)
        self.calls.append(self.actor.exchange.remote(message))

    def ask(self) -> None:
        """Ask for the next outcomes."""
        self.calls.append(self.actor.exchange.remote(b""))

    def end(self) -> None:
        closing = self.actor.close.remote()
        self.cluster.wait_for([closing], CLOSE_S)
        self.cluster.kill(self.actor)


class Worker:
    """The class of the actor: a thread runs the calls, and each answer returns all finished outcomes."""

    def __init__(self, last: tuple[str, ...]) -> None:
        """Start without environments; folders in `last` go to the end of Python's path."""
        look_last_in(last)
        self._inbox: SimpleQueue[list[Any] | None] = SimpleQueue()
        self._changed = Condition()
        self._outbox: list[Outcome] = []
        self._waiting = 0  # calls that have not been carried out
        self._slots: dict[int, Slot] = {}
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def exchange(self, message: bytes) -> bytes:
        """Accept calls; return finished outcomes as soon as there are any, or after POLL_S."""
        batch = pickle.loads(message) if message else []
        with self._changed:
            self._waiting += sum(verb != _REMOVE for _, verb, *_ in batch)
            if batch:
                self._inbox.put(batch)
            self._changed.wait_for(lambda: self._outbox or not self._waiting, POLL_S)
            if self._outbox:
                self._changed.wait_for(lambda: not self._waiting, FLUSH_S)
            done, self._outbox = self._outbox, []
        return packed(done)

    def close(self) -> None:
        """Close the environments after the call in flight."""
        self._inbox.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._inbox.get()) is not None:
            for index, verb, args, kwargs, recipe in batch:
                if verb == _REMOVE:
                    self._slots.pop(index).close()
                    continue
                if recipe is not None:
                    self._slots[index] = Slot(partial(_made_from, recipe))
                outcome = carry_out(self._slots[index], (index, verb, args, kwargs))
                with self._changed:
                    self._outbox.append(outcome)
                    self._waiting -= 1
                    self._changed.notify_all()
        for slot in self._slots.values():
            slot.close()


def _made_from(recipe: bytes) -> Any:
    return pickle.loads(recipe)()
