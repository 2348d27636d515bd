r"""McpPostgresEnv: tasks on a PostgreSQL database, solved with the tools of an MCP server."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

from gem.content import ToolSpec
from gem.core import Start, Step
from gem.envs.database.mcp_tasks import FAMILIES, GROUPS, Judge, PostgresTask, Refused, Wrong
from gem.envs.database.postgres import Database, server
from gem.envs.kit.workspace import (
    MAX_CALLS,
    Burst,
    TurnReport,
    WorkCall,
    WorkspaceEnv,
    submit_spec,
    write_call,
)
from gem.errors import (
    BadArgument,
    NoVerdict,
    ToolError,
    check_argument,
    check_count,
    did_you_mean,
    missing_extra,
)
from gem.graders.sql import Row
from gem.record import StopReason
from gem.tools.base_tool import BaseTool
from gem.tools.mcp_tool import MCPTool
from gem.tools.postgres import Connection, SqlError

LARGEST = 256 * 2**20
"""The largest size of an episode's database on disk in bytes; tasks begin with about 10 MB."""

JUDGE_S = 30.0
"""Seconds for all statements of the verifier together, which may run code of the agent."""

_CALL_S = 60.0  # what a call may take; the server ends a statement long before
_HOW = """\
You work at a PostgreSQL database through tools; what you see and change there is yours alone. You may call \
up to {calls} tools in a turn, and go on in the next with what they said. When the task is done, write \
<submit/>: what is committed then counts, and whatever is still running is ended. You have {turns} turns. \
There are the group roles {groups}.

{tools}"""
_SUBMIT = submit_spec("End the task: what is committed then counts.")


class McpPostgresEnv(WorkspaceEnv):
    """A task on a PostgreSQL database, with the tools of an MCP server.

    Task:
        Change a small database as the instruction asks: constraints, columns and types, tables split, merged
        or partitioned, triggers, functions, privileges, row-level security, views, indexes, and repairs of
        data. The seed draws one of the families in `FAMILIES`, its rows and its details.
    Action:
        Calls of the tools that the prompt describes, in ``<tool_call>{"name": ..., "arguments":
        {...}}</tool_call>``; up to 20 run in order. ``<submit/>`` or a call of `submit` ends the task, after
        the calls of the same turn. After an action with neither, or with more calls, the agent reads how to
        write one, and the turn is used up. A submission in the same turn as an invalid call does not count.
    Observation:
        The output of the tools: rows, plans, errors of the database.
    Reward:
        1 if the verifier finds the final state as asked, else 0; nothing before the end. The verifier runs
        its own queries with a role that has only the agent's privileges. It changes rows to see what the
        agent's views, triggers and policies do, and undoes these changes.
    End:
        When the agent submits, or when the turns are used up; in both cases what is committed is judged. A
        database that grows beyond 256 MB fails the task.
    Source:
        Tasks and verifiers are gem's own, in the style of MCPMark's database tasks.

    Each episode has its own database, role and MCP server. They are made at the first call and removed at the
    end. The environment cannot be forked or saved. The task depends only on the seed; role names and timings
    differ.
    """

    forkable: ClassVar[bool] = False
    form = "Write tool calls, or <submit/> when the task is done."
    shared: ClassVar[tuple[str, ...]] = ("_tools",)
    _secret_arguments: ClassVar[tuple[str, ...]] = ("dsn",)

    def __init__(
        self, task: str | None = None, level: str | None = None, max_turns: int = 30, dsn: str | None = None
    ) -> None:
        """Choose which tasks are drawn.

        Args:
            task: one family, as ``AuditLog``; None draws from all.
            level: ``easy`` or ``hard``; None draws from both.
            max_turns: the turns that the task states.
            dsn: the connection string of a superuser of the PostgreSQL server; None takes GEM_POSTGRES_DSN. A
                dsn given here may hold a password. It is not stored, so the task cannot be made again from a
                stored episode.

        Raises:
            BadArgument: for an unknown task or level, or a dsn whose role is not a superuser.
            MissingExtra: without the packages mcp and psycopg, or when no server is named.
            NoVerdict: when the server cannot be reached.
        """
        if task is not None and task not in FAMILIES:
            raise BadArgument(
                f"no family {task!r} of database tasks.{did_you_mean(task, FAMILIES)} There are: "
                f"{', '.join(FAMILIES)}."
            )
        check_argument("level", level, level in (None, "easy", "hard"), "easy, hard, None")
        check_count("max_turns", max_turns)
        if find_spec("mcp") is None:
            raise missing_extra("mcp:Postgres-v0", "mcp", "mcp")
        self.names = [task] if task else [name for name in FAMILIES if level in (None, FAMILIES[name].level)]
        self.max_turns = max_turns
        self.dsn = dsn
        self.name = ""
        self.task: PostgresTask | None = None
        self._database: Database | None = None
        self._tools = _OFFERED.spawn()
        server(dsn)

    # -- the contract

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:  # type: ignore[override]
        """The tools that a model may call natively: those of the server, and the submission."""
        return (*(tool.spec() for tool in self._tools.offered()), _SUBMIT)

    def reset(self, seed: int | None = None) -> Start:
        """Draw a task; see Env.reset. The database is made when a tool is first called."""
        super().reset(seed)
        self._end_database()
        self.turn = 0
        self.name = self.rng.choice(self.names)
        self.task = FAMILIES[self.name].draw(self.rng)
        how = _HOW.format(
            turns=self.max_turns,
            calls=MAX_CALLS,
            groups=", ".join(GROUPS),
            tools=self._tools.instruction_string(),
        )
        return Start(f"{self.task.instruction}\n\n{how}", {"task": self.name})

    def close(self) -> None:
        """End the MCP server, and drop the database and its role."""
        self._end_database()
        self._tools.close()
        super().close()

    def sample_random_action(self) -> str:
        """Return a harmless query, or a submission; see Env.sample_random_action."""
        schema = self._need_task().schema
        looks = [
            ("list_schemas", {}),
            ("list_objects", {"schema": schema}),
            ("execute_sql", {"sql": "SELECT 1"}),
        ]
        return "<submit/>" if self.actor_rng.random() < 0.3 else write_call(*self.actor_rng.choice(looks))

    def solve(self) -> str:
        """Return the family's solution and the submission; see Env.solve."""
        calls = [write_call("execute_sql", {"sql": sql}) for sql in self._need_task().solution]
        return "\n".join([*calls, "<submit/>"])

    # -- the database

    def tools(self) -> Sequence[BaseTool]:
        """Return the tools of the server; see WorkspaceEnv."""
        return self._tools.offered()

    def refusal(self, wrong: str) -> str:
        """Return the refusal in the form of a tool's output; see WorkspaceEnv."""
        return self._tools.shown(wrong)

    def carry_out(self, call: WorkCall, report: TurnReport) -> None:
        """Run a call on the MCP server; see WorkspaceEnv."""
        database = self._open()
        try:
            result = self._tools.call(call.name, dict(call.arguments))
        except ToolError as error:
            report.result(call, self._tools.shown(str(error)), error=True)
        else:
            report.result(call, self._tools.shown(result.text), error=result.error)
        if server(self.dsn).size(database.name) > LARGEST:
            raise Burst("the database has grown too large")

    def _open(self) -> Database:
        """Return the episode's database; the first call makes and fills it and starts its MCP server."""
        if self._database is None:
            postgres, task = server(self.dsn), self._need_task()
            self._database = postgres.open(_OWN, plpgsql=True)
            postgres.shared_roles(GROUPS)
            begin = Connection(self._database.dsn)
            try:
                begin.script(";\n".join(task.script()))
            except ToolError as error:
                self._end_database()
                raise NoVerdict(f"the set-up of {self} ({self.name}) failed: {error}") from error
            finally:
                begin.close()
            self._tools.reconfigure(
                _configure_server({"GEM_POSTGRES_MCP_DSN": self._database.dsn}), same_tools=True
            )
        return self._database

    def _end_database(self) -> None:
        if self._database is not None:
            self._tools.reset(0)  # ends the MCP server, and does not wait until it is gone
            self._database.close()
            self._database = None

    def judge(self) -> str:
        """Judge the final state with the verifier; see WorkspaceEnv."""
        if self._database is None:  # every task needs a change
            return "nothing was done"
        self._tools.reset(0)
        access = server(self.dsn).judge(self._database, GROUPS)
        try:
            return self._verify(access)
        finally:
            self._end_database()  # its objects would keep the role from being dropped
            access.close()

    def _verify(self, access: Database) -> str:
        """Return what is wrong with the state, '' if nothing is."""
        connection = Connection(access.dsn)
        deadline = time.monotonic() + JUDGE_S
        over = ""

        def send(sql: str) -> Sequence[Row]:
            nonlocal over
            if over:  # on a new connection, without the transaction, an error would look like a refusal
                raise Wrong(over)
            try:
                result = connection.run(sql, max(deadline - time.monotonic(), 0.001), 100_000)
            except SqlError as error:
                raise Refused(str(error), error.sqlstate) from error
            except ToolError as error:  # too slow, or the connection ended: caused by the agent
                over = str(error)
                raise Wrong(over) from error
            if result.more:
                raise Wrong(f"it has more rows than are read: {sql[:100]}")
            return result.rows

        task = self._need_task()
        try:
            send("BEGIN")
            task.check(Judge(send, task.schema))
        except Wrong as wrong:
            return str(wrong)
        except Refused as refused:
            return f"the verifier's query is refused: {refused.message}"
        finally:
            connection.close()
        return ""

    def finish(self, report: TurnReport, stop: StopReason, why: str) -> Step:
        """Drop the database and return the last step; see WorkspaceEnv."""
        self._end_database()
        return super().finish(report, stop, why)

    def _need_task(self) -> PostgresTask:
        assert self.task is not None  # gem.Env makes sure that reset() comes first
        return self.task


def _configure_server(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration that starts the MCP server."""
    return {"command": sys.executable, "args": ["-m", "gem.tools.mcp_server.postgres_mcp"], "env": dict(env)}


_OFFERED = MCPTool(_configure_server({}), timeout=_CALL_S, connect_timeout=_CALL_S)
"""The source of every episode's tools, so that a process lists the tools of the server only once."""

_OWN = (
    "DO $$ BEGIN EXECUTE format('GRANT CREATE, TEMP ON DATABASE %I TO %I', current_database(), "
    "current_database()); END $$"
)
"""SQL that grants privileges to the agent's role, which has the same name as its database."""
