"""Upstream's import path and name of a game, which is defined in `gem.envs.games.wordle`."""

from gem.envs.games.wordle import Wordle as WordleEnv

__all__ = ["WordleEnv"]
