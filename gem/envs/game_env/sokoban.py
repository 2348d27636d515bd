"""Upstream's import path and name of a game, which is defined in `gem.envs.games.sokoban`."""

from gem.envs.games.sokoban import Sokoban as SokobanEnv

__all__ = ["SokobanEnv"]
