# ruff: noqa: E501 - programs in a line each
"""Stand-ins in the tests' process for what the submission has: their hashes, names and classes."""

from __future__ import annotations

import pytest

from gem.errors import NoVerdict
from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import SandboxFailed
from gem.sandbox.shared import default_sandbox


@pytest.fixture(scope="module")
def judge():
    try:
        sandbox = default_sandbox()
        sandbox.run("pass")
    except SandboxFailed as error:
        pytest.skip(f"no backend of the sandbox isolates here: {error}")

    def judge(code, raw, row=None):
        return CodeGrader(sandbox).judge(code, read_tests(raw, row)).info["verdict"]

    return judge


KEY = (
    "class Key:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\n"
    "    def __hash__(self): return hash(self.x)\n"
)
COLOUR = "from enum import Enum\nclass Colour(Enum):\n    RED = 1\ndef f(): return {Colour.RED: 2}"
HASHED = {
    "a dict with a member of an enumeration": (COLOUR, "assert f()[Colour.RED] == 2"),
    "a set of paths": (
        "from pathlib import Path\ndef f(): return {Path('a'), Path('b')}",
        "assert sorted(map(str, f())) == ['a', 'b']",
    ),
    "a set that an object keeps": (
        f"{KEY}class Box:\n    def __init__(self): self.seen = set()\n    def add(self, x): self.seen.add(Key(x))\n",
        "b = Box()\nfor i in range(3): b.add(i)\nassert len(b.seen) == 3\nb.add(3)\nassert sorted(k.x for k in b.seen) == [0, 1, 2, 3]",
    ),
    "a dict that the tests hold while it grows": (
        f"{KEY}kept = {{}}\ndef f(): return kept\ndef put(i): kept[Key(i)] = i",
        "d = f()\nfor i in range(3): put(i)\nassert sorted(d.values()) == [0, 1, 2]\nput(1)\nassert len(d) == 3 == len(f())",
    ),
    "lists beside a frozen set": (
        f"{KEY}def f():\n    a = [1]\n    return a, frozenset({{Key(1)}}), a, {{Key(2): a}}, a",
        "r = f()\nr[0].append(2)\nassert r[0] is r[2] is r[4] and r[4] == [1, 2]",
    ),
    "an ordered dict": (
        f"{KEY}from collections import OrderedDict\ndef f(): return OrderedDict([(Key(2), 'b'), (Key(1), 'a')])",
        "d = f()\nassert list(d.values()) == ['b', 'a'] and [k.x for k in d] == [2, 1]",
    ),
    "a set of the tests' own objects": (
        "def f(s): return len(s), s",
        "class Own:\n    pass\ns = {Own(), Own()}\nn, t = f(s)\nassert n == 2 == len(s) and t is s",
    ),
}


@pytest.mark.parametrize(("code", "test"), HASHED.values(), ids=HASHED)
def test_sets_and_dicts_hold_objects_of_the_other_process(judge, code, test):
    assert judge(code, [test]) == "AC"
    assert judge(code, [f"{test}\nassert 1 == 2"]) == "WA"  # the tests ran to their end


SUM = "def sum(a, b):\n    return {}"
OWN = "from solution import {}\ndef test_a():\n    assert {}\n"
NAMED = {
    "a builtin that the submission lacks": ("x = 1", OWN.format("pow", "pow(2, 3) == 8"), {}, "RE"),
    "a builtin that it defines": ("def round(x): return 3", OWN.format("round", "round(2.5) == 3"), {}, "AC"),
    "a module that it defines": ("def copy(x): return 3", OWN.format("copy", "copy(2) == 3"), {}, "AC"),
    "a builtin in a class": (
        "x = 1",
        "import unittest\nfrom solution import round\nclass T(unittest.TestCase):\n    v = round(7)\n"
        "    def test_a(self):\n        self.assertEqual(self.v, 7)\n",
        {},
        "RE",
    ),
    "the row's solution defines it": (
        SUM.format(6),
        ["assert sum(10, 15) == 6"],
        {"code": SUM.format(1)},
        "AC",
    ),
    "and the submission lacks it": ("x = 1", ["assert sum([]) == 0"], {"code": SUM.format(1)}, "RE"),
    "the entry point": (SUM.format(6), ["assert sum(10, 15) == 6"], {"entry_point": "sum"}, "AC"),
}


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize(("code", "raw", "row", "wanted"), NAMED.values(), ids=NAMED)
def test_a_function_named_like_a_builtin_is_the_submissions(judge, code, raw, row, wanted, isolate):
    assert judge(code, raw, {**row, "isolate": isolate}) == wanted


@pytest.mark.parametrize(
    "tests",
    [
        "for x in ():\n    assert f(x) == x",
        "import sys\nif sys.version_info < (3, 0):\n    assert f(1) == 1",
        "import math\ndef f(x):\n    return x\nassert f(math.floor(1.5)) == 1",
    ],
)
def test_tests_that_end_without_the_submission_give_no_verdict(judge, tests):
    with pytest.raises(NoVerdict, match="without having used the submission"):
        judge("def f(x): return 99", tests)


@pytest.mark.parametrize(
    "tests", ["assert f(4) == WANTED", "class T:\n    wanted = WANTED\nassert f(4) == T.wanted"]
)
def test_a_submission_does_not_define_what_its_task_never_mentions(judge, tests):
    guess = "WANTED = 99\ndef f(x): return 99"
    with pytest.raises(NoVerdict, match="name 'WANTED' is not defined"):
        judge(guess, [tests], {"question": "Halve a number with f."})
    assert judge(guess, [tests], {"question": "Give WANTED with f."}) == "AC"
