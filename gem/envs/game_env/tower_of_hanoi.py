"""Upstream's import path and name of a game, which is defined in `gem.envs.games.tower_of_hanoi`."""

from gem.envs.games.tower_of_hanoi import TowerOfHanoi as TowerofHanoiEnv

__all__ = ["TowerofHanoiEnv"]
