"""Upstream's import path of PostgreSQL tasks behind MCP, which are defined in `gem.envs.database.mcp`.

The tasks are gem's own. The tasks of MCPMark need its files and its server images.
"""

from gem.envs.database.mcp import McpPostgresEnv as MCPMarkEnv

__all__ = ["MCPMarkEnv"]
