import functools
import json
import math
import operator
import pickle
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.core import EnvWrapper
from gem.errors import BadArgument
from gem.history import HistoryPolicy
from gem.specs import (
    LARGEST,
    Rebuildable,
    Unwritable,
    arguments_of,
    name_of,
    parameters_of,
    restore_value,
    write_value,
)
from gem.testing import EchoEnv
from gem.tools.mcp_tool import MCPTool
from gem.tools.python_code_tool import PythonCodeTool


class Colour(StrEnum):
    RED = "red"


class Level(Enum):
    HIGH = (1, "high")


class Grade(Rebuildable):
    """Takes arguments of every kind."""

    def __init__(self, first, *rest, word="", **more):
        self.all = (first, rest, word, more)


def twice(x):
    return 2 * x


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text().filter(lambda k: k[:1] != "$"), inner)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back_through_json_as_they_were(value):
    assert restore_value(json.loads(json.dumps(write_value(value), allow_nan=False))) == value


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Level.HIGH,
        HistoryPolicy("concat", window=3, system="be brief"),
        Path("a/b"),
        math.inf,
        -(2**70),
        twice,
        operator.add,
        Grade,
        {"fn": [twice, {"level": Level.HIGH}]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_be_imported_or_made_comes_back(value):
    back = restore_value(json.loads(json.dumps(write_value(value), allow_nan=False)))
    assert back == value
    assert type(back) is type(value)


def test_tuples_and_numbers_of_numpy_come_back_as_plain_ones():
    back = restore_value(write_value({"range": (1, 5), "n": np.int64(3), "x": np.float64(0.5)}))
    assert back == {"range": [1, 5], "n": 3, "x": 0.5}
    assert [type(each) for each in back.values()] == [list, int, float]


def test_an_object_that_remembers_its_arguments_is_made_again():
    tool = PythonCodeTool(3.0, keep_error_last_line=True)
    assert write_value(tool) == {
        "$make": "gem.tools.python_code_tool:PythonCodeTool",
        "kwargs": {"timeout": 3.0, "keep_error_last_line": True},
    }
    back = restore_value(write_value(tool))
    assert (back.timeout, back.keep_error_last_line) == (3.0, True)
    env = restore_value(write_value(EnvWrapper(EchoEnv(turns=7))))
    assert (type(env), env.turns) == (EnvWrapper, 7)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda x: x, "function"),
        (functools.partial(twice, 1), "partial"),
        ({1: 2}, "keys"),
        ({"$make": "os:getcwd"}, r"begins with \$"),
        ({1, 2}, "set"),
        (object(), "object"),
        (b"bytes", "bytes"),
        ([0] * (LARGEST + 1), "too large"),
        ("x" * (LARGEST + 1), "too large"),
        (MCPTool("http://user:password@127.0.0.1/"), "password"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nothing_makes_again_is_not_written(value, said):
    with pytest.raises(Unwritable, match=said):
        write_value(value)
    with pytest.raises(Unwritable, match=said):
        write_value([{"deep": value}])


def test_a_value_inside_itself_is_not_written():
    value = []
    value.append(value)
    with pytest.raises(Unwritable, match="too deeply"):
        write_value(value)


def test_a_local_class_is_not_written():
    @dataclass
    class Local:
        x: int = 1

    class Inside(Rebuildable):
        pass

    for value in (Local(), Inside(), Local):
        with pytest.raises(Unwritable, match=r"Local|Inside|type"):
            write_value(value)
    assert name_of(Local) is None


@pytest.mark.parametrize("name", ["os:getcwd", "subprocess:Popen", "builtins:eval", "builtins:list"])
def test_only_what_is_written_is_made(name):
    with pytest.raises(BadArgument, match="accepted: an Env, a tool"):
        restore_value({"$make": name, "args": ["ls"]})


def test_a_name_that_leads_nowhere_says_so():
    with pytest.raises(BadArgument, match=r"no module 'gem\.nowhere'"):
        restore_value({"$callable": "gem.nowhere:fn"})


def test_arguments_are_known_by_name_however_they_were_given():
    assert arguments_of(Grade(1, word="w", extra=2)) == {"first": 1, "word": "w", "extra": 2}
    with pytest.raises(Unwritable, match="Nameless"):
        write_value(Grade(1, 2, 3))
    assert arguments_of(pickle.loads(pickle.dumps(PythonCodeTool(2)))) == {"timeout": 2}
    assert list(parameters_of(Grade)) == ["first", "rest", "word", "more"]
    plain = type("Plain", (Rebuildable,), {})
    assert (parameters_of(plain), arguments_of(plain())) == ({}, {})
