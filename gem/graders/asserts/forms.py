"""The forms in which tests in Python are written: what of them the tool of their author would call."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from gem.errors import BadArgument
from gem.graders.asserts.bindings import bound_names
from gem.graders.python_code import (
    Function,
    find_called,
    find_reached,
    loads_name,
    parse_or_empty,
    parse_or_none,
    read_name,
)

FORMS = (
    "asserts at the top level; `def check(candidate)` with the row's entry_point; functions test_* without "
    "fixtures; methods test* of a unittest.TestCase or of a class Test*"
)
"""Where the asserts of tests may be."""

AROUND = (
    *("setUpModule", "setup_module", "teardown_module", "tearDownModule"),
    *("setup_function", "teardown_function"),
)
"""Functions that pytest and unittest call around tests."""


@dataclass(frozen=True, slots=True)
class ClassForm:
    """A class of tests: its definition and those of its own bases, and its methods that are tests.

    `is_case` says that it is one of unittest, `waits` that it awaits its methods.
    """

    chain: list[ast.ClassDef]
    tests: list[Function]
    is_case: bool
    waits: bool


@dataclass(frozen=True, slots=True)
class Form:
    """Tests in Python, and what their author's tool would call of them.

    Args:
        code: the tests.
        tree: their syntax tree.
        entry: the argument of `check`, None if the task names no entry point.
        call: the call of `check` that they lack; empty if they need none.
        top: the functions and classes at the top level, by name.
        tests: those of the functions that are tests, by their name.
        functions: the names of those that pytest would call and nothing else does.
        classes: the classes that pytest or unittest would run, by name.
        roots: the names that one of these would call: functions, classes, and what is called around them.
        running: the names of the classes, and of their own bases.
        reached: the nodes that may be run, also of the code before the tests.
    """

    code: str
    tree: ast.Module
    entry: str | None
    call: str
    top: dict[str, Function | ast.ClassDef]
    tests: dict[str, Function]
    functions: list[str]
    classes: dict[str, ClassForm]
    roots: list[str]
    running: set[str]
    reached: list[ast.AST]


def read_form(code: str, entry: str | None, preamble: str = "") -> Form | None:
    """Read the form of tests; None for what is no Python here.

    `entry` is the argument of `check`, None if the task names no entry point. `preamble` is code before them.
    """
    tree = parse_or_none(code)
    if tree is None:
        return None
    top = {node.name: node for node in tree.body if isinstance(node, Function | ast.ClassDef)}
    check, call = top.get("check"), ""
    if isinstance(check, ast.FunctionDef) and entry is not None and len(_find_parameters(check)) < 2:
        call = f"check({entry if _find_parameters(check) else ''})\n"
    called = find_called(code, call)
    tests = {
        name: node
        for name, node in top.items()
        if name.startswith("test") and isinstance(node, Function) and not is_fixture(node)
    }
    functions = [name for name, node in tests.items() if name not in called and not find_fixtures(node)]
    classes = _find_classes(tree, top, find_called(code, call, *(f"{name}()" for name in functions)))
    roots = [*functions, *classes, *(name for name in AROUND if name in top)]
    running = {each.name for kind in classes.values() for each in kind.chain}
    reached = list(find_reached(parse_or_empty(preamble, code, call, *roots), running=running))
    return Form(code, tree, entry, call, top, tests, functions, classes, roots, running, reached)


def find_runs(form: Form) -> str:
    """Return the arguments with which the runner of the tests runs them, as code; empty if it runs none."""
    called = find_called(form.code, form.call)
    if not (form.functions or form.classes or _makes_tests(form.tree, called)):
        return ""
    known = {name for name in {*form.top, *called} if name in form.classes or name.lower().startswith("test")}
    loaded = {each.id for each in form.reached if isinstance(each, ast.Name) and loads_name(each, each.id)}
    helpers = sorted(name for name in loaded if name.startswith("test"))
    return (
        f"[{', '.join(form.functions)}], [{', '.join(form.classes)}], globals(), {sorted(known)}, {helpers}"
    )


def _makes_tests(tree: ast.Module, called: Iterable[str]) -> bool:
    """Return whether code may bind tests at its top level by more than their definitions."""
    for node in tree.body:
        match node:
            case ast.Assign(value=ast.Call() | ast.Lambda() | ast.Name() | ast.Attribute(), targets=targets):
                if any(read_name(each).lower().startswith("test") for each in targets):
                    return True
    return not {"globals", "exec"}.isdisjoint(called)


def _find_parameters(function: Function) -> list[str]:
    """Return the names of the parameters that a call has to give."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return [
        *(each.arg for each in positional[: len(positional) - len(given.defaults)]),
        *(each.arg for each, default in named if default is None),
    ]


def find_fixtures(function: ast.AST, *classes: ast.ClassDef) -> list[str]:
    """Return the parameters of a test, a method of such classes, that nothing evident gives: fixtures."""
    if not isinstance(function, Function):
        return []
    names = _find_parameters(function)
    if classes and not any(read_name(each) == "staticmethod" for each in function.decorator_list):
        names = names[1:]
    decorators = [each for owner in (function, *classes) for each in owner.decorator_list]
    names = names[sum(map(gives_mock, decorators)) :]
    for node in decorators:
        if isinstance(node, ast.Call) and read_name(node.func) == "given":  # hypothesis fills from the right
            filled = {each.arg for each in node.keywords}
            names = [name for name in names[: len(names) - len(node.args)] if name not in filled]
        if isinstance(node, ast.Call) and read_name(node.func) == "parametrize":
            keywords = [each.value for each in node.keywords if each.arg == "argnames"]
            match [*node.args, *keywords]:
                case [ast.Constant(value=str(text)), *_]:
                    given = {name.strip() for name in text.split(",")}
                case [ast.Tuple(elts=elements) | ast.List(elts=elements), *_]:
                    given = {str(each.value) for each in elements if isinstance(each, ast.Constant)}
                case _:
                    return []
            names = [name for name in names if name not in given]
    return names


def gives_mock(decorator: ast.expr) -> bool:
    """Return whether a decorator is a `patch` that gives the test its mock."""
    match decorator:
        case ast.Call(func=function, args=given, keywords=named):
            of_object = (
                read_name(function) == "object" and read_name(getattr(function, "value", None)) == "patch"
            )
            replaces = len(given) > 1 + of_object or any(each.arg == "new" for each in named)
            return (read_name(function) == "patch" or of_object) and not replaces
    return False


def is_fixture(function: Function) -> bool:
    """Return whether a function is a fixture of pytest."""
    return any(
        read_name(each.func if isinstance(each, ast.Call) else each) == "fixture"
        for each in function.decorator_list
    )


def _find_classes(
    tree: ast.Module, top: dict[str, Function | ast.ClassDef], called: set[str]
) -> dict[str, ClassForm]:
    """Return the classes of tests at the top level, without those that the tests make objects of."""
    imports = (each for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names)
    aliases = {each.asname: each.name for each in imports if each.asname}
    classes: dict[str, ClassForm] = {}
    for name in top:
        chain, bases, left = list[ast.ClassDef](), list[str](), [name]
        while left:
            node = top.get(base := left.pop(0))
            if isinstance(node, ast.ClassDef) and node not in chain:
                chain.append(node)
                left += map(read_name, node.bases)
            else:
                bases.append(aliases.get(base, base))
        methods = {
            each.name: each for node in reversed(chain) for each in node.body if isinstance(each, Function)
        }
        tests = [each for each in methods.values() if each.name.startswith(("test", "runTest"))]
        tests = [each for each in tests if not is_fixture(each)]
        is_case = any(base.endswith("TestCase") for base in bases)
        plain = name.startswith("Test") and tests and "__init__" not in methods and name not in called
        if chain and (is_case or plain):
            waits = any(base.endswith("IsolatedAsyncioTestCase") for base in bases)
            classes[name] = ClassForm(chain, tests, is_case, waits)
    parts = {each.name for kind in classes.values() if kind.is_case for each in kind.chain}
    return {name: kind for name, kind in classes.items() if kind.is_case or name not in parts}


def import_submission(code: str) -> tuple[str, frozenset[str]]:
    """Return tests without ``from solution import ...``, which KodCode writes, and the names imported so.

    Raises:
        BadArgument: for tests that import the module itself, which is nowhere.
    """
    nodes = list(ast.walk(parse_or_empty(code)))
    imports = (each for node in nodes if isinstance(node, ast.Import) for each in node.names)
    if any(each.name.partition(".")[0] == "solution" for each in imports):
        raise BadArgument(
            f"the tests import the module solution, which is not there: {code!r:.200}. "
            "Accepted: from solution import NAME, and the name without solution. before it."
        )
    statements = [
        node
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "solution" and not node.level
    ]
    data = code.encode("utf-8", "surrogatepass")
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in sorted(statements, key=lambda each: -starts[each.lineno - 1] - each.col_offset):
        renamed = [f"{each.asname} = {each.name}" for each in node.names if each.asname]
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        data = data[:first] + ("; ".join(renamed) or "pass").encode() + data[last:]
    names = frozenset(each.name for node in statements for each in node.names) - {"*"}
    return data.decode("utf-8", "surrogatepass"), names


def find_free_names(pieces: Iterable[str], preamble: str) -> tuple[set[str], set[str]]:
    """Return the names that tests use and nothing before them defines, and those of them that are called."""
    free, called = set[str](), set[str]()
    before = bound_names(parse_or_empty(preamble))
    for tree in map(parse_or_empty, pieces):
        nodes = list(ast.walk(tree))
        modules = {
            node.value.id
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in _MODULES
        }
        own = before | bound_names(tree) | modules | _BUILTIN
        free |= {node.id for node in nodes if isinstance(node, ast.Name)} - own
        called |= {read_name(node.func) for node in nodes if isinstance(node, ast.Call)} & free
    return free, called


def find_called_builtins(pieces: Iterable[str]) -> set[str]:
    """Return the builtins that code calls by their names and does not define anew."""
    trees = list(map(parse_or_empty, pieces))
    nodes = (node for tree in trees for node in ast.walk(tree))
    called = {
        node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return called.intersection(dir(builtins)).difference(*map(bound_names, trees))


_BUILTIN = {*dir(builtins), "__file__", "__builtins__"}
_MODULES = {*sys.stdlib_module_names, "numpy", "np", "pandas", "pd", "scipy", "sympy"}
"""Modules that tests may use as if they had imported them."""
