"""Upstream's place of MathEnv; its home is `gem.envs.math`."""

from gem.envs.math.env import ArithmeticEnv, MathEnv, WordProblemsEnv

__all__ = ["ArithmeticEnv", "MathEnv", "WordProblemsEnv"]
