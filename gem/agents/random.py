"""RandomAgent: legal play drawn by the environment's random actor."""

from __future__ import annotations

from gem.agents.base import BaseAgent


class RandomAgent(BaseAgent):
    """Plays what `Env.sample_random_action` draws, from the episode's seed and its number among samples."""

    verb = "sample_random_action"
