"""Generator of arithmetic expressions with exact values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from gem.tasks.procedural import Problem

OPERATIONS = ("+", "-", "*", "/")

Tree: TypeAlias = "int | tuple[Tree, str, Tree]"


@dataclass(frozen=True)
class Arithmetic:
    """A generator of expressions: numbers of some digits, joined by operations, with random brackets."""

    operands: tuple[int, int]
    digits: tuple[int, int]
    operations: tuple[str, ...]

    def __call__(self, rng: Random) -> Problem:
        """Draw a problem; an expression that divides by zero or is its own answer (2 / 3) is drawn again."""
        while True:
            tree = self._tree(rng, rng.randint(*self.operands))
            try:
                result = value(tree)
            except ZeroDivisionError:
                continue
            asked = write_tree(tree)
            if asked.replace(" ", "") == str(result):
                continue
            question = f"Calculate {asked}."
            if "/" in self.operations:
                question += " Give the exact value: an integer, or a fraction in lowest terms such as 7/3."
            return Problem(question, str(result))

    def _tree(self, rng: Random, leaves: int) -> Tree:
        if leaves == 1:
            digits = rng.randint(*self.digits)
            return rng.randrange(10 ** (digits - 1), 10**digits)
        left = rng.randint(1, leaves - 1)
        return self._tree(rng, left), rng.choice(self.operations), self._tree(rng, leaves - left)


def value(tree: Tree) -> Fraction:
    """Return the exact value of an expression.

    Raises:
        ZeroDivisionError: for a division by zero.
    """
    if isinstance(tree, int):
        return Fraction(tree)
    left, operation, right = value(tree[0]), tree[1], value(tree[2])
    if operation == "+":
        return left + right
    if operation == "-":
        return left - right
    return left * right if operation == "*" else left / right


def write_tree(tree: Tree, least: int = 0) -> str:
    """Return an expression as text, in brackets if its precedence is below `least`."""
    if isinstance(tree, int):
        return str(tree)
    left, operation, right = tree
    precedence = 1 if operation in "+-" else 2
    # a - (b - c) and a / (b * c) need their brackets, a + (b - c) does not
    text = f"{write_tree(left, precedence)} {operation} {write_tree(right, precedence + (operation in '-/'))}"
    return f"({text})" if precedence < least else text
