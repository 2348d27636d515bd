"""Upstream's import path of MathVisualEnv, which is defined in `gem.envs.vision`."""

from gem.envs.vision.env import ChartsEnv, GeometryEnv, MathVisualEnv

__all__ = ["ChartsEnv", "GeometryEnv", "MathVisualEnv"]
