"""The submission's end of the connection, and objects of the tests as the submission sees them."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from gem.graders.asserts.operations import KEEPING, SPECIAL_METHODS
from gem.graders.asserts.peer import Peer
from gem.graders.asserts.values import (
    CONTAINERS,
    EXACT,
    GLOBAL,
    ITSELF,
    LAZY,
    SCALARS,
    VIEW_NAMES,
    Gone,
    find_base,
    find_library_class,
    is_simple,
    read_value,
)


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
        kind = self.space.get(name) if module == "tests" else find_library_class(module, name)
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
        return ITSELF if operation in KEEPING and outcome is operands[0] else outcome

    def encode_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return an object's number, its class, and its plain value if it has one."""
        if kind in _FARS:
            return {"o": object.__getattribute__(value, "_gem_number")}
        if (number := getattr(value, "_gem_number", None)) is not None and isinstance(value, BaseException):
            return {"o": number}
        if issubclass(kind, type):
            return {"K": self._describe(value)}
        if kind in VIEW_NAMES:
            items = [
                [self.encode(key, depth + 1), self.encode(each, depth + 1)]
                for key, each in dict(value.mapping).items()
            ]
            return {"d": [VIEW_NAMES[kind], items]}
        if kind is memoryview and value.format == "B" and value.ndim == 1:
            return {"m": [value.tobytes().hex(), value.readonly]}
        described = self._describe(kind, instance=True)
        fields: dict[str, Any] = {
            "h": 0 if isinstance(described, dict) else self.number_of(value),
            "K": described,
        }
        if (base := find_base(kind, SCALARS)) is not None:
            fields["p"] = self.encode(EXACT[base](value), depth + 1)
        elif (plain := read_value(value)) is not None:
            fields["p"] = self.encode(plain, depth + 1)
        elif (base := find_base(kind, CONTAINERS)) is not None:
            shared = next(self._numbers)
            self._share(shared, value, base)
            self._look(shared)
            fields["l"] = [shared, base.__name__, self._contents(self._shared[shared][2], base, depth + 1)]
        elif issubclass(kind, BaseException):
            fields["e"] = [
                self.encode(each, depth + 1) if is_simple(each) else repr(each) for each in value.args
            ]
            cause = value.__cause__
            fields["b"] = None if cause is None or depth > 5 else self.encode(cause, depth + 1)
        return fields

    def _describe(self, kind: type, *, instance: bool = False) -> Any:
        """Return a class: its number and, the first time, what its stand-in needs."""
        if kind in GLOBAL and not (instance and kind in LAZY.values()):
            return {"g": GLOBAL[kind]}
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
