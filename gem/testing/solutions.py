"""Programs known to be correct, for the audit of the code grader: `gem-gym audit --grader code`."""

from __future__ import annotations

from gem.envs.code.basics import PROBLEMS, CodeProblem
from gem.graders.code_tests import read_tests
from gem.tasks import sources
from gem.tasks.files import FileRows
from gem.testing.audit_code import Solution

HUMANEVAL = ("openai/openai_humaneval", "humaneval")
"""Its name on the hub, and how its file is called where it comes from; looked for under GEM_DATA alone."""


def basics() -> list[Solution]:
    """Return the reference solutions of the built-in problems."""

    def solution(problem: CodeProblem) -> Solution:
        tests = read_tests(problem.tests)
        return Solution(
            problem.name,
            problem.source,
            tests,
            lambda: (read_tests(problem.draw_tests(n)) for n in range(1, 5)),
        )

    return [solution(problem) for problem in PROBLEMS.values()]


def humaneval() -> list[Solution]:
    """Return HumanEval's canonical solutions; empty if the data are not available."""
    path = next((path for name in HUMANEVAL if (path := sources.find(name))), None)
    rows = FileRows(path, None) if path else []
    return [
        Solution(row["entry_point"], row["prompt"] + row["canonical_solution"], read_tests(row["test"], row))
        for row in rows
    ]
