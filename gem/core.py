"""The environment interface: Env, EnvWrapper, Start, Step.

An environment is a seeded, synchronous, text-in/text-out object with Gymnasium's interface. Authors
write ``reset`` and ``step`` in plain Python. This module adds seeding, checks of the call order, saving,
restoring and forking.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import math
import weakref
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias

from gem import seeding
from gem.closing import Closing
from gem.content import Image, Obs, Text, ToolSpec, check_obs, written_tools
from gem.errors import (
    BadAction,
    BadArgument,
    CannotFork,
    ContractBroken,
    EnvClosed,
    EpisodeOver,
    NoSolver,
    ResetNeeded,
    UnknownArgument,
)
from gem.specs import EnvSpec, Rebuildable, check_keywords, parameters_of

ActType: TypeAlias = str
ObsType: TypeAlias = Obs

_NEW, _RUNNING, _OVER, _CLOSED = "new", "running", "over", "closed"


class Start(NamedTuple):
    """The return value of reset: the first observation, and info."""

    obs: Obs
    info: dict[str, Any]


class Step(NamedTuple):
    """The return value of step: Gymnasium's five values, by name.

    `terminated`: the task itself ended. `truncated`: a limit from outside the task ended the episode. A
    turn budget that the task states is a termination, not a truncation. A truncated episode counts as not
    solved unless `info` has a `success`; one of a task without success says ``stop`` "ended".
    """

    obs: Obs
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        """Whether the episode is over, either way."""
        return self.terminated or self.truncated


class Env(Rebuildable, Closing):
    """An environment for one agent that reads and writes text.

    Subclasses define ``reset(self, seed=None)``, which begins with ``super().reset(seed=seed)``, and
    ``step(self, action)``. They take all randomness from ``self.rng``. Text games are shorter to write with
    `gem.envs.kit.text_game.TextGame`.

    Each episode has its own seed. ``reset(seed=s)`` starts episode `s`; ``reset()`` starts the next
    episode, with a seed derived from the last one. So the first seed determines a whole run, and any
    episode can be started again alone by its `seed`.

    Each episode has two random streams: `rng` for the environment, `actor_rng` for the random actor.
    Sampling an action therefore never changes the environment. The state is every attribute of the instance
    except those named in `shared`. Attributes may refer to the environment, and to those inside of it: a
    table of its methods, a part that knows its game. Where they refer to it in a way that no copy could
    follow (a lambda, a nested function, a weak reference), it is not forked.

    The reset and step of every subclass are guarded: stepping before reset, after the end or after close
    raises, as does an action that is not text. Info keys that mean the same in every environment: `prefix`
    and `suffix` (text around the next prompt), `success` (bool, at the end), `stop` (a StopReason value, at
    the end), `correct`, `parsed_action`; `tools` (of reset, and of a step that changes them: `tool_specs` as
    plain data); `tool_results` (of a step that ran tool calls: one dict per call, in order; its `shown` is
    the length of the call's share of the observation, in characters, or in parts where there are pictures).
    """

    shared: ClassVar[tuple[str, ...]] = ("spec", "_init", "_made_by")
    """Attributes that are not state: forks share them (data sets, clients). Subclasses add their own."""

    forkable: ClassVar[bool] = True
    """False where the state is outside the instance: a terminal, a remote session."""

    state_travels: ClassVar[bool] = True
    """False where get_state() returns a name, which is valid while this instance is open."""

    several_seats: ClassVar[bool] = False
    """Whether values are dicts by seat; see `gem.seats.SeatedEnv`."""

    tool_specs: Sequence[ToolSpec] = ()
    """The tools that a model may call natively. An action with such calls arrives as text, each call as
    ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``; `gem.tools.calls.find` reads them."""

    answer_marks: Sequence[str] = ()
    """The tags and fences that this environment reads itself, as ``"<sql>"`` and ``"```sql"``: tools around
    it take none of them, nor what is inside, as a call."""

    spec: EnvSpec | None = None
    """The spec this environment was made from; None when it was constructed directly."""

    _made_by: EnvSpec | tuple[str, dict[str, Any]] | None = None
    """Its spec, or a wrapper's name and keywords in the factory; None when it was not made by name."""

    _phase: str = _NEW
    _seed: int | None = None  # of the running episode, or of the first one when none has begun
    _rng: Random | None = None
    _actor_rng: Random | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Guard the reset, step and close that a subclass defines."""
        super().__init_subclass__(**kwargs)
        for name, guard in cls._guards():
            owner = next(base for base in cls.__mro__ if name in base.__dict__)
            if owner is cls or not issubclass(owner, Env):  # a mixin's method has no guard yet
                setattr(cls, name, guard(owner.__dict__[name]))

    @classmethod
    def _guards(cls) -> tuple[tuple[str, Callable[..., Any]], ...]:
        """Return the guard of each method; a class with another action type replaces the guard of step."""
        return ("reset", _guard_reset), ("step", _guard_step), ("close", _guard_close)

    # -- the contract

    def reset(self, seed: int | None = None) -> Start:
        """Begin an episode and return its first observation.

        A subclass may declare its own options as further keywords.

        Args:
            seed: a non-negative integer; None starts the next episode, with a seed derived from the last.

        Raises:
            EnvClosed: after close().
            BadArgument: for any other seed. UnknownArgument: for an undeclared option.
        """
        if self._phase == _CLOSED:
            raise EnvClosed(f"{self} is closed; make a new one.")
        if seed is not None:
            self._seed = seeding.check(seed)
        elif self._phase != _NEW and self._seed is not None:
            self._seed = seeding.derive(self._seed, "next")
        elif self._seed is None:
            self._seed = seeding.fresh()
        self._rng = self._actor_rng = None
        self._phase = _RUNNING
        return Start("", {})

    def step(self, action: str) -> Step:
        """Take one action and return its result.

        Raises:
            ResetNeeded, EpisodeOver, EnvClosed: when no episode is running.
            BadAction: when `action` is not text.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(self, action).")

    def run_program(self, run: Any) -> Step:
        """Let an agent program play the whole episode (a `gem.sandbox.programs.Run`); return the last step.

        Where there is no workspace, a host lets the program play by MCP instead.

        Raises:
            BadArgument: where the environment has no workspace with a shell.
        """
        raise BadArgument(f"{self} has no workspace for a program; terminal: and harbor: environments have.")

    def close(self) -> None:
        """Release the environment's resources. Calling it twice is harmless."""
        self._phase = _CLOSED

    def sample_random_action(self) -> str:
        """Return a legal action drawn from `actor_rng`.

        Raises:
            NoSolver: where the environment has no random actor.
        """
        raise NoSolver(f"{self} has no random actor: {type(self).__name__} lacks sample_random_action().")

    def solve(self) -> str:
        """Return the expert's next action, based on what the agent has seen.

        If it must read the hidden answer instead, the spec has ``solver="oracle"``.

        Raises:
            NoSolver: where the environment has no solver.
        """
        raise NoSolver(f"{self} has no solver: {type(self).__name__} lacks solve().")

    # -- chance

    @property
    def seed(self) -> int | None:
        """The seed of the running episode; ``reset(seed=env.seed)`` starts it again.

        Where ``reset(idx=...)`` chose the task, the seed says how it is played, not which it is.
        """
        return self._seed

    @seed.setter
    def seed(self, value: int | None) -> None:
        """Set the seed that the first reset() without one uses.

        Raises:
            BadArgument: for any other seed, or once an episode has begun.
        """
        number = None if value is None else seeding.check(value)
        if self._phase != _NEW and number in (None, self._seed):
            return  # a reset that keeps what it was given
        if self._phase != _NEW:
            raise BadArgument(f"seed is set to {number} after {self} began; use reset(seed={number}).")
        self._seed = number

    @property
    def rng(self) -> Random:
        """The environment's random stream in this episode."""
        if self._rng is None:
            self._rng = seeding.stream(self._need_seed(), "world")
        return self._rng

    @property
    def actor_rng(self) -> Random:
        """The random actor's stream in this episode."""
        if self._actor_rng is None:
            self._actor_rng = seeding.stream(self._need_seed(), "actor")
        return self._actor_rng

    def seed_actor(self, seed: int) -> None:
        """Reseed the random actor for this episode: the environment stays the same, the actions differ.

        Raises:
            BadArgument: for a seed that is not a non-negative integer.
        """
        self._actor_rng = seeding.stream(seeding.check(seed), "actor")

    def _need_seed(self) -> int:
        if self._seed is None:
            raise ResetNeeded(f"{self} has no random stream before reset(); call reset() first.")
        return self._seed

    # -- state

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the instance's state: every attribute except those named in `shared`.

        Where an attribute refers to the environment, the state has a stand-in, for which set_state() puts the
        instance that it restores.

        Raises:
            CannotFork: where the state is outside the instance, or cannot be copied.
        """
        self._check_forkable()
        return self._copy_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that get_state() returned, of this instance or of one made the same way."""
        self._check_forkable()
        self._restore(state)

    def fork(self, seed: int | None = None) -> Self:
        """Return a copy of the environment in the same state.

        Without `seed` the copy keeps the random stream: the same actions give the same transcript.
        With `seed`, the rest of the episode draws new random numbers.

        Raises:
            CannotFork: where the state is outside the instance.
        """
        twin = self._shell()
        twin.set_state(self.get_state())
        if seed is not None:
            twin._seed = seeding.derive(seeding.check(seed), "fork")
            twin._rng = twin._actor_rng = None
        return twin

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """Make another environment with the same arguments, except those in `kwargs`.

        A `seed` among them is its first seed, and goes to a constructor that takes one. With `same_state`,
        return a copy in the same state, like fork(); `kwargs` are then refused.

        Raises:
            UnknownArgument: for a keyword that the constructor does not take.
        """
        if same_state:
            if kwargs:
                raise UnknownArgument(f"spawn(same_state=True) takes no keywords, got {sorted(kwargs)}.")
            return self.fork()
        args, first = self._init
        seed, parameters = kwargs.get("seed"), parameters_of(type(self))
        if "seed" not in parameters:
            kwargs.pop("seed", None)
        check_keywords(type(self), kwargs, str(self))
        names = [*parameters][: len(args)] if kwargs else []
        changed = {**first, **kwargs}
        given = [changed.pop(name, arg) for name, arg in zip(names, args, strict=False)]
        other = type(self)(*given, *args[len(given) :], **changed)
        spec = self.spec
        other.spec = replace(spec, kwargs={**spec.kwargs, **kwargs}) if spec and kwargs else spec
        other._made_by = self._made_by
        if seed is not None:
            other.seed = seed
        return other

    def _shell(self) -> Self:
        """Return an instance that has the shared attributes and no state yet."""
        args, kwargs = self._init
        twin = type(self).__new__(type(self), *args, **kwargs)
        kept = self._attributes()
        for name in shared_names(type(self)) & kept.keys():
            setattr(twin, name, kept[name])
        return twin

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes of the instance, those in ``__slots__`` too."""
        attributes = vars(self)
        for name in _slots_of(type(self)):
            try:  # the wrapper's own __getattr__ would look inside
                attributes = {**attributes, name: object.__getattribute__(self, name)}
            except AttributeError:  # nothing is in it
                continue
        return attributes

    def _copy_state(self) -> dict[str, Any]:
        """Return a copy of the attributes that are not shared, with stand-ins for this and those inside."""
        kept = shared_names(type(self))
        return _copy_out(
            self, {name: value for name, value in self._attributes().items() if name not in kept}
        )

    def _restore(self, state: dict[str, Any]) -> None:
        """Replace the attributes that are not shared by a copy of those in `state`."""
        kept, slots = shared_names(type(self)), _slots_of(type(self))
        stand_ins = {id(_layer(depth)): layer for depth, layer in enumerate(_layers_of(self))}
        copied = _copy_values(state, stand_ins)
        for name in [name for name in self._attributes() if name not in kept]:
            delattr(self, name)
        for name in slots & copied.keys():
            object.__setattr__(self, name, copied.pop(name))
        vars(self).update(copied)

    def _check_forkable(self) -> None:
        if not self.forkable:
            raise CannotFork(f"the state of {self} is outside this process; make another and replay it.")

    # -- the rest

    @property
    def unwrapped(self) -> Env:
        """The innermost environment."""
        return self

    @property
    def env_id(self) -> str | None:
        """The id this environment was made by, or None."""
        return self.spec.id if self.spec else None

    @property
    def entry_point(self) -> Any:
        """The entry point this environment was made from, or None."""
        return self.spec.entry_point if self.spec else None

    def __str__(self) -> str:
        """The id, or the class's name."""
        return self.env_id or f"<{type(self).__name__}>"


_SHARED: dict[type, frozenset[str]] = {}


def shared_names(cls: type) -> frozenset[str]:
    """Return the names of the attributes that `cls` and its bases share."""
    if cls not in _SHARED:
        if isinstance(cls.__dict__.get("shared"), str):
            raise BadArgument(f"{cls.__name__}.shared is a str; accepted: a tuple of attribute names.")
        _SHARED[cls] = frozenset(n for base in cls.__mro__ for n in base.__dict__.get("shared", ()))
    return _SHARED[cls]


_SLOTS: dict[type, frozenset[str]] = {}


def _slots_of(cls: type) -> frozenset[str]:
    """Return the names of the attributes that instances of `cls` have in ``__slots__``."""
    if cls not in _SLOTS:
        members = (item for base in cls.__mro__ for item in vars(base).items())
        _SLOTS[cls] = frozenset(name for name, of in members if isinstance(of, MemberDescriptorType))
    return _SLOTS[cls]


# -- copies of a state


class _Layer:
    """A stand-in, in a state, for the environment or one inside of it; `depth` is 0 for the innermost."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __reduce__(self) -> tuple[Callable[[int], _Layer], tuple[int]]:
        return _layer, (self.depth,)


@functools.cache
def _layer(depth: int) -> _Layer:
    """Return the only stand-in of this depth in this process."""
    return _Layer(depth)


@dataclass(frozen=True, slots=True, eq=False)
class _Method:
    """A stand-in, in a state, for a method of a layer. A pickled method would be looked up in the layer."""

    layer: _Layer
    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:  # partial() takes only what can be called
        raise NotImplementedError("a method in a state has no environment; set_state() gives it one")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        layer = copy.deepcopy(self.layer, memo)
        return self if layer is self.layer else MethodType(self.function, layer)


def _layers_of(env: Env) -> list[Env]:
    """Return `env` and those inside of it, the innermost first."""
    layers = [env]
    while isinstance(layers[-1], EnvWrapper):
        layers.append(layers[-1].env)
    return layers[::-1]


def _copy_out(env: Env, state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of attributes of `env`, with stand-ins for it and for those inside of it.

    Raises:
        CannotFork: where something cannot be copied, or copies would act on this environment by it.
    """
    stand_ins: dict[int, Any] = {id(layer): _layer(depth) for depth, layer in enumerate(_layers_of(env))}
    memo = dict(stand_ins)
    try:
        copied = _copy_values(state, memo)
        originals = [state, *memo.get(id(memo), ())]  # deepcopy keeps there what it copied
        bound = [each for each in originals if type(each) is MethodType and id(each.__self__) in stand_ins]
        if bound:
            methods = {id(each): _Method(stand_ins[id(each.__self__)], each.__func__) for each in bound}
            copied = _copy_values(state, {**stand_ins, **methods})
    except (TypeError, NotImplementedError, RecursionError, AttributeError) as error:
        raise CannotFork(_name_uncopied(env, state, error)) from error
    for each in _find_uncopied(originals, memo):
        if type(each) in _PROXIES or leads_to(each, memo):
            _refuse_reference(env, state, each)
    for kind in {kind for kind in map(type, originals) if issubclass(kind, EnvWrapper)}:
        for each in originals:
            if type(each) is kind and any(layer is env for layer in _layers_of(each)):
                _refuse_reference(env, state, each)
    return copied


def _copy_values(values: Mapping[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    return {
        name: value if type(value) in _PLAIN else copy.deepcopy(value, memo) for name, value in values.items()
    }


_PROXIES = frozenset((weakref.ProxyType, weakref.CallableProxyType))
_UNCOPIED = _PROXIES | {FunctionType, BuiltinFunctionType, weakref.ref, type(_layer)}
"""The types of what may refer to something that is copied, and is not copied itself."""


def _find_uncopied(originals: Sequence[Any], memo: Container[int]) -> list[Any]:
    """Return what `originals` refer to of the types _UNCOPIED, directly or by tuples of the same."""
    references: list[Any] = []
    while originals:
        referents = gc.get_referents(*originals)
        kinds = set(map(type, referents))
        if not _UNCOPIED.isdisjoint(kinds):
            references += [each for each in referents if type(each) in _UNCOPIED]
        if tuple not in kinds:
            break
        originals = [each for each in referents if type(each) is tuple and id(each) not in memo]
    return references


_NEAREST = 1000
"""The most objects that are looked at: a client or a tokenizer in a closure may lead to very many."""


def leads_to(start: Any, goals: Container[int], without: Any = None, most: int = _NEAREST) -> bool | None:
    """Return whether `start` refers to an object with one of these ids, directly or by others than `without`.

    The nearest are looked at first. Returns None where more than `most` objects would have to be.
    """
    whole = True
    queue, visited = [start], {id(without)}
    for each in queue:
        if id(each) in goals:
            return True
        if id(each) in visited:
            continue
        if len(queue) >= most:
            whole = False
            continue
        visited.add(id(each))
        queue += _references(each)[:most]
    return False if whole else None


def _references(value: Any) -> list[Any]:
    """Return what an object refers to, but for classes, modules and the names of a function's module."""
    kind = type(value)
    if kind is FunctionType:
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
    if issubclass(kind, weakref.ref):
        return [value()]
    return [] if issubclass(kind, (type, ModuleType)) else gc.get_referents(value)


def _refuse_reference(env: Env, state: Mapping[str, Any], reference: Any) -> NoReturn:
    """Refuse a copy in which `reference` would act on the original."""
    kind = type(reference)
    names = (name for name, value in state.items() if leads_to(value, {id(reference)}, env))
    what = "the wrapper" if issubclass(kind, EnvWrapper) else "a"
    called = "" if kind in _PROXIES else getattr(reference, "__qualname__", "")
    raise CannotFork(
        f"the state of {env} cannot be copied: {type(env).__name__}.{next(names, '?')} holds {what} "
        f"{f'{kind.__name__} {called}'.rstrip()}, by which a copy would act on another environment. Keep a "
        "method (self.go), an object or data in its place, or name in `shared` what it refers to, if that "
        "never changes; forkable = False says that there are no copies."
    )


def _name_uncopied(env: Env, state: Mapping[str, Any], error: Exception) -> str:
    """Return which attribute of a state cannot be copied, and what to do."""
    what = "it"
    for name, value in state.items():
        try:
            copy.deepcopy(value, {id(env): env})
        except (TypeError, NotImplementedError, RecursionError) as found:
            what, error = f"{type(env).__name__}.{name} is a {type(value).__name__}, which", found
            break
    return (
        f"the state of {env} cannot be copied: {what} cannot ({error}). Name it in `shared` if copies may "
        "use the same one, or define get_state() and set_state(); forkable = False says that there are no "
        "copies."
    )


def _guard_reset(reset: Callable[..., Any]) -> Callable[..., Start]:
    declared = inspect.signature(reset).parameters.values()
    accepted = {p.name for p in declared}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in declared)

    @functools.wraps(reset)
    def run_reset(self: Env, seed: int | None = None, **options: Any) -> Start:
        if self._phase == _CLOSED:
            raise EnvClosed(f"{self} is closed; make a new one.")
        if options and not open_ended and not accepted.issuperset(options):
            raise UnknownArgument(
                f"{type(self).__name__}.reset does not take {sorted(set(options) - accepted)}; "
                f"it takes {', '.join(sorted(accepted - {'self'})) or 'nothing'}."
            )
        if "seed" not in accepted and not open_ended:
            raise ContractBroken(f"{type(self).__name__}.reset takes no seed; define reset(self, seed=None).")
        try:
            start: Start = reset(self, seed=seed, **options)
            if type(start) is not Start:
                start = name_values(self, Start, start)
        except BaseException as error:
            if self._phase == _RUNNING:
                self._phase = _OVER  # half an instance must not be stepped
            if isinstance(error, ResetNeeded) and self._seed is None and self.unwrapped is self:
                raise ContractBroken(
                    f"reset() of {type(self).__name__} draws from its random stream before "
                    "super().reset(seed), with which it must begin."
                ) from error
            raise
        self._phase = _RUNNING
        if tools := self.tool_specs:
            start.info.setdefault("tools", written_tools(tools))
        return start

    return run_reset


def _guard_step(step: Callable[..., Any]) -> Callable[..., Step]:
    annotation = next(iter([*inspect.signature(step).parameters.values()][1:2]), None)
    texts = annotation is None or annotation.annotation in (annotation.empty, str, "str", "ActType")

    @functools.wraps(step)
    def run_step(self: Env, action: str) -> Step:
        if self._phase != _RUNNING:
            raise not_running(self)
        if texts and not isinstance(action, str):
            raise BadAction(f"action is {type(action).__name__} {action!r:.80}; {self} takes text (str).")
        result: Step = step(self, action)
        if type(result) is not Step:
            result = name_values(self, Step, result)
        self._phase = _OVER if result[2] or result[3] else _RUNNING
        return result

    return run_step


def _guard_close(close: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(close)
    def run_close(self: Env) -> None:
        if self._phase != _CLOSED:
            close(self)
            self._phase = _CLOSED

    return run_close


def not_running(env: Env) -> Exception:
    """Build the error for a step while no episode is running."""
    if env._phase == _CLOSED:
        return EnvClosed(f"{env} is closed; make a new one.")
    if env._phase == _OVER:
        return EpisodeOver(f"the episode of {env} is over; call reset() before step().")
    return ResetNeeded(f"{env} has not begun; call reset() before step().")


def name_values(env: Env, kind: Any, values: Any) -> Any:
    """Return what an author's reset or step returned as a Start or a Step.

    Raises:
        ContractBroken: when it is no tuple, or one of another length.
    """
    if isinstance(values, tuple | list) and len(values) == len(kind._fields):
        return kind(*values)
    method = "reset" if len(kind._fields) == 2 else "step"
    accepted = ", ".join(("observations" if "infos" in kind._fields else "observation", *kind._fields[1:]))
    returned = f"{type(values).__name__} {values!r:.80}"
    if isinstance(values, tuple | list):
        returned = f"{len(values)} values ({', '.join(type(value).__name__ for value in values)})"
    raise ContractBroken(f"{method} of {env} returned {returned}; it must return {accepted}.")


def check_start(start: Any) -> Start:
    """Return the result of reset, of one seat, as a Start whose values have their types.

    Raises:
        ContractBroken, BadArgument: for a value of another type.
    """
    obs, info = start
    check_info(info)
    return Start(check_obs(obs), info)


def check_step(step: Any) -> Step:
    """Return the result of step, of one seat, as a Step whose values have their types.

    Raises:
        ContractBroken, BadArgument: for a value of another type, and a reward that is not finite.
    """
    obs, reward, terminated, truncated, info = step
    plain = type(obs) is str and type(reward) is float and type(info) is dict
    if plain and type(terminated) is type(truncated) is bool and math.isfinite(reward):
        return Step(*step) if type(step) is not Step else step  # the checks would take longer
    check_info(info)
    return Step(check_obs(obs), check_reward(reward), check_flag(terminated), check_flag(truncated), info)


def name_instance(env: Env) -> Hashable | None:
    """Return what the environment's method `instance` says was dealt; None where it does not say it."""
    tell = getattr(env, "instance", None)
    try:
        name: Hashable = tell() if callable(tell) else None
        hash(name)
    except NotImplementedError:  # a TextGame that does not define it
        return None
    except TypeError:  # a list, or a tuple that holds one
        return repr(name)
    return name


def check_info(info: Any) -> None:
    """Refuse an info that is no mapping.

    Raises:
        ContractBroken: for one.
    """
    if type(info) is not dict and not isinstance(info, Mapping):
        raise ContractBroken(f"the environment's info is a {type(info).__name__}; it must be a dict.")


def copy_info(info: Any) -> dict[str, Any]:
    """Return a copy of an environment's info, down to what can be changed: the environment may reuse it.

    Raises:
        ContractBroken: for an info that is no mapping.
    """
    check_info(info)
    copied: dict[str, Any] = _copy_nested(info if type(info) is dict else dict(info))
    return copied


def _copy_nested(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        if not value:
            return {}
        return {key: each if type(each) in _PLAIN else _copy_nested(each) for key, each in value.items()}
    if kind is list or kind is tuple or kind is set:
        copies = [each if type(each) in _PLAIN else _copy_nested(each) for each in value]
        return copies if kind is list else kind(copies)
    try:
        return copy.deepcopy(value)
    except Exception:  # a lock or a connection: the copy has the object itself
        return value


_PLAIN = frozenset((str, int, float, bool, type(None), bytes, Text, Image))  # these do not change


def check_flag(value: Any) -> bool:
    """Return a flag of step as a bool; numpy's bool is accepted.

    Raises:
        ContractBroken: for anything else.
    """
    if not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "bool":
        raise ContractBroken(f"terminated or truncated is {value!r:.40}; the environment must return a bool.")
    return bool(value)


def check_reward(reward: Any) -> float:
    """Return a reward as a finite float.

    Raises:
        ContractBroken: when it is not a finite number.
    """
    if isinstance(reward, str | bytes | bytearray):  # which float() would read
        raise ContractBroken(f"the environment's reward is {reward!r:.40}; a reward is a finite number.")
    try:
        number = float(reward)
    except (TypeError, ValueError, OverflowError) as error:
        kind = type(reward).__name__
        raise ContractBroken(
            f"the environment's reward is {kind} {reward!r:.40}; a reward is a finite number."
        ) from error
    if not math.isfinite(number):
        raise ContractBroken(f"the environment's reward is {number}; a reward is a finite number.")
    return number


def _name_result(method: Callable[..., Any], named: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def naming(self: EnvWrapper, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        return name_values(self, named, result) if type(result) is tuple else result

    return naming


class EnvWrapper(Env):
    """An environment that wraps another one.

    Subclasses override the hooks on_action, on_start and on_step; reset and step call them. A public
    attribute that the wrapper does not have is read from the environment inside at each access.
    """

    shared: ClassVar[tuple[str, ...]] = ("env",)

    wraps_seats: ClassVar[bool] = False
    """Whether it also wraps environments of several seats; its reset and step then handle dicts by seat."""

    def __init__(self, env: Env) -> None:
        """Wrap `env`.

        Raises:
            BadArgument: for an environment of several seats, unless the wrapper has `wraps_seats`.
        """
        if getattr(env, "several_seats", False) and not self.wraps_seats:  # upstream's lack the attribute
            raise BadArgument(
                f"{env} has several seats, and {type(self).__name__} wraps one agent's environment: wrap a "
                "gem.seats.SeatEnv of one seat, or take an id that ends in -vs-random or -vs-solver."
            )
        self.env = env

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add no guards (the environment inside has them); convert plain tuples to Start and Step."""
        for name, named in (("reset", Start), ("step", Step)):
            if name in cls.__dict__:
                setattr(cls, name, _name_result(cls.__dict__[name], named))

    # -- hooks

    def on_action(self, action: str) -> str:
        """Return the action to pass to the environment inside."""
        return action

    def on_start(self, start: Start) -> Start:
        """Return the result of reset(); `start` comes from the environment inside."""
        return start

    def on_step(self, step: Step) -> Step:
        """Return the result of step(); `step` comes from the environment inside."""
        return step

    # -- the contract

    def reset(self, seed: int | None = None, **options: Any) -> Start:
        """Reset the environment inside; see Env.reset."""
        return self.on_start(self.env.reset(seed=seed, **options))

    def step(self, action: str) -> Step:
        """Step the environment inside; see Env.step."""
        return self.on_step(self.env.step(self.on_action(action)))

    def run_program(self, run: Any) -> Step:
        """Let a program play in the environment inside; see Env.run_program."""
        return self.on_step(self.env.run_program(run))

    def close(self) -> None:
        """Close the environment inside."""
        self.env.close()

    def sample_random_action(self) -> str:
        """Sample from the environment inside; see Env.sample_random_action."""
        return self.env.sample_random_action()

    def solve(self) -> str:
        """Ask the environment inside; see Env.solve."""
        return self.env.solve()

    @property
    def seed(self) -> int | None:
        """The seed of the environment inside."""
        return self.env.seed

    @seed.setter
    def seed(self, value: int | None) -> None:
        self.env.seed = value

    @property
    def rng(self) -> Random:
        """The random stream of the environment inside."""
        return self.env.rng

    @property
    def actor_rng(self) -> Random:
        """The random actor's stream of the environment inside."""
        return self.env.actor_rng

    def seed_actor(self, seed: int) -> None:
        """Reseed the random actor of the environment inside; see Env.seed_actor."""
        self.env.seed_actor(seed)

    @property
    def forkable(self) -> bool:  # type: ignore[override]
        """Whether the environment inside can be forked."""
        return self.env.forkable

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:  # type: ignore[override]
        """The tools that a model may call natively: those of the environment inside."""
        return self.env.tool_specs

    @property
    def answer_marks(self) -> Sequence[str]:  # type: ignore[override]
        """The tags and fences that the environment inside reads itself."""
        return self.env.answer_marks

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environment inside."""
        return self.env.spec

    @spec.setter
    def spec(self, value: EnvSpec | None) -> None:
        self.env.spec = value

    def get_state(self) -> dict[str, Any]:
        """Return the wrapper's state, with the state of its environment nested in it."""
        return {"wrapper": super().get_state(), "env": self.env.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that get_state() returned."""
        super().set_state(state["wrapper"])
        self.env.set_state(state["env"])

    def fork(self, seed: int | None = None) -> Self:
        """Return a copy of the wrapper around a fork of the environment inside; see Env.fork."""
        self._check_forkable()
        state = self._copy_state()
        twin = self._shell()
        twin.env = self.env.fork(seed)
        twin._init = self._init_around(twin.env)  # or the twin would hold this environment too
        twin._restore(state)
        return twin

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """Return the same wrapper around another environment; `kwargs` go to the environment."""
        if same_state:
            return self.fork() if not kwargs else super().spawn(True, **kwargs)
        args, own = self._init_around(self.env.spawn(**kwargs))
        other = type(self)(*args, **own)
        other._made_by = self._made_by
        return other

    def _init_around(self, env: Env) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return this wrapper's constructor arguments, with `env` in place of the wrapped environment."""
        args, own = self._init
        return ((env, *args[1:]), own) if args else ((), {**own, "env": env})

    @property
    def unwrapped(self) -> Env:
        """The innermost environment."""
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        """Read a public attribute from the environment inside."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def __str__(self) -> str:
        """The wrapper's name around its environment's."""
        return f"<{type(self).__name__}({self.env})>"
