"""How many small mistakes the tests of the Basics problems find: mutants of every reference solution.

A mutant differs from the reference in one comparison, operator or constant. Those that survive are either
the same function in other words, or a gap in the tests; ``--show`` lists them.
"""

from __future__ import annotations

import argparse
import ast
import copy
from collections import Counter
from collections.abc import Iterator

from bench.common import table, write_json
from gem.envs.code_basics import PROBLEMS, Problem
from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget
from gem.seeding import stream

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **{
        ast.Lt: ast.LtE,
        ast.LtE: ast.Lt,
        ast.Gt: ast.GtE,
        ast.GtE: ast.Gt,
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
    },
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv},
    **{ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
BUDGET = Budget(cpu_s=1.0, wall_s=15.0, memory_mb=512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=8, help="mutants per problem")
    parser.add_argument("--only", help="one problem")
    parser.add_argument("--show", action="store_true", help="list the survivors")
    asked = parser.parse_args()
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    grader = CodeGrader(max_tests=None, budget=BUDGET)
    for problem in PROBLEMS.values():
        if asked.only in (None, problem.name):
            tests = read_tests(problem.tests)
            for line, mutant in chosen(problem, asked.each):
                made[problem.level] += 1
                caught = not grader.judge(mutant, tests).correct
                found[problem.level] += caught
                if not caught and asked.show:
                    print(f"{problem.name}: {line}")
    rows = [(level, made[level], found[level], f"{found[level] / made[level]:.1%}") for level in made]
    rows.append(("all", made.total(), found.total(), f"{found.total() / made.total():.1%}"))
    table(
        "Mutants of the reference solutions that the tests refuse",
        ["level", "made", "refused", "share"],
        rows,
    )
    write_json("code_basics", {"made": made, "refused": found})


def chosen(problem: Problem, most: int) -> list[tuple[str, str]]:
    """Return at most so many mutants, drawn from all."""
    every = list(mutants(problem.source))
    rng = stream(0, "mutants", problem.name)
    return rng.sample(every, min(most, len(every)))


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield what was changed, and the program."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for field, new in changes(node):
            other = copy.deepcopy(tree)
            twin = next(each for i, each in enumerate(ast.walk(other)) if i == number)
            setattr(twin, field, new)
            yield f"line {node.lineno}: {ast.unparse(node)} -> {ast.unparse(twin)}", ast.unparse(other)


def changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield the fields of a node that a mutant has otherwise."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield "op", SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "value", node.value + 1


if __name__ == "__main__":
    main()
