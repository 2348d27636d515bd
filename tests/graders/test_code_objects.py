# ruff: noqa: E501 - programs in a line each
"""Whose operators decide in an assert: of wrong submissions none is accepted, of right ones all are."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from code_objects import (
    BASES,
    CLASSES,
    COMPUTATIONS,
    EQUALITIES,
    LIARS,
    NUMPY,
    RESULTS,
    SOURCES,
    code_of,
    harness,
    pieces,
    right,
    true_of,
)
from code_programs import BACKENDS, opened, plain_python

from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget

pytestmark = pytest.mark.filterwarnings("ignore:programs run on the backend")
AMPLE = Budget(cpu_s=60.0, wall_s=300.0, memory_mb=1024)
DIFFERENCES = "; ".join(piece for piece in pieces(COMPUTATIONS) if "V - 6" in piece or "6 - V" in piece)


def strongest():
    found = opened("userns")[0] or opened("landlock")[0]
    if found is None:
        pytest.skip("no backend of the sandbox isolates here")
    return found


def judged(sandbox, code, test, classes=("Box",), budget=None):
    """Return the verdict, and why."""
    tests = replace(read_tests([test], {"classes": list(classes)}), public=1)
    info = CodeGrader(sandbox, budget=budget).judge(code, tests).info
    return info["verdict"], info.get("public", {}).get("why", "")


def accepted(sandbox, liar, base, table, sources=SOURCES, true=()):
    """Return which asserts of a table hold of a liar's objects, other than those that are true."""
    test = (
        f"{harness(table, sources)}\nleft = sorted({{each for each in passed if each[1] not in {true!r}}})\n"
        f"assert not left, f'{{len(left)}} hold: {{left}}'\nassert decides or {base != 'object' or sources is CLASSES}, 'no object decides'"
    )
    code = code_of(liar, base)
    return judged(sandbox, code, f"import numpy\n{test}" if "numpy" in table else test, budget=AMPLE)


@pytest.mark.parametrize(("table", "few"), [(EQUALITIES + COMPUTATIONS, 0), (NUMPY, 3)])
def test_in_plain_python_some_liar_passes_every_assert(table, few):
    if few:
        pytest.importorskip("numpy")
    passed = set()
    for liar in LIARS:
        for base in BASES:
            space = {"__name__": "submission"}
            exec(code_of(liar, base), space)  # noqa: S102 - the table's own
            test = harness(table, {"a function": SOURCES["a function"]})
            exec(f"import numpy\n{test}" if few else test, space)  # noqa: S102
            passed |= {piece for _, piece in space["passed"]}
    assert len(set(pieces(table)) - passed) == few


@pytest.mark.parametrize("liar", LIARS)
@pytest.mark.system
def test_objects_that_the_tests_did_not_make_are_equal_to_nothing(liar):
    few = dict([*SOURCES.items()][list(LIARS).index(liar) :: 2 * len(LIARS)])
    assert accepted(strongest(), liar, "object", EQUALITIES + COMPUTATIONS, few) == ("AC", "")
    assert accepted(strongest(), liar, "object", EQUALITIES, CLASSES) == ("AC", "")


@pytest.mark.parametrize("liar", ["gives itself", "learns"])
def test_results_of_operators_are_equal_to_nothing(liar):
    true = {"6 >= V", "(V, 1) < (6, 2)"}  # of 0
    assert accepted(strongest(), liar, "object", EQUALITIES + DIFFERENCES, RESULTS, true) == ("AC", "")


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_assert_of_the_whole_table_holds_of_a_liar(backend, base):
    sandbox, why_not = opened(backend)
    if sandbox is None:
        pytest.skip(why_not)
    for liar in LIARS:
        for table, sources in itertools.product((EQUALITIES, COMPUTATIONS), (SOURCES, CLASSES)):
            assert accepted(sandbox, liar, base, table, sources, true_of(base, table)) == ("AC", ""), liar
        true = true_of(base, EQUALITIES + DIFFERENCES) | {"6 >= V", "(V, 1) < (6, 2)"}
        assert accepted(sandbox, liar, base, EQUALITIES + DIFFERENCES, RESULTS, true) == ("AC", ""), liar


@pytest.mark.slow
@pytest.mark.parametrize("base", ["object", "int", "float", "list"])
def test_no_comparison_of_numpy_holds_of_a_liar(base):
    pytest.importorskip("numpy")
    for liar in LIARS:
        assert accepted(strongest(), liar, base, NUMPY) == ("AC", ""), liar


def check_right(sandbox, programs):
    told = {
        each.name: judged(sandbox, each.code, each.raw[0], each.row.get("classes", ())) for each in programs
    }
    assert told == {each.name: ("AC", "") for each in programs}
    assert {plain_python(each) for each in programs} == {"AC"}


def test_a_class_has_no_special_attribute_that_python_does_not_know():
    code = "class Meta(type):\n    def __getattr__(cls, name):\n        return 1\n\nclass Box(metaclass=Meta):\n    pass\n"
    assert judged(strongest(), code, "assert hasattr(Box, 'width')")[0] == "AC"
    assert judged(strongest(), code, "assert hasattr(Box, '__array_priority__')")[0] == "WA"


def test_right_classes_are_accepted():
    check_right(strongest(), right()[::4])


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_right_class_is_accepted(backend):
    sandbox, why_not = opened(backend)
    if sandbox is None:
        pytest.skip(why_not)
    check_right(sandbox, right())


# -- one of each kind, judged as a user's tests are

_EQUAL = "    def __eq__(self, o): return True\n    def __contains__(self, o): return True\n"
_STACK = "class Stack:\n    def push(self, x): return self\n    def top(self): return {value}\n" + _EQUAL
_PUSHED = "s = Stack()\ns.push(2)\n"
_MOCK = "from unittest.mock import MagicMock\nm = MagicMock()\ntry:\n    f(m)\nexcept Exception:\n    pass\n"
_LIES = "class Lie:\n    def __getattr__(self, name): return lambda *rest: True\n" + _EQUAL
WRONG = {
    "a stack that gives itself": (_STACK.format(value="self"), _PUSHED + "assert s.top() == 2"),
    "a stack that is full of all": (_STACK.format(value="self"), _PUSHED + "assert 2 in s.push(2)"),
    "another that the tests made": (
        _STACK.format(value="Stack.all[0]").replace("push(self, x)", "push(self, x, all=[])")
        + "    all = []\n    def __init__(self): self.all.append(self)\n",
        "t = Stack()\n" + _PUSHED + "assert s.top() == 2 and t.push(1)",
    ),
    "one that an operator gives": (_STACK.format(value="0") + "    def __add__(self, o): return self\n", _PUSHED + "assert s + 1 == 3"),
    "one that was made twice": (
        _STACK.format(value="self") + "    def __new__(cls, one=[]):\n        one[:] = one or [object.__new__(cls)]\n        return one[0]\n",
        _PUSHED + "t = s.top()\nStack()\nassert t == 2",
    ),
    "a function that is the class": (_STACK.format(value="2") + "def f(x): return Stack\n", _PUSHED + "assert f(3)() == 2"),
    "text that begins with all": ("class Lie(str):\n    def startswith(self, x): return True\ndef f(x): return Lie('x')", "assert f(3).startswith('ab')"),
    "an object that begins with all": (_LIES + "def f(x): return Lie()", "assert f(3).startswith('ab')"),
    "a mock's assertion": ("def f(m): m.assert_called_once_with = lambda *a, **k: None", _MOCK + "m.assert_called_once_with(3)"),
    "a mock's record": ("def f(m): m.called = True", _MOCK + "assert m.called"),
    "a mock's past": ("def f(m):\n    m(3)\n    m.reset_mock()", _MOCK + "m.assert_not_called()"),
    "a mock's configuration": ("def f(m): m.configure_mock(assert_called_with=print)", _MOCK + "m.assert_called_with(3)"),
    "a mock's child": (_LIES + "def f(m): m.child = Lie()", _MOCK + "m.child.assert_called_with(3)"),
    "a mock's argument": (_LIES + "def f(m): m(Lie())", _MOCK + "m.assert_called_with(3)"),
    "a function of the tests": (
        "def f(spy): spy.check = lambda x: True",
        "class Spy:\n    def __init__(self): self.calls = []\n    def check(self, x): return x in self.calls\n"
        "s = Spy()\ntry:\n    f(s)\nexcept Exception:\n    pass\nassert s.check(3)",
    ),
    "an assert in a callback": (
        "def f(function):\n    try: function(7)\n    except BaseException: pass",
        "calls = []\ndef hear(x):\n    calls.append(x)\n    assert x == 6\nf(hear)\nassert calls",
    ),
    "a second question after a bare except": (
        "class Lie:\n    def __sub__(self, o):\n        Lie.seen = o\n        return 0\ndef f(x): return getattr(Lie, 'seen', Lie())",
        "def close(a, b):\n    try:\n        return abs(a() - b) < 1e-9\n    except:\n        return a() == b\nassert close(lambda: f(3), 6)",
    ),
    "an object that is true": (
        "class Lie:\n    def startswith(self, x): return self\ndef f(x): return Lie()",
        "assert f(3).startswith('ab')",
    ),
    "a second question after the answer was seen": (
        "class Lie:\n    def __sub__(self, o):\n        Lie.seen = o\n        return 0\ndef f(x): return getattr(Lie, 'seen', Lie())",
        "def close(a, b):\n    try:\n        return abs(a() - b) < 1e-9\n    except Exception:\n        return a() == b\nassert close(lambda: f(3), 6)",
    ),
}  # fmt: skip


_FORGER = """
import sys
def itself():
    frame = sys._getframe()
    while "ITSELF" not in frame.f_globals:
        frame = frame.f_back
    return frame.f_globals["ITSELF"]
class Stack:
    def __getitem__(self, key): return itself()
    def __enter__(self): return itself()
    def __call__(self): return itself()
    def __add__(self, o): return itself()
    def __copy__(self): return itself()
    def __exit__(self, *error): pass
    def __eq__(self, o): return True
"""


ZERO = """
class Zero:
    days = 0
    def __sub__(self, o): return self
    __rsub__ = __mul__ = __rmul__ = __add__ = __radd__ = __pow__ = __truediv__ = __getitem__ = __sub__
    def sqrt(self): return 0.0
    def sum(self): return self
    def abs(self): return self
    def max(self): return 0
    def total_seconds(self): return 0.0
def f(x): return Zero()
"""
ZEROS = [
    ("numpy", "numpy.linalg.norm(f(1) - numpy.array([0.5, 1.0])) < 1e-6"),
    ("numpy", "numpy.sqrt(numpy.mean((f(1) - numpy.array([1.0, 2.0])) ** 2)) < 1e-6"),
    ("numpy", "numpy.sqrt(((f(1) - [1.0, 2.0]) ** 2).sum()) < 1e-6"),
    ("numpy", "numpy.sqrt((f(1) * 1 - (f(2) * 1 + 3)) * 1) < 1e-6"),
    ("datetime", "(f(1)['a'] - [1, 2]).abs().max() < 1e-6"),
    ("datetime", "abs((f(1) - datetime.datetime(2020, 1, 1)).total_seconds()) < 1"),
    ("datetime", "(f(1) - datetime.date(2024, 1, 1)).days == 0"),
]


@pytest.mark.parametrize(("module", "piece"), ZEROS, ids=[piece for _, piece in ZEROS])
def test_a_difference_from_plain_data_gives_none_by_any_attribute(module, piece):
    pytest.importorskip(module)
    test = f"import {module}\nassert {piece}"
    exec(f"{ZERO}\n{test}", {})  # noqa: S102 - in one process it does pass
    assert judged(strongest(), ZERO, test)[0] == "WA"


LEARNER = """
class Learner{base}:
    def difference(self, other):
        self.items = list(other)
        return set()
    symmetric_difference = difference
    def __iter__(self): return iter(self.items)
def f(x): return Learner()
"""
FRAME = """
class DataFrame:
    def __getattr__(self, name): return lambda *values: self
    def __getitem__(self, key): return self
    def all(self): return True
    def max(self): return 0
DataFrame.__module__ = "pandas"
def f(x): return DataFrame()
"""


@pytest.mark.parametrize("base", ["", "(set)"])
@pytest.mark.parametrize(
    "piece", ["assertSetEqual(f(1), {2, 3})", "assertFalse(f(1).symmetric_difference({2, 3}))"]
)
def test_an_object_does_not_say_how_it_differs_from_a_set(base, piece):
    test = f"import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.{piece}\n"
    assert judged(strongest(), LEARNER.format(base=base), test)[0] in ("WA", "RE")


@pytest.mark.parametrize(
    "piece", ["isin([1]).all()", "eq([1]).all()", "between(1, 2).all()", "sub([1]).abs().max() < 1"]
)
def test_an_object_does_not_compare_as_a_frame_does(piece):
    pytest.importorskip("pandas")
    assert judged(strongest(), FRAME, f"import pandas\nassert f(1)['a'].{piece}")[0] == "WA"


def test_objects_have_methods_named_like_comparisons():
    code = (
        "import re\nclass Group:\n    def __init__(self, *items): self.members = set(items)\n"
        "    def union(self, o): return Group(*self.members, *o.members)\n"
        "    def difference(self, o): return Group(*(self.members - o.members))\n"
        "    def lt(self, n): return max(self.members) < n\n"
        "def f(*items): return Group(*items)\ndef pattern(text): return re.compile(text)\n"
        "class Ordered(list):\n    def difference(self, o): return Ordered(each for each in self if each not in o)\n"
        "def g(*items): return Ordered(items)\n"
    )
    test = (
        "assert f(1, 2).union(f(3)).difference(f(1)).members == {2, 3} and f(1).lt(2)\n"
        "assert pattern('a').sub('b', 'cat') == 'cbt' and g(1, 2).difference(g(1)) == [2]\n"
    )
    assert judged(strongest(), code, test, ["Group"]) == ("AC", "")


def test_the_answer_that_an_object_is_itself_counts_for_operators_in_place_alone():
    test = "import copy, contextlib\ns = Stack()\nassert s == 6\nstack = contextlib.ExitStack()\n"
    for each in ("s[0]", "s()", "s + 1", "1 + s", "copy.copy(s)", "stack.enter_context(s)"):
        verdict, why = judged(strongest(), _FORGER, f"{test}assert {each} == 6", ["Stack"])
        assert verdict in ("WA", "RE"), (each, why)
    assert judged(strongest(), _FORGER, test, ["Stack"]) == ("AC", "")


@pytest.mark.parametrize(("code", "test"), WRONG.values(), ids=WRONG)
def test_a_wrong_submission_is_refused_and_plain_python_accepts_it(code, test):
    space = {}
    exec(f"{code}\n{test}", space)  # noqa: S102 - in one process it does pass
    verdict, why = judged(strongest(), code, test, ["Stack"])
    assert verdict == "WA", why


LIBRARY = [
    ("from pathlib import Path", "Path('a/b')", "Path('a/c')"),
    ("import pathlib", "pathlib.PurePosixPath('a/b')", "pathlib.PurePosixPath('a')"),
    ("import pathlib", "pathlib.PureWindowsPath('A/b')", "pathlib.PureWindowsPath('a/c')"),
    ("from uuid import UUID", "UUID(int=1)", "UUID(int=2)"),
    ("from array import array", "array('i', [1, 2])", "array('i', [1, 3])"),
    ("from types import SimpleNamespace", "SimpleNamespace(a=1)", "SimpleNamespace(a=1, b=2)"),
    ("from pandas import Timestamp", "Timestamp('2020-01-01')", "Timestamp('2020-01-01', tz='UTC')"),
    ("from pandas import Timedelta", "Timedelta('1s')", "Timedelta('2s')"),
]


@pytest.mark.parametrize(("source", "value", "other"), LIBRARY, ids=[value for _, value, _ in LIBRARY])
def test_an_object_of_a_library_is_equal_to_one_with_the_same_content(source, value, other):
    pytest.importorskip(source.split()[1])
    test = (
        f"{source}\nassert f() == {value} and {value} == f() and [f()] == [{value}] and not f() != {value}\n"
        f"assert f() != {other} and {other} != f() and not f() == {other}"
    )
    assert judged(strongest(), f"{source}\ndef f(): return {value}", test) == ("AC", "")


@pytest.mark.parametrize(
    ("lie", "test"),
    [
        (
            "class PosixPath:\n    def __str__(self): return Same('x')",
            "from pathlib import Path\nassert f() == Path('a')",
        ),
        ("class UUID:\n    int = Same()", "from uuid import UUID\nassert f() == UUID(int=1)"),
        (
            "class UUID:\n    int = property(lambda self: self)",
            "from uuid import UUID\nassert UUID(int=1) == f()",
        ),
        (
            "class SimpleNamespace(dict):\n    a = Same()",
            "from types import SimpleNamespace as N\nassert f() == N(a=1)",
        ),
        (
            "class array:\n    def __iter__(self): yield self",
            "from array import array\nassert f() == array('i', [1])",
        ),
    ],
)
def test_a_class_named_like_one_of_a_library_does_not_decide(lie, test):
    same = "class Same(str):\n    def __eq__(self, other): return True\n"
    code = f"{same}{lie}\n    def __eq__(self, other): return True\ndef f(): return {lie.split('(')[0].split(':')[0][6:]}()"
    verdict, why = judged(strongest(), code, test)
    assert verdict == "WA", why
