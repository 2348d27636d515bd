"""Upstream's import path and name of a game, which is defined in `gem.envs.games.minesweeper`."""

from gem.envs.games.minesweeper import Minesweeper as MinesweeperEnv

__all__ = ["MinesweeperEnv"]
