"""What a submission may do with objects of the tests: use them, not look inside."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import re
import sys
import types
from typing import Any

from gem.graders.asserts.peer import Peer
from gem.graders.asserts.values import is_plain

_PRIVATE = re.compile(r"_|(gi|cr|ag|f|tb|co|func)_")

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)
_INSIDES = (types.FrameType, types.CodeType, types.TracebackType, types.ModuleType, types.CellType, Peer)


def is_function(value: Any) -> bool:
    """Return whether a value is a function or a method."""
    return isinstance(value, _FUNCTIONS)


def is_lendable(value: Any) -> bool:
    """Return whether the submission may use an object of the tests; it must not see more through it.

    Allowed are only classes that the tests define: from a builtin one it could make objects in the tests'
    process. Methods of text are not allowed, because formatting can inspect any argument.
    """
    if isinstance(value, type):
        return value.__module__ == "tests"
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, (str, bytes, type)):
        return False
    return not isinstance(value, _INSIDES)


def is_lendable_name(thing: Any, name: Any, *values: Any, reads: bool) -> bool:
    """Return whether the submission may use this attribute of an object of the tests.

    It may not replace functions of the tests, and not read or write what a mock has to say of its calls.
    """
    if type(name) is not str or _PRIVATE.match(name):
        return False
    mocks = sys.modules.get("unittest.mock")
    if mocks is not None and issubclass(type(thing), mocks.NonCallableMock):
        return not hasattr(type(thing).__mro__[1], name) and all(map(is_plain, values))  # [0] is of this mock
    return reads or not (
        callable(getattr(type(thing), name, None)) or callable(getattr(thing, "__dict__", {}).get(name))
    )
