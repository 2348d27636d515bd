"""Upstream's place of CodeEnv; its home is `gem.envs.code`."""

from gem.envs.code.env import CodeBasics, CodeEnv

__all__ = ["CodeBasics", "CodeEnv"]
