"""Upstream's import path of its multi-agent interface; gem's own is `gem.seats`."""

from gem.envs.multiagent.multi_agent_env import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
