"""Upstream's place of tasks at a PostgreSQL database behind MCP; ours are `gem.envs.database.mcp`.

The tasks are gem's own: those of MCPMark need its files and its server images.
"""

from gem.envs.database.mcp import McpPostgresEnv as MCPMarkEnv

__all__ = ["MCPMarkEnv"]
