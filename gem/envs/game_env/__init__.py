"""Upstream's import paths and class names of the games, which are defined in `gem.envs.games`."""
