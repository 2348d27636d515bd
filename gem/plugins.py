"""Names of things elsewhere: entry points ``"module:name"``, and what installed packages add by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from gem.errors import BadArgument, did_you_mean, missing_extra


def load(entry_point: str | Callable[..., Any], extra: str | None = None) -> Callable[..., Any]:
    """Return what ``"module:name"`` names.

    Raises:
        MissingExtra: when a package that `extra` brings is absent.
        BadArgument: when there is no such module or name.
    """
    if not isinstance(entry_point, str):
        return entry_point
    module_name, colon, attribute = entry_point.partition(":")
    if not colon or not module_name or module_name.startswith("."):
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
        return attrgetter(attribute)(module)  # type: ignore[no-any-return]
    except AttributeError:
        known = did_you_mean(attribute, vars(module))
        raise BadArgument(
            f"entry point {entry_point!r}: {module_name} has no {attribute!r}.{known}"
        ) from None


COMPUTING = (
    *("math", "statistics", "string", "decimal", "fractions", "datetime", "json", "textwrap", "unicodedata"),
    *("operator", "_operator", "pathlib"),
)
"""Modules of the standard library that a task may name classes and functions of, which only compute."""

STANDARD = sys.stdlib_module_names | {"test", "_testcapi", "_testinternalcapi"}

BUILTINS = (
    "abs",
    "bool",
    "float",
    "int",
    "len",
    "list",
    "max",
    "min",
    "repr",
    "round",
    "sorted",
    "str",
    "sum",
)


def may_be_named(thing: Any) -> bool:
    """Return whether a task may name a class or function: nothing of the standard library that acts.

    Nor its methods: `pathlib.Path` only computes, `Path.unlink` does not.
    What does not say which module it is of, as ``os.system.__call__``, may be anything.
    """
    module, name = getattr(thing, "__module__", None), str(getattr(thing, "__qualname__", ""))
    if not isinstance(module, str):
        return False
    home = module.partition(".")[0]
    if home == "builtins":
        return name in BUILTINS
    if home in COMPUTING:
        return isinstance(thing, type) or "." not in module + name
    return home not in STANDARD


def load_written(name: str) -> Any:
    """Return what ``"module:name"`` names in a task, which may come from somebody else's file.

    Raises:
        BadArgument: for what is not there, or what no task may name, as `os.system`.
    """
    if not isinstance(name, str):
        raise BadArgument(f"a task names {name!r:.80}; accepted: 'module:name'.")
    found = load(name)
    if not may_be_named(found):
        raise BadArgument(
            f"a task names {name!r}, of the standard library; accepted: an Env, a tool, a grader or a "
            "function of a package, and what only computes."
        )
    return found


def names(group: str) -> list[str]:
    """Return the names that installed packages offer in an entry point group, sorted."""
    from importlib.metadata import entry_points  # here, because `import gem` is to be light

    return sorted(entry_points(group=group).names)


def find(group: str, name: str) -> Any:
    """Return what an installed package offers under `name` in an entry point group; None where none does.

    Raises:
        BadArgument: when a package offers it and it cannot be loaded.
    """
    from importlib.metadata import entry_points

    for plugin in entry_points(group=group, name=name):
        try:
            return plugin.load()
        except Exception as error:  # somebody else's package: whatever its import does wrong is told
            raise BadArgument(f"plug-in {name!r} ({plugin.value}) cannot be loaded: {error!r}") from error
    return None
