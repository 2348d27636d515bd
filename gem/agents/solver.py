"""SolverAgent: expert play by the environment's own solver."""

from __future__ import annotations

from gem.agents.base import BaseAgent


class SolverAgent(BaseAgent):
    """Plays what `Env.solve` returns."""

    verb = "solve"
