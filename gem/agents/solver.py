"""SolverAgent: expert actions from the environment's own solver."""

from __future__ import annotations

from gem.agents.base import BaseAgent


class SolverAgent(BaseAgent):
    """An agent that plays the action of `Env.solve`."""

    verb = "solve"
