"""Vector environments: `VectorEnv` steps many environments together, on a host of `gem.hosts`."""

from gem.vector.async_vector_env import AsyncVectorEnv
from gem.vector.sync_vector_env import SyncVectorEnv
from gem.vector.vector_env import AutoresetMode, VectorEnv, make_vec

__all__ = ["AsyncVectorEnv", "AutoresetMode", "SyncVectorEnv", "VectorEnv", "make_vec"]
