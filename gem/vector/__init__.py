"""Vectors of environments: `VectorEnv`, and the hosts that say where environments live."""

from gem.vector.host import Host, Outcome, make_host

__all__ = ["Host", "Outcome", "make_host"]
