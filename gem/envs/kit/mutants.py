"""Change a Python source in one place: mutants, as mutation testing and tasks of repair use them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gem.source_files import parse_code

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
    "in": "not in", "not in": "in", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*",
    "|": "&", "&": "|", "and": "or", "or": "and",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of one place: from byte `start` to byte `end` of a file stands `after`.

    `changed`: the line with the change, which with the path is its name in `tests/mutants.toml`: it stays
    when other lines come and go. `function`: the qualified name of the function or class that it is in; empty
    at the top of a module. `operator`: the kind of what is changed, as ``Compare``, a name of `ast`.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str
    changed: str
    function: str
    operator: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def find_mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield every change that can be made to a file."""
    lines = source.split(b"\n")
    offsets = [0]
    for each in lines:
        offsets.append(offsets[-1] + len(each) + 1)

    def place(line: int, column: int) -> int:
        return offsets[line - 1] + column

    def begin(node: ast.expr | ast.stmt) -> int:
        return place(node.lineno, node.col_offset)

    def stop(node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return place(node.end_lineno, node.end_col_offset)

    def text(node: ast.expr | ast.stmt) -> str:
        return source[begin(node) : stop(node)].decode()

    scope: list[str] = []

    def change(node: ast.expr | ast.stmt | ast.excepthandler, start: int, end: int, after: str) -> Mutant:
        head, tail = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end) % (len(source) + 1)
        line = f"{source[head:start].decode()}{after}{source[end:tail].decode()}"
        if after in ("pass", "None", "raise", "break", "continue"):  # which say nothing of what was there
            line = f"{source[head:end].decode()} -> {after}"
        return Mutant(
            path=path,
            line=source.count(b"\n", 0, start) + 1 if isinstance(node, ast.ExceptHandler) else node.lineno,
            start=start,
            end=end,
            before=source[start:end].decode(),
            after=after,
            changed=" ".join(line.split()),
            function=".".join(scope),
            operator=type(node).__name__,
        )

    def swap(node: ast.expr | ast.stmt, left: int, right: int) -> Iterator[Mutant]:
        """Swap the operator between two operands; brackets and comments may stand there too."""
        between = source[left:right].decode()
        match = re.search(
            r"not\s+in|is\s+not|\b(?:in|is|and|or)\b|//|\*\*|<<|>>|[<>=!]=|[-+*/%|&<>]", between
        )
        if match and (after := SWAPS.get(" ".join(match[0].split()))):
            start = left + len(between[: match.start()].encode())
            yield change(node, start, start + len(match[0].encode()), after)

    def visit(node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for one, other in itertools.pairwise(sides):
                    yield from swap(node, stop(one), begin(other))
            case ast.BinOp():
                yield from swap(node, stop(node.left), begin(node.right))
            case ast.BoolOp():
                for one, other in itertools.pairwise(node.values):
                    yield from swap(node, stop(one), begin(other))
            case ast.AugAssign(op=ast.Add() | ast.Sub()):
                yield from swap(node, stop(node.target), begin(node.value))
            case ast.UnaryOp(op=ast.Not()):
                yield change(node, begin(node), begin(node) + len("not"), "")
            case ast.Constant(value=bool()):
                yield change(node, begin(node), stop(node), str(not node.value))
            case ast.Constant(value=int() | float() as value):
                yield change(node, begin(node), stop(node), repr(value + 1))
            case ast.Call(func=ast.Name(id=name)) if name in NAMES:
                yield change(node, begin(node.func), stop(node.func), NAMES[name])
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield change(node, begin(test), stop(test), f"not ({text(test)})")
            case ast.Return(value=ast.expr() as value) if text(value) != "None":
                yield change(node, begin(value), stop(value), "None")
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield change(node, begin(node), stop(node), "pass")
            case ast.Break() | ast.Continue():
                yield change(
                    node, begin(node), stop(node), "continue" if isinstance(node, ast.Break) else "break"
                )
            case ast.ExceptHandler(body=[first, *_]):
                yield change(node, begin(first), stop(node.body[-1]), "raise")
        if isinstance(node, SCOPES):
            scope.append(node.name)
        for child in children(node):
            yield from visit(child)
        if isinstance(node, SCOPES):
            scope.pop()

    def children(node: ast.AST) -> Iterator[ast.AST]:
        """Yield what is worth changing: no annotations, assertions and texts of errors."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                quiet = isinstance(
                    child, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom
                )
                if (
                    isinstance(child, ast.AST)
                    and not quiet
                    and not is_for_types(child)
                    and not is_text(child)
                ):
                    yield child

    yield from visit(parse_code(source))


def is_for_types(node: ast.AST) -> bool:
    """Return whether a block is read by a type checker alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def is_text(node: ast.AST) -> bool:
    """Return whether a statement only warns a person."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("warnings.warn(")
