"""The connection between the process of the tests and that of the submission."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import _thread
import collections
import io
import itertools
import json
import operator
import os
import sys
import weakref
from typing import Any

from gem.graders.asserts.operations import OPERATIONS
from gem.graders.asserts.values import (
    ARRAY,
    CONSTANT_NAMES,
    CONSTANTS,
    CONTAINERS,
    DATACLASS_MARKS,
    GLOBAL,
    GLOBALS,
    SPECIAL,
    VALUES,
    VIEWS,
    Garbled,
    Gone,
    TooLong,
    find_base,
    find_dataclass_mark,
    find_value_type,
    is_plain_value,
    make_value,
)

LONGEST = 16 << 20
MOST_PRINTED = 1 << 20
DEEPEST = 200


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
        if kind.__name__ in SPECIAL and SPECIAL[kind.__name__] is kind:
            return self._new_container(value, kind, depth)
        if kind is tuple:
            return {"t": [self.encode(each, depth + 1) for each in value]}
        if kind is frozenset:
            return {"z": [self.encode(each, depth + 1) for each in value]}
        if kind is bytes:
            return {"b": value.hex()}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if (key := find_value_type(kind)) is not None and is_plain_value(value):
            return {"v": [*key, *(self.encode(each, depth + 1) for each in VALUES[key](value))]}
        if (constant := CONSTANT_NAMES.get(id(value)) or find_dataclass_mark(value, kind)) is not None:
            return {"k": constant}
        if issubclass(kind, type) and value in GLOBAL:
            return {"g": GLOBAL[value]}
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
        base = find_base(kind, CONTAINERS)
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
                return make_value(*content[:2], *(self.decode(each, depth + 1) for each in content[2:]))
            case "d":
                items = [
                    (self.decode(key, depth + 1), self.decode(each, depth + 1)) for key, each in content[1]
                ]
                return VIEWS[content[0]](dict(items))
            case "m":
                data = bytes.fromhex(content[0])
                return memoryview(data if content[1] else bytearray(data))
            case "k":
                if content in DATACLASS_MARKS:
                    return vars(__import__("dataclasses"))[content]
                return CONSTANTS[content]
            case "g":
                return GLOBALS[content]
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
        kind = SPECIAL[name]
        base = find_base(kind, CONTAINERS)
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
        if ARRAY.fullmatch(array.dtype.str):
            return [
                array.dtype.str,
                list(array.shape),
                array.tobytes().hex(),
                isinstance(value, numpy.generic),
            ]
    return None


def _array_of(dtype: str, shape: list[int], data: str, scalar: bool = False) -> Any:
    if not ARRAY.fullmatch(dtype):
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
