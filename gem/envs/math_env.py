"""Upstream's import path of MathEnv, which is defined in `gem.envs.math`."""

from gem.envs.math.env import ArithmeticEnv, MathEnv, WordProblemsEnv

__all__ = ["ArithmeticEnv", "MathEnv", "WordProblemsEnv"]
