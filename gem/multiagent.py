"""The upstream module path of the multi-agent classes; new code uses `gem.seats`."""

from gem.envs.multiagent import AgentSelector, MultiAgentEnv

__all__ = ["AgentSelector", "MultiAgentEnv"]
