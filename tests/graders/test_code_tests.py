"""Tests are read in the forms in which data sets hold them."""

import json

import pytest

from gem.errors import BadArgument
from gem.graders.code_tests import CodeTests, read_tests

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
