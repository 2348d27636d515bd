"""Tools that agents can call (Python, shell, search, MCP), and the wrapper that adds them to an environment.

Names are imported on first use, so importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem.tools.base_tool import BaseTool, FunctionTool, ToolResult, tool
    from gem.tools.mcp_tool import MCPTool
    from gem.tools.python_code_tool import PythonCodeTool
    from gem.tools.search_tool import SearchTool
    from gem.tools.shell_tool import ShellTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

_HOMES = {
    "BaseTool": "base_tool",
    "FunctionTool": "base_tool",
    "MCPTool": "mcp_tool",
    "PythonCodeTool": "python_code_tool",
    "SearchTool": "search_tool",
    "ShellTool": "shell_tool",
    "ToolEnvWrapper": "tool_env_wrapper",
    "ToolResult": "base_tool",
    "tool": "base_tool",
}

__all__ = [
    "BaseTool",
    "FunctionTool",
    "MCPTool",
    "PythonCodeTool",
    "SearchTool",
    "ShellTool",
    "ToolEnvWrapper",
    "ToolResult",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
