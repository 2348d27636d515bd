"""Upstream's name of a game; its home is `gem.envs.games.sudoku`."""

from gem.envs.games.sudoku import Sudoku as SudokuEnv

__all__ = ["SudokuEnv"]
