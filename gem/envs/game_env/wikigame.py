"""Upstream's import path and name of a game, which is defined in `gem.envs.games.wiki_game`."""

from gem.envs.games.wiki_game import WikiGame as WikiGameEnv

__all__ = ["WikiGameEnv"]
