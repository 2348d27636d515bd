"""Vector environments: `VectorEnv` steps many environments together, on a host of `gem.hosts`."""

from gem.vector.vector_env import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, make_vec

__all__ = ["AsyncVectorEnv", "AutoresetMode", "SyncVectorEnv", "VectorEnv", "make_vec"]
