"""Upstream's import path and name of a game, which is defined in `gem.envs.games.guess_the_number`."""

from gem.envs.games.guess_the_number import GuessTheNumber as GuessTheNumberEnv

__all__ = ["GuessTheNumberEnv"]
