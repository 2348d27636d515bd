"""How a run ended, and what may be asked for: the same for runs, sessions and judging."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gem.errors import BadArgument
from gem.sandbox.base import Budget, Result, Status

_DOES_NOT_COMPILE, _NO_MEMORY = 254, 253  # as runner.py has them, which is the box's half
_COMPILING = re.compile(r"(\w*SyntaxError|IndentationError|TabError)\b")
_MEMORY = re.compile(r"[\w.]*MemoryError\b")


def verdict(
    ended: Mapping[str, Any], stdout: str, stderr: str, budget: Budget, info: Mapping[str, Any], *, cut: bool
) -> Result:
    """Say how a program ended, from what the fork server saw and what the program wrote."""
    code = os.waitstatus_to_exitcode(ended["status"])
    signal_number = -code if code < 0 else None
    exit_code = code if code >= 0 else None
    last = stderr.rstrip().rpartition("\n")[2]
    why = ended["why"]
    spent = ended["cpu_s"] >= budget.cpu_s * 0.85  # the kernel's limit counts in ticks
    if why in ("wall", "cpu") or (signal_number in (9, 24) and not why and spent):
        status = Status.TLE
    elif why == "memory":
        status = Status.MLE
    elif why == "output" or cut or signal_number == 25:
        status = Status.OLE
    elif exit_code == _DOES_NOT_COMPILE and _COMPILING.match(last):
        status, exit_code = Status.CE, 1
    elif exit_code in (_NO_MEMORY, 1) and _MEMORY.match(last):
        status, exit_code = Status.MLE, 1
    else:
        status = Status.RE if code else Status.OK
    return Result(
        status=status,
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        signal=signal_number,
        wall_s=ended["wall_s"],
        cpu_s=ended["cpu_s"],
        memory_mb=ended["memory"] / (1 << 20),
        cut=cut,
        info={**info, **({"why": why} if why else {})},
    )


def checked_budget(budget: Budget | None) -> Budget:
    """Return a budget whose numbers are positive. Raises BadArgument."""
    if budget is None:
        return Budget()
    for entry in fields(budget):
        value = getattr(budget, entry.name)
        if not (isinstance(value, (int, float)) and 0 < value < math.inf):
            raise BadArgument(f"budget: {entry.name} must be a positive number, not {value!r}.")
    return budget


def checked_files(files: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """Return files whose paths stay below the working folder. Raises BadArgument."""
    for path, data in (files or {}).items():
        checked_path(path)
        if not isinstance(data, bytes):
            raise BadArgument(f"files: {path!r} must hold bytes, not {type(data).__name__}.")
    return dict(files or {})


def checked_path(path: str) -> str:
    """Return a path that stays below the working folder. Raises BadArgument."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts or "\0" in path:
        raise BadArgument(f"files: a path must stay below the working folder, not be {path!r}.")
    return path
