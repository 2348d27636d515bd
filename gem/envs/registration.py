"""Upstream's place of the registry; its home is `gem.registry`."""

from gem.registry import ENV_REGISTRY, make, make_vec, print_envs, register
from gem.specs import EnvSpec

__all__ = ["ENV_REGISTRY", "EnvSpec", "make", "make_vec", "print_envs", "register"]
