"""The hidden test of a repair: a package's own tests, run on a copy with the agent's versions of its files.

The tests share a process with the code that they test. So a change is first compared with the original: code
that could reach the tests or the interpreter is refused. `gem.envs.terminal.writing` puts this module into
task folders of Harbor; it uses the standard library only.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping

from gem.envs.terminal.base import Machine
from gem.errors import NoVerdict
from gem.sandbox.base import Result, Status

RUN = (
    "python3 -m pytest -q -rp --tb=no --show-capture=no --no-header -p no:cacheprovider -c /dev/null "
    "--rootdir=. ."
)
"""The command that prints a line for each test that passes."""

RunTests = Callable[[Mapping[str, bytes]], Result]
"""Runs `RUN` in a new folder with these files."""

_LONGEST = 1 << 16  # characters more than the original; Python's parser takes seconds for some longer texts
_PASSED = re.compile(r"^PASSED (.+)$", re.MULTILINE)
_SUMMARY = re.compile(r"(\d+) passed\b.* in \d+\.\d+s", re.MULTILINE)
_TEST = re.compile(r"(^|/)_?tests?/|(^|/)(test_|conftest)[^/]*\.py$")
_HARMLESS_MODULES = {"collections": collections, "functools": functools, "itertools": itertools, "math": math}
_HARMLESS = frozenset(
    """
abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float
format frozenset hash hex id int isinstance issubclass iter len list map max min next object oct ord pow
property range repr reversed round set slice sorted staticmethod str sum super tuple zip True False None
NotImplemented Exception ArithmeticError AssertionError AttributeError IndexError KeyError LookupError
NotImplementedError OverflowError RecursionError RuntimeError StopIteration TypeError UnicodeDecodeError
UnicodeEncodeError UnicodeError ValueError ZeroDivisionError
""".split()  # noqa: SIM905
)
_REACHING = frozenset({"singledispatch", "singledispatchmethod", "update_wrapper", "wraps"})
"""What functools has that reads and sets attributes by text, or evaluates annotations."""
_ATTRIBUTES = frozenset(
    name
    for kind in (
        str,
        bytes,
        bytearray,
        list,
        dict,
        set,
        tuple,
        int,
        float,
        slice,
        *_HARMLESS_MODULES.values(),
    )
    for name in getattr(kind, "__all__", dir(kind))
    if not name.startswith("_") and name not in _REACHING
)


def is_test(path: str) -> bool:
    """Return whether a file of a package belongs to its tests."""
    return _TEST.search(path) is not None


def read_passed(done: Result) -> frozenset[str]:
    """Return the names of the tests that passed; none where they did not come to their end.

    What the tested code prints while pytest does not capture it, as at the interpreter's exit, is beside
    pytest's own lines. So these have to be as many as its one summary says.
    """
    names, counts = _PASSED.findall(done.stdout), _SUMMARY.findall(done.stdout)
    ended = done.status is not Status.TLE and counts == [str(len(names))]
    return frozenset(names) if ended else frozenset()


def check_repair(machine: Machine, files: Mapping[str, bytes], run: RunTests, right: frozenset[str]) -> str:
    """Return what is wrong with a repaired package, '' if each test passes that passes with the original.

    Args:
        machine: the agent's machine, in the folder of the package.
        files: the original package, by path. Of the agent's files only those count that are Python sources
            here and no tests.
        run: runs the tests.
        right: the tests that pass with the original.

    Raises:
        NoVerdict: when no test passes with the original.
    """
    if not right:
        raise NoVerdict("no test passes with the original package: is pytest here?")
    own = {path.partition("/")[0] for path in files}
    changed = {}
    for path, original in files.items():
        if not path.endswith(".py") or is_test(path):
            continue
        data = machine.read(path)
        if data is None:
            return f"{path} is missing"
        if data != original:
            if refusal := check_source(original, data, own):
                return f"{path}: {refusal}"
            changed[path] = data
    failed = sorted(right - read_passed(run({**files, **changed})))
    return f"{len(failed)} of {len(right)} tests fail: {', '.join(failed[:3])}" if failed else ""


def check_source(original: bytes, changed: bytes, own: Container[str] = ()) -> str:
    """Return what a changed source uses that no repair needs, '' if nothing.

    Refused are, where the original has them less often: imports other than of a few harmless modules, names
    that are imported from other packages and builtins that reach more than values, each in the same call or
    place, and names with two underscores, also in text. Names from the modules `own` may be used more often.
    An attribute has to be one of the original's, of a builtin container's or of those harmless modules'; one
    that is set has to be one that the original sets.
    """
    if len(changed) > len(original) + _LONGEST:
        return "it is too long"
    try:
        tree, first = ast.parse(changed), ast.parse(original)
        return _check_uses(first, tree, own)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is no Python that is read here: {error!s:.100}"


def _check_uses(first: ast.AST, tree: ast.AST, own: Container[str]) -> str:
    """Return what a changed tree uses that no repair needs; see `check_source`."""
    for node in (*ast.walk(first), *ast.walk(tree)):  # which numbers a call has is no difference
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            node.value = 0
    foreign = {
        name for name, module in _imports(first) if module not in _HARMLESS_MODULES and module not in own
    }
    attributes = {name for kind, name in _uses(first, foreign) if kind == "attribute"} | _ATTRIBUTES
    before, after = Counter(_uses(first, foreign)), Counter(_uses(tree, foreign))
    for (kind, name), count in after.items():
        if kind == "attribute" and name not in attributes:
            return f"the attribute {name!r:.60} is neither in the original nor harmless"
        if kind == "set" and not before[kind, name]:
            return f"it sets the attribute {name!r:.60}, which the original does not"
        if kind == "use" and count > before[kind, name]:
            return f"it uses {name!r:.60} more often than the original, which no repair needs"
    return ""


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that a source imports from other packages, each with the first part of its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module or "").partition(".")[0]


def _uses(tree: ast.AST, foreign: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what a source uses that may reach more than values."""
    for parent in ast.walk(tree):
        for field, child in ast.iter_fields(parent):
            for node in child if isinstance(child, list) else [child]:
                match node:
                    case ast.Name(id=name) if (
                        name in foreign
                        or name in _REACHING
                        or (hasattr(builtins, name) and name not in _HARMLESS)
                    ):
                        yield "use", _place(name, parent, field)
                    case ast.Attribute(attr=name) if name in _REACHING:
                        yield "use", _place(name, parent, field)
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):  # names of every kind, and text
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and "__" in text:
                    yield "use", text
        match node:
            case ast.Import(names=names):
                yield from (("use", each.name) for each in names if each.name not in _HARMLESS_MODULES)
            case ast.ImportFrom(module=module, names=names):
                harmless = not node.level and module in _HARMLESS_MODULES
                for each in names:
                    if not harmless or each.name.startswith("_") or each.name in _REACHING:
                        yield "use", f"{'.' * node.level}{module or ''}.{each.name}"
            case ast.Attribute(attr=name, ctx=context):
                yield "attribute", name
                if not isinstance(context, ast.Load):
                    yield "set", name
            case ast.MatchClass(kwd_attrs=attributes):
                yield from (("attribute", name) for name in attributes)


def _place(name: str, parent: ast.AST, field: str) -> str:
    """Return where a name stands: what is called or read with it, or the kind of its place."""
    if isinstance(parent, ast.Call | ast.Attribute | ast.Subscript):
        return ast.unparse(parent)
    return f"{name} ({type(parent).__name__} {field})"
