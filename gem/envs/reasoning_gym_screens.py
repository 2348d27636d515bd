"""Screens: which answers reach the scorers of reasoning-gym.

Model output is hostile, and these scorers were not written for that: four run it through ``eval``, five
through sympy's parser, which does the same, some can be kept busy for ever by a short text, and some pay
for nothing. Each has a row in `SCREENS` here; an answer that equals the reference always passes.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from fractions import Fraction


def refused(name: str, answer: str, reference: str) -> str:
    """Return why `answer` is not given to the scorer of data set `name`, or ``""``."""
    if len(answer) > 4096 + 4 * len(reference):
        return "the answer is far longer than any right one"
    check = SCREENS.get(name)
    return "" if check is None or check(answer, reference) else "the answer is not of the form asked for"


def _is_literal(answer: str, reference: str) -> bool:
    """Tell whether `answer` is a Python literal: what else reaches these scorers' eval() would be run."""
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_board(answer: str, reference: str) -> bool:
    """Tell whether `answer` is a board of queens, or a literal."""
    return re.fullmatch(r"[_Q\s]*", answer) is not None or _is_literal(answer, reference)


def _is_arithmetic(answer: str, reference: str) -> bool:
    """Tell whether `answer` is plain arithmetic on numbers, without powers."""
    return "**" not in answer and re.fullmatch(r"[\d\s+\-*/().]*", answer, re.ASCII) is not None


FUNCTIONS = frozenset(
    [
        *("sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs", "erf", "erfi"),
    ]
)
"""What a formula may call."""

_MAX_BITS = 10_000  # of the largest number that a formula may come to
_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def _is_formula(answer: str, reference: str) -> bool:
    """Tell whether `answer` is a formula over one-letter names, of a bounded size.

    sympy's parser, which these scorers use, evaluates its input as Python: anything else would be run.
    """
    if not answer.isascii() or len(answer) > 200 + 4 * len(reference):
        return False
    try:
        return _bits(ast.parse(answer.strip(), mode="eval").body) <= _MAX_BITS
    except (ValueError, SyntaxError, MemoryError, RecursionError, OverflowError):
        return False


def _bits(node: ast.expr) -> float:
    """Bound the bits of the number a formula comes to, names counting as 1; ValueError where it is none."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return int(abs(number)).bit_length() + 1
        case ast.Name(id=name) if len(name) == 1 or name == "pi":
            return 1
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _bits(operand)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return _bits(argument)
        case ast.BinOp(left=left, op=operation, right=right) if isinstance(operation, _OPERATIONS):
            first, second = _bits(left), _bits(right)
            return first * 2 ** min(second, 64) if isinstance(operation, ast.Pow) else first + second
    raise ValueError


_LOGIC = str.maketrans({"¬": "~", "∧": "&", "∨": "|", "→": "^", "↔": "^"})


def _is_logic(answer: str, reference: str) -> bool:
    """Tell whether `answer` is a logical formula over one-letter names: each name doubles the truth table."""
    try:
        tree = ast.parse(answer.translate(_LOGIC).strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    allowed = (ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.Invert, ast.BitAnd, ast.BitOr, ast.BitXor)
    nodes = list(ast.walk(tree))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    return (
        len(answer) <= 400 and all(isinstance(n, allowed) for n in nodes) and all(len(n) == 1 for n in names)
    )


def _has_small_numbers(answer: str, reference: str) -> bool:
    """Tell whether no number in `answer` has three digits: these scorers make that many moves."""
    return re.search(r"\d{3}", answer) is None


def _is_near(answer: str, reference: str) -> bool:
    """Tell whether `answer` is the probability `reference`, to 1e-4.

    The scorer pays in full for a first digit that agrees, and writes out all zeros of 1e999999999.
    """
    if re.search(r"e.{4}", answer.lower()):
        return False
    try:
        return abs(Fraction(answer.replace(",", "")) - Fraction(reference)) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


def _has_no_nan(answer: str, reference: str) -> bool:
    """Tell whether no NaN is in `answer`: no comparison with it holds, and these scorers then give 1."""
    return "nan" not in answer.lower()


def _is_comparable(answer: str, reference: str) -> bool:
    """Tell whether `answer` is the same JSON, or short enough for the scorer's tree distance (about 1 s)."""
    try:
        same = bool(json.loads(answer) == json.loads(reference))
    except (ValueError, RecursionError):
        same = False
    return same or len(answer) * len(reference) <= 100_000


def _is_exact(answer: str, reference: str) -> bool:
    """Tell whether `answer` is the reference: the scorer asks only whether there is any text."""
    return answer == reference


SCREENS: dict[str, Callable[[str, str], bool]] = {
    "binary_matrix": _is_literal,
    "n_queens": _is_board,
    "spiral_matrix": _is_literal,
    "string_insertion": _is_literal,
    "countdown": _is_arithmetic,
    "puzzle24": _is_arithmetic,
    "intermediate_integration": _is_formula,
    "polynomial_multiplication": _is_formula,
    "simple_integration": _is_formula,
    "propositional_logic": _is_logic,
    "rubiks_cube": _has_small_numbers,
    "rush_hour": _has_small_numbers,
    "coin_flip": _is_near,
    "codeio": _is_comparable,
    "complex_arithmetic": _has_no_nan,
    "number_sorting": _has_no_nan,
    "game_of_life_halting": _is_exact,
}
"""What an answer must be before the scorer sees it, where the scorer would run it, choke on it, or pay for
nothing. An answer that equals the reference always passes."""
