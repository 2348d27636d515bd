"""What code of a task runs: the forms in which tests and checkers are written, and which can decide nothing.

Code that is never run, or that checks nothing, would accept every submission. So the functions and classes of
tests that their author's tool would call are called, and code that can decide nothing is refused.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator

from gem.errors import BadArgument
from gem.graders.assert_tester import bound_names

FORMS = (
    "asserts at the top level; `def check(candidate)` with the row's entry_point; functions test_* without "
    "fixtures; methods test* of a unittest.TestCase"
)
"""Where the asserts of tests may be."""

_RUN = '''

def __run_tests__(functions, classes):
    """Run what pytest and unittest would, up to the first error."""
    import itertools, unittest
    for function in functions:
        tables = []
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names, rows = mark.args[:2]
                names = [each.strip() for each in names.split(",")] if isinstance(names, str) else names
                rows = [row.values if type(row).__name__ == "ParameterSet" else row for row in rows]
                rows = [row if len(names) > 1 or type(row) is tuple else (row,) for row in rows]
                tables.append([list(zip(names, row)) for row in rows])
        for chosen in itertools.product(*tables):
            function(**dict(itertools.chain(*chosen)))
    cases = [case for each in classes for case in unittest.defaultTestLoader.loadTestsFromTestCase(each)]
    run = [
        case for case in cases
        if not getattr(getattr(case, case._testMethodName), "__unittest_skip__", False)
        and not getattr(type(case), "__unittest_skip__", False)
    ]
    if classes and not run:
        raise unittest.SkipTest("no test is left to run")
    unittest.TestSuite(run).debug()  # which catches nothing: no exception of the submission skips a test


'''
"""Put behind tests that have such functions or classes; part of them, so that it runs wherever they do."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse_code(code: str) -> ast.Module:
    """Parse code, with a retry because Python 3.11 may miscount its recursion depth in threads."""
    for _ in range(9):
        try:
            return ast.parse(code)
        except SystemError:
            continue
    return ast.parse(code)


def parse_or_none(code: str) -> ast.Module | None:
    """Parse code; None if it is no Python, or if that takes more room than there is here."""
    try:
        return parse_code(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def complete_tests(code: str, entry: str | None, preamble: str = "") -> str:
    """Return tests that call what would not be called otherwise: `check`, functions and classes of tests.

    `entry` is the argument of `check`, None if the task names no entry point. `preamble` is code before them.

    Raises:
        BadArgument: for tests that could decide nothing, or need what is not there.
    """
    tree = parse_or_none(code)
    if tree is None:
        return code
    calls = []
    used = {node.id for node in find_reached(tree) if isinstance(node, ast.Name)}
    top = {node.name: node for node in tree.body if isinstance(node, Function | ast.ClassDef)}
    check = top.get("check")
    if isinstance(check, ast.FunctionDef) and entry is not None:
        calls.append(f"check({entry if _parameters(check) else ''})\n")
    classes = _test_classes(top)
    functions = [
        name
        for name, node in top.items()
        if isinstance(node, Function) and name.startswith("test") and name not in used
    ]
    for name in functions:
        _check_function(top[name], code)
    around = parse_or_none("\n".join([preamble, code, *calls, *functions, *classes]))
    if around is not None and not can_decide(around, running=classes):
        why = "they are never run" if any(map(_decides, ast.walk(tree))) else "there are none"
        if check is not None and entry is None:
            why = "check is never called, for the row has no entry_point"
        raise BadArgument(
            f"a test has no asserts that run ({why}), so it would accept everything: {code!r:.200}. "
            f"Accepted: {FORMS}."
        )
    if classes or functions:
        _check_main(tree, code)
        calls.insert(0, f"{_RUN}__run_tests__([{', '.join(functions)}], [{', '.join(classes)}])\n")
    return "\n\n".join([code, *calls])


def import_submission(code: str) -> tuple[str, frozenset[str]]:
    """Return tests without ``from solution import ...``, which KodCode writes, and the names imported so."""
    tree = parse_or_none(code)
    nodes = [
        node
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.ImportFrom) and node.module == "solution" and not node.level
    ]
    data = code.encode("utf-8", "surrogatepass")
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in sorted(nodes, key=lambda each: -starts[each.lineno - 1] - each.col_offset):
        renamed = [f"{each.asname} = {each.name}" for each in node.names if each.asname]
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        data = data[:first] + ("; ".join(renamed) or "pass").encode() + data[last:]
    names = frozenset(each.name for node in nodes for each in node.names) - {"*"}
    return data.decode("utf-8", "surrogatepass"), names


def find_free_names(pieces: Iterable[str], preamble: str) -> tuple[set[str], set[str]]:
    """Return the names that tests use and nothing before them defines, and those of them that are called."""
    free, called = set[str](), set[str]()
    before = bound_names(parse_or_none(preamble) or ast.Module([], []))
    for piece in pieces:
        tree = parse_or_none(piece)
        if tree is None:
            continue
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
        called |= {_name(node.func) for node in nodes if isinstance(node, ast.Call)} & free
    return free, called


def find_imports(code: str) -> str:
    """Return the imports at the top level of code."""
    tree = parse_or_none(code)
    imports = (each for each in (tree.body if tree else ()) if isinstance(each, ast.Import | ast.ImportFrom))
    return "\n".join(map(ast.unparse, imports))


_BUILTIN = {*dir(builtins), "__file__", "__builtins__"}
_MODULES = {*sys.stdlib_module_names, "numpy", "np", "pandas", "pd", "scipy", "sympy"}
"""Modules that tests may use as if they had imported them."""


def _parameters(function: Function) -> list[str]:
    """Return the names of the parameters that a call has to give."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return [
        *(each.arg for each in positional[: len(positional) - len(given.defaults)]),
        *(each.arg for each, default in named if default is None),
    ]


def _test_classes(top: dict[str, Function | ast.ClassDef]) -> list[str]:
    """Return the classes of unittest among the definitions at top level."""
    classes: list[str] = []
    for name, node in top.items():
        if isinstance(node, ast.ClassDef):
            bases = [_name(base) for base in node.bases]
            if any(base.endswith("TestCase") or base in classes for base in bases):
                classes.append(name)
    return classes


def _check_function(function: Function | ast.ClassDef, code: str) -> None:
    """Refuse a function of tests that cannot be called here."""
    why = ""
    if not isinstance(function, ast.FunctionDef):
        why = "is async"
    elif _parameters(function) and not any("parametrize" in ast.dump(d) for d in function.decorator_list):
        why = f"needs {', '.join(_parameters(function))}, and fixtures are not there"
    if why:
        raise BadArgument(f"the test {function.name} {why}: {code!r:.200}. Accepted: {FORMS}.")


def _check_main(tree: ast.Module, code: str) -> None:
    """Refuse tests that end the process themselves, before their verdict."""
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            stays = any(each.arg == "exit" and not _truth(each.value) for each in node.value.keywords)
            if called in ("unittest.main", "main") and not stays:
                raise BadArgument(
                    f"the tests call {called}(), which ends them: {code!r:.200}. Leave it out, or write it "
                    "below `if __name__ == '__main__':`."
                )


def defines_check(code: str) -> bool:
    """Return whether a checker is a function `check`, and no program."""
    tree = parse_or_none(code)
    for node in tree.body if tree else ():
        match node:
            case ast.FunctionDef(name="check") | ast.AsyncFunctionDef(name="check"):
                return True
            case ast.Assign(targets=[ast.Name(id="check")], value=ast.Lambda()):
                return True
            case ast.AnnAssign(target=ast.Name(id="check"), value=ast.Lambda()):
                return True
    return False


def check_verdicts(code: str) -> None:
    """Refuse a checker that could only say that an output is right.

    Raises:
        BadArgument: for such a checker.
    """
    tree = parse_or_none(code)
    if tree is not None and not defines_check(code) and not can_decide(tree, main=True):
        raise BadArgument(
            f"the checker is a program that cannot end with another exit code than 0: {code!r:.200}. "
            "Accepted: a function `def check(given, output, expected)` at the top level, or a program that "
            "exits with 0 for right and with 1 or 2 for wrong."
        )


def can_decide(tree: ast.Module, *, running: Iterable[str] = (), main: bool = False) -> bool:
    """Return whether code may end with an error, by an assert or otherwise by its own will.

    `running` are classes of unittest that are run, `main` says that the code runs as ``__main__``.
    """
    own = {node.name for node in ast.walk(tree) if isinstance(node, Function)}
    return any(_decides(node, own) for node in find_reached(tree, running=running, main=main))


def find_reached(tree: ast.Module, *, running: Iterable[str] = (), main: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes of code that may be run; of functions those whose name is used by such.

    Of a `try` that goes on after a failed assert, what it tries is left out.
    """
    bodies: dict[str, list[ast.AST]] = {}  # by the name whose use may run them
    for node in ast.walk(tree):
        if isinstance(node, Function):
            bodies.setdefault(node.name, []).extend(node.body)
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, Function))
            for method in methods:
                if method.name.startswith(_CALLED if node.name in running else "__"):
                    bodies.setdefault(node.name, []).extend(method.body)
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                left += [*node.decorator_list, node.args]
                continue
            case ast.If() if _is_main(node.test):
                left += node.body if main else node.orelse
                continue
            case ast.Try() if any(map(_swallows, node.handlers)):
                left += [*node.handlers, *node.orelse, *node.finalbody]
                continue
            case ast.Name(id=name) | ast.Attribute(attr=name):
                left += bodies.pop(name, [])
        left += ast.iter_child_nodes(node)


_CALLED = ("test", "runTest", "setUp", "tearDown", "asyncSetUp", "asyncTearDown", "__")
"""How the methods begin that unittest calls."""


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and "__name__" in (_name(test.left), _name(test.comparators[0]))


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Return whether an `except` clause catches a failed assert."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or _name(kind) in _CAUGHT for kind in kinds)


_CAUGHT = ("AssertionError", "Exception", "BaseException")


def _name(node: ast.AST | None) -> str:
    """Return a name, or the last part of a dotted one."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _decides(node: ast.AST, own: Iterable[str] = ()) -> bool:
    """Return whether a statement or call may fail by its own will; `own` are functions of the same code."""
    match node:
        case ast.Assert():
            return _truth(node.test) is not True
        case ast.Raise():
            return True
        case ast.Call(func=ast.Name() | ast.Attribute() as function):
            name = _name(function)
            if name in _ENDS:
                return not node.args or _truth(node.args[0]) is not False
            return name not in own and (name.lower().startswith("assert") or name in _FAILS)
    return False


_ENDS = ("exit", "_exit", "quit")
_FAILS = ("fail", "raises", "warns", "exec", "abort")


def _truth(value: ast.expr) -> bool | None:
    """Return whether an expression is true, None if that is not evident."""
    match value:
        case ast.Constant():
            return bool(value.value)
        case ast.Tuple() | ast.List():
            return bool(value.elts)
    return None
