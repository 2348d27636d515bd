"""Upstream's name of a game; its home is `gem.envs.games.game_2048`."""

from gem.envs.games.game_2048 import Game2048 as Game2048Env

__all__ = ["Game2048Env"]
