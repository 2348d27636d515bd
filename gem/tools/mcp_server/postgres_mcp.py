"""A server for a PostgreSQL database: it describes the schema and runs SQL.

GEM_POSTGRES_MCP_DSN names the database; its role decides what is allowed. There is one connection, so
transactions and SET last from call to call. Start a server for each session, over stdio.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from gem.errors import NoVerdict
from gem.errors import ToolError as Failed
from gem.tools.mcp_server import serve, server
from gem.tools.postgres import Connection, SqlResult

VARIABLE = "GEM_POSTGRES_MCP_DSN"
STATEMENT_S = 10.0
"""Seconds that one statement may take."""

SHOWN_ROWS, SHOWN_CHARS = 100, 500
"""The limits of a shown result: rows, and characters per value."""

app = server("postgres", "A PostgreSQL database: its objects, and SQL.")

from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402  (after server(), which names the extra)
from mcp.shared.exceptions import MCPError  # noqa: E402

T = TypeVar("T")
_INTERNAL_ERROR = -32603

_SCHEMAS = """
SELECT nspname AS schema, pg_catalog.pg_get_userbyid(nspowner) AS owner FROM pg_catalog.pg_namespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY 1"""

_OBJECTS = """
SELECT c.relname AS name, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table'
  WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' ELSE 'foreign table' END
  AS kind
FROM pg_catalog.pg_class c WHERE c.relnamespace = $schema AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
UNION ALL SELECT p.proname || '(' || pg_catalog.pg_get_function_identity_arguments(p.oid) || ')',
  CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END
FROM pg_catalog.pg_proc p WHERE p.pronamespace = $schema
UNION ALL SELECT t.typname, 'type' FROM pg_catalog.pg_type t
WHERE t.typnamespace = $schema AND t.typtype IN ('e', 'd') ORDER BY 2, 1"""

_ABOUT = {
    "Columns": """
      SELECT a.attname AS "column", pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
        CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS "null",
        CASE WHEN a.attidentity <> '' THEN 'identity' WHEN a.attgenerated <> '' THEN 'generated: ' ELSE '' END
        || coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') AS "default"
      FROM pg_catalog.pg_attribute a
      LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      WHERE a.attrelid = $it AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum""",
    "Constraints": """
      SELECT conname AS name, pg_catalog.pg_get_constraintdef(oid) AS definition
      FROM pg_catalog.pg_constraint WHERE conrelid = $it ORDER BY 1""",
    "Referred to by": """
      SELECT conrelid::pg_catalog.regclass AS "table", pg_catalog.pg_get_constraintdef(oid) AS definition
      FROM pg_catalog.pg_constraint WHERE confrelid = $it ORDER BY 2""",
    "Indexes": """
      SELECT pg_catalog.pg_get_indexdef(indexrelid) AS definition
      FROM pg_catalog.pg_index WHERE indrelid = $it ORDER BY 1""",
    "Triggers": """
      SELECT pg_catalog.pg_get_triggerdef(oid) AS definition
      FROM pg_catalog.pg_trigger WHERE tgrelid = $it AND NOT tgisinternal ORDER BY 1""",
    "Policies": """
      SELECT polname AS name, polcmd AS command, polroles::pg_catalog.regrole[] AS roles,
        pg_catalog.pg_get_expr(polqual, polrelid) AS "using",
        pg_catalog.pg_get_expr(polwithcheck, polrelid) AS "check"
      FROM pg_catalog.pg_policy WHERE polrelid = $it ORDER BY 1""",
    "Partitions": """
      SELECT c.oid::pg_catalog.regclass AS name, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bounds
      FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = $it ORDER BY c.relname""",
    "Privileges": """
      SELECT coalesce(g.rolname, 'PUBLIC') AS "role", a.privilege_type AS privilege
      FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
      LEFT JOIN pg_catalog.pg_roles g ON g.oid = a.grantee
      WHERE c.oid = $it AND a.grantee <> c.relowner ORDER BY 1, 2""",
    "Definition": """
      SELECT pg_catalog.pg_get_viewdef(oid, true) AS definition
      FROM pg_catalog.pg_class WHERE oid = $it AND relkind IN ('v', 'm')""",
}
"""The queries that describe a relation, by heading; empty results are left out."""


@cache
def _connection() -> Connection:
    """Return the connection, which the first call opens; listing the tools does not need it."""
    dsn = os.environ.get(VARIABLE)
    if not dsn:
        raise NoVerdict(
            f"{VARIABLE} is not set; wanted is the dsn of the database, as 'host=... user=... dbname=...'"
        )
    return Connection(dsn, "postgres_mcp")


def _ask(question: Callable[[Connection], T]) -> T:
    """Query the database; if the database server is gone, raise a protocol error, not an answer."""
    try:
        return question(_connection())
    except Failed as error:
        raise ToolError(str(error)) from error
    except NoVerdict as error:
        raise MCPError(code=_INTERNAL_ERROR, message=str(error)) from error


def _run(sql: str) -> SqlResult:
    return _ask(lambda connection: connection.run(sql, STATEMENT_S, SHOWN_ROWS))


def _quote(text: str) -> str:
    """Return a text as an SQL literal that means the same under every setting of the session."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@app.tool()
async def list_schemas() -> str:
    """List the schemas of the database and their owners."""
    return _table(_run(_SCHEMAS))


@app.tool()
async def list_objects(schema: str) -> str:
    """List the tables, views, sequences, functions and types of a schema."""
    namespace = _run(f"SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = {_quote(schema)}")
    if not namespace.rows:
        raise ToolError(f"there is no schema {schema!r:.80}; list_schemas tells which there are.")
    return _table(_run(_OBJECTS.replace("$schema", str(namespace.rows[0][0]))))


@app.tool()
async def describe(name: str) -> str:
    """Describe a table or view, named as schema.name: columns, constraints, indexes, triggers, privileges."""
    oid = _run(f"SELECT pg_catalog.to_regclass({_quote(name)})::pg_catalog.oid").rows[0][0]
    if oid is None:
        raise ToolError(f"there is no table or view {name!r:.80}; list_objects tells which there are.")
    parts = {about: _run(query.replace("$it", str(oid))) for about, query in _ABOUT.items()}
    return "\n\n".join(f"{about}:\n{_table(result)}" for about, result in parts.items() if result.rows)


@app.tool()
async def execute_sql(sql: str) -> str:
    """Run one SQL statement of any kind. A transaction begun by BEGIN lasts until COMMIT or ROLLBACK."""
    result = _run(sql)
    if result.columns is not None:
        return _table(result)
    return f"Done; {result.changed} row{'s' * (result.changed != 1)} changed." if result.changed else "Done."


@app.tool()
async def explain(sql: str, analyze: bool = False) -> str:
    """Show the plan of a statement; with analyze it is also run, and undone if no transaction is open."""
    if not analyze:
        return _lines(_run(f"EXPLAIN {sql}"))

    def undone(connection: Connection) -> SqlResult:
        alone = not connection.in_transaction
        if alone:
            connection.run("BEGIN", STATEMENT_S)
        try:
            return connection.run(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", STATEMENT_S, SHOWN_ROWS)
        finally:
            if alone and connection.in_transaction:
                connection.run("ROLLBACK", STATEMENT_S)

    return _lines(_ask(undone))


def _lines(result: SqlResult) -> str:
    return "\n".join(str(row[0]) for row in result.rows)


def _table(result: SqlResult) -> str:
    """Return a result as text."""
    lines = [" | ".join(result.columns or ())]
    lines += [" | ".join(map(_cell, row)) for row in result.rows]
    count = f"more than {len(result.rows)}" if result.more else str(len(result.rows))
    return "\n".join([*lines, f"({count} row{'' if count == '1' else 's'})"])


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


if __name__ == "__main__":
    serve(app)
