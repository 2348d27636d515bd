"""Upstream's import path and name of a game, which is defined in `gem.envs.games.mastermind`."""

from gem.envs.games.mastermind import Mastermind as MastermindEnv

__all__ = ["MastermindEnv"]
