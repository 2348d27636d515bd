"""The types of a run's settings: what each accepts, and how a flag of the command line is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from tyro.constructors import PrimitiveConstructorSpec

from gem.errors import BadArgument
from gem.train.config.bounds import AT_LEAST_ONE, FINITE, NOT_NEGATIVE
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
    values = json.loads(args[0])
    if not isinstance(values, dict):
        raise BadArgument(f"got {args[0]}; accepted: a JSON object.")
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
