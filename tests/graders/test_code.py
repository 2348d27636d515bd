"""Submissions, right, wrong and hostile, judged in the real sandbox."""

import json

import pytest
from code_programs import FUNCTIONS

from gem.errors import BadArgument, NoVerdict
from gem.graders.code import BUDGET, CodeGrader, _Run, assemble_program, slowness, submission
from gem.graders.code_tests import CodeTests, read_tests
from gem.graders.compare import COMPARES
from gem.sandbox.base import Budget

TIGHT = Budget(cpu_s=1.0, wall_s=20.0, memory_mb=256, output_kb=64)

DOUBLE = {"inputs": ["1\n", "2\n", "40\n"], "outputs": ["2\n", "4\n", "80\n"], "public": 1}
PRINT_DOUBLE = "print(2 * int(input()))"
ADD = {"fn_name": "add", "inputs": [[1, 2], [3, 4], [-1, 1]], "outputs": [3, 7, 0]}


@pytest.fixture(scope="module")
def judge(sandbox):
    def judge(code, raw, row=None, **options):
        return CodeGrader(sandbox, **{"budget": TIGHT, **options}).judge(code, read_tests(raw, row))

    return judge


def verdict(score):
    assert score.correct == (score.value == 1.0)
    return score.info["verdict"]


# -- programs


@pytest.mark.parametrize(
    "code",
    [
        PRINT_DOUBLE,
        f"{PRINT_DOUBLE}\nimport sys\nsys.exit(0)",
        f"import threading\nt = threading.Thread(target=lambda: {PRINT_DOUBLE})\nt.start()\nt.join()",
        "import sys\nprint(*(2 * int(line) for line in sys.stdin.buffer.readlines()))",
        "import os\nos.write(1, b'%d\\n' % (2 * int(os.read(0, 99))))",
        "def main():\n    print(2 * int(input()))\nif __name__ == '__main__':\n    main()",
        "# sys.exit(0) and os.system('rm') are words here\nprint(2 * int(open(0).read()))",
    ],
)
def test_right_programs_are_right(judge, code):
    score = judge(code, DOUBLE)
    assert (score.value, score.correct, verdict(score), score.why) == (1.0, True, "AC", "")
    assert (score.info["passed"], score.info["run"], score.info["tests"]) == (3, 3, 3)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("print(2 * int(input()) + (1 if 0 else 0) if 1 else 0, 'x')", "WA"),
        ("print(", "CE"),
        ("print('\0')", "CE"),
        ("print(int(input()) // 0)", "RE"),
        ("import sys\nprint(2 * int(input()))\nsys.exit(3)", "RE"),
        ("import os\nos.abort()", "RE"),
        ("while True:\n    pass", "TLE"),
        ("x = [0] * 10**9", "MLE"),
        ("while True:\n    print('x' * 1000)", "OLE"),
        ("", "WA"),
    ],
)
def test_verdicts_are_told_apart(judge, code, wanted):
    score = judge(code, DOUBLE)
    assert verdict(score) == wanted
    assert score.value == 0.0
    assert score.why


def test_a_wrong_answer_stops_at_its_first_test_and_partial_runs_them_all(judge):
    wrong = "n = int(input())\nprint(2 * n if n != 2 else 5)"
    score = judge(wrong, DOUBLE)
    assert (score.info["run"], score.info["passed"], score.why) == (2, 1, "wrong answer on test 2 of 3")
    score = judge(wrong, DOUBLE, partial=True)
    assert (score.value, score.correct, score.info["run"]) == (pytest.approx(2 / 3), False, 3)


def test_only_a_test_that_may_be_shown_is_shown(judge):
    shown = judge("print(7)", DOUBLE).info["public"]
    assert (shown["given"], shown["wanted"], shown["got"]) == ("1\n", "2\n", "7\n")
    assert "public" not in judge("print(2)", DOUBLE).info


def test_tests_do_not_see_one_another(judge):
    count = "import os\nn = len(os.listdir('.'))\nopen(f'left{n}', 'w').close()\nprint(n)"
    assert judge(count, {"inputs": ["", "", ""], "outputs": ["0", "0", "0"]}).correct


def test_at_most_so_many_tests_are_run(judge):
    many = {"inputs": [f"{n}\n" for n in range(30)], "outputs": [f"{2 * n}\n" for n in range(30)]}
    info = judge(PRINT_DOUBLE, many, max_tests=4).info
    assert (info["run"], info["tests"]) == (4, 30)


def test_bytes_that_are_no_text_and_surrogates_are_answers(judge):
    assert verdict(judge("import sys\nsys.stdout.buffer.write(b'\\xff')", DOUBLE)) == "WA"
    assert not judge("print('\ud800')", DOUBLE).correct


# -- functions


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "class Solution:\n    def add(self, a, b):\n        return a + b",
        "add = lambda a, b: a + b",
        "import threading\ndef add(a, b):\n    return a + b\nif __name__ == '__main__':\n    print(1 / 0)",
    ],
)
def test_right_functions_are_right(judge, code):
    assert verdict(judge(code, ADD)) == "AC"


ALWAYS_EQUAL = """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
class Anything:
    def __eq__(self, other): return True
"""


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return 0",
        "def add(a, b):\n    return '3'",
        "def add(a):\n    return a",
        "def other(a, b):\n    return a + b",
        f"{ALWAYS_EQUAL}\ndef add(a, b):\n    return Any(99)",
        f"{ALWAYS_EQUAL}\ndef add(a, b):\n    return Anything()",
        f"{ALWAYS_EQUAL}\ndef add(a, b):\n    return [Anything()]",
        "import sys\ndef add(a, b):\n    sys.exit(0)",
        "import os\ndef add(a, b):\n    os._exit(0)",
        "import os\nos._exit(0)",
        "import json\njson.dumps = lambda *a, **k: '3'\ndef add(a, b):\n    return object()",
        "import builtins\nbuiltins.type = lambda x: int\ndef add(a, b):\n    return None",
        "def add(a, b):\n    return float('nan')",
        "def add(a, b):\n    print(a + b)",
        "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    ],
)
def test_wrong_functions_are_wrong_whatever_they_pretend(judge, code):
    score = judge(code, ADD)
    assert score.value == 0.0
    assert verdict(score) in ("WA", "RE")


def test_a_function_that_apps_wraps_in_a_list(judge):
    raw = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2], [4]]}
    assert judge("def f(n):\n    return 2 * n", raw).correct
    assert judge("def f(n):\n    return [2 * n]", raw).correct
    assert not judge("def f(n):\n    return [[2 * n]]", raw).correct


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_longer_than_python_prints_are_compared(judge, sign):
    raw = {"fn_name": "f", "inputs": [[6000]], "outputs": [sign * 10**6000 + 7]}
    assert verdict(judge(f"def f(n):\n    return {sign} * 10**n + 7", raw)) == "AC"
    assert verdict(judge(f"def f(n):\n    return {sign} * 10**n + 8", raw)) == "WA"
    assert verdict(judge("def f(n):\n    return [10**100001]", raw)) == "WA"


@pytest.mark.parametrize(
    "value",
    ["{n}", "(n for n in [1])", "Anything()", "[Anything()]", "{(1,): 1}", "{None}", "{1: 0, '1': 1}"],
)
def test_a_result_that_is_no_plain_data_is_wrong(judge, value):
    raw = {"fn_name": "f", "inputs": [[1]], "outputs": [[1]]}
    assert verdict(judge(f"{ALWAYS_EQUAL}\ndef f(n):\n    return {value}", raw)) == "WA"


# -- comparisons of a task, and checkers


def test_integers_in_tests_that_are_text_may_have_any_length(judge):
    digits = "9" * 5000
    call = f'{{"fn_name": "f", "inputs": [[{digits}]], "outputs": [[{digits}, 1.5]], "compare": "unordered"}}'
    assert judge("def f(x): return [1.5, x]", call).correct
    assert not judge("def f(x): return [1.5, x - 1]", call).correct
    assert judge("print(input())", f'{{"inputs": [{digits}], "outputs": [{digits}]}}').correct


def test_a_dictionary_may_have_any_key_of_json(judge):
    raw = {"fn_name": "f", "inputs": [[1]], "outputs": [{None: 1, True: 2, 1.5: 3}]}
    assert judge("def f(x): return {None: 1, True: 2, 1.5: 3}", raw).correct
    assert not judge("def f(x): return {None: 1, False: 2, 1.5: 3}", raw).correct


def test_a_task_says_how_it_is_compared(judge):
    raw = {"inputs": [""], "outputs": ["0.3333333333 5"], "compare": "floats"}
    assert judge("print(1 / 3, 5)", raw).correct
    assert not judge("print(0.34, 5)", raw).correct
    assert not judge("print(1 / 3, 5.0)", raw).correct
    assert judge(
        "print('b', 'a')", {"inputs": [""], "outputs": ["a b"], "compare": "unordered_tokens"}
    ).correct


FACTOR = {"inputs": ["12\n", "35\n"], "outputs": ["2\n", "5\n"]}
CHECK = """
def check(given, output, expected):
    return 1 < int(output) < int(given) and int(given) % int(output) == 0
"""
PROGRAM = """
import sys
given, output, expected = (open(path).read() for path in sys.argv[1:])
sys.exit(0 if 1 < int(output) < int(given) and int(given) % int(output) == 0 else 1)
"""


def divides(given, output, expected):
    return 1 < int(output) < int(given) and int(given) % int(output) == 0


def test_each_test_may_have_several_right_outputs(judge):
    raw = {"inputs": ["12\n", "35\n"], "outputs": ["2\n", "5\n"], "accepted_outputs": [["3", "6"], ["7"]]}
    largest = "n = int(input())\nprint(max(d for d in range(2, n) if n % d == 0))"
    assert judge(largest, raw).correct
    wrong = judge("print(6)", raw)
    assert (verdict(wrong), wrong.info["passed"]) == ("WA", 1)
    listed = [{"input": "12\n", "output": "2\n", "accepted_outputs": ["6"]}, {"input": "35\n", "output": "7"}]
    assert judge(largest, listed).correct
    both = {"fn_name": "f", "inputs": [[1]], "outputs": [[1]], "accepted_outputs": [[[2, 1], [1, 2]]]}
    assert judge("def f(n):\n    return n, 2", both).correct
    assert judge("def f(n):\n    return 2, 2", both).info["verdict"] == "WA"


@pytest.mark.parametrize("accepted", [[["3"]], ["3", "7"], 7, [["3"], {"7": 1}]])
def test_further_outputs_that_do_not_fit_the_tests_are_refused(accepted):
    with pytest.raises(BadArgument, match="further right outputs"):
        read_tests({**FACTOR, "accepted_outputs": accepted})


def test_a_function_of_the_authors_own_may_be_the_checker(judge):
    assert judge("print('no number')", {**FACTOR, "checker": divides}).info["verdict"] == "WA"
    with pytest.raises(NoVerdict, match="checker fails"):
        judge("print(2)", {**FACTOR, "checker": lambda given, output, expected: "yes"})
    largest = "n = int(input())\nprint(max(d for d in range(2, n) if n % d == 0))"
    score = CodeGrader(checker=divides)(f"```python\n{largest}\n```", FACTOR)
    assert (score.correct, score.info["compare"]) == (True, "checker")
    for wrong in (7, ["def check"], "def check(given:", lambda output: True):
        with pytest.raises(BadArgument, match="checker"):
            CodeGrader(checker=wrong)
        with pytest.raises(BadArgument, match="checker"):
            read_tests({**FACTOR, "checker": wrong})


@pytest.mark.parametrize("checker", [CHECK, PROGRAM, divides])
def test_a_checker_decides(judge, checker):
    least = "n = int(input())\nprint(max(d for d in range(2, n) if n % d == 0))"
    score = judge(least, {**FACTOR, "checker": checker})
    assert (score.correct, score.info["compare"]) == (True, "checker")
    wrong = judge("print(5)", {**FACTOR, "checker": checker})
    assert (wrong.correct, wrong.why) == (False, "wrong answer on test 1 of 2")


SAME = "output.strip() == expected.strip()"


@pytest.mark.parametrize(
    "checker",
    [
        f"def check (given, output, expected):\n    return {SAME}",
        f"async def check(given, output, expected):\n    return {SAME}",
        f"check = lambda given, output, expected: {SAME}",
        f"def main():\n    given, output, expected = (open(p).read() for p in __import__('sys').argv[1:])\n"
        f"    assert {SAME}\nif __name__ == '__main__':\n    main()",
        "import sys\ngiven, output, expected = (open(p).read() for p in sys.argv[1:])\n"
        f"check = {SAME}\nsys.exit(not check)",
    ],
)
def test_a_checker_decides_however_it_is_spelt(judge, checker):
    raw = {"inputs": [""], "outputs": ["1"], "checker": checker}
    assert [verdict(judge(f"print({n})", raw)) for n in (1, 2)] == ["AC", "WA"]


@pytest.mark.parametrize("checker", [CHECK, PROGRAM])
def test_output_that_a_checker_cannot_read_is_wrong(judge, checker):
    assert verdict(judge("print('no number')", {**FACTOR, "checker": checker})) == "WA"


@pytest.mark.parametrize(
    ("checker", "why"),
    [
        ("def check(given, output, expected):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def check(given, output, expected):\n    return 1", "it returned '1', no bool"),
        ("raise SystemExit(3)", "exit code 3"),
        (lambda given, output, expected: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_checker_that_fails_on_the_wanted_output_too_gives_no_verdict(judge, checker, why):
    with pytest.raises(NoVerdict, match=f"checker fails on the wanted output too: .*{why}"):
        judge("print(2)", {**FACTOR, "checker": checker})


def test_a_checker_of_functions_gets_plain_data(judge):
    checker = "def check(arguments, result, expected):\n    return sorted(result) == sorted(expected)"
    raw = {"fn_name": "f", "inputs": [[[2, 1]]], "outputs": [[1, 2]], "checker": checker}
    assert judge("def f(x):\n    return x", raw).correct
    assert not judge("def f(x):\n    return x[:1]", raw).correct


# -- asserts

ROW = {"entry_point": "f", "prompt": 'import math\n\n\ndef f(x):\n    """Add one, in a list too."""\n'}
ASSERTS = """
def check(candidate):
    assert candidate(1) == 2
    assert abs(candidate(2) - 3) < 1e-9
    assert candidate([1]) == [2]
    assert candidate((4,)) == (5,)
    assert math.isnan(candidate(math.nan))
"""
RIGHT = "def f(x):\n    return type(x)(map(f, x)) if isinstance(x, (list, tuple)) else x + 1\n"


@pytest.mark.parametrize(
    "code",
    [
        RIGHT,
        f"import threading\n{RIGHT}",
        f"from __future__ import annotations\n{RIGHT}",
        ROW["prompt"] + RIGHT.split("\n", 1)[1],
        RIGHT.split("\n", 1)[1],
    ],
)
def test_right_answers_to_asserts(judge, code):
    score = judge(code, ASSERTS, ROW)
    assert verdict(score) == "AC", score.info
    assert score.info["isolated"]


def test_a_right_answer_that_ends_its_process_before_the_asserts(judge):
    assert verdict(judge(f"{RIGHT}\nimport sys\nsys.exit(0)", ASSERTS, ROW)) == "AC"


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (f"{RIGHT}x = (", "CE"),
        ("def f(x):\n    pass", "WA"),
        ("def g(x):\n    pass", "WA"),
        ("import os\ndef f(x):\n    os._exit(0)", "RE"),
        ("import os\nos._exit(0)\ndef f(x):\n    pass", "RE"),
        ("import sys\ndef f(x):\n    sys.exit(0)", "RE"),
        (f"{ALWAYS_EQUAL}\ndef f(x):\n    return Any(7)", "WA"),
        (f"{ALWAYS_EQUAL}\ndef f(x):\n    return Anything()", "WA"),
        ("def abs(x):\n    return 0\ndef f(x):\n    return 2 if x == 1 else 99", "WA"),
        ("import builtins\nbuiltins.abs = lambda x: 0\ndef f(x):\n    return 2 if x == 1 else 99", "WA"),
        ("def check(candidate):\n    pass\ndef f(x):\n    pass", "WA"),
        ('print(\'{"results": [["OK", ""]]}\', flush=True)\nimport os\ndef f(x):\n    os._exit(0)', "RE"),
        ("def f(x):\n    raise AssertionError", "RE"),
        ("def f(x):\n    return f(x)", "RE"),
        ("def f(x):\n    while True:\n        pass", "TLE"),
        ("def f(x):\n    return [0] * 10**9", "MLE"),
        (
            "import os\nfor fd in range(64):\n    try:\n        os.write(fd, bytes(7) + b'\\x02{}')\n"
            "    except OSError:\n        pass\ndef f(x):\n    pass",
            "RE",
        ),
        (
            "import os, json\nforged = json.dumps({'failed': 'OK', 'why': ''}).encode()\n"
            "for fd in range(64):\n    try:\n        os.write(fd, len(forged).to_bytes(8, 'big') + forged)\n"
            "    except OSError:\n        pass\ndef f(x):\n    pass",
            "RE",
        ),
    ],
)  # fmt: skip
def test_wrong_answers_to_asserts_whatever_they_pretend(judge, code, wanted):
    score = judge(code, ASSERTS, ROW)
    assert (verdict(score), score.value) == (wanted, 0.0), score.info


WRITES_ITS_VALUE = """
import os
def f(x):
    for fd in range(3, 64):
        try: os.write(fd, ({value}).encode())
        except OSError: pass
    os._exit(0)
"""


@pytest.mark.parametrize("compare", COMPARES)
@pytest.mark.parametrize(
    "value",
    [
        "'[' * 700 + ']' * 700",
        "'[1, ' + '[' * 900 + ']' * 900 + ']'",
        "'[' + '{\"a\":' * 400 + '1' + '}' * 400 + ', 2]'",
        "'[NaN, 1e999]'",
        "'[' + '9' * 4300 + ', 2]'",
        """'["' + chr(92) + 'ud800", 2]'""",
    ],
)
def test_what_a_submission_writes_itself_is_wrong_however_it_is_compared(judge, value, compare):
    """Nested too deep to be compared, and other values that no function returns."""
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": [[[7], 1]], "compare": compare, "public": 1}
    score = judge(WRITES_ITS_VALUE.format(value=value), tests)
    assert (verdict(score), score.value) == ("WA", 0.0), score
    score.info["public"].get("got", "").encode()  # can be shown


def test_a_lone_surrogate_can_be_shown(judge):
    tests = {"fn_name": "f", "inputs": [[1]], "outputs": ["7"], "public": 1}
    score = judge("def f(x):\n    return '\\ud800'", tests)
    assert (verdict(score), score.info["public"]["got"]) == ("WA", "?")


def test_a_wanted_value_that_cannot_be_compared_is_no_loss():
    deep = json.loads("[" * 900 + "]" * 900)
    run = _Run(
        None, CodeTests("function", ([1],), ([deep, 1],), "f", compare="unordered"), BUDGET, 0, False, [0]
    )
    with pytest.raises(RecursionError):
        run._right(0, [1, 2])


def test_a_submission_cannot_read_the_asserts(judge):
    spy = """
import gc, glob, os, sys
word = ' '.join(['assert', 'candidate'])
seen = []
for path in [path for name in ('mem', 'fd/*', 'environ') for path in glob.glob(f'/proc/[0-9]*/{name}')]:
    if path.split('/')[2] != str(os.getpid()):
        try:
            open(path, 'rb').close()
            seen.append(path)
        except OSError:
            pass
frame = sys._getframe()
while frame:
    seen += [v for v in frame.f_locals.values() if isinstance(v, str) and word in v and v != word]
    frame = frame.f_back
for thing in gc.get_objects():
    if isinstance(thing, (dict, list, tuple)):
        seen += [v for v in (thing.values() if isinstance(thing, dict) else thing)
                 if isinstance(v, str) and word in v and v != word]
def f(x):
    raise ValueError(f'saw {seen}')
"""
    assert judge(spy, ASSERTS, ROW).info["verdict"] == "RE"
    raw = """
def check(candidate):
    try:
        assert candidate(1)
    except ValueError as error:
        assert str(error) == 'saw []', str(error)
"""
    score = judge(spy, raw, ROW)
    assert score.correct, score.info


def test_what_a_function_does_to_its_arguments_is_seen(judge):
    raw = "def check(f):\n    xs = [3, 1, 2]\n    assert f(xs) is None\n    assert xs == [1, 2, 3]"
    assert judge("def f(xs):\n    xs.sort()", raw, ROW).correct


def test_a_list_of_asserts_scores_in_part(judge):
    raw = ["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9"]
    score = judge("def f(n):\n    return 2 * n if n < 3 else 9", raw, partial=True)
    assert (score.value, score.info["passed"], score.info["run"]) == (pytest.approx(2 / 3), 2, 3)


def test_tests_that_need_more_than_plain_data_can_ask_for_the_submissions_process(judge):
    raw = ["queue = Queue()\nqueue.push(3)\nassert queue.items == [3]"]
    code = """
class Queue:
    def __init__(self):
        self.items = []
    def push(self, x):
        self.items.append(x)
"""
    assert judge(code, raw).correct
    score = judge(code, raw, {"isolate": False})
    assert (verdict(score), score.info["isolated"]) == ("AC", False)
    assert verdict(judge(code.replace("append(x)", "append(2)"), raw, {"isolate": False})) == "WA"
    for escape in ("sys.exit(0)", "os._exit(0)"):
        fleeing = code.replace("self.items = []", f"import os, sys; {escape}")
        assert verdict(judge(fleeing, raw, {"isolate": False})) == "RE"
    for fd in range(3, 64):  # a word of its own, not any word, says that the asserts came to their end
        code += f"\ntry:\n    __import__('os').write({fd}, b'1')\nexcept OSError:\n    pass"
    assert verdict(judge(f"{code}\n__import__('os')._exit(0)", raw, {"isolate": False})) == "RE"


CASES = """
import unittest

class TestCases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = 1

    def setUp(self):
        self.two = 2

    def test_sum(self):
        with self.subTest("positive"):
            self.assertEqual(add(self.one, self.two), 3)
        self.assertAlmostEqual(add(0.1, 0.2), 0.3)
        self.assertRaises(TypeError, add, 1, None)

    @unittest.skip("not now")
    def test_left_out(self):
        self.fail()

    def tearDown(self):
        self.assertIsNone(add([1], [2]).clear())

if __name__ == "__main__":
    unittest.main()
"""


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("raw", [CASES, [CASES], FUNCTIONS])
def test_the_cases_of_unittest_and_the_functions_of_pytest_are_run(judge, raw, isolate):
    row = {"entry_point": "add", "isolate": isolate}
    assert judge("def add(a, b):\n    return a + b", raw, row).correct
    for body, wanted in (
        ("return a - b if type(a) is int else a + b", "WA"),
        ("return a + b if type(a) is not list else ()", "RE" if raw is not FUNCTIONS else "WA"),
        ("return a + (b or 0)", "WA"),
        ("import sys; sys.exit(0)", "RE"),
        ("import os; os._exit(0)", "RE"),
        ("import unittest; raise unittest.SkipTest", "RE"),
        ("from unittest import case; raise case._ShouldStop", "RE"),
    ):
        score = judge(f"def add(a, b):\n    {body}", raw, row)
        assert (verdict(score), score.value) == (wanted, 0.0), (body, score)
    assert verdict(judge("print('no function')", raw, row)) == "RE"


def test_parameters_of_pytest_are_tried_one_after_another(judge):
    raw = """
import pytest

@pytest.mark.parametrize("a, b, total", [(1, 2, 3), pytest.param(2, 2, 4)])
@pytest.mark.parametrize("times", [1, 5])
def test_add(a, b, total, times):
    assert add(a * times, b * times) == total * times
"""
    assert verdict(judge("def add(a, b):\n    return a + b", raw)) == "AC"
    assert verdict(judge("def add(a, b):\n    return a + b if a < 10 else 0", raw)) == "WA"


def test_a_submission_cannot_hide_what_unittest_asserts_in_a_callback(judge):
    raw = """
import unittest

class TestCases(unittest.TestCase):
    def test_callback(self):
        def see(value):
            self.assertEqual(value, 3)
        call(see)
"""
    hides = "def call(see):\n    try:\n        see(4)\n    except AssertionError:\n        pass"
    assert verdict(judge("def call(see):\n    see(3)", raw)) == "AC"
    assert verdict(judge(hides, raw)) == "WA"


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        ("import no_such_module\nassert add(1, 2) == 3", {}),
        ("import no_such_module\nassert add(1, 2) == 3", {"isolate": False}),
        ("def test_add():\n    from no_such_module import a\n    assert add(1, 2) == a", {}),
        ("assert add(1, 2) == 3", {"test_imports": ["import no_such_module"]}),
        ("assert add(1, 2) == 3", {"test_imports": ["import math", "math.no_such_name"]}),
        ("assert add(1, WANTED)", {"test_setup_code": "class WANTED:\n    x = 1 / 0"}),
        ("assert add(1, 2) == WANTED", {"entry_point": "add"}),
        ("assert add(1, 2) == WANTED", {}),
        ("data = open(f'{1}.csv').read()\nassert add(1, 2) == 3", {}),
        ("assert add(1, open('no_such_file').read()) == 3", {}),
        ("x = 1 / 0\nassert add(1, 2) == 3", {}),
    ],
)
def test_tests_that_fail_by_themselves_give_no_verdict(judge, raw, row):
    with pytest.raises(NoVerdict, match=r"the task's (own code fails|tests fail by themselves): .*Error"):
        judge("def add(a, b):\n    return a + b", [raw], row)


@pytest.mark.parametrize(
    "raw",
    [
        "assert add(1, 2) == 3\nassert WANTED",
        "assert add(1, 2) == 3\nopen('no_such_file')",
        "assert add(1, 2) == 3\nimport no_such_module",
        "assert globals()['add'](1, 2) == 3",
    ],
)
@pytest.mark.parametrize(
    "code",
    [
        "print()",
        "add = object()",
        "add = 5",
        "import no_such_module",
        "raise ModuleNotFoundError('no_such_module')",
        "def add(a, b):\n    import no_such_module",
        "def add(a, b):\n    return WANTED",
        "def add(a, b):\n    raise NameError('no', name='WANTED')",
        "def add(a, b):\n    raise FileNotFoundError(2, 'no', 'no_such_file')",
        "class E(ImportError): pass\ndef add(a, b):\n    raise E",
    ],
)
def test_a_submission_cannot_make_its_own_error_one_of_the_tests(judge, code, raw):
    assert verdict(judge(code, [raw], {"entry_point": "add"} if "WANTED" in raw else {})) == "RE"


@pytest.mark.parametrize("message", ["WANTED", "open('no_such_file')", "f'{add(1, 2).real}'", "add(1)"])
def test_an_assert_that_fails_is_wrong_whatever_its_message_does(judge, message):
    raw = [f"def test_add():\n    got = add(1, 2)\n    assert got == 3, {message}"]
    assert verdict(judge("def add(a, b): return a + b", raw, {"entry_point": "add"})) == "AC"
    assert verdict(judge("def add(a, b): return a - b", raw, {"entry_point": "add"})) == "WA"


@pytest.mark.parametrize("isolate", [True, False])
def test_a_submission_is_the_module_solution(judge, isolate):
    raw = "from solution import add as plus\n\ndef test_add():\n    assert plus(1, 2) == 3"
    wanted = {"a + b": "AC", "a - b": "WA"}
    for code, verdict_of in wanted.items():
        assert verdict(judge(f"def add(a, b): return {code}", raw, {"isolate": isolate})) == verdict_of
    assert verdict(judge("print()", raw, {"isolate": isolate})) == "RE"


@pytest.mark.parametrize("isolate", [True, False])
def test_the_setup_of_tests_may_use_the_submission(judge, isolate):
    code = "class Node:\n    def __init__(self, x):\n        self.x, self.next = x, None\n"
    code += "def length(node):\n    return 0 if node is None else 1 + length(node.next)"
    row = {"test_setup_code": "root = Node(1)\nroot.next = Node(2)", "isolate": isolate}
    assert verdict(judge(code, ["assert length(root) == 2"], row)) == "AC"
    assert verdict(judge(code, ["assert length(root) == 3"], row)) == "WA"
    assert verdict(judge(code.replace("Node", "Nod"), ["assert length(root) == 2"], row)) == "RE"


def test_modules_that_tests_use_without_an_import_are_there(judge):
    assert verdict(judge("def f(x): return x", ["assert f(3) == math.floor(3.5)"])) == "AC"


def test_an_async_function_is_run_to_its_end(judge):
    for code in (
        "async def add(a, b):\n    return a + b",
        "import asyncio\nasync def add(a, b):\n    await asyncio.sleep(0)\n    return a + b",
    ):
        assert verdict(judge(code, ADD)) == "AC"
    assert verdict(judge("async def add(a, b):\n    return a - b", ADD)) == "WA"
    assert verdict(judge("async def add(a, b):\n    raise ValueError", ADD)) == "RE"


# -- answers


def test_the_submission_is_the_last_block_of_python():
    answer = "First\n```python\na\n```\nthen\n```py\nb\n```\nwhich prints\n```\n7\n```\n"
    assert submission(answer) == "b"
    assert submission("```\nc\n```") == "c"
    assert submission("no code") is None
    assert submission("```python\nunclosed") is None


def test_a_block_in_thinking_is_no_submission():
    block = "```python\nprint('</think>')\n```"
    assert submission(f"<think>Perhaps\n{block}\nno.</think>\nI do not know.") is None
    assert submission("<think>Perhaps\n```python\n1\n```\nBut") is None
    assert submission(f"<think>hm</think>\n{block}\nThat is it.") == "print('</think>')"
    assert submission(f"<think>\n{block} or</THINK> {block}\nThat is it.") == "print('</think>')"


def test_an_answer_without_code_needs_no_sandbox():
    score = CodeGrader()("I do not know.", DOUBLE)
    assert (score.value, score.parsed, score.info["verdict"]) == (0.0, None, "NONE")


def test_a_continuation_follows_the_prompt_and_a_whole_function_its_imports():
    tests = read_tests(ASSERTS, ROW)
    assert assemble_program("    return x + 1\n", tests).startswith(ROW["prompt"])
    whole = assemble_program("from __future__ import annotations\ndef f(x):\n    return x + 1\n", tests)
    assert whole.startswith("from __future__ import annotations\n")
    assert "Add one" not in whole
    assert "import math" in whole


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(BadArgument, match="max_tests"):
        CodeGrader(max_tests=0)
    with pytest.raises(BadArgument, match="compare"):
        CodeGrader(compare="same")


def test_the_time_limit_is_stretched_on_a_slow_machine_never_shortened():
    assert 1.0 <= slowness() <= 4.0
