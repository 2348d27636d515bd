"""Load objects by name: ``"module:name"``, and the entry points of installed packages."""

from __future__ import annotations

import functools
import importlib
import inspect
import traceback
import warnings
from collections.abc import Callable, Collection
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem.errors import BadArgument, GemError, did_you_mean, missing_extra, text_of_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def load(
    entry_point: str | Callable[..., Any], extra: str | None = None, what: str | None = None
) -> Callable[..., Any]:
    """Return the object that ``"module:name"`` names.

    Args:
        entry_point: the name, or the object itself.
        extra: the pip extra that has the packages which the module needs.
        what: the subject of the error that one of these is missing; by default the module.

    Raises:
        MissingExtra: when a package of the pip extra `extra` is missing.
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
            raise missing_extra(what or module_name, missing, extra) from error
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


@functools.lru_cache(maxsize=256)
def declares(function: Any, name: str) -> bool:
    """Return whether a function of somebody else has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def check_parameters(what: str, function: Callable[..., Any], names: Collection[str], *keywords: str) -> None:
    """Refuse a function of somebody else that cannot be called with these arguments; `what` names it.

    Raises:
        BadArgument: with its own parameters, its file, and the parameters that it is to have.
    """
    try:
        inspect.signature(function).bind(*names, **dict.fromkeys(keywords))
    except ValueError:  # a function of C without a signature
        return
    except TypeError as error:
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        at = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
        raise BadArgument(
            f"{what} takes {inspect.signature(function)}{at}; accepted: a function that can be called with "
            f"({', '.join((*names, *keywords))}): {error}."
        ) from error


def call_foreign(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of somebody else; `what` names it in errors.

    Raises:
        BadArgument: for any error of the function but a GemError, with its line if it began.
    """
    try:
        return function(*args)
    except GemError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        here = frame.filename == __file__  # it did not begin
        at = "" if here else f" ({Path(frame.filename).name}, line {frame.lineno}, in {frame.name})"
        raise BadArgument(f"{what} raised {type(error).__name__}: {text_of_error(error)}{at}.") from error


def names(group: str) -> list[str]:
    """Return the names that installed packages offer in an entry point group, sorted."""
    return sorted({point.name for point in points(group)})


def find(group: str, name: str) -> Any:
    """Return what an installed package offers as `name` in an entry point group, or None.

    Raises:
        BadArgument: when a package offers it but it cannot be loaded, or is nothing that can be called.
    """
    for point in points(group):
        if point.name == name:
            offered = load_point(point)
            if callable(offered):
                return offered
            raise BadArgument(
                f"plug-in {name!r} ({point.value}) is {type(offered).__name__}; "
                "accepted: a class or a function."
            )
    return None


def points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group; a warning says where those of some package cannot be read."""
    from importlib.metadata import entry_points  # here, because `import gem` is to be light

    try:
        return list(entry_points(group=group))
    except Exception as error:  # one damaged package spoils the list of all
        text = text_of_error(error)[:200]
        warnings.warn(f"plug-ins ({group}) of installed packages cannot be read: {text}", stacklevel=3)
        return []


def load_point(point: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        BadArgument: when it cannot be loaded.
    """
    from gem.waiting import name_wait  # here, because `import gem` is to be light

    what = f"plug-in {point.name!r} ({point.value})"
    try:
        with name_wait(f"{what} to be imported"):
            return point.load()
    except (Exception, SystemExit) as error:  # the import of a foreign package may fail in any way
        text = f"{type(error).__name__}: {text_of_error(error)[:200]}"
        raise BadArgument(f"{what} cannot be loaded: {text}") from error
