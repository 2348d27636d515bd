"""The data that an environment is made from: EnvSpec for an id, TaskRef for one environment as plain data.

A task has JSON values only. Other values are written as the call that makes them again. An object of a class
that remembers its constructor's arguments (environments, tools, graders), of a dataclass or of an Enum is
``{"$make": "module:Class", "args": [...], "kwargs": {...}}``. A class or a function of a module is
``{"$callable": "module:name"}``. Tuples become lists.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, EnumType
from numbers import Integral, Real
from operator import attrgetter
from os import PathLike, fspath
from typing import Any, ClassVar, Literal, NamedTuple, Self, SupportsIndex, TypeAlias

from gem.errors import BadArgument, GemError, UnknownArgument, check_argument, did_you_mean
from gem.plugins import load
from gem.source_files import reduced_with_source

Solver = Literal["exact", "measured", "oracle", "none"]
SOLVERS: tuple[Solver, ...] = ("exact", "measured", "oracle", "none")

LARGEST = 10_000
"""Limit on values and characters in one argument of a task; a larger argument is data, and is refused."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources of a cluster node that a worker reserves for one kind of environment.

    `cores`: processor cores per worker. `memory_mb`: memory per environment. `sandbox`: the node must have a
    sandbox that passes its isolation self-test. `resources`: other named resources of the cluster, such as
    ``{"kvm": 1}``, per worker.
    """

    cores: float = 1.0
    memory_mb: float = 0.0
    sandbox: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values below 0."""
        for name, value in {"cores": self.cores, "memory_mb": self.memory_mb, **self.resources}.items():
            if not 0 <= value < math.inf:
                raise BadArgument(f"an environment needs {name}={value}; accepted: 0 or more.")


Chance: TypeAlias = tuple[float, str]
"""What an answer earns on average that does not depend on the observation, as a share of the full reward, and
the reason why it may."""


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """The definition of an environment id, and the environment's claims; the contract suite tests the claims.

    `entry_point`: a class or function, or its ``"module:name"``. `extra`: the pip extra it needs. `data`: the
    name of the data set it reads; without the data set, making the environment raises MissingData.
    `max_turns`: turns after which the task itself ends, where it states a number. `deterministic`: the same
    seed and actions give the same transcript. `forkable`: it can be forked. `thread_safe`: instances can run
    in different threads. `waits`: its calls wait for something outside (a sandbox, a server, a network), so
    it is best to run many at the same time. `solver`: ``exact`` wins every episode with the full reward,
    ``measured`` wins a share `solver_rate` of them, ``oracle`` reads the hidden answer, ``none``. `seats`:
    the seats that act; other seats than ``agent`` mean that it is a `gem.seats.SeatedEnv`, whose solver
    plays every seat. `needs`: the resources it needs on a cluster node. `chance`: the share of the full
    reward that an answer earns on average that does not depend on the observation, and why it does, as
    ``(0.5, "the answer is yes or no")``. `splits`: the values of its keyword ``split``, where its tasks are
    divided; a run of training takes ``train`` alone. `source`: the id whose tasks of a seed these are too, as
    where another one plays the other seats; empty: its own.
    """

    id: str
    entry_point: str | Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None
    data: str | None = None
    max_turns: int | None = None
    deterministic: bool = True
    forkable: bool = True
    thread_safe: bool = True
    waits: bool = False
    solver: Solver = "none"
    solver_rate: float | None = None
    seats: tuple[str, ...] = ("agent",)
    needs: Needs = field(default_factory=Needs)
    chance: Chance | None = None
    splits: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse a malformed id and an invalid claim."""
        if not self.id or any(c.isspace() for c in self.id):
            raise BadArgument(f"env id is {self.id!r}; accepted: family:Name[-vN][-variant], no spaces.")
        check_argument("solver", self.solver, self.solver in SOLVERS, ", ".join(SOLVERS))
        if (self.solver == "measured") != (self.solver_rate is not None):
            raise BadArgument(f"{self.id}: solver_rate is for a measured solver, which needs it.")
        if self.chance is not None and not (0 < self.chance[0] <= 1 and self.chance[1]):
            raise BadArgument(
                f"{self.id}: chance is {self.chance!r}; accepted: a level above 0 and at most 1, and its "
                "reason."
            )

    @property
    def family(self) -> str:
        """The part of the id before the colon."""
        return self.id.partition(":")[0]


def solver_claims(solver: Solver | float) -> dict[str, Any]:
    """Return the solver claims of a spec; a number is the win rate of a measured solver."""
    if isinstance(solver, float):
        return {"solver": "measured", "solver_rate": solver}
    return {"solver": solver}


@dataclass(frozen=True, slots=True)
class WrapperRef:
    """A wrapper's name in the wrapper factory, or ``module:function``; its keywords are JSON values."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRef:
    """Plain data that makes one environment again, in this process or another: ``gem.make(task)``.

    `spec`: the id, or ``module:Class`` of an environment that is not registered. `kwargs`: every keyword of
    its constructor, as JSON values. `wrappers`: its wrappers, the innermost first. `seed`: the seed of the
    episode; None: any. `entry_point`: ``module:name`` of the entry point of the id, so that a process that
    does not know the id can make it too. `opaque`: the names of the arguments that cannot be stored (a
    lambda, a live tokenizer, an agent, data); such a task can be played, but not made again.

    `foreign`: it was read from a file, and is not checked yet. Making a task imports and calls what it names,
    so a foreign one is checked first: `gem.trust` says what it may name. Every decoder of gem sets this; a
    program that makes tasks from text of others by itself sets it too. It is no part of the stored task.
    """

    spec: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[WrapperRef, ...] = ()
    seed: int | None = None
    entry_point: str | None = None
    opaque: tuple[str, ...] = ()
    foreign: bool = field(default=False, compare=False, repr=False)


class Rebuildable:
    """A base class that remembers the constructor's arguments, so that the object can be made again."""

    _init: tuple[tuple[Any, ...], dict[str, Any]]

    _secret_arguments: ClassVar[tuple[str, ...]] = ()
    """The arguments that may hold passwords or keys: they are never stored."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments.

        Raises:
            UnknownArgument: for any, in a class without ``__init__``. BadArgument: for one that is no number,
                or truth value, where a class of gem's says that it is.
        """
        plain = cls.__init__ is object.__init__ and cls.__new__ is Rebuildable.__new__  # they take anything
        if (args or kwargs) and plain:
            raise UnknownArgument(f"{cls.__name__}() has no __init__ and takes no arguments.")
        kinds = _kinds_of(cls)  # type: ignore[arg-type]
        for name, value in (*zip(parameters_of(cls), args, strict=False), *kwargs.items()):
            if kind := kinds.get(name):
                check_argument(name, value, kind.is_kind(value), kind.accepted)
        self = super().__new__(cls)
        self._init = (args, kwargs)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle it; if its class is of a file, the pickle carries the file."""
        return reduced_with_source(type(self), super().__reduce_ex__(protocol))


class Unwritable(ValueError):
    """A value that cannot be stored as JSON."""


def parameters_of(callee: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that the author of a class or function declared, by name."""
    if not isinstance(callee, type):
        return dict(inspect.signature(callee).parameters)
    return _declared_by(callee)


@functools.cache
def _declared_by(callee: type) -> dict[str, inspect.Parameter]:
    # Asked for the class, some versions of Python show Rebuildable.__new__, which takes anything.
    init: Any = next(vars(base)["__init__"] for base in callee.__mro__ if "__init__" in vars(base))
    if init is object.__init__:
        return {}
    return dict([*inspect.signature(init).parameters.items()][1:])


class _Kind(NamedTuple):
    """A kind of argument that every constructor of gem's refuses anything else for."""

    is_kind: Callable[[Any], bool]
    accepted: str


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and value == value


def _or_none(is_kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_kind(value)


_KINDS = {
    "bool": _Kind(lambda value: type(value).__name__ in ("bool", "bool_"), "True or False"),
    "int": _Kind(_is_whole, "a whole number"),
    "float": _Kind(_is_number, "a number"),
}
_KINDS |= {
    f"{name} | None": _Kind(_or_none(kind.is_kind), f"{kind.accepted} or None")
    for name, kind in _KINDS.items()
}


@functools.cache
def _kinds_of(callee: Any) -> dict[str, _Kind]:
    """Return the kinds of a constructor's arguments by their annotations; none for classes of others."""
    owner = next(base for base in callee.__mro__ if "__init__" in vars(base))
    if not owner.__module__.startswith("gem."):
        return {}
    kinds = {name: str(each.annotation) for name, each in _declared_by(callee).items()}
    return {name: _KINDS[kind] for name, kind in kinds.items() if kind in _KINDS}


def check_keywords(callee: Callable[..., Any], kwargs: Iterable[str], name: str) -> None:
    """Refuse keywords that `callee` does not declare.

    Raises:
        UnknownArgument: with the keywords it takes.
    """
    parameters = parameters_of(callee).values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    check_accepted(accepted, kwargs, name)


def check_accepted(accepted: Sequence[str], keywords: Iterable[str], name: str, *own: str) -> None:
    """Refuse keywords that are not among `accepted`; the message of `name` also lists `own`.

    Raises:
        UnknownArgument: with the keywords that are accepted.
    """
    for keyword in keywords:
        if keyword not in accepted:
            takes = ", ".join([*own, *accepted]) or "no keywords"
            raise UnknownArgument(
                f"{name} does not take {keyword!r}.{did_you_mean(keyword, accepted)} It takes: {takes}."
            )


class _Nameless:
    """A placeholder for constructor arguments that have no keyword."""


def arguments_of(made: Rebuildable) -> dict[str, Any]:
    """Return the arguments that the constructor got, by parameter name."""
    args, kwargs = made._init
    parameters = parameters_of(type(made))
    if not parameters:
        return {}
    bound = inspect.Signature([*parameters.values()]).bind(*args, **kwargs).arguments
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound |= bound.pop(name, {})
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) and name in bound:
            bound[name] = _Nameless()
    return bound


def written_arguments(owner: type, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments that can be stored, and ``Class.name`` of those that cannot."""
    plain: dict[str, Any] = {}
    opaque: list[str] = []
    secret = getattr(owner, "_secret_arguments", ())
    for name, value in arguments.items():
        try:
            if name in secret and value is not None:
                raise Unwritable("it may hold a password or a key")
            plain[name] = write_value(value)
        except Unwritable:
            opaque.append(f"{owner.__name__}.{name}")
    return plain, tuple(opaque)


def write_value(value: Any) -> Any:
    """Return `value` in a form that JSON can hold; `restore_value` reverses it.

    Raises:
        Unwritable: for a value that could not be restored.
    """
    try:
        return _Writer()(value)
    except RecursionError:
        raise Unwritable("it is nested too deeply") from None


class _Writer:
    """A converter of one argument to JSON values, with a limit on its size."""

    def __init__(self) -> None:
        self.left = LARGEST

    def __call__(self, value: Any) -> Any:
        self.left -= 1 + (len(value) if isinstance(value, str) else 0)
        if self.left < 0:
            raise Unwritable("it is too large: data is not part of a task")
        if isinstance(value, Enum) and value.name in type(value).__members__:
            return self.making(value, [value.name])
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, float):
            number = float(value)
            return number if math.isfinite(number) else {"$make": "builtins:float", "args": [repr(number)]}
        if isinstance(value, Integral):  # numpy's too
            whole = int(value)
            return whole if whole.bit_length() < 64 else {"$make": "builtins:int", "args": [hex(whole), 16]}
        if type(value) in (list, tuple):
            return [self(each) for each in value]
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) and not key.startswith("$") for key in value):
                raise Unwritable("its keys are not all text, or one begins with $")
            return {str(key): self(each) for key, each in value.items()}
        if isinstance(value, PathLike):
            return {"$make": "pathlib:Path", "args": [self(fspath(value))]}
        if isinstance(value, Rebuildable):
            given = arguments_of(value)
            if any(given.get(name) is not None for name in value._secret_arguments):
                raise Unwritable("it may hold a password or a key")
            return self.making(value, [], given)
        if is_dataclass(value) and not isinstance(value, type):
            return self.making(value, [], {f.name: getattr(value, f.name) for f in fields(value) if f.init})
        if callable(value) and (name := name_of(value)):
            return {"$callable": name}
        raise Unwritable(f"a {type(value).__name__} cannot be written down")

    def making(self, value: Any, args: list[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the ``$make`` form of an object."""
        name = name_of(type(value))
        if name is None:
            raise Unwritable(f"its class {type(value).__name__} cannot be imported")
        parts = {"args": [self(each) for each in args], "kwargs": self(kwargs or {})}
        return {"$make": name, **{part: each for part, each in parts.items() if each}}


def restore_value(value: Any) -> Any:
    """Return the value that `write_value` converted.

    Raises:
        BadArgument: for a name that cannot be imported, or a ``$make`` that `write_value` never writes.
    """
    try:
        return _restore(value)
    except RecursionError:
        raise BadArgument("an argument of a task is nested too deeply.") from None


def _restore(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_restore, value))
    if not isinstance(value, Mapping):
        return value
    if "$callable" in value:
        return _load(value["$callable"])
    if "$make" in value:
        name = value["$make"]
        made = _load(name)
        plain = name in ("builtins:int", "builtins:float", "pathlib:Path")
        ours = isinstance(made, type) and (issubclass(made, (Rebuildable, Enum)) or is_dataclass(made))
        if not (plain or ours):
            raise BadArgument(f"$make is {name!r}; accepted: an Env, a tool, a grader, a dataclass, an Enum.")
        args, kwargs = _restore(value.get("args", [])), _restore(value.get("kwargs", {}))
        try:
            return made[args[0]] if isinstance(made, EnumType) else made(*args, **kwargs)
        except (TypeError, ValueError, LookupError) as error:
            if isinstance(error, GemError):
                raise
            raise BadArgument(f"a task makes {name!r} with {args!r:.80}, {kwargs!r:.80}: {error}") from error
    return {key: _restore(each) for key, each in value.items()}


def _load(name: Any) -> Any:
    if not isinstance(name, str):
        raise BadArgument(f"a task names {name!r:.80}; accepted: 'module:name'.")
    return load(name)


def name_of(value: Any) -> str | None:
    """Return ``module:name`` of a class or function that can be imported, else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module in ("__main__", "__mp_main__"):
        return None
    try:
        there = attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):  # made inside a function, or of a module that is gone
        return None
    return f"{module}:{name}" if there is value else None
