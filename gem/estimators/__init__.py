"""Estimators: returns, advantages and GAE, as pure functions over plain floats.

Each cites its source. Only episodes with a verdict enter the means of a batch: an episode without verdict has
no returns, never returns of 0.
"""

from gem.estimators.advantages import (
    KINDS,
    Kind,
    grpo,
    has_signal,
    rebn,
    reinforce,
    rloo,
    turn_advantages,
    turn_rebn,
    turn_rewards,
)
from gem.estimators.returns import discounted_returns, gae

__all__ = [
    "KINDS",
    "Kind",
    "discounted_returns",
    "gae",
    "grpo",
    "has_signal",
    "rebn",
    "reinforce",
    "rloo",
    "turn_advantages",
    "turn_rebn",
    "turn_rewards",
]
