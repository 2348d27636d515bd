"""Comparisons of an output with the expected one; each task chooses one by name, and it is recorded.

Comparison happens outside the sandbox, on text and plain data only, so nothing that the submission defines
takes part in it.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

from gem.errors import BadArgument, check_argument

Compare = Literal["exact", "lines", "tokens", "floats", "unordered", "unordered_tokens"]
"""The names of the comparisons.

``exact``: equal, character by character; numbers of equal type. ``lines``: blanks at the ends of lines and
blank lines at the end do not count. ``tokens``: only the words between blanks count. ``floats``: tokens, but
an expected number with a point or an exponent may differ within the tolerance. ``unordered``: lines, by their
tokens, in any order, each as often as expected. ``unordered_tokens``: tokens in any order.

A function's return value is compared as plain data: tuples are lists, an int is not a bool, and a float may
differ within the tolerance except under ``exact``. Both unordered comparisons accept the items of the
outermost list in any order.
"""

COMPARES: tuple[str, ...] = get_args(Compare)

TOLERANCE = 1e-6
"""The error that a float may have, absolute or relative to the expected number."""

_LINE = re.compile(r"\S.*")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def check_compare(name: str) -> str:
    """Return `name`.

    Raises:
        BadArgument: for an unknown comparison.
    """
    check_argument("compare", name, name in COMPARES, f"{', '.join(COMPARES)}, or a checker")
    return name


def same_text(got: str, wanted: str, compare: str = "tokens", tolerance: float = TOLERANCE) -> bool:
    """Return whether a program's output equals the expected one."""
    if compare == "exact":
        return got == wanted
    if compare == "lines":
        lines = _lines(wanted)
        return _lines(got, len(lines)) == lines
    # A submission may print millions of words: of more than are wanted, the rest stays in one piece.
    wanted_tokens = wanted.split()
    tokens = got.split(None, len(wanted_tokens))
    if len(tokens) != len(wanted_tokens):
        return False
    if compare == "unordered":
        return _sorted_lines(got) == _sorted_lines(wanted)
    if compare == "unordered_tokens":
        return sorted(tokens) == sorted(wanted_tokens)
    if compare == "floats":
        return all(_same_token(a, b, tolerance) for a, b in zip(tokens, wanted_tokens, strict=True))
    return tokens == wanted_tokens


def same_value(got: Any, wanted: Any, compare: str = "tokens", tolerance: float = TOLERANCE) -> bool:
    """Return whether plain data (as in JSON) equals the expected data."""
    if compare.startswith("unordered") and isinstance(got, list) and isinstance(wanted, list):
        return _same_in_any_order(got, wanted, tolerance)
    return _same(got, wanted, None if compare == "exact" else tolerance)


DEEPEST = 200
"""The most containers in one another of what a submission may return; the sandbox's half has it too."""


LONGEST_INT = 100_000
"""The most digits of an integer that a submission may return."""

_AT_ONCE = 4000  # digits that `int` reads whatever its limit is


def read_int(digits: str) -> int:
    """Return an integer of more digits than `int` reads. Raises ValueError beyond LONGEST_INT."""
    if len(digits) <= _AT_ONCE:
        return int(digits)
    if len(digits) > LONGEST_INT:
        raise ValueError("an integer is too long")
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits)
    half = len(digits) // 2
    shift: int = 10**half
    return sign * (read_int(digits[:-half]) * shift + read_int(digits[-half:]))


def read_plain(text: str) -> Any:
    """Return the plain data in a text that a submission wrote.

    Raises:
        ValueError: when it is no JSON, is nested deeper than DEEPEST, or holds an integer of more digits than
            LONGEST_INT.
    """
    try:
        value = json.loads(text, parse_int=read_int)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise ValueError("it is nested too deep")


def write_plain(value: Any) -> str:
    """Return plain data as JSON; its integers may have any number of digits."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write_plain, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {write_plain(item)}' for key, item in value.items())}}}"
    if isinstance(value, int) and value.bit_length() > 2 * _AT_ONCE:
        return str(decimal.Decimal(value))
    return json.dumps(value)


def plain(value: Any) -> Any:
    """Return a value as plain JSON data: tuples become lists, keys become text.

    Raises:
        BadArgument: when it is not plain data.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(plain(key)): plain(each)
            for key, each in value.items()
        }
    raise BadArgument(f"a test holds {type(value).__name__} {value!r:.80}; accepted: plain data, as in JSON.")


def _lines(text: str, most: int = -1) -> list[str]:
    """Return lines without blanks at their ends and blank lines at the end; what is behind `most` is one."""
    return [line.rstrip() for line in text.rstrip().split("\n", most)]


def _sorted_lines(text: str) -> list[list[str]]:
    return sorted(line[0].split() for line in _LINE.finditer(text))


def _same_token(got: str, wanted: str, tolerance: float) -> bool:
    if got == wanted:
        return True
    if not _NUMBER.fullmatch(wanted) or wanted.lstrip("+-").isdigit() or not _NUMBER.fullmatch(got):
        return False
    if not (math.isfinite(float(got)) and math.isfinite(float(wanted))):  # larger than any float
        with contextlib.suppress(decimal.InvalidOperation):
            return decimal.Decimal(got) == decimal.Decimal(wanted)
        return False
    return _close(float(got), float(wanted), tolerance)


def _close(got: float, wanted: float, tolerance: float) -> bool:
    if not (math.isfinite(got) and math.isfinite(wanted)):
        return got == wanted
    return abs(got - wanted) <= tolerance * max(1.0, abs(wanted))


def _same(got: Any, wanted: Any, tolerance: float | None) -> bool:
    if isinstance(wanted, list):
        return (
            isinstance(got, list)
            and len(got) == len(wanted)
            and all(_same(a, b, tolerance) for a, b in zip(got, wanted, strict=True))
        )
    if isinstance(wanted, dict):
        return (
            isinstance(got, dict)
            and got.keys() == wanted.keys()
            and all(_same(got[key], wanted[key], tolerance) for key in wanted)
        )
    if type(got) is type(wanted) and got == wanted:
        return True
    if tolerance is None or not is_number(got) or not is_number(wanted):
        return False
    if isinstance(wanted, int):
        return bool(got == wanted)
    try:
        return _close(float(got), wanted, tolerance)
    except OverflowError:  # an integer larger than any float
        return False


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_MOST_APART = 1000
"""The most items with floats, none of them a number itself, that are compared pairwise."""


def _same_in_any_order(got: list[Any], wanted: list[Any], tolerance: float) -> bool:
    if len(got) != len(wanted):
        return False
    near = [item for item in wanted if _holds_float(item)]
    left = _take_away([item for item in wanted if not _holds_float(item)], got)
    if len(left) != len(near):
        return False
    numbers = sorted(filter(is_number, left))
    # Within the tolerance of a larger number lies no smaller one than within that of a smaller number.
    if not _same(numbers, sorted(filter(is_number, near)), tolerance):
        return False
    left, near = ([item for item in each if not is_number(item)] for each in (left, near))
    if len(near) > _MOST_APART:  # then what is exactly equal is paired first
        left, near = _take_away(near, left), _take_away(left, near)
    return len(near) <= _MOST_APART and pair_up(
        len(near), lambda number: (at for at, item in enumerate(left) if _same(item, near[number], tolerance))
    )


def _take_away(items: list[Any], given: list[Any]) -> list[Any]:
    """Return what is given but for one that equals exactly, for each of the items that has it."""
    counts = Counter(map(_key, items))
    left = []
    for each in given:
        key = _key(each)
        if counts[key] > 0:
            counts[key] -= 1
        else:
            left.append(each)
    return left


def pair_up(items: int, fits: Callable[[int], Iterable[int]]) -> bool:
    """Return whether each item can have a place of its own; `fits` gives the places that fit an item."""
    owner: dict[int, int] = {}  # of a place
    for start in range(items):
        reached: dict[int, int] = {}  # place: the item from which it was reached
        free = None
        for item in (queue := [start]):
            for place in fits(item):
                if place not in reached:
                    reached[place] = item
                    if place not in owner:
                        free = place
                        break
                    queue.append(owner[place])
            if free is not None:
                break
        if free is None:
            return False
        places = {item: place for place, item in owner.items()}
        while free is not None:  # each item on the way gives its place to the one before
            item = reached[free]
            owner[free] = item
            free = places.get(item)
    return True


def _holds_float(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_float, value))
    return any(map(_holds_float, value.values())) if isinstance(value, dict) else isinstance(value, float)


def _key(value: Any) -> Any:
    """Return what is equal for equal plain data; floats without a fraction equal integers."""
    if isinstance(value, list):
        return ("list", *map(_key, value))
    if isinstance(value, dict):
        return "dict", frozenset((key, _key(item)) for key, item in value.items())
    return value if is_number(value) else (type(value).__name__, value)
