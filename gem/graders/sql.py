"""Comparison of query results and database states: with order if asked, number tolerance and duplicates."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from gem.graders.compare import is_number, pair_up

Row: TypeAlias = Sequence[Any]

TOLERANCE = 1e-6
"""The largest difference of two numbers that count as equal, where one is a float with a fraction."""

RELATIVE = 1e-9
"""The same as a share of the larger number; the greater of the two bounds counts."""

_MOST_APART = 500
"""The most rows that are compared pairwise; of more, equal ones are paired first, the others as sorted."""

_WHOLE = 2.0**53
"""From here on every float is a whole number."""


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
        return "" if _same_in_any_order(got, wanted) else "its rows are others"
    for place, (got_row, wanted_row) in enumerate(zip(got, wanted, strict=True)):
        if not all(map(same_value, got_row, wanted_row)):
            return f"row {place + 1} is another"
    return ""


def same_value(got: Any, wanted: Any) -> bool:
    """Return whether two values are equal.

    Whole numbers, Decimals, text and everything else are compared exactly, and 1 is 1.0. Where one number is
    a float with a fraction, the two may differ by TOLERANCE, or by RELATIVE of the larger.
    """
    if _is_number(got) and _is_number(wanted):
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


def _same_in_any_order(got: Sequence[Row], wanted: Sequence[Row]) -> bool:
    """Return whether each row has a partner of its own among the wanted ones.

    Closeness is not passed on: a row close to another that is close to a third is not the third.
    """
    if any(_is_nan(value) for row in (*got, *wanted) for value in row):
        return False
    left, right = _numbers_by_rest(got), _numbers_by_rest(wanted)
    return left.keys() == right.keys() and all(_can_pair(left[rest], right[rest]) for rest in left)


def _numbers_by_rest(rows: Sequence[Row]) -> Mapping[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Return the numbers of rows by all else that the rows hold."""
    numbers = defaultdict(list)
    for row in rows:
        rest = tuple("" if _is_number(value) else (type(value).__name__, repr(value)) for value in row)
        numbers[rest].append(tuple(value for value in row if _is_number(value)))
    return numbers


def _can_pair(got: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
    """Return whether rows of numbers can be paired so that each pair is the same."""
    if len(got) == len(wanted) > _MOST_APART:
        extra, missing = Counter(got), Counter(wanted)
        got, wanted = list((extra - missing).elements()), list((missing - extra).elements())
    got, wanted = sorted(got), sorted(wanted)
    if len(got) == len(wanted) and all(map(_same_numbers, got, wanted)):
        return True
    if len(got) != len(wanted) or len(got) > _MOST_APART:
        return False
    near = [[place for place, row in enumerate(wanted) if _same_numbers(each, row)] for each in got]
    return pair_up(len(got), near.__getitem__)


def _same_numbers(got: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return all(map(_near, got, wanted))


def _near(one: Any, other: Any) -> bool:
    if one == other:
        return True
    if not (isinstance(one, float) or isinstance(other, float)) or (_is_whole(one) and _is_whole(other)):
        return False
    try:
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=TOLERANCE)
    except OverflowError:  # an integer beyond every float
        return False


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) or (abs(number) < _WHOLE and number == int(number))


def _is_number(value: Any) -> bool:
    return is_number(value) or isinstance(value, Decimal)


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value)
