r"""The form of an answer: the trees of both sides in; whether the answer is worked out as is asked, out.

An answer is fully evaluated if it is not a sum, product or quotient where a number is asked for.

A value is a numeral, a quotient of two, a mixed number, or a numeral times a power of ten, with a sign, a
percent sign or a unit. A quotient that divides evenly is not a value if the reference is an integer: 30/2 and
\frac{30}{2} are questions, 15 is the answer. A single power, root or factorial is accepted, because 2^{1009}
is the usual notation of that number. One with an unevaluated part, such as |9+64|, is not.
"""

from __future__ import annotations

import re
from math import gcd

from gem.graders.mathematics.evaluation import TooBig
from gem.graders.mathematics.scalars import constant, exactly
from gem.graders.mathematics.trees import Node, bare, subtrees, symbols


def is_unevaluated(gold: Node, answer: Node, text: str) -> bool:
    """Return whether an answer with text `text` is not fully evaluated although the reference is."""
    gold, answer = bare(gold), bare(answer)
    if answer[0] == "num" or not _value(gold):
        return False
    if answer[0] == "seq" and len(answer[3]) == 1:
        return is_unevaluated(gold, answer[3][0], text)
    if answer[0] == "rel":  # x = 9 + 64 is, 9 + 64 = 73 is not
        sides = [side for side in answer[2] if constant(bare(side))]
        return bool(sides) and all(is_unevaluated(gold, side, text) for side in sides)
    added = answer[0] == "+" and "+" in text  # 1 + 2/3, not 1 2/3
    if answer[0] not in ("+", "*", "/", "^", "fn") or (gold == answer and not added):
        return False
    if _value(answer) and not added:
        return bool(answer[0] == "/" and gold[0] == "num" and gold[1].denominator == 1)
    if not added and not _left_to_do(answer):
        return False
    try:
        rational = exactly(answer) is not None
    except TooBig:
        return False
    # 3 sqrt(2) is what a reference of 4.242640687119285 approximates
    return rational or (constant(answer) and not (gold[0] == "num" and gold[2] is not None))


def _left_to_do(tree: Node) -> bool:
    """Return whether a tree contains a sum, product or quotient of numbers that is not a value."""
    return any(
        part[0] in ("+", "*", "/")
        and not _value(part)
        and not any(inner[0] == "const" and inner[1] != "i" for inner in subtrees(part))
        for part in subtrees(tree)
    )


def worked_out(answer: Node, text: str) -> bool:
    """Return whether an answer is a value in its final form, such as a quotient in lowest terms."""
    answer = bare(answer)
    if answer[0] != "/":
        return answer[0] in ("const", "sym") or (_value(answer) and not (answer[0] == "+" and "+" in text))
    top, below = bare(answer[1]), bare(answer[2])
    if not top[0] == below[0] == "num":
        return False
    return bool(top[1].denominator == below[1].denominator == 1 == gcd(int(top[1]), int(below[1])))


_EXPAND = re.compile(
    r"\bexpand|\bmultiply (?:it |this |them )?out\b|\bas a (?:sum|polynomial)\b", re.IGNORECASE
)
_FACTOR = re.compile(r"\bfactor(?:i[sz]e|ed)?\b(?! of\b)|\bas a product\b", re.IGNORECASE)
_SIMPLIFY = re.compile(
    r"\bsimplif|\b(?:in|to) (?:its |the )?(?:simplest|lowest|reduced) (?:form|terms)\b|\breduce\b",
    re.IGNORECASE,
)


def in_form(gold: Node, answer: Node, question: str) -> bool:
    """Return whether an equal answer has the form that a question asks for: expanded, factored, simplified.

    Remainders, common divisors and multiples are worked out. The reference decides: if it is not in that
    form, the question asks for another form.
    """
    gold, answer = (_take_last_side(bare(tree)) for tree in (gold, answer))
    if constant(gold) and any(map(_undone, subtrees(answer))) and not any(map(_undone, subtrees(gold))):
        return False
    if _EXPAND.search(question) and not _has_product_of_sums(gold) and _has_product_of_sums(answer):
        return False
    if _FACTOR.search(question) and gold[0] in ("*", "^") and _factors(answer) < _factors(gold):
        return False
    if _SIMPLIFY.search(question):
        if _value(gold) and gold[0] == "/":
            return worked_out(answer, "") or answer[0] != "/"
        return gold[0] == "seq" or _size(answer) <= 1.5 * _size(gold) + 1
    return True


def _undone(tree: Node) -> bool:
    """Return whether a tree is a remainder that is not taken, or a divisor, multiple or extreme not found."""
    if tree[:2] == ("fn", "mod"):
        left, right = tree[2]
        return not (left[0] == right[0] == "num" and left[1] < right[1])  # 1 mod 5 is
    return tree[0] == "fn" and tree[1] in ("gcd", "lcm", "max", "min")


def _take_last_side(tree: Node) -> Node:
    """Return the last side of an equation, which is the value that it states."""
    return bare(tree[2][-1]) if tree[0] == "rel" and set(tree[1]) == {"="} else tree


def _has_product_of_sums(tree: Node) -> bool:
    """Return whether a tree contains a product or power of sums."""
    return any(
        (part[0] == "*" and any(bare(factor)[0] == "+" for factor in part[1]))
        or (part[0] == "^" and bare(part[1])[0] == "+" and part[2][0] == "num" and part[2][1] > 1)
        for part in subtrees(tree)
    )


def _factors(tree: Node) -> int:
    """Return the number of factors with a variable in a product, counted with multiplicity."""
    tree = bare(tree)
    if tree[0] == "*":
        return sum(map(_factors, tree[1]))
    if tree[0] == "/":
        return _factors(tree[1])
    if tree[0] == "^" and tree[2][0] == "num" and tree[2][1].denominator == 1:
        return max(0, int(min(tree[2][1], 100))) * _factors(tree[1])
    return int(bool(symbols(tree)))


def _size(tree: Node) -> int:
    """Return the number of numbers, constants and names in a tree."""
    return sum(part[0] in ("num", "sym", "const") for part in subtrees(tree))


def _value(tree: Node) -> bool:
    """Return whether a tree without a sign is a numeral, or a usual notation with two numerals."""
    tag = tree[0]
    parts = tree[1] if tag in ("+", "*") else tree[1:]
    if tag == "+":  # a mixed number
        mixed = [part[0] for part in parts] == ["num", "/"] and parts[1][1][0] == parts[1][2][0] == "num"
        return mixed and 0 < parts[1][1][1] < parts[1][2][1]
    if tag == "*":
        return len(parts) == 2 and parts[0][0] == "num" and _is_power(parts[1]) and parts[1][1][1] == 10
    return tag == "num" or (tag == "/" and _atom(parts[0]) and _atom(parts[1]))


def _atom(tree: Node) -> bool:
    return bool(bare(tree)[0] == "num" or _is_power(bare(tree)))


def _is_power(tree: Node) -> bool:
    return bool(tree[0] == "^" and tree[1][0] == "num" == bare(tree[2])[0])
