"""Upstream's import path of the registry, which is defined in `gem.registry`."""

from typing import TYPE_CHECKING, Any

from gem.registry import ENV_REGISTRY, make, print_envs, register
from gem.specs import EnvSpec

if TYPE_CHECKING:
    from gem.vector import make_vec

__all__ = ["ENV_REGISTRY", "EnvSpec", "make", "make_vec", "print_envs", "register"]


def __getattr__(name: str) -> Any:
    if name == "make_vec":  # imported at first use, because it needs more modules
        from gem.vector import make_vec

        return make_vec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
