"""What of a task's code is refused when it is read: what would never run, or could decide nothing here.

Such code would accept every submission, or none. A function `_find_...` yields what it finds wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from gem.errors import BadArgument
from gem.graders.asserts.forms import AROUND, FORMS, Form, find_fixtures, gives_mock, is_fixture
from gem.graders.asserts.sharing import find_shared
from gem.graders.python_code import (
    Function,
    asks_main,
    can_decide,
    decides,
    find_reached,
    is_builtin,
    loads_name,
    parse_or_empty,
    parse_or_none,
    read_name,
    read_truth,
    why_lazy,
)

Reasons = Iterator[tuple[str, str]]
"""What is wrong with code, and what to write instead; texts."""

_ACCEPTED = f"Accepted: {FORMS}."
_SHARE = 'Write "isolate": False in the row, or leave it out.'


def check_form(form: Form) -> None:
    """Refuse tests that could decide nothing, or need what is not there.

    Raises:
        BadArgument: for such tests.
    """
    for find in (_find_unmentioned, _find_idle, _find_misplaced, _find_marks, _find_uncallable, _find_lazy):
        _refuse(form.code, find(form))
    _refuse(form.code, _find_ends(form.tree))


def check_isolation(code: str, free: Iterable[str], preamble: str) -> None:
    """Refuse tests that wait for what stays in the submission's process, or that it could skip.

    `free` are names that the tests use and neither they nor the preamble define.

    Raises:
        BadArgument: for such tests.
    """
    tree, free = parse_or_empty(code), set(free)
    derived = _find_derived(tree, free)
    _refuse(code, _find_mocks(tree))
    _refuse(code, _find_skips(tree, free, derived))
    logs = () if re.search("[lL]ogger", code) else ("assertLogs",)
    _refuse(code, _find_awaited(tree, free, (*_WARNS, *logs)))
    _refuse(code, ((why, _SHARE) for why in find_shared(tree, free, parse_or_empty(preamble))))


def check_verdicts(code: str) -> None:
    """Refuse a checker that could only say that an output is right.

    Raises:
        BadArgument: for such a checker.
    """
    tree = parse_or_none(code)
    if tree is not None and not defines_check(code) and not can_decide(find_reached(tree, main=True)):
        raise BadArgument(
            f"the checker is a program that cannot end with another exit code than 0: {code!r:.200}. "
            "Accepted: a function `def check(given, output, expected)` at the top level, or a program that "
            "exits with 0 for right and with 1 or 2 for wrong."
        )


def defines_check(code: str) -> bool:
    """Return whether a checker is a function `check`, and no program."""
    for node in parse_or_empty(code).body:
        match node:
            case ast.FunctionDef(name="check") | ast.AsyncFunctionDef(name="check"):
                return True
            case ast.Assign(targets=[ast.Name(id="check")], value=ast.Lambda()):
                return True
            case ast.AnnAssign(target=ast.Name(id="check"), value=ast.Lambda()):
                return True
    return False


def _refuse(code: str, reasons: Reasons) -> None:
    """Raise the first of the reasons, if there is one."""
    for why, instead in reasons:
        raise BadArgument(f"{why}: {code!r:.200}. {instead}")


def _find_unmentioned(form: Form) -> Reasons:
    """Find functions that nothing gives what they lack: where one is mentioned, it gets that there."""
    mentioned = set(map(read_name, form.reached))
    for name in sorted(form.tests.keys() - mentioned):
        yield from _find_needs(form.tests[name], find_fixtures(form.tests[name]))


def _find_needs(test: Function | ast.ClassDef, fixtures: Iterable[str], *, waits: bool = False) -> Reasons:
    """Find why a test cannot be called here; `waits` says that a coroutine is awaited."""
    why = "" if waits and isinstance(test, ast.AsyncFunctionDef) else why_lazy(test)
    if fixtures and not why:
        why = f"needs {', '.join(fixtures)}, and fixtures are not there"
    if why:
        yield f"the test {test.name} {why}", _ACCEPTED


def _find_idle(form: Form) -> Reasons:
    """Find whether tests have no asserts that run."""
    if can_decide(form.reached):
        return
    why = "they are never run" if any(map(decides, ast.walk(form.tree))) else "there are none"
    if isinstance(form.top.get("check"), ast.FunctionDef) and not form.call:
        why = "check is never called" + (", for the row has no entry_point" if form.entry is None else "")
    yield f"a test has no asserts that run ({why}), so it would accept everything", _ACCEPTED


def _find_misplaced(form: Form) -> Reasons:
    """Find tests that only their tool would find: in an `if` or `try`, in a class in a class."""
    mentioned = set(map(read_name, form.reached))
    cases = [name for name, kind in form.classes.items() if kind.is_case]  # no class in one is run
    left: list[tuple[ast.AST, bool]] = [(each, False) for each in form.tree.body]
    while left:
        node, inside = left.pop()
        test = ""
        if isinstance(node, Function):
            test = node.name if node.name.startswith("test") and not is_fixture(node) else ""
        elif isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, Function)}
            plain = node.name.startswith("Test") and "__init__" not in methods
            has_tests = any(name.startswith("test") for name in methods)
            test = node.name if plain + has_tests + bool(node.bases) > 1 else ""
            if plain and node.name not in cases:
                left += [(each, True) for each in node.body if not isinstance(each, Function)]
        elif isinstance(node, ast.If) and asks_main(node.test):
            left += [(each, True) for each in node.orelse]
        elif not isinstance(node, ast.expr):
            left += [(each, True) for each in ast.iter_child_nodes(node)]
        if test and inside and test not in mentioned:
            yield (
                f"the test {test} is in an if, a try or a class, where it is never run",
                f"Write it at the top level. {_ACCEPTED}",
            )


def _find_marks(form: Form) -> Reasons:
    """Find what pytest alone can do: fixtures that no test names, conditions in text."""
    nodes = ast.walk(form.tree) if form.functions or form.classes else ()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name, given = read_name(node.func), {each.arg: each.value for each in node.keywords}
        what = ""
        if name == "usefixtures" or (name == "fixture" and _is_set(given, "autouse")):
            what = "fixtures that no test names"
        elif name == "parametrize" and _is_set(given, "indirect"):
            what = "fixtures with parameters"
        elif name in ("skipif", "xfail"):
            match node.args:
                case [ast.Constant(value=str()), *_]:
                    what = f"{name} with a condition in text"
        if what:
            yield f"the tests have {what}, which pytest alone runs", _ACCEPTED


def _is_set(given: Mapping[str | None, ast.expr], name: str) -> bool:
    return name in given and read_truth(given[name]) is not False


def _find_uncallable(form: Form) -> Reasons:
    """Find tests, and functions around them, that their runner could not call."""
    if form.functions or form.classes:
        for name in form.roots:
            node = form.top[name]
            yield from _find_needs(node, [] if name.endswith("_function") else find_fixtures(node))
    for kind in form.classes.values():
        for method in kind.tests:
            fixtures = [] if kind.is_case else find_fixtures(method, *kind.chain)
            yield from _find_needs(method, fixtures, waits=kind.waits)


def _find_lazy(form: Form) -> Reasons:
    """Find calls of the tests' own coroutine functions and generators whose result is not used."""
    tree = parse_or_empty(form.code, form.call, *(f"{name}()" for name in form.roots))
    lazy: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            why = "" if node.decorator_list else why_lazy(node)
            lazy[node.name] = why and lazy.get(node.name, why)
    for node in find_reached(tree, running=form.running, by_call=True):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if lazy.get(name):
                yield (
                    f"the tests call {name}() and use no result, so nothing of it runs, for it {lazy[name]}",
                    _ACCEPTED,
                )


def _find_ends(tree: ast.Module) -> Reasons:
    """Find where tests end the process themselves, before their verdict."""
    ends = {"unittest.main", "sys.exit", "os._exit", "exit", "quit"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "unittest":
            ends |= {each.asname or each.name for each in node.names if each.name == "main"}
    for node in tree.body:
        match node:
            case ast.Expr(value=ast.Call(func=function, keywords=given)) if ast.unparse(function) in ends:
                if not any(each.arg == "exit" and read_truth(each.value) is False for each in given):
                    yield (
                        f"the tests call {ast.unparse(function)}(), which ends them",
                        "Leave it out, or write it below `if __name__ == '__main__':`; an assert says what "
                        "is right.",
                    )


def _find_mocks(tree: ast.Module) -> Reasons:
    """Find mocks of a `patch` by name that tests only look at or set up."""
    for node in ast.walk(tree):
        names: list[str] = []
        around: ast.AST = tree
        if isinstance(node, Function):
            patches = [each for each in node.decorator_list[::-1] if gives_mock(each)]
            given = [each.arg for each in node.args.args if each.arg != "self"]
            pairs, around = zip(patches, given, strict=False), node
            names = [name for patch, name in pairs if _is_patch(patch)]
        elif isinstance(node, ast.With):
            names = [read_name(each.optional_vars) for each in node.items if _is_patch(each.context_expr)]
        for name in names:
            nodes = list(ast.walk(around))
            uses = sum(loads_name(each, name) for each in nodes)
            looks = sum(isinstance(each, ast.Attribute) and loads_name(each.value, name) for each in nodes)
            if 0 < uses == looks:
                mock = f"{name}, the mock of a patch that does not reach the submission's process"
                yield f"the tests look at {mock}", _SHARE


def _is_patch(call: ast.expr) -> bool:
    return isinstance(call, ast.Call) and gives_mock(call) and read_name(call.func) == "patch"


def _find_skips(tree: ast.Module, free: set[str], derived: set[str]) -> Reasons:
    """Find skips that the submission decides; `derived` are names that may depend on it."""
    functions = (node for node in ast.walk(tree) if isinstance(node, Function))
    nodes = (each for function in functions for line in function.body for each in ast.walk(line))
    skips = {"skip", "skipTest", "SkipTest"}.difference(free)
    if any(read_name(each) in skips for each in nodes) and _uses_once(tree, derived):
        yield (
            "the tests use the submission at the top level or in setUpClass, so it decides whether one skips "
            "itself",
            "Leave the skip out, or use the submission in each test.",
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and read_name(node.func) in _SKIPS:
            given = [*node.args, *(each.value for each in node.keywords)]
            if any(read_name(each) in derived for value in given for each in ast.walk(value)):
                yield (
                    f"with {read_name(node.func)} the submission decides whether a test runs",
                    "Leave it out, or give it a condition that does not use the submission.",
                )


_SKIPS = ("skipIf", "skipUnless", "skipif", "xfail")


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


def _uses_once(tree: ast.Module, derived: set[str]) -> bool:
    """Return whether tests use such names where it counts for several tests."""
    left: list[ast.AST] = [*tree.body]
    while left:
        node = left.pop()
        if isinstance(node, ast.ClassDef):
            left += node.body
        elif isinstance(node, ast.If) and asks_main(node.test):
            left += node.orelse
        elif isinstance(node, Function) and node.name not in (*AROUND, "setUpClass", "setup_class"):
            continue
        elif any(read_name(each) in derived for each in ast.walk(node)):
            return True
    return False


def _find_awaited(tree: ast.Module, free: set[str], contexts: Iterable[str]) -> Reasons:
    """Find where tests wait in one of these contexts for what the submission alone could do.

    Where other calls could do it too, nothing is sure.
    """
    for node in ast.walk(tree):
        waits, inside = "", list[ast.expr]()
        match node:
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=kept)]):
                waits, name = read_name(call.func), read_name(kept)
                calls = [each for line in node.body for each in ast.walk(line) if isinstance(each, ast.Call)]
                if waits == "catch_warnings":  # else it silences them
                    records = any(each.arg == "record" for each in call.keywords)
                    kept_used = any(loads_name(each, name) for each in ast.walk(tree))
                    waits = waits if records and kept_used else ""
                    calls = [each for each in calls if not any(loads_name(x, name) for x in ast.walk(each))]
                inside = [each.func for each in calls]
            case ast.Call(func=function, args=[_, each, *_]):
                waits, inside = read_name(function), [each]
        theirs = [each for each in inside if isinstance(each, ast.Name) and each.id in free]
        silent = all(each in theirs or _is_silent(each) for each in inside)
        if theirs and silent and waits in contexts:
            yield f"the tests wait with {waits} for what stays in the submission's process", _SHARE


def _is_silent(function: ast.expr) -> bool:
    """Return whether a call of this warns of nothing: a builtin, unittest's asserts, a filter of warnings."""
    name = read_name(function)
    return is_builtin(function) or name.startswith("assert") or name in _FILTERS


_WARNS = ("assertWarns", "assertWarnsRegex", "warns", "deprecated_call", "catch_warnings")
_FILTERS = ("simplefilter", "filterwarnings", "resetwarnings")
