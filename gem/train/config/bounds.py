"""What a setting accepts: the types of numbers with their bounds, which checks, files and flags share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import tyro

from gem.errors import check_argument


class Bound(NamedTuple):
    """The values that a setting accepts, in words, and the test of a value of its type, which NaN fails."""

    accepted: str
    allows: Callable[[Any], bool] = lambda value: True


def _show(bound: Bound) -> object:
    """Return an annotation with which --help shows a bound beside the default."""
    return tyro.conf.arg(help_behavior_hint=lambda default: f"({bound.accepted}; default: {default})")


AT_LEAST_ONE = Bound("1 or more", lambda value: value >= 1)
NOT_NEGATIVE = Bound("0 or more", lambda value: 0 <= value < math.inf)
ABOVE_ZERO = Bound("above 0", lambda value: value > 0)
FINITE_ABOVE_ZERO = Bound("above 0, and finite", lambda value: 0 < value < math.inf)
FINITE = Bound("a number, or none", math.isfinite)
ZERO_TO_ONE = Bound("0 to 1", lambda value: 0 <= value <= 1)
BELOW_ONE = Bound("0 or more, and less than 1", lambda value: 0 <= value < 1)

Count: TypeAlias = Annotated[int, AT_LEAST_ONE, _show(AT_LEAST_ONE)]
CountOrZero: TypeAlias = Annotated[int, NOT_NEGATIVE, _show(NOT_NEGATIVE)]
Amount: TypeAlias = Annotated[float, NOT_NEGATIVE, _show(NOT_NEGATIVE)]
Limit: TypeAlias = Annotated[float, ABOVE_ZERO, _show(ABOVE_ZERO)]
Divisor: TypeAlias = Annotated[float, FINITE_ABOVE_ZERO, _show(FINITE_ABOVE_ZERO)]
Share: TypeAlias = Annotated[float, ZERO_TO_ONE, _show(ZERO_TO_ONE)]
ShareBelowOne: TypeAlias = Annotated[float, BELOW_ONE, _show(BELOW_ONE)]


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name, with their annotations."""
    return get_type_hints(kind, include_extras=True)


@functools.cache
def bounds_of(kind: Any) -> dict[str, Bound]:
    """Return the bounds of a class's fields that have some, by name."""
    bounds = {}
    for name, hint in hints_of(kind).items():
        if own := [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Bound)]:
            bounds[name] = own[0]
    return bounds


def check_bound(kind: Any, name: str, value: Any) -> None:
    """Check the value of a field of a class; None is within any bound.

    Raises:
        BadArgument: for one that the field does not accept.
    """
    bound = bounds_of(kind).get(name)
    if bound is not None and value is not None:
        check_argument(name, value, bound.allows(value), bound.accepted)
