"""Upstream's import path and name of a game, which is defined in `gem.envs.games.word_search`."""

from gem.envs.games.word_search import WordSearch as WordSearchEnv

__all__ = ["WordSearchEnv"]
