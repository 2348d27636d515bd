"""Several environments in one run: their settings, and how the tasks of an iteration are shared out.

The environments of a batch are fixed before any of it is played, so one whose episodes take ten times as long
still gets its share. A sampler that fills its batch with whatever ends first would favour short episodes.
Within an environment it would favour policies and tasks that end soon.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from gem.errors import BadArgument, did_you_mean
from gem.naming import fix_name
from gem.wrappers.wrapper_factory import Tool, tool_wrappers

MixBy = Literal["episodes", "tokens"]
"""Unit of the weights: shares of episodes, or of the tokens that the policy samples."""

NormaliseBy = Literal["environment", "batch"]
"""Where advantages are centred and scaled: within the episodes of one environment, or over all of a batch."""

MEMORY = 0.8
"""Factor by which the weight of past tokens per episode falls in each iteration."""


@dataclass(frozen=True)
class EnvPart:
    """One environment of a run, a table of ``[[environments]]``.

    `id`: the environment's id. `weight`: its share, relative to those of the others. `kwargs`: its keyword
    arguments. `wrappers`, `tools`, `max_turns`: as in the run's config; None: those of the run. `name`: its
    name in figures; by default its id, with the keyword arguments where an id occurs twice.
    """

    id: str
    weight: float = 1.0
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] | None = None
    tools: tuple[Tool, ...] | None = None
    max_turns: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Check the fields, and convert lists to tuples."""
        if not isinstance(self.id, str) or not self.id:
            raise BadArgument(
                f"an environment's id is {self.id!r}; accepted: text, as game:GuessTheNumber-v0-easy."
            )
        object.__setattr__(self, "id", fix_name(self.id, "environment"))
        number = isinstance(self.weight, int | float) and not isinstance(self.weight, bool)
        if not number or not 0 < self.weight < math.inf:
            raise BadArgument(f"the weight of {self.id} is {self.weight!r}; accepted: a number above 0.")
        if not isinstance(self.kwargs, Mapping):
            raise BadArgument(f"kwargs of {self.id} is {self.kwargs!r:.80}; accepted: keywords and values.")
        if not isinstance(self.name, str):
            raise BadArgument(f"the name of {self.id} is {self.name!r:.80}; accepted: text.")
        turns = self.max_turns
        if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
            raise BadArgument(f"max_turns of {self.id} is {turns!r}; accepted: a number of 1 or more.")
        for name in ("wrappers", "tools"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise BadArgument(f"{name} of {self.id} is {value!r:.80}; accepted: a list of names.")
            object.__setattr__(self, name, tuple(fix_name(each, "wrapper") for each in value))
        if self.tools is not None:
            tool_wrappers(self.tools)

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
                hint = did_you_mean(str(name), known)
                raise BadArgument(
                    f"the table of {value['id']} has {name!r}; accepted: {', '.join(known)}.{hint}"
                )
        return cls(**value)

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the environment of a word of the command line: ``ID``, ``ID=WEIGHT``, or a JSON object.

        Raises:
            BadArgument: for any other word.
        """
        return cls._parsed(word, "weight")

    @classmethod
    def _parsed(cls, word: str, number: str) -> Self:
        if word.lstrip().startswith("{"):
            try:
                return cls.read(json.loads(word))
            except ValueError as error:
                raise BadArgument(f"{word:.80} is not a JSON object: {error}.") from None
        name, equals, told = word.partition("=")
        try:
            given: dict[str, Any] = {number: float(told)} if equals else {}
            return cls(name, **given)
        except ValueError:
            raise BadArgument(
                f"{word:.80} has {told!r} for its {number}; accepted: ID, ID={number.upper()} with a number, "
                'or a JSON object, as \'{"id": "game:Wordle-v0", "kwargs": {"max_turns": 4}}\'.'
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return a table that read() takes: the id, and the fields that differ from their defaults."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        default = {f.name: getattr(type(self)(self.id), f.name) for f in fields(self)}
        return {name: value for name, value in told.items() if name == "id" or value != default[name]}

    def written(self) -> str:
        """Return a word that parse() takes."""
        return json.dumps(self.to_json())


def named(parts: Sequence[EnvPart]) -> tuple[EnvPart, ...]:
    """Return the parts with their names filled in.

    Raises:
        BadArgument: for a name that occurs twice.
    """
    ids = Counter(part.id for part in parts)
    found = []
    for part in parts:
        told = ", ".join(f"{name}={value}" for name, value in part.kwargs.items())
        found.append(
            replace(part, name=part.name or part.id + (f"({told})" if told and ids[part.id] > 1 else ""))
        )
    for name, count in Counter(part.name for part in found).items():
        if count > 1:
            raise BadArgument(f"{count} environments are called {name!r}; give each a name of its own.")
    return tuple(found)


class Shares:
    """A deterministic choice of items, one after the other, in proportion to their weights.

    After any number of choices each item was chosen within 1 of its share of them. While the weights stay the
    same, ``|dealt - share * all| <= 1 - 1 / (2k - 2)`` for k items, which is the best possible bound. So
    shares that divide a batch are exact in every batch, and nothing drifts. Among the items that are far
    enough behind their share, the one that would be too far behind soonest is chosen first.

    Source: Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980).
    """

    def __init__(self, behind: Mapping[str, float] | None = None) -> None:
        """Start from zero, or continue from `behind`: how far each item is behind its share."""
        self.behind = dict(behind or {})

    def deal(self, weights: Mapping[str, float]) -> str:
        """Return the next item; one of weight 0 is never chosen, and its distance from its share is dropped.

        Raises:
            BadArgument: where no weight is above 0.
        """
        total = math.fsum(weights.values())
        wanted = {name: weight / total for name, weight in weights.items() if weight > 0}
        if not wanted:
            raise BadArgument("nothing has a weight above 0.")
        self.behind = {name: self.behind.get(name, 0.0) + share for name, share in wanted.items()}
        least = 1 / max(1, 2 * len(wanted) - 2)
        late = [name for name, behind in self.behind.items() if behind >= least - 1e-9]
        if late:
            chosen = min(late, key=lambda name: (1 - least - self.behind[name]) / wanted[name])
        else:  # the weights have changed
            chosen = max(self.behind, key=self.behind.__getitem__)
        self.behind[chosen] -= 1
        return chosen


class TokenShares:
    """A converter of shares of tokens into shares of episodes, from the tokens of past episodes.

    An environment's share of episodes is proportional to its weight divided by its mean tokens per episode.
    The mean is over complete iterations, where every episode counts, however long it took. Each iteration
    counts `MEMORY` times as much as the one after it. An environment that was not played yet gets the mean of
    the others, so the first iteration is shared out by episodes.
    """

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        """Start from zero, or continue from `sums`: tokens and episodes by name."""
        self.sums = {name: (each[0], each[1]) for name, each in (sums or {}).items()}

    def take_in(self, played: Iterable[tuple[str, int]]) -> None:
        """Add a complete iteration: each episode's environment and the policy's tokens in it."""
        self.sums = {name: (MEMORY * t, MEMORY * n) for name, (t, n) in self.sums.items()}
        for name, tokens in played:
            before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before[0] + tokens, before[1] + 1

    def of_episodes(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return the shares of episodes that give these shares of tokens; they need not sum to 1."""
        means = {name: max(1.0, tokens / n) for name, (tokens, n) in self.sums.items() if name in weights}
        unknown = math.fsum(means.values()) / len(means) if means else 1.0
        return {name: weight / means.get(name, unknown) for name, weight in weights.items()}
