"""Upstream's import path and name of a game, which is defined in `gem.envs.games.sudoku`."""

from gem.envs.games.sudoku import Sudoku as SudokuEnv

__all__ = ["SudokuEnv"]
