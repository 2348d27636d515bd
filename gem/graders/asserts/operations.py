"""The operations that one process asks the other to perform on an object."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from typing import Any


def _leave(thing: Any, error: Any, name: str) -> Any:
    given = (None, None, None) if error is None else (type(error), error, error.__traceback__)
    return getattr(type(thing), name)(thing, *given)


_loop: Any = None


def _await(thing: Any) -> Any:
    """Run an awaitable to its end, in a loop that is kept."""
    global _loop
    import asyncio

    if _loop is None:
        _loop = asyncio.new_event_loop()

    async def whole() -> Any:
        return await thing

    outer = asyncio._get_running_loop()
    if outer is None:
        return _loop.run_until_complete(whole())
    inner = asyncio.new_event_loop()  # of an awaitable that the other process awaits inside of one of this
    asyncio._set_running_loop(None)
    try:
        return inner.run_until_complete(whole())
    finally:
        asyncio._set_running_loop(outer)
        inner.close()


BINARY = {
    name: getattr(operator, f"__{name}__")
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
        *("lshift", "rshift"),
    )
} | {"pow": pow, "divmod": divmod}
INPLACE = {f"i{name}": getattr(operator, f"__i{name}__") for name in BINARY if name != "divmod"}
ORDER = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("neg", "pos", "abs", "invert", "index")},
    **{"bool": bool, "len": len, "iter": iter, "next": next, "repr": repr, "str": str, "hash": hash},
    **{"bytes": bytes, "int": int, "float": float, "complex": complex, "reversed": reversed, "dir": dir},
    **{"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc},
    **{"fspath": os.fspath, "length_hint": operator.length_hint},
    "missing": lambda thing, key: type(thing).__missing__(thing, key),
    "enter": lambda thing: type(thing).__enter__(thing),
    "aenter": lambda thing: type(thing).__aenter__(thing),
    "aiter": lambda thing: type(thing).__aiter__(thing),
    "anext": lambda thing: type(thing).__anext__(thing),
}
_OTHERS: dict[str, Callable[..., Any]] = {
    **{"getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem},
    **{"format": format, "round": round, "contains": operator.contains},
    **{"getattr": getattr, "setattr": setattr, "delattr": delattr, "await": _await},
    "exit": lambda thing, error: _leave(thing, error, "__exit__"),
    "aexit": lambda thing, error: _leave(thing, error, "__aexit__"),
    "copy": lambda thing: __import__("copy").copy(thing),
    "deepcopy": lambda thing: __import__("copy").deepcopy(thing),
    "call": lambda thing, args, names: thing(*args, **names),
    "drop": lambda thing, args, names: thing(*args, **names),  # a call whose result is not used
}
OPERATIONS: dict[str, Callable[..., Any]] = {**BINARY, **INPLACE, **ORDER, **UNARY, **_OTHERS}
KEEPING = {*INPLACE, "iter", "aiter"}
ARITHMETIC = {"neg", "pos", "abs", "invert", "round", "floor", "ceil", "trunc"}


def _special_methods() -> dict[str, tuple[str, str]]:
    """Return every special method that is forwarded to the other process, with its operation and kind."""
    methods = {}
    for name in BINARY:
        methods[f"__{name}__"] = (name, "binary")
        methods[f"__r{name}__"] = (name, "swapped")
    methods |= {f"__{name}__": (name, "in place") for name in INPLACE}
    methods |= {f"__{name}__": (name, "order") for name in ORDER}
    methods |= {f"__{name}__": (name, "one") for name in UNARY}
    for name in ("getitem", "setitem", "delitem", "format", "round"):
        methods[f"__{name}__"] = (name, "one")
    methods["__contains__"] = ("contains", "contains")
    methods["__call__"] = ("call", "call")
    methods |= {f"__{name}__": (name, "exit") for name in ("exit", "aexit")}
    methods["__await__"] = ("await", "await")
    return methods


SPECIAL_METHODS = _special_methods()
