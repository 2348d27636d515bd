"""Upstream's name of a game; its home is `gem.envs.games.crosswords`."""

from gem.envs.games.crosswords import Crosswords as CrosswordsEnv

__all__ = ["CrosswordsEnv"]
