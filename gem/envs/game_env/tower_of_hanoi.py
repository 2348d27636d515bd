"""Upstream's name of a game; its home is `gem.envs.games.tower_of_hanoi`."""

from gem.envs.games.tower_of_hanoi import TowerOfHanoi as TowerofHanoiEnv

__all__ = ["TowerofHanoiEnv"]
