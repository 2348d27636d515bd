"""Upstream's name of a game; its home is `gem.envs.games.sokoban`."""

from gem.envs.games.sokoban import Sokoban as SokobanEnv

__all__ = ["SokobanEnv"]
