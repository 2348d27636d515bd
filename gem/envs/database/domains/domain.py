"""Domain: a database schema, a generator of its rows, and kinds of questions and operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from importlib import import_module
from random import Random
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from gem import seeding
from gem.envs.kit.templates import Values, fill_templates, full_names, literal, read, read_toml, unwrap_lines

_PACKAGE = "gem.envs.database.domains"

Tables: TypeAlias = Mapping[str, Sequence[Sequence[Any]]]
"""The rows of each table, in the order of its columns."""

Made = TypeVar("Made")

TODAY = "2025-06-30"
"""The current day in every task: `date('now')` inside the database."""


class Question(NamedTuple):
    """A question, the query that answers it, and whether the order of the rows matters."""

    text: str
    sql: str
    ordered: bool = False


class Operation(NamedTuple):
    """An instruction to change the database, and the statements that carry it out."""

    text: str
    sql: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of database, with generators of its rows and tasks.

    `schema`: the CREATE statements. `fill(rng)`: returns the rows, which always include the names that the
    texts use. `questions`, `operations`: functions of `rng` and the rows; each makes tasks of one kind.
    """

    name: str
    about: str
    schema: str
    fill: Callable[[Random], Tables]
    questions: tuple[Callable[[Random, Tables], Question], ...]
    operations: tuple[Callable[[Random, Tables], Operation], ...]

    def script(self, tables: Tables) -> str:
        """Return the SQL that creates the database."""
        return _write_script(self.schema, tables)

    def write_spare(self, number: int) -> str:
        """Return the SQL that creates one of the databases that all tasks share; a process keeps some."""
        return _write_spare(self.fill, self.schema, number)


def _write_script(schema: str, tables: Tables) -> str:
    parts = [schema.strip()]
    for table, rows in tables.items():
        if rows:
            values = ",\n".join([f"({', '.join(map(literal, row))})" for row in rows])
            parts.append(f"INSERT INTO {table} VALUES\n{values};")
    return "\n".join(parts)


@lru_cache(maxsize=512)
def _write_spare(fill: Callable[[Random], Tables], schema: str, number: int) -> str:
    return _write_script(schema, fill(seeding.stream(0, "spare world", number)))


@dataclass(frozen=True, slots=True)
class TaskKind(Generic[Made]):
    """A kind of question or operation, as written in a domain's file: `draw` draws its templates' values."""

    make: Callable[..., Made]
    draw: Callable[[Random, Tables], Values]
    text: str
    sql: str
    ordered: bool | None = None

    def __call__(self, rng: Random, tables: Tables) -> Made:
        """Draw one."""
        templates = [unwrap_lines(self.text), unwrap_lines(self.sql)]
        filled = fill_templates(self.draw.__name__, templates, self.draw(rng, tables), {"today": TODAY})
        return self.make(*filled) if self.ordered is None else self.make(*filled, self.ordered)


def load(name: str) -> Domain:
    """Load a domain of this package from ``name.sql``, ``name.toml`` and ``name.py``.

    The first file is the schema. The second holds the templates of `questions` and `operations`, each under
    the name of a function in the third file, which draws its values. ``{today}`` is TODAY in all templates.

    Raises:
        ValueError: if texts and functions do not match, or the fields of a text and its drawn values.
    """
    stem = name.lower()
    module = import_module(f"{_PACKAGE}.{stem}")
    draws = {key: f for key, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__}
    fill = draws.pop("fill")
    data = read_toml(_PACKAGE, f"{stem}.toml")
    if {*data["questions"], *data["operations"]} != draws.keys():
        raise ValueError(
            f"{stem}: the texts are {sorted(data['questions'] | data['operations'])}, "
            f"the functions {sorted(draws)}."
        )
    questions = tuple(TaskKind(Question, draws[key], **texts) for key, texts in data["questions"].items())
    operations = tuple(TaskKind(Operation, draws[key], **texts) for key, texts in data["operations"].items())
    tables = fill(Random(0))
    kinds: tuple[Callable[[Random, Tables], object], ...] = (*questions, *operations)
    for kind in kinds:
        kind(Random(0), tables)  # raises an error for values that do not fit
    return Domain(name, data["about"], read(_PACKAGE, f"{stem}.sql"), fill, questions, operations)


def day(rng: Random, first: str = "2024-01-01", last: str = TODAY) -> str:
    """Draw a day between two days, both included."""
    start = _ordinal(first)
    return date.fromordinal(start + rng.randrange(_ordinal(last) - start + 1)).isoformat()


def period(
    rng: Random, least: int, most: int, first: str = "2024-01-01", last: str = TODAY
) -> dict[str, str]:
    """Draw a period of `least` to `most` days between two days; return its `first` and `last` day."""
    days = rng.randrange(least, most + 1)
    start = _ordinal(first) + rng.randrange(_ordinal(last) - _ordinal(first) + 2 - days)
    ends = {"first": start, "last": start + days - 1}
    return {name: date.fromordinal(at).isoformat() for name, at in ends.items()}


@cache
def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


def people(rng: Random, count: int) -> list[str]:
    """Draw different full names."""
    return rng.sample(full_names(_PACKAGE), count)
