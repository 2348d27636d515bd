"""JSON Schemas of functions' arguments, made from signatures and Google-style docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

Schema: typing.TypeAlias = Mapping[str, Any]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_ARGUMENT = re.compile(r"(\w+)(?: \([^)]*\))?:\s*(.*)")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of a function's arguments: an object with a property per parameter.

    A parameter without a default is required; `*args` and `**kwargs` are not offered.
    """
    _, descriptions = _docstring(function)
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # an annotation that only a type checker can read
        hints = {}
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        properties[name] = _of_type(hints.get(name, Any))
        if name in descriptions:
            properties[name]["description"] = descriptions[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, str | int | float):
            properties[name]["default"] = parameter.default
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def description_of(function: Callable[..., Any]) -> str:
    """Return the part of a function's docstring before its arguments."""
    return _docstring(function)[0]


def violation(arguments: Mapping[str, Any], schema: Schema) -> str:
    """Return the error in the arguments of a call, or ``""``.

    It checks the names and each value's outer type and enumeration; the tool checks deeper rules itself.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    takes = ", ".join(properties) or "none"
    for name in schema.get("required", ()):
        if name not in arguments:
            return f"the argument {name!r} is missing. Arguments: {takes}."
    for name, value in arguments.items():
        if name not in properties:
            if schema.get("additionalProperties", True) is False:
                return f"there is no argument {name!r:.60}. Arguments: {takes}."
            continue
        rule = properties[name] if isinstance(properties[name], Mapping) else {}
        accepted = rule.get("type", ())
        accepted = [accepted] if isinstance(accepted, str) else list(accepted)
        if accepted and not any(_is(value, kind) for kind in accepted):
            return f"{name!r} is {value!r:.60}; accepted: {' or '.join(accepted)}."
        if "enum" in rule and value not in rule["enum"]:
            return f"{name!r} is {value!r:.60}; accepted: {', '.join(map(repr, rule['enum']))}."
    return ""


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    return isinstance(value, _TYPES.get(kind, (object,)))


def _of_type(hint: Any) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        kinds = [_of_type(arg) for arg in args if arg is not type(None)]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    base = origin or hint
    if isinstance(base, type) and issubclass(base, Mapping):
        return {"type": "object"}
    if isinstance(base, type) and issubclass(base, Sequence | set | frozenset) and base is not bytes:
        return {"type": "array", "items": _of_type(args[0])} if args else {"type": "array"}
    return {}


def docstring(function: Callable[..., Any]) -> str:
    """Return a function's docstring, from its source if Python keeps none (``python -OO``)."""
    kept = inspect.getdoc(function)
    if kept is None and sys.flags.optimize > 1:
        try:
            (written,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
            kept = ast.get_docstring(written) if isinstance(written, _FUNCTIONS) else None
        except (OSError, TypeError, SyntaxError, ValueError):
            return ""
    return kept or ""


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description, and the text of each argument under ``Args:``."""
    before, _, after = docstring(function).partition("\nArgs:\n")
    descriptions: dict[str, str] = {}
    name = ""
    for line in after.splitlines():
        if line and not line.startswith(" "):  # the next section
            break
        match = _ARGUMENT.fullmatch(line.strip())
        if match and (len(line) - len(line.lstrip()) <= 4 or not name):
            name = match[1]
            descriptions[name] = match[2]
        elif name and line.strip():
            descriptions[name] = f"{descriptions[name]} {line.strip()}"
    return re.split(r"\n(?:Returns|Raises|Yields|Example|Examples):\n", before)[0].strip(), descriptions
