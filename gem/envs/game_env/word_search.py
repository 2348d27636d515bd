"""Upstream's name of a game; its home is `gem.envs.games.word_search`."""

from gem.envs.games.word_search import WordSearch as WordSearchEnv

__all__ = ["WordSearchEnv"]
