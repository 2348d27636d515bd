"""RandomAgent: legal play drawn by the environment's random actor."""

from __future__ import annotations

from gem.agents.base import BaseAgent


class RandomAgent(BaseAgent):
    """Plays what `Env.sample_random_action` draws. The actor's stream belongs to the episode's seed."""

    verb = "sample_random_action"
