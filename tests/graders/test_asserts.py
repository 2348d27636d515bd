"""What a submission may do with objects of the tests, without a sandbox between the two."""

from __future__ import annotations

import ast
import math
import unittest
from collections import Counter
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from gem.graders.asserts import read_tester
from gem.graders.asserts.lending import is_lendable, is_lendable_name
from gem.graders.asserts.values import VALUES, Garbled, find_library_class, make_value


class Thing:
    shared = 1

    def __init__(self):
        self.own = 2
        self.function = len

    def method(self):
        return 3


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("shared", True, True),
        ("own", True, True),
        ("new", True, True),
        ("method", True, False),  # the tests' own functions stay
        ("function", True, False),
        ("_own", False, False),
        ("__class__", False, False),
        ("gi_frame", False, False),  # of a generator: it would show the tests' variables
        (3, False, False),
    ],
)
def test_a_submission_may_use_names_and_replaces_no_function(name, read, written):
    assert is_lendable_name(Thing(), name, reads=True) == read
    assert is_lendable_name(Thing(), name, 4, reads=False) == written


def test_what_a_mock_has_to_say_of_its_calls_is_not_for_a_submission():
    for reads in (True, False):
        assert is_lendable_name(Mock(), "anything", reads=reads)
        for name in ("called", "call_args", "assert_called_once", "return_value"):
            assert not is_lendable_name(Mock(), name, reads=reads)
    assert is_lendable_name(Mock(), "anything", 3, [], reads=False)
    assert not is_lendable_name(Mock(), "anything", 3, Thing(), reads=False)


def test_of_classes_a_submission_may_use_those_of_the_tests():
    ours = type("Ours", (), {"__module__": "tests"})
    assert [is_lendable(each) for each in (ours, int, Thing)] == [True, False, False]
    assert is_lendable([].append)
    assert not any(map(is_lendable, ("{}".format, b"".join, int.from_bytes)))
    assert not any(map(is_lendable, (test_of_classes_a_submission_may_use_those_of_the_tests.__code__,)))


def test_the_tester_is_one_module_of_its_parts():
    """In one module, a name of one part would replace that of another."""
    tree = ast.parse(read_tester())
    modules = {getattr(node, "module", None) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not [name for name in modules if name.startswith("gem")]
    once = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    assigned = [node for node in once if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [target for node in assigned for target in getattr(node, "targets", None) or [node.target]]
    names = Counter(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    names.update(node.name for node in once if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    assert names["Tester"] == names["Server"] == names["BINARY"] == 1
    assert not [name for name, times in names.items() if times > 1]


def test_values_of_the_library_are_made_of_numbers_and_text_alone():
    zone = timezone(timedelta(hours=1), "x")
    values = [
        Decimal("1.5"),
        Fraction(1, 3),
        zone,
        datetime(2020, 1, 2, 3, tzinfo=zone, fold=1),
        range(1, 9, 2),
    ]
    for value in (*values, date(2020, 1, 2), time(3), slice(None, (1, Thing()))):
        module, name = type(value).__module__, type(value).__name__
        assert make_value(module, name, *VALUES[module, name](value)) == value
        if name != "slice":
            for part in (Thing(), type("Int", (int,), {})(3), type("Str", (str,), {})("3"), 1.5, True):
                with pytest.raises(Garbled, match=f"a {name} of what none is made of"):
                    make_value(module, name, part)


def test_values_of_the_library_give_exact_parts_whatever_they_were_made_of():
    number, text = type("Int", (int,), {}), type("Str", (str,), {})
    offset = type("Delta", (timedelta,), {})(hours=number(1))
    zone, place = timezone(offset, text("x")), ZoneInfo(text("Europe/Berlin"))
    values = [
        Fraction(np.int64(3), 4),
        Fraction(number(1), np.int32(3)),
        sum((Fraction(x, 2) for x in np.arange(4)), Fraction(0)),
        zone,
        place,
        datetime(number(2020), 1, number(2), np.int64(3), tzinfo=zone),
        time(number(3), tzinfo=place),
        date(np.int64(2020), 1, 2),
        timedelta(days=number(1)),
        Decimal(text("1.5")),
        range(np.int64(1), number(9), True),
    ]
    for value in values:
        module, name = type(value).__module__, type(value).__name__
        made = make_value(module, name, *VALUES[module, name](value))
        assert (made, str(made)) == (value, str(value))


def test_no_class_of_the_testing_tools_is_found_under_another_module(monkeypatch):
    monkeypatch.setattr(math, "SkipTest", unittest.SkipTest, raising=False)
    assert find_library_class("math", "SkipTest") is find_library_class("unittest.case", "SkipTest") is None
    assert find_library_class("decimal", "Decimal") is Decimal
