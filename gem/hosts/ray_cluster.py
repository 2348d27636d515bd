"""A Ray cluster as the runner and the host on Ray use it: the connection, its nodes, and actors on them.

Plain actors, each put on a node that we name: then a node that is not heard of can be left out at once,
where Ray would place the next actor there until its own health check has given the node up. Ray's replacement
of actors is switched off for the same reason: whoever holds an actor decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from gem.errors import BadArgument, missing_extra

OLDEST = (2, 60)
"""The oldest Ray that is known to work."""

EXTRA = "ray"


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
            address: ``auto`` or ``HOST:PORT`` of a cluster that runs; None: the cluster that this process is
                connected to or that RAY_ADDRESS names, else one is started on this machine and ended by
                `close`.

        Raises:
            MissingExtra: without Ray. BadArgument: for a Ray that is too old, inside a worker of somebody
                else's Ray, when there is no cluster at `address`, or this process is connected to another.
        """
        self.ray = ray_module()
        self._ours = not self.ray.is_initialized()
        if not self._ours:
            self._take_over(address)
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            options["include_dashboard"] = False
        try:
            self.ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadArgument(
                f"there is no Ray cluster at {address!r} ({error}); accepted: 'auto' for the one of this "
                "machine, HOST:PORT, or nothing, which starts one here."
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

    def actor(
        self, cls: type, node: str, *args: Any, cores: float = 1.0, threads: int = 4, **options: Any
    ) -> Any:
        """Start an actor on the node of that id, which is not replaced when it dies; return its handle."""
        scheduling = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        return (
            self.ray.remote(cls)
            .options(
                num_cpus=cores,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=threads,
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
