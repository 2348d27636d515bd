"""Upstream's place of MathVisualEnv; its home is `gem.envs.vision`."""

from gem.envs.vision.env import ChartsEnv, GeometryEnv, MathVisualEnv

__all__ = ["ChartsEnv", "GeometryEnv", "MathVisualEnv"]
