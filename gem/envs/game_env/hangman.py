"""Upstream's import path and name of a game, which is defined in `gem.envs.games.hangman`."""

from gem.envs.games.hangman import Hangman as HangmanEnv

__all__ = ["HangmanEnv"]
