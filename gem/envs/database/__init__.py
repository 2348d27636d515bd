"""Database environments: questions and operations in SQL, and PostgreSQL tasks through an MCP server."""
