"""Upstream's import path and name of a game, which is defined in `gem.envs.games.fifteen_puzzle`."""

from gem.envs.games.fifteen_puzzle import FifteenPuzzle as FifteenPuzzleEnv

__all__ = ["FifteenPuzzleEnv"]
