"""Domain: a schema, the data that a seed gives it, and what can be asked and ordered there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from random import Random
from typing import Any, NamedTuple, TypeAlias

Tables: TypeAlias = Mapping[str, Sequence[Sequence[Any]]]
"""The rows of each table, in the order of its columns."""

TODAY = "2025-06-30"
"""The day on which every story takes place: `date('now')` inside the database."""


class Question(NamedTuple):
    """A question, the query that answers it, and whether the order of the rows was asked for."""

    text: str
    sql: str
    ordered: bool = False


class Operation(NamedTuple):
    """An order to change the database, and statements that carry it out."""

    text: str
    sql: str


@dataclass(frozen=True, slots=True)
class Domain:
    """One world of tables.

    `schema`: the CREATE statements. `fill(rng)`: its rows; whatever the seed, every name that the texts use
    is there. `questions`, `operations`: functions of `rng` and the rows, each of which makes one of a kind.
    """

    name: str
    about: str
    schema: str
    fill: Callable[[Random], Tables]
    questions: tuple[Callable[[Random, Tables], Question], ...]
    operations: tuple[Callable[[Random, Tables], Operation], ...]

    def script(self, tables: Tables) -> str:
        """Return the SQL that makes the database."""
        parts = [self.schema.strip()]
        for table, rows in tables.items():
            if rows:
                values = ",\n".join([f"({', '.join(map(literal, row))})" for row in rows])
                parts.append(f"INSERT INTO {table} VALUES\n{values};")
        return "\n".join(parts)


def literal(value: Any) -> str:
    """Return a value as SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def day(rng: Random, first: str = "2024-01-01", last: str = TODAY) -> str:
    """Return a day between two, both included."""
    start = _ordinal(first)
    return date.fromordinal(start + rng.randrange(_ordinal(last) - start + 1)).isoformat()


def period(
    rng: Random, least: int, most: int, first: str = "2024-01-01", last: str = TODAY
) -> tuple[str, str]:
    """Return the first and the last day of a time of `least` to `most` days between two days."""
    days = rng.randrange(least, most + 1)
    start = _ordinal(first) + rng.randrange(_ordinal(last) - _ordinal(first) + 2 - days)
    return date.fromordinal(start).isoformat(), date.fromordinal(start + days - 1).isoformat()


@cache
def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


FIRST_NAMES = (
    *("Ada", "Ben", "Chloe", "Dmitri", "Elif", "Femi", "Grace", "Hiro", "Ines", "Jonas", "Kemal", "Lena"),
    *(
        "Mateo",
        "Nadia",
        "Omar",
        "Priya",
        "Quentin",
        "Rosa",
        "Sven",
        "Tara",
        "Uma",
        "Viktor",
        "Wanda",
        "Yusuf",
    ),
)
LAST_NAMES = (
    *("Adler", "Bianchi", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ivanov", "Jensen"),
    *("Kaya", "Lindqvist", "Moreau", "Novak", "Okafor", "Petrov", "Quinn", "Rossi", "Sato", "Tanaka"),
)


def people(rng: Random, count: int) -> list[str]:
    """Return different full names."""
    pairs = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return rng.sample(pairs, count)
