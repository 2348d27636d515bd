"""Audit a grader of programs: rewritten correct programs must pass, broken ones must fail.

Like `gem.testing.audit_grader`, it rewrites each known solution by every rule that fits. A small mistake,
such as another operator or number, may leave the program correct. So a mutant that passes is judged again
with newly drawn tests, and if it passes these too, it is not counted.
"""

from __future__ import annotations

import ast
import copy
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gem import seeding
from gem.graders.base import Grader
from gem.graders.code_tests import CodeTests
from gem.sandbox.base import Budget
from gem.testing.audit_grader import GraderCard, Rule

BUDGET = Budget(cpu_s=1.0, wall_s=20.0, memory_mb=512)
EACH = 2  # mutants of one solution by one rule of small mistakes
ENDLESS = 12  # of so many solutions one is made to loop for ever, for that takes the whole budget


@dataclass(frozen=True)
class Solution:
    """A correct program with its tests; `more` draws further tests, which are needed for small mistakes.

    `name` is the name of the function, or any name for a whole program.
    """

    name: str
    source: str
    tests: CodeTests
    more: Callable[[], Iterable[CodeTests]] | None = None

    @property
    def tree(self) -> ast.Module:
        """Return a new syntax tree of the source."""
        return ast.parse(self.source)


Rewriting = Callable[[Solution], str | None]
"""A function that returns an answer with the rewritten program, or None if the rule does not fit."""


def audit_code(solutions: Iterable[Solution], grader: Grader | None = None) -> GraderCard:
    """Audit a grader of programs, by default `CodeGrader` with all tests.

    Raises:
        NoVerdict: when the sandbox fails.
    """
    if grader is None:
        from gem.graders.code import CodeGrader

        grader = CodeGrader(max_tests=None, budget=BUDGET)
    known = list(solutions)
    rules = {name: Rule(name) for name in (*CODE_EQUIVALENCES, *CODE_MUTATIONS, *MISTAKES)}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        audited = threads.map(partial(_verdicts, grader), range(len(known)), known)
        for solution, verdicts in zip(known, audited, strict=True):
            for rule, right, change in verdicts:
                rules[rule].enter(right, change, solution.name)
    kept = [rules.pop(name) for name in CODE_EQUIVALENCES]
    return GraderCard("code", len(known), kept, list(rules.values()))


def _verdicts(grader: Grader, number: int, solution: Solution) -> list[tuple[str, bool, str]]:
    """Return each rule tried on a solution, whether the grader was right, and the change."""
    verdicts = []
    for table, expected in ((CODE_EQUIVALENCES, True), (CODE_MUTATIONS, False)):
        for name, rewrite in table.items():
            answer = rewrite(solution)
            if answer is not None and (rewrite is not _NEVER_ENDS or number % ENDLESS == 0):
                verdicts.append((name, grader(answer, solution.tests).correct is expected, name))
    more = solution.more
    if more is None:
        return verdicts
    for name, kinds in MISTAKES.items():
        mutants = list(_mutants(solution.source, kinds))
        rng = seeding.stream(0, "mutants", name, solution.name)
        for change, mutant in rng.sample(mutants, min(EACH, len(mutants))):
            answer = fence_code(mutant)
            refused = not grader(answer, solution.tests).correct
            if refused or not all(grader(answer, tests).correct for tests in more()):
                verdicts.append((name, refused, change))
    return verdicts


def fence_code(code: str) -> str:
    """Return an answer that is only a code block."""
    return f"```python\n{code}\n```"


def _function(solution: Solution) -> bool:
    return solution.tests.kind != "program"


def _rename(solution: Solution, names: dict[str, str]) -> str:
    tree = solution.tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
    return ast.unparse(tree)


def _answering(solution: Solution, value: str) -> str:
    """Return a program that answers `value`, an expression of `result` and `given`."""
    if _function(solution):
        inner = _rename(solution, {solution.name: "inner"})
        return f"{inner}\ndef {solution.name}(*given):\n    result = inner(*given)\n    return {value}\n"
    return (
        "import io, sys\ngiven = (sys.stdin.read(),)\nsys.stdin = io.StringIO(given[0])\n"
        f"def print(result, print=print):\n    print({value})\n{solution.source}"
    )


# -- the same in other words


def _local_names(solution: Solution) -> str | None:
    nodes = list(ast.walk(solution.tree))
    if any(isinstance(node, ast.Global | ast.Nonlocal) for node in nodes):
        return None
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    free = sorted(assigned - {node.arg for node in nodes if isinstance(node, ast.arg)})
    return (
        fence_code(_rename(solution, {name: f"local_{i}" for i, name in enumerate(free)})) if free else None
    )


class _Rewriter(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.AST], ast.AST | None]) -> None:
        self.change = change
        self.changed = False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.pattern | ast.JoinedStr):
            return node
        node = self.generic_visit(node)
        new = self.change(node)
        self.changed = self.changed or new is not None
        return node if new is None else new


def _rewriting(change: Callable[[ast.AST], ast.AST | None]) -> Rewriting:
    def rewritten(solution: Solution) -> str | None:
        rewriter = _Rewriter(change)
        tree = rewriter.visit(solution.tree)
        return fence_code(ast.unparse(ast.fix_missing_locations(tree))) if rewriter.changed else None

    return rewritten


def _doubly_negated(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), node.test))
        return node
    return None


def _sum_for_number(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.BinOp(ast.Constant(node.value - 1), ast.Add(), ast.Constant(1))
    return None


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


def _turn_comparison(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _TURNED:
        return ast.Compare(node.comparators[0], [_TURNED[type(node.ops[0])]()], [node.left])
    return None


def _a_method(solution: Solution) -> str | None:
    if solution.tests.kind != "function":
        return None
    inner = _rename(solution, {solution.name: "inner"})
    return fence_code(
        f"{inner}\nclass Solution:\n    def {solution.name}(self, *given):\n        return inner(*given)\n"
    )


CODE_EQUIVALENCES: dict[str, Rewriting] = {
    "as it is": lambda s: fence_code(s.source),
    "after a first try": lambda s: (
        f"First\n```python\npass\n```\nbut better is\n{fence_code(s.source)}\nwhich prints\n```\n7\n```"
    ),
    "a block without a language": lambda s: f"```\n{s.source}\n```",
    "laid out anew": lambda s: fence_code(ast.unparse(s.tree)),
    "lines that end as on Windows": lambda s: fence_code(s.source.replace("\n", "\r\n")),
    "other names inside": _local_names,
    "conditions negated twice": _rewriting(_doubly_negated),
    "comparisons turned round": _rewriting(_turn_comparison),
    "numbers as sums": _rewriting(_sum_for_number),
    "a helper in between": lambda s: fence_code(_answering(s, "result")) if _function(s) else None,
    "a method of Solution": _a_method,
    "threading imported": lambda s: fence_code(f"import threading  # not os.system\n{s.source}"),
    "words on standard error": lambda s: fence_code(f"import sys\nsys.stderr.write('working')\n{s.source}"),
    "words on standard output": lambda s: (
        fence_code(_answering(s, "print('working') or result")) if _function(s) else None
    ),
    "imports that are not used": lambda s: fence_code(f"import os, sys, math, collections\n{s.source}"),
    "exit with 0 at the end": lambda s: (
        fence_code(f"{s.source}\nimport sys\nsys.exit(0)\n") if not _function(s) else None
    ),
    "under the main guard": lambda s: (
        fence_code(
            re.sub(r"^print\(", 'if __name__ == "__main__":\n    print(', s.source, flags=re.MULTILINE)
        )
        if not _function(s)
        else None
    ),
    "blanks at the end": lambda s: (
        fence_code(_answering(s, "str(result) + ' \\n\\n'"))
        if not _function(s) and s.tests.compare not in (None, "exact")
        else None
    ),
    "a tuple for a list": lambda s: (
        fence_code(_answering(s, "tuple(result) if isinstance(result, list) else result"))
        if s.tests.kind == "function" and any(isinstance(wanted, list) for wanted in s.tests.outputs)
        else None
    ),
}


# -- broken

_OTHER = """
def other(x):
    if isinstance(x, bool):
        return not x
    if isinstance(x, (int, float)):
        return x + 1
    if isinstance(x, str):
        return x + "x"
    if isinstance(x, (list, tuple)):
        return [*x, other(x[-1])] if x else [0]
    return {**x, "other": 0} if isinstance(x, dict) else 0
"""


def _other(solution: Solution, condition: str = "") -> str | None:
    if solution.tests.checker:
        return None  # many answers are right
    value = f"other(result) if {condition} else result" if condition else "other(result)"
    return fence_code(_OTHER + _answering(solution, value))


def _sizes(solution: Solution) -> list[int]:
    if solution.tests.kind == "asserts":
        return []
    inputs = solution.tests.inputs
    return [len(repr((each,) if isinstance(each, str) else tuple(each))) for each in inputs]


def _other_on_larger(solution: Solution) -> str | None:
    sizes = _sizes(solution)
    visible = max(sizes[: solution.tests.public], default=0)
    return _other(solution, f"len(repr(given)) > {visible}") if visible < max(sizes, default=0) else None


def _by_heart(solution: Solution) -> str | None:
    tests = solution.tests
    if not 0 < tests.public < len(tests):
        return None
    visible = range(tests.public)
    known = {
        repr((tests.inputs[i],) if not _function(solution) else tuple(tests.inputs[i])): tests.outputs[i]
        for i in visible
    }
    if not _function(solution):
        return fence_code(f"import sys\nprint({known!r}.get(repr((sys.stdin.read(),))))\n")
    return fence_code(f"def {solution.name}(*given):\n    return {known!r}.get(repr(given))\n")


def _always_the_first(solution: Solution) -> str | None:
    outputs = solution.tests.outputs
    if not outputs or solution.tests.checker or all(wanted == outputs[0] for wanted in outputs):
        return None
    return fence_code(_answering(solution, repr(outputs[0])))


def _before(statement: str) -> Rewriting:
    """Return a rule that puts a statement before the program, or at the start of the function."""

    def rewritten(solution: Solution) -> str:
        if not _function(solution):
            return fence_code(f"{statement}\n{solution.source}")
        tree = solution.tree
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == solution.name:
                node.body[:0] = ast.parse(statement).body
        return fence_code(ast.unparse(tree))

    return rewritten


def _of_functions(value: str, setup: str = "") -> Rewriting:
    return lambda s: fence_code(setup + _answering(s, value)) if _function(s) else None


_NEVER_ENDS = _before("while True: pass")

CODE_MUTATIONS: dict[str, Rewriting] = {
    "no code block": lambda s: f"The function {s.name} does it.",
    "a block that is not closed": lambda s: f"```python\n{s.source}",
    "a bracket too many": lambda s: fence_code(
        re.sub(r"^def (\w+)\(", r"def \1((", s.source, flags=re.MULTILINE)
    ),
    "nothing done": lambda s: fence_code(f"def {s.name}(*given):\n    pass\n" if _function(s) else "pass\n"),
    "another name": lambda s: fence_code(_rename(s, {s.name: "another"})) if _function(s) else None,
    "the first example's answer, always": _always_the_first,
    "the examples by heart": _by_heart,
    "another result": _other,
    "another result on larger inputs": _other_on_larger,
    "the result as text": lambda s: (
        fence_code(_answering(s, "str(result)"))
        if s.tests.kind == "function" and not all(isinstance(wanted, str) for wanted in s.tests.outputs)
        else None
    ),
    "printed, not returned": _of_functions("print(result)"),
    "equal to everything": _of_functions(
        "Any()", "class Any:\n    def __eq__(self, other):\n        return True\n"
    ),
    "printed twice": lambda s: (
        fence_code(_answering(s, "f'{result}\\n{result}'"))
        if not _function(s) and any(s.tests.outputs)
        else None
    ),
    "an error at the end": lambda s: fence_code(_answering(s, "1 / 0")),
    "exit with 0 at once": _before("import sys; sys.exit(0)"),
    "exit at once, unseen by Python": _before("import os; os._exit(0)"),
    "never ends": _NEVER_ENDS,
    "more memory than there is": _before("hoard = bytearray(1 << 40)"),
}


# -- small mistakes

Mistakes = dict[type[ast.AST], type[ast.AST]]
MISTAKES: dict[str, Mistakes] = {
    "another comparison": {
        ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    },
    "another operator": {
        ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
        ast.And: ast.Or, ast.Or: ast.And,
    },
    "another number": {ast.Constant: ast.Constant},
}  # fmt: skip


def _mutants(source: str, kinds: Mistakes) -> Iterator[tuple[str, str]]:
    """Yield each change and the changed program."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for field, new in _changes(node, kinds):
            other = copy.deepcopy(tree)
            twin = next(each for i, each in enumerate(ast.walk(other)) if i == number)
            setattr(twin, field, new)
            yield f"{ast.unparse(node)} -> {ast.unparse(twin)}", ast.unparse(other)


def _changes(node: ast.AST, kinds: Mistakes) -> Iterator[tuple[str, object]]:
    """Yield the fields of a node that a mutant changes, with their new values."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in kinds:
        yield "ops", [kinds[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in kinds:
        yield "op", kinds[type(node.op)]()
    elif type(node) in kinds and isinstance(node, ast.Constant) and type(node.value) is int:
        yield "value", node.value + 1
