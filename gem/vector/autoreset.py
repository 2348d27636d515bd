"""Auto-reset: the one function that runs next to an environment, on every host, and when it does what.

It stands apart from VectorEnv so that worker processes need not import numpy.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Any

from gem.core import Env
from gem.vector.host import failure_of


class AutoresetMode(StrEnum):
    """When the next episode of an environment begins."""

    SAME_STEP = "same_step"
    """With the step that ends the last one: obs is the new episode's first, the old end is in info."""

    NEXT_STEP = "next_step"
    """With the step after: its action is ignored, its reward is 0."""

    DISABLED = "disabled"
    """When the caller resets it; stepping it before that raises."""

    @classmethod
    def _missing_(cls, value: object) -> AutoresetMode | None:
        """Accept other spellings of the same words, as ``SameStep``."""
        plain = str(value).lower().replace("_", "")
        return next((mode for mode in cls if mode.value.replace("_", "") == plain), None)


def advance(env: Env, action: str, next_seed: int | None) -> tuple[Any, ...]:
    """Step `env`; where that ends its episode and `next_seed` is given, begin the next one.

    When the next episode breaks in its reset, the end of this one stands: obs is None, and the failure is
    ``info["error"]``.
    """
    step = env.step(action)
    obs, reward, terminated, truncated, info = step
    if next_seed is None or not (terminated or truncated):
        return step
    final = {"final_obs": obs, "final_info": info}
    try:
        obs, info = env.reset(seed=next_seed)
    except Exception as error:
        failure = asdict(failure_of(error))
        return None, reward, terminated, truncated, {**final, "error": failure}
    return obs, reward, terminated, truncated, {**info, **final}


def introduce(env: Env) -> tuple[str | None, int | None]:
    """Return the id and the seed of `env`."""
    return env.env_id, env.seed
