"""Python code that is read, not run: its syntax tree, the names in it, and what of it may be run."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from gem.source_files import parse_code

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse_or_none(code: str) -> ast.Module | None:
    """Parse code; None if it is no Python, or if that takes more room than there is here."""
    try:
        return parse_code(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse_or_empty(*pieces: str) -> ast.Module:
    """Parse pieces of code as one; an empty module where `parse_or_none` returns None."""
    return parse_or_none("\n".join(pieces)) or ast.Module([], [])


def read_name(node: ast.AST | None) -> str:
    """Return a name, or the last part of a dotted one; empty for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def read_truth(value: ast.expr) -> bool | None:
    """Return whether an expression is true, None if that is not evident."""
    match value:
        case ast.Constant():
            return bool(value.value)
        case ast.Tuple() | ast.List():
            return bool(value.elts)
    return None


def loads_name(node: ast.AST, name: str) -> bool:
    """Return whether a node uses a name, not as an attribute."""
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def asks_main(test: ast.expr) -> bool:
    """Return whether a condition is ``__name__ == "__main__"``."""
    return isinstance(test, ast.Compare) and "__name__" in map(read_name, (test.left, test.comparators[0]))


def find_imports(code: str) -> str:
    """Return the imports at the top level of code."""
    imports = (each for each in parse_or_empty(code).body if isinstance(each, ast.Import | ast.ImportFrom))
    return "\n".join(map(ast.unparse, imports))


def find_reached(
    tree: ast.Module, *, running: Iterable[str] = (), main: bool = False, by_call: bool = False
) -> Iterator[ast.AST]:
    """Yield the nodes of code that may be run; of functions those whose name is used by such.

    Of a `try` or `with` that goes on after a failed assert, what it tries is left out.

    Args:
        tree: the code.
        running: the names of classes of tests that unittest or pytest run.
        main: whether the code runs as ``__main__``.
        by_call: leave out the functions that are mentioned and not called.
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
            case ast.If() if asks_main(node.test):
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


def find_called(*pieces: str) -> set[str]:
    """Return the names of functions and classes that code calls where it may be run."""
    reached = find_reached(parse_or_empty(*pieces), by_call=True)
    calls = (node.func for node in reached if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def can_decide(reached: Iterable[ast.AST]) -> bool:
    """Return whether code may end with an error, by an assert or otherwise by its own will.

    `reached` are the nodes of it that may be run.
    """
    nodes = list(reached)
    own = {node.name for node in nodes if isinstance(node, Function)}
    return any(decides(node, own) for node in nodes)


def decides(node: ast.AST, own: Iterable[str] = ()) -> bool:
    """Return whether a statement or call may fail by its own will; `own` are functions of the same code."""
    match node:
        case ast.Assert():
            return read_truth(node.test) is not True
        case ast.Raise():
            return True
        case ast.Call(func=ast.Name() | ast.Attribute() as function):
            name = read_name(function)
            if name in _ENDS:
                return not node.args or read_truth(node.args[0]) is not False
            return name not in own and (name.lower().startswith("assert") or name in _FAILS)
    return False


_ENDS = ("exit", "_exit", "quit")
_FAILS = ("fail", "raises", "warns", "exec", "abort")


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Return whether an `except` clause catches a failed assert."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or read_name(kind) in _CAUGHT for kind in kinds)


def _suppresses(context: ast.expr) -> bool:
    """Return whether a context is `contextlib.suppress` of a failed assert."""
    match context:
        case ast.Call(func=function, args=kinds) if read_name(function) == "suppress":
            return any(read_name(kind) in _CAUGHT for kind in kinds)
    return False


_CAUGHT = ("AssertionError", "Exception", "BaseException")


def why_lazy(function: ast.AST) -> str:
    """Return why a call of a function runs nothing of it; empty if it runs."""
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


def is_builtin(function: ast.expr) -> bool:
    """Return whether an expression is the name of a builtin."""
    return isinstance(function, ast.Name) and function.id in dir(builtins)
