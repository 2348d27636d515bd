"""Upstream's name of a game; its home is `gem.envs.games.hangman`."""

from gem.envs.games.hangman import Hangman as HangmanEnv

__all__ = ["HangmanEnv"]
