"""Environments with several seats; their home is `gem.envs.multiagent`."""

from gem.envs.multiagent import (
    AgentSelector,
    MultiAgentEnv,
    MultiStart,
    MultiStep,
    SeatedGame,
    SeatEnv,
)

__all__ = ["AgentSelector", "MultiAgentEnv", "MultiStart", "MultiStep", "SeatEnv", "SeatedGame"]
