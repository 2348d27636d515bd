# ruff: noqa: E501 - programs in a line each
"""Functions and classes of tests are run as pytest and unittest would run them."""

import pytest
from code_programs import FUNCTIONS

from gem.errors import NoVerdict
from gem.graders.code import CodeGrader
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget


@pytest.fixture(scope="module")
def verdict(sandbox):
    grader = CodeGrader(sandbox, budget=Budget(cpu_s=2.0, wall_s=20.0, memory_mb=256))
    return lambda code, raw, row=None: grader.judge(code, read_tests(raw, row)).info["verdict"]


PYTEST = "import pytest\n"
MAKES = """
def make(a, b):
    def run(n=2):
        assert add(a, n) == 3
        assert add([a], [b]) == [a, b]
    return run
"""
UNITTEST = """
import unittest

class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        (f"{FUNCTIONS}TESTS = [test_sum]\nif __name__ == '__main__':\n    for each in TESTS: each()", {}),
        ("class TestAdd:\n    def test_sum(self):\n        assert add(1, 2) == 3", {}),
        (
            "class Base:\n    def test_sum(self):\n        assert add(self.one, 2) == 3\n"
            "class TestAdd(Base):\n    @classmethod\n    def setup_class(cls):\n        cls.zero = 0\n"
            "    def setup_method(self, method):\n        self.one = self.zero + 1",
            {},
        ),
        (
            "def setup_function(function):\n    global one\n    one = 1\ndef test():\n    assert add(one, 2) == 3",
            {},
        ),
        (f"one = 0\ndef setUpModule():\n    global one\n    one = 1\n{UNITTEST.replace('(1, 2)', '(one, 2)')}", {}),
        (UNITTEST.replace("import unittest", "from unittest import TestCase as TC").replace("unittest.TestCase", "TC"), {}),
        (
            "import unittest\nclass TestSum:\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
            "class T(TestSum, unittest.TestCase):\n    pass",
            {},
        ),
        (UNITTEST.replace("TestCase", "IsolatedAsyncioTestCase").replace("def test", "async def test"), {}),
        (f"{UNITTEST}    def test_net(self):\n        self.skipTest('no network')", {}),
        (f"{UNITTEST}    @unittest.expectedFailure\n    def test_net(self):\n        self.assertEqual(add(1, 1), 3)", {}),
        ("def test_case(f, a, b):\n    assert f(a, 2) == b\ndef check(f):\n    test_case(f, 1, 3)", {"entry_point": "add"}),
        (f"{PYTEST}@pytest.mark.parametrize('x', [(1, 2), (2, 1)])\ndef test_add(x):\n    assert add(*x) == 3", {}),
        (f"{PYTEST}@pytest.mark.parametrize(['x'], [[1]])\ndef test_add(x):\n    assert add(x, 2) == 3", {}),
        (f"{PYTEST}@pytest.mark.parametrize(argnames='x', argvalues=[1])\ndef test_add(x):\n    assert add(x, 2) == 3", {}),
        (
            f"{PYTEST}@pytest.mark.parametrize('x', [1])\nclass TestAdd:\n    @pytest.mark.parametrize('y', [2])\n"
            "    def test_add(self, x, y):\n        assert add(x, y) == 3",
            {},
        ),
        (
            f"{PYTEST}X = pytest.mark.xfail(reason='no')\n"
            "@pytest.mark.parametrize('x', [1, pytest.param(7, marks=X)])\ndef test_add(x):\n    assert add(x, 2) == 3",
            {},
        ),
        *(
            (f"{PYTEST}{mark}\ndef test_no():\n    assert add(1, 2) == 4\ndef test_add():\n    assert add(1, 2) == 3", {})
            for mark in ("@pytest.mark.skip('no')", "@pytest.mark.skipif(1, reason='no')", "@pytest.mark.xfail")
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass TestCase:\n    want: int\n    def test(self, a):\n"
            "        assert add(a, 2) == self.want\ndef test_add():\n    for case in [TestCase(3)]: case.test(1)",
            {},
        ),
        (f"{PYTEST}{FUNCTIONS}\ndef test_no():\n    pytest.skip('no network')", {}),
        *(
            (f"{MAKES}{end}", {})
            for end in (
                "test_sum = make(1, 2)",
                "for n in range(2):\n    globals()[f'test_{n}'] = make(1, n)",
                "test_sum = make(1, 2)\ntest_double = lambda x: 2 * x\ndef test_more():\n    assert test_double(2) == 4",
                "def test_more():\n    pass\ntest_sum = make(1, 2)",
                "import pytest\ntest_sum = pytest.mark.parametrize('n', [2])(make(1, 2))",
                "import unittest\nT = type('T', (unittest.TestCase,), {'test_sum': lambda self: make(1, 2)()})\ntest_sum = T",
                "from collections import namedtuple\nTestRow = namedtuple('TestRow', 'test a')\n"
                "for row in [TestRow(1, 2)]:\n    make(*row)()",
                "TestSum = type('TestSum', (), {'test_sum': staticmethod(make(1, 2))})",
            )
        ),
        (
            "import os\nfrom unittest.mock import patch\n@patch('time.sleep')\nclass TestAdd:\n    @patch.object(os, 'sep', '/')\n"
            "    @patch('time.time')\n    def test_add(self, clock, sleep):\n        assert add(1, 2) == 3\n"
            "@patch('time.sleep')\ndef test_more(sleep):\n    assert add([1], [2]) == [1, 2]",
            {},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("isolate", [True, False])
def test_tests_are_run_as_their_tool_runs_them(verdict, raw, row, isolate):
    row = {**row, "isolate": isolate}
    assert verdict("def add(a, b):\n    return a + b", raw, row) == "AC"
    assert verdict("def add(a, b):\n    return a + b if type(a) is list else 9", raw, row) == "WA"


@pytest.mark.parametrize("made", ["lambda capsys: add(1, 2)", "wait"])
def test_tests_that_are_bound_otherwise_and_cannot_run_here_give_no_verdict(verdict, made):
    raw = f"async def wait():\n    assert add(1, 2) == 3\ndef test_add():\n    assert add(1, 2) == 3\ntest_more = {made}"
    with pytest.raises(NoVerdict, match="test_more is async, a generator, or needs fixtures"):
        verdict("def add(a, b):\n    return a + b", raw)


def test_functions_of_the_submission_are_no_tests(verdict):
    code = "def test_more():\n    raise KeyError\ndef add(a, b):\n    return a + b\nclass TestMore:\n    test = test_more"
    for isolate in (True, False):
        assert verdict(code, f"{MAKES}test_sum = make(1, 2)", {"isolate": isolate}) == "AC"


@pytest.mark.parametrize(
    "raw",
    [
        f"{PYTEST}@pytest.mark.parametrize('x', [])\ndef test_add(x):\n    assert add(x, 2) == 3",
        f"{PYTEST}pytestmark = pytest.mark.skip\n{FUNCTIONS}",
        UNITTEST.replace("self.assert", "self.skipTest('no network')\n        self.assert"),
        "import sys\ndef main():\n    assert add(1, 2) == 3\n    sys.exit(0)\nmain()",
    ],
)
def test_tests_that_come_to_no_end_or_have_none_left_give_no_verdict(verdict, raw):
    with pytest.raises(NoVerdict, match=r"fail by themselves: (SkipTest: no test is left|SystemExit)"):
        verdict("def add(a, b):\n    return 3", raw)


def test_a_submission_cannot_make_the_tests_skip(verdict):
    raw = f"""{UNITTEST}
    def test_error(self):
        try:
            self.assertEqual(add(1, 1), 2)
        except Exception:
            self.skipTest("it fails")
"""
    for error in ("KeyError", "unittest.SkipTest", "SystemExit(0)"):
        code = f"import unittest\ndef add(a, b):\n    if a == b: raise {error}\n    return a + b"
        assert verdict(code, raw) == "RE", error
