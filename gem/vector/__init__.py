"""Vectors of environments: `VectorEnv`, and the hosts that say where environments live."""

from importlib import import_module
from typing import Any

from gem.vector.host import Host, Outcome, make_host

__all__ = ["Host", "Outcome", "make_host"]

_UPSTREAM = {
    "AsyncVectorEnv": "async_vector_env",
    "AutoresetMode": "autoreset",
    "SyncVectorEnv": "sync_vector_env",
    "VectorEnv": "vector_env",
}


def __getattr__(name: str) -> Any:
    """Return a name that upstream has here; lazily, because a worker needs the host alone, not numpy."""
    if name in _UPSTREAM:
        return getattr(import_module(f"gem.vector.{_UPSTREAM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
