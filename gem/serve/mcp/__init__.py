"""One episode as an MCP server: a program observes and acts by tool calls, and cannot start again."""

from gem.serve.mcp.episode import EpisodeServer
from gem.serve.mcp.messages import Endpoint

__all__ = ["Endpoint", "EpisodeServer"]
