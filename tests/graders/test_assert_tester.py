"""What a submission may do with objects of the tests, without a sandbox between the two."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from gem.graders import assert_tester


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
    assert assert_tester._lendable_name(Thing(), name, reads=True) == read
    assert assert_tester._lendable_name(Thing(), name, 4, reads=False) == written


def test_what_a_mock_has_to_say_of_its_calls_is_not_for_a_submission():
    for reads in (True, False):
        assert assert_tester._lendable_name(Mock(), "anything", reads=reads)
        for name in ("called", "call_args", "assert_called_once", "return_value"):
            assert not assert_tester._lendable_name(Mock(), name, reads=reads)
    assert assert_tester._lendable_name(Mock(), "anything", 3, [], reads=False)
    assert not assert_tester._lendable_name(Mock(), "anything", 3, Thing(), reads=False)


def test_of_classes_a_submission_may_use_those_of_the_tests():
    ours = type("Ours", (), {"__module__": "tests"})
    assert [assert_tester._lendable(each) for each in (ours, int, Thing)] == [True, False, False]
    assert assert_tester._lendable([].append)
    assert not any(map(assert_tester._lendable, ("{}".format, b"".join, int.from_bytes)))
    assert not any(
        map(assert_tester._lendable, (test_of_classes_a_submission_may_use_those_of_the_tests.__code__,))
    )
