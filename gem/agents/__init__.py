"""Agents: they choose the actions. An agent is any object with the interface `gem.record.Agent`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem.agents.base import BaseAgent as BaseAgent
    from gem.agents.endpoint import Endpoint as Endpoint
    from gem.agents.hugging_face import HuggingFaceAgent as HuggingFaceAgent
    from gem.agents.human import HumanAgent as HumanAgent
    from gem.agents.openai import OpenAIAgent as OpenAIAgent
    from gem.agents.random import RandomAgent as RandomAgent
    from gem.agents.scripted import ScriptedAgent as ScriptedAgent
    from gem.agents.seats import SeatAgents as SeatAgents
    from gem.agents.solver import SolverAgent as SolverAgent
    from gem.agents.tiny import TinyAgent as TinyAgent
    from gem.agents.token_server import TokenServerAgent as TokenServerAgent

_HOMES = {  # imported when first asked for: some need torch, or httpx
    "BaseAgent": "base",
    "Endpoint": "endpoint",
    "HuggingFaceAgent": "hugging_face",
    "HumanAgent": "human",
    "OpenAIAgent": "openai",
    "RandomAgent": "random",
    "ScriptedAgent": "scripted",
    "SeatAgents": "seats",
    "SolverAgent": "solver",
    "TinyAgent": "tiny",
    "TokenServerAgent": "token_server",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
