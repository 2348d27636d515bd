"""The program of a grading worker: math-verify and sympy.

Loaded by `gem.graders._fork_server`, never imported by the package. Asked ``{"gold", "answer"}`` it answers
``{"equal": true}``, or ``{"why": ...}`` where it cannot say.
"""

from __future__ import annotations

import sys
from typing import Any

_FIRST = (
    (r"$\frac{1}{2} + x$", "$x + 0.5$"),
    ("$6$", r"$\sum_{k=1}^{3} k$"),
    ("$x=2$", "$y=2$"),
    (r"$\sin(2x)$", r"$2\sin x\cos x$"),
)
"""Pairs that go through most of what sympy builds at first use; more of them cost more than they save."""


def load() -> None:
    """Import what takes long, and grade a few pairs: else each worker's first answers paid for that."""
    sys.setrecursionlimit(3000)
    for gold, answer in _FIRST:
        grade(gold, answer)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answer one question."""
    return grade(question["gold"], question["answer"])


def grade(gold: str, answer: str) -> dict[str, Any]:
    """Compare as math-verify does, with the places where it is known to be wrong looked at again."""
    from math_verify import parse, verify

    left = _parsed(parse, gold)
    right = _parsed(parse, answer)
    if not left:
        return {"why": "the reference cannot be read"}
    if not right:
        return {"why": "the answer cannot be read"}
    equal = verify(left, right, timeout_seconds=None, allow_set_relation_comp=True)
    if equal and _only_floats_agree(left[0], right[0]):
        equal = False
    if not equal:
        equal = _same_number(left[0], right[0])
    return {"equal": bool(equal)}


def _parsed(parse: Any, text: str) -> Any:
    found = parse(text, parsing_timeout=None)
    if not found and "$" not in text and "\\boxed" not in text:
        found = parse(f"${text}$", parsing_timeout=None)
    elif "\\" in text and "$" not in text and "\\boxed" not in text:
        # math-verify reads LaTeX in delimiters alone; of bare LaTeX it takes the last number
        found = parse(f"${text}$", parsing_timeout=None) or found
    return found


def _only_floats_agree(a: Any, b: Any) -> bool:
    """Whether two numbers were called equal for their floats alone: 2.7182818 and e, two long integers."""
    from sympy import Basic, Float, Integer

    if not (isinstance(a, Basic) and isinstance(b, Basic)):
        return False
    if isinstance(a, Integer) and isinstance(b, Integer):
        return bool(a != b)
    if isinstance(a, Float) == isinstance(b, Float):
        return False
    exact, rounded = (b, a) if isinstance(a, Float) else (a, b)
    if not getattr(exact, "is_number", False) or exact.is_rational:
        return False
    return len(str(rounded).replace(".", "").lstrip("-0")) < 12


def _same_number(a: Any, b: Any) -> bool:
    """Whether two constants agree to 50 digits: 2^0.5 and sqrt(2), e^(i pi) and -1."""
    from sympy import E, Expr, Float, I, Symbol, nsimplify

    if not (isinstance(a, Expr) and isinstance(b, Expr)):
        return False
    constants = {Symbol("e"): E, Symbol("i"): I, Symbol("e", real=True): E, Symbol("i", real=True): I}
    a, b = a.subs(constants).doit(), b.subs(constants).doit()
    if a.free_symbols or b.free_symbols or isinstance(a, Float) or isinstance(b, Float):
        return False
    a, b = (
        x.replace(lambda part: isinstance(part, Float), lambda part: nsimplify(part, rational=True))
        for x in (a, b)
    )
    gap = (a - b).evalf(50, chop=True)
    return bool(gap.is_number and abs(gap) < 10**-45)
