"""One episode as an MCP server: a program observes and acts by tool calls, and cannot start again."""

from gem.serve.mcp.episode import EpisodeServer

__all__ = ["EpisodeServer"]
