"""Upstream's import path of CodeEnv, which is defined in `gem.envs.code`."""

from gem.envs.code.env import CodeBasics, CodeEnv

__all__ = ["CodeBasics", "CodeEnv"]
