"""The types of a run's settings: what each accepts, and how a flag of the command line is read."""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from tyro.constructors import PrimitiveConstructorSpec

from gem.errors import BadArgument
from gem.train.config.bounds import AT_LEAST_ONE, FINITE, NOT_NEGATIVE, check_bound
from gem.train.config.env_part import EnvPart

Ratio = Literal["token", "turn", "sequence"]
"""Unit of a probability ratio: a token (PPO), a whole turn, or all turns of a row (GSPO)."""

Normalise = Literal["episode", "turn", "token", "constant", "response"]
"""Divisor of a step's loss. ``episode``: the number of episodes of the step, which the policy does not
control, so the gradient is that of the mean return. ``turn`` and ``token``: the number of turns or sampled
tokens of the step. The policy does control these, and a mean over them weighs the turns of short episodes
more (a bias, see docs/guides/estimators.md). ``constant``: the episodes times a constant, as in Dr. GRPO
(arXiv 2503.20783). ``response``: the number of episodes, and each response's loss is divided by its own
tokens first, as GRPO (arXiv 2402.03300, eq. 3) and GSPO (arXiv 2507.18071, eq. 5) are published; a response
is what is sampled in one row, with all its turns."""

ScheduleKind = Literal["constant", "linear", "cosine"]
"""How a weight or a step size changes over a run: not at all, or it falls, linearly or as half a cosine."""


def share_left(kind: ScheduleKind, done: float) -> float:
    """Return what is left, from 1 to 0, of a value that falls by a schedule; `done`: the share of the run.

    The cosine is ``(1 + cos(pi * done)) / 2`` (Loshchilov and Hutter, arXiv 1608.03983, eq. 5, no restarts).
    """
    if kind == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1.0 if kind == "constant" else 1 - done


ValueClipBy = Literal["absolute", "spread"]
"""Unit of the clip of a critic's values; see gem.train.learn.losses.value_loss."""

PoolBy = Literal["uniform", "hard", "even"]
"""How often an opponent is played; see gem.train.tasks.opponents."""

Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3"]
"""How a language model computes attention, by transformers' names."""

KlEstimator = Literal["full", "k1", "k2", "k3"]
"""How KL(policy, reference) is estimated at a sampled token: over the whole vocabulary; or from the token's
own log ratio r = log policy - log reference: ``k1`` r, ``k2`` r^2 / 2, ``k3`` exp(-r) - 1 + r (Schulman,
Approximating KL Divergence, 2020)."""

WarmupBy = Literal["random", "solver"]
"""Who plays the episodes that a warm-up clones."""

WarmupOn = Literal["answers", "all"]
"""The tokens that a warm-up learns: those of the answers, or all from the first answer on, so that the model
also learns to predict the environment's replies."""

NONE = "none"
"""The word for None in flags and files."""


def _keywords(args: list[str]) -> dict[str, Any]:
    try:
        values, why = json.loads(args[0]), ""
    except (ValueError, RecursionError) as error:
        values, why = None, f", which is not JSON ({error})"
    if not isinstance(values, dict):
        raise BadArgument(
            f"got {args[0][:100]!r}{why}; accepted: a JSON object in quotes, as '{{\"max_number\": 10}}'."
        )
    return values


KEYWORDS: PrimitiveConstructorSpec[dict[str, Any]] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="JSON",
    instance_from_str=_keywords,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda values: [json.dumps(values)],
)


def _maybe(read: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Return the parser of a flag that may be none; tyro's own would show {None}|INT."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: None if words[0] == NONE else read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, Path | int | float),
        str_from_instance=lambda value: [NONE if value is None else str(value)],
    )


MaybePath: TypeAlias = Annotated[Path | None, _maybe(Path, "FILE")]
MaybeCount: TypeAlias = Annotated[int | None, _maybe(int, "INT"), AT_LEAST_ONE]
MaybeCountOrZero: TypeAlias = Annotated[int | None, _maybe(int, "INT"), NOT_NEGATIVE]
MaybeAmount: TypeAlias = Annotated[float | None, _maybe(float, "FLOAT"), NOT_NEGATIVE]
MaybeNumber: TypeAlias = Annotated[float | None, _maybe(float, "FLOAT"), FINITE]


def tables(of: type[EnvPart], metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Return the parser of a flag that takes several tables, each a word that `of.parse` reads."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=metavar,
        instance_from_str=lambda words: tuple(map(of.parse, words)),
        is_instance=lambda value: isinstance(value, tuple) and all(isinstance(each, of) for each in value),
        str_from_instance=lambda parts: [part.to_word() for part in parts],
    )


ACCEPTED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text in quotes",
    Path: "the path of a file or folder, in quotes",
    dict: "keywords with values; in TOML as {max_number = 10}, or as JSON in quotes",
    tuple: "a list of texts, as ['python']",
}
"""What a setting accepts, by its type."""


@functools.cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields by name, without their annotations."""
    return get_type_hints(kind)


def convert_value(where: str, kind: Any, name: str, value: Any) -> Any:
    """Return a value as the type of the field `name` of a class: a list as a tuple, a text as a path.

    `where` is the file that the value is from; empty where it is a program's.

    Raises:
        BadArgument: for a value of another type, or out of the field's bounds.
    """
    hint = types_of(kind)[name]
    prefix = where and f"{where}: "
    try:
        plain = value.item() if hasattr(value, "item") else value  # a number of numpy
        typed = msgspec.convert(plain, hint, dec_hook=_path)
        check_bound(kind, name, plain)
    except BadArgument as error:
        raise BadArgument(f"{prefix}{error}") from error
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        accepted = describe_type(hint)
        if type(None) in get_args(hint):
            accepted += f', or "{NONE}"' if where else ", or None"
        raise BadArgument(f"{prefix}{name} is {value!r:.80}; accepted: {accepted}.") from error
    return typed


def _path(kind: type, value: Any) -> Any:
    """Return a path, which msgspec does not know."""
    if kind is Path and isinstance(value, str | Path) and value != "":
        return Path(value)
    raise TypeError


def describe_type(hint: Any) -> str:
    """Return what a type accepts, in words."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    return ACCEPTED[get_origin(hint) or hint]
