"""Upstream's place of the games, by upstream's class names; their home is `gem.envs.games`."""
