"""Environments over the network: OpenEnv's protocol, and gem's own verbs for gem's clients."""

from gem.serve.environments.limits import ServeLimits

__all__ = ["ServeLimits"]
