"""Comparison of query results and database states: with order if asked, number tolerance and duplicates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from gem.graders.compare import is_number

Row: TypeAlias = Sequence[Any]

TOLERANCE = 1e-6
"""The largest absolute or relative difference of two numbers that count as equal."""


def same_rows(got: Sequence[Row], wanted: Sequence[Row], ordered: bool = False) -> str:
    """Return how two query results differ, or '' if they are the same.

    Columns are compared by position, not by name. Each row counts as often as it occurs. With `ordered` the
    rows must be in the same order.
    """
    if len(got) != len(wanted):
        return f"it has {len(got)} rows, wanted are {len(wanted)}"
    widths = {len(row) for row in got} | {len(row) for row in wanted}
    if len(widths) > 1:
        return f"its rows have {len(got[0])} columns, wanted are {len(wanted[0])}"
    if not ordered:
        width = max(widths, default=0)
        columns = [_classes([row[place] for row in (*got, *wanted)]) for place in range(width)]
        same = _count_rows(got, columns) == _count_rows(wanted, columns)
        return "" if same else "its rows are others"
    for place, (got_row, wanted_row) in enumerate(zip(got, wanted, strict=True)):
        if not all(map(same_value, got_row, wanted_row)):
            return f"row {place + 1} is another"
    return ""


def same_value(got: Any, wanted: Any) -> bool:
    """Return whether two values are equal: numbers within TOLERANCE, everything else exactly."""
    if is_number(got) and is_number(wanted):
        return _near(got, wanted)
    return type(got) is type(wanted) and bool(got == wanted)


def same_state(got: Mapping[str, Sequence[Row]], wanted: Mapping[str, Sequence[Row]]) -> str:
    """Return how two databases differ, or '' if all tables have the same rows in any order."""
    if set(got) != set(wanted):
        return f"its tables are {sorted(got)}, wanted are {sorted(wanted)}"
    for table in wanted:
        if same_rows(got[table], wanted[table]):
            return f"table {table} is not as it should be"
    return ""


def _classes(column: Sequence[Any]) -> dict[Any, int]:
    """Return a class for each number; numbers with no gap beyond TOLERANCE between them share a class.

    With classes, rows can be counted. Sorting by rounded numbers instead could pair the wrong rows.
    """
    numbers = sorted({value for value in column if is_number(value) and value == value})
    classes = dict.fromkeys(numbers[:1], 0)
    for last, number in pairwise(numbers):
        classes[number] = classes[last] + (not _near(last, number))
    return classes


def _count_rows(rows: Sequence[Row], columns: Sequence[Mapping[Any, int]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(_form, row, columns)) for row in rows)


def _form(value: Any, classes: Mapping[Any, int]) -> Any:
    """Return a key under which a value is counted; the key of a NaN equals no other."""
    if is_number(value):
        return ("number", classes[value]) if value == value else object()
    return type(value).__name__, repr(value)


def _near(one: float, other: float) -> bool:
    try:
        return one == other or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an integer beyond every float
        return False
