"""Upstream's name of a game; its home is `gem.envs.games.wordle`."""

from gem.envs.games.wordle import Wordle as WordleEnv

__all__ = ["WordleEnv"]
