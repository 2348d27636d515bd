"""Upstream's name of a game; its home is `gem.envs.games.mastermind`."""

from gem.envs.games.mastermind import Mastermind as MastermindEnv

__all__ = ["MastermindEnv"]
