"""Environments with several seats, and the wrapper that makes an ordinary environment of one seat."""

from gem.envs.multiagent.multi_agent_env import AgentSelector, MultiAgentEnv, MultiStart, MultiStep
from gem.envs.multiagent.seat_env import SeatEnv
from gem.envs.multiagent.seated_game import SeatedGame

__all__ = ["AgentSelector", "MultiAgentEnv", "MultiStart", "MultiStep", "SeatEnv", "SeatedGame"]
