"""Code that runs inside the sandbox: it opens SQLite databases and runs untrusted SQL with limits.

It is read as text and executed in a session's first cell, so it uses only the standard library and imports
nothing of gem. Each call prints one line of JSON.
"""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"}
)
READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
WRITES = frozenset(
    {
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
    }
)
REFUSED = frozenset({"load_extension", "random", "randomblob", "fts3_tokenizer"})
"""Functions that reach outside the database, or whose result changes from call to call."""

LONGEST = 20_000
"""The most characters of SQL in one turn."""

STATEMENTS = 50

PAGES = 8192
"""The largest size of a database, in pages of 4 KiB."""

DUMPED = 4_000_000
"""The most characters of JSON in a dump; a larger state cannot be the one that was asked for."""

TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<end>;)|'[^']*'?|"[^"]*"?|`[^`]*`?|\[[^\]]*\]?|\s+|.""",
    re.DOTALL,
)

FIELD = re.compile(r"%(?:%|[-+ 0,#!]*(\*|\d*)(?:\.(\*|\d*))?)")
"""A field of printf(), with its width and precision."""

databases: dict[str, "SqliteDatabase"] = {}


class SqliteDatabase:
    """A database in memory, with limits for statements."""

    def __init__(self, script: str, writable: bool, now: str, seconds: float, rows: int) -> None:
        self.now, self.seconds, self.rows, self.writable = now, seconds, rows, writable
        self.why = ""
        self.deadline = 0.0
        self.left = seconds
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        # An agent can store text that is not UTF-8.
        self.connection.text_factory = lambda text: text.decode("utf-8", "replace")
        self.connection.executescript(script)
        self.connection.execute("PRAGMA foreign_keys=ON")
        self.connection.execute("PRAGMA temp_store=MEMORY")
        self.connection.execute(f"PRAGMA max_page_count={PAGES}")
        self.connection.execute("PRAGMA hard_heap_limit=134217728")
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, 50_000),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            self.connection.setlimit(limit, value)
        self.clock = sqlite3.connect(":memory:")
        for name in ("date", "time", "datetime", "julianday", "unixepoch", "strftime"):
            self.connection.create_function(name, -1, self.make_date_function(name))
        for name in ("printf", "format"):
            self.connection.create_function(name, -1, self.write_text, deterministic=True)
        self.connection.set_progress_handler(lambda: time.monotonic() > self.deadline, 1000)

    def make_date_function(self, name: str) -> Callable[..., Any]:
        """Return a date function whose 'now' is the task's day, so that a transcript can be repeated."""

        def function(*args: Any) -> Any:
            texts = [a.decode("utf-8", "replace") if isinstance(a, bytes) else a for a in args]
            given = [self.now if isinstance(a, str) and a.strip().lower() == "now" else a for a in texts]
            if not given or (name == "strftime" and len(given) == 1):
                given.append(self.now)
            marks = ",".join("?" * len(given))
            return self.clock.execute(f"SELECT {name}({marks})", given).fetchone()[0]

        return function

    def write_text(self, *args: Any) -> Any:
        """Return SQLite's own printf(), but of no width for which it would count for seconds."""
        form = args[0] if args and isinstance(args[0], str) else ""
        for size in (size or "" for field in FIELD.finditer(form) for size in field.groups()):
            if size == "*" or len(size) > 4:
                self.why = "a width in printf() may have 4 digits, and not be *"
                raise ValueError(self.why)
        return self.clock.execute(f"SELECT printf({','.join('?' * len(args))})", args).fetchone()[0]

    def authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        """Return whether a statement may do something; `why` keeps the reason for the agent."""
        if action in READS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            called = str(second).lower()
            if called.startswith("current_"):
                self.why = "use date('now') for today"
            elif called in REFUSED:
                self.why = f"{called}() is not available here"
            else:
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and str(first).lower() in PRAGMAS:
            return sqlite3.SQLITE_OK
        if action in WRITES and self.writable and not str(first).startswith("sqlite_"):
            return sqlite3.SQLITE_OK
        if action in WRITES and not self.writable:
            self.why = "this database can only be read"
        elif action == sqlite3.SQLITE_PRAGMA:
            self.why = f"PRAGMA {first} is not available here; there are {', '.join(sorted(PRAGMAS))}"
        else:  # CREATE and DROP, which begin with a write to a table of SQLite's own
            self.why = "only queries, INSERT, UPDATE and DELETE are available here"
        return sqlite3.SQLITE_DENY

    def run(self, sql: str, more: bool) -> list[dict[str, Any]]:
        """Run the statements of `sql` up to the first error, in the time that the turn has left."""
        self.left = self.left if more else self.seconds
        if len(sql) > LONGEST:
            return [{"error": f"it is {len(sql)} characters long; accepted are {LONGEST}"}]
        results: list[dict[str, Any]] = []
        self.connection.set_authorizer(self.authorize)
        self.deadline = time.monotonic() + self.left
        try:
            for statement in split(sql):
                if len(results) == STATEMENTS:
                    results.append(
                        {"error": f"a turn may have {STATEMENTS} statements; the others were not run"}
                    )
                    break
                self.why = ""
                results.append(self.result(self.connection.execute(statement)))
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, ValueError) as error:
            results.append({"error": self.complaint(error)})
        finally:
            self.connection.set_authorizer(None)
            self.left = max(0.0, self.deadline - time.monotonic())
        return results

    def result(self, cursor: sqlite3.Cursor) -> dict[str, Any]:
        """Return the result of a statement, up to `rows` rows."""
        if cursor.description is None:
            return {"changed": max(cursor.rowcount, 0)}
        columns = [str(column[0]) for column in cursor.description]
        rows = cursor.fetchmany(self.rows + 1)
        return {
            "columns": columns,
            "rows": [[plain(value) for value in row] for row in rows[: self.rows]],
            "more": len(rows) > self.rows,
        }

    def complaint(self, error: BaseException) -> str:
        """Return an error as the agent reads it."""
        if self.why:
            return self.why
        if isinstance(error, MemoryError):
            return "it needs more memory than a statement may use"
        if "interrupted" in str(error):
            return f"it takes longer than the {self.seconds:g} s that a turn may take"
        return str(error)

    def dump(self) -> dict[str, list[list[Any]]] | None:
        """Return the rows of every table, or None if there are too many; an open transaction is lost."""
        self.deadline = time.monotonic() + self.seconds
        tables: dict[str, list[list[Any]]] = {}
        size = 0
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            names = self.connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
            )
            for (name,) in names.fetchall():
                rows = tables[name] = []
                for row in self.connection.execute(f'SELECT * FROM "{name}"'):
                    rows.append([plain(value) for value in row])
                    size += len(json.dumps(rows[-1]))
                    if size > DUMPED:
                        return None
        except (sqlite3.Error, MemoryError):  # the database is full
            return None
        return tables


def split(sql: str) -> Iterator[str]:
    """Yield the statements of `sql`; strings may hold anything, and a lone comment is no statement."""
    start, empty = 0, True
    for token in TOKEN.finditer(sql):
        if token["end"]:
            if not empty:
                yield sql[start : token.end()]
            start, empty = token.end(), True
        elif not token["comment"] and not token[0].isspace():
            empty = False
    if not empty:
        yield sql[start:]


def plain(value: Any) -> Any:
    """Return a value in a form that JSON can hold."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and value - value != 0:  # infinities are no JSON
        return str(value)
    return value


def open_database(name: str, script: str, writable: bool, now: str, seconds: float, rows: int) -> None:
    """Make a database from a trusted script."""
    databases[name] = SqliteDatabase(script, writable, now, seconds, rows)
    print(json.dumps("open"))


def run(name: str, sql: str, more: bool = False) -> None:
    """Run an agent's statements."""
    print(json.dumps(databases[name].run(sql, more)))


def dump(name: str) -> None:
    """Print the rows of every table."""
    print(json.dumps(databases[name].dump()))
