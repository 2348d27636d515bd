"""Upstream's import path and name of a game, which is defined in `gem.envs.games.game_2048`."""

from gem.envs.games.game_2048 import Game2048 as Game2048Env

__all__ = ["Game2048Env"]
