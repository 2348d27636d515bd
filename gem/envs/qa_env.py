"""Upstream's place of QaEnv; its home is `gem.envs.qa`."""

from gem.envs.qa.env import FactsEnv, QaEnv

__all__ = ["FactsEnv", "QaEnv"]
