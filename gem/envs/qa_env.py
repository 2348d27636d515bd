"""Upstream's import path of QaEnv, which is defined in `gem.envs.qa`."""

from gem.envs.qa.env import FactsEnv, QaEnv

__all__ = ["FactsEnv", "QaEnv"]
