"""Asserts in a separate process: `test` runs the asserts, `serve` runs in the submission's process.

The asserts hold the expected values, so they share no process with the submission. Both exchange plain data,
which is copied, and the numbers of objects, which stay in their process. For an object of the submission the
tester has a stand-in (a proxy), whose class is a stand-in for the object's class. Operations on it are sent
to the submission's process. Lists, dictionaries and sets that both processes hold are kept equal.

The tester trusts nothing that it reads. What it receives is of exact builtin types or a stand-in. A stand-in
decides about the tests' own plain data only where the tests made its object; see docs/guides/code_checks.md.

Inside the sandbox the tester is one module: `read_tester` joins its parts. Names at the top level of one part
are thus those of all. `forms` and `refusals` read tests before they run; `runner` runs behind the tests.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

PARTS = (
    *("bindings", "values", "operations", "peer"),
    *("server", "stand_ins", "lending", "tester"),
)
"""The modules of the tester, each after those that it imports."""

_OWN_IMPORT = re.compile(
    r"^from (?:__future__|gem\.graders\.asserts\.\w+) import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE
)


@functools.cache
def read_tester() -> str:
    """Return the source of the tester, which runs in both processes: all PARTS as one module."""
    files = resources.files(__name__)
    parts = [files.joinpath(f"{name}.py").read_text("utf-8") for name in PARTS]
    return "\n".join(["from __future__ import annotations", *(_OWN_IMPORT.sub("", part) for part in parts)])
