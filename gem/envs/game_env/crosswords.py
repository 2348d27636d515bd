"""Upstream's import path and name of a game, which is defined in `gem.envs.games.crosswords`."""

from gem.envs.games.crosswords import Crosswords as CrosswordsEnv

__all__ = ["CrosswordsEnv"]
