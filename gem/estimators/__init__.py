"""Estimators: returns, advantages and GAE, as pure functions over plain floats; and the algorithms.

Each cites its source. Only episodes with a verdict enter the means of a batch: an episode without verdict has
no returns, never returns of 0.
"""

from gem.estimators.advantages import (
    grpo,
    has_signal,
    normalised,
    rebn,
    reinforce,
    rloo,
    turn_rebn,
    turn_rewards,
)
from gem.estimators.algorithms import (
    ALGORITHMS,
    KINDS,
    Algorithm,
    View,
    compare_episodes,
    find_algorithm,
    turn_advantages,
)
from gem.estimators.returns import discounted_returns, gae

__all__ = [
    "ALGORITHMS",
    "KINDS",
    "Algorithm",
    "View",
    "compare_episodes",
    "discounted_returns",
    "find_algorithm",
    "gae",
    "grpo",
    "has_signal",
    "normalised",
    "rebn",
    "reinforce",
    "rloo",
    "turn_advantages",
    "turn_rebn",
    "turn_rewards",
]
