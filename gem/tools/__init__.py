"""What agents may call: Python, shell, search, MCP; and the wrapper that gives tools to an environment."""
