"""AsyncVectorEnv: the upstream name for a `VectorEnv` that steps environments in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem.hosts.base import Recipe
from gem.vector.vector_env import VectorEnv


class AsyncVectorEnv(VectorEnv):
    """A VectorEnv on the thread host."""

    def __init__(self, env_ids: Sequence[str], env_fns: Sequence[Recipe], **kwargs: Any) -> None:
        """Make every environment; `env_ids` are its names, `kwargs` go to VectorEnv."""
        super().__init__(env_fns, "thread", **kwargs)
        self.env_ids = list(env_ids)
