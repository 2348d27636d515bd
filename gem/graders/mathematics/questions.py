"""Comparison of a reply with the question: a copy of it is no answer, and neither is a mere rewriting."""

from __future__ import annotations

import re
from typing import Any

from gem.graders.mathematics.latex import LENGTH, read
from gem.graders.mathematics.notation import INLINE, Unread, canonical, normalise_text, prepare_text
from gem.graders.mathematics.replies import ANSWER, final_answer, references
from gem.graders.mathematics.scalars import constant
from gem.graders.mathematics.trees import Node, bare, leaves
from gem.graders.mathematics.units import asked_unit, measure
from gem.graders.mathematics.values import in_form, worked_out


def copied(reply: str, reference: Any, question: str) -> bool:
    r"""Return whether the final answer of a reply copies a formula of the question instead of answering it.

    "Expand $(x+1)^2$" and "Find $\binom{5}{2}$" are not answered by repeating the formula. Evaluated numbers,
    words, sets and intervals are never copies, except a number of the question that must be written in
    another way or unit: 0.75 does not answer "Convert 0.75 to a fraction".

    >>> copied(r"\boxed{\dbinom{5}{2}}", "10", r"Find $\binom{5}{2}$."), copied("10", "10", "Is 10 even?")
    (True, False)
    """
    given = prepare_text.__wrapped__((final_answer(reply)[0] or "")[:LENGTH])
    last = _last_side(given)
    return _copies(given, reference, question) or (last != given and _copies(last, reference, question))


def _last_side(given: str) -> str:
    """Return the last side of an equation, the whole text where that is not read."""
    last = given.rpartition("=")[2].strip()
    return last if _read(last) is not None else given


def _copies(given: str, reference: Any, question: str) -> bool:
    short = re.sub(r"\s", "", canonical(given))
    wanted = r"\s*".join(map(re.escape, short))
    question = question[:ANSWER]
    there = re.search(rf"(?<![\w.]){wanted}(?!\w|\.\d)", canonical(normalise_text(question))) is not None
    tree = _read(given)
    if tree is None:
        return there and "\\" in short and given not in map(prepare_text, references(reference))
    computed = there and tree[0] in ("seq", "matrix") and _VECTORS.search(given)  # is read as its result
    if not computed and (tree[0] not in _LEFT_TO_DO or worked_out(tree, given)):
        asked = _CONVERT.search(question) or (tree[0] == "unit" and asked_unit(question))
        return bool(asked) and _rewritten(tree, given, reference) and (there or _stands(tree, question))
    if not there and _in_order(tree) not in map(_in_order, _formulas(question)):
        return False
    golds = [_read(prepare_text(gold)) for gold in references(reference)]
    return not any(gold is None or leaves(gold) == leaves(tree) for gold in golds)


_VECTORS = re.compile(r"^[-+]|^[\d{}\\a-z]*\d\}?\s*[(\\]|(?:[)}\]]|\\rangle)\s*[-+]\s*[\d(\\]")
"""Sums and multiples of vectors and matrices."""

_CONVERT = re.compile(
    r"\b(?:convert|express|(?:re)?write)\b[^.?!]*(?:\.(?:\d|\.+)[^.?!]*)*\b(?:to|as|in|into)\b"
    r"|\bhow many [a-z]+ (?:is|are|equal|equals|make) (?:there )?(?:in )?\$?\d"
    r"|\b(?:in|as|into|to) (?:an? )?(?:\w+ )?(?:base|binary|octal|hexadecimal|decimal"
    r"|fraction|percent|percentage|degrees|radians|scientific notation)\b",
    re.IGNORECASE,
)


def _formulas(question: str) -> list[Node | None]:
    """Return the formulas of a question as trees, which are equal for different notations."""
    texts = [*INLINE.findall(question)[:20], *_CALCULATION.findall(question)[:20]]
    return [_read(prepare_text.__wrapped__("".join(groups).rstrip(" .,;?"))) for groups in texts]


_CALCULATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:\s*[-+*/×·]\s*\d+(?:\.\d+)?)+")


def _in_order(tree: Any) -> Any:
    """Return a tree with the terms of its sums and the factors of its products in order."""
    if not isinstance(tree, tuple):
        return tree
    parts = tuple(map(_in_order, tree))
    return (parts[0], tuple(sorted(parts[1], key=repr))) if parts and parts[0] in ("+", "*") else parts


_QUANTITY = re.compile(
    r"(?<![\w.])((?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:\.{3}|_\{?\d+\}?|\\(?:overline|bar)\s*\{\d+\}|\(\d+\))?)"
    r"(\s*\\?%|\s*\^\s*\{?\\circ\}?|(?:\\[,; ]|[\s~-])*(?:\\(?:text|mathrm|rm)\s*\{\s*)?[a-zA-Z]+)?"
)


def _stands(tree: Node, question: str) -> bool:
    """Return whether a question has the number of an answer with the same unit, in whatever notation."""
    pairs = _QUANTITY.findall(question)[:40]
    texts = {text for number, unit in pairs for text in (number, number + unit.replace("-", " "))}
    trees = (_read(prepare_text.__wrapped__(re.sub(r"(?<!\.)[.,]$", "", text))) for text in texts)
    return any(each is not None and _face(each) == _face(tree) for each in trees)


def _face(tree: Node) -> tuple[Any, bool, Any]:
    """Return a number whatever its notation, whether it is a percentage, and its unit whatever its name."""
    number, unit = (tree[1], tree[2]) if tree[0] == "unit" else (tree, "")
    percent = number[0] == "%"
    number = number[1] if percent else number
    return number[1] if number[0] == "num" else number, percent, measure(unit) or unit


def _rewritten(tree: Node, given: str, reference: Any) -> bool:
    """Return whether every reference is a number in a notation or unit that differs from the answer's."""
    number, *unit = _face(tree)
    for gold in map(prepare_text, references(reference)):
        wanted = _read(gold)
        if wanted is None or given == gold.partition("_")[0]:
            return False
        wanted_number, *wanted_unit = _face(wanted)
        alike = unit == wanted_unit or number == wanted_number  # 5 m and 5, 25% and 25
        if alike and _notation(wanted, gold) == _notation(tree, given):
            return False
    return True


def _notation(tree: Node, text: str) -> list[Any]:
    """Return the notation of a number: its form, its base, and which marks are in it."""
    number = tree[1] if tree[0] == "unit" else tree
    number = number[1] if number[0] == "%" else number
    base = re.search(r"\d_\{?(\d+)", text)
    marks = (r"\d\.\d", r"overline|\.\(|\.\.\.", r"\d[eE]\d")
    return [number[0], base[1] if base else "10", *(re.search(mark, text) is not None for mark in marks)]


def formed(reply: str, reference: Any, question: str) -> bool:
    r"""Return whether a right answer has the form that the question asks for: expanded, factored, simplified.

    If the reference is a number, the answer must not contain an integral, an indexed sum or product, a limit
    or a determinant. If it is another formula without these, the answer must not contain an integral, a sum,
    a limit or a derivative.

    >>> tuple(formed(answer, "x^2+2x+1", "Expand $(x+1)^2$.") for answer in ("(x+1)(x+1)", "1+2x+x^2"))
    (False, True)
    """
    given = prepare_text.__wrapped__((final_answer(reply)[0] or "")[:LENGTH])
    last = _last_side(given)
    return any(
        _has_asked_form(gold, given, question) and ("=" in gold or _has_asked_form(gold, last, question))
        for gold in map(prepare_text, references(reference))
    )


def _has_asked_form(gold: str, given: str, question: str) -> bool:
    tree, answer = _read(gold), _read(given)
    if tree is None or gold == given:
        return True
    if answer is not None:
        return in_form(tree, answer, question)
    if constant(bare(tree)):
        return not _UNDONE.search(given)
    return "=" in given or not (_ASKED_FOR.search(given) and not _ASKED_FOR.search(gold))


def _read(text: str) -> Node | None:
    """Return the tree of a prepared text; None for one that is not read."""
    try:
        return read.__wrapped__(text)
    except Unread:
        return None


_ASKED_FOR = re.compile(r"\\(?:int|sum|prod|lim)(?![a-zA-Z])|\\d?frac\s*\{?d\}?\s*\{?d[a-z]")

_UNDONE = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|det|begin)(?![a-zA-Z])")

_LEFT_TO_DO = ("+", "*", "/", "^", "-", "%", "fn", "unit", "rel")
