"""JSON Schemas of functions' arguments, made from signatures and Google-style docstrings."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from gem.errors import BadArgument, ToolError

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
        properties[name] = _of_type(hints.get(name, Any), parameter.default is None)
        if name in descriptions:
            properties[name]["description"] = descriptions[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, str | int | float | None):
            default = parameter.default
            properties[name]["default"] = default.value if isinstance(default, Enum) else default
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def types_of(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """Return the type of each parameter of a tool's function.

    Raises:
        BadArgument: for a parameter without a type or of one that JSON cannot give, and for ``*args``,
            ``**kwargs`` and parameters without a keyword.
    """

    def refuse(what: str) -> typing.NoReturn:
        code = getattr(function, "__code__", None)
        at = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
        raise BadArgument(f"the tool {tool!r}{at} {what}; accepted: {ACCEPTED}.")

    try:
        hints = typing.get_type_hints(function)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError, SyntaxError) as error:
        refuse(f"has annotations that cannot be read where it is defined ({error})")
    types_: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name == "self":
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            refuse(f"has the parameter {str(parameter).partition(':')[0]!r}, which no call can name")
        if name not in hints:
            refuse(f"has the parameter {name!r} without a type")
        hint = Union[hints[name], None] if parameter.default is None else hints[name]  # noqa: UP007
        try:
            if not _is_written(hint):
                raise TypeError
            msgspec.json.Decoder(hint)
        except (TypeError, RecursionError):
            refuse(f"has the parameter {name!r} of the type {inspect.formatannotation(hints[name])}")
        types_[name] = hint
    return types_


ACCEPTED = (
    "parameters with a keyword and one of the types str, int, float, bool, list[...], dict[str, ...], "
    "set[...] of what is hashable, Literal, an Enum of texts or whole numbers, a dataclass, Any, and unions "
    "and Optional of these"
)
"""The parameters of a tool's function, as errors list them."""


def _is_written(hint: Any) -> bool:
    """Return whether a type has a schema, down to its parts."""
    if hint in (Any, type(None)) or get_origin(hint) is Literal:
        return True
    if is_dataclass(hint):
        return all(map(_is_written, typing.get_type_hints(hint).values()))
    base, parts = get_origin(hint) or hint, get_args(hint)
    if base in (set, frozenset) and not all(map(_is_hashable, parts)):
        return False
    return bool(_of_type(hint)) and all(_is_written(each) for each in parts if each is not ...)


def _is_hashable(hint: Any) -> bool:
    """Return whether values of a type can be members of a set, as far as the type says."""
    parts = typing.get_type_hints(hint).values() if is_dataclass(hint) else get_args(hint)
    return (get_origin(hint) or hint).__hash__ is not None and all(map(_is_hashable, parts))


def convert(arguments: Mapping[str, Any], types_: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """Return the arguments of a call as the function takes them: members of Enums, dataclasses, sets.

    Raises:
        ToolError: for a value that does not fit its type, also inside lists and objects.
    """
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            given[name] = msgspec.convert(value, types_[name], str_keys=True)
        except (msgspec.ValidationError, TypeError, OverflowError, RecursionError) as error:
            raise ToolError(f"{tool}: {name!r} is {value!r:.60}, which does not fit: {error}.") from error
    return given


def write_result(result: Any) -> str:
    """Return what a function returned as text: lists, dicts and dataclasses as JSON, all else by ``str()``.

    Raises:
        ToolError: for an object whose text would be its place in memory, or a list that JSON cannot hold.
    """
    try:
        if isinstance(result, list | tuple | dict | set | frozenset) or is_dataclass(result):
            return json.dumps(result, ensure_ascii=False, default=_plain)
        text = str(_plain(result))
        if f" at 0x{id(result):x}" in text:
            raise TypeError(f"a {type(result).__name__}")
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the tool returned what cannot be shown as text: {error}.") from error


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; a set in order, which differs from process to process."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    own = {name for cls in type(value).__mro__[:-1] for name in ("__repr__", "__str__") if name in vars(cls)}
    if not own:
        raise TypeError(f"a {type(value).__name__}")
    return value if isinstance(value, str | int | float | None) else str(value)


def description_of(function: Callable[..., Any]) -> str:
    """Return the part of a function's docstring before its arguments."""
    return _docstring(function)[0]


def spell(value: Any) -> str:
    """Return a value as it is written in a call: ``null`` and ``true`` in the way of JSON."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def describe_type(rule: Schema) -> str:
    """Return the type that a schema names, with its parts, as ``array of integer``."""
    if "enum" in rule:
        return " | ".join(map(spell, rule["enum"]))
    if "anyOf" in rule:
        return " | ".join(map(describe_type, rule["anyOf"]))
    kind = str(rule.get("type", "any"))
    if "properties" in rule:
        fields_ = (f"{name}: {describe_type(each)}" for name, each in rule["properties"].items())
        return f"{kind} {{{', '.join(fields_)}}}"
    parts = rule.get("items") or rule.get("additionalProperties")
    return f"{kind} of {describe_type(parts)}" if parts else kind


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
        if value is None and rule.get("default", "") is None:
            continue  # as left out
        accepted = rule.get("type", ())
        accepted = [accepted] if isinstance(accepted, str) else list(accepted)
        if accepted and not any(_is(value, kind) for kind in accepted):
            return f"{name!r} is {value!r:.60}; accepted: {' or '.join(accepted)}."
        if "enum" in rule and value not in rule["enum"]:
            return f"{name!r} is {value!r:.60}; accepted: {', '.join(map(spell, rule['enum']))}."
        is_closed = isinstance(value, Mapping) and rule.get("additionalProperties") is False
        if is_closed and (wrong := violation(value, rule)):
            return f"in {name!r} {wrong}"
    return ""


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    return isinstance(value, _TYPES.get(kind, (object,)))


def _of_type(hint: Any, or_none: bool = False) -> dict[str, Any]:
    """Return the schema of a type; with `or_none`, null is not named, because it is the default."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        kinds = [_of_type(arg) for arg in args if not (or_none and arg is type(None))]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    base = origin or hint
    if isinstance(base, type) and issubclass(base, Enum):
        return {"enum": [each.value for each in base]}
    if isinstance(base, type) and is_dataclass(base):
        hints = typing.get_type_hints(base)
        own = [each for each in fields(base) if each.init]
        return {
            "type": "object",
            "properties": {each.name: _of_type(hints[each.name]) for each in own},
            "required": [each.name for each in own if each.default is each.default_factory is MISSING],
            "additionalProperties": False,
        }
    if hint is type(None):
        return {"type": "null"}
    if isinstance(base, type) and issubclass(base, Mapping):
        values = _of_type(args[1]) if len(args) > 1 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if isinstance(base, type) and issubclass(base, Sequence | set | frozenset) and base is not bytes:
        parts = [_of_type(each) for each in dict.fromkeys(args) if each is not ...]
        return {"type": "array", "items": parts[0]} if len(parts) == 1 else {"type": "array"}
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
