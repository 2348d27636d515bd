"""SqliteEngine and PostgresEngine, which run an agent's SQL in the sandbox or on a server."""

from __future__ import annotations

import json
import time
from functools import cache
from importlib.resources import files
from typing import Any

from gem.envs.database.domains import TODAY
from gem.envs.database.postgres import SHARED, UNREPEATABLE, Database, server
from gem.envs.database.worker import DUMPED, LONGEST, STATEMENTS
from gem.errors import ToolError
from gem.sandbox import default_sandbox, open_sandbox
from gem.sandbox.base import Budget, Sandbox, SandboxFailed, Session, check_result
from gem.tools.postgres import Connection, SqlResult, Statement, statements

_WORKER = "worker.py"
_GRACE_S = 5.0
"""Extra seconds for a call beyond those of its statements, before the sandbox ends it."""


class SqliteEngine:
    """SQLite databases in one session of the sandbox, so that hostile SQL is parsed outside this process.

    Results are lists with one dict per statement: ``columns``, ``rows`` and ``more``, or ``changed``, or
    ``error``.
    """

    def __init__(self, turn_s: float = 2.0, sandbox_type: str | Sandbox | None = None) -> None:
        """Open the session; `turn_s` limits the SQL of one turn in seconds, `sandbox_type` is the backend.

        Raises:
            SandboxFailed: when no sandbox is available; the episode has no verdict.
        """
        self.turn_s = turn_s
        sandbox = open_sandbox(sandbox_type) if sandbox_type else default_sandbox()
        budget = Budget(cpu_s=60.0 + turn_s, wall_s=turn_s + _GRACE_S, memory_mb=512, output_kb=16_384)
        self._session: Session = sandbox.session(budget=budget)
        self._call(_source(), expect_answer=False)

    def open(self, name: str, script: str, *, writable: bool = False, rows: int = 50) -> None:
        """Make a database from a trusted script; `rows` is the largest number of rows of a result."""
        self._call(f"open_database({name!r}, {script!r}, {writable}, {TODAY!r}, {self.turn_s!r}, {rows})")

    def run(self, name: str, sql: str, more: bool = False) -> list[dict[str, Any]]:
        """Run an agent's statements; with `more`, in the time that the last call left of the same turn.

        Raises:
            ToolError: when they exceed the limits of the sandbox; its databases are lost.
        """
        results = self._call(f"run({name!r}, {sql!r}, {more})")
        assert isinstance(results, list)
        return results

    def dump(self, name: str) -> dict[str, list[list[Any]]] | None:
        """Return the rows of every table, or None if there are too many; an open transaction is lost."""
        tables = self._call(f"dump({name!r})")
        assert tables is None or isinstance(tables, dict)
        return tables

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _call(self, code: str, expect_answer: bool = True) -> Any:
        result = check_result(self._session.execute(code))
        if not result.ok or result.cut or result.info.get("restarted"):
            if expect_answer and code.startswith("run("):
                raise ToolError(f"the statements burst the sandbox that they ran in ({result.status})")
            raise SandboxFailed(f"the database engine failed: {result.status} {result.stderr[-500:]}")
        return json.loads(result.stdout) if expect_answer else None


_READS = frozenset({"select", "values", "table"})
_ALLOWED = _READS | {
    *("with", "insert", "update", "delete", "merge", "explain", "show"),
    *("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"),
}
"""First words of the statements that are run; the role's privileges limit what they can reach."""

_CLOCKS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})

_DUMP_S = 30.0

_FULL = 64 * 2**20
"""The largest size of a database on disk in bytes; PostgreSQL itself uses 8 MB of it."""


class PostgresEngine:
    """New databases on a PostgreSQL server; the agent's role has privileges only in its own database.

    Results are as in SqliteEngine.
    """

    def __init__(self, turn_s: float = 2.0, dsn: str | None = None) -> None:
        """Connect to the server; `turn_s` limits the SQL of one turn in seconds, `dsn` is a superuser's.

        Raises:
            MissingExtra, BadArgument, NoVerdict: as `gem.envs.database.postgres.server` does.
        """
        self.turn_s = self._left_s = turn_s
        self._server = server(dsn)
        self._databases: list[Database] = []
        self._read_only: dict[str, Database] = {}
        self._open: dict[str, tuple[Database, Connection, bool, int]] = {}

    def open(self, name: str, script: str, *, writable: bool = False, rows: int = 50) -> None:
        """Make a database from a trusted script; `rows` is the largest number of rows of a result.

        Read-only databases of the same script are shared, whatever their names.
        """
        grant = "SELECT, INSERT, UPDATE, DELETE" if writable else "SELECT"
        database = None if writable else self._read_only.get(script)
        if database is None:
            database = self._server.open(script, grant=grant, revoke=(*SHARED, *UNREPEATABLE))
            self._databases.append(database)
            if not writable:
                self._read_only[script] = database
        if name in self._open:
            self._open[name][1].close()
        self._open[name] = database, Connection(database.dsn), writable, rows

    def run(self, name: str, sql: str, more: bool = False) -> list[dict[str, Any]]:
        """Run an agent's statements up to the first error; with `more`, in the time left of the same turn.

        Raises:
            ToolError: when the database grows beyond its limit.
            NoVerdict: when the server is gone.
        """
        self._left_s = self._left_s if more else self.turn_s
        if len(sql) > LONGEST:
            return [{"error": f"it is {len(sql)} characters long; accepted are {LONGEST}"}]
        database, connection, writable, rows = self._open[name]
        deadline = time.monotonic() + self._left_s
        results: list[dict[str, Any]] = []
        try:
            for statement in statements(sql):
                if len(results) == STATEMENTS:
                    raise ToolError(f"a turn may have {STATEMENTS} statements; the others were not run")
                _check(statement, writable)
                left = max(deadline - time.monotonic(), 0.001)
                cut = statement.words[0] in _READS
                results.append(_plain(connection.run(statement.text, left, rows, cut)))
        except ToolError as error:
            results.append({"error": str(error)})
        self._left_s = max(0.0, deadline - time.monotonic())
        if writable and self._server.size(database.name) > _FULL:
            raise ToolError(f"the statements filled the database beyond {_FULL >> 20} MB")
        return results

    def dump(self, name: str) -> dict[str, list[list[Any]]] | None:
        """Return the rows of every table, or None if there are too many; an open transaction is lost."""
        _, connection, _, _ = self._open[name]
        tables: dict[str, list[list[Any]]] = {}
        size = 0
        try:
            if connection.in_transaction:
                connection.run("ROLLBACK", _DUMP_S)
            named = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            for (table,) in connection.run(named, _DUMP_S).rows:
                result = _plain(connection.run(f'SELECT * FROM public."{table}"', _DUMP_S, DUMPED))
                tables[table] = result["rows"]
                size += len(json.dumps(tables[table]))
                if size > DUMPED or result["more"]:
                    return None
        except ToolError:
            return None
        return tables

    def close(self) -> None:
        """Drop the databases."""
        for _, connection, _, _ in self._open.values():
            connection.close()
        for database in self._databases:
            database.close()
        self._databases, self._read_only, self._open = [], {}, {}


def _check(statement: Statement, writable: bool) -> None:
    """Raise ToolError for a statement other than a query, a change of rows, or a transaction."""
    first = statement.words[0] if statement.words else ""
    if first not in _ALLOWED:
        raise ToolError("only queries, INSERT, UPDATE, DELETE, MERGE and transactions are available here")
    if not writable and first not in _READS | {"with", "explain", "show"}:
        raise ToolError("this database can only be read")
    if clocks := sorted(_CLOCKS.intersection(statement.words)):
        raise ToolError(f"{clocks[0]} is not available here; write DATE '{TODAY}' for today")


def _plain(result: SqlResult) -> dict[str, Any]:
    """Return a result as SqliteEngine gives it; booleans become 1 and 0, as in SQLite."""
    if result.columns is None:
        return {"changed": result.changed}
    rows = [[int(value) if isinstance(value, bool) else value for value in row] for row in result.rows]
    return {"columns": result.columns, "rows": rows, "more": result.more}


@cache
def _source() -> str:
    return files("gem.envs.database").joinpath(_WORKER).read_text(encoding="utf-8")
