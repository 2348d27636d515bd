"""What a programming task is tested with, read from the forms in which data sets hold it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gem.errors import BadArgument
from gem.graders.compare import check_compare, plain

ACCEPTED = (
    '{"inputs": [...], "outputs": [...]}, with "fn_name" for a function; a list of {"input", "output"}; or '
    "asserts, as text or a list of texts, with the row's entry_point"
)


@dataclass(frozen=True, slots=True)
class CodeTests:
    """The tests of one task.

    `kind` says what a submission is: a ``program``, whose `inputs` and `outputs` are texts; a ``function``
    called `name`, whose `inputs` are argument lists and whose `outputs` are plain data; or ``asserts``, code
    that uses what the submission defines, where `inputs` are pieces of code and `outputs` is empty. The first
    `public` tests may be shown. `preamble` is trusted code that stands before the submission, `opening` the
    text that a submission continues where it does not define `name` itself. `isolate`: False runs asserts in
    the submission's own process, for tests that need more of it than calls with plain data.
    """

    kind: Literal["program", "function", "asserts"]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    name: str | None = None
    public: int = 0
    compare: str | None = None
    checker: str | None = None
    preamble: str = ""
    opening: str = ""
    isolate: bool = True
    wrapped: bool = (
        False  # every output is a list of one item, as APPS and TACO write what a function returns
    )

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.inputs)

    def chosen(self, most: int | None) -> list[int]:
        """Return the tests to run, in order: those shown first, then the others, small inputs first.

        Of more than `most`, the smallest, the largest and others evenly between are kept.
        """
        shown, rest = list(range(self.public)), list(range(self.public, len(self)))
        rest.sort(key=lambda i: (_size(self.inputs[i]), i))
        if most is not None and len(self) > most:
            shown = shown[:most]
            room = most - len(shown)
            last = max(room - 1, 1)
            rest = [rest[(len(rest) - 1) * k // last] for k in range(room)] if room > 1 else rest[-1:] * room
        return shown + rest


def read_tests(raw: Any, row: Mapping[str, Any] | None = None) -> CodeTests:
    """Return the tests that a data set's column holds; `row` is the other columns.

    Accepted are the forms of CodeContests, APPS, TACO, LiveCodeBench, PrimeIntellect, HumanEval and MBPP.

    Raises:
        BadArgument: when they are in none of these forms, or none are there.
    """
    row = row or {}
    if isinstance(raw, CodeTests):
        return raw
    if isinstance(raw, str | bytes):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            if isinstance(raw, bytes) or "assert" not in raw:
                raise _unreadable(raw) from None
            return _asserts([raw], row)
    if isinstance(raw, Mapping) and isinstance(raw.get("test_cases"), list):
        row = {**row, **{key: value for key, value in raw.items() if key != "test_cases"}}
        raw = raw["test_cases"]
    if isinstance(raw, list) and raw and all(isinstance(each, str) for each in raw):
        return _asserts(raw, row)
    if isinstance(raw, list) and raw and all(isinstance(each, Mapping) for each in raw):
        name = raw[0].get("fn_name") or (
            row.get("fn_name") or row.get("func_name") if raw[0].get("testtype") == "functional" else None
        )
        raw = {"inputs": [each.get("input") for each in raw], "outputs": [each.get("output") for each in raw]}
        raw |= {"fn_name": name} if name else {}
    if not isinstance(raw, Mapping):
        raise _unreadable(raw)
    return _pairs(raw, row)


def _pairs(raw: Mapping[str, Any], row: Mapping[str, Any]) -> CodeTests:
    """Read inputs and outputs."""
    inputs = raw.get("inputs", raw.get("input"))
    outputs = raw.get("outputs", raw.get("output"))
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or isinstance(inputs, str):
        raise _unreadable(raw)
    if not inputs or len(inputs) != len(outputs):
        raise BadArgument(
            f"the tests have {len(inputs)} inputs and {len(outputs)} outputs; needed: as many, 1 or more."
        )
    compare, checker = raw.get("compare", row.get("compare")), raw.get("checker", row.get("checker"))
    public = raw.get("public", 0)
    if isinstance(public, bool) or not isinstance(public, int) or not 0 <= public <= len(inputs):
        raise BadArgument(
            f"public is {public!r}; accepted: how many of the {len(inputs)} tests may be shown."
        )
    name = raw.get("fn_name", raw.get("entry_point", row.get("fn_name")))
    tests = CodeTests(
        "function" if name else "program",
        (),
        (),
        str(name) if name else None,
        public,
        check_compare(compare) if compare else None,
        str(checker) if checker else None,
    )
    if not name:
        return replace(tests, inputs=tuple(map(_text, inputs)), outputs=tuple(map(_text, outputs)))
    written = all(isinstance(each, str) for each in inputs)  # as JSON in text, which an output then is too
    wanted = tuple(_read(each) if written else plain(each) for each in outputs)
    return replace(
        tests,
        inputs=tuple(map(_arguments, inputs)),
        outputs=wanted,
        wrapped=all(isinstance(each, list) and len(each) == 1 for each in wanted),
    )


def _asserts(pieces: Sequence[str], row: Mapping[str, Any]) -> CodeTests:
    """Read asserts: HumanEval's `check(candidate)`, or MBPP's list."""
    name = row.get("entry_point")
    opening = str(row.get("prompt") or "") if name else ""
    setup = row.get("test_setup_code") or row.get("test_imports") or ""
    preamble = "\n".join(setup) if isinstance(setup, list | tuple) else str(setup)
    if name:
        if re.search(r"^def\s+check\s*\(", "\n".join(pieces), re.MULTILINE):
            pieces = [f"{piece}\n\ncheck({name})\n" for piece in pieces]
        head = re.search(rf"^(?:async\s+)?def\s+{re.escape(str(name))}\b", opening, re.MULTILINE)
        preamble += "\n" + opening[: head.start()] if head else ""
    return CodeTests(
        "asserts",
        tuple(pieces),
        name=str(name) if name else None,
        preamble=preamble,
        opening=opening,
        isolate=bool(row.get("isolate", True)),
    )


def _text(value: Any) -> str:
    """Return what a program reads or writes; some data sets hold a list of lines."""
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value))
    if value is None or isinstance(value, Mapping):
        raise _unreadable(value)
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return a call's arguments: a list of them, or, in text, JSON values a line each."""
    if isinstance(value, str):
        try:
            return tuple(json.loads(line) for line in value.splitlines() if line.strip())
        except ValueError:
            raise _unreadable(value) from None
    if not isinstance(value, list | tuple):
        return (plain(value),)
    return tuple(plain(each) for each in value)


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else plain(value)
    except ValueError:
        return value


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(repr(value))


def _unreadable(value: Any) -> BadArgument:
    return BadArgument(f"tests are {type(value).__name__} {value!r:.120}; accepted: {ACCEPTED}.")
