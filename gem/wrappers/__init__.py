"""Wrappers: limits, history, transforms and statistics around an environment, for gym-style loops.

There is no order-enforcing wrapper: every environment itself refuses a step before reset, after the end and
after close; see `gem.core.Env`. `gem.rollout.play` needs none of these: it handles limits and history.
"""

from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper
from gem.wrappers.time_limit import TimeLimit
from gem.wrappers.transform import SignedReward, TransformAction, TransformReward
from gem.wrappers.wrapper_factory import WRAPPER_FACTORY, get_wrapper_fns

__all__ = [
    "WRAPPER_FACTORY",
    "EpisodeTrackingWrapper",
    "ObservationWrapper",
    "SignedReward",
    "TimeLimit",
    "TransformAction",
    "TransformReward",
    "get_wrapper_fns",
]
