"""What code of a task runs: the forms in which tests and checkers are written, and which can decide nothing.

Code that is never run, or that checks nothing, would accept every submission. So the functions and classes of
tests that their author's tool would call are called, and code that can decide nothing is refused.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from gem.errors import BadArgument
from gem.graders.assert_tester import bound_names

FORMS = (
    "asserts at the top level; `def check(candidate)` with the row's entry_point; functions test_* without "
    "fixtures; methods test* of a unittest.TestCase or of a class Test*"
)
"""Where the asserts of tests may be."""

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
    top = {node.name: node for node in tree.body if isinstance(node, Function | ast.ClassDef)}
    check, calls = top.get("check"), list[str]()
    if isinstance(check, ast.FunctionDef) and entry is not None and len(_parameters(check)) < 2:
        calls.append(f"check({entry if _parameters(check) else ''})\n")
    used = _find_called([code, *calls])
    tests = {
        name: node
        for name, node in top.items()
        if name.startswith("test") and isinstance(node, Function) and not _is_fixture(node)
    }
    functions = [name for name in tests if name not in used and not _lacks(tests[name])]
    classes = _find_classes(tree, top, _find_called([code, *calls, *(f"{name}()" for name in functions)]))
    running = {each.name for kind in classes.values() for each in kind.chain}
    names = [*functions, *classes, *(name for name in _AROUND if name in top)]
    around = _join([preamble, code, *calls, *names])
    reached = list(find_reached(around, running=running))
    mentioned = {_name(node) for node in reached}
    for name in sorted(tests.keys() - mentioned):  # where it is mentioned, it gets what it lacks
        _check_test(tests[name], _lacks(tests[name]), code)
    if not can_decide(around, running=running):
        why = "they are never run" if any(map(_decides, ast.walk(tree))) else "there are none"
        if isinstance(check, ast.FunctionDef) and not calls:
            why = "check is never called" + (", for the row has no entry_point" if entry is None else "")
        raise BadArgument(
            f"a test has no asserts that run ({why}), so it would accept everything: {code!r:.200}. "
            f"Accepted: {FORMS}."
        )
    _check_places(tree, mentioned, [name for name, kind in classes.items() if kind.is_case], code)
    if functions or classes:
        _check_marks(tree, code)
        for name in names:
            _check_test(top[name], [] if name.endswith("_function") else _lacks(top[name]), code)
        for kind in classes.values():
            for method in kind.tests:
                lacks = [] if kind.is_case else _lacks(method, *kind.chain)
                _check_test(method, lacks, code, waits=kind.waits)
    _check_calls(_join([code, *calls, *(f"{name}()" for name in names)]), running, code)
    _check_ends(tree, code)
    if functions or classes or _makes_tests(tree, used):
        known = sorted(name for name in {*top, *used} if name in classes or name.lower().startswith("test"))
        loaded = sorted(
            {each.id for each in reached if isinstance(each, ast.Name) and _is_name(each, each.id)}
        )
        helpers = [name for name in loaded if name.startswith("test")]
        lists = f"[{', '.join(functions)}], [{', '.join(classes)}], globals(), {known}, {helpers}"
        run = f"__runner__['run_tests']({lists})"
        calls.insert(0, f"exec({_runner()!r}, __runner__ := {{}})\n{run}\n")
    return "\n\n".join([code, *calls])


_AROUND = (
    *("setUpModule", "setup_module", "teardown_module", "tearDownModule"),
    *("setup_function", "teardown_function"),
)
"""Functions that pytest and unittest call around tests."""


def _makes_tests(tree: ast.Module, called: Iterable[str]) -> bool:
    """Return whether code may bind tests at its top level by more than their definitions."""
    for node in tree.body:
        match node:
            case ast.Assign(value=ast.Call() | ast.Lambda() | ast.Name() | ast.Attribute(), targets=targets):
                if any(_name(each).lower().startswith("test") for each in targets):
                    return True
    return not {"globals", "exec"}.isdisjoint(called)


def _find_called(pieces: Iterable[str]) -> set[str]:
    """Return the names of functions and classes that code calls."""
    reached = find_reached(_join(pieces), by_call=True)
    calls = (node.func for node in reached if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _join(pieces: Iterable[str]) -> ast.Module:
    return parse_or_none("\n".join(pieces)) or ast.Module([], [])


@functools.cache
def _runner() -> str:
    return resources.files("gem.graders").joinpath("assert_runner.py").read_text("utf-8")


def import_submission(code: str) -> tuple[str, frozenset[str]]:
    """Return tests without ``from solution import ...``, which KodCode writes, and the names imported so.

    Raises:
        BadArgument: for tests that import the module itself, which is nowhere.
    """
    tree = parse_or_none(code)
    imports = (node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.Import))
    if any(each.name.partition(".")[0] == "solution" for node in imports for each in node.names):
        raise BadArgument(
            f"the tests import the module solution, which is not there: {code!r:.200}. "
            "Accepted: from solution import NAME, and the name without solution. before it."
        )
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


def find_called_builtins(pieces: Iterable[str]) -> set[str]:
    """Return the builtins that code calls by their names and does not define anew."""
    trees = [tree for tree in map(parse_or_none, pieces) if tree is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    called = {
        _name(node.func) for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return called.intersection(dir(builtins)).difference(*map(bound_names, trees))


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


def _lacks(function: ast.AST, *classes: ast.ClassDef) -> list[str]:
    """Return the parameters of a test, a method of such classes, that nothing evident gives: fixtures."""
    if not isinstance(function, Function):
        return []
    names = _parameters(function)
    if classes and not any(_name(each) == "staticmethod" for each in function.decorator_list):
        names = names[1:]
    decorators = [each for owner in (function, *classes) for each in owner.decorator_list]
    names = names[sum(map(_gives_mock, decorators)) :]
    for node in decorators:
        if isinstance(node, ast.Call) and _name(node.func) == "given":  # hypothesis fills from the right
            filled = {each.arg for each in node.keywords}
            names = [name for name in names[: len(names) - len(node.args)] if name not in filled]
        if isinstance(node, ast.Call) and _name(node.func) == "parametrize":
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


def _gives_mock(decorator: ast.expr) -> bool:
    """Return whether a decorator is a `patch` that gives the test its mock."""
    match decorator:
        case ast.Call(func=function, args=given, keywords=named):
            of_object = _name(function) == "object" and _name(getattr(function, "value", None)) == "patch"
            replaces = len(given) > 1 + of_object or any(each.arg == "new" for each in named)
            return (_name(function) == "patch" or of_object) and not replaces
    return False


def _is_fixture(function: Function) -> bool:
    return any(
        _name(each.func if isinstance(each, ast.Call) else each) == "fixture"
        for each in function.decorator_list
    )


@dataclass(frozen=True, slots=True)
class _TestClass:
    """A class of tests: its definition and those of its own bases, and its methods that are tests.

    `is_case` says that it is one of unittest, `waits` that it awaits its methods.
    """

    chain: list[ast.ClassDef]
    tests: list[Function]
    is_case: bool
    waits: bool


def _find_classes(
    tree: ast.Module, top: Mapping[str, Function | ast.ClassDef], called: set[str]
) -> dict[str, _TestClass]:
    """Return the classes of tests at the top level, without those that the tests make objects of."""
    imports = (each for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names)
    aliases = {each.asname: each.name for each in imports if each.asname}
    classes: dict[str, _TestClass] = {}
    for name in top:
        chain, bases, left = list[ast.ClassDef](), list[str](), [name]
        while left:
            node = top.get(base := left.pop(0))
            if isinstance(node, ast.ClassDef) and node not in chain:
                chain.append(node)
                left += map(_name, node.bases)
            else:
                bases.append(aliases.get(base, base))
        methods = {
            each.name: each for node in reversed(chain) for each in node.body if isinstance(each, Function)
        }
        tests = [each for each in methods.values() if each.name.startswith(("test", "runTest"))]
        tests = [each for each in tests if not _is_fixture(each)]
        is_case = any(base.endswith("TestCase") for base in bases)
        plain = name.startswith("Test") and tests and "__init__" not in methods and name not in called
        if chain and (is_case or plain):
            waits = any(base.endswith("IsolatedAsyncioTestCase") for base in bases)
            classes[name] = _TestClass(chain, tests, is_case, waits)
    parts = {each.name for kind in classes.values() if kind.is_case for each in kind.chain}
    return {name: kind for name, kind in classes.items() if kind.is_case or name not in parts}


def _why_lazy(function: ast.AST) -> str:
    """Return why a call of a function runs nothing of it, if that is so."""
    if isinstance(function, ast.AsyncFunctionDef):
        return "is async"
    left: list[ast.AST] = [*function.body] if isinstance(function, ast.FunctionDef) else []
    while left:
        node = left.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return "has a yield"
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return ""


def _check_test(
    function: Function | ast.ClassDef, lacks: list[str], code: str, *, waits: bool = False
) -> None:
    """Refuse a test that cannot be called here."""
    why = _why_lazy(function)
    if waits and isinstance(function, ast.AsyncFunctionDef):
        why = ""
    if lacks and not why:
        why = f"needs {', '.join(lacks)}, and fixtures are not there"
    if why:
        raise BadArgument(f"the test {function.name} {why}: {code!r:.200}. Accepted: {FORMS}.")


def _check_places(tree: ast.Module, mentioned: set[str], cases: Iterable[str], code: str) -> None:
    """Refuse tests that only their tool would find: in an `if` or `try`, in a class in a class.

    `mentioned` are names that the tests use themselves, `cases` classes of unittest, where no inner one runs.
    """
    left: list[tuple[ast.AST, bool]] = [(each, False) for each in tree.body]
    while left:
        node, inside = left.pop()
        is_test = False
        if isinstance(node, Function):
            is_test = node.name.startswith("test") and not _is_fixture(node)
        elif isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, Function)}
            plain = node.name.startswith("Test") and "__init__" not in methods
            has_tests = any(name.startswith("test") for name in methods)
            is_test = plain + has_tests + bool(node.bases) > 1
            if plain and node.name not in cases:
                left += [(each, True) for each in node.body if not isinstance(each, Function)]
        elif isinstance(node, ast.If) and _is_main(node.test):
            left += [(each, True) for each in node.orelse]
        elif not isinstance(node, ast.expr):
            left += [(each, True) for each in ast.iter_child_nodes(node)]
        if is_test and inside and node.name not in mentioned:  # type: ignore[attr-defined]
            raise BadArgument(
                f"the test {node.name} is in an if, a try or a class, where it is never run: "  # type: ignore[attr-defined]
                f"{code!r:.200}. Write it at the top level. Accepted: {FORMS}."
            )


def _check_marks(tree: ast.Module, code: str) -> None:
    """Refuse what pytest alone can do: fixtures that no test names, conditions in text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, given = _name(node.func), {each.arg: each.value for each in node.keywords}
            text = (
                node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
            )
            what = ""
            if name == "usefixtures" or (name == "fixture" and _is_set(given, "autouse")):
                what = "fixtures that no test names"
            elif name == "parametrize" and _is_set(given, "indirect"):
                what = "fixtures with parameters"
            elif name in ("skipif", "xfail") and text:
                what = f"{name} with a condition in text"
            if what:
                raise BadArgument(
                    f"the tests have {what}, which pytest alone runs: {code!r:.200}. Accepted: {FORMS}."
                )


def _is_set(given: Mapping[str | None, ast.expr], name: str) -> bool:
    return name in given and _truth(given[name]) is not False


def _check_ends(tree: ast.Module, code: str) -> None:
    """Refuse tests that end the process themselves, before their verdict."""
    ends = {"unittest.main", "sys.exit", "os._exit", "exit", "quit"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "unittest":
            ends |= {each.asname or each.name for each in node.names if each.name == "main"}
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            stays = any(each.arg == "exit" and _truth(each.value) is False for each in node.value.keywords)
            if called in ends and not stays:
                raise BadArgument(
                    f"the tests call {called}(), which ends them: {code!r:.200}. Leave it out, or write it "
                    "below `if __name__ == '__main__':`; an assert says what is right."
                )


def check_isolation(code: str, free: Iterable[str]) -> None:
    """Refuse tests that wait for what stays in the submission's process, or that it could skip.

    `free` are names that the tests use and do not define. Where other calls could warn too, nothing is sure.
    """
    tree = _join([code])
    logs = () if re.search("[lL]ogger", code) else ("assertLogs",)
    if mock := _find_mock(tree):
        raise BadArgument(
            f"the tests look at {mock}, the mock of a patch that does not reach the submission's process: "
            f'{code!r:.200}. Write "isolate": False in the row, or leave it out.'
        )
    derived = _find_derived(tree, free)
    if _skips_itself(tree, free) and _uses_once(tree, derived):
        raise BadArgument(
            "the tests use the submission at the top level or in setUpClass, so it decides whether one skips "
            f"itself: {code!r:.200}. Leave the skip out, or use the submission in each test."
        )
    for node in ast.walk(tree):
        waits, inside = "", list[ast.expr]()
        match node:
            case ast.Call(func=function) if _name(function) in _SKIPS:
                given = [*node.args, *(each.value for each in node.keywords)]
                if any(_name(each) in derived for value in given for each in ast.walk(value)):
                    raise BadArgument(
                        f"with {_name(function)} the submission decides whether a test runs: {code!r:.200}. "
                        "Leave it out, or give it a condition that does not use the submission."
                    )
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=kept)]):
                waits, name = _name(call.func), _name(kept)
                calls = [each for line in node.body for each in ast.walk(line) if isinstance(each, ast.Call)]
                if waits == "catch_warnings":  # else it silences them
                    records = any(each.arg == "record" for each in call.keywords)
                    waits = waits if records and any(_is_name(each, name) for each in ast.walk(tree)) else ""
                    calls = [each for each in calls if not any(_is_name(x, name) for x in ast.walk(each))]
                inside = [each.func for each in calls]
            case ast.Call(func=function, args=[_, each, *_]):
                waits, inside = _name(function), [each]
        theirs = [each for each in inside if isinstance(each, ast.Name) and each.id in free]
        if (
            theirs
            and all(each in theirs or _is_silent(each) for each in inside)
            and waits in (*_WARNS, *logs)
        ):
            raise BadArgument(
                f"the tests wait with {waits} for what stays in the submission's process: "
                f'{code!r:.200}. Write "isolate": False in the row, or leave it out.'
            )


def _find_derived(tree: ast.Module, free: Iterable[str]) -> set[str]:
    """Return the names that may depend on free ones: these, what is bound by their use, what calls them."""
    derived, count = set(free), -1
    while len(derived) > count:
        count = len(derived)
        for node in tree.body:
            names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
            if not any(each.id in derived for each in names):
                continue
            if isinstance(node, Function | ast.ClassDef):
                derived.add(node.name)
            else:
                derived |= {each.id for each in names if isinstance(each.ctx, ast.Store)}
    return derived


def _skips_itself(tree: ast.Module, free: Iterable[str]) -> bool:
    """Return whether a function of the tests skips a test while it runs."""
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    nodes = (each for function in functions for line in function.body for each in ast.walk(line))
    return any(_name(each) in {"skip", "skipTest", "SkipTest"}.difference(free) for each in nodes)


def _uses_once(tree: ast.Module, derived: set[str]) -> bool:
    """Return whether tests use such names where it counts for several tests."""
    left: list[ast.AST] = [*tree.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.ClassDef):
            left += node.body
        elif isinstance(node, ast.If) and _is_main(node.test):
            left += node.orelse
        elif isinstance(node, Function) and node.name not in (*_AROUND, "setUpClass", "setup_class"):
            continue
        elif any(_name(each) in derived for each in ast.walk(node)):
            return True
    return False


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _is_silent(function: ast.expr) -> bool:
    """Return whether a call of this warns of nothing: a builtin, unittest's asserts, a filter of warnings."""
    name = _name(function)
    builtin = isinstance(function, ast.Name) and name in dir(builtins)
    return builtin or name.startswith("assert") or name in _FILTERS


def _find_mock(tree: ast.Module) -> str:
    """Return the mock of a `patch` by name that tests only look at or set up; empty if there is none."""
    for node in ast.walk(tree):
        names: list[str] = []
        around: ast.AST = tree
        if isinstance(node, Function):
            patches = [each for each in node.decorator_list[::-1] if _gives_mock(each)]
            given = [each.arg for each in node.args.args if each.arg != "self"]
            pairs, around = zip(patches, given, strict=False), node
            names = [name for patch, name in pairs if _is_patch(patch)]
        elif isinstance(node, ast.With):
            names = [_name(each.optional_vars) for each in node.items if _is_patch(each.context_expr)]
        for name in names:
            nodes = list(ast.walk(around))
            uses = sum(_is_name(each, name) for each in nodes)
            looks = sum(isinstance(each, ast.Attribute) and _is_name(each.value, name) for each in nodes)
            if 0 < uses == looks:
                return name
    return ""


def _is_patch(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and _gives_mock(call) and _name(call.func) == "patch"


_SKIPS = ("skipIf", "skipUnless", "skipif", "xfail")
_WARNS = ("assertWarns", "assertWarnsRegex", "warns", "deprecated_call", "catch_warnings")
_FILTERS = ("simplefilter", "filterwarnings", "resetwarnings")


def _check_calls(tree: ast.Module, running: Iterable[str], code: str) -> None:
    """Refuse tests that call a coroutine function or a generator of theirs, and use no result."""
    lazy: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            why = "" if node.decorator_list else _why_lazy(node)
            lazy[node.name] = why and lazy.get(node.name, why)
    for node in find_reached(tree, running=running, by_call=True):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if lazy.get(name):
                raise BadArgument(
                    f"the tests call {name}() and use no result, so nothing of it runs, for it {lazy[name]}: "
                    f"{code!r:.200}. Accepted: {FORMS}."
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

    `running` are classes of tests that are run, `main` says that the code runs as ``__main__``.
    """
    own = {node.name for node in ast.walk(tree) if isinstance(node, Function)}
    return any(_decides(node, own) for node in find_reached(tree, running=running, main=main))


def find_reached(
    tree: ast.Module, *, running: Iterable[str] = (), main: bool = False, by_call: bool = False
) -> Iterator[ast.AST]:
    """Yield the nodes of code that may be run; of functions those whose name is used by such.

    Of a `try` or `with` that goes on after a failed assert, what it tries is left out. With
    `by_call`, functions that are mentioned and not called are left out too.
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
            case ast.With() if any(_suppresses(each.context_expr) for each in node.items):
                continue
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if by_call:
                left += bodies.pop(name, [])
            case ast.Name(id=name) | ast.Attribute(attr=name) if not by_call:
                left += bodies.pop(name, [])
        left += ast.iter_child_nodes(node)


_CALLED = ("test", "runTest", "setUp", "tearDown", "asyncSetUp", "asyncTearDown", "setup", "teardown", "__")
"""How the methods begin that unittest and pytest call."""


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and "__name__" in (_name(test.left), _name(test.comparators[0]))


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Return whether an `except` clause catches a failed assert."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or _name(kind) in _CAUGHT for kind in kinds)


def _suppresses(context: ast.expr) -> bool:
    """Return whether a context is `contextlib.suppress` of a failed assert."""
    suppress = isinstance(context, ast.Call) and _name(context.func) == "suppress"
    return suppress and any(_name(each) in _CAUGHT for each in context.args)  # type: ignore[attr-defined]


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
