"""Text templates in files beside the code, read when they are needed.

A template is written for str.format, with one more format spec: ``{name:sql}`` writes a value as an SQL
literal. In the file of a template that `unwrap_lines` reads, a line break may stand for a blank.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any, TypeAlias

Values: TypeAlias = Mapping[str, Any]
"""The values of a template's fields, by name."""


def read(package: str, name: str) -> str:
    """Return a text file of a package, without blank space around it."""
    return files(package).joinpath(name).read_text(encoding="utf-8").strip()


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file of a package."""
    return tomllib.loads(read(package, name))


@cache
def full_names(package: str) -> list[str]:
    """Return every first name with every last name of the file ``names.txt`` of a package."""
    first, last = read(package, "names.txt").split("\n\n")
    return [f"{one} {other}" for one in first.split() for other in last.split()]


def unwrap_lines(template: str) -> str:
    """Return a template with line breaks turned into blanks, and empty lines into line breaks."""
    return "\n".join(" ".join(part.split()) for part in template.split("\n\n"))


def literal(value: Any) -> str:
    """Return a value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


class _Templates(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return literal(value) if format_spec == "sql" else str(super().format_field(value, format_spec))


def fill_templates(
    source: str, templates: Sequence[str], values: Values, common: Values | None = None
) -> list[str]:
    """Return templates with their fields filled in.

    `source` is named in errors. Every value of `values` must be used; those of `common` need not be.

    Raises:
        ValueError: for a field without a value, a value of `values` without a field, or an unknown spec.
    """
    common = common or {}
    fields = {name for each in templates for _, name, _, _ in Formatter().parse(each) if name is not None}
    if fields - common.keys() != values.keys():
        named = sorted(fields - common.keys())
        raise ValueError(f"{source}: the fields are {named}, the values are of {sorted(values)}.")
    return [_Templates().vformat(each, (), {**common, **values}) for each in templates]
