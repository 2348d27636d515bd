"""A Ray cluster as the runner and the host on Ray use it: the connection, its nodes, and actors on them.

Plain actors, each put on a node that we name: then a node that is not heard of can be left out at once,
where Ray would place the next actor there until its own health check has given the node up. Ray's replacement
of actors is switched off for the same reason: whoever holds an actor decides.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, Self

from gem.errors import BadArgument, missing_extra
from gem.specs import Needs

OLDEST = (2, 60)
"""The oldest Ray that is known to work."""

EXTRA = "ray"

CPU, MEMORY = "CPU", "memory"
"""Ray's names of cores and of bytes of memory."""

THREADS = 4
"""How many calls of an actor may be in flight at a time."""

REACH_S = 5.0
"""How long a cluster may take to be reached."""

LOOK_S = 1.0
"""How often Ray is asked which nodes there are."""

PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""How long after a loss nothing new is started on a node; it doubles with each loss there."""

SILENT_PAUSE_S = 30.0
"""How long nothing is started on a node that is silent, unless Ray says before that it is gone."""


class Node(NamedTuple):
    """A living node: its id, how to name it to a human, and what it has in all, by Ray's names."""

    id: str
    name: str
    resources: Mapping[str, float]


class Cluster:
    """The connection of this process to a Ray cluster; one that this process had before is used as it is."""

    def __init__(self, address: str | None = None) -> None:
        """Connect.

        Args:
            address: ``auto`` or ``HOST:PORT`` of a cluster that runs; ``local`` starts one on this machine,
                which `close` ends; None: the cluster that this process is connected to, that RAY_ADDRESS
                names or that runs on this machine, else ``local``.

        Raises:
            MissingExtra: without Ray. BadArgument: for a Ray that is too old, inside a worker of somebody
                else's Ray, when there is no cluster at `address`, or this process is connected to another.
        """
        self.ray = ray_module()
        self._ours = not self.ray.is_initialized()
        if not self._ours:
            self._take_over(address)
            return
        _check_reachable(address)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == "local":
            options["include_dashboard"] = False
        try:
            self.ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadArgument(
                f"there is no Ray cluster at {address!r} ({error}); accepted: HOST:PORT, 'auto' for the one "
                "of this machine, 'local' to start one here."
            ) from error

    def _take_over(self, address: str | None) -> None:
        context = self.ray.get_runtime_context()
        if context.worker.mode != self.ray.SCRIPT_MODE:
            raise BadArgument(
                "this process is a worker of a Ray cluster already, as inside verl or ROLL; use the serial "
                "or the thread host here, and let the framework do the spreading."
            )
        now = context.gcs_address
        if address not in (None, "auto", now):
            raise BadArgument(f"this process is connected to the Ray cluster at {now}, not at {address!r}.")

    def nodes(self) -> list[Node]:
        """Return the nodes that Ray takes for living."""
        return [
            Node(each["NodeID"], f"{each['NodeManagerHostname']} ({each['NodeID'][:8]})", each["Resources"])
            for each in self.ray.nodes()
            if each["Alive"]
        ]

    def actor(self, cls: type, node: str, *args: Any, reserves: Mapping[str, float]) -> Any:
        """Start an actor on the node of that id, which is not replaced when it dies; return its handle."""
        scheduling = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        others = {name: amount for name, amount in reserves.items() if name not in (CPU, MEMORY)}
        options = {"memory": int(reserves[MEMORY])} if reserves.get(MEMORY) else {}
        return (
            self.ray.remote(cls)
            .options(
                num_cpus=reserves.get(CPU, 0.0),
                resources=others,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=THREADS,
                scheduling_strategy=scheduling,
                **options,
            )
            .remote(*args)
        )

    def call(self, function: Any, node: str, *args: Any) -> Any:
        """Call a function on a node, once; return the reference of what it returns."""
        scheduling = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        remote = self.ray.remote(function)
        return remote.options(num_cpus=0, max_retries=0, scheduling_strategy=scheduling).remote(*args)

    def wait_for(self, calls: list[Any], seconds: float) -> None:
        """Wait until calls have ended, however they did, but no longer than that."""
        if not calls:
            return
        with suppress(Exception):
            self.ray.wait(calls, num_returns=len(calls), timeout=seconds)

    def kill(self, actor: Any) -> None:
        """End an actor, whatever it does."""
        with suppress(Exception):  # it may be gone, and so may its node
            self.ray.kill(actor, no_restart=True)

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here; a connection that was there before stays."""
        if self._ours:
            self._ours = False
            self.ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Refuse an address at which nothing listens; Ray itself goes on trying for minutes.

    Raises:
        BadArgument: where that is so.
    """
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise BadArgument(f"there is no Ray cluster at {address!r}: {error}.") from error


class Nodes:
    """The nodes of a cluster, and which of them are to be left alone for a while.

    Ray notices a lost node late, so a node that nothing is heard of is left alone at once. After the loss of
    an actor a node is left alone for a pause that doubles with each further one.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Know none yet."""
        self.living: dict[str, Node] = {}
        self._cluster = cluster
        self._losses: dict[str, tuple[int, float]] = {}  # how many, and until when the node is left alone
        self._looked = -LOOK_S

    def look(self) -> None:
        """See which nodes there are, unless that was seen a moment ago."""
        now = monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self.living = {node.id: node for node in self._cluster.nodes()}

    def open(self) -> list[Node]:
        """Return the living nodes that are not to be left alone."""
        return [node for node in self.living.values() if not self.pauses(node.id)]

    def fitting(
        self, reserves: Mapping[str, float], taken: Iterable[tuple[str, Mapping[str, float]]]
    ) -> dict[str, int]:
        """Return how many more actors that reserve so much fit on each node that is open.

        Args:
            reserves: what each of them takes, by Ray's names.
            taken: what the actors take that are there already, and on which node.
        """
        left = {node.id: dict(node.resources) for node in self.open()}
        for node_id, amounts in taken:
            for name, amount in amounts.items() if node_id in left else ():
                left[node_id][name] = left[node_id].get(name, 0.0) - amount
        return {node_id: _times(reserves, there) for node_id, there in left.items()}

    def whole(self, reserves: Mapping[str, float]) -> int:
        """Return how many actors that reserve so much the living nodes could hold if they were empty."""
        return sum(_times(reserves, node.resources) for node in self.living.values())

    def pauses(self, node: str) -> bool:
        """Tell whether a node is to be left alone for now."""
        return monotonic() < self._losses.get(node, (0, 0.0))[1]

    def lost(self, node: str, *, silent: bool) -> bool:
        """Note that an actor on a node is lost; return whether the node itself may be lost."""
        now = monotonic()
        count, until = self._losses.get(node, (0, 0.0))
        if now - until > LONGEST_PAUSE_S:
            count = 0
        pause = max(SILENT_PAUSE_S if silent else 0.0, PAUSE_S * 2 ** min(count, 10))
        self._losses[node] = count + 1, max(until, now + min(LONGEST_PAUSE_S, pause))
        self._looked = -LOOK_S
        self.look()
        return silent or node not in self.living


def reserves(needs: Needs, environments: int) -> dict[str, float]:
    """Return what an actor with so many environments reserves, by Ray's names."""
    memory = needs.memory_mb * environments * 2**20
    wanted = {CPU: needs.cores, MEMORY: memory, **needs.resources}
    return {name: float(amount) for name, amount in wanted.items() if amount}


def _times(reserves: Mapping[str, float], there: Mapping[str, float]) -> int:
    """Return how often what is there covers what is reserved; once, where nothing is."""
    return max(0, min((int(there.get(name, 0.0) / amount) for name, amount in reserves.items()), default=1))


def ray_module() -> Any:
    """Return Ray.

    Raises:
        MissingExtra: where it is not installed. BadArgument: where it is too old.
    """
    try:
        import ray
        import ray.util.scheduling_strategies
    except ModuleNotFoundError as error:
        raise missing_extra("playing on Ray", error.name or "ray", EXTRA) from error
    version = tuple(int(part) for part in re.findall(r"\d+", ray.__version__)[:2])
    if version < OLDEST:
        raise BadArgument(f"Ray is {ray.__version__}; accepted: {'.'.join(map(str, OLDEST))} or newer.")
    return ray


def own_error(error: BaseException) -> BaseException:
    """Return what a call on Ray met there, where Ray wraps it; else the error itself."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
