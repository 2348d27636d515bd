"""The settings of one environment of a run, and of one stage of its curriculum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec

from gem.errors import BadArgument, did_you_mean
from gem.naming import fix_name
from gem.registry import EnvSpec, name_env
from gem.train.config.bounds import AT_LEAST_ONE, BELOW_ONE, FINITE_ABOVE_ZERO, Bound, bounds_of, hints_of
from gem.wrappers.wrapper_factory import tool_wrappers

MixBy = Literal["episodes", "tokens"]
"""Unit of the weights: shares of episodes, or of the tokens that the policy samples."""

NormaliseBy = Literal["environment", "batch"]
"""Where advantages are centred and scaled: within the episodes of one environment, or over all of a batch."""


ID = Bound("text, as game:GuessTheNumber-v0-easy", bool)
NAMES = Bound("a list of names")
UNTIL = Bound("a rate of 0 or more and below 1", BELOW_ONE.allows)
WEIGHT = Bound("a number above 0", FINITE_ABOVE_ZERO.allows)


@dataclass(frozen=True)
class EnvPart:
    """One environment of a run, a table of ``[[environments]]``.

    `id`: the environment's id. `weight`: its share, relative to those of the others. `kwargs`: its keyword
    arguments. `wrappers`, `tools`, `max_turns`: as in the run's config; None: those of the run. `name`: its
    name in figures; by default its id, with the keyword arguments where an id occurs twice.
    """

    number: ClassVar[str] = "weight"
    """The field that the number of ID=NUMBER is for."""

    id: Annotated[str, ID]
    weight: Annotated[float, WEIGHT] = 1.0
    kwargs: Annotated[dict[str, Any], Bound("keywords and values")] = field(default_factory=dict)
    wrappers: Annotated[tuple[str, ...] | None, NAMES] = None
    tools: Annotated[tuple[str, ...] | None, NAMES] = None
    max_turns: Annotated[int | None, AT_LEAST_ONE] = None
    name: Annotated[str, Bound("text")] = ""

    def __post_init__(self) -> None:
        """Check the fields, and convert lists to tuples."""
        named: Any = self.id
        if callable(named) or isinstance(named, EnvSpec):  # as a program may name it
            object.__setattr__(self, "id", name_env(named))
        kind: Any = type(self)  # which mypy takes for a type without a hash
        for name, bound in bounds_of(kind).items():
            given = getattr(self, name)
            try:
                value = msgspec.convert(given, hints_of(kind)[name])
                is_accepted = value is None or bound.allows(value)
            except msgspec.ValidationError:
                is_accepted = False
            if not is_accepted:
                what = "an environment's id" if name == "id" else f"{name} of {self.id}"
                raise BadArgument(f"{what} is {given!r:.80}; accepted: {bound.accepted}.")
            object.__setattr__(self, name, value)
        object.__setattr__(self, "id", fix_name(self.id, "environment"))
        for name, kind in (("wrappers", "wrapper"), ("tools", "tool")):
            if (names := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(fix_name(each, kind) for each in names))
        tool_wrappers(self.tools or ())

    @classmethod
    def read(cls, value: Any) -> Self:
        """Return the environment that a table describes; an instance is returned as it is.

        Raises:
            BadArgument: for an unknown key, or a value that is not a table.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping) or "id" not in value:
            raise BadArgument(f"an environment is {value!r:.80}; accepted: a table with an id.")
        known = [each.name for each in fields(cls)]
        for name in value:
            if name not in known:
                raise BadArgument(
                    f"the table of {value['id']} has {name!r}; accepted: {', '.join(known)}."
                    f"{did_you_mean(str(name), known)}"
                )
        return cls(**value)

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the environment of a word of the command line: ``ID``, ``ID=NUMBER``, or a JSON object.

        Raises:
            BadArgument: for any other word.
        """
        if word.lstrip().startswith("{"):
            try:
                return cls.read(json.loads(word))
            except ValueError as error:
                raise BadArgument(f"{word:.80} is not a JSON object: {error}.") from None
        name, equals, value = word.partition("=")
        try:
            given: dict[str, Any] = {cls.number: float(value)} if equals else {}
            return cls(name, **given)
        except ValueError:
            raise BadArgument(
                f"{word:.80} has {value!r} for its {cls.number}; accepted: ID, ID={cls.number.upper()} with "
                'a number, or a JSON object, as \'{"id": "game:Wordle-v0", "kwargs": {"max_turns": 4}}\'.'
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return a table that read() takes: the id, and the fields that differ from their defaults."""
        default = type(self)(self.id)
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {n: value for n, value in values.items() if n == "id" or value != getattr(default, n)}

    def to_word(self) -> str:
        """Return a word that parse() takes."""
        return json.dumps(self.to_json())


@dataclass(frozen=True)
class Stage(EnvPart):
    """One stage of a curriculum, a table of ``[[curriculum]]``.

    It has the fields of EnvPart, and `until`: the success rate above which the next stage starts; None: the
    run's `advance_at`. `weight`: once this stage is over, its share among the earlier stages that are still
    played.
    """

    number: ClassVar[str] = "until"
    until: Annotated[float | None, UNTIL] = None


def name_parts(parts: Sequence[EnvPart]) -> tuple[EnvPart, ...]:
    """Return the parts with their names filled in.

    Raises:
        BadArgument: for a name that occurs twice.
    """
    ids = Counter(part.id for part in parts)
    named_parts = []
    for part in parts:
        arguments = ", ".join(f"{name}={value}" for name, value in part.kwargs.items())
        suffix = f"({arguments})" if arguments and ids[part.id] > 1 else ""
        named_parts.append(replace(part, name=part.name or part.id + suffix))
    for name, count in Counter(part.name for part in named_parts).items():
        if count > 1:
            raise BadArgument(f"{count} environments are called {name!r}; give each a name of its own.")
    return tuple(named_parts)
