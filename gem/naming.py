"""One way to name a thing: `load_named` reads what commands, suites, studies, configs and gem.make() name.

A name is, in this order:

1. a registered id or name, as ``game:Sudoku-v0-easy``, ``grpo`` or ``openai:gpt-4o``: the caller looks it up
   first, so a registered prefix wins;
2. ``path/file.py:Attribute``: a class, function or object in a file, see `gem.source_files`;
   ``./math.py:X`` is a file even where ``math.py`` would be a registered prefix;
3. ``package.module:Attribute``: one in a module that Python can import, or one in the current folder;
4. in Python: the object itself.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import traceback
from operator import attrgetter
from types import ModuleType
from typing import Any

from gem.errors import BadArgument, GemError, did_you_mean, text_of_error
from gem.source_files import Source, install, read_source, remember, source_of

FORMS = "package.module:Attribute, or path/file.py:Attribute"
"""The forms of a name that is not registered, as errors list them."""


def is_path(name: str) -> bool:
    """Return whether a name is of the form ``path/file.py:Attribute``, or a file without an attribute."""
    return name.endswith(".py") or name.rpartition(":")[0].endswith(".py")


def load_named(name: Any, kind: str, *, folder: str | os.PathLike[str] = "") -> Any:
    """Return the object that ``package.module:Attribute`` or ``path/file.py:Attribute`` names.

    What is no text is returned as it is. Look up registered names first. Only a name that this user gave may
    come here: the module is executed, and a file is kept in the user's cache as known and trusted. What a
    file of somebody else names goes through the rule of trust instead.

    Args:
        name: the name, or the object itself.
        kind: what it is to be, for the errors, as "environment" or "grader".
        folder: the folder that a relative path starts from, such as that of a suite's file.

    Raises:
        BadArgument: when there is no such file, module or attribute, or its import fails.
    """
    if not isinstance(name, str):
        return name
    place, _, attribute = name.rpartition(":")
    if is_path(name):
        source = install(read_named(place or name, kind, folder))
        if not place:
            raise BadArgument(f"{kind} {name!r} names a file; accepted: {name}:NAME.{_defined(source)}")
        made = _attribute(_imported(source.module, name, kind), attribute, name, kind)
        remember(source)
        return made
    if not place or not attribute or place.startswith("."):
        raise BadArgument(f"there is no {kind} {name!r}; accepted: a registered name, {FORMS}.")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # `python -m` has it too; but never ahead of the standard library
    return _attribute(_imported(place, name, kind), attribute, name, kind)


def read_named(path: str, kind: str, folder: str | os.PathLike[str] = "") -> Source:
    """Read the file of ``path/file.py:Attribute`` without executing it.

    Raises:
        BadArgument: when there is no such file, or it is not valid Python.
    """
    try:
        return read_source(os.path.join(folder, os.path.expanduser(path)))
    except BadArgument as error:
        raise BadArgument(f"{kind} {path!r}: {error} Accepted: a registered name, {FORMS}.") from error


def _imported(module: str, name: str, kind: str) -> ModuleType:
    """Import a module; a failure is one sentence with the place of the error.

    Raises:
        BadArgument: when there is no such module, or its import fails.
    """
    try:
        return importlib.import_module(module)
    except (KeyboardInterrupt, GemError):
        raise
    except BaseException as error:  # SystemExit of a script too
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if missing and (module == missing or module.startswith(missing + ".")):
            raise BadArgument(
                f"there is no {kind} {name!r}: no module {missing!r} is installed or in this folder. "
                f"Accepted: a registered name, {FORMS}."
            ) from error
        frames = [
            each
            for each in traceback.extract_tb(error.__traceback__)
            if "importlib" not in each.filename and each.filename != __file__
        ]
        at = "" if isinstance(error, SyntaxError) or not frames else _place(frames[-1])
        raise BadArgument(
            f"{kind} {name!r}: its import fails: {type(error).__name__}: {text_of_error(error)}{at}."
        ) from error


def _place(frame: traceback.FrameSummary) -> str:
    return f" ({frame.filename}, line {frame.lineno})"


def _attribute(module: ModuleType, attribute: str, name: str, kind: str) -> Any:
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        close = did_you_mean(attribute, vars(module)) or _defined(source_of(module.__name__))
        raise BadArgument(f"{kind} {name!r}: there is no {attribute!r} in it.{close}") from None


def _defined(source: Source | None) -> str:
    """Return the sentence that lists the classes and functions of a file."""
    if source is None:
        return ""
    body = ast.parse(source.files[source.main]).body
    made = (ast.ClassDef, ast.FunctionDef)
    names = [node.name for node in body if isinstance(node, made) and not node.name.startswith("_")]
    return f" It defines {', '.join(names[:20])}." if names else " It defines no class and no function."
