"""Upstream's name of a game; its home is `gem.envs.games.wiki_game`."""

from gem.envs.games.wiki_game import WikiGame as WikiGameEnv

__all__ = ["WikiGameEnv"]
