"""Databases: questions and operations in SQL, and PostgreSQL behind MCP."""
