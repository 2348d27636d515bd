"""Upstream's import path of ReasoningGymEnv, which is defined in `gem.envs.bridges.reasoning_gym`."""

from gem.envs.bridges.reasoning_gym import ReasoningGymEnv

__all__ = ["ReasoningGymEnv"]
