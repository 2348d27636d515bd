"""Serve environments over the network: with OpenEnv's protocol, and with gem's own for gem's clients."""

from gem.serve.environments.limits import ServeLimits

__all__ = ["ServeLimits"]
