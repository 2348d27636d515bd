"""CodeProblem: a small programming task, defined by the function that solves it.

The function's docstring is the statement and its source is the reference solution. Its results for drawn
inputs are the hidden tests, so that tests and solution always agree. The results of the examples are written
by hand. A reference solution runs on its own: everything that it needs is inside the function.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Any, Literal, TypeAlias, TypeVar

from gem import seeding
from gem.tools.schema import docstring

Level = Literal["easy", "medium", "hard"]
Draw: TypeAlias = Callable[[Random, int], Any]
"""A function that draws an input of roughly a size: a tuple of arguments, or a program's input text."""

Solution = TypeVar("Solution", bound=Callable[..., Any])

SIZES = (1, 2, 3, 4, 6, 9, 13, 18, 25, 40)
"""The sizes of the drawn inputs, one input per size."""

PROBLEMS: dict[str, CodeProblem] = {}
"""Every problem by name, in the order of definition."""


@dataclass(frozen=True)
class CodeProblem:
    """A task: its solution, examples shown to the agent, and how hidden tests are drawn.

    A `program` reads standard input and writes standard output; its solution maps one text to the other.
    """

    level: Level
    program: bool
    solution: Callable[..., Any]
    examples: Sequence[tuple[Any, Any]]
    draw: Draw
    edges: Sequence[Any]
    compare: str
    checker: str | None

    @property
    def name(self) -> str:
        """The name of the function, which is also the problem's."""
        return self.solution.__name__

    @cached_property
    def source(self) -> str:
        """The reference solution, as a submission, without the docstring, which is the statement."""
        text = textwrap.dedent(inspect.getsource(self.solution))
        function = ast.parse(text).body[0]
        assert isinstance(function, ast.FunctionDef)
        stated = function.body[0]
        lines = text.splitlines(keepends=True)
        text = "".join(lines[function.lineno - 1 : stated.lineno - 1])
        text += "".join(lines[stated.end_lineno :]).lstrip("\n")
        if self.program:
            text += f"\n\nimport sys\n\nprint({self.name}(sys.stdin.read()))\n"
        return text

    @cached_property
    def statement(self) -> str:
        """The text that the agent reads: the task and examples."""
        task = docstring(self.solution)
        if self.program:
            examples = [
                f"Example input:\n{given}\nExample output:\n{wanted}" for given, wanted in self.examples
            ]
            return "\n\n".join([task, *examples])
        signature = self.source.splitlines()[0]
        examples = [
            f"{self.name}({', '.join(map(repr, given))}) == {wanted!r}" for given, wanted in self.examples
        ]
        return "\n".join([signature, "", task, "", "Examples:", *(f"    {each}" for each in examples)])

    @cached_property
    def tests(self) -> dict[str, Any]:
        """The tests in the form of a data set's `tests` column, with the shown ones first."""
        return self.draw_tests(0)

    def draw_tests(self, seed: int) -> dict[str, Any]:
        """Return the tests that a seed draws."""
        rng = seeding.stream(seed, "code:Basics", self.name)
        given = [example[0] for example in self.examples]
        for case in (*self.edges, *(self.draw(rng, size) for size in SIZES)):
            if case not in given:
                given.append(case)
        wanted = [
            self.solution(case) if self.program else self.solution(*copy.deepcopy(case)) for case in given
        ]
        tests: dict[str, Any] = {
            "inputs": given if self.program else [list(case) for case in given],
            "outputs": wanted,
            "public": len(self.examples),
            "compare": self.compare,
        }
        if not self.program:
            tests["fn_name"] = self.name
        if self.checker:
            tests["checker"] = inspect.cleandoc(self.checker)
        return tests


def _register(
    program: bool,
    level: Level,
    examples: Sequence[tuple[Any, Any]],
    draw: Draw,
    edges: Sequence[Any] = (),
    compare: str = "tokens",
    checker: str | None = None,
) -> Callable[[Solution], Solution]:
    def enter(solution: Solution) -> Solution:
        PROBLEMS[solution.__name__] = CodeProblem(
            level, program, solution, examples, draw, edges, compare, checker
        )
        return solution

    return enter


function = partial(_register, False)
"""Register a function as the solution of a problem that asks for a function."""

program = partial(_register, True)
"""Register a function from input to output text as the solution of a problem that asks for a program."""


# -- draws for inputs


def numbers(rng: Random, count: int, low: int, high: int) -> list[int]:
    """Return `count` integers from `low` to `high`, both included."""
    return [rng.randint(low, high) for _ in range(count)]


def letters(rng: Random, count: int, alphabet: str = "abcdefghijklmnopqrstuvwxyz") -> str:
    """Return `count` characters of `alphabet`."""
    return "".join(rng.choice(alphabet) for _ in range(count))


def words(rng: Random, count: int, longest: int = 6, alphabet: str = "abcdefghij") -> list[str]:
    """Return `count` words of 1 to `longest` letters."""
    return [letters(rng, rng.randint(1, longest), alphabet) for _ in range(count)]


def grid(rng: Random, rows: int, columns: int, cells: str) -> list[str]:
    """Return `rows` strings of `columns` characters out of `cells`."""
    return [letters(rng, columns, cells) for _ in range(rows)]


def listing(values: Sequence[object]) -> str:
    """Return values as a line of text."""
    return " ".join(map(str, values))
