"""SqliteBox: a SQLite database inside the sandbox, where an agent's SQL runs."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from gem.envs.database_domains import TODAY
from gem.errors import ToolError
from gem.sandbox import default_sandbox, open_sandbox
from gem.sandbox.base import Budget, SandboxFailed, Session

_WORKER = "database_worker.py"
_GRACE_S = 5.0
"""What a call may take beyond the seconds of its statements, before the box itself ends it."""


class SqliteBox:
    """Databases in one session of the sandbox: the engine that parses hostile SQL is outside this process.

    Results are lists of one dict per statement: ``columns``, ``rows`` and ``more``, or ``changed``, or
    ``error``.
    """

    def __init__(self, turn_s: float = 2.0, sandbox_type: str | None = None) -> None:
        """Open the session; `turn_s` bounds the SQL of one turn, `sandbox_type` names a rung.

        Raises:
            SandboxFailed: when no sandbox can be had: no verdict.
        """
        self.turn_s = turn_s
        sandbox = open_sandbox(sandbox_type) if sandbox_type else default_sandbox()
        budget = Budget(cpu_s=60.0 + turn_s, wall_s=turn_s + _GRACE_S, memory_mb=512, output_kb=16_384)
        self._session: Session = sandbox.session(budget=budget)
        self._call(_source(), expect_answer=False)

    def open(self, name: str, script: str, *, writable: bool = False, rows: int = 50) -> None:
        """Make a database from a script of ours; `rows` is how many of a result are returned."""
        self._call(f"open_database({name!r}, {script!r}, {writable}, {TODAY!r}, {self.turn_s!r}, {rows})")

    def run(self, name: str, sql: str) -> list[dict[str, Any]]:
        """Run an agent's statements.

        Raises:
            ToolError: when they burst the box in spite of its limits; its databases are gone.
        """
        results = self._call(f"run({name!r}, {sql!r})")
        assert isinstance(results, list)
        return results

    def dump(self, name: str) -> dict[str, list[list[Any]]] | None:
        """Return the rows of every table, None where they are too many; an open transaction is lost."""
        tables = self._call(f"dump({name!r})")
        assert tables is None or isinstance(tables, dict)
        return tables

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _call(self, code: str, expect_answer: bool = True) -> Any:
        result = self._session.execute(code)
        if not result.ok or result.cut or result.info.get("restarted"):
            if expect_answer and code.startswith("run("):
                raise ToolError(f"the statements burst the box that they ran in ({result.status})")
            raise SandboxFailed(f"the database's box failed: {result.status} {result.stderr[-500:]}")
        return json.loads(result.stdout) if expect_answer else None


@cache
def _source() -> str:
    return files("gem.envs").joinpath(_WORKER).read_text(encoding="utf-8")
