"""Which values of tests and submissions are plain data, and how classes are known by their names."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import builtins
import collections
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

ITSELF = object()
"""What an operator answers that gave its own left operand, where Python or the tests keep that."""


class Gone(BaseException):
    """The other process ended; no test may catch this."""


class Garbled(Exception):
    """The message of the other process cannot be read."""


class TooLong(Garbled):
    """The message of the other process is too long."""


SCALARS: tuple[type, ...] = (int, float, complex, str, bytes, tuple, frozenset)
"""The immutable types; an instance of a subclass is sent with its plain value."""

EXACT: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


def _refill_list(container: Any, items: list[Any], more: Any) -> None:
    list.__setitem__(container, slice(None), items)


def _refill_dict(container: Any, items: list[Any], more: Any) -> None:
    kind: Any = collections.OrderedDict if isinstance(container, collections.OrderedDict) else dict
    kind.clear(container)
    for key, value in items:
        kind.__setitem__(container, key, value)
    if isinstance(container, collections.defaultdict):
        container.default_factory = more


def _dict_items(container: Any) -> Iterable[Any]:
    """Return the items in order; an OrderedDict has an order of its own, apart from its base dict's.

    It hashes its keys to find that order, so a key that is an object of the other process would be asked.
    """
    if isinstance(container, collections.OrderedDict) and all(map(_hashes_alone, dict.keys(container))):
        return collections.OrderedDict.items(container)
    return dict.items(container)


def _hashes_alone(key: Any) -> bool:
    kind = type(key)
    if kind is tuple or kind is frozenset:
        return all(map(_hashes_alone, key))
    return key is None or kind is bool or kind in SCALARS or find_value_type(kind) is not None


def _refill_set(container: Any, items: list[Any], more: Any) -> None:
    set.clear(container)
    set.update(container, items)


def _refill_bytes(container: Any, items: list[Any], more: Any) -> None:
    bytearray.__setitem__(container, slice(None), bytes(items))


def _refill_deque(container: Any, items: list[Any], more: Any) -> None:
    collections.deque.clear(container)
    collections.deque.extend(container, items)


CONTAINERS: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[[Any, list[Any], Any], None]]] = {
    list: (list.__iter__, _refill_list),
    dict: (_dict_items, _refill_dict),
    set: (set.__iter__, _refill_set),
    bytearray: (bytearray.__iter__, _refill_bytes),
    collections.deque: (collections.deque.__iter__, _refill_deque),
}
"""The mutable types, and how to read and to fill them. Both processes keep shared containers equal."""

SPECIAL: dict[str, type] = {
    kind.__name__: kind
    for kind in (*CONTAINERS, collections.OrderedDict, collections.Counter, collections.defaultdict)
}

VALUES: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("decimal", "Decimal"): lambda v: (vars(sys.modules["decimal"])["Decimal"].__str__(v),),
    ("fractions", "Fraction"): lambda v: (int(v.numerator), int(v.denominator)),  # of what it was made of
    ("datetime", "timedelta"): lambda v: (v.days, v.seconds, v.microseconds),
    ("datetime", "date"): lambda v: (v.year, v.month, v.day),
    ("datetime", "time"): lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
    ("datetime", "datetime"): lambda v: (
        *(v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
    ),
    ("datetime", "timezone"): lambda v: _zone_parts(*v.__getinitargs__()),
    ("zoneinfo", "ZoneInfo"): lambda v: (str.__str__(v.key),),
    ("builtins", "range"): lambda v: (v.start, v.stop, v.step),
    ("builtins", "slice"): lambda v: (v.start, v.stop, v.step),
}
"""Further immutable types, by module and name, because few programs import them.

Each gives its parts, of exact types, which `make_value` asks for: a Fraction keeps the numbers of numpy, a
time zone the text of a subclass, that it was made of.
"""


def _zone_parts(offset: Any, *name: str) -> tuple[Any, ...]:
    kind = vars(sys.modules["datetime"])["timedelta"]
    return (kind(offset.days, offset.seconds, offset.microseconds), *map(str.__str__, name))


def find_value_type(value: type) -> tuple[str, str] | None:
    """Return the key of a class in VALUES; only for that very class, not one of the same name."""
    key = (str(value.__module__), value.__name__)
    return key if key in VALUES and vars(sys.modules[key[0]]).get(key[1]) is value else None


def read_value(value: Any) -> Any:
    """Return the plain value of an object whose own class derives from one of VALUES; None for others.

    A library's class may have more than that value: pandas' Timestamp has nanoseconds.
    """
    kind = next(each for each in type(value).__mro__ if each.__module__ != "submission")
    key = find_value_type(kind)
    return None if key is None or not is_plain_value(value) else make_value(*key, *VALUES[key](value))


def is_plain_value(value: Any) -> bool:
    """Return whether a value of VALUES is plain data in all its parts; its time zone may be any object."""
    zone = getattr(value, "tzinfo", None)
    return (zone is None or find_value_type(type(zone)) is not None) and getattr(
        zone or value, "key", ""
    ) is not None


def make_value(module: str, name: str, *args: Any) -> Any:
    """Return a value of a class of VALUES. Raises Garbled.

    Its parts are of exact types: a Fraction of other objects would ask these, in code of the library, how it
    compares. A slice alone is compared as a tuple is, so any object may be its part.
    """
    kind = _class_of(module, name)
    if kind is not slice and not all(map(_is_part, args)):
        raise Garbled(f"a {name} of what none is made of")
    if name in ("time", "datetime"):
        return kind(*args[:-1], fold=args[-1])
    return kind(*args)


def _is_part(value: Any) -> bool:
    """Return whether values of VALUES are made of this: numbers, text, a time zone or its offset."""
    kind = type(value)
    return value is None or kind is int or kind is str or find_value_type(kind) is not None


VIEWS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "keys": dict.keys,
    "values": dict.values,
    "items": dict.items,
}
VIEW_NAMES = {type(view({})): name for name, view in VIEWS.items()}
LAZY = {each.__name__: each for each in (map, zip, filter, enumerate, reversed, memoryview, object)}
"""Builtin types whose instances stay in their process."""

NATURAL = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FunctionType)
"""Further ones, which tests name by `types` or ask `inspect` about."""

DATACLASS_MARKS = ("_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "MISSING")
CONSTANTS = {"...": ..., "NotImplemented": NotImplemented, "itself": ITSELF}
CONSTANT_NAMES = {id(value): name for name, value in CONSTANTS.items()}
GLOBAL: dict[type, str] = {
    kind: name for name, kind in vars(builtins).items() if isinstance(kind, type) and kind is not type
} | {kind: kind.__name__ for kind in SPECIAL.values()}
"""Classes that both processes have; they are sent by name, without stand-ins."""

GLOBALS = {name: kind for kind, name in GLOBAL.items()}
ARRAY = re.compile(r"[<>|=](?:[biufc?]\d{1,3}|[US]\d{1,6}|[mM]8(?:\[\d{0,6}[A-Za-z]{1,2}\])?)")


def find_dataclass_mark(value: Any, kind: type) -> str | None:
    """Return the name of a constant that `dataclasses` compares by identity."""
    if kind.__module__ != "dataclasses":
        return None
    space = vars(sys.modules["dataclasses"])
    return next((name for name in DATACLASS_MARKS if space.get(name) is value), None)


OF_BASES = (BaseException, *SCALARS, *CONTAINERS)
"""Classes that the class of a stand-in has among its bases, if the object's class does."""

_TYPES = {kind.__name__: kind for kind in vars(types).values() if isinstance(kind, type)}
_TEST_TOOLS = frozenset({"__main__", "unittest", "pytest", "_pytest", "hypothesis"})
"""Packages whose exceptions decide whether tests pass: a submission's class is none of theirs."""


def find_library_class(module: Any, name: Any) -> type | None:
    """Return a class of a package that this process has imported, if there is one of that name."""
    if not isinstance(module, str):
        return None
    space = _TYPES if module == "builtins" else getattr(sys.modules.get(module), "__dict__", {})
    kind = space.get(name)
    if not isinstance(kind, type):
        return None
    homes = {home.partition(".")[0] for home in (module, str(kind.__module__))}  # others may have it too
    return None if homes & _TEST_TOOLS else kind


def is_error(kind: type) -> bool:
    """Return whether a class is one of exceptions that a stand-in's class can derive from."""
    return issubclass(kind, BaseException) and type(kind) is type and bool(kind.__flags__ & 1 << 10)


def _class_of(module: str, name: str) -> type:
    """Return a class of VALUES."""
    if (module, name) not in VALUES:
        raise Garbled("a value of no known class")
    return vars(__import__(module))[name]  # type: ignore[no-any-return]


def find_base(kind: type, among: Iterable[type]) -> type | None:
    """Return the first of these classes that a class derives from, or None."""
    return next((base for base in among if issubclass(kind, base)), None)


def is_simple(value: Any) -> bool:
    """Return whether an argument of an exception is sent as it is."""
    return value is None or type(value) in (bool, int, float, str, bytes, tuple, list, dict)


def is_plain(value: Any) -> bool:
    """Return whether a value is plain data, which runs no code of the submission."""
    kind = type(value)
    return (
        value is None
        or kind is bool
        or kind in SCALARS
        or find_value_type(kind) is not None
        or kind in CONTAINERS
        or SPECIAL.get(kind.__name__) is kind
    )
