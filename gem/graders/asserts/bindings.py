"""The names that code uses and binds."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import ast
from collections.abc import Iterable


def find_names(tree: ast.AST) -> Iterable[ast.Name]:
    """Return the uses of names in code."""
    return (each for each in ast.walk(tree) if isinstance(each, ast.Name))


def bound_names(tree: ast.AST) -> set[str]:
    """Return the names that code binds in any scope."""
    bound = {each.id for each in find_names(tree) if not isinstance(each.ctx, ast.Load)}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                bound.add(name)
    return bound
