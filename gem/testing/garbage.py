"""Invalid values of a wrong type or shape, as broken parts return them, for each boundary."""

from __future__ import annotations

import math
from typing import Any, cast

from gem.graders.base import Score
from gem.record import Reply
from gem.sandbox.base import Result, Status
from gem.tools.base_tool import ToolResult


class Unloadable(str):
    """A text that can be pickled in its process, but not unpickled in another."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Return a pickle that fails to load."""
        return int, ("no number",)


_NAN = math.nan

STARTS: tuple[Any, ...] = (
    None,
    "a text",
    ("one",),
    ("one", {}, "too many"),
    (None, {}),
    (b"bytes", {}),
    (7, {}),
    ("text", None),
    ("text", "info"),
    ("text", []),
    ({}, {}),
)
"""Invalid results of a reset."""

STEPS: tuple[Any, ...] = (
    None,
    "five!",
    7,
    ("obs", 1.0),
    ("obs", 1.0, True, False, {}, "too many"),
    (None, 1.0, True, False, {}),
    (b"bytes", 1.0, True, False, {}),
    (["parts"], 1.0, True, False, {}),
    ("obs", _NAN, True, False, {}),
    ("obs", math.inf, True, False, {}),
    ("obs", "1", True, False, {}),
    ("obs", "nan", True, False, {}),
    ("obs", None, True, False, {}),
    ("obs", [0.0], True, False, {}),
    ("obs", 0.0, "no", False, {}),
    ("obs", 0.0, None, True, {}),
    ("obs", 0.0, 1, False, {}),
    ("obs", 0.0, False, "yes", {}),
    ("obs", 0.0, True, False, None),
    ("obs", 0.0, True, False, "info"),
    ("obs", 0.0, True, False, []),
    ({"agent": "obs"}, {"agent": 0.0}, {"agent": True}, {"agent": False}, {"agent": {}}),
)
"""Invalid results of a step."""

RESULTS: tuple[Any, ...] = (
    None,
    "a text",
    7,
    ToolResult(cast(Any, None)),
    ToolResult(cast(Any, b"bytes")),
    ToolResult("text", error=cast(Any, "no")),
    ToolResult("text", images=cast(Any, 7)),
    ToolResult("text", images=cast(Any, ("picture",))),
    ToolResult("text", info=cast(Any, "info")),
)
"""Invalid results of a tool."""

SCORES: tuple[Any, ...] = (
    None,
    True,
    0.0,
    "right",
    (0.0, False),
    Score(_NAN, False),
    Score(math.inf, True),
    Score(-1.0, False),
    Score(7.0, True),
    Score(cast(Any, "0"), False),
    Score(cast(Any, None), False),
    Score(0.0, cast(Any, "no")),
    Score(0.0, cast(Any, None)),
    Score(0.0, False, info=cast(Any, "info")),
)
"""Invalid results of a grader."""

RUNS: tuple[Any, ...] = (
    None,
    "OK",
    {"status": "OK"},
    Result(cast(Status, "OK")),
    Result(cast(Status, None)),
    Result(Status.OK, stdout=cast(Any, None)),
    Result(Status.OK, stdout=cast(Any, b"7\n")),
    Result(Status.RE, stderr=cast(Any, None)),
    Result(Status.OK, exit_code=cast(Any, "0")),
    Result(Status.OK, cpu_s=_NAN),
    Result(Status.OK, wall_s=cast(Any, "long")),
    Result(Status.OK, value=cast(Any, 7)),
    Result(Status.OK, figures=cast(Any, 7)),
    Result(Status.OK, info=cast(Any, "info")),
)
"""Invalid results of a sandbox run."""

JUDGEMENTS: tuple[Any, ...] = (None, [], [None], "AC", *([run] for run in RUNS[2:]))
"""Invalid results of judging in a sandbox."""

REPLIES: tuple[Any, ...] = (
    None,
    "a text",
    7,
    Reply(cast(Any, None)),
    Reply(cast(Any, b"bytes")),
    Reply("x", (1,), (2, 3), (-0.5,)),
    Reply("x", (1,), (2,), (_NAN,)),
    Reply("x", (1,), cast(Any, ("two",))),
    Reply("x", (1,), (2**40,)),
    Reply("x", finish=cast(Any, None)),
    Reply("x", policy_version=cast(Any, "two")),
    Reply("x", reasoning=cast(Any, 7)),
    Reply("x", tool_calls=cast(Any, ("call",))),
    Reply("x", tool_calls=cast(Any, 7)),
    Reply("x", usage=cast(Any, "many")),
    Reply("x", usage={"completion_tokens": cast(Any, "many")}),
    Reply("x", extra=cast(Any, 7)),
    Reply("x", policy_s=cast(Any, "long")),
    Reply("x", policy_s=_NAN),
    Reply("x", policy_s=-1.0),
)
"""Invalid answers of an agent."""

TOO_FEW = len(REPLIES)
"""The `form` of an agent's garbage with which a batch lacks an answer."""

BODIES: tuple[bytes, ...] = (
    b"",
    b"<html>not JSON",
    b"null",
    b"[]",
    b"{}",
    b'{"choices": []}',
    b'{"choices": [{}]}',
    b'{"choices": [{"message": null}]}',
    b'{"choices": [{"message": {"content": 3}}]}',
    b'{"choices": {"0": "x"}}',
    b'{"error": {"message": "out of luck"}}',
    b"[" * 10_000,
    b"\xff\xfe\xfd",
)
"""Invalid answers of an endpoint."""
