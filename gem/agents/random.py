"""RandomAgent: random legal actions from the environment's random actor."""

from __future__ import annotations

from gem.agents.base import BaseAgent


class RandomAgent(BaseAgent):
    """An agent that plays `Env.sample_random_action`, seeded with the episode's seed and sample number."""

    verb = "sample_random_action"
