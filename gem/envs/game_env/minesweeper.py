"""Upstream's name of a game; its home is `gem.envs.games.minesweeper`."""

from gem.envs.games.minesweeper import Minesweeper as MinesweeperEnv

__all__ = ["MinesweeperEnv"]
