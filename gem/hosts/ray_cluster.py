"""Connect to a Ray cluster, list its nodes, and start actors on them; used by RayRunner and ModelActor.

Each actor is placed on a named node. So a node that does not respond can be avoided at once, while Ray would
place the next actor there until its own health check fails. For the same reason Ray's restart of actors is
switched off: the owner of an actor decides.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from gem.closing import Closing
from gem.errors import BadArgument, missing_extra
from gem.specs import Needs

OLDEST = (2, 60)
"""The oldest version of Ray that is known to work."""

EXTRA = "ray"

CPU, MEMORY = "CPU", "memory"
"""Ray's names of cores and of bytes of memory."""

THREADS = 4
"""Number of calls of an actor that may be in flight at a time."""

REACH_S = 5.0
"""Seconds to wait for a connection to a cluster."""

LOOK_S = 1.0
"""Seconds between two queries of the nodes."""

PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Seconds after a loss in which no actor starts on a node; they double with each loss there."""

SILENT_PAUSE_S = 30.0
"""Seconds in which no actor starts on a node that does not respond, unless Ray reports it dead before."""


class Node(NamedTuple):
    """A living node: its id, its readable name, and its total resources by Ray's names."""

    id: str
    name: str
    resources: Mapping[str, float]


class Cluster(Closing):
    """The connection of this process to a Ray cluster; an existing connection is reused."""

    def __init__(self, address: str | None = None) -> None:
        """Connect.

        Args:
            address: ``auto`` or ``HOST:PORT`` of a running cluster; ``local`` starts a cluster on this
                machine, which `close` ends; None: the cluster that this process is connected to, that
                RAY_ADDRESS names or that runs on this machine, else ``local``.

        Raises:
            MissingExtra: without Ray. BadArgument: for a Ray that is too old, inside a worker of another
                framework's Ray, when there is no cluster at `address`, or this process is connected to
                another one.
        """
        self.ray = ray_module()
        self._ours = not self.ray.is_initialized()
        if not self._ours:
            self._take_over(address)
            return
        _check_reachable(address)
        config = self.ray.job_config.JobConfig()
        config._py_driver_sys_path = _Nothing()
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "job_config": config}
        if address == "local":
            options["include_dashboard"] = False
        try:
            self.ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadArgument(
                f"there is no Ray cluster at {address!r} ({error}); accepted: HOST:PORT, 'auto' for the one "
                "on this machine, 'local' to start one here."
            ) from error

    def _take_over(self, address: str | None) -> None:
        context = self.ray.get_runtime_context()
        if context.worker.mode != self.ray.SCRIPT_MODE:
            raise BadArgument(
                "this process is a worker of a Ray cluster already, as inside verl or ROLL; use the serial "
                "or the thread host here, and let the framework distribute the work."
            )
        now = context.gcs_address
        if address not in (None, "auto", now):
            raise BadArgument(f"this process is connected to the Ray cluster at {now}, not at {address!r}.")

    def nodes(self) -> list[Node]:
        """Return the nodes that Ray reports as living."""
        return [
            Node(each["NodeID"], f"{each['NodeManagerHostname']} ({each['NodeID'][:8]})", each["Resources"])
            for each in self.ray.nodes()
            if each["Alive"]
        ]

    def actor(self, cls: type, node: str, *args: Any, reserves: Mapping[str, float]) -> Any:
        """Start an actor on the node with this id, without restart when it dies; return its handle."""
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
        """Call a function on a node, once; return the reference of its result."""
        scheduling = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        remote = self.ray.remote(function)
        return remote.options(num_cpus=0, max_retries=0, scheduling_strategy=scheduling).remote(*args)

    def wait_for(self, calls: list[Any], seconds: float) -> None:
        """Wait until calls have ended or failed, for at most `seconds`."""
        if not calls:
            return
        with suppress(Exception):
            self.ray.wait(calls, num_returns=len(calls), timeout=seconds)

    def kill(self, actor: Any) -> None:
        """Kill an actor, even if it is busy."""
        with suppress(Exception):  # it may be gone, and so may its node
            self.ray.kill(actor, no_restart=True)

    def close(self) -> None:
        """Disconnect, and end a cluster that was started here; keep a connection that existed before."""
        if self._ours:
            self._ours = False
            self.ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Refuse an address at which nothing listens, because Ray itself retries for minutes.

    Raises:
        BadArgument: when nothing listens there.
    """
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise BadArgument(f"there is no Ray cluster at {address!r}: {error}.") from error


class Nodes:
    """The nodes of a cluster, some of which are paused: no actor starts on a paused node.

    Ray notices a lost node late, so a node that does not respond is paused at once. After the loss of an
    actor its node is paused too; the pause doubles with each further loss.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Start without known nodes."""
        self.living: dict[str, Node] = {}
        self._cluster = cluster
        self._losses: dict[str, tuple[int, float]] = {}  # number of losses, and end of the pause
        self._looked = -LOOK_S

    def look(self) -> None:
        """Query the nodes, unless that was done a moment ago."""
        now = monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self.living = {node.id: node for node in self._cluster.nodes()}

    def open(self) -> list[Node]:
        """Return the living nodes that are not paused."""
        return [node for node in self.living.values() if not self.pauses(node.id)]

    def fitting(
        self, reserves: Mapping[str, float], taken: Iterable[tuple[str, Mapping[str, float]]]
    ) -> dict[str, int]:
        """Return how many more actors with these resources fit on each node that is not paused.

        Args:
            reserves: the resources of each new actor, by Ray's names.
            taken: the node and the resources of each existing actor.
        """
        left = {node.id: dict(node.resources) for node in self.open()}
        for node_id, amounts in taken:
            for name, amount in amounts.items() if node_id in left else ():
                left[node_id][name] = left[node_id].get(name, 0.0) - amount
        return {node_id: _times(reserves, there) for node_id, there in left.items()}

    def whole(self, reserves: Mapping[str, float]) -> int:
        """Return how many actors with these resources would fit on the living nodes if they were empty."""
        return sum(_times(reserves, node.resources) for node in self.living.values())

    def pauses(self, node: str) -> bool:
        """Return whether a node is paused now."""
        return monotonic() < self._losses.get(node, (0, 0.0))[1]

    def record_loss(self, node: str, *, silent: bool) -> bool:
        """Record that an actor on a node is lost; return whether the node itself may be lost."""
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
    """Return the resources of an actor with this number of environments, by Ray's names."""
    memory = needs.memory_mb * environments * 2**20
    wanted = {CPU: needs.cores, MEMORY: memory, **needs.resources}
    return {name: float(amount) for name, amount in wanted.items() if amount}


def _times(reserves: Mapping[str, float], there: Mapping[str, float]) -> int:
    """Return how many times `reserves` fits into `there`; 1 if nothing is reserved."""
    return max(0, min((int(there.get(name, 0.0) / amount) for name, amount in reserves.items()), default=1))


class _Nothing(list[str]):
    """The folders that Ray is to put first on the nodes' path: none, whatever it adds.

    A ``statistics.py`` of the user's would hide the standard library before gem itself is imported there.
    """

    def extend(self, folders: Iterable[str]) -> None:
        """Ignore the folders."""


def added_folders() -> tuple[str, ...]:
    """Return the folders where nodes look for modules last: that of this program's file, the current one."""
    script = os.path.dirname(os.path.realpath(sys.argv[0]))
    return tuple(dict.fromkeys((*([script] if script in sys.path else []), os.getcwd())))


def look_last_in(folders: Collection[str]) -> None:
    """Make Python look for modules in these folders last, on a node.

    Where another program connected to Ray, they are first.
    """
    sys.path[:] = [each for each in sys.path if each not in folders] + [*folders]


def ray_module() -> Any:
    """Return the module ``ray``.

    Raises:
        MissingExtra: when it is not installed. BadArgument: when it is too old.
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
    """Return the original error of a call on Ray, if Ray wraps it; else the error itself."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
