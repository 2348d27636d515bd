"""Objects and classes of the submission, as the tests see them."""

# A part of the tester (see `__init__`): beside other parts it may import the standard library alone.

from __future__ import annotations

import collections
import itertools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

from gem.graders.asserts.operations import ARITHMETIC, INPLACE, KEEPING, OPERATIONS, ORDER, SPECIAL_METHODS
from gem.graders.asserts.values import (
    CONTAINERS,
    ITSELF,
    LAZY,
    OF_BASES,
    SCALARS,
    find_base,
    find_library_class,
    is_plain,
)

MADE, DERIVED, FOUND, TAINTED, COMPARED = range(5)
"""What a stand-in may decide: see docs/guides/code_checks.md. MADE: made by the tests from a class under
test, and not received again since; DERIVED: the result of operators on such; FOUND: any other; TAINTED: the
result of operators on a FOUND object and the tests' own plain data; COMPARED: such a result that is a
difference, with which tests compare by more attributes (numpy calls `.sqrt()` of objects).
"""


_peers: list[Any] = []  # of the tests' process: one


def set_peer(peer: Any) -> None:
    """Set the tests' end of the connection, a `Tester`, which every stand-in asks."""
    _peers[:] = [peer]


def get_peer() -> Any:
    """Return the tests' end of the connection."""
    return _peers[0]


class Refused(BaseException):
    """An operation in which an object of the submission would decide about the tests' own plain data.

    No test may catch it and try another operation: by then the submission has seen the data. So it is
    remembered, however it is caught.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        peer = get_peer()
        peer.refused = peer.refused or self


class Stand(type):
    """The metaclass of stand-ins for the submission's classes."""

    def __call__(cls, *args: Any, **names: Any) -> Any:
        """Make an object in the submission's process."""
        peer = get_peer()
        made = peer.ask("call", cls, list(args), names)
        if isinstance(made, Thing) and _is_new(made) and peer.received[cls] == peer.tested[cls] == 1:
            object.__setattr__(made, "_gem_level", MADE)
        return made

    def __getattr__(cls, name: str) -> Any:
        """Ask for an attribute of the class."""
        _check_known(name)
        return get_peer().ask("getattr", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        """Set an attribute of the class."""
        get_peer().ask("setattr", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        """Delete an attribute of the class."""
        get_peer().ask("delattr", cls, name)

    def __iter__(cls) -> Any:
        """Iterate over the members of an enumeration."""
        return get_peer().ask("iter", cls)

    def __len__(cls) -> Any:
        """Count its members."""
        return get_peer().ask("len", cls)

    def __getitem__(cls, key: Any) -> Any:
        """Return a member."""
        return get_peer().ask("getitem", cls, key)

    def __contains__(cls, thing: Any) -> bool:
        """Return whether it has this member."""
        return isinstance(thing, Thing) and bool(get_peer().ask("contains", cls, thing))

    def __dir__(cls) -> Any:
        """Return the names of the attributes of the submission's class, which mocks are made of."""
        return get_peer().ask("dir", cls)

    def __repr__(cls) -> str:
        """Return the repr of the submission's class."""
        return str(get_peer().ask("repr", cls))

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
    _gem_value = None  # if its class derives from one of VALUES; an annotation would hide its own ones

    def __getattr__(self, name: str) -> Any:
        _check_known(name)
        value = get_peer().ask("getattr", self, name)
        level = read_level(self)
        if (level >= TAINTED and _is_data_name(name)) or (level == COMPARED and _is_measure_name(name)):
            return _taint(value, level)
        return _note_comparison(value) if level != MADE and _compares(name) else value

    def __setattr__(self, name: str, value: Any) -> None:
        get_peer().ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        get_peer().ask("delattr", self, name)

    def __deepcopy__(self, memo: Any) -> Any:
        return _ask(self, "deepcopy")

    def __bool__(self) -> bool:
        """Return True, as objects do whose class does not say; a comparison may not give such an object."""
        if read_level(self) >= TAINTED:
            raise Refused("an object of the submission would be the truth about the tests' own plain data")
        return True

    @property
    def __class__(self) -> Any:
        """The class of this name that the tests define, if they do: both come from the same source."""
        kind = type(self)
        if (natural := type.__getattribute__(kind, "_gem_natural")) is not None:
            return natural
        own = get_peer().space.get(_short(kind))
        if isinstance(own, type) and not isinstance(own, Stand) and own.__module__ == "tests":
            return own
        return LAZY.get(_short(kind), kind)

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
    return isinstance(thing, kinds) or is_subclass(type(thing), kinds)


def is_subclass(kind: Any, kinds: Any, /) -> bool:
    """Return whether a class derives from another, for the tests' own `issubclass`; see `is_instance`."""
    if issubclass(kind, kinds):
        return True
    bases = kind.__mro__ if isinstance(kind, Stand) else ()
    names = [vars(base)["_gem_library"] for base in bases if "_gem_library" in vars(base)]
    classes = [each for each in itertools.starmap(find_library_class, names) if each is not None]
    return any(not issubclass(each, OF_BASES) and issubclass(each, kinds) for each in classes)


def _check_known(name: str) -> None:
    """Refuse special names that are not Python's; packages use them to decide which side computes."""
    if name.startswith("__") and name.endswith("__") and name not in _KNOWN_NAMES:
        raise AttributeError(name)


def read_level(thing: Any) -> int:
    """Return what a stand-in may decide."""
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
    object.__setattr__(value, "_gem_level", max(TAINTED, level, read_level(value)))
    return value


def _compares(name: str) -> bool:
    """Return whether a method of this name compares, as `==` does, what it is called with."""
    return name in _PREDICATES or (name in _OF_FRAMES and "pandas" in sys.modules)


def _note_comparison(value: Any) -> Any:
    """Return a method that compares, which is to give no plain data of the tests' own; or plain data."""
    if is_plain(value):
        return value
    if not isinstance(value, Thing):
        raise Refused("a class or a function of the tests would compare the tests' own plain data")
    object.__setattr__(value, "_gem_compares", True)
    return value


def _opaque(value: Any) -> bool:
    native = issubclass(type(value), (*SCALARS, *CONTAINERS))
    return isinstance(value, Thing) and not native and _value_of(value) is None


def _value_of(thing: Any) -> Any:
    return object.__getattribute__(thing, "_gem_value")


def _derive(value: Any, levels: set[int], operands: tuple[Any, ...]) -> Any:
    """Return the result of an operator on stand-ins of these levels, with its own level."""
    new = _opaque(value) and (_is_new(value) or any(value is each for each in operands))
    if new and levels <= {MADE, DERIVED}:
        object.__setattr__(value, "_gem_level", DERIVED)
    return value


def _ask(thing: Any, operation: str, *rest: Any) -> Any:
    level = read_level(thing)
    value = get_peer().ask(operation, thing, *rest)
    if value is ITSELF and operation in KEEPING:
        return thing
    if level >= TAINTED:
        return _taint(value, level)
    return _derive(value, {level}, (thing,)) if operation in ARITHMETIC else value


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
        if (value := _value_of(self)) is not None and plain and read_level(self) != MADE:
            return OPERATIONS[operation](*(value if each is self else each for each in (*pair, *modulus)))
        if value is None and not _opaque(self):
            base = find_base(type(self), (collections.Counter, *SCALARS, *CONTAINERS))
            if not isinstance(other, Thing) and read_level(self) != MADE:
                native = COUNTING.get(name) if base is collections.Counter else getattr(base, name, None)
                return NotImplemented if native is None else native(self, other, *modulus)
        if not isinstance(other, Thing) and not is_plain(other):
            return NotImplemented  # an object of the tests: it is asked first
        levels = {read_level(each) for each in pair if isinstance(each, Thing)}
        value = get_peer().ask(operation, *pair, *modulus)
        if value is ITSELF and operation in INPLACE:
            value = self
        if plain and "sub" in operation:  # with a difference, tests compare
            levels = {level if level == MADE else FOUND for level in levels}
        highest = max(levels)
        if highest >= TAINTED or (plain and highest == FOUND):
            return _taint(value, COMPARED if "sub" in operation else highest)
        return value if value is self and operation in INPLACE else _derive(value, levels, pair)

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
    if not known or read_level(thing) != FOUND or not _opaque(thing):
        return None
    return _short(type(thing)) == key[1] and bool(_CONTENT[key](thing) == _CONTENT[key](other))


def _check_order(levels: set[int]) -> None:
    """Refuse to order stand-ins of these levels where that would compare the tests' own plain data.

    It does in `abs(6 - x) <= 1e-9 * abs(x)`, and where a Fraction of stand-ins multiplies them crosswise.
    """
    if COMPARED in levels and not levels & {MADE, FOUND}:
        raise Refused("an object of the submission would say how large a difference is")
    if levels == {TAINTED} and sys._getframe(2).f_globals.get("__name__") not in _ORDERING:
        raise Refused("code of a library would let objects of the submission order the tests' own plain data")


def _order(operation: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, Thing) or read_level(self) == MADE:
            levels = {read_level(each) for each in (self, other) if isinstance(each, Thing)}
            if operation not in ("eq", "ne"):
                _check_order(levels)
            return get_peer().ask(operation, self, other)
        if (value := _value_of(self)) is not None and is_plain(other):
            return OPERATIONS[operation](value, other)
        if operation in ("eq", "ne") and (same := _same_content(self, other)) is not None:
            return same == (operation == "eq")
        if operation in ("eq", "ne") or not is_plain(other):
            return NotImplemented
        raise Refused("an object of the submission would be compared with the tests' own plain data")

    return method


def _contains(self: Any, item: Any) -> Any:
    if isinstance(item, Thing) or read_level(self) == MADE:
        return get_peer().ask("contains", self, item)
    try:
        items = iter(self)
    except TypeError:
        raise Refused("an object of the submission would say that it contains plain data") from None
    return any(each is item or each == item for each in items)


def _forward_call(self: Any, /, *args: Any, **names: Any) -> Any:
    value = _ask(self, "call", list(args), names)
    if not object.__getattribute__(self, "_gem_compares"):
        return value
    alone = all(isinstance(each, Thing) and read_level(each) < TAINTED for each in (*args, *names.values()))
    return value if alone else _taint(value, COMPARED)


def _forward_exit(self: Any, kind: Any, error: Any, tb: Any) -> Any:
    swallowed = get_peer().ask("exit", self, error)
    if swallowed:
        get_peer().note_suppressed(error)
    return swallowed


async def _forward_aexit(self: Any, kind: Any, error: Any, tb: Any) -> Any:
    swallowed = await get_peer().ask("aexit", self, error)
    if swallowed:
        get_peer().note_suppressed(error)
    return swallowed


def _forward_await(self: Any) -> Any:
    yield from ()  # this is a generator, as what can be awaited has to be
    return get_peer().ask("await", self)


def forward_send(self: Any, value: Any) -> Any:
    """Await a coroutine of the submission: what `send` does in its stand-in's class."""
    raise StopIteration(get_peer().ask("await", self))


class Forwarded:
    """An attribute of a submission's class that a stand-in's has too, or a builtin type differently."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, thing: Any, kind: Any) -> Any:
        if thing is None:
            return get_peer().ask("getattr", kind, self._name)
        compares = read_level(thing) != MADE and _compares(self._name)
        native = getattr(find_base(kind, (*SCALARS, *CONTAINERS)), self._name, None) if compares else None
        if native is not None:
            return native.__get__(thing)
        value = get_peer().ask("getattr", thing, self._name)
        return _note_comparison(value) if compares else value

    def __set__(self, thing: Any, value: Any) -> None:
        get_peer().ask("setattr", thing, self._name, value)


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


METHODS = {name: _method(name) for name in SPECIAL_METHODS}


def _count(name: str) -> Any:
    swapped = name.startswith("__r")
    native = getattr(collections.Counter, name.replace("__r", "__"))

    def method(self: Any, other: Any) -> Any:
        exact = collections.Counter[Any]()
        for key, count in dict.items(self):
            dict.__setitem__(exact, key, count)
        if swapped and not isinstance(other, collections.Counter):
            return NotImplemented
        return native(other, exact) if swapped else native(exact, other)

    return method


COUNTING = {
    name: _count(name)
    for each in (*ORDER, "add", "sub", "and", "or", "radd", "rsub", "rand", "ror")
    for name in (f"__{each}__",)
}
"""Operators of a subclass of Counter. Counter's own would ask it how often it has each key of the tests."""

_KNOWN_NAMES = {
    *SPECIAL_METHODS,
    *(name for kind in (object, types.FunctionType, types.MethodType, Exception) for name in dir(kind)),
    *("__mro__", "__bases__", "__members__", "__slots__", "__wrapped__", "__subclasses__", "__name__"),
    *("__dataclass_fields__", "__match_args__", "__annotations__", "__orig_bases__", "__abstractmethods__"),
}
NATIVE = {"__hash__", "__contains__", "__init__", *(f"__{name}__" for name in ORDER)}
_MEASURES = frozenset({"abs", "all", "any", "empty", "item", "max", "mean", "min", "norm", "std", "sum"})
"""Attributes that say how large a difference is, in whatever library."""

_DIFFERENCES = (("datetime", "timedelta"), ("decimal", "Decimal"), ("fractions", "Fraction"))
"""Classes of plain data that are the difference of two values, by module and name."""

_ORDERING = frozenset({"tests", "unittest.case", "heapq"})
"""Modules in whose code two results of operators may order themselves: they compute nothing of them."""

_PREDICATES = frozenset(
    {
        *("startswith", "endswith", "isdisjoint", "issubset", "issuperset", "equals"),
        *("difference", "symmetric_difference"),
    }
)
"""Methods of data that compare it with their argument, as `==` does; unittest calls `difference` of sets."""

_OF_FRAMES = frozenset({*ORDER, "isin", "between", "compare", "sub", "subtract", "rsub"})
"""Such of pandas alone; elsewhere these names have other meanings."""


def make_truth(base: Any) -> Callable[[Any], bool]:
    """Return the `__bool__` of a class that derives from a builtin one with a length."""
    return lambda value: bool(base.__len__(value))


def throw(self: Any, kind: Any, error: Any = None, tb: Any = None) -> Any:
    """Raise an error: what `throw` does in the class of a coroutine's stand-in."""
    raise kind if error is None else error


def read_number(thing: Any) -> int:
    """Return the number by which both processes know a stand-in's object."""
    return int(object.__getattribute__(thing, "_gem_number"))
