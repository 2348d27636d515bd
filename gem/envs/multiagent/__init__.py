"""Upstream's place of its contract for several agents; ours is `gem.seats`."""

from gem.envs.multiagent.multi_agent_env import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
