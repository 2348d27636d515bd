"""Asserts in a separate process: `test` runs the asserts, `serve` runs in the submission's process.

The asserts hold the expected values, so they share no process with the submission. Both exchange plain data,
which is copied, and the numbers of objects, which stay in their process. For an object of the submission the
tester has a stand-in (a proxy), whose class is a stand-in for the object's class. Operations on it are sent
to the submission's process. Lists, dictionaries and sets that both processes hold are kept equal.

The tester trusts nothing that it reads. What it receives is of exact builtin types or a stand-in. A stand-in
decides about the tests' own plain data only where the tests made its object; see docs/guides/code_checks.md.
"""

# This file is read as text and run in the sandbox: it may import the standard library alone.

from __future__ import annotations

import _thread
import abc
import ast
import builtins
import collections
import io
import itertools
import json
import math
import operator
import os
import random
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

LONGEST = 16 << 20
MOST_PRINTED = 1 << 20
DEEPEST = 200
ITSELF = object()
"""What an operator answers that gave its own left operand, where Python or the tests keep that."""


class Gone(BaseException):
    """The other process ended; no test may catch this."""


class Garbled(Exception):
    """The message of the other process cannot be read."""


class TooLong(Garbled):
    """The message of the other process is too long."""


class Printed(io.TextIOWrapper):
    """The output of the submission, which is sent to the tests with its next answer."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, "utf-8", "backslashreplace")

    def take_text(self) -> str:
        """Return what was printed since the last call."""
        self.flush()
        data: bytes = self._bytes.getvalue()
        if data:
            self._bytes.seek(0)
            self._bytes.truncate()
        return data.decode("utf-8", "replace")

    def write(self, text: str) -> int:
        """Buffer text; too much of it goes to stdout, where the sandbox counts it."""
        written = super().write(text)
        if self._bytes.tell() > MOST_PRINTED:
            os.write(1, self.take_text().encode())
        return written


# ------------------------------------------------------------------------------- what is plain, and how

SCALARS: tuple[type, ...] = (int, float, complex, str, bytes, tuple, frozenset)
"""The immutable types; an instance of a subclass is sent with its plain value."""

_EXACT: dict[type, Callable[[Any], Any]] = {
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
    return key is None or kind is bool or kind in SCALARS or _value_type(kind) is not None


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

_SPECIAL: dict[str, type] = {
    kind.__name__: kind
    for kind in (*CONTAINERS, collections.OrderedDict, collections.Counter, collections.defaultdict)
}

_VALUES: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("decimal", "Decimal"): lambda v: (str(v),),
    ("fractions", "Fraction"): lambda v: (v.numerator, v.denominator),
    ("datetime", "timedelta"): lambda v: (v.days, v.seconds, v.microseconds),
    ("datetime", "date"): lambda v: (v.year, v.month, v.day),
    ("datetime", "time"): lambda v: (v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
    ("datetime", "datetime"): lambda v: (
        *(v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo, v.fold),
    ),
    ("datetime", "timezone"): lambda v: v.__getinitargs__(),
    ("zoneinfo", "ZoneInfo"): lambda v: (v.key,),
    ("builtins", "range"): lambda v: (v.start, v.stop, v.step),
    ("builtins", "slice"): lambda v: (v.start, v.stop, v.step),
}
"""Further immutable types, by module and name, because few programs import them."""


def _value_type(value: type) -> tuple[str, str] | None:
    """Return the key of a class in _VALUES; only for that very class, not one of the same name."""
    key = (str(value.__module__), value.__name__)
    return key if key in _VALUES and vars(sys.modules[key[0]]).get(key[1]) is value else None


def _is_plain_value(value: Any) -> bool:
    """Return whether a value of _VALUES is plain data in all its parts; its time zone may be any object."""
    zone = getattr(value, "tzinfo", None)
    return (zone is None or _value_type(type(zone)) is not None) and getattr(
        zone or value, "key", ""
    ) is not None


def _make_value(module: str, name: str, *args: Any) -> Any:
    kind = _class_of(module, name)
    if name in ("time", "datetime"):
        return kind(*args[:-1], fold=args[-1])
    return kind(*args)


_VIEWS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "keys": dict.keys,
    "values": dict.values,
    "items": dict.items,
}
_VIEW_NAMES = {type(view({})): name for name, view in _VIEWS.items()}
_LAZY = {each.__name__: each for each in (map, zip, filter, enumerate, reversed, memoryview, object)}
"""Builtin types whose instances stay in their process."""

_NATURAL = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FunctionType)
"""Further ones, which tests name by `types` or ask `inspect` about."""

_DATACLASS_MARKS = ("_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "MISSING")
_CONSTANTS = {"...": ..., "NotImplemented": NotImplemented, "itself": ITSELF}
_CONSTANT_NAMES = {id(value): name for name, value in _CONSTANTS.items()}
_GLOBAL: dict[type, str] = {
    kind: name for name, kind in vars(builtins).items() if isinstance(kind, type) and kind is not type
} | {kind: kind.__name__ for kind in _SPECIAL.values()}
"""Classes that both processes have; they are sent by name, without stand-ins."""

_GLOBALS = {name: kind for kind, name in _GLOBAL.items()}
_ARRAY = re.compile(r"[<>|=](?:[biufc?]\d{1,3}|[US]\d{1,6}|[mM]8(?:\[\d{0,6}[A-Za-z]{1,2}\])?)")


def _dataclass_mark(value: Any, kind: type) -> str | None:
    """Return the name of a constant that `dataclasses` compares by identity."""
    if kind.__module__ != "dataclasses":
        return None
    space = vars(sys.modules["dataclasses"])
    return next((name for name in _DATACLASS_MARKS if space.get(name) is value), None)


_OF_BASES = (BaseException, *SCALARS, *CONTAINERS)
"""Classes that the class of a stand-in has among its bases, if the object's class does."""

_TYPES = {kind.__name__: kind for kind in vars(types).values() if isinstance(kind, type)}
_TEST_TOOLS = frozenset({"__main__", "unittest", "pytest", "_pytest", "hypothesis"})
"""Modules whose exceptions decide whether tests pass: a submission's class is none of theirs."""


def _library_class(module: Any, name: Any) -> type | None:
    """Return a class of a package that this process has imported, if there is one of that name."""
    if not isinstance(module, str) or module.partition(".")[0] in _TEST_TOOLS:
        return None
    space = _TYPES if module == "builtins" else getattr(sys.modules.get(module), "__dict__", {})
    kind = space.get(name)
    return kind if isinstance(kind, type) else None


def _is_error(kind: type) -> bool:
    """Return whether a class is one of exceptions that a stand-in's class can derive from."""
    return issubclass(kind, BaseException) and type(kind) is type and bool(kind.__flags__ & 1 << 10)


def _class_of(module: str, name: str) -> type:
    """Return a class of _VALUES."""
    if (module, name) not in _VALUES:
        raise Garbled("a value of no known class")
    return vars(__import__(module))[name]  # type: ignore[no-any-return]


def _base(kind: type, among: Iterable[type]) -> type | None:
    return next((base for base in among if issubclass(kind, base)), None)


# ------------------------------------------------------------------------------------------- operations


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


_BINARY = {
    name: getattr(operator, f"__{name}__")
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
        *("lshift", "rshift"),
    )
} | {"pow": pow, "divmod": divmod}
_INPLACE = {f"i{name}": getattr(operator, f"__i{name}__") for name in _BINARY if name != "divmod"}
_ORDER = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_UNARY: dict[str, Callable[..., Any]] = {
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
OPERATIONS: dict[str, Callable[..., Any]] = {**_BINARY, **_INPLACE, **_ORDER, **_UNARY, **_OTHERS}
_KEEPING = {*_INPLACE, "iter", "aiter"}
_ARITHMETIC = {"neg", "pos", "abs", "invert", "round", "floor", "ceil", "trunc"}


# ------------------------------------------------------------------------------------------------ peers


class Peer:
    """One end of the connection between both processes."""

    def __init__(self, fd: int, first: int) -> None:
        self.fd = fd
        self._numbers = itertools.count(first, 2)
        self.own: dict[int, Any] = {}  # objects of this process that the other one knows by number
        self._own_numbers: dict[int, int] = {}
        self.theirs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._released: set[int] = set()
        self._shared: dict[int, tuple[Any, type, list[Any]]] = {}  # container, its base, its items last time
        self._shared_numbers: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._named: set[int] = set()  # in the message that is being written
        self._filling: set[int] = set()  # containers that are half full: hashing an item may ask
        self._reading = 0  # messages that are being decoded, each in the middle of the one before
        self._other_reads = False  # whether the other process is in the middle of one
        self._kept: dict[int, Any] = {}  # stand-ins that cannot be referred to weakly
        self._lock = _thread.RLock()
        self.printed = Printed()

    # -- messages

    def ask(self, operation: str, *operands: Any) -> Any:
        """Ask the other process to perform an operation; return its result or raise its exception."""
        with self._lock:
            self._send("ask", operation, [self.encode(each) for each in operands])
            del operands
            while True:
                kind, operation, value = self._receive()
                if kind == "value":
                    return value
                if kind == "raised":
                    raise value
                self._answer(operation, value)
                del value

    def note_error(self, error: BaseException) -> None:
        """Record an exception that comes from the other process."""

    def note_end(self) -> Gone:
        """Return the exception which says that the other process ended."""
        return Gone()

    def _answer(self, operation: str, operands: list[Any]) -> None:
        """Perform an operation for the other process; `operands` is emptied, so that they can be released."""
        try:
            reply = "value", "", self.encode(self.perform(operation, operands))
        except (Gone, Garbled):
            raise
        except BaseException as error:
            reply = "raised", "", self._failure(error)
        operands.clear()
        self._send(*reply)

    def _failure(self, error: BaseException) -> Any:
        try:
            return self.encode(error)
        except Exception:
            return self.encode(RuntimeError(f"{type(error).__name__}, which cannot be told"))

    def perform(self, operation: str, operands: list[Any]) -> Any:
        """Perform one operation of OPERATIONS."""
        return OPERATIONS[operation](*operands)

    def _send(self, kind: str, operation: str, value: Any) -> None:
        changed = self._changes()
        dropped, released = list[int](), list[int]()
        if not (self._reading or self._other_reads):  # the rest of that message may name what is released
            dropped = self._drops()
            released, self._released = sorted(self._released), set()
        self._fresh.clear()
        self._named.clear()
        reads = self._reading > 0
        data = json.dumps(
            [kind, operation, value, changed, dropped, released, reads, self.printed.take_text()]
        ).encode()
        view = memoryview(len(data).to_bytes(4, "big") + data)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError:
            raise self.note_end() from None

    def _receive(self) -> tuple[str, str, Any]:
        """Return the next message: its kind, its operation, and its value or operands."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > LONGEST:
            raise TooLong(f"a reply of more than {LONGEST} bytes")
        data = self._exactly(size)
        self._reading += 1
        try:
            kind, operation, value, changed, dropped, released, reads, text = json.loads(data)
            self._other_reads = reads is True
            # In the order in which they were written: a value may bring a container that a change names.
            if kind == "ask":
                value = [self.decode(each) for each in value]
            elif kind in ("value", "raised"):
                value = self.decode(value)
            ours = id(value) in self._own_numbers  # before numbers are released
            for number, items, more in changed:
                self._refill(number, items, more)
            for number in dropped:
                self._forget(number)
            for number in released:
                self._own_numbers.pop(id(self.own.pop(number, None)), None)
            if kind == "raised" and isinstance(value, BaseException) and not ours:
                self.note_error(value)
            self.receive_output(str(text))
        except Exception as error:
            raise Garbled(f"a message that cannot be read ({type(error).__name__}: {error})"[:300]) from None
        finally:
            self._reading -= 1
        known = kind in ("ask", "value", "names") or (kind == "raised" and isinstance(value, BaseException))
        if not known or not isinstance(operation, str):
            raise Garbled("a message of no kind")
        return kind, operation, value

    def receive_output(self, text: str) -> None:
        """Receive what the other process printed."""

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = os.read(self.fd, min(size - len(data), 1 << 20))
            except OSError:
                piece = b""
            if not piece:
                raise self.note_end()
            data += piece
        return bytes(data)

    # -- containers that both processes hold

    def _share(self, number: int, container: Any, base: type) -> None:
        self._shared[number] = (container, base, [])
        self._shared_numbers[id(container)] = number

    def _forget(self, number: int) -> None:
        if number in self._shared:
            del self._shared_numbers[id(self._shared[number][0])]
            del self._shared[number]

    def _look(self, number: int) -> None:
        container, base, _ = self._shared[number]
        self._shared[number] = (container, base, _items(container, base))

    def _changes(self) -> list[Any]:
        """Return the changes of shared containers since the last exchange."""
        changed = []
        done: set[int] = set()
        while todo := [number for number in self._shared if number not in done]:  # encoding may add some
            for number in todo:
                done.add(number)
                container, base, before = self._shared[number]
                now = _items(container, base)
                ready = number not in self._fresh and number not in self._filling
                if ready and not _same(now, before, base):
                    self._shared[number] = (container, base, now)
                    changed.append([number, self._contents(now, base), self._more(container)])
        return changed

    def _drops(self) -> list[int]:
        """Release shared containers that this process no longer holds; outer containers come first."""
        dropped = []
        needed = self._fresh | self._named
        for number in [number for number in self._shared if number not in needed]:
            entry = self._shared[number]
            if sys.getrefcount(entry[0]) <= 2:  # the table's, and while it is asked
                dropped.append(number)
                self._forget(number)
            del entry
        return dropped

    def _contents(self, items: list[Any], base: type, depth: int = 0) -> Any:
        if base is dict:
            return [[self.encode(key, depth), self.encode(value, depth)] for key, value in items]
        if base is bytearray:
            return bytes(items).hex()
        if base not in CONTAINERS:
            return [items[0], list(items[1]), items[2].hex()]
        return items if _as_json(items) else [self.encode(item, depth) for item in items]

    def _more(self, container: Any) -> Any:
        if type(container) is collections.defaultdict:
            return self.encode(container.default_factory)
        return container.maxlen if type(container) is collections.deque else None

    def _refill(self, number: int, items: Any, more: Any) -> None:
        container, base, _ = self._shared[number]
        self._fill(number, container, base, items, more)

    def _fill(self, number: int, container: Any, base: type, items: Any, more: Any) -> None:
        filled: list[Any]
        if base not in CONTAINERS:
            _refill_array(container, _array_of(*items))
            self._look(number)
            return
        if base is dict:
            filled = [(self.decode(key), self.decode(value)) for key, value in items]
        elif base is bytearray:
            filled = list(bytes.fromhex(items))
        else:
            filled = items if _as_json(items) else [self.decode(item) for item in items]
        factory = self.decode(more) if type(container) is collections.defaultdict else None
        self._filling.add(number)
        try:
            CONTAINERS[base][1](container, filled, factory)
        finally:
            self._filling.discard(number)
        self._look(number)

    # -- values

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON: plain data directly, everything else by its number."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if -(1 << 62) < value < 1 << 62 else {"n": hex(value)}
        if depth > DEEPEST:
            raise RecursionError(f"data nested more than {DEEPEST} deep")
        if (number := self._shared_numbers.get(id(value))) is not None:
            self._named.add(number)
            return {"=": number}
        if kind.__name__ in _SPECIAL and _SPECIAL[kind.__name__] is kind:
            return self._new_container(value, kind, depth)
        if kind is tuple:
            return {"t": [self.encode(each, depth + 1) for each in value]}
        if kind is frozenset:
            return {"z": [self.encode(each, depth + 1) for each in value]}
        if kind is bytes:
            return {"b": value.hex()}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if (key := _value_type(kind)) is not None and _is_plain_value(value):
            return {"v": [*key, *(self.encode(each, depth + 1) for each in _VALUES[key](value))]}
        if (constant := _CONSTANT_NAMES.get(id(value)) or _dataclass_mark(value, kind)) is not None:
            return {"k": constant}
        if issubclass(kind, type) and value in _GLOBAL:
            return {"g": _GLOBAL[value]}
        if kind.__module__ == "numpy" and (array_parts := _array(value)) is not None:
            if array_parts[3] or not value.flags.writeable:
                return {"a": array_parts}
            number = next(self._numbers)
            self._share(number, value, kind)
            self._fresh.add(number)
            self._look(number)
            return {"A": [number, array_parts]}
        return self.encode_object(value, kind, depth)

    def _new_container(self, value: Any, kind: type, depth: int) -> Any:
        base = _base(kind, CONTAINERS)
        assert base is not None
        number = next(self._numbers)
        self._share(number, value, base)
        self._fresh.add(number)
        self._look(number)
        contents = self._contents(self._shared[number][2], base, depth + 1)
        return {"l": [number, kind.__name__, contents, self._more(value)]}

    def encode_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return an object's number, and what the other process needs for a stand-in."""
        raise NotImplementedError

    def number_of(self, value: Any) -> int:
        """Return the number by which the other process knows an object of this one."""
        number = self._own_numbers.get(id(value))
        if number is None:
            number = next(self._numbers)
            self.own[number] = value
            self._own_numbers[id(value)] = number
        return number

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Return the value given to `encode`, in exact types, or a stand-in. Raises Garbled."""
        if not isinstance(value, dict):
            if value is None or isinstance(value, (bool, int, float, str)):
                return value
            raise Garbled("a value of no kind")
        if depth > DEEPEST + 50:
            raise Garbled("a value nested too deep")
        ((mark, content), *_) = value.items()
        match mark:
            case "n":
                return int(content, 16)
            case "=":
                return self.meet(self._shared[content][0])
            case "l":
                return self._old_container(content)
            case "t":
                return tuple([self.decode(each, depth + 1) for each in content])
            case "z":
                return frozenset([self.decode(each, depth + 1) for each in content])
            case "b":
                return bytes.fromhex(content)
            case "c":
                return complex(float(content[0]), float(content[1]))
            case "v":
                return _make_value(*content[:2], *(self.decode(each, depth + 1) for each in content[2:]))
            case "d":
                items = [
                    (self.decode(key, depth + 1), self.decode(each, depth + 1)) for key, each in content[1]
                ]
                return _VIEWS[content[0]](dict(items))
            case "m":
                data = bytes.fromhex(content[0])
                return memoryview(data if content[1] else bytearray(data))
            case "k":
                if content in _DATACLASS_MARKS:
                    return vars(__import__("dataclasses"))[content]
                return _CONSTANTS[content]
            case "g":
                return _GLOBALS[content]
            case "a":
                return _array_of(*content)
            case "A":
                number, array_parts = content
                if number in self._shared or not isinstance(number, int):
                    raise Garbled("an array's number that is taken")
                array = _array_of(*array_parts[:3])
                self._share(number, array, type(array))
                self._look(number)
                return array
            case "o":
                return self.own[content]
            case _:
                return self.decode_object(value)

    def _old_container(self, content: list[Any]) -> Any:
        number, name, items, more = content
        kind = _SPECIAL[name]
        base = _base(kind, CONTAINERS)
        assert base is not None
        if number in self._shared or not isinstance(number, int):
            raise Garbled("a container's number that is taken")
        container = kind(maxlen=more) if kind is collections.deque else kind()
        self._share(number, container, base)  # before its items, which may hold it
        self._fill(number, container, base, items, more)
        return container

    def decode_object(self, value: dict[str, Any]) -> Any:
        """Return a stand-in."""
        raise NotImplementedError

    def meet(self, thing: Any) -> Any:
        """Return an object that the other process sent again."""
        return thing

    def keep(self, number: int, stand_in: Any) -> None:
        """Register a stand-in for as long as this process holds it."""
        self._released.discard(number)
        try:
            self.theirs[number] = stand_in
        except TypeError:
            self._kept[number] = stand_in
            return
        weakref.finalize(stand_in, self._release, number).atexit = False

    def stand_in(self, number: int) -> Any:
        """Return the existing stand-in, or None."""
        thing = self.theirs.get(number)
        return self._kept.get(number) if thing is None else thing

    def _release(self, number: int) -> None:
        if number not in self.theirs:
            self._released.add(number)


def _as_json(items: list[Any]) -> bool:
    """Return whether JSON can hold these values unchanged."""
    kinds = set(map(type, items))
    if int in kinds:
        return len(kinds) == 1 and min(items) > -(1 << 62) and max(items) < 1 << 62
    return kinds <= {str, bool, float, type(None)}


def _items(container: Any, base: type) -> list[Any]:
    if base not in CONTAINERS:
        return [container.dtype.str, container.shape, container.tobytes()]
    return list(CONTAINERS[base][0](container))


def _same(now: list[Any], before: list[Any], base: type) -> bool:
    """Return whether these are the same objects, without calling their `__eq__`."""
    if base not in CONTAINERS:  # an array's
        return now == before
    if len(now) != len(before):
        return False
    if now and type(now[0]) is tuple:  # perhaps of a dictionary: a new tuple each time
        return all(
            a is b or (type(a) is tuple is type(b) and len(a) == len(b) and all(map(operator.is_, a, b)))
            for a, b in zip(now, before, strict=True)
        )
    return all(map(operator.is_, now, before))


def _array(value: Any) -> list[Any] | None:
    """Return a numpy array of numbers, or one of its numbers, as plain data."""
    numpy = sys.modules["numpy"]
    if isinstance(value, (numpy.ndarray, numpy.generic)) and type(value) is not numpy.ma.MaskedArray:
        array = numpy.asarray(value)
        if _ARRAY.fullmatch(array.dtype.str):
            return [
                array.dtype.str,
                list(array.shape),
                array.tobytes().hex(),
                isinstance(value, numpy.generic),
            ]
    return None


def _array_of(dtype: str, shape: list[int], data: str, scalar: bool = False) -> Any:
    if not _ARRAY.fullmatch(dtype):
        raise Garbled("an array of no numbers")
    import numpy

    array = numpy.frombuffer(bytes.fromhex(data), dtype).reshape(shape).copy()
    return array[()] if scalar else array


def _refill_array(array: Any, other: Any) -> None:
    if array.shape != other.shape:
        if array.size != other.size:
            array.resize(other.shape, refcheck=False)
        array.shape = other.shape
    if array.dtype != other.dtype:
        array.dtype = other.dtype
    array[...] = other


# ------------------------------------------------------------------------------- the submission's process


class Server(Peer):
    """The submission's end of the connection, which performs every operation that it is asked for."""

    def __init__(self, fd: int, space: dict[str, Any]) -> None:
        super().__init__(fd, 1)
        self.space = space
        self._described: dict[type, int] = {}
        self._far_functions: dict[int, Any] = {}

    def run(self) -> None:
        """Send the names of the submission, then answer until the tester is gone."""
        self._send("names", "", sorted(name for name in self.space if isinstance(name, str)))
        self.space.setdefault("isinstance", self.is_instance)
        while True:
            _, operation, operands = self._receive()
            self._answer(operation, operands)

    def is_instance(self, thing: Any, kinds: Any, /) -> bool:
        """Return whether a thing is an instance of a class, for the submission's own `isinstance`.

        An object of the tests has the class of its name here, if there is one. Libraries are not told so:
        they would reach for what is inside of their own objects.
        """
        if isinstance(thing, kinds) or type(thing) is not Far:
            return isinstance(thing, kinds)
        module, name = object.__getattribute__(thing, "_gem_class")
        kind = self.space.get(name) if module == "tests" else _library_class(module, name)
        return isinstance(kind, type) and issubclass(kind, kinds)

    def perform(self, operation: str, operands: list[Any]) -> Any:
        """Perform an operation, or look up a name."""
        if operation == "name":
            return self.space[operands[0]]
        if operation == "entry":
            return entry(self.space, operands[0])
        if operation == "seed":
            module, args, names = operands
            return __import__(module, fromlist=["seed"]).seed(*args, **names)
        outcome = super().perform(operation, operands)
        if operation == "drop":
            return None
        return ITSELF if operation in _KEEPING and outcome is operands[0] else outcome

    def encode_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return an object's number, its class, and its plain value if it has one."""
        if kind in _FARS:
            return {"o": object.__getattribute__(value, "_gem_number")}
        if (number := getattr(value, "_gem_number", None)) is not None and isinstance(value, BaseException):
            return {"o": number}
        if issubclass(kind, type):
            return {"K": self._describe(value)}
        if kind in _VIEW_NAMES:
            items = [
                [self.encode(key, depth + 1), self.encode(each, depth + 1)]
                for key, each in dict(value.mapping).items()
            ]
            return {"d": [_VIEW_NAMES[kind], items]}
        if kind is memoryview and value.format == "B" and value.ndim == 1:
            return {"m": [value.tobytes().hex(), value.readonly]}
        described = self._describe(kind, instance=True)
        fields: dict[str, Any] = {
            "h": 0 if isinstance(described, dict) else self.number_of(value),
            "K": described,
        }
        if (base := _base(kind, SCALARS)) is not None:
            fields["p"] = self.encode(_EXACT[base](value), depth + 1)
        elif (base := _base(kind, CONTAINERS)) is not None:
            shared = next(self._numbers)
            self._share(shared, value, base)
            self._look(shared)
            fields["l"] = [shared, base.__name__, self._contents(self._shared[shared][2], base, depth + 1)]
        elif issubclass(kind, BaseException):
            fields["e"] = [
                self.encode(each, depth + 1) if _tells(each) else repr(each) for each in value.args
            ]
            cause = value.__cause__
            fields["b"] = None if cause is None or depth > 5 else self.encode(cause, depth + 1)
        return fields

    def _describe(self, kind: type, *, instance: bool = False) -> Any:
        """Return a class: its number and, the first time, what its stand-in needs."""
        if kind in _GLOBAL and not (instance and kind in _LAZY.values()):
            return {"g": _GLOBAL[kind]}
        if kind in self._described:
            return self._described[kind]
        number = self._described[kind] = self.number_of(kind)
        names = {}
        for name, value in list(vars(kind).items()):
            if isinstance(name, str):
                names[name] = value is not None
        bases = [self._describe(base) for base in kind.__bases__]
        return [number, kind.__name__, kind.__qualname__, str(kind.__module__), bases, names]

    def decode_object(self, value: dict[str, Any]) -> Any:
        """Return a stand-in for an object of the tester."""
        number = value["h"]
        thing = self.stand_in(number)
        if thing is None:
            if "e" in value:
                base = self.decode(value["K"])
                args = [self.decode(each) for each in value["e"]]
                thing = (base if value["c"] == base.__name__ else type(value["c"], (base,), {}))(*args)
                thing._gem_number = number
            else:
                thing = far = object.__new__(FarFunction if value["f"] else Far)
                object.__setattr__(thing, "_gem_number", number)
                object.__setattr__(thing, "_gem_peer", self)
                object.__setattr__(thing, "_gem_class", (value["m"], value["k"]))
                if value["f"]:
                    vars(far).update(__name__=value["c"], __qualname__=value["c"], __doc__=value["d"])
            self.keep(number, thing)
        return thing


def _tells(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str, bytes, tuple, list, dict)


def entry(space: dict[str, Any], dotted: str) -> Any:
    """Return the callable that tests use: a name or its attribute; classes on the way are instantiated."""
    first, *rest = dotted.split(".")
    if first not in space and not rest and isinstance(space.get("Solution"), type):
        first, rest = "Solution", [first]
    if first not in space:
        raise NameError(f"name {first!r} is not defined")
    callee = space[first]
    if rest and isinstance(callee, type):
        callee = callee()
    for name in rest:
        callee = getattr(callee, name)
    return callee


class Far:
    """An object of the tests, as seen in the submission's process."""

    _gem_number: int
    _gem_peer: Peer
    _gem_class: tuple[str, str]

    def __getattr__(self, name: str) -> Any:
        return _far_ask(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _far_ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _far_ask(self, "delattr", name)

    def __call__(self, *args: Any, **names: Any) -> Any:
        """Call it in the tests' process."""
        return _far_ask(self, "call", list(args), names)


class _Awaited:
    """The waiting for an awaitable of the tests, which is over at once for the submission's loop."""

    def __init__(self, far: Far, operation: str) -> None:
        self.far, self.operation = far, operation

    def __iter__(self) -> Any:
        yield from ()
        return _far_ask(self.far, self.operation)


class FarFunction:
    """A function of the tests, as seen in the submission's process; it can only be called."""

    _gem_number: int
    _gem_peer: Peer

    def __call__(self, *args: Any, **names: Any) -> Any:
        """Call it in the tests' process."""
        return _far_ask(self, "call", list(args), names)


_FARS = (Far, FarFunction)


def _far_ask(far: Any, operation: str, *operands: Any) -> Any:
    return object.__getattribute__(far, "_gem_peer").ask(operation, far, *operands)


def _special_methods() -> dict[str, tuple[str, str]]:
    """Return every special method that is forwarded to the other process, with its operation and kind."""
    methods = {}
    for name in _BINARY:
        methods[f"__{name}__"] = (name, "binary")
        methods[f"__r{name}__"] = (name, "swapped")
    methods |= {f"__{name}__": (name, "in place") for name in _INPLACE}
    methods |= {f"__{name}__": (name, "order") for name in _ORDER}
    methods |= {f"__{name}__": (name, "one") for name in _UNARY}
    for name in ("getitem", "setitem", "delitem", "format", "round"):
        methods[f"__{name}__"] = (name, "one")
    methods["__contains__"] = ("contains", "contains")
    methods["__call__"] = ("call", "call")
    methods |= {f"__{name}__": (name, "exit") for name in ("exit", "aexit")}
    methods["__await__"] = ("await", "await")
    return methods


SPECIAL_METHODS = _special_methods()

for _name, (_operation, _kind) in SPECIAL_METHODS.items():
    if _kind in ("binary", "in place", "order", "one", "contains") and _name not in vars(Far):
        setattr(Far, _name, (lambda o: lambda self, *rest: _far_ask(self, o, *rest))(_operation))
    elif _kind == "swapped":
        setattr(Far, _name, (lambda o: lambda self, other: self._gem_peer.ask(o, other, self))(_operation))
    elif _kind == "exit":
        setattr(Far, _name, (lambda o: lambda self, kind, error, tb: _far_ask(self, o, error))(_operation))
    elif _kind == "await":
        setattr(Far, _name, (lambda o: lambda self: iter(_Awaited(self, o)))(_operation))


def serve(space: dict[str, Any], fd: int) -> None:
    """Serve the tester at the other end of `fd` with the submission's names."""
    server = Server(fd, space)
    sys.stdout = server.printed
    with suppress(Gone):
        server.run()


# ------------------------------------------------------------------------------------ the tests' process

MADE, DERIVED, FOUND, TAINTED, COMPARED = range(5)
"""What a stand-in may decide: see docs/guides/code_checks.md. MADE: made by the tests from a class under
test, and not received again since; DERIVED: the result of operators on such; FOUND: any other; TAINTED: the
result of operators on a FOUND object and the tests' own plain data; COMPARED: such a result that is a
difference, with which tests compare by more attributes (numpy calls `.sqrt()` of objects).
"""


class Refused(BaseException):
    """An operation in which an object of the submission would decide about the tests' own plain data.

    No test may catch it and try another operation: by then the submission has seen the data. So it is
    remembered, however it is caught.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        peer = _peer()
        peer.refused = peer.refused or self


class Stand(type):
    """The metaclass of stand-ins for the submission's classes."""

    def __call__(cls, *args: Any, **names: Any) -> Any:
        """Make an object in the submission's process."""
        peer = _peer()
        made = peer.ask("call", cls, list(args), names)
        if isinstance(made, Thing) and _is_new(made) and peer.received[cls] == peer.tested[cls] == 1:
            object.__setattr__(made, "_gem_level", MADE)
        return made

    def __getattr__(cls, name: str) -> Any:
        """Ask for an attribute of the class."""
        _check_known(name)
        return _peer().ask("getattr", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        """Set an attribute of the class."""
        _peer().ask("setattr", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        """Delete an attribute of the class."""
        _peer().ask("delattr", cls, name)

    def __iter__(cls) -> Any:
        """Iterate over the members of an enumeration."""
        return _peer().ask("iter", cls)

    def __len__(cls) -> Any:
        """Count its members."""
        return _peer().ask("len", cls)

    def __getitem__(cls, key: Any) -> Any:
        """Return a member."""
        return _peer().ask("getitem", cls, key)

    def __contains__(cls, thing: Any) -> bool:
        """Return whether it has this member."""
        return isinstance(thing, Thing) and bool(_peer().ask("contains", cls, thing))

    def __dir__(cls) -> Any:
        """Return the names of the attributes of the submission's class, which mocks are made of."""
        return _peer().ask("dir", cls)

    def __repr__(cls) -> str:
        """Return the repr of the submission's class."""
        return str(_peer().ask("repr", cls))

    def __bool__(cls) -> bool:
        """Return True, as classes do."""
        return True


def _short(cls: type) -> str:
    return str(type.__getattribute__(cls, "__name__"))


class Thing:
    """An object of the submission, as seen in the tests' process."""

    _gem_number = 0
    _gem_natural = None
    _gem_level = FOUND
    _gem_met = False
    _gem_compares = False

    def __getattr__(self, name: str) -> Any:
        _check_known(name)
        value = _peer().ask("getattr", self, name)
        level = _level(self)
        if (level >= TAINTED and _is_data_name(name)) or (level == COMPARED and _is_measure_name(name)):
            return _taint(value, level)
        return _note_comparison(value) if level != MADE and _compares(name) else value

    def __setattr__(self, name: str, value: Any) -> None:
        _peer().ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        _peer().ask("delattr", self, name)

    def __deepcopy__(self, memo: Any) -> Any:
        return _ask(self, "deepcopy")

    def __bool__(self) -> bool:
        """Return True, as objects do whose class does not say; a comparison may not give such an object."""
        if _level(self) >= TAINTED:
            raise Refused("an object of the submission would be the truth about the tests' own plain data")
        return True

    @property
    def __class__(self) -> Any:
        """The class of this name that the tests define, if they do: both come from the same source."""
        kind = type(self)
        if (natural := type.__getattribute__(kind, "_gem_natural")) is not None:
            return natural
        own = _peer().space.get(_short(kind))
        if isinstance(own, type) and not isinstance(own, Stand) and own.__module__ == "tests":
            return own
        return _LAZY.get(_short(kind), kind)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("an object of the submission keeps its class")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        """The attributes of the object in the submission's process."""
        return _ask(self, "getattr", "__dict__")


def is_instance(thing: Any, kinds: Any, /) -> bool:
    """Return whether a thing is an instance of a class, for the tests' own `isinstance` and unittest's.

    The class of a stand-in may be one of a library, or derive from one. Only the tests are told so: the
    library would take the stand-in for an object of its own, and ask it to decide.
    """
    if isinstance(thing, kinds):
        return True
    bases = type(thing).__mro__ if isinstance(type(thing), Stand) else ()
    names = [vars(base)["_gem_library"] for base in bases if "_gem_library" in vars(base)]
    classes = [kind for kind in itertools.starmap(_library_class, names) if kind is not None]
    return any(not issubclass(kind, _OF_BASES) and issubclass(kind, kinds) for kind in classes)


def _check_known(name: str) -> None:
    """Refuse special names that are not Python's; packages use them to decide which side computes."""
    if name.startswith("__") and name.endswith("__") and name not in _KNOWN_NAMES:
        raise AttributeError(name)


def _level(thing: Any) -> int:
    return int(object.__getattribute__(thing, "_gem_level"))


def _is_new(thing: Any) -> bool:
    """Return whether a stand-in was received only once."""
    return not object.__getattribute__(thing, "_gem_met")


def _is_data_name(name: str) -> bool:
    """Return whether plain data, or an array, has an attribute of this name."""
    arrays = vars(sys.modules["numpy"])["ndarray"] if "numpy" in sys.modules else object
    return any(hasattr(kind, name) for kind in (*SCALARS, *CONTAINERS, arrays))


def _is_measure_name(name: str) -> bool:
    """Return whether tests could ask a difference by an attribute of this name how large it is.

    Functions of numpy call the method of their name of each object in an array.
    """
    spaces = [vars(sys.modules[each]) for each in ("numpy", "pandas") if each in sys.modules]
    kinds = [space[each] for space in spaces for each in ("Series", "DataFrame") if each in space]
    kinds += [vars(sys.modules[key[0]])[key[1]] for key in _DIFFERENCES if key[0] in sys.modules]
    named = name in _MEASURES or any(name in space for space in (vars(math), *spaces))
    return named or any(hasattr(kind, name) for kind in kinds)


def _taint(value: Any, level: int = TAINTED) -> Any:
    if not _opaque(value):
        raise Refused("an operator of the submission gave plain data of the tests' own plain data")
    object.__setattr__(value, "_gem_level", max(TAINTED, level, _level(value)))
    return value


def _compares(name: str) -> bool:
    """Return whether a method of this name compares, as `==` does, what it is called with."""
    return name in _PREDICATES or (name in _OF_FRAMES and "pandas" in sys.modules)


def _note_comparison(value: Any) -> Any:
    """Return a method that compares, which is to give no plain data of the tests' own; or plain data."""
    if _plain(value):
        return value
    if not isinstance(value, Thing):
        raise Refused("a class or a function of the tests would compare the tests' own plain data")
    object.__setattr__(value, "_gem_compares", True)
    return value


def _opaque(value: Any) -> bool:
    return isinstance(value, Thing) and not issubclass(type(value), (*SCALARS, *CONTAINERS))


def _derive(value: Any, levels: set[int], operands: tuple[Any, ...]) -> Any:
    """Return the result of an operator on stand-ins of these levels, with its own level."""
    new = _opaque(value) and (_is_new(value) or any(value is each for each in operands))
    if new and levels <= {MADE, DERIVED}:
        object.__setattr__(value, "_gem_level", DERIVED)
    return value


def _ask(thing: Any, operation: str, *rest: Any) -> Any:
    level = _level(thing)
    value = _peer().ask(operation, thing, *rest)
    if value is ITSELF and operation in _KEEPING:
        return thing
    if level >= TAINTED:
        return _taint(value, level)
    return _derive(value, {level}, (thing,)) if operation in _ARITHMETIC else value


def _one(operation: str) -> Any:
    def method(self: Any, *rest: Any) -> Any:
        return _ask(self, operation, *rest)

    return method


for _operation in ("copy", "dir", "repr", "str", "format"):  # where a class defines no method of its own
    setattr(Thing, f"__{_operation}__", _one(_operation))


def _binary(operation: str, name: str, *, swapped: bool) -> Any:
    def method(self: Any, other: Any, *modulus: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        plain = not all(isinstance(each, Thing) for each in (other, *modulus))
        if not _opaque(self):
            base = _base(type(self), (*SCALARS, *CONTAINERS))
            if not isinstance(other, Thing) and _level(self) != MADE:
                native = getattr(base, name, None)
                return NotImplemented if native is None else native(self, other, *modulus)
        if not isinstance(other, Thing) and not _plain(other):
            return NotImplemented  # an object of the tests: it is asked first
        levels = {_level(each) for each in pair if isinstance(each, Thing)}
        value = _peer().ask(operation, *pair, *modulus)
        if value is ITSELF and operation in _INPLACE:
            value = self
        if plain and "sub" in operation:  # with a difference, tests compare
            levels = {level if level == MADE else FOUND for level in levels}
        highest = max(levels)
        if highest >= TAINTED or (plain and highest == FOUND):
            return _taint(value, COMPARED if "sub" in operation else highest)
        return value if value is self and operation in _INPLACE else _derive(value, levels, pair)

    return method


_CONTENT: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("pathlib", "PosixPath"): str,
    ("pathlib", "PurePosixPath"): str,
    ("pathlib", "PureWindowsPath"): str,
    ("uuid", "UUID"): lambda value: value.int,
    ("array", "array"): list,
    ("types", "SimpleNamespace"): vars,
    ("pandas", "Timestamp"): lambda value: (value.value, value.tzinfo is None),
    ("pandas", "Timedelta"): lambda value: value.value,
}
"""What makes an object of a library equal to another of its class, by package and name of the class."""


def _same_content(thing: Any, other: Any) -> bool | None:
    """Return whether a stand-in gives the plain data that the tests' object of _CONTENT has; None elsewhere.

    The submission gives that data without a look at the tests' object, as it would give the data itself.
    """
    kind = type(other)
    key = (str(kind.__module__).partition(".")[0], kind.__name__)
    known = key in _CONTENT and vars(sys.modules[key[0]]).get(key[1]) is kind
    if not known or _level(thing) != FOUND or not _opaque(thing):
        return None
    return _short(type(thing)) == key[1] and bool(_CONTENT[key](thing) == _CONTENT[key](other))


def _order(operation: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, Thing) or _level(self) == MADE:
            return _peer().ask(operation, self, other)
        if operation in ("eq", "ne") and (same := _same_content(self, other)) is not None:
            return same == (operation == "eq")
        if operation in ("eq", "ne") or not _plain(other):
            return NotImplemented
        raise Refused("an object of the submission would be compared with the tests' own plain data")

    return method


def _contains(self: Any, item: Any) -> Any:
    if isinstance(item, Thing) or _level(self) == MADE:
        return _peer().ask("contains", self, item)
    try:
        items = iter(self)
    except TypeError:
        raise Refused("an object of the submission would say that it contains plain data") from None
    return any(each is item or each == item for each in items)


def _forward_call(self: Any, /, *args: Any, **names: Any) -> Any:
    value = _ask(self, "call", list(args), names)
    if not object.__getattribute__(self, "_gem_compares"):
        return value
    alone = all(isinstance(each, Thing) and _level(each) < TAINTED for each in (*args, *names.values()))
    return value if alone else _taint(value, COMPARED)


def _forward_exit(self: Any, kind: Any, error: Any, tb: Any) -> Any:
    swallowed = _peer().ask("exit", self, error)
    if swallowed:
        _peer().note_suppressed(error)
    return swallowed


async def _forward_aexit(self: Any, kind: Any, error: Any, tb: Any) -> Any:
    swallowed = await _peer().ask("aexit", self, error)
    if swallowed:
        _peer().note_suppressed(error)
    return swallowed


def _forward_await(self: Any) -> Any:
    yield from ()  # this is a generator, as what can be awaited has to be
    return _peer().ask("await", self)


def _forward_send(self: Any, value: Any) -> Any:
    raise StopIteration(_peer().ask("await", self))


class _Forwarded:
    """An attribute of a submission's class that a stand-in's has too, or a builtin type differently."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, thing: Any, kind: Any) -> Any:
        if thing is None:
            return _peer().ask("getattr", kind, self._name)
        compares = _level(thing) != MADE and _compares(self._name)
        native = getattr(_base(kind, (*SCALARS, *CONTAINERS)), self._name, None) if compares else None
        if native is not None:
            return native.__get__(thing)
        value = _peer().ask("getattr", thing, self._name)
        return _note_comparison(value) if compares else value

    def __set__(self, thing: Any, value: Any) -> None:
        _peer().ask("setattr", thing, self._name, value)


def _method(name: str) -> Any:
    operation, kind = SPECIAL_METHODS[name]
    match kind:
        case "binary" | "swapped":
            return _binary(operation, name, swapped=kind == "swapped")
        case "in place":
            return _binary(operation, name, swapped=False)
        case "order":
            return _order(operation)
        case "contains":
            return _contains
        case "call":
            return _forward_call
        case "exit":
            return _forward_exit if operation == "exit" else _forward_aexit
        case "await":
            return _forward_await
        case _:
            return _one(operation)


_METHODS = {name: _method(name) for name in SPECIAL_METHODS}
_KNOWN_NAMES = {
    *SPECIAL_METHODS,
    *(name for kind in (object, types.FunctionType, types.MethodType, Exception) for name in dir(kind)),
    *("__mro__", "__bases__", "__members__", "__slots__", "__wrapped__", "__subclasses__", "__name__"),
    *("__dataclass_fields__", "__match_args__", "__annotations__", "__orig_bases__", "__abstractmethods__"),
}
_NATIVE = {"__hash__", "__contains__", "__init__", *(f"__{name}__" for name in _ORDER)}
_MEASURES = frozenset({"abs", "all", "any", "empty", "item", "max", "mean", "min", "norm", "std", "sum"})
"""Attributes that say how large a difference is, in whatever library."""

_DIFFERENCES = (("datetime", "timedelta"), ("decimal", "Decimal"), ("fractions", "Fraction"))
"""Classes of plain data that are the difference of two values, by module and name."""

_PREDICATES = frozenset(
    {
        *("startswith", "endswith", "isdisjoint", "issubset", "issuperset", "equals"),
        *("difference", "symmetric_difference"),
    }
)
"""Methods of data that compare it with their argument, as `==` does; unittest calls `difference` of sets."""

_OF_FRAMES = frozenset({*_ORDER, "isin", "between", "compare", "sub", "subtract", "rsub"})
"""Such of pandas alone; elsewhere these names have other meanings."""

_ONE_OPERAND = frozenset({"iter", "next", "len", "bool", "repr", "str", "hash"})
_PRIVATE = re.compile(r"_|(gi|cr|ag|f|tb|co|func)_")


class Space(dict[str, Any]):
    """The namespace of the tests; names that are missing in it are the submission's."""

    theirs: frozenset[str] = frozenset()
    entry: str = ""
    imported: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    modules: Mapping[str, str] = {}

    def __missing__(self, name: str) -> Any:
        """Return the submission's object of that name.

        An unknown name is no one's: a submission that defines it has guessed at the tests, and would decide
        what they compare with.
        """
        if name in self.unknown:
            raise KeyError(name)
        if name == self.entry.partition(".")[0]:
            value = _peer().ask("entry" if name not in self.theirs else "name", name)
        elif name in self.imported:
            if name not in self.theirs:
                _peer().heard = True
                raise NameError(f"name {name!r} is not defined", name=name)
            value = _peer().ask("name", name)
        elif name in self.modules and (name in self.theirs or not hasattr(builtins, name)):
            value = self[name] = __import__(self.modules[name])  # nor asks another's idea of math
        elif name in self.theirs and not hasattr(builtins, name):  # no test calls another's idea of abs()
            value = _peer().ask("name", name)
        else:
            _peer().heard |= not hasattr(builtins, name)  # that the submission has no such name
            raise KeyError(name)
        if isinstance(value, (Thing, Stand)):
            self[name] = value
        if isinstance(value, Stand) and name in (peer := _peer()).classes:
            peer.tested[value] += 1
        return value


class Tester(Peer):
    """The tests' end of the connection; it trusts nothing that it receives."""

    def __init__(self, fd: int, classes: Iterable[str]) -> None:
        super().__init__(fd, 0)
        self.classes = frozenset(classes)
        self.received: collections.Counter[Any] = collections.Counter()  # how often each class was the value
        self.tested: collections.Counter[Any] = collections.Counter()  # of these, for its own name
        self.space = Space()
        self.foreign: BaseException | None = None
        self.failed: BaseException | None = None  # an assert of the tests, which the submission caught
        self.refused: Refused | None = None
        self.ended = False
        self.heard = True  # something of the submission, other than its names: its errors may be its own
        self.asserts: list[range] = []  # the lines of those that can hold
        self.stops = False

    def read(self, source: str) -> ast.Module:
        """Parse the tests, with own calls in `except` clauses and for methods whose result is not used."""
        tree = ast.parse(source, "tests.py")
        self.stops = re.search(r"StopIteration|yield|send|throw", source) is not None
        self.space |= {"__caught__": self.caught, "__drop__": self.drop, "__step__": lambda: step() and False}
        self.space |= {"__tell__": _tell, "__peer__": self, "isinstance": is_instance}
        theirs = {*self.space.theirs, *self.space.imported, self.space.entry} - bound_names(tree)
        for node in list(ast.walk(tree)):
            match node:
                case ast.Assert() if not isinstance(node.test, ast.Constant):
                    self.asserts.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    stepped = ast.Call(ast.Name("__step__", ast.Load()), [], [])
                    node.test = ast.BoolOp(ast.Or(), [stepped, node.test])
                    ast.fix_missing_locations(ast.copy_location(node.test, node))
                    if node.msg is not None and not any(isinstance(n, _WAITS) for n in ast.walk(node.msg)):
                        later = ast.parse("__tell__(lambda: 0)", mode="eval").body
                        cast(Any, later).args[0].body = node.msg
                        node.msg = ast.fix_missing_locations(ast.copy_location(later, node.msg))
                case ast.ClassDef(body=body):  # where a name that is missing would be no one's
                    loads = {each.id for each in _names(node) if isinstance(each.ctx, ast.Load)}
                    if names := sorted(loads & theirs):
                        place = int(ast.get_docstring(node, clean=False) is not None)
                        body.insert(place, ast.copy_location(ast.Global(names), node))
                case ast.ExceptHandler(type=ast.AST() as kinds) if not _builtin(kinds):
                    noted = ast.Expr(ast.Call(ast.Name("__caught__", ast.Load()), [], []))
                    node.body.insert(0, ast.fix_missing_locations(ast.copy_location(noted, node.body[0])))
                case ast.Expr(value=ast.Call(func=ast.Attribute() as function) as call):
                    if function.attr.startswith("assert"):
                        self.asserts.append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    call.args.insert(0, function)
                    call.func = ast.copy_location(ast.Name("__drop__", ast.Load()), call)
        return tree

    def drop(self, function: Any, /, *args: Any, **names: Any) -> None:
        """Call a function without its result."""
        if isinstance(function, Thing):
            self.ask("drop", function, list(args), names)
        else:
            if str(getattr(function, "__name__", "")).startswith("assert"):
                step()
                if "unittest.case" in sys.modules:
                    vars(sys.modules["unittest.case"])["isinstance"] = is_instance
            function(*args, **names)

    def caught(self) -> None:
        """Record a failure of the tests that an `except` clause for an error of the submission caught."""
        error = sys.exc_info()[1]
        ours = error is not self.foreign and not isinstance(type(error), Stand)
        if ours and (isinstance(error, AssertionError) or not isinstance(error, Exception)):
            self.failed = error

    def note_suppressed(self, error: BaseException | None) -> None:
        """Record a failed assert that the submission suppressed, in a context manager or of a callback.

        Tests may want other exceptions, even of `assert False`, to be suppressed.
        """
        if type(error) is not AssertionError or error is self.foreign or (tb := error.__traceback__) is None:
            return
        line = 0  # the tests' last; an assert of unittest fails in a module of its own
        while tb is not None:
            line = tb.tb_lineno if tb.tb_frame.f_code.co_filename == "tests.py" else line
            tb = tb.tb_next
        if any(line in lines for lines in self.asserts):
            self.failed = error

    def ask(self, operation: str, *operands: Any) -> Any:
        """Ask the submission's process to do something; its StopIteration cannot end loops of the tests."""
        self.heard = True
        try:
            return super().ask(operation, *operands)
        except StopIteration as error:
            if operation == "next" or self.stops:
                raise
            raise RuntimeError("the submission raised StopIteration") from error
        except AssertionError as error:
            if error is self.failed:  # it was not suppressed
                self.failed = None
            raise

    def begin(self) -> None:
        """Receive the names of the submission."""
        kind, _, names = self._receive()
        if kind != "names" or not all(isinstance(name, str) for name in names):
            raise Garbled("no names")
        self.space.theirs = frozenset(names)
        self.heard = False

    def receive_output(self, text: str) -> None:
        """Print what the submission printed, for tests that look at it."""
        if text:
            sys.stdout.write(str(text))

    def note_error(self, error: BaseException) -> None:
        """Record that this exception is the submission's, not an assert's."""
        self.foreign = error

    def note_end(self) -> Gone:
        """Record that the submission's process ended, which tests with a bare `except` would not notice."""
        self.ended = True
        return super().note_end()

    def perform(self, operation: str, operands: list[Any]) -> Any:
        """Perform an operation on an object of the tests, if the submission may: use it, not inspect it."""
        if operation not in OPERATIONS or not operands:
            raise TypeError("no such operation")
        thing = operands[0]
        lent = [id(each) in self._own_numbers for each in operands[:2]]
        if not (lent[0] or (operation in _BINARY and any(lent))):
            raise TypeError(f"{operation} of what is not the tests'")
        used = [each for each, own in zip(operands, lent, strict=False) if own]
        if any(isinstance(each, BaseException) or not _lendable(each) for each in used):
            raise TypeError(f"{operation} of what the submission may only pass on")
        if operation != "call" and any(_function(each) or isinstance(each, type) for each in used):
            raise TypeError(f"{operation} of what the submission may only call")
        if operation in _ONE_OPERAND and len(operands) != 1:
            raise TypeError(f"{operation} takes one operand")
        if operation in ("getattr", "setattr", "delattr"):
            if not _lendable_name(thing, *operands[1:], reads=operation == "getattr"):
                raise AttributeError(f"{operation} of a name that is not the submission's to use")
            if operation == "getattr" and not _lendable(attribute := getattr(thing, operands[1])):
                raise AttributeError(operands[1])
            if operation == "getattr":
                return attribute
        elif operation in ("copy", "deepcopy", "dir", "format"):
            raise TypeError(f"{operation} of an object of the tests")
        try:
            return super().perform(operation, operands)
        except AssertionError as error:
            self.note_suppressed(error)
            raise

    def meet(self, thing: Any) -> Any:
        """Return a stand-in that was received again: from here on it is found, even if the tests made it."""
        if isinstance(thing, Thing):
            object.__setattr__(thing, "_gem_met", True)
            object.__setattr__(thing, "_gem_level", max(FOUND, _level(thing)))
        return thing

    def encode_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return the number of an object of the submission or of the tests."""
        if isinstance(kind, Stand) or kind is Stand:
            return {"o": type.__getattribute__(value, "_gem_number") if kind is Stand else _number(value)}
        if not _lendable(value):
            raise TypeError(f"a {kind.__name__} of the tests cannot be given to the submission")
        number = self.number_of(value)
        if isinstance(value, BaseException):
            vars(value)["_gem_lent"] = True
            base = next((each for each in kind.__mro__ if each in _GLOBAL), Exception)
            args = [self.encode(each, depth + 1) if _tells(each) else repr(each) for each in value.args]
            return {"h": number, "K": {"g": _GLOBAL[base]}, "c": kind.__name__, "e": args}
        name, doc = getattr(value, "__name__", kind.__name__), getattr(value, "__doc__", None)
        doc = doc if type(doc) is str else None
        module = "" if isinstance(value, type) else str(kind.__module__)
        return {"h": number, "f": _function(value), "c": name, "d": doc, "m": module, "k": kind.__name__}

    def decode_object(self, value: dict[str, Any]) -> Any:
        """Return the stand-in for an object or a class of the submission."""
        kind = self._class(value["K"])
        if "h" not in value:
            self.received[kind] += 1
            return kind
        number = value["h"]
        if not isinstance(number, int):
            raise Garbled("an object without a number")
        thing = self.stand_in(number)
        if thing is not None:
            self.meet(thing)
        else:
            thing = self._stand_in(value, kind)
            if issubclass(type(thing), Thing):
                object.__setattr__(thing, "_gem_number", number)
                self.keep(number, thing)
                if "l" in value:
                    self._share_stand_in(thing, *value["l"])
        return thing

    def _stand_in(self, value: dict[str, Any], kind: Any) -> Any:
        if issubclass(kind, BaseException):
            error = kind.__new__(kind, *(args := [self.decode(each) for each in value["e"]]))
            if not isinstance(kind, Stand):  # or else that was done over there
                error.__init__(*args)
                vars(error)["_gem_foreign"] = True
            if value.get("b") is not None:
                object.__setattr__(error, "__cause__", self.decode(value["b"]))
            return error
        if not isinstance(kind, Stand):
            raise Garbled("an object of no class of the submission")
        if (base := _base(kind, SCALARS)) is not None:
            return base.__new__(kind, self.decode(value["p"]))  # type: ignore[call-overload]
        if (base := _base(kind, CONTAINERS)) is not None:
            return base.__new__(kind)  # type: ignore[call-overload]
        return object.__new__(kind)  # type: ignore[arg-type]

    def _share_stand_in(self, container: Any, number: Any, name: str, contents: Any) -> None:
        base = _SPECIAL[name]
        if number in self._shared or not isinstance(number, int) or not issubclass(type(container), base):
            raise Garbled("a container's number that is taken")
        self._share(number, container, base)
        self._fill(number, container, base, contents, None)

    def _class(self, described: Any) -> Any:
        """Return the class that stands in for one of the submission, or the builtin one."""
        if isinstance(described, dict):
            return _GLOBALS[described["g"]]
        if isinstance(described, int):
            return self._kept[described]
        number, name, qualname, module, bases, names = described
        theirs = module == "submission"
        ours = [self._class(base) for base in bases]
        known = None if theirs else _library_class(module, name)
        if known is not None and _is_error(known):  # which the tests may catch by its name
            ours = [known, *(base for base in ours if not issubclass(known, base))]
        over = [base for base in ours if base is not object]
        truth = None
        if not any(isinstance(base, Stand) for base in over):
            for plain_base in filter(lambda each: issubclass(each, (*SCALARS, *CONTAINERS)), over):
                truth = getattr(plain_base, "__bool__", _has_items(plain_base))
            over = [Thing, *over]
        elif Thing in over:
            over.remove(Thing)
        over.sort(key=lambda base: not isinstance(base, Stand) and base is not Thing)
        native = any(issubclass(base, (*SCALARS, *CONTAINERS)) for base in over)
        space: dict[str, Any] = {"__qualname__": str(qualname), "__module__": "submission"}
        space["__doc__"] = _Forwarded("__doc__")
        if names.get("__len__") or truth is not None:  # else Thing's would say that all are true
            space["__bool__"] = _METHODS["__bool__"] if names.get("__len__") else truth
        for each, there in names.items():
            if each in _METHODS:
                if native and each in _NATIVE:
                    continue
                space[each] = _METHODS[each] if there else None
            elif native and not each.startswith("_"):
                space[each] = _Forwarded(each)
        if "__eq__" in space and "__hash__" not in space:
            space["__hash__"] = None
        if "send" in names and "__await__" in names and not theirs:  # a coroutine
            space |= {"send": _forward_send, "throw": _thrown, "close": lambda self: None}
        kind = type.__new__(Stand, str(name)[:200], tuple(over), space)
        type.__setattr__(kind, "_gem_number", number)
        if module == "builtins":
            natural = next((each for each in _NATURAL if each.__name__ == name), None)
            type.__setattr__(kind, "_gem_natural", natural)
        if not theirs:
            type.__setattr__(kind, "_gem_library", (module, name))
        if isinstance(known, abc.ABCMeta) and module.partition(".")[0] in sys.stdlib_module_names:
            cast(Any, known).register(kind)
        self._kept[number] = kind
        return kind


_WAITS = (ast.Await, ast.Yield, ast.YieldFrom)


def _tell(message: Callable[[], Any]) -> Any:
    """Return the message of an assert that failed: an error in the message does not undo the failure."""
    try:
        return message()
    except Exception as error:
        return f"the message of the assert fails: {type(error).__name__}"


def _names(tree: ast.AST) -> Iterable[ast.Name]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.Name))


def bound_names(tree: ast.AST) -> set[str]:
    """Return the names that code binds in any scope."""
    bound = {each.id for each in _names(tree) if not isinstance(each.ctx, ast.Load)}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                bound.add(name)
    return bound


def _has_items(base: Any) -> Callable[[Any], bool]:
    return lambda value: bool(base.__len__(value))


def _builtin(caught: ast.expr) -> bool:
    """Return whether an `except` clause names only builtin exceptions."""
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return all(isinstance(each, ast.Name) and hasattr(builtins, each.id) for each in names)


def _thrown(self: Any, kind: Any, error: Any = None, tb: Any = None) -> Any:
    raise kind if error is None else error


def _number(thing: Any) -> int:
    return int(object.__getattribute__(thing, "_gem_number"))


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)
_INSIDES = (types.FrameType, types.CodeType, types.TracebackType, types.ModuleType, types.CellType, Peer)


def _function(value: Any) -> bool:
    return isinstance(value, _FUNCTIONS)


def _lendable(value: Any) -> bool:
    """Return whether the submission may use an object of the tests; it must not see more through it.

    Allowed are only classes that the tests define: from a builtin one it could make objects in the tests'
    process. Methods of text are not allowed, because formatting can inspect any argument.
    """
    if isinstance(value, type):
        return value.__module__ == "tests"
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, (str, bytes, type)):
        return False
    return not isinstance(value, _INSIDES)


def _lendable_name(thing: Any, name: Any, *values: Any, reads: bool) -> bool:
    """Return whether the submission may use this attribute of an object of the tests.

    It may not replace functions of the tests, and not read or write what a mock has to say of its calls.
    """
    if type(name) is not str or _PRIVATE.match(name):
        return False
    mocks = sys.modules.get("unittest.mock")
    if mocks is not None and issubclass(type(thing), mocks.NonCallableMock):
        return not hasattr(type(thing).__mro__[1], name) and all(map(_plain, values))  # [0] is of this mock
    return reads or not (
        callable(getattr(type(thing), name, None)) or callable(getattr(thing, "__dict__", {}).get(name))
    )


def _plain(value: Any) -> bool:
    """Return whether a value is plain data, which runs no code of the submission."""
    kind = type(value)
    return (
        value is None
        or kind is bool
        or kind in SCALARS
        or _value_type(kind) is not None
        or kind in CONTAINERS
        or _SPECIAL.get(kind.__name__) is kind
    )


def _modules(source: str) -> dict[str, str]:
    """Return the modules that tests use as if they had imported them, by name."""
    used = set(re.findall(r"(?<![\w.])(\w+)\s*\.", source))
    known = sys.stdlib_module_names | {"numpy", "pandas", "scipy", "sympy"}
    modules = {name: name for name in used & known}
    return modules | {name: full for name, full in (("np", "numpy"), ("pd", "pandas")) if name in used}


step: Callable[[], object] = bool  # the sandbox's: it gives an assert a budget of its own
_the_peer: Tester | None = None


def _peer() -> Tester:
    assert _the_peer is not None
    return _the_peer


def _words(error: BaseException) -> str:
    """Return the message of an error as exact text: `str` may give a stand-in, whose slice is anything."""
    try:
        return str.__str__(str(error))[:500]
    except BaseException:
        return ""


def _is_own(error: BaseException, peer: Tester, source: str, unknown: Iterable[str]) -> bool:
    """Return whether tests fail by themselves: whatever the submission does, they would fail like this.

    What a callback of the tests raised may be for the submission to catch.
    """
    kind = type(error)
    if isinstance(kind, Stand) or "_gem_foreign" in vars(error):
        return False
    if peer.heard and "_gem_lent" in vars(error):
        return False
    if not peer.heard or issubclass(kind, ImportError) or (kind is SystemExit and not error.code):  # type: ignore[attr-defined]
        return True
    if issubclass(kind, FileNotFoundError):
        path = re.escape(str(error.filename))  # type: ignore[attr-defined]
        return re.search(rf"""\b(?:open|load\w*|read_\w+)\(\s*(['"]){path}\1""", source) is not None
    return issubclass(kind, NameError) and error.name in unknown  # type: ignore[attr-defined]


def _seed_both(module: Any, peer: Tester) -> None:
    """Let the tests' `seed` of a module seed the submission's too, which is not yet a use of it."""
    seed = module.seed

    def seed_both(*args: Any, **names: Any) -> None:
        seed(*args, **names)
        if (given := [*args, *names.values()]) and all(map(_plain, given)):
            heard = peer.heard
            peer.ask("seed", module.__name__, list(args), names)
            peer.heard = heard

    module.seed = seed_both


def test(
    fd: int,
    source: str,
    preamble: str,
    name: str | None,
    classes: list[str],
    unknown: list[str],
    imported: list[str],
    question: bool,
) -> list[str] | None:
    """Run the tests; return the verdict and the reason, None if the submission ended first.

    The verdict BROKEN says that the tests fail by themselves. `imported` are names that are the submission's
    even where they are a builtin's or a module's. `unknown` are names that the task does not mention; if it
    has a `question`, they are never the submission's.
    """
    global _the_peer
    peer = _the_peer = Tester(fd, classes)
    space = peer.space
    space["__name__"] = "tests"
    sys.modules["tests"] = types.ModuleType("tests")  # for dataclasses; empty, so that it lends no class
    space.imported, space.unknown = frozenset(imported), frozenset(unknown if question else ())
    _seed_both(random, peer)
    if "seed" in (code := preamble + source) and re.search(r"\b(np|numpy)\b", code):
        with suppress(ImportError):
            _seed_both(__import__("numpy.random", fromlist=["seed"]), peer)
    try:
        peer.begin()
        if preamble.strip():
            exec(compile(preamble, "preamble.py", "exec", dont_inherit=True), space)  # noqa: S102
        if name is not None:
            space.entry = name
            space.pop(name.partition(".")[0], None)  # what is tested is the submission's
            if "__candidate__" in source:
                plain = all(each.isidentifier() for each in name.split("."))
                space["__candidate__"] = peer.ask("entry", name) if plain else eval(name, space)  # noqa: S307
        space.modules = _modules(source)
        exec(compile(peer.read(source), "tests.py", "exec", dont_inherit=True), space)  # noqa: S102
    except Gone:
        return None
    except AssertionError as error:
        return ["RE", f"AssertionError: {_words(error)}"] if error is peer.foreign else ["WA", _words(error)]
    except MemoryError:
        return ["MLE", "MemoryError"]
    except TooLong as error:
        return ["OLE", _words(error)]
    except Refused as error:
        return ["WA", _words(error)]
    except BaseException as error:
        verdict = "BROKEN" if not peer.ended and _is_own(error, peer, source, unknown) else "RE"
        return [verdict, f"{type.__getattribute__(type(error), '__name__')}: {_words(error)}"]
    if peer.ended:
        return None
    failed = peer.refused or peer.failed
    if failed is None and not peer.heard:
        return ["BROKEN", "they end without having used the submission"]
    return ["AC", ""] if failed is None else ["WA", _words(failed)]
