r"""The mathematics grader on changed references: what means something else is refused, the same is not.

The quick tests use references of our own. The slow ones use real data, in the folder that GEM_TEST_DATA names
or in ``../shared/data``, and skip where it is absent.
"""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from gem.graders.math import MathGrader
from gem.testing.audit_grader import unread_references

HERE = Path(__file__).parent
DATA = Path(os.environ.get("GEM_TEST_DATA", HERE.parents[2] / "shared" / "data"))
needs_sympy = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed"
)


def _rewritings():
    spec = importlib.util.spec_from_file_location("math_rewritings", HERE / "math_rewritings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rewritings = _rewritings()
bare = rewritings.bare

OURS = (
    "7", "42", "1,250", "-3", "0.75", "2.50", r"\frac{3}{8}", "$2n+1$", r"$\frac{n(n-1)}{2}$", r"\sqrt{3}",
    r"$3\sqrt{5}$", "12 (apples)", "3 (boxes of pencils)", "5 cm", "2.5 (dollars)", "18 hours",
    r"5 \text{ km}^2", "x > 4", r"x \leq -2", "(2,5)", "[0,3)", r"(-\infty,2)\cup(5,\infty)", "1,4,9",
    "$(1,2),(3,5)$", "k=6", "f(x)=3x-1", r"\lfloor n/3\rfloor", "x^2+y^2=9", "Friday", "Ms. Ruiz",
    "4:45 p.m.", "40%", "e^{-3}", r"2\pi r", "3+4i", r"p \land q", r"\frac{dy}{dx}", "f''(x)", "1101_2",
    "about 4 m", "increase by 6%", "a + b apples", "7!!", r"\{x \mid -1 \leq x < 4\}",
    r"$2n\pi$, any integer $n$", r"\log_2 7", "9!", r"\binom{n}{3}", "(B)",
)  # fmt: skip

LISTED = {
    ("1,4,9", "[1,4,9]"): "a list in the brackets of a program",
    (
        r"(-\infty,2)\cup(5,\infty)",
        r"[-\infty,2)\cup(5,\infty)",
    ): "an infinite end is open however it is written",
    (
        r"(-\infty,2)\cup(5,\infty)",
        r"(-\infty,2)\cup(5,\infty]",
    ): "an infinite end is open however it is written",
}
"""Changes that leave the meaning as it is, each looked at."""

LISTED_OF_DATA = {
    **{
        (f"77{unit}", f"77{unit}{between}77"): "the same value twice"
        for unit in ("", " (books)", " (girls)")
        for between in (" or ", " and ", ", ")
    },
    (
        r"$f(x)=a x+b$, where $b$ is an arbitrary integer, and $a$ is an arbitrary positive integer"
        r" with $\mho(a)=0$",
        r"f(x)=a x+b, where b is an arbitrary integer, and a is an arbitrary positive integer"
        r" with \mho(a)=0 thousand",
    ): "0 thousand is 0",
    ("1st", "1/(1st)"): "1/1 is 1",
    ("1st", "1"): "the number of a place",
    ("1st", "1st squared"): "1 squared is 1",
    ("1st", "1st cubed"): "1 cubed is 1",
    ("1st", "the square root of 1st"): "the root of 1 is 1",
    ("1st", "(1st)!"): "1! is 1",
    ("$f(x)=1$", "f(w)=1"): "the variable of a function has any name",
    ("$f(x)=1$", "f(x')=1"): "the variable of a function has any name",
    ("$f(n)=n$, $g(n)=1$", "f(n)=n, g(w)=1"): "the variable of a function has any name",
    ("$f(n)=n$, $g(n)=1$", "f(n)=n, g(n')=1"): "the variable of a function has any name",
    ("$f(x)=-1$,$f(x)=x+1$", "f(w)=-1,f(x)=x+1"): "the variable of a function has any name",
    ("$f(x)=-1$,$f(x)=x+1$", "f(x')=-1,f(x)=x+1"): "the variable of a function has any name",
    (
        r"$(-\infty, 0) \cup\{1\}$.",
        r"[-\infty, 0) \cup\{1\}",
    ): "an infinite end is open however it is written",
}


def wrong_answers(gold):
    """Yield what must not be paid for a reference."""
    for constant in rewritings.CONSTANTS:
        worth = rewritings.value(gold)
        named = bare(gold).rpartition("=")[2].strip() == constant  # the name of a value may be left out
        if not named and (worth is None or worth != rewritings.value(constant)):
            yield constant
    for _, answer in (*rewritings.mutants(gold), *rewritings.phrased(gold)):
        yield answer


def accepted(golds):
    """Return how many wrong answers were tried, and those that were paid, boxed or bare."""
    grader = MathGrader()
    tried, paid = 0, []
    for gold in golds:
        for answer in wrong_answers(gold):
            tried += 1
            if grader(rf"\boxed{{{answer}}}", gold).correct or grader(answer, gold).correct:
                paid.append((gold, answer))
    return tried, paid


@pytest.mark.system
@needs_sympy
def test_no_changed_reference_is_paid():
    tried, paid = accepted(OURS)
    assert tried > 3500
    assert [pair for pair in paid if pair not in LISTED] == []
    assert set(LISTED) <= set(paid)  # what is listed is needed


@needs_sympy
def test_other_writings_of_a_reference_are_paid():
    grader = MathGrader()
    refused = [
        (gold, name, answer)
        for gold in OURS
        for name, answer in rewritings.writings(gold)
        if not grader(answer, gold).correct
    ]
    assert [each for each in refused if each[2] != "There are 20 years old."] == []  # which is no English


def test_a_file_of_references_is_audited():
    golds = ["5", "about 3 m", r"\frac{1}{2}", ["x or so 5", "5"], "Tuesday", r"2n, where $n$ is odd", 2.5]
    assert [at for at, _ in unread_references(golds)] == [1, 5]


# -- real data


def _rows(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there; GEM_TEST_DATA names the folder that has it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _real():
    golds = [row["answer"].rpartition("####")[2].strip() for row in _rows("gsm8k_test_300.jsonl")]
    golds += [row["answer"].rpartition("####")[2].strip() for row in _rows("gsm8k_train_2000.jsonl")][:200]
    golds += [row["answer"] for row in _rows("asdiv_300.jsonl")]
    golds += [row["final_answer"][0] for row in _rows("olympiadbench_150.jsonl")]
    return list(dict.fromkeys(golds))


@needs_sympy
@pytest.mark.slow
def test_no_changed_real_reference_is_paid():
    tried, paid = accepted(_real())
    lists = [
        (gold, answer) for gold, answer in paid if answer == f"[{bare(gold)}]"
    ]  # as a program prints them
    assert tried > 5000
    assert [pair for pair in paid if pair not in LISTED_OF_DATA and pair not in lists] == []


@needs_sympy
@pytest.mark.slow
def test_other_writings_of_real_references_are_paid():
    grader = MathGrader()
    refused = [
        (gold, name, answer)
        for gold in _real()
        for name, answer in rewritings.writings(gold)
        if not grader(answer, gold).correct
    ]
    assert [each for each in refused if each[2] != "There are 20 years old."] == []  # which is no English


@needs_sympy
@pytest.mark.slow
def test_nearly_all_real_references_are_read():
    assert [text[:12] for _, text in unread_references(_real())] == ["$f(x)=a x+b$"]
