"""Results and states of databases, compared: order where asked, numbers with tolerance, duplicates count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Sequence[Any]

TOLERANCE = 1e-6
"""Absolute and relative difference up to which two numbers are the same."""


def same_rows(got: Sequence[Row], wanted: Sequence[Row], ordered: bool = False) -> str:
    """Return how two results differ, or '' where they are the same.

    Columns are compared by place; their names do not count. Rows count as often as they occur. With `ordered`
    they must come in the same order.
    """
    if len(got) != len(wanted):
        return f"it has {len(got)} rows, wanted are {len(wanted)}"
    widths = {len(row) for row in got} | {len(row) for row in wanted}
    if len(widths) > 1:
        return f"its rows have {len(got[0])} columns, wanted are {len(wanted[0])}"
    if not ordered:
        got, wanted = _arranged(got), _arranged(wanted)
    for place, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        if not all(map(same_value, mine, theirs)):
            return f"row {place + 1} is another" if ordered else "its rows are others"
    return ""


def same_value(got: Any, wanted: Any) -> bool:
    """Return whether two values are the same: numbers within TOLERANCE, everything else exactly."""
    if _is_number(got) and _is_number(wanted):
        return bool(got == wanted) or math.isclose(got, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(got) is type(wanted) and bool(got == wanted)


def same_state(got: Mapping[str, Sequence[Row]], wanted: Mapping[str, Sequence[Row]]) -> str:
    """Return how two databases differ, or '': the same tables, in each the same rows in any order."""
    if set(got) != set(wanted):
        return f"its tables are {sorted(got)}, wanted are {sorted(wanted)}"
    for table in wanted:
        if same_rows(got[table], wanted[table]):
            return f"table {table} is not as it should be"
    return ""


def _arranged(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in an order that only their values decide, near numbers beside one another."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple("number" if _is_number(v) else (type(v).__name__, v) for v in row)].append(row)
    found: list[Row] = []
    for key in sorted(groups, key=repr):
        found += sorted(groups[key], key=lambda row: [v for v in row if _is_number(v)])
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
