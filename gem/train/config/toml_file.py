"""Configs as TOML: files that `gem-gym train --config` reads, and what `--print-config` writes.

A file has settings under their names in `TrainConfig`; what it leaves out keeps its default. TOML has no
null: ``"none"`` stands for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

from gem import files
from gem.errors import BadArgument, did_you_mean, reason
from gem.estimators.algorithms import check_algorithm_name
from gem.registry import accept_settings
from gem.train.config.env_part import EnvPart
from gem.train.config.train_config import TrainConfig
from gem.train.config.value_types import NONE, convert_value, describe_type, types_of

SETTING_TYPES = types_of(TrainConfig)

PROSE = ("name", "answer_prefix", "stop")
"""Settings whose texts name nothing."""


def read_configs(paths: Iterable[Path], trust: bool = False) -> dict[str, Any]:
    """Return the settings of several files; a later file overrides an earlier one.

    With `trust`, they may name more than `gem.trust` lists.

    Raises:
        BadArgument: for a file that cannot be read or is not TOML, an unknown setting, another type, or a
            name that a file may not have.
    """
    return {name: value for path in paths for name, value in read_config(path, trust).items()}


def read_config(path: Path, trust: bool = False) -> dict[str, Any]:
    """Return a file's settings; see read_configs.

    Raises:
        BadArgument: see read_configs.
    """
    values = read_toml(path, f"the config {path}")
    for name in values:
        if name not in SETTING_TYPES:
            hint = did_you_mean(name.replace("-", "_"), SETTING_TYPES)
            hint = hint or " `gem-gym train --print-config` shows all."
            raise BadArgument(f"the config {path} has {name!r}, which is not a setting.{hint}")
    accept_settings(values, f"the config {path}", PROSE, trust=trust)
    return {name: setting(f"the config {path}", name, value) for name, value in values.items()}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return what a TOML file holds; `what` names it in errors.

    Raises:
        BadArgument: for a file that cannot be read, or is not TOML.
    """
    try:
        return files.read_toml(path)
    except OSError as error:
        raise BadArgument(f"{what} cannot be read: {reason(error)}.") from error
    except ValueError as error:  # what is not TOML says where, what is not UTF-8 says which byte
        raise BadArgument(f"{what} is not TOML: {error}.") from error


def setting(where: str, name: str, value: Any) -> Any:
    """Return a value converted to the type of the setting `name`; `where` is its source, for errors.

    Raises:
        BadArgument: for a value of another type.
    """
    hint = SETTING_TYPES[name]
    optional = type(None) in get_args(hint)
    if optional and value == NONE:
        return None
    kind = next(iter(get_args(hint)), None)
    if isinstance(kind, type) and issubclass(kind, EnvPart):  # which says itself what is wrong with it
        return _tables(where, name, value, kind)
    try:
        if name == "algorithm":
            check_algorithm_name(value)
        if get_origin(hint) is dict:
            value = json.loads(value) if isinstance(value, str) else value
            json.dumps(value)  # a date has no JSON
    except BadArgument as error:
        raise BadArgument(f"{where}: {error}") from error
    except (ValueError, TypeError) as error:
        raise BadArgument(f"{where}: {name} is {value!r}; accepted: {describe_type(hint)}.") from error
    return convert_value(where, TrainConfig, name, value)


def _tables(where: str, name: str, value: Any, kind: type[EnvPart]) -> tuple[EnvPart, ...]:
    """Return the environments of an array of tables, or of the same as JSON in quotes."""
    try:
        tables = json.loads(value) if isinstance(value, str) else value
        if not isinstance(tables, list):
            raise BadArgument(f"{name} is {value!r:.80}; accepted: tables, each under [[{name}]].")
        return tuple(map(kind.read, tables))
    except (BadArgument, ValueError) as error:
        raise BadArgument(f"{where}: {error}") from error


def to_toml(config: TrainConfig, without: Collection[str] = ()) -> str:
    """Return a config as TOML, every setting in it but those named in `without`; `read_config` reads it."""
    plain = config.to_json()
    names = (f.name for f in fields(config) if f.name not in without)
    return "".join(f"{name} = {_setting_text(plain[name])}\n" for name in names)


def _setting_text(value: Any) -> str:
    if value is None:
        return _text(NONE)
    try:
        return _text(value)
    except ValueError:  # a null inside: only JSON has one
        return _text(json.dumps(value))


def _text(value: Any) -> str:
    """Return a value as TOML.

    Raises:
        ValueError: for null, which TOML does not have.
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_text(str(name))} = {_text(inner)}" for name, inner in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if value is None:
        raise ValueError("TOML has no null")
    return str(value).lower() if isinstance(value, bool) else repr(value)
