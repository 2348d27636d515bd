"""Each comparison: what it lets through and what it does not."""

import tracemalloc

import pytest

from gem.errors import BadArgument
from gem.graders.compare import COMPARES, check_compare, plain, same_text, same_value

TEXT = [  # comparison, got, wanted, whether it is right
    ("exact", "6\n", "6\n", True),
    ("exact", "6", "6\n", False),
    ("lines", "a b  \nc\n\n", "a b\nc", True),
    ("lines", "a  b\nc", "a b\nc", False),
    ("lines", " a\n", "a\n", False),
    ("lines", "a\n\nb", "a\nb", False),
    ("lines", "a\r\nb\r\n", "a\nb\n", True),
    ("lines", "a\u2028b", "a\nb", False),
    ("lines", "a\x0cb", "a\nb", False),
    ("lines", "a\nb \n\n \n", "a\nb", True),
    ("lines", "\na", "a", False),
    ("lines", " \n", "", True),
    ("unordered", "b\n \n\n\t\na", "a\n\nb\n", True),
    ("unordered", "a b", "a\nb", False),
    ("unordered_tokens", "1 2 3", "1 2", False),
    ("unordered", "a\x1cb", "b\na", False),
    ("tokens", "  a\t b\nc", "a b c\n", True),
    ("tokens", "a bc", "ab c", False),
    ("tokens", "A", "a", False),
    ("tokens", "1.0", "1", False),
    ("tokens", "0.30000000000000004", "0.3", False),
    ("tokens", "", "", True),
    ("floats", "0.30000000000000004 x", "0.3 x", True),
    ("floats", "0.3001", "0.3", False),
    ("floats", "1000000.5", "1000000.0", True),
    ("floats", "1e-3", "0.001", True),
    ("floats", "3", "3.0", True),
    ("floats", "3.0", "3", False),
    ("floats", "4", "3", False),
    ("floats", "nan", "1.5", False),
    ("floats", "nan", "nan", True),
    ("floats", "inf", "1e308", False),
    ("floats", "3", "1e999", False),
    ("floats", "1e999", "2e999", False),
    ("floats", "1.0e999", "10e998", True),
    ("floats", "1e99999999999999999999", "1e999", False),
    ("floats", "1_0.5", "10.5", False),
    ("floats", "0x10", "16.0", False),
    ("floats", "٣.0", "3.0", False),
    ("floats", "1.5 2", "1.5", False),
    ("unordered", "b 2\na  1\n", "a 1\nb 2", True),
    ("unordered", "a 1\na 1\nb 2", "a 1\nb 2\nb 2", False),
    ("unordered", "1 a", "a 1", False),
    ("unordered_tokens", "3 1\n2", "1 2 3", True),
    ("unordered_tokens", "1 1 2", "1 2 2", False),
]


@pytest.mark.parametrize(("compare", "got", "wanted", "right"), TEXT)
def test_outputs_of_programs(compare, got, wanted, right):
    assert same_text(got, wanted, compare) is right


@pytest.mark.parametrize("compare", COMPARES)
@pytest.mark.parametrize("piece", ["a ", "a\n", "\n"])
def test_a_long_wrong_output_is_not_taken_apart(compare, piece):
    output = "b\n" + piece * 500_000
    tracemalloc.start()
    try:
        assert same_text(output, "b c\n", compare) is False
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


VALUES = [
    ("tokens", [1, [2, "a"]], [1, [2, "a"]], True),
    ("tokens", True, 1, False),
    ("tokens", 1, True, False),
    ("tokens", 0, False, False),
    ("tokens", None, None, True),
    ("tokens", None, 0, False),
    ("tokens", "1", 1, False),
    ("tokens", 5.0, 5, True),
    ("tokens", 5, 5.0, True),
    ("tokens", 0.1 + 0.2, 0.3, True),
    ("tokens", 5.0000001, 5, False),
    ("tokens", float("nan"), float("nan"), False),
    ("tokens", float("inf"), float("inf"), True),
    ("tokens", 10**400, 1.5, False),
    ("tokens", 10**30, 10**30 + 1, False),
    ("tokens", {"a": 1.0000000001}, {"a": 1.0}, True),
    ("tokens", {"a": 1, "b": 2}, {"a": 1}, False),
    ("tokens", [1], [1, 2], False),
    ("exact", 5.0, 5, False),
    ("exact", 0.1 + 0.2, 0.3, False),
    ("exact", 0.3, 0.3, True),
    ("unordered", [[2], [1, 1]], [[1, 1], [2]], True),
    ("unordered", [[1], [1]], [[1]], False),
    ("unordered", [[1, 2]], [[2, 1]], False),
    ("unordered", 5, 5, True),
    ("unordered", [1.0, 2], [2, 1], True),
    ("unordered", [1, 0.1 + 0.2], [0.3, 1], True),
    ("unordered", [[1.0, 2], [3, 4]], [[3, 4], [1, 2]], True),
    ("unordered", [0.3, 0.4], [0.3, 0.3], False),
    ("unordered", [0.0, -9e-7], [0.0, 9e-7], True),
    ("unordered", [9e-7, 18e-7], [0.0, 9e-7], True),
    ("unordered", [1, 2.0, 5.0], [1.0, 2, 5.0000001], True),
    ("unordered", [1, 2.0000001, "x"], [2, 1.0, "x"], False),
    ("unordered", [float("nan"), 1.0], [1.0, float("nan")], False),
    ("unordered", [True, 1.0], [1.0, 1.0], False),
    ("unordered", [None, "1", True], [True, None, "1"], True),
    ("unordered", [["a", 0.0], ["a", -9e-7]], [["a", 0.0], ["a", 9e-7]], True),
    ("unordered", [[0.0], [9e-7], [-9e-7]], [[9e-7], [18e-7], [0.0]], True),
    ("unordered", [[0.0], [9e-7], [-9e-7]], [[9e-7], [27e-7], [0.0]], False),
    ("unordered", [{"a": 1.0}, {"a": [1]}], [{"a": [1.0]}, {"a": 1}], True),
    ("unordered", [10**5000, 0.5], [0.5, 10**5000], True),
    ("unordered", [10**5000 + 1, 0.5], [0.5, 10**5000], False),
    ("unordered", [[i / 7] for i in range(2000)], [[i / 7] for i in reversed(range(2000))], True),
    ("unordered", [i / 7 for i in range(5000)], [i / 7 + 1e-9 for i in reversed(range(5000))], True),
    ("tokens", 0.0, float("inf"), False),
    ("tokens", -1e9, float("-inf"), False),
]


@pytest.mark.parametrize(("compare", "got", "wanted", "right"), VALUES)
def test_results_of_functions(compare, got, wanted, right):
    assert same_value(got, wanted, compare) is right


def test_the_tolerance_is_the_callers():
    assert same_text("1.01", "1.0", "floats", 0.1)
    assert not same_text("1.01", "1.0", "floats", 0.001)


def test_plain_data_is_what_json_has():
    assert plain({1: (2, [3])}) == {"1": [2, [3]]}
    with pytest.raises(BadArgument, match="a test holds set"):
        plain([{1}])


def test_an_unknown_comparison_is_refused():
    with pytest.raises(BadArgument, match="accepted: exact, lines"):
        check_compare("token")
