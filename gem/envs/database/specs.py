"""The rows of databases: SQLite and PostgreSQL by statements, PostgreSQL behind MCP."""

from __future__ import annotations

from gem.specs import EnvSpec, Needs

DATABASES = ("Airline", "Bank", "Clinic", "Hotel", "Library", "Music", "Shop", "University", "Warehouse")
"""The worlds of `domains`, each with questions and operations."""

SPECS = (
    *(
        EnvSpec(
            f"db:{name}-v0-{kind}",
            "gem.envs.database.env:DatabaseEnv",
            {"domain": name, "kind": kind},
            extra="database",
            max_turns=12,
            waits=True,
            needs=Needs(sandbox=True),
            solver="oracle",
        )
        for name in DATABASES
        for kind in ("questions", "operations")
    ),
    EnvSpec(
        "mcp:Postgres-v0",
        "gem.envs.database.mcp:McpPostgresEnv",
        extra="mcp,postgres",
        max_turns=30,
        deterministic=False,  # the tasks are; names of roles and timings in what is shown are not
        forkable=False,
        waits=True,
        solver="exact",
    ),
)
