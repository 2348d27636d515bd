"""One way to name a thing: what commands, suites, studies, configs and gem.make() name, and how it is found.

A name is, in this order:

1. a registered id or name, as ``game:Sudoku-v0-easy``, ``grpo`` or ``openai:gpt-4o``: the caller looks it up
   first, so a registered prefix wins;
2. ``path/file.py:Attribute``: a class, function or object in a file, see `gem.source_files`;
   ``./math.py:X`` is a file where ``math.py:`` would be a registered prefix;
3. ``file.py@DIGEST:Attribute``: the same in the file with this content, whatever the folder holds now. gem
   writes it into stores, configs and reports in place of a path. It names only what this user named before;
4. ``package.module:Attribute``: one in a module that Python can import, or one in the current folder;
5. in Python: the object itself.

`fix_name` turns the second form into the third, and `load_named` loads any of them.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import PathFinder
from itertools import count
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from gem.agent_names import AGENTS
from gem.errors import BadArgument, GemError, did_you_mean, text_of_error
from gem.source_files import (
    Source,
    digest_of,
    install,
    known_source,
    named_before,
    parse_code,
    read_source,
    remember,
    remember_name,
    source_of,
)

FORMS = "package.module:Attribute, or path/file.py:Attribute"
"""The forms of a name that is not registered, as errors list them."""

_FIXED = re.compile(r"([^/\\@:]+)\.py@([0-9a-f]{12}):(.+)", re.DOTALL)


def is_path(name: object) -> bool:
    """Return whether a name is of the form ``path/file.py:Attribute``, or a file without an attribute."""
    if not isinstance(name, str):
        return False
    place, colon, _ = name.rpartition(":")  # of `program:python agent.py` no place ends with .py
    return (place if colon else name).endswith(".py")


def is_fixed(name: object) -> bool:
    """Return whether a name is of the form ``file.py@DIGEST:Attribute``."""
    return isinstance(name, str) and _FIXED.fullmatch(name) is not None


_SOMEBODY_ELSE = ContextVar("_SOMEBODY_ELSE", default=False)


@contextmanager
def foreign_names() -> Iterator[None]:
    """Leave names as they are while a file of somebody else may be read: `fix_name` then trusts nothing."""
    token = _SOMEBODY_ELSE.set(True)
    try:
        yield
    finally:
        _SOMEBODY_ELSE.reset(token)


def fix_name(name: str, kind: str, folder: str | os.PathLike[str] = "") -> str:
    """Return ``file.py@DIGEST:Attribute`` for ``path/file.py:Attribute``, and any other name as it is.

    The file is read and kept in the user's cache; it is not executed. Only a name that this user gave may
    come here: it is trusted from then on.

    Args:
        name: the name.
        kind: what it is to be, for the errors, as "environment" or "grader".
        folder: the folder that a relative path starts from, such as that of a suite's file.

    Raises:
        BadArgument: when there is no such file, or it is not valid Python.
    """
    if _SOMEBODY_ELSE.get() or (kind == "agent" and name.partition(":")[0] in AGENTS):
        return name  # the command of a program may end in a file's name
    if not is_path(name):
        if (module := _module_file(name)) is not None:
            remember_name(*module)
        return name
    place, _, attribute = name.rpartition(":")
    try:
        source = install(read_source(os.path.join(folder, os.path.expanduser(place or name))))
    except BadArgument as error:
        raise BadArgument(f"{kind} {name!r}: {error} Accepted: a registered name, {FORMS}.") from error
    if not place or not attribute:
        raise BadArgument(
            f"{kind} {name!r} names a file; accepted: {place or name}:NAME.{_list_definitions(source)}"
        )
    remember(source)
    fixed = f"{source.main}@{source.digest}:{attribute}"
    remember_name(fixed)
    return fixed


def named_module(name: str) -> bool:
    """Return whether this user named ``package.module:Attribute`` before, in the same file with this content.

    Nothing is imported to find out.
    """
    place = _module_file(name)
    if place is None or not named_before(*place):
        return False
    _add_current_folder(name.partition(":")[0])
    return True


def _module_file(name: str) -> tuple[str, str, str] | None:
    """Return a name, the file of its module, and the file's text; None if an import would read no file."""
    module, colon, _ = name.partition(":")
    if not colon or is_fixed(name) or digest_of(module):
        return None
    path = None
    places: Iterable[str] = [*sys.path, os.getcwd()]
    try:
        for number, _ in enumerate(parts := module.split("."), 1):
            spec = PathFinder.find_spec(".".join(parts[:number]), [*places])
            if spec is None:
                return None
            path, places = spec.origin, spec.submodule_search_locations or []
        return None if path is None else (name, os.path.realpath(path), Path(path).read_text("utf-8"))
    except (OSError, ValueError, ImportError, KeyError):
        return None


def entry_point_of(name: str) -> str | None:
    """Return the ``module:attribute`` of a name ``file.py@DIGEST:Attribute``; None for one that is not known.

    Known is a file that this user named before, on this machine or in the process that this one works for.
    """
    fixed = _FIXED.fullmatch(name)
    source = known_source(fixed[2]) if fixed else None
    return f"{source.module}:{fixed[3]}" if fixed and source and source.main == fixed[1] + ".py" else None


def name_in_file(entry_point: str) -> str:
    """Return ``file.py@DIGEST:Attribute`` for an entry point in a file's module, any other as it is."""
    module, _, attribute = entry_point.partition(":")
    top, _, file = module.partition(".")
    digest = digest_of(top)
    return entry_point if digest is None else f"{file.replace('.', '/')}.py@{digest}:{attribute}"


def load_named(name: Any, kind: str, *, folder: str | os.PathLike[str] = "") -> Any:
    """Return the object that a name names; registered names are the caller's to look up, before.

    Only a name that this user gave may come here: the module is executed. What a file of somebody else names
    goes through the rule of trust first.

    Args:
        name: the name; what is no text is returned as it is.
        kind: what it is to be, for the errors, as "environment" or "grader".
        folder: the folder that a relative path starts from, such as that of a suite's file.

    Raises:
        BadArgument: when there is no such file, module or attribute, or its import fails.
    """
    if not isinstance(name, str):
        return name
    if is_kept(name):
        raise BadArgument(
            f"{kind} is {name!r}, which a program gave as an object; give it again, or name its file."
        )
    fixed = fix_name(name, kind, folder)
    if is_fixed(fixed):
        entry_point = entry_point_of(fixed)
        if entry_point is None:
            raise BadArgument(unknown_file(fixed, kind))
        module, _, attribute = entry_point.partition(":")
    else:
        module, _, attribute = name.rpartition(":")
    if not module or not attribute or module.startswith("."):
        raise BadArgument(f"there is no {kind} {name!r}; accepted: a registered name, {FORMS}.")
    return _attribute(_import_module(module, name, kind), attribute, name, kind)


def without_digest(name: str) -> str:
    """Return ``file.py:Attribute`` for ``file.py@DIGEST:Attribute``, any other name as it is."""
    fixed = _FIXED.fullmatch(name)
    return f"{fixed[1]}.py:{fixed[3]}" if fixed else name


def changed_files(names: Iterable[str]) -> list[str]:
    """Return a sentence for each name ``file.py@DIGEST:Attribute`` whose file has another content by now."""
    sentences: dict[str, str] = {}
    for name in names:
        fixed = _FIXED.fullmatch(name)
        source = known_source(fixed[2]) if fixed else None
        if source is None or source.folder is None:
            continue
        path = os.path.join(source.folder, source.main)
        try:
            now = read_source(path).digest
        except BadArgument:
            now = "that of no Python file" if os.path.exists(path) else source.digest
        if now != source.digest:
            sentences[source.digest] = (
                f"{source.main} or a file that it imports has changed: its digest was {source.digest} and is "
                f"now {now}. The content of then is used, from this user's cache."
            )
    return [*sentences.values()]


def unknown_file(name: str, kind: str) -> str:
    """Return the sentence for a name ``file.py@DIGEST:Attribute`` that this user never named."""
    return (
        f"{kind} {name!r} is in a file that was not named here before, or has changed since. If you have it "
        f"and trust it, name it once: gem-gym check PATH/{name.partition('@')[0]}:NAME"
    )


VALUE = "value"
"""What begins the name of an object that a program gave as it is."""
_FOUND: dict[tuple[str, str], Any] = {}


def find_named(name: str, kind: str) -> Any:
    """Return what a name names, as `load_named`, loaded once in a process; or what `keep_value` kept.

    A run that uses it again and again has the same object throughout, even if its file changes meanwhile.

    Raises:
        BadArgument: see load_named; for an object of another process.
    """
    if (kind, name) not in _FOUND:
        _FOUND[kind, name] = load_named(name, kind)
    return _FOUND[kind, name]


def is_kept(name: str) -> bool:
    """Return whether a name is that of an object that a program gave, see `keep_value`."""
    return name.startswith(f"{VALUE}:")


def is_loaded(name: str, kind: str) -> bool:
    """Return whether find_named() has the object already."""
    return (kind, name) in _FOUND


def keep_value(value: Any, kind: str, name: str) -> str:
    """Keep an object that a program gave; return the name by which find_named() finds it in this process.

    Another object of the same name gets a number: what was named before keeps its object.
    """
    for number in count(1):
        key = kind, f"{VALUE}:{name}" + (f"-{number}" if number > 1 else "")
        if _FOUND.setdefault(key, value) is value:
            return key[1]
    raise AssertionError


def _import_module(module: str, name: str, kind: str) -> ModuleType:
    """Import a module; a failure is one sentence with the place of the error.

    Raises:
        BadArgument: when there is no such module, or its import fails.
    """
    from gem.waiting import name_wait  # here, because `import gem` is to be light

    try:
        _add_current_folder(module)
        with name_wait(f"{kind} {without_digest(name)!r} to be imported"):
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
        last = [] if isinstance(error, SyntaxError) else frames[-1:]
        at = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)
        raise BadArgument(
            f"{kind} {name!r}: its import fails: {type(error).__name__}: {text_of_error(error)}{at}."
        ) from error


def _add_current_folder(module: str) -> None:
    """Let Python look for a module in the current folder too, if it is nowhere else."""
    top, here = module.partition(".")[0], os.getcwd()
    known = digest_of(top) or top in sys.modules or here in sys.path or "" in sys.path
    if not known and importlib.util.find_spec(top) is None:
        sys.path.append(here)  # `python -m` has it first, where it hides the standard library


def _attribute(module: ModuleType, attribute: str, name: str, kind: str) -> Any:
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        close = did_you_mean(attribute, vars(module)) or _list_definitions(source_of(module.__name__))
        raise BadArgument(f"{kind} {name!r}: there is no {attribute!r} in it.{close}") from None


def _list_definitions(source: Source | None) -> str:
    """Return the sentence that lists the classes, functions and objects of a file."""
    if source is None:
        return ""
    names: list[str] = []
    for node in parse_code(source.files[source.main]).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    names = [name for name in dict.fromkeys(names) if not name.startswith("_")]
    return f" It defines {', '.join(names[:20])}." if names else " It defines no class, function or object."
