"""Upstream's name of a game; its home is `gem.envs.games.guess_the_number`."""

from gem.envs.games.guess_the_number import GuessTheNumber as GuessTheNumberEnv

__all__ = ["GuessTheNumberEnv"]
