"""Upstream's name of a game; its home is `gem.envs.games.fifteen_puzzle`."""

from gem.envs.games.fifteen_puzzle import FifteenPuzzle as FifteenPuzzleEnv

__all__ = ["FifteenPuzzleEnv"]
