"""Registry entries of the database environments: SQL on a small database, and PostgreSQL through MCP."""

from __future__ import annotations

from gem.specs import EnvSpec, Needs

DATABASES = ("Airline", "Bank", "Clinic", "Hotel", "Library", "Music", "Shop", "University", "Warehouse")
"""The domains, each with questions and operations."""

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
        deterministic=False,  # the tasks are deterministic; role names and timings in observations are not
        forkable=False,
        waits=True,
        solver="exact",
    ),
)
