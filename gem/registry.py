"""The registry of environments: register, make, families, plug-ins.

An id is ``family:Name[-vN][-variant]``. Each id has a spec: the path of the class, its keywords, and the
environment's claims. The class is imported when an environment is made, not before. A *family* resolves all
ids with one prefix (``rg:``), so that listing a hundred foreign names imports nothing. Packages add their
own ids through the entry point group ``gem.envs``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from os import PathLike
from typing import Any, TypeAlias, cast, get_type_hints

from gem import seeding
from gem.core import Env, EnvWrapper, leads_to
from gem.errors import BadArgument, DuplicateEnv, MissingExtra, UnknownEnv, did_you_mean, text_of_error
from gem.naming import (
    entry_point_of,
    fix_name,
    is_fixed,
    is_kept,
    is_path,
    keep_value,
    load_named,
    name_in_file,
    unknown_file,
    without_digest,
)
from gem.plugins import load, load_point, points
from gem.specs import (
    SOLVERS,
    EnvSpec,
    Solver,
    TaskRef,
    WrapperRef,
    arguments_of,
    check_keywords,
    name_of,
    parameters_of,
    restore_value,
    write_value,
    written_arguments,
)
from gem.trust import check_known_file, check_settings, check_task, name_server, note_addresses

__all__ = [
    "ENV_REGISTRY",
    "FAMILIES",
    "SOLVERS",
    "EnvSpec",
    "Family",
    "Maker",
    "Solver",
    "check_keywords",
    "claims_of",
    "ids",
    "load",
    "load_plugins",
    "make",
    "place_id",
    "print_envs",
    "register",
    "register_family",
    "spec",
    "spec_named",
    "specs",
    "split_seed",
    "splits_of",
    "task_of",
]

PLUGIN_GROUP = "gem.envs"

IS_TOOL = "gem.tools.base_tool:is_tool"
TOOL_WRAPPER = "gem.tools.tool_env_wrapper:ToolEnvWrapper"
WRAPPER_FACTORY = "gem.wrappers.wrapper_factory:wrapper_fn"
"""The function that makes a wrapper by name, as a path: this module does not import the wrappers."""

Wrapper: TypeAlias = str | WrapperRef | Callable[[Env], Env]
"""A name of the wrapper factory, a reference with keywords, or a function that wraps an environment."""


AnyEnv: TypeAlias = "str | EnvSpec | TaskRef | Maker | Callable[..., Env]"
"""What a program names an environment by: a name, a spec, a task, a class, a function or a Maker."""


@dataclass(frozen=True, slots=True)
class Family:
    """A prefix whose ids share one entry point; it is called with ``name=`` and the caller's keywords.

    `names` are known without an import. `more`, a ``"module:function"``, returns the names that the
    installed package has; it is called when a name is not in `names`. `package` is what it needs installed,
    `world` a world of `gem.worlds` that it needs fetched. `claims` apply to every id, `exceptions` change
    them, or the entry point, by name. With `look`, a ``"module:function"``, every name is the path of a file
    or folder; the function returns further claims for it, and reads names of somebody else's file too.
    `also`, a ``"module:function"``, returns whether what else it needs is here. `missing`, a
    ``"module:function"``, returns the `names` that the installed package cannot play, with the reason.
    """

    prefix: str
    entry_point: str
    names: tuple[str, ...]
    more: str | None = None
    extra: str | None = None
    package: str | None = None
    world: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    exceptions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    look: str | None = None
    also: str | None = None
    missing: str | None = None

    def is_here(self) -> bool:
        """Return whether the package and the world that it needs are on this machine."""
        from gem import worlds

        there = self.package is None or find_spec(self.package) is not None
        there = there and (self.world is None or worlds.find(self.world) is not None)
        return there and (self.also is None or bool(load(self.also)()))

    def spec(self, name: str) -> EnvSpec:
        """Return the spec of one name. Raises BadArgument for a path that no id can have."""
        if self.look and any(c.isspace() for c in name):
            raise BadArgument(
                f"{self.prefix}:{name}: an id has no blanks; give the path as it is seen from a folder "
                f"within, as {self.prefix}:. does, or rename it."
            )
        claims = {
            **self.claims,
            **self.exceptions.get(name, {}),
            **(load(self.look)(name) if self.look else {}),
        }
        entry_point = claims.pop("entry_point", self.entry_point)
        return EnvSpec(f"{self.prefix}:{name}", entry_point, {"name": name}, self.extra, **claims)

    def find(self, name: str) -> EnvSpec | None:
        """Return the spec of `name`; ask the package only when `names` does not have it."""
        if self.look or name in self.names:
            return self.spec(name)
        try:
            return self.spec(name) if self.more and name in load(self.more, self.extra)() else None
        except MissingExtra:  # more likely a typing error than a name newer than the list
            return None


class Registry(MutableMapping[str, EnvSpec]):
    """All specs by id, families included; the specs of a prefix are loaded when one of them is needed."""

    def __init__(self) -> None:
        self._registered: dict[str, EnvSpec] = {}
        self._rows: dict[str, tuple[str, ...]] = {}

    def copy(self) -> Registry:
        """Return an independent registry with the same ids."""
        twin = Registry()
        twin._registered, twin._rows = dict(self._registered), dict(self._rows)
        return twin

    def load_later(self, prefix: str, *rows: str) -> None:
        """Load the specs of `rows`, each a ``"module:name"``, as soon as an id with `prefix` is needed."""
        self._rows[prefix] = rows

    def _load(self, prefix: str) -> None:
        for rows in self._rows.get(prefix, ()):
            for spec in cast(Iterable[EnvSpec], load(rows)):
                self._registered.setdefault(spec.id, spec)
        self._rows.pop(prefix, None)  # last, or another thread would look too early

    def __getitem__(self, env_id: str) -> EnvSpec:
        if not isinstance(env_id, str):
            raise KeyError(env_id)
        self._load(env_id.partition(":")[0])
        entry = self._registered.get(env_id) or _of_family(env_id)
        if entry is None:
            raise KeyError(env_id)
        return entry

    def __setitem__(self, env_id: str, spec: EnvSpec) -> None:
        self._load(env_id.partition(":")[0])
        self._registered[env_id] = spec

    def __delitem__(self, env_id: str) -> None:
        self._load(env_id.partition(":")[0])
        del self._registered[env_id]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        for prefix in [*self._rows]:
            self._load(prefix)
        of_families = (f"{family.prefix}:{name}" for family in FAMILIES.values() for name in family.names)
        return iter(dict.fromkeys((*self._registered, *of_families)))

    def __len__(self) -> int:
        return sum(1 for _ in self)  # a list of them would ask for the length first


ENV_REGISTRY = Registry()

FAMILIES: dict[str, Family] = {}

_NAMED: dict[str, EnvSpec] = {}
"""The specs of what this user named in a file or a module, by its name there; `ids` does not list them."""

_plugins_loaded = False


def register(
    env_id: str | EnvSpec, entry_point: str | Callable[..., Env] | None = None, **kwargs: Any
) -> None:
    """Register an environment.

    ``register("my:Env-v0", "my_package.envs:MyEnv", size=3)`` gives every keyword to the constructor.
    ``register(EnvSpec(...))`` also takes claims.

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
    if known is not None and known != spec and known != _of_family(spec.id):
        raise DuplicateEnv(f"{spec.id!r} is registered already, as {known.entry_point}; choose another id.")
    ENV_REGISTRY[spec.id] = spec


def register_family(family: Family) -> None:
    """Register a prefix.

    Raises:
        DuplicateEnv: when the prefix is taken by another family.
    """
    known = FAMILIES.get(family.prefix)
    if known is not None and known != family:
        raise DuplicateEnv(
            f"family {family.prefix!r} is registered already, as {known.entry_point}; choose another prefix."
        )
    FAMILIES[family.prefix] = family


def spec(env_id: str) -> EnvSpec:
    """Return the spec of an id; ``Name-v0`` without its variant is ``Name-v0-easy``.

    An id may come from anywhere: nothing is imported that was not registered, or named by this user.
    `spec_named` also takes the other forms of a name.

    Raises:
        UnknownEnv: when there is none; the message has the nearest ids and the command that lists all.
    """
    env_spec = _find(env_id)
    if env_spec is None:
        load_plugins()
        env_spec = _find(env_id)
    if env_spec is None:
        if is_fixed(env_id):
            raise UnknownEnv(unknown_file(env_id, "environment"))
        family = env_id.partition(":")[0]
        if is_path(env_id):
            raise UnknownEnv(
                f"no environment {env_id!r} is registered. `gem-gym list` shows all; gem.make() and the "
                "commands take a class in a file too."
            )
        hint = did_you_mean(env_id, ids())
        where = f"gem-gym list {family}" if any(i.startswith(family + ":") for i in ids()) else "gem-gym list"
        raise UnknownEnv(f"no environment {env_id!r}.{hint} `{where}` shows all.")
    return env_spec


def splits_of(env_id: str) -> tuple[str, ...]:
    """Return the splits that a registered environment has; none for one that is not known here."""
    try:
        return spec(env_id).splits
    except UnknownEnv:
        return ()


def _find(env_id: str) -> EnvSpec | None:
    if not isinstance(env_id, str):
        raise BadArgument(
            f"env id is {type(env_id).__name__} {env_id!r:.80}; accepted: text, as game:Sudoku-v0-easy, a "
            "class, or a function that makes an environment."
        )
    env_spec = ENV_REGISTRY.get(env_id) or ENV_REGISTRY.get(f"{env_id}-easy") or _NAMED.get(env_id)
    if env_spec is None and (place := entry_point_of(env_id)) is not None:
        made = load_named(env_id, "environment")
        if _makes_env(made):
            env_spec = _NAMED[env_id] = EnvSpec(env_id, place, **_claims(made))
    return env_spec


def spec_named(name: AnyEnv, folder: str | PathLike[str] = "") -> EnvSpec:
    """Return the spec of what this user names as an environment, in any form of `gem.naming`.

    Only what this user named may come here: a file or module is executed.

    Args:
        name: a registered id, ``path/file.py:Class``, ``module:Class``, or a class or function itself.
        folder: the folder that a relative path starts from.

    Raises:
        UnknownEnv: for an id that is not registered. BadArgument: for a file or module without this class,
            and for what makes no environment.
    """
    if isinstance(name, EnvSpec):
        return name
    if isinstance(name, Maker | TaskRef):
        return name.spec if isinstance(name, Maker) else _spec_for(name)
    if callable(name):
        _check_makes(name, name)
        return EnvSpec(_place_of(name), name, **_claims(name))
    if isinstance(name, str):
        name_server(name)
    if not isinstance(name, str) or not (is_path(name) or (":" in name and not _is_prefix(name))):
        return spec(name)
    fixed = fix_name(name, "environment", folder)
    env_spec = _find(fixed)
    if env_spec is None:
        try:
            made = load_named(fixed, "environment")
        except BadArgument as error:
            if is_fixed(fixed) or is_kept(fixed):
                raise
            raise UnknownEnv(f"{error}{did_you_mean(name, ids())} `gem-gym list` shows all.") from error
        _check_makes(made, name)
        env_spec = _NAMED[fixed] = EnvSpec(fixed, entry_point_of(fixed) or fixed, **_claims(made))
    return env_spec


def name_env(env: EnvSpec | Maker | Callable[..., Env]) -> str:
    """Return a text by which `spec_named` finds what a program named by the object.

    It is ``module:Class`` for what can be imported, else a name that is valid in this process. Raises
    BadArgument for a Maker with keywords, wrappers or a task; DuplicateEnv for a spec whose id is taken.
    """
    if isinstance(env, Maker):
        if env.kwargs or env.wrappers or isinstance(env.env_id, TaskRef):
            raise BadArgument(
                f"the environment is {env!r:.200}; accepted here: a Maker of an id alone. Give its "
                "keywords and wrappers as settings: env, env_kwargs, wrappers."
            )
        return env.env_id if isinstance(env.env_id, str) else name_env(env.env_id)
    env_spec = spec_named(env)
    name = env_spec.id
    if callable(made := env_spec.entry_point) and env_spec == spec_named(made):  # nobody wrote this spec
        env = made
    if not isinstance(env, EnvSpec):
        place = name_of(env)
        if place is not None and not _is_prefix(place):
            return name_in_file(place)
        name = keep_value(env, "environment", name.rpartition(":")[2])
        env_spec = replace(env_spec, id=name)
    if (_find(name) or _NAMED.setdefault(name, env_spec)) != env_spec:
        raise DuplicateEnv(f"{name!r} is another environment already; choose another id.")
    return name


def place_id(env_id: str, folder: str | PathLike[str]) -> str:
    """Return an id whose name is a path below `folder` as it is seen from the working folder.

    Any other id is returned as it is.
    """
    prefix, _, name = env_id.partition(":")
    if prefix not in FAMILIES or not FAMILIES[prefix].look:
        return env_id
    return f"{prefix}:{os.path.relpath(os.path.join(folder, os.path.expanduser(name)))}"


def _is_prefix(name: str) -> bool:
    """Return whether a name's prefix is that of registered ids."""
    prefix = name.partition(":")[0]
    load_plugins()
    return prefix in FAMILIES or any(env_id.startswith(f"{prefix}:") for env_id in ENV_REGISTRY)


def _check_makes(made: Any, name: Any) -> None:
    """Refuse what is no environment class and no function."""
    if not callable(made) or (isinstance(made, type) and not issubclass(made, Env)):
        what = f"the class {made.__name__}" if isinstance(made, type) else f"{made!r:.80}"
        raise BadArgument(
            f"environment {name!r} is {what}; accepted: a subclass of gem.Env, or a function that "
            "returns one."
        )


def _makes_env(entry: Any) -> bool:
    """Return whether this is a class of environments, or a function that says that it returns one."""
    made = entry
    if not isinstance(entry, type):
        with suppress(Exception):  # annotations are code of the module; broken ones are ignored
            made = get_type_hints(entry).get("return")
    return isinstance(made, type) and issubclass(made, Env)


def _claims(entry: Any) -> dict[str, Any]:
    """Return what a class says of itself, for a spec that nobody wrote."""
    if not isinstance(entry, type):
        return {}
    claims: dict[str, Any] = {"forkable": getattr(entry, "forkable", True)}
    if getattr(entry, "several_seats", False):
        claims["seats"] = tuple(getattr(entry, "seats", ())) or ("agent",)
    experts = [getattr(entry, name, None) for name in ("solve", "expert_move", "expert_action")]
    if any(not getattr(each, "__module__", "gem.").startswith("gem.") for each in experts if each):
        claims["solver"] = "exact"  # nobody has measured it
    return claims


def _of_family(env_id: str) -> EnvSpec | None:
    """Return the spec that a family has for an id, or None."""
    prefix, _, name = env_id.partition(":")
    return FAMILIES[prefix].find(name) if prefix in FAMILIES else None


def ids(family: str | None = None) -> list[str]:
    """Return all registered ids, sorted, or those of one family. Imports no environment."""
    return sorted(i for i in ENV_REGISTRY if family is None or i.startswith(family + ":"))


def specs(family: str | None = None) -> Iterator[EnvSpec]:
    """Yield the spec of every id, in order."""
    for env_id in ids(family):
        yield spec(env_id)


def load_plugins() -> None:
    """Let installed packages register ids: load each entry point in ``gem.envs``, and call it if callable.

    A plug-in that fails causes a warning and is skipped.
    """
    global _plugins_loaded
    if _plugins_loaded:
        return
    from gem.waiting import name_wait  # here, because `import gem` is to be light

    _plugins_loaded = True
    for plugin in points(PLUGIN_GROUP):
        try:
            target = load_point(plugin)
            if callable(target):
                with name_wait(f"plug-in {plugin.name!r} ({plugin.value}) to register its environments"):
                    target()
        except (Exception, SystemExit) as error:  # a failure of a foreign package must not stop gem
            what = f"plug-in {plugin.name!r} ({plugin.value})"
            text = text_of_error(error)[:300]
            if not text.startswith(what):  # as load_point says it
                text = f"{what} failed: {type(error).__name__}: {text}"
            warnings.warn(
                f"{text}. Its package is to be mended or removed; gem goes on without it.", stacklevel=2
            )


def make(env_id: AnyEnv, *, seed: int | None = None, trust: bool = False, **kwargs: Any) -> Env:
    """Make an environment.

    Args:
        env_id: an id, a spec, a class, a function or Maker that makes one, or a task with its wrappers.
        seed: the seed of the first reset() that gets none; a constructor outside gem that takes a `seed`
            gets it too.
        trust: make a task from a file even if it names more than `gem.trust` lists.
        **kwargs: change the keywords of the spec or the task. An environment whose class has `digest_files`,
            which reads its tasks from files, takes `digest` too: with other files than those it is not made.

    Raises:
        UnknownEnv, UnknownArgument, MissingExtra: the message says what to do.
        BadArgument: for a task that cannot be made again, because some of its arguments were not stored; for
            one from a file that names what a file may not name.
    """
    if isinstance(env_id, TaskRef):
        env_id = accept_task(env_id, trust)
    if isinstance(env_id, TaskRef | Maker):
        return Maker(env_id, kwargs)(seed)
    env_spec = _spec_for(env_id)
    if seed is not None and _takes_seed(load(env_spec.entry_point, env_spec.extra, env_spec.id)):
        kwargs = {"seed": seed, **kwargs}
    return _make_env(env_spec, kwargs, seed)


def _takes_seed(entry: Callable[..., Any]) -> bool:
    """Return whether a constructor outside gem takes a seed; in gem the first reset takes it."""
    return not (getattr(entry, "__module__", None) or "").startswith("gem.") and "seed" in parameters_of(
        entry
    )


def split_seed(env_id: AnyEnv, kwargs: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
    """Return the first seed that the keywords of an environment have, and what its constructor takes of them.

    Raises UnknownEnv or MissingExtra when the environment cannot be loaded.
    """
    rest = dict(kwargs)
    seed = rest.pop("seed", None)
    if seed is None:
        return None, dict(kwargs)
    env_spec = _spec_for(env_id)
    if "seed" in parameters_of(load(env_spec.entry_point, env_spec.extra, env_spec.id)):
        rest["seed"] = seed
    return seeding.check(seed), rest


WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {"use_mp": (True, False), "dataset": (None,)}
"""Keywords that scripts written for upstream give to every environment, with the values that mean nothing to
one that does not take them."""


def _drop_keywords(entry: Callable[..., Any], kwargs: Mapping[str, Any], env_id: str) -> dict[str, Any]:
    """Return the keywords without those that have no effect, which are warned of."""
    parameters = parameters_of(entry)
    idle = [
        name
        for name, values in WITHOUT_EFFECT.items()
        if name in kwargs and any(kwargs[name] is value for value in values)  # not ==: it may be a table
    ]
    if not idle or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(kwargs)
    idle = [name for name in idle if name not in parameters]
    for name in idle:
        warnings.warn(f"{env_id} does not take {name!r}; {name}={kwargs[name]} has no effect.", stacklevel=4)
    return {name: value for name, value in kwargs.items() if name not in idle}


def _make_env(env_spec: EnvSpec, kwargs: Mapping[str, Any], seed: int | None) -> Env:
    entry: Any = load(env_spec.entry_point, env_spec.extra, env_spec.id)
    kwargs = _drop_keywords(entry, kwargs, env_spec.id)
    merged = {**env_spec.kwargs, **kwargs}
    digest = _pop_digest(entry, merged)
    check_keywords(entry, merged, env_spec.id)
    if digest and digest != entry.digest_files(**merged):
        raise BadArgument(
            f"the files of {env_spec.id} have changed since their digest {digest!r:.40} was taken. Restore "
            "them, or begin anew, with another --out."
        )
    env: Env = entry(**merged)
    if not isinstance(env, Env):
        raise BadArgument(
            f"{env_spec.id} makes {env!r:.80}; accepted: a subclass of gem.Env, or what returns one."
        )
    if kwargs:
        # The caller's budget replaces the claimed one; the other claims are those of the registered keywords.
        budget = kwargs.get("max_turns", kwargs.get("max_attempts", env_spec.max_turns))
        env_spec = replace(env_spec, kwargs={**env_spec.kwargs, **kwargs}, max_turns=budget)
    env.spec = env._made_by = env_spec
    if seed is not None:
        env.seed = seed
    return env


def add_digest(env_spec: EnvSpec, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return keywords of an environment with the `digest` of the files that it reads its tasks from, if any.

    Raises UnknownArgument for a keyword that it does not take, MissingExtra or MissingData when it cannot be
    made here, and BadArgument when the files cannot be read.
    """
    entry: Any = load(env_spec.entry_point, env_spec.extra, env_spec.id)
    merged = {**env_spec.kwargs, **kwargs}
    digest = _pop_digest(entry, merged)
    check_keywords(entry, merged, env_spec.id)
    if digest == "":
        digest = entry.digest_files(**merged)
    return {**kwargs, "digest": digest} if digest else kwargs


def _pop_digest(entry: Any, kwargs: dict[str, Any]) -> Any:
    """Remove the digest of files from keywords and return it, "" if it is missing.

    None: the environment reads no files, or its constructor takes the digest.
    """
    if not hasattr(entry, "digest_files") or "digest" in parameters_of(entry):
        return None
    return kwargs.pop("digest", "")


OF_OTHERS = ("atif:", "trace:openenv")
"""How the ids of episodes begin that `gem.adapters` reads from other tools."""


def accept_task(task: TaskRef, trust: bool = False) -> TaskRef:
    """Return a task as one that may be made; one that a decoder read is checked, unless `trust` is set.

    Raises BadArgument when it names what a file may not name; see `gem.trust`.
    """
    if not task.foreign:
        return task
    note_addresses([task.spec, task.kwargs, *(wrapper.kwargs for wrapper in task.wrappers)])
    if task.spec.startswith(OF_OTHERS):
        raise UnknownEnv(f"{task.spec} was played by another tool: there is no environment to play it again.")
    if not trust:
        load_plugins()
        check_known_file(task.spec)  # before it is looked up, which would load it
        env_spec = _find(task.spec)
        if env_spec is None and task.entry_point is None and (":" not in task.spec or _is_prefix(task.spec)):
            spec(task.spec)  # raises UnknownEnv, with the nearest ids
        check_task(task, env_spec, _EntryPoints())
    return replace(task, foreign=False)


def accept_settings(
    settings: Any,
    where: str,
    prose: Container[str] = (),
    folder: str | PathLike[str] = "",
    trust: bool = False,
) -> None:
    """Check the settings of a file, before anything that they name is looked up.

    Every file with settings comes here, also one that is trusted: its addresses are not this user's.

    Args:
        settings: tables, lists and values, as TOML and JSON have them.
        where: the file, for the error.
        prose: keys whose texts are for readers.
        folder: the folder that relative paths start from.
        trust: let them name more than `gem.trust` lists.

    Raises:
        BadArgument: when one names what a file may not name; see `gem.trust`.
    """
    note_addresses(settings)
    if trust:
        return
    try:
        check_settings(settings, _is_prefix, prose, folder)
    except BadArgument as error:
        raise BadArgument(f"{where}: {error}") from None


class _EntryPoints:
    """The entry points of registered ids, without those of families; looked up only when asked."""

    def __contains__(self, name: object) -> bool:
        specs = [ENV_REGISTRY[env_id] for env_id in ENV_REGISTRY if _of_family(env_id) is None]
        return any(spec.entry_point == name for spec in specs)


def task_of(env: Env) -> TaskRef:
    """Return plain data from which make() makes `env` again; without its state and its seed.

    A wrapper from the wrapper factory is written as its name there, any other as ``module:Class``.
    """
    around: list[EnvWrapper] = []
    while isinstance(env, EnvWrapper) and not isinstance(env._made_by, EnvSpec):
        around.append(env)
        env = env.env
    name, entry_point, kwargs, opaque = _written_env(env)
    wrappers: list[WrapperRef] = []
    for wrapper in reversed(around):
        ref, unwritten = _written_wrapper(wrapper)
        wrappers.append(ref)
        opaque += unwritten
    return TaskRef(name, kwargs, tuple(wrappers), None, entry_point, opaque)


def _written_env(env: Env) -> tuple[str, str | None, dict[str, Any], tuple[str, ...]]:
    """Return name, entry point, keywords and opaque arguments of the innermost environment."""
    made, env_spec = type(env), env.spec
    entry = made if env_spec is None else env_spec.entry_point
    kwargs, opaque = written_arguments(made, arguments_of(env) if env_spec is None else env_spec.kwargs)
    entry_point = entry if isinstance(entry, str) else name_of(entry)
    known = None if env_spec is None else _find(env_spec.id)
    if env_spec is not None and known is not None and known.entry_point == entry:
        return env_spec.id, entry_point, kwargs, opaque
    if entry_point is None:
        opaque = (made.__name__, *opaque)
    if env_spec is not None and known is None:
        return env_spec.id, entry_point, kwargs, opaque
    return name_in_file(entry_point or _place_of(made)), entry_point, kwargs, opaque


def _written_wrapper(wrapper: EnvWrapper) -> tuple[WrapperRef, tuple[str, ...]]:
    """Return a wrapper's reference and opaque arguments."""
    made = type(wrapper)
    name: str | None
    if isinstance(wrapper._made_by, tuple):
        name, given = wrapper._made_by
    else:
        name, given = name_of(made), arguments_of(wrapper)
        del given[next(iter(parameters_of(made))) if wrapper._init[0] else "env"]
    kwargs, opaque = written_arguments(made, given)
    if name is None:
        name, opaque = _place_of(made), (made.__name__, *opaque)
    return WrapperRef(name, kwargs), opaque


def _place_of(made: Callable[..., Any]) -> str:
    # a worker process imports the caller's script under the name __mp_main__
    named: Any = getattr(made, "func", made)  # what a functools.partial calls
    if not hasattr(named, "__qualname__"):
        named = type(named)
    module = "__main__" if named.__module__ == "__mp_main__" else named.__module__
    return f"{module}:{named.__qualname__}"


@dataclass(frozen=True, slots=True)
class Maker:
    """A picklable function that makes one environment from what names it, keywords and wrappers.

    Those of another Maker come first: its wrappers are innermost, and keywords given here replace its own.
    `spec` is looked up once and pickled too. So an id that is registered only in this process can be made in
    another one, if its entry point can be imported there.

    Raises:
        UnknownEnv: for an id or a wrapper's name that is not registered.
    """

    env_id: AnyEnv
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Wrapper, ...] = ()
    spec: EnvSpec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up the spec, and the wrappers' names; files keep the content that they have now."""
        if isinstance(inner := self.env_id, Maker):
            object.__setattr__(self, "env_id", inner.env_id)
            object.__setattr__(self, "kwargs", {**inner.kwargs, **self.kwargs})
            object.__setattr__(self, "wrappers", (*inner.wrappers, *self.wrappers))
        if isinstance(self.env_id, TaskRef):
            object.__setattr__(self, "env_id", accept_task(self.env_id))
        spec = _spec_for(self.env_id)
        if any(getattr(value, "waits", False) is True for value in self.kwargs.values()):
            spec = replace(spec, waits=True, deterministic=False)  # a grader asks a server
        object.__setattr__(self, "spec", spec)
        if isinstance(self.env_id, str):
            object.__setattr__(self, "env_id", self.spec.id)
        elif not isinstance(self.env_id, TaskRef):
            object.__setattr__(self, "env_id", spec)
        object.__setattr__(self, "wrappers", tuple(map(fix_wrapper, self.wrappers)))
        for wrapper in self.wrappers:
            if isinstance(wrapper, str | WrapperRef):
                find_wrapper(wrapper)

    def __call__(self, seed: int | None = None) -> Env:
        """Make the environment; `seed` is the seed of the first reset() that gets none.

        Raises:
            BadArgument: for a task that cannot be made again.
        """
        kwargs, wrappers = self.kwargs, self.wrappers
        if isinstance(self.env_id, TaskRef):
            task = self.env_id
            if task.opaque:
                raise BadArgument(
                    f"the task of {task.spec} cannot be made again: {', '.join(task.opaque)} could not be "
                    "stored. Make the environment and its wrappers with the same code as the first time."
                )
            own = self.spec.kwargs
            first = {
                name: restore_value(value)
                for name, value in task.kwargs.items()
                if name not in own or value != write_value(own[name])
            }
            kwargs, wrappers = {**first, **kwargs}, (*task.wrappers, *wrappers)
            seed = task.seed if seed is None else seed
        env = _make_env(self.spec, kwargs, seed)
        for wrapper in wrappers:
            env = _wrap(env, wrapper)
        return env


def _wrap(env: Env, wrapper: Wrapper) -> Env:
    """Put a wrapper around an environment.

    Raises:
        BadArgument: for a result that does not hold it: another environment would be played under its name.
    """
    made = find_wrapper(wrapper)(env)
    if not _holds(made, env):
        name = wrapper if isinstance(wrapper, str) else getattr(wrapper, "name", repr(wrapper))
        raise BadArgument(
            f"the wrapper {without_digest(name)} made {made!r:.80}, which does not hold the environment that "
            "it was given; accepted: an EnvWrapper around it."
        )
    return made


_SEARCHED = 100_000
"""The number of objects in which a wrapped environment is looked for."""


def _holds(made: object, env: Env) -> bool:
    """Return whether an environment is another one, or has it in anything that it holds, as a list.

    The arguments that it remembers do not count: any class would hold what it was called with. Where there is
    too much to look at, it is believed.
    """
    if made is env or not isinstance(made, Env):
        return made is env
    return leads_to(made, {id(env)}, without=made._init, most=_SEARCHED) is not False


def claims_of(maker: Maker) -> EnvSpec:
    """Return a maker's spec; for the family ``remote:`` with the claims of the server, which is asked.

    Only an environment that this user named may be asked for. Raises: what making it raises.
    """
    if maker.spec.family != "remote":
        return maker.spec
    with maker() as env:
        return env.spec or maker.spec


def _spec_for(what: AnyEnv) -> EnvSpec:
    """Return the spec of an environment in this process; a spec is returned as it is."""
    if not isinstance(what, TaskRef):
        return spec_named(what)
    try:
        return spec(what.spec)
    except UnknownEnv as unknown:
        if what.entry_point is None:
            try:
                _check_made_by(what.spec)
            except BadArgument:
                raise unknown from None
        else:
            _check_made_by(what.entry_point)
        return EnvSpec(what.spec, what.entry_point or what.spec)


def fix_wrapper(wrapper: Wrapper, kind: str = "wrapper") -> Wrapper:
    """Return a wrapper that this user names, without the path of its file; see `gem.naming.fix_name`.

    Raises:
        BadArgument: when there is no such file or module.
    """
    if isinstance(wrapper, WrapperRef):
        return replace(wrapper, name=cast(str, fix_wrapper(wrapper.name)))
    if not isinstance(wrapper, str) or ":" not in wrapper:
        return wrapper
    fixed = fix_name(wrapper, kind)
    load_named(fixed, kind)
    return fixed


def find_wrapper(wrapper: Wrapper) -> Callable[[Env], Env]:
    """Return the function that puts a wrapper around an environment.

    Raises:
        UnknownEnv: for a name that the wrapper factory does not have.
    """
    if isinstance(wrapper, str):
        wrapper = WrapperRef(wrapper)
    if not isinstance(wrapper, WrapperRef):
        return wrapper
    place = entry_point_of(wrapper.name) or wrapper.name
    if is_fixed(place):
        raise UnknownEnv(unknown_file(place, "wrapper"))
    fn: Callable[..., Env]
    if ":" not in wrapper.name:
        fn = load(WRAPPER_FACTORY)(wrapper.name)
    elif load(IS_TOOL)(entry := load(place)):
        fn = partial(_give_tool, entry, wrapper.name)
    else:
        _check_wraps(entry, without_digest(wrapper.name))
        fn = entry
    return partial(fn, **restore_value(wrapper.kwargs))


def _give_tool(tool: Any, name: str, env: Env, **kwargs: Any) -> Env:
    """Return `env` with a tool; it is stored by the tool's name."""
    wrapper = cast(EnvWrapper, load(TOOL_WRAPPER)(env, [tool], **kwargs))
    wrapper._made_by = name, kwargs
    return wrapper


def _check_wraps(entry: Any, name: str) -> None:
    """Refuse what is no wrapper, before it is called.

    Raises:
        BadArgument: with what it is, and what is missing.
    """
    if isinstance(entry, type):
        if not issubclass(entry, EnvWrapper):
            what = "environments" if issubclass(entry, Env) else "other objects"
            raise BadArgument(
                f"{name} is a class of {what}; accepted: a subclass of gem.EnvWrapper, or of "
                "gem.tools.BaseTool."
            )
    elif not callable(entry):
        raise BadArgument(f"{name} is {entry!r:.80}; accepted: a wrapper or a tool.")
    elif not _makes_env(entry):
        raise BadArgument(
            f"{name} is a function that is marked neither as a tool nor as a wrapper; accepted: one with "
            "@gem.tools.tool above it, or one that returns a wrapped environment and says so (`-> Env`)."
        )


def _check_made_by(place: str) -> None:
    """Refuse what a task names as its environment, if it is none, before it is called.

    Raises:
        BadArgument: for all but a class of environments and a function that says that it returns one.
    """
    if not isinstance(place, str):
        raise BadArgument(f"a task names {place!r:.80}; accepted: 'module:name'.")
    if not _makes_env(load(place)):
        raise BadArgument(
            f"a task names {without_digest(name_in_file(place))!r}, which is no environment; accepted: a "
            "subclass of gem.Env, or a function that is annotated as returning one (`-> Env`)."
        )


def print_envs(family: str | None = None) -> None:
    """Print all ids, one block per family."""
    last = None
    for env_id in ids(family):
        prefix = env_id.partition(":")[0]
        if prefix != last:
            print(f"{prefix}:")
            last = prefix
        print(f"  {env_id}")
