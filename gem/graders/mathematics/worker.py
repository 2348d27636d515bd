"""The program of a grading worker: sympy, with the parser that math-verify brings.

It is loaded by `gem.graders.fork_server`, never imported by the package. To ``{"gold", "answer"}`` it
answers ``{"equal": true}`` or false, or ``{"why": ...}`` if it cannot decide. To ``{"read"}`` it answers
``{"readable": true}`` or false. It receives only formulas and reads each whole or not at all: it takes no
number out of a text and no side out of an equation.
"""

from __future__ import annotations

import re
import sys
from typing import Any

_FIRST = (
    (r"\frac{1}{2} + x", "x + 0.5"),
    ("6", r"\sum_{k=1}^{3} k"),
    (r"\sin(2x)", r"2\sin x\cos x"),
    (r"x^2-1=0", r"x^2=1"),
)
"""Pairs that fill most of sympy's first-use caches; more pairs would cost more than they save."""


def load() -> None:
    """Import slow packages and grade a few pairs, so that each worker's first answers are not slow."""
    sys.setrecursionlimit(3000)
    for gold, answer in _FIRST:
        grade(gold, answer)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answer one question."""
    if "read" in question:
        return {"readable": _parse_formula(question["read"]) is not None}
    return grade(question["gold"], question["answer"])


def grade(gold: str, answer: str) -> dict[str, Any]:
    """Compare two formulas: equal where their difference is 0, or their equations have the same solutions."""
    left = _parse_formula(gold)
    if left is None:
        return {"why": "the reference cannot be read"}
    right = _parse_formula(answer)
    if right is None:
        return {"why": "the answer cannot be read"}
    return {"equal": bool(_same(left, right))}


def _parse_formula(text: str) -> Any:
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Basic, Float, Limit, MatrixBase, nsimplify

    config = ConversionConfig(lowercase_symbols=False)
    try:
        expression = latex2sympy(text, normalization_config=None, conversion_config=config)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the parser raises plain exceptions, and others of its own making
        return None
    if not isinstance(expression, Basic | MatrixBase):
        return None
    if expression.has(Limit) and not _ONE_SIDED.search(text):
        expression = expression.replace(lambda part: isinstance(part, Limit), _from_both_sides)
    constants = _constants(expression)
    expression = expression.subs(constants) if constants else expression
    if expression.has(Float):  # decimals are written as they are meant
        expression = expression.xreplace({x: nsimplify(x, rational=True) for x in expression.atoms(Float)})
    return expression


_ONE_SIDED = re.compile(r"\^\s*(?:[+-]|\{\s*[+-]\s*\})\s*\}")


def _from_both_sides(limit: Any) -> Any:
    from sympy import Limit

    inside, name, at, _ = limit.args
    return Limit(inside, name, at, "+-") if at.is_finite else limit


def _constants(expression: Any) -> dict[Any, Any]:
    from sympy import E, I, pi

    known = {"e": E, "i": I, "pi": pi}  # the index of a sum is no free symbol
    return {x: known[x.name] for x in expression.free_symbols if getattr(x, "name", "") in known}


def _same(left: Any, right: Any) -> bool:
    from sympy import Eq, MatrixBase, MatrixExpr

    if isinstance(left, Eq) or isinstance(right, Eq):
        return isinstance(left, Eq) and isinstance(right, Eq) and _same_solutions(left, right)
    matrices = tuple(isinstance(side, MatrixBase | MatrixExpr) for side in (left, right))
    if all(matrices):
        return _same_matrices(left, right)
    return not any(matrices) and _equal(left, right)


def _equal(left: Any, right: Any) -> bool:
    """Return whether the difference of two expressions is 0, by rewriting it, never by its size."""
    from sympy import Derivative, Expr, Integral, Limit, Product, Sum, oo, simplify, zoo

    if not (isinstance(left, Expr) and isinstance(right, Expr)):
        return False
    if left.is_number and right.is_number and len({left, right} & {oo, -oo, zoo}) > 0:
        return bool(left == right)
    stated = left, right
    left, right = left.doit(), right.doit()
    unfinished = (Sum, Integral, Product, Limit, Derivative)
    if left == right:
        return left not in (oo, -oo, zoo) or left in stated  # two sums that diverge are not the same
    if left.has(oo, -oo, zoo) or right.has(oo, -oo, zoo):
        return False
    gap = simplify(left - right)
    return bool(gap == 0) and not gap.has(*unfinished)


def _same_matrices(left: Any, right: Any) -> bool:
    from sympy import Matrix

    left, right = (Matrix(side.doit()) for side in (left, right))
    return left.shape == right.shape and all(_equal(x, y) for x, y in zip(left, right, strict=True))


def _same_solutions(left: Any, right: Any) -> bool:
    """Return whether two equations hold at the same points: their numerators have the same factors.

    Only equations of polynomials and of quotients of polynomials are compared, and no quotient whose
    numerator and denominator have a common factor.
    """
    from sympy import Poly, PolynomialError, fraction, gcd, sqf_part, together

    parts = []
    for side in (left, right):
        top, below = fraction(together(side.lhs - side.rhs))
        names = sorted(top.free_symbols | below.free_symbols, key=str)
        if not names:
            return False
        try:
            if gcd(Poly(top, *names), Poly(below, *names)).degree_list() != (0,) * len(names):
                return False
            parts.append(Poly(sqf_part(Poly(top, *names).as_expr()), *names).primitive()[1])
        except PolynomialError:
            return False
    one, other = parts
    if one.gens != other.gens or not (one.get_domain().is_Exact and other.get_domain().is_Exact):
        return False
    return bool(one == other or one == -other)
