"""Upstream's place of ReasoningGymEnv; its home is `gem.envs.bridges.reasoning_gym`."""

from gem.envs.bridges.reasoning_gym import ReasoningGymEnv

__all__ = ["ReasoningGymEnv"]
