"""Verdicts on how a run ended, and checks of budgets, files and cases, for runs, sessions and judging."""

from __future__ import annotations

import functools
import importlib.util
import json
import marshal
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gem.errors import BadArgument, replace_surrogates
from gem.sandbox.base import Budget, Case, Result, SandboxFailed, Status

LONGEST_VALUE = 4 << 20  # of what a judged call returns
LONGEST_SHOWN = 256 << 10  # of a cell's value, as cells.py has it, which is the sandbox's half
_PNG = b"\x89PNG\r\n"
_DOES_NOT_COMPILE, _NO_MEMORY = 254, 253  # as program.py has them, which is the sandbox's half
_COMPILING = re.compile(r"(\w*SyntaxError|IndentationError|TabError)\b")
_MEMORY = re.compile(r"[\w.]*MemoryError\b")


def verdict(
    ended: Mapping[str, Any], stdout: str, stderr: str, budget: Budget, info: Mapping[str, Any], *, cut: bool
) -> Result:
    """Return the result of a program, from the fork server's report and the program's output."""
    code = os.waitstatus_to_exitcode(ended["status"])
    signal_number = -code if code < 0 else None
    exit_code = code if code >= 0 else None
    last = stderr.rstrip().rpartition("\n")[2]
    why = ended["why"]
    spent = ended["cpu_s"] >= budget.cpu_s * 0.6  # the kernel counts ticks, on a busy machine too many
    if why in ("wall", "cpu", "idle") or (signal_number in (9, 24) and not why and spent):
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


def case_verdict(
    case: Mapping[str, Any],
    reply: Mapping[str, Any],
    blobs: list[bytes],
    budget: Budget,
    info: Mapping[str, Any],
    *,
    shared: int = 0,
) -> Result:
    """Return the result of a case, from its judge's report; `shared` bytes of its memory are not its own.

    Raises KeyError, TypeError or ValueError for an invalid reply.
    """
    out, err, value = blobs
    cap = case["output"]
    ended = {
        "status": reply["status"],
        "why": reply["why"],
        "cpu_s": reply["cpu_s"],
        "wall_s": reply["wall_s"],
        "memory": max(0, reply["maxrss_kb"] * 1024 - shared),
    }
    text, words = out[:cap].decode("utf-8", "replace"), err[:cap].decode("utf-8", "replace")
    result = verdict(ended, text, words, budget, info, cut=len(out) > cap or len(err) > cap)
    if not result.ok or case["stdin"] is not None:
        return result
    if len(value) > LONGEST_VALUE:
        return replace(result, status=Status.OLE, cut=True)
    if not _is_json(value):
        return replace(result, status=Status.RE, stderr=words + "the program ended before its end\n")
    return replace(result, value=value.decode()) if case["code"] is None else result


def check_served(reply: Mapping[str, Any] | None) -> None:
    """Check that a case got its CPU time, or is itself to blame that it did not.

    Raises:
        SandboxFailed: when it waited too long for a processor.
    """
    if reply is not None and reply.get("why") == "starved":
        raise SandboxFailed(
            f"the machine is too busy: a program could run for {reply['wall_s']:.0f} s and got "
            f"{reply['cpu_s']:.1f} s of CPU time."
        )


def cell_result(
    reply: Mapping[str, Any],
    figures: Sequence[bytes],
    stdout: str,
    stderr: str,
    info: Mapping[str, Any],
    *,
    wall_s: float,
) -> Result:
    """Return the result of a cell or command, from its own process's reply.

    Raises:
        TypeError, ValueError: for an invalid reply.
    """
    if (error := reply.get("error")) is not None:  # our half in there failed, for lack of memory or files
        words = f"{stderr}{replace_surrogates(str(error)[:500])}\n"
        return Result(Status.RE, stdout, words, exit_code=1, wall_s=wall_s, info=info)
    status = Status(str(reply.get("status")))
    numbers = (reply.get("exit_code"), reply.get("signal"))
    value = reply.get("value")
    cpu_s = reply.get("cpu_s", 0.0)
    if not (
        all(n is None or (type(n) is int and -1 << 31 <= n < 1 << 31) for n in numbers)
        and isinstance(cpu_s, (int, float))
        and 0 <= cpu_s < 1e9
        and (value is None or isinstance(value, str))
        and all(figure.startswith(_PNG) for figure in figures)
    ):
        raise ValueError("no cell replies so")
    return Result(
        status=status,
        stdout=stdout,
        stderr=stderr,
        exit_code=numbers[0],
        signal=numbers[1],
        wall_s=wall_s,
        cpu_s=float(cpu_s),
        cut=reply.get("cut") is True,
        value=None if value is None else replace_surrogates(value[:LONGEST_SHOWN]),
        figures=tuple(figures),
        info=info,
    )


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text.decode(), parse_int=str)  # integers may be longer than `int` reads
    except (ValueError, RecursionError):
        return False
    return True


def checked_budget(budget: Budget | None) -> Budget:
    """Return a budget whose numbers are positive, and whole but for the seconds. Raises BadArgument."""
    if budget is None:
        return Budget()
    for entry in fields(budget):
        value = getattr(budget, entry.name)
        kinds, most, words = (
            ((int, float), MOST_SECONDS, "a positive number")
            if entry.name.endswith("_s")
            else ((int,), MOST_COUNT, "a positive whole number")
        )
        if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value <= most:
            raise BadArgument(f"budget: {entry.name} must be {words} of at most {most:,}, not {value!r:.40}.")
    return budget


MOST_SECONDS, MOST_COUNT = 1_000_000, 1 << 40
"""The largest numbers of a budget."""

LONGEST_PATH = 3000
"""The most bytes of a file's path below the working folder."""


def checked_files(files: Mapping[str, bytes] | None, budget: Budget) -> dict[str, bytes]:
    """Return files whose paths stay below the working folder and that fit there. Raises BadArgument."""
    room, entries = 0, dict[str, bool]()  # path: whether it is a folder
    for path, data in (files or {}).items():
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or not parts or ".." in parts or "\0" in path:
            raise BadArgument(f"files: a path must stay below the working folder, not be {path!r}.")
        names = [part.encode("utf-8", "surrogatepass") for part in parts]
        if (
            replace_surrogates(path) != path
            or max(map(len, names)) > 255
            or len(b"/".join(names)) > LONGEST_PATH
        ):
            raise BadArgument(f"files: {path!r:.80} is no name that a file can have.")
        if not isinstance(data, bytes):
            raise BadArgument(f"files: {path!r} must hold bytes, not {type(data).__name__}.")
        for depth in range(1, len(parts) + 1):
            place, is_folder = "/".join(parts[:depth]), depth < len(parts)
            if entries.setdefault(place, is_folder) != is_folder:
                raise BadArgument(f"files: {place!r} is both a file and the folder of another.")
        room += -(-len(data) // _PAGE) * _PAGE
        if len(data) > budget.file_mb << 20:
            raise BadArgument(
                f"files: {path!r} has {len(data):,} bytes, and the budget's file_mb is {budget.file_mb}: "
                "give a larger one."
            )
    for what, needed, limit, name in (
        ("bytes", room + _OWN_BYTES, budget.disk_mb << 20, "disk_mb"),
        ("files and folders", len(entries) + _OWN_ENTRIES, budget.inodes, "inodes"),
    ):
        if entries and needed > limit:
            raise BadArgument(
                f"files: they need {needed:,} {what}, and the budget's {name} allows {limit:,}: "
                "give a larger one."
            )
    return dict(files or {})


_PAGE = 4096  # what a file takes is a multiple of it
_OWN_ENTRIES, _OWN_BYTES = 12, 64 << 10  # of the folders that a program is given, and for what it writes


@functools.cache
def _compile_tester(source: str) -> tuple[bytes, bytes]:
    """Return this Python's magic number and a tester's code; compiling takes longer than most tests."""
    code = compile(source, "tester.py", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER, marshal.dumps(code)


def checked_cases(cases: Sequence[Case], budget: Budget) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the message that describes cases to a judge, and their testers. Raises BadArgument."""
    asked = [checked_case(case, budget) for case in cases]
    sources = sorted({case["tester"] for case in asked if case["tester"] is not None})
    for case in asked:
        if case["tester"] is not None:
            case["tester"] = sources.index(case["tester"])
    return asked, [(source, *_compile_tester(source)) for source in sources]


def _describe(case: Case) -> str:
    try:
        return f"{case!r:.200}"
    except (RecursionError, ValueError):  # too deep, or an integer of too many digits
        return f"those of {case.call or case.tester!r:.200}"


def checked_case(case: Case, budget: Budget) -> dict[str, Any]:
    """Return the message that describes a case to a judge. Raises BadArgument."""
    if sum(part is not None for part in (case.stdin, case.call, case.code, case.tester)) != 1:
        raise BadArgument(f"a case needs exactly one of stdin, call, code and tester: {_describe(case)}")
    if not isinstance(case.stdin, bytes | None):
        raise BadArgument(f"a case's stdin must be bytes, not {type(case.stdin).__name__}: {_describe(case)}")
    asked = {
        "stdin": case.stdin,
        "call": case.call,
        "args": case.args,
        "code": None if case.code is None else case.code.encode("utf-8", "surrogatepass"),
        "tester": case.tester,
        "steps": case.steps,
        "wall_s": budget.wall_s,
        "cpu_s": budget.cpu_s,
        "output": budget.output_kb << 10,
        "value": LONGEST_VALUE,
    }
    try:
        marshal.dumps(asked)
    except ValueError as error:
        raise BadArgument(f"a case's args must be plain data: {_describe(case)}") from error
    return asked
