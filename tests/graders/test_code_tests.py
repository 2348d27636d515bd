"""Tests are read in the forms in which data sets hold them."""

import json
import re

import pytest

from gem.errors import BadArgument
from gem.graders.asserts import tester
from gem.graders.code_tests import CodeTests, read_tests

MARK = "import pytest\n@pytest.mark.parametrize"
TEST = "import pytest\ndef test_add():\n    assert add(1, 2) == 3\n"
PAIRS = {"inputs": ["1\n", "2\n"], "outputs": ["1", "4"]}


@pytest.mark.parametrize(
    "raw",
    [
        PAIRS,
        json.dumps(PAIRS),
        json.dumps(PAIRS).encode(),
        {"input": ["1\n", "2\n"], "output": ["1", "4"]},
        [{"input": "1\n", "output": "1"}, {"input": "2\n", "output": "4", "testtype": "stdin"}],
        {
            "language": "python",
            "test_cases": [{"input": "1\n", "output": "1"}, {"input": "2\n", "output": "4"}],
        },
        read_tests(PAIRS),
    ],
)
def test_programs(raw):
    tests = read_tests(raw)
    assert (tests.kind, tests.inputs, tests.outputs) == ("program", ("1\n", "2\n"), ("1", "4"))


def test_lists_of_lines_are_joined():
    tests = read_tests({"inputs": [["1", "2"]], "outputs": [["3", "4"]]})
    assert (tests.inputs, tests.outputs) == (("1\n2",), ("3\n4",))


def test_functions_of_apps_and_taco():
    tests = read_tests({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]})
    assert (tests.kind, tests.name, tests.inputs, tests.wrapped) == (
        "function",
        "add",
        ((1, 2), (3, 4)),
        True,
    )
    assert not read_tests({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[1], 2]}).wrapped


def test_functions_of_livecodebench():
    raw = [{"input": '[1, 2]\n"a"', "output": '"b"', "testtype": "functional"}]
    tests = read_tests(json.dumps(raw), {"func_name": "Solution.f"})
    assert (tests.name, tests.inputs, tests.outputs) == ("Solution.f", (([1, 2], "a"),), ("b",))


@pytest.mark.parametrize(
    "row",
    [
        {"metadata": '{"func_name": "add"}'},
        {"metadata": {"func_name": "add"}},
        {"func_name": "add", "metadata": "no json"},
        {"entry_point": "add"},
    ],
)
def test_the_function_of_livecodebench_is_named_beside_the_tests(row):
    raw = [{"input": "1\n2", "output": "3", "testtype": "functional"}]
    tests = read_tests(json.dumps(raw), row)
    assert (tests.kind, tests.name, tests.inputs, tests.outputs) == ("function", "add", ((1, 2),), (3,))
    stdin = [{"input": "1\n2", "output": "3", "testtype": "stdin"}]
    assert read_tests(stdin, row).kind == "program"


@pytest.mark.parametrize(
    "raw",
    [
        [{"input": "1\n2", "output": "3", "testtype": "functional"}],
        [{"input": "1", "output": "3"}, {"input": "1\n2", "output": "3", "testtype": "functional"}],
        {"test_cases": [{"type": "function_call", "input": [1, 2], "output": 3}]},
    ],
)
def test_tests_of_a_function_without_a_name_are_no_tests_of_a_program(raw):
    for row in ({}, {"metadata": "{}"}, {"metadata": "no json"}, {"metadata": "[]"}):
        with pytest.raises(BadArgument, match=r"accepted: .*func_name in a column metadata"):
            read_tests(raw, row)


def test_one_row_has_one_function():
    with pytest.raises(BadArgument, match="f, g; accepted: one function"):
        read_tests([{"fn_name": name, "input": [1], "output": 1} for name in "fg"])
    assert read_tests([{"input": [1], "output": 1}, {"fn_name": "f", "input": [1], "output": 1}]).name == "f"


@pytest.mark.parametrize(
    "checker",
    [
        "def checker(given, output, expected):\n    return output == expected",
        "class C:\n    def check(self, given, output, expected):\n        return output == expected",
        "import sys\n_, output, expected = (open(p).read() for p in sys.argv[1:])\nprint(output == expected)",
        "import sys\ndef main():\n    sys.exit(1)",
        "import sys\nsys.exit(0)",
        "pass",
    ],
)
def test_a_checker_that_could_only_accept_is_refused(checker):
    with pytest.raises(BadArgument, match=r"cannot end with another exit code than 0.*Accepted"):
        read_tests({**PAIRS, "checker": checker})


def test_text_that_a_function_returns_is_no_json():
    assert read_tests({"fn_name": "f", "inputs": [["x"]], "outputs": ["12"]}).outputs == ("12",)


def test_functions_of_primeintellect():
    case = {"type": "function_call", "fn_name": "f", "input": [1], "output": [2]}
    assert read_tests({"test_cases": [case]}).inputs == ((1,),)


def test_asserts_of_humaneval():
    row = {"entry_point": "f", "prompt": "import math\n\n\ndef f(x):\n    '''Add one.'''\n"}
    tests = read_tests("def check(candidate):\n    assert candidate(1) == 2\n", row)
    assert tests.kind == "asserts"
    assert tests.inputs[0].endswith("check(f)\n")
    assert tests.preamble.strip() == "import math"
    assert tests.opening == row["prompt"]


def test_asserts_of_mbpp():
    tests = read_tests(["assert f(1) == 2", "assert f(2) == 3"], {"test_imports": ["import math"]})
    assert (tests.kind, len(tests), tests.preamble) == ("asserts", 2, "import math")


@pytest.mark.parametrize(
    ("pieces", "row", "asked", "unknown"),
    [
        (["assert f(1) == 2", "assert len(f(2)) == math.floor(3.5)"], {}, "f", ()),
        (["assert Stack(1).size == 1"], {}, "Stack", ()),
        (["from solution import f, g as h\nassert f(h) == 2"], {}, "f", ()),
        (["assert f(g(1)) == 2"], {}, None, ()),
        (["assert f(g(1)) == 2"], {"problem": "Double a number."}, None, ()),
        (["assert f(g(1)) == 2"], {"problem": "Write f."}, None, ("g",)),
        (["assert f(1) == WANTED"], {}, "f", ("WANTED",)),
        (["assert f(1) == WANTED"], {"problem": "Write f. Define WANTED too."}, "f", ()),
        (["assert f(g(1)) == 2"], {"entry_point": "f"}, None, ("g",)),
        (["assert f(g(1)) == 2"], {"entry_point": "f", "test_setup_code": "g = abs"}, "f", ()),
        (["def g(x):\n    return x\nassert f(g(1)) == 2"], {"text": "What?"}, "f", ()),
        (["from solution import f\nassert g(f) == 2"], {}, None, ("g",)),
        (["assert close(f, 2)"], {"entry_point": "f"}, None, ("close",)),
        (["assert f(node) == 2"], {"test_setup_code": "node = Node(1)"}, "f", ()),
    ],
)
def test_what_the_tests_call_and_nothing_defines_is_asked_of_the_submission(pieces, row, asked, unknown):
    tests = read_tests(pieces, row)
    assert (tests.asked, tests.unknown) == (asked, unknown)


@pytest.mark.parametrize("write", [str, lambda piece: json.dumps([piece])])
def test_the_column_of_the_tests_mentions_no_names(write):
    column = write("from solution import f\ndef test():\n    assert f(1) == WANTED")
    assert read_tests(column, {"question": "Write f.", "test": column}).unknown == ("WANTED",)


def test_setup_that_uses_the_submission_is_part_of_each_test():
    setup = "import math\nroot = Node(math.pi)"
    tests = read_tests(["assert depth(root) == 1", "assert depth(None) == 0"], {"test_setup_code": setup})
    assert (tests.preamble, tests.classes) == ("import math", ())
    assert tests.inputs == (f"{setup}\nassert depth(root) == 1", f"{setup}\nassert depth(None) == 0")


def test_tests_that_call_only_builtins_are_refused_unless_the_row_says_which_is_the_submissions():
    for row in ({}, {"text": "Find the sum of the common divisors."}):
        with pytest.raises(BadArgument, match=r"only builtins \(sum\).*Accepted: .* in a column entry_point"):
            read_tests(["assert sum(10, 15) == 6"], row)
    assert read_tests(["assert sum(10, 15) == 6"], {"entry_point": "sum"}).name == "sum"
    tests = read_tests(["assert sum(10, 15) == 6"], {"code": "def sum(a, b):\n    return 6"})
    assert (tests.asked, tests.imported) == ("sum", ("sum",))
    assert read_tests(["assert globals()['f'](10, 15) == 6"]).imported == ()


@pytest.mark.parametrize("line", ["import solution", "import os, solution as s", "import solution.sub"])
def test_the_module_solution_itself_is_refused(line):
    with pytest.raises(
        BadArgument, match=r"import the module solution.* Accepted: from solution import NAME"
    ):
        read_tests(f"{line}\nassert solution.f(1) == 2")


def test_the_module_solution_is_the_submission():
    raw = "\ufeff'é'; from solution import (a,\n  b as c); assert a(c)\r\nfrom solution import *\nassert d()"
    assert read_tests([raw[1:]]).inputs == ("'é'; c = b; assert a(c)\r\npass\nassert d()",)


@pytest.mark.parametrize(
    "raw",
    [
        *(
            None,
            7,
            "",
            "no json",
            "[",
            {},
            [],
            [1],
            {"inputs": [], "outputs": []},
            {"inputs": "1", "outputs": "1"},
        ),
        *({"inputs": ["1"], "outputs": []}, {"inputs": [None], "outputs": ["1"]}, b"\xff", "[" * 100_000),
        *({**PAIRS, "compare": "equal"}, {**PAIRS, "public": 3}, {**PAIRS, "public": True}),
        {"fn_name": "f", "inputs": ["not json"], "outputs": ["1"]},
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(raw):
    with pytest.raises(BadArgument, match=r"accepted|needed"):
        read_tests(raw)


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        (["assert f(1) == 1", "assert f(2) =="], {}),
        ("def check(candidate):\n    assert candidate(1) ==", {"entry_point": "f"}),
        (["assert f(1) == 1"], {"test_setup_code": "import math as"}),
        ({**PAIRS, "checker": "def check(given, output, expected)"}, {}),
    ],
)
def test_tests_that_are_no_python_are_refused_and_blame_no_submission(raw, row):
    with pytest.raises(BadArgument, match=r"is no Python, .*line "):
        read_tests(raw, row)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("# assert\nadd(1, 2)", "there are none"),
        ("assert (add(1, 2) == 3, 'a tuple is true')", "there are none"),
        ("x = 'assertEqual'\nassert True", "there are none"),
        ("if __name__ == '__main__':\n    assert add(1, 2) == 3", "never run"),
        ("try:\n    assert add(1, 2) == 3\nexcept AssertionError:\n    print('wrong')", "never run"),
        ("with suppress(AssertionError):\n    assert add(1, 2) == 3", "never run"),
        ("class Case:\n    def test_add(self):\n        assert add(1, 2) == 3", "never run"),
        (
            "class Test:\n    def __init__(self, a):\n        assert a\n    def test(self):\n        pass",
            "never run",
        ),
        ("async def check(f):\n    assert f(1, 2) == 3", "never run"),
        ("if True:\n    def check(f):\n        assert f(1, 2) == 3", "never run"),
        ("def verify(f):\n    assert f(1, 2) == 3", "never run"),
        ("def test_add():\n    print(add(1, 2))  # assert", "there are none"),
        (
            "import unittest\nclass T(unittest.TestCase):\n    def add(self):\n        self.assertTrue(add)",
            "never run",
        ),
        ("async def test_add():\n    assert add(1, 2) == 3", "is async"),
        ("def test_add(capsys):\n    assert add(1, 2) == 3", "needs capsys, and fixtures"),
        (
            f"{MARK}('a', [1])\ndef test_add(a, capsys):\n    assert add(a, 2) == 3",
            "needs capsys, and fixtures",
        ),
        ("def test_add():\n    assert add(1, 2) == 3\n    yield", "has a yield"),
        ("def check(f):\n    assert f(1, 2) == 3\n    yield", "has a yield"),
        ("async def main():\n    assert add(1, 2) == 3\nmain()", r"main\(\) and use no result.* is async"),
        ("async def go():\n    assert add(1, 2) == 3\ndef test():\n    go()", r"go\(\) and use no result"),
        ("def check(got, want):\n    assert got == want", r"check is never called\)"),
        (
            "from unittest import *\nclass T(TestCase):\n    async def test_add(self):\n        self.fail()",
            "is async",
        ),
        ("class Test:\n    def test_add(self, capsys):\n        assert add(1, 2) == 3", "needs capsys"),
        ("@patch('time.sleep')\ndef test_add(mock, capsys):\n    assert add(1, 2) == 3", "needs capsys"),
        ("@patch('time.sleep', 3)\ndef test_add(mock):\n    assert add(1, 2) == 3", "needs mock"),
        ("@given(integers())\ndef test_add(capsys, x):\n    assert add(x, 2) == 3", "needs capsys"),
        (
            f"{MARK}('a', [1], indirect=True)\ndef test_add(a):\n    assert add(a, 2) == 3",
            "fixtures with par",
        ),
        (f"{TEST}@pytest.fixture(autouse=True)\ndef start():\n    add(1, 2)", "fixtures that no test names"),
        (f"{TEST}pytestmark = pytest.mark.usefixtures('start')", "fixtures that no test names"),
        (f"{TEST}@pytest.mark.skipif('True')\ndef test_more():\n    add(1, 2)", "a condition in text"),
        *(
            (f"{TEST}{where}", "(Inner|test_more|More) is in an if, a try or a class")
            for where in (
                "class TestOuter:\n    class TestInner:\n        def test_add(self):\n            add(1, 1)",
                "class TestOuter:\n    if True:\n        def test_more(self):\n            add(1, 1)",
                "if add:\n    def test_more():\n        assert add(1, 1) == 2",
                "try:\n    class More(TestCase):\n        def test(self): self.fail()\nfinally:\n    pass",
                "class Base:\n    one = 1\nfor one in [1]:\n    class TestMore(Base): pass",
                "if __name__ == '__main__':\n    pass\nelse:\n    def test_more():\n        add(1, 1)",
            )
        ),
        (f"{TEST}def setup_module(module):\n    module.a = 1", "setup_module needs module"),
    ],
)
def test_tests_whose_asserts_never_run_are_refused(code, why):
    for raw in (code, [code], ["assert add(1, 2) == 3", code]):
        with pytest.raises(BadArgument, match=rf"{why}.* Accepted: asserts at the top level"):
            read_tests(raw, {"entry_point": "add"})


@pytest.mark.parametrize("raw", [["add(1, 2) == 3"], ["42"], ["print(add(1, 2))"], ["# assert"], [""]])
def test_lists_without_asserts_are_refused(raw):
    with pytest.raises(BadArgument, match="no asserts that run"):
        read_tests(raw)


def test_check_needs_the_entry_point():
    check = "def check(candidate):\n    assert candidate(1, 2) == 3"
    with pytest.raises(BadArgument, match=r"no entry_point.*Accepted: .*entry_point"):
        read_tests(check, {"function": "add"})
    assert read_tests(f"{check}\ncheck(add)").inputs == (f"{check}\ncheck(add)",)


@pytest.mark.parametrize(
    "code",
    [
        "def test(want, *given):\n    assert add(*given) == want\ntest(3, 1, 2)",
        "for a in range(3):\n    assert add(a, 1) == a + 1",
        "try:\n    add(1)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError",
        "try:\n    add(1)\n    assert False\nexcept TypeError:\n    pass",
        "import numpy\nnumpy.testing.assert_allclose(add(1, 2), 3)",
        "import sys\nif add(1, 2) != 3:\n    sys.exit(1)",
        "def equal(a, b):\n    assert a == b\nlist(map(equal, [add(1, 2)], [3]))",
        "class Case:\n    def __init__(self):\n        assert add(1, 2) == 3\nCase()",
        "def test_equal(a, b):\n    assert a == b\nlist(map(test_equal, [add(1, 2)], [3]))",
        "class Test:\n    def test(self):\n        assert add(1, 2) == 3\nTest().test()",
        "if True:\n    def test_add():\n        assert add(1, 2) == 3\n    test_add()",
        "test_cases = [1, 2]\nfor a in test_cases:\n    assert add(a, 1) == a + 1",
        "import asyncio\nasync def main():\n    assert add(1, 2) == 3\nasyncio.run(main())",
    ],
)
def test_asserts_that_run_in_any_way_are_left_as_they_are(code):
    assert read_tests([code]).inputs == (code,)


def test_an_assert_may_be_in_the_code_before_the_tests():
    row = {"test_setup_code": "def equal(a, b):\n    assert a == b"}
    assert read_tests(["equal(f(1), 2)"], row).inputs == ("equal(f(1), 2)",)
    with pytest.raises(BadArgument, match="no asserts that run"):
        read_tests(["equal(f(1), 2)"])


def test_what_runs_tests_is_not_taken_for_tests():
    raw = read_tests("def test_add():\n    assert add(1, 2) == 3").inputs[0]
    assert "run_tests" in raw
    assert not re.search("StopIteration|yield|send|throw", raw)  # the tester looks for them
    assert tester._modules(raw) == {}


def test_a_check_with_further_parameters_is_called_by_the_tests():
    check = "def check(got, want):\n    assert got == want\ncheck(add(1, 2), 3)"
    assert read_tests(check, {"entry_point": "add"}).inputs == (check,)
    check = "def test_case(f, a):\n    assert f(a, 2) == 3\ndef check(f):\n    test_case(f, 1)"
    assert read_tests(check, {"entry_point": "add"}).inputs == (f"{check}\n\ncheck(add)\n",)


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(not add)", "exit()", "os._exit(0)"])
def test_tests_that_exit_are_refused(end):
    with pytest.raises(BadArgument, match=r"which ends them.*__main__"):
        read_tests(f"import os, sys\nassert add(1, 2) == 3\n{end}")
    assert read_tests(f"import os, sys\nassert add(1, 2) == 3\nif __name__ == '__main__':\n    {end}")


@pytest.mark.parametrize(
    "mark", ["pytest.mark.skipif(add(1, 2) != 3, reason='')", "unittest.skipUnless(add, '')"]
)
def test_tests_that_the_submission_could_skip_are_refused(mark):
    code = f"import pytest, unittest\n@{mark}\ndef test_add():\n    assert add(1, 2) == 3"
    with pytest.raises(BadArgument, match="the submission decides whether a test runs"):
        read_tests([code])
    assert read_tests([code.replace("add(1, 2) !=", "1 !=").replace("add, ", "pytest, ")]).isolate


@pytest.mark.parametrize(
    "code",
    [
        "LISTS = hasattr(add(1, 2), '__len__')\n@unittest.skipUnless(LISTS, '')",
        "def go():\n    return add(1, 2) == 3\nLISTS = go()\nOTHER = LISTS\n@unittest.skipIf(OTHER, '')",
        "if add(1, 2) == 3:\n    LISTS = 1\n@unittest.skipIf(LISTS, '')",
        "TOTAL = add(1, 2)\ndef test_more():\n    if TOTAL == 4:\n        pytest.skip('')\n",
        "class T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.n = add(1, 2)\n"
        "    def test(self):\n        if self.n is None: raise unittest.SkipTest\n        self.fail()\n",
    ],
)
def test_tests_that_what_was_asked_before_could_skip_are_refused(code):
    rest = "def test_add():\n    assert add(1, 2) == 3"
    with pytest.raises(BadArgument, match=r"decides? whether (a test runs|one skips itself)"):
        read_tests(f"import pytest, unittest\n{code}\n{rest}")
    assert read_tests(f"import pytest, unittest\n{code.replace('add(', 'min(')}\n{rest}").isolate


WARNS = """
import logging, pytest, unittest, warnings
class T(unittest.TestCase):
    def test_add(self):
        with self.assertWarns(DeprecationWarning):
            add(1, 2)
"""
RECORDS = """
import warnings
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always")
    add(1, 2)
    assert len(w) == 1
"""
PATCH = "from unittest.mock import patch\n"
MOCK = f"""{PATCH}
class Own:
    go = None
@patch('builtins.print')
def test_add(mock):
    add(1, 2)
    MOCK
    assert add(2, 2) == 4
"""


@pytest.mark.parametrize(
    "code",
    [
        WARNS,
        WARNS.replace("assertWarns(DeprecationWarning)", "assertLogs('root')"),
        WARNS.replace("with self.assertWarns(", "with pytest.warns("),
        WARNS.replace("add(1, 2)", "warnings.simplefilter('always')\n            int(add(1, 2))"),
        "import pytest\npytest.warns(DeprecationWarning, add, 1, 2)\nassert add(1, 2) == 3",
        RECORDS,
        f"{RECORDS.replace('    assert len', 'assert len')}\nassert str(w[0].message).lower() == 'old'",
        MOCK.replace("MOCK", "mock.assert_called_once()"),
        MOCK.replace("MOCK", "assert mock.call_args == 3").replace("def", "@patch('time.sleep', None)\ndef"),
        f"{PATCH}with patch('builtins.print') as mock:\n    add(1, 2)\nmock.assert_called()",
    ],
)
def test_tests_that_wait_for_what_stays_in_the_submission_s_process_are_refused(code):
    with pytest.raises(BadArgument, match=r'process: .* Write "isolate": False in the row'):
        read_tests([code], {"entry_point": "add"})
    assert not read_tests([code], {"entry_point": "add", "isolate": False}).isolate


@pytest.mark.parametrize(
    "code",
    [
        WARNS.replace("add(1, 2)", "warnings.warn(str(add(1, 2)))"),
        WARNS.replace("add(1, 2)", "self.add(1, 2)"),
        WARNS.replace("assertWarns(DeprecationWarning)", "assertLogs('root')").replace("1, 2", "getLogger()"),
        RECORDS.replace("    assert len(w) == 1", "assert add(1, 2) == 3"),
        RECORDS.replace("record=True", ""),
        RECORDS.replace("add(1, 2)", "warnings.warn(str(add(1, 2)))"),
        MOCK.replace("MOCK", "assert add(1, 2) == 3"),
        MOCK.replace("MOCK", "assert add(mock, 2) is mock.total"),
        MOCK.replace("MOCK", "mock.assert_called()").replace(
            "patch('builtins.print'", "patch.object(Own, 'go'"
        ),
    ],
)
def test_tests_that_may_warn_themselves_or_only_silence_are_not(code):
    assert read_tests([code], {"entry_point": "add"}).isolate


FILES = """
import os, tempfile, unittest
class T(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "a.txt")
    def test_one(self):
        BODY
"""
READ = "pd.testing.assert_frame_equal"


@pytest.mark.parametrize(
    "code",
    [
        "class B(add):\n    def go(self): return 1\nassert B().go() == 1",
        "def test_add():\n    class B(add):\n        k: int = 1\n    assert B().k == 1",
        "import builtins\nbuiltins.input = lambda *a: '5'\nassert add() == 5",
        "import io, sys\nsys.stdin = io.StringIO('5')\nassert add() == 5",
        "import sys\nsys.argv = ['x', '5']\nassert add() == 5",
        "import io, sys\nf = io.StringIO('5')\nsys.stdin = f\nassert add() == 5",
        "import time\ntime.time = lambda: 5\nassert add() == 5",
        f"{PATCH}with patch('builtins.input', side_effect=['5']):\n    assert add() == 5",
        f"{PATCH}@patch('time.time', return_value=5)\ndef test_add(mock):\n    assert add() == 5",
        f"{PATCH}import time\nwith patch.object(time, 'time', lambda: 5):\n    assert add() == 5",
        f"import pandas as pd\nresult = add()\n{READ}(result, pd.DataFrame())",
        f"import pandas as pd\ntable, plot = add()\n{READ}(table, pd.DataFrame())",
        "import pandas as pd\nassert add()['a'].equals(pd.Series([1]))",
        "import pandas as pd\nwanted = pd.DataFrame()\nassert wanted.equals(add())",
        "add('out.txt')\nassert open('out.txt').read() == 'hi'",
        "import os\nadd('out.txt')\nassert os.path.exists('out.txt')",
        "P = 'a.txt'\nwith open(P, 'w') as f:\n    f.write('')\ndef test_add():\n    assert add(P) == ''",
        "import tempfile\nf = tempfile.NamedTemporaryFile('w')\nf.write('a')\nassert add(f.name) == 'a'",
        "import os, tempfile\ndef test_add():\n    fd, p = tempfile.mkstemp()\n    os.write(fd, b'a')\n"
        "    assert add(path=p) == 'a'",
        FILES.replace(
            "BODY", "open(self.path, 'w').write('a')\n        self.assertEqual(add(self.path), 'a')"
        ),
        FILES.replace("BODY", "add(self.folder)\n        self.assertTrue(os.path.isfile(self.path))"),
    ],
)
def test_tests_that_need_the_submission_s_process_are_refused(code):
    with pytest.raises(BadArgument, match=r'process.* Write "isolate": False in the row'):
        read_tests([code], {"entry_point": "add"})
    assert not read_tests([code], {"entry_point": "add", "isolate": False}).isolate


@pytest.mark.parametrize(
    "code",
    [
        "class B(add): pass\nassert B().go() == 1",
        "class B(add): K = 1\nassert B.K == 1",
        "from typing import *\nclass B(NamedTuple):\n    x: int\nassert add(B(1).x) == 2",
        "from abc import *\nclass B(ABC):\n    def go(self): return 1\nassert add(B().go()) == 2",
        "class B(add):\n    def go(self): return 1\nassert issubclass(B, add)",
        "class B(add):\n    k: int = 1\nassert B().j == 1",
        "import pytest\nwith pytest.raises(TypeError):\n    class B(add):\n        def go(self): pass\n"
        "    B()\nassert add",
        "import sys\nsys.argv = ['x']\nassert add(1) == 2",
        "import io, sys\nsys.stdin = io.StringIO('')\nassert add(1) == 2",
        "import sys\nold = sys.stdin\nsys.stdin = old\nassert add(1) == 2",
        "assert add('a') is None\ntry:\n    open('a')\nexcept FileNotFoundError:\n    pass",
        "class B(dict):\n    def go(self): return add(1)\nassert B().go() == 1",
        "import io, sys\nsys.stdout = io.StringIO()\nadd()\nassert sys.stdout.getvalue() == 'hi'",
        "import time\ntime.sleep = lambda s: None\nassert add() == 5",
        f"{PATCH}with patch('time.sleep', return_value=None):\n    assert add() == 5",
        f"{PATCH}with patch('time.time', return_value=5):\n    now = 5\nassert add(now) == 5",
        f"{PATCH}import os\nwith patch.object(os, 'sep', '/'):\n    assert add() == 5",
        f"import pandas as pd\n{READ}(pd.DataFrame(add()), pd.DataFrame())",
        f"import pandas as pd\ndf = add()\ndf = pd.DataFrame(df)\n{READ}(df, df)",
        "assert add(1).equals(add(2))",
        "open('a.txt', 'w').write('a')\nassert add(open('a.txt').read()) == 'a'",
        "open('a.txt', 'w').write('a')\nassert add('b.txt') == 'b'",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f:\n    assert add(f.name) == 'txt'",
        "import os\nadd('a.txt')\nif os.path.exists('a.txt'):\n    os.remove('a.txt')\nassert add(1) == 1",
        FILES.replace(
            "BODY", "with self.assertRaises(OSError):\n            add(self.path)\n        open(self.path)"
        ),
        f"assert add({' + '.join(['1'] * 3000)}) == 3000",
    ],
)
def test_tests_that_may_do_without_the_submission_s_process_are_not(code):
    assert read_tests([code], {"entry_point": "add"}).isolate


def test_tests_that_end_the_process_are_refused():
    cases = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.fail()\n"
    with pytest.raises(BadArgument, match="__main__"):
        read_tests(f"{cases}unittest.main()")
    with pytest.raises(BadArgument, match="__main__"):
        read_tests(f"{cases}from unittest import main as run\nrun()")
    assert read_tests(f"{cases}if __name__ == '__main__':\n    unittest.main()").kind == "asserts"
    assert read_tests(f"{cases}def main():\n    print(add)\nmain()").kind == "asserts"


def test_the_tests_shown_come_first_then_small_ones():
    tests = CodeTests("program", ("333", "22", "1", "55555", "4444"), ("",) * 5, public=1)
    assert tests.choose_tests(None) == [0, 2, 1, 4, 3]


def test_of_too_many_tests_the_smallest_and_the_largest_are_kept():
    tests = CodeTests("program", tuple("x" * n for n in range(50)), ("",) * 50, public=2)
    chosen = tests.choose_tests(12)
    assert len(set(chosen)) == 12
    assert chosen[:3] == [0, 1, 2]
    assert chosen[-1] == 49
    assert [tests.choose_tests(n) for n in (1, 2, 3)] == [[0], [0, 1], [0, 1, 49]]
    assert CodeTests("program", tuple("abc"), ("",) * 3).choose_tests(1) == [2]


def test_a_result_that_no_submission_may_return_is_refused():
    row = {"fn_name": "f", "inputs": [[1], [2]], "outputs": ["a", "a" * (4 << 20)]}
    with pytest.raises(
        BadArgument, match=r"test 2 expects a result of 4,194,306 bytes .* let a program print it"
    ):
        read_tests(row)
    assert len(read_tests({**row, "accepted_outputs": [["b"], ["b"]]})) == 2
    assert (
        len(read_tests({**row, "checker": "def check(given, output, expected):\n    return output == 'b'"}))
        == 2
    )
    assert len(read_tests({"inputs": ["1"], "outputs": row["outputs"][1:]})) == 1
    assert read_tests({**row, "outputs": [1, 10**5000]}).outputs[1] == 10**5000
