"""PostgresTask and Judge: a database task, and the checks that its verifier may use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from textwrap import dedent
from typing import Any, Literal

from gem.envs.kit.templates import fill_templates, literal, read, read_toml, unwrap_lines
from gem.graders.sql import Row, same_rows

_PACKAGE = "gem.envs.database.mcp_tasks"

Level = Literal["easy", "hard"]

ANALYST, CLERK, AUDITOR = GROUPS = ("gem_analyst", "gem_clerk", "gem_auditor")
"""Group roles of the server, without login; tasks about privileges grant to them and revoke from them."""

_ROLES = {"analyst": ANALYST, "clerk": CLERK, "auditor": AUDITOR, "groups": ", ".join(GROUPS)}


class Wrong(Exception):
    """The state is not as the instruction asks; the message says what is wrong."""


class Refused(Exception):
    """The server refused a statement of a verifier."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        """Keep the message and `sqlstate`, PostgreSQL's code of five characters."""
        super().__init__(message, sqlstate)
        self.message, self.sqlstate = message, sqlstate


class Judge:
    """Access to the final state for a verifier: one transaction of an unprivileged role, never committed.

    The role is a member of the agent's role and of GROUPS, so it has only their privileges. Code of the agent
    (views, triggers, policies) runs under this role, and its results cannot be trusted. Compare them with
    values that only the verifier knows, before and after the rows are changed. In the SQL, ``@name`` is a
    name in the task's schema. Every other name is PostgreSQL's own, whatever names the agent's objects have.
    """

    def __init__(self, send: Callable[[str], Sequence[Row]], schema: str) -> None:
        """Judge `schema` with `send`, which runs one statement and raises Refused if the server refuses it.

        `send` returns numbers as int or float, and values other than numbers and bools as PostgreSQL's text.
        """
        self._send = send
        self.schema = schema

    def rows(self, sql: str, role: str = "", settings: Mapping[str, str] | None = None) -> list[Row]:
        """Run a statement and return its rows; `role` is a member of GROUPS to run it as.

        Raises:
            Refused: when the server refuses it.
        """
        # The agent's code may have changed the settings of this session in the last statement.
        self._send("RESET ALL")
        self._send("SET search_path = pg_catalog, pg_temp")
        for name, value in (settings or {}).items():
            self._send(f"SET {name} = {literal(value)}")
        self._send(f"SET ROLE {role or 'NONE'}")
        rows = self._send(re.sub(r"(?<!\w)@(\w+)", rf"{self.schema}.\1", sql))
        return [tuple(row) for row in rows]

    def value(self, sql: str, role: str = "", settings: Mapping[str, str] | None = None) -> Any:
        """Return the first value of a statement's first row; None if there is no row."""
        rows = self.rows(sql, role, settings)
        return rows[0][0] if rows else None

    @contextlib.contextmanager
    def trial(self, *changes: str) -> Iterator[None]:
        """Make changes that are undone at the end of the block."""
        self._send("SAVEPOINT trial")
        try:
            for change in changes:
                self.rows(change)
            yield
        finally:
            self._send("ROLLBACK TO SAVEPOINT trial")
            self._send("RELEASE SAVEPOINT trial")

    def try_statement(self, sql: str, role: str = "", settings: Mapping[str, str] | None = None) -> str:
        """Run and undo a statement; return the SQLSTATE if the server refuses it, else ''."""
        try:
            with self.trial():
                self.rows(sql, role, settings)
                self._send("SET CONSTRAINTS ALL IMMEDIATE")
        except Refused as refused:
            return refused.sqlstate
        return ""

    def need(self, condition: Any, why: str) -> None:
        """Raise Wrong unless `condition` is true."""
        if not condition:
            raise Wrong(why)

    def needs_refused(self, sql: str, role: str = "", **settings: str) -> None:
        """Raise Wrong if the server accepts a statement, or refuses it for a syntax error or missing name."""
        state = self.try_statement(sql, role, settings)
        who = f" by {role}" if role else ""
        self.need(state, f"it is not refused{who}: {sql}")
        absent = state[:3] == "42P" or state in ("42601", "42703", "42883")  # syntax errors and missing names
        self.need(not absent, f"it cannot be tried{who}: {sql}")

    def needs_accepted(self, sql: str, role: str = "", **settings: str) -> None:
        """Raise Wrong if the server refuses a statement."""
        state = self.try_statement(sql, role, settings)
        self.need(not state, f"it is refused ({state}){f' to {role}' if role else ''}: {sql}")

    def needs_no_right_to(self, name: str, *roles: str) -> None:
        """Raise Wrong if a role has a privilege to read a table, even without access to the schema."""
        for role in roles:
            asked = f"SELECT has_any_column_privilege('{role}', '@{name}', 'SELECT')"
            self.need(self.value(asked) is False, f"{role} may read {name}")

    def gives(self, query: str, wanted: Sequence[Row], why: str, role: str = "", **settings: str) -> None:
        """Raise Wrong unless a query gives the wanted rows, in any order."""
        differs = same_rows(self.rows(query, role, settings), wanted)
        self.need(not differs, f"{why}: {differs}")

    def kind(self, name: str) -> str:
        """Return pg_class.relkind of a relation of the task's schema, '' if there is no such relation."""
        return str(
            self.value(
                "SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                f"WHERE n.nspname = '{self.schema}' AND c.relname = '{name}'"
            )
            or ""
        )

    def columns(self, name: str) -> dict[str, str]:
        """Return a relation's columns, in order, with their types as PostgreSQL writes them."""
        rows = self.rows(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND "
            f"NOT attisdropped AND attrelid = '{self.schema}.{name}'::regclass ORDER BY attnum"
        )
        return {str(column): str(kind) for column, kind in rows}

    def holds(self, name: str, columns: str, wanted: Sequence[Row], kind: str = "r") -> None:
        """Raise Wrong unless a relation of this kind (by default a table) holds the wanted rows."""
        actual = self.kind(name)
        self.need(actual == kind, f"{name} is {'missing' if not actual else 'no such table as is asked for'}")
        self.gives(f"SELECT {columns} FROM @{name}", wanted, f"the rows of {name} are not as asked")

    def needs_untouched(self, tables: Mapping[str, Table], *names: str) -> None:
        """Raise Wrong if one of the task's initial tables has changed."""
        for name in names or tables:
            self.holds(name, ", ".join(tables[name].names), tables[name].rows)

    def follows(
        self, name: str, columns: str, reference: str, *changes: str, refresh: str = "", role: str = ""
    ) -> None:
        """Raise Wrong unless a relation gives the rows of the reference query, also after each change.

        Each change is tried alone, and `refresh` is run after it. `role` reads the relation.
        """
        first = self.rows(reference)
        moved = False
        for change in ("", *changes):
            with self.trial(*filter(None, (change, refresh))):
                wanted = self.rows(reference)
                moved = moved or bool(same_rows(wanted, first))
                what = f"{name} does not give what it should" + (" once rows are changed" if change else "")
                self.gives(f"SELECT {columns} FROM @{name}", wanted, what, role)
        self.need(moved, "the rows that the task began with cannot be changed any more")


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a task begins with: its columns as in CREATE TABLE, one per line, and its rows."""

    ddl: str
    rows: Sequence[Row]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [line.split()[0] for line in self.ddl.strip().splitlines() if not line.strip()[0].isupper()]

    def script(self, name: str) -> list[str]:
        """Return the statements that make and fill the table."""
        rows = ",\n".join(f"({', '.join(map(literal, row))})" for row in self.rows)
        fill_templates = [f"INSERT INTO {name} ({', '.join(self.names)}) VALUES\n{rows}"] if rows else []
        return [f"CREATE TABLE {name} (\n{self.ddl.strip()}\n)", *fill_templates]


@dataclass(frozen=True, slots=True)
class PostgresTask:
    """One task on a database.

    It begins with `tables` and then the statements of `setup`. `check` raises Wrong or Refused if the final
    state is not as the instruction asks. `solution` has statements that solve the task, with ``@schema`` for
    the schema's name.
    """

    instruction: str
    tables: Mapping[str, Table]
    check: Callable[[Judge], None]
    solution: Sequence[str]
    setup: Sequence[str] = ()
    schema: str = "public"

    def script(self) -> list[str]:
        """Return the statements that make the initial state."""
        made = [sql for name, table in self.tables.items() for sql in table.script(name)]
        return [f"CREATE SCHEMA {self.schema}", f"SET search_path = {self.schema}", *made, *self.setup]


@cache
def texts(name: str) -> Mapping[str, Any]:
    """Return the templates in ``name.toml`` of this package."""
    return read_toml(_PACKAGE, f"{name}.toml")


def task(
    name: str, tables: Mapping[str, Table], check: Callable[[Judge], None], /, **values: Any
) -> PostgresTask:
    """Return a task: `instruction`, `solution` and `setup` of ``name.toml``, with their fields filled in.

    The group roles have fields too: analyst, clerk and auditor, and groups for all of them.

    Raises:
        ValueError: for a field without a value, or a value without a field.
    """
    text = texts(name)
    templates = [unwrap_lines(text["instruction"]), *text["solution"], *text.get("setup", ())]
    instruction, *statements = fill_templates(f"{name}.toml", templates, values, _ROLES)
    count = len(text["solution"])
    return PostgresTask(instruction, tables, check, statements[:count], statements[count:])


def load_tables(name: str, **rows: Sequence[Row]) -> dict[str, Table]:
    """Return tables with these rows, and with the columns of the CREATE TABLE statements in ``name.sql``."""
    columns = _columns(name)
    return {table: Table(columns[table], values) for table, values in rows.items()}


@cache
def _columns(name: str) -> dict[str, str]:
    statements = re.findall(r"^CREATE TABLE (\w+) \(\n(.*?)\n\);", read(_PACKAGE, f"{name}.sql"), re.M | re.S)
    return {table: dedent(columns) for table, columns in statements}


@dataclass(frozen=True, slots=True)
class PostgresFamily:
    """A family of tasks: `make(rng)` draws one."""

    make: Callable[[Random], PostgresTask]
    level: Level

    def draw(self, rng: Random) -> PostgresTask:
        """Draw a task in a schema with a random name, so that no answer fits another instance unchanged."""
        schema = f"{rng.choice(_SCHEMAS)}_{rng.randint(100, 999)}"
        task = self.make(rng)
        return replace(
            task,
            schema=schema,
            instruction=f"Work in the schema {schema}: all names are meant there. {task.instruction}",
            solution=[
                f"SET search_path = {schema}",
                *(sql.replace("@schema", schema) for sql in task.solution),
            ],
        )


_SCHEMAS = """
amber basil cedar coral delta ember fjord grove harbor indigo jasper kelp lagoon maple north onyx prairie
quartz river sierra tundra umber valley willow yarrow zephyr
""".split()  # noqa: SIM905  a column of quoted words would fill the screen
