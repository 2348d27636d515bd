"""The registry: EnvSpec, register, make, make_vec, families, plug-ins.

An id is ``family:Name[-vN][-variant]``. What it stands for is a spec: where the class is, the keywords
it gets, and what the environment claims to be. Nothing is imported until it is made. A *family* resolves
a whole prefix (``rg:``), so that listing a hundred foreign names imports nothing. Packages add their own
through the entry point group ``gem.envs``.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gem.core import Env, parameters
from gem.errors import (
    BadArgument,
    DuplicateEnv,
    MissingExtra,
    UnknownArgument,
    UnknownEnv,
    did_you_mean,
    missing_extra,
)

if TYPE_CHECKING:
    from gem.vector.vector_env import VectorEnv

Solver = Literal["exact", "measured", "oracle", "none"]
SOLVERS: tuple[Solver, ...] = ("exact", "measured", "oracle", "none")
PLUGIN_GROUP = "gem.envs"


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What an id stands for, and what the environment claims; the contract suite tests the claims.

    `entry_point`: a class or function, or ``"module:name"`` of one. `extra`: the pip extra it needs.
    `data`: the data set it reads, by name; without it, making the environment raises MissingData.
    `max_turns`: turns after which the task itself ends, where it states a number. `deterministic`: the
    same seed and actions give the same transcript. `forkable`, `thread_safe`: as they say. `solver`:
    ``exact`` wins every episode with the full reward, ``measured`` wins `solver_rate` of them, ``oracle``
    reads the hidden answer, ``none``. `seats`: who acts in it; more than ``agent`` means that it is a
    `gem.multiagent.MultiAgentEnv`, whose solver plays every seat.
    """

    id: str
    entry_point: str | Callable[..., Env]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None
    data: str | None = None
    max_turns: int | None = None
    deterministic: bool = True
    forkable: bool = True
    thread_safe: bool = True
    solver: Solver = "none"
    solver_rate: float | None = None
    seats: tuple[str, ...] = ("agent",)

    def __post_init__(self) -> None:
        """Refuse an id or claim that means nothing."""
        if not self.id or any(c.isspace() for c in self.id):
            raise BadArgument(f"env id is {self.id!r}; accepted: family:Name[-vN][-variant], no spaces.")
        if self.solver not in SOLVERS:
            raise BadArgument(f"solver is {self.solver!r}; accepted: {', '.join(SOLVERS)}.")
        if (self.solver == "measured") != (self.solver_rate is not None):
            raise BadArgument(f"{self.id}: a measured solver states its solver_rate, no other does.")

    @property
    def family(self) -> str:
        """The part of the id before the colon."""
        return self.id.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Family:
    """A prefix whose ids one entry point makes; it is called with ``name=`` and the caller's keywords.

    `names` are known without an import. `more`, a ``"module:function"``, lists the names that the
    installed package really has; it is asked when a name is not among `names`. `claims` hold for every
    id, `exceptions` change them by name.
    """

    prefix: str
    entry_point: str
    names: tuple[str, ...]
    more: str | None = None
    extra: str | None = None
    package: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    exceptions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def spec(self, name: str) -> EnvSpec:
        """Return the spec of one name."""
        claims = {**self.claims, **self.exceptions.get(name, {})}
        return EnvSpec(f"{self.prefix}:{name}", self.entry_point, {"name": name}, self.extra, **claims)

    def find(self, name: str) -> EnvSpec | None:
        """Return the spec of `name`, asking the package only for names not known here."""
        if name in self.names:
            return self.spec(name)
        try:
            return self.spec(name) if self.more and name in load(self.more, self.extra)() else None
        except MissingExtra:  # more likely a typing error than a name newer than the list
            return None


ENV_REGISTRY: dict[str, EnvSpec] = {}
"""Every spec registered by its full id; families are apart."""

FAMILIES: dict[str, Family] = {}
_plugins_loaded = False


def register(
    env_id: str | EnvSpec, entry_point: str | Callable[..., Env] | None = None, **kwargs: Any
) -> None:
    """Register an environment.

    ``register("my:Env-v0", "my_package.envs:MyEnv", size=3)`` gives every keyword to the constructor.
    ``register(EnvSpec(...))`` states claims as well.

    Raises:
        DuplicateEnv: when the id is taken by another spec. BadArgument: without an entry point.
    """
    if isinstance(env_id, EnvSpec):
        spec = env_id
    elif entry_point is None:
        raise BadArgument(f"register({env_id!r}) needs an entry point: a class, or 'module:Class'.")
    else:
        spec = EnvSpec(env_id, entry_point, kwargs)
    known = ENV_REGISTRY.get(spec.id)
    if known is not None and known != spec:
        raise DuplicateEnv(f"{spec.id!r} is registered already, as {known.entry_point}; choose another id.")
    ENV_REGISTRY[spec.id] = spec


def register_family(family: Family) -> None:
    """Register a prefix.

    Raises:
        DuplicateEnv: when the prefix is taken by another family.
    """
    known = FAMILIES.get(family.prefix)
    if known is not None and known != family:
        raise DuplicateEnv(f"family {family.prefix!r} is registered already, as {known.entry_point}.")
    FAMILIES[family.prefix] = family


def spec(env_id: str) -> EnvSpec:
    """Return the spec of an id.

    Raises:
        UnknownEnv: with the nearest ids and the command that lists all.
    """
    found = _find(env_id)
    if found is None:
        load_plugins()
        found = _find(env_id)
    if found is None:
        family = env_id.partition(":")[0]
        hint = did_you_mean(env_id, ids())
        where = f"gem-gym list {family}" if any(i.startswith(family + ":") for i in ids()) else "gem-gym list"
        raise UnknownEnv(f"no environment {env_id!r}.{hint} `{where}` shows all.")
    return found


def _find(env_id: str) -> EnvSpec | None:
    if not isinstance(env_id, str):
        raise BadArgument(
            f"env id is {type(env_id).__name__} {env_id!r:.80}; accepted: text, as game:Sudoku-v0-easy."
        )
    found = ENV_REGISTRY.get(env_id)
    if found is None:
        prefix, colon, name = env_id.partition(":")
        if colon and prefix in FAMILIES:
            return FAMILIES[prefix].find(name)
    return found


def ids(family: str | None = None) -> list[str]:
    """Return every registered id in order, or those of one family. Imports no environment."""
    load_plugins()
    found = list(ENV_REGISTRY)
    for group in FAMILIES.values():
        found += [f"{group.prefix}:{name}" for name in group.names]
    return sorted(i for i in dict.fromkeys(found) if family is None or i.startswith(family + ":"))


def specs(family: str | None = None) -> Iterator[EnvSpec]:
    """Yield the spec of every id, in order."""
    for env_id in ids(family):
        yield spec(env_id)


def load_plugins() -> None:
    """Let installed packages register: each entry point in ``gem.envs`` is loaded, and called if it can be.

    A plug-in that fails is reported as a warning and skipped.
    """
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for plugin in entry_points(group=PLUGIN_GROUP):
        try:
            target = plugin.load()
            if callable(target):
                target()
        except Exception as error:  # somebody else's package: any failure is theirs, none may stop us
            warnings.warn(f"plug-in {plugin.name!r} ({plugin.value}) failed: {error!r}", stacklevel=2)


def load(entry_point: str | Callable[..., Any], extra: str | None = None) -> Callable[..., Any]:
    """Return what ``"module:name"`` names.

    Raises:
        MissingExtra: when a package that `extra` brings is absent.
        BadArgument: when there is no such module or name.
    """
    if not isinstance(entry_point, str):
        return entry_point
    module_name, colon, attribute = entry_point.partition(":")
    if not colon:
        raise BadArgument(f"entry point is {entry_point!r}; accepted: 'module:name'.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if extra and missing.partition(".")[0] != "gem":
            raise missing_extra(f"{module_name}", missing, extra) from error
        if module_name == missing or module_name.startswith(missing + "."):
            raise BadArgument(f"entry point {entry_point!r}: there is no module {missing!r}.") from error
        raise
    try:
        return getattr(module, attribute)  # type: ignore[no-any-return]
    except AttributeError:
        known = did_you_mean(attribute, vars(module))
        raise BadArgument(
            f"entry point {entry_point!r}: {module_name} has no {attribute!r}.{known}"
        ) from None


def make(env_id: str | EnvSpec, *, seed: int | None = None, **kwargs: Any) -> Env:
    """Make an environment.

    Args:
        env_id: an id, or a spec.
        seed: the seed of the first reset() that is given none.
        **kwargs: change the spec's keywords.

    Raises:
        UnknownEnv, UnknownArgument, MissingExtra: each with the way out.
    """
    found = env_id if isinstance(env_id, EnvSpec) else spec(env_id)
    entry = load(found.entry_point, found.extra)
    merged = {**found.kwargs, **kwargs}
    check_keywords(entry, merged, found.id)
    env = entry(**merged)
    if kwargs:
        # A budget that the caller chose is the budget; the other claims are those of the registered keywords.
        budget = kwargs.get("max_turns", kwargs.get("max_attempts", found.max_turns))
        found = replace(found, kwargs=merged, max_turns=budget)
    env.spec = found
    if seed is not None:
        env.seed = seed
    return env  # type: ignore[no-any-return]


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[Callable[[Env], Env]] | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int | None = 0,
    backend: str | None = None,
    num_envs: int | None = None,
    autoreset_mode: str = "same_step",
    **kwargs: Any,
) -> VectorEnv:
    """Make a vector of environments.

    Args:
        env_ids: one id per environment; a single id with `num_envs` repeats.
        wrappers: applied to each environment, in order.
        vec_kwargs: keywords of each environment's constructor, one mapping per environment.
        async_mode: True means the thread host, unless `backend` names another.
        seed: environment `i` starts its chain at ``derive(seed, "env", i)``.
        backend: ``serial``, ``thread`` or ``process``.
        num_envs: how many, when `env_ids` is one id.
        autoreset_mode: ``same_step``, ``next_step`` or ``disabled``.
        **kwargs: go to every constructor.
    """
    from gem.vector.vector_env import VectorEnv

    ids_ = [env_ids] * (num_envs or 1) if isinstance(env_ids, str) else list(env_ids)
    if num_envs is not None and len(ids_) != num_envs:
        raise BadArgument(
            f"make_vec got {len(ids_)} ids and num_envs={num_envs}; give one id, or drop num_envs."
        )
    own = [dict(each) for each in vec_kwargs] if vec_kwargs else [{} for _ in ids_]
    if len(own) != len(ids_):
        raise BadArgument(f"make_vec got {len(ids_)} ids and {len(own)} vec_kwargs; give one mapping per id.")
    try:
        applied = tuple(wrappers or ())
    except TypeError:  # Gymnasium's second argument is another
        raise BadArgument(
            f"make_vec got wrappers={wrappers!r}; accepted: a sequence of callables. How many is num_envs."
        ) from None
    for env_id in ids_:
        if len(seats := spec(env_id).seats) > 1:
            raise BadArgument(
                f"{env_id!r} has {len(seats)} seats, and a VectorEnv gives one action each. Play it with "
                "gem.rollout.rollout, or make one seat of it an environment: gem.multiagent.SeatEnv."
            )
    makers = [Maker(env_id, {**kwargs, **each}, applied) for env_id, each in zip(ids_, own, strict=True)]
    return VectorEnv(makers, backend or ("thread" if async_mode else "serial"), seed, autoreset_mode)


@dataclass(frozen=True, slots=True)
class Maker:
    """A picklable recipe for one environment: id, keywords, wrappers."""

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Callable[[Env], Env], ...] = ()

    def __call__(self) -> Env:
        """Make it."""
        env = make(self.env_id, **self.kwargs)
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def check_keywords(callee: Callable[..., Any], kwargs: Mapping[str, Any], name: str) -> None:
    """Refuse keywords that `callee` does not declare.

    Raises:
        UnknownArgument: with the keywords it takes.
    """
    declared = parameters(callee).values()
    if any(p.kind is p.VAR_KEYWORD for p in declared):
        return
    accepted = [p.name for p in declared if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for keyword in kwargs:
        if keyword not in accepted:
            takes = ", ".join(accepted) or "no keywords"
            raise UnknownArgument(
                f"{name} does not take {keyword!r}.{did_you_mean(keyword, accepted)} It takes: {takes}."
            )


def print_envs(family: str | None = None) -> None:
    """Print every id, a family per block."""
    last = None
    for env_id in ids(family):
        prefix = env_id.partition(":")[0]
        if prefix != last:
            print(f"{prefix}:")
            last = prefix
        print(f"  {env_id}")
