"""What episodes take: tokens by model, their price, and a budget that ends an evaluation cleanly."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, did_you_mean
from gem.record import Episode, RunInfo, Turn

MILLION = 1_000_000
UNTRIED = 4
"""Episodes in flight as long as nobody knows what one costs, where there is a budget."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens: of prompts, `cached` among them, and of answers, `reasoning` among them.

    `uncounted`: turns of which nobody said how many tokens they took.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    uncounted: int = 0

    @property
    def total(self) -> int:
        """Tokens of prompts and answers together."""
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Usage)))


Spent = Mapping[str, Usage]
"""Usage by model."""


def spent_on(episodes: Iterable[Episode]) -> dict[str, Usage]:
    """Return the tokens that episodes took, by model; what plays without a model takes none.

    A turn's tokens are those that its server counted, else those that the agent kept.
    """
    found: dict[str, Usage] = {}
    for episode in episodes:
        for turn in episode.turns:
            model = _model(episode.run, turn)
            if model is not None:
                found[model] = found.get(model, Usage()) + _usage(turn)
    return found


def together(parts: Iterable[Spent]) -> dict[str, Usage]:
    """Return the sum of several, by model."""
    found: dict[str, Usage] = {}
    for part in parts:
        for model, usage in part.items():
            found[model] = found.get(model, Usage()) + usage
    return found


def tokens_of(spent: Spent) -> int:
    """Return the tokens of all models together."""
    return sum(usage.total for usage in spent.values())


def _model(run: RunInfo, turn: Turn) -> str | None:
    return run.seats[turn.seat].model if turn.seat in run.seats else run.model


def _usage(turn: Turn) -> Usage:
    counters = turn.usage or {}
    prompt = counters.get("prompt_tokens", turn.prompt_length)
    completion = counters.get("completion_tokens", len(turn.token_ids))
    return Usage(
        prompt,
        completion,
        min(counters.get("cached_tokens", 0), prompt),
        counters.get("reasoning_tokens", 0),
        0 if prompt or completion else 1,
    )


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens: of prompts, of their `cached` part, and of answers."""

    input: float
    output: float
    cached: float


@dataclass(frozen=True)
class Prices:
    """What the tokens of models cost. `source` names the file."""

    models: Mapping[str, Price]
    source: str = "the prices"

    @classmethod
    def read(cls, path: Path) -> Prices:
        """Read a price file: a table ``[models."NAME"]`` for each, with input, output and maybe cached.

        Raises:
            BadArgument: for what is no such file.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BadArgument(f"{path}: cannot be read as a price file: {error}") from error
        for name in values:
            if name != "models":
                raise BadArgument(f"{path} has {name!r}.{did_you_mean(name, ('models',))} Accepted: models.")
        models = values.get("models")
        if not isinstance(models, dict) or not models:
            raise BadArgument(f'{path} prices no model; accepted: tables such as [models."NAME"].')
        return cls({name: _price(path, name, given) for name, given in models.items()}, str(path))

    def check(self, models: Iterable[str | None]) -> None:
        """Raise BadArgument for a model that has no price."""
        for model in models:
            if model is not None and model not in self.models:
                hint = did_you_mean(model, self.models)
                raise BadArgument(
                    f"{self.source} has no price of {model!r}.{hint} Add [models.{_quoted(model)}] with "
                    "input and output, 0 where it costs nothing."
                )

    def cost(self, spent: Spent) -> float:
        """Return the dollars that tokens cost.

        Raises:
            BadArgument: for a model that has no price.
        """
        self.check(spent)
        dollars = 0.0
        for model, usage in spent.items():
            price = self.models[model]
            dollars += price.input * (usage.prompt - usage.cached) + price.cached * usage.cached
            dollars += price.output * usage.completion
        return dollars / MILLION


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _price(path: Path, model: str, given: Any) -> Price:
    if not isinstance(given, dict):
        raise BadArgument(f"{path}: the price of {model!r} is {given!r:.40}; accepted: a table.")
    known = ("input", "output", "cached")
    for name, value in given.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise BadArgument(
                f"{path}: the price of {model!r} has {name!r}.{hint} Accepted: {', '.join(known)}."
            )
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise BadArgument(
                f"{path}: {name} of {model!r} is {value!r:.40}; accepted: dollars for a million tokens."
            )
    for name in ("input", "output"):
        if name not in given:
            raise BadArgument(f"{path}: the price of {model!r} lacks {name!r}.")
    cached = given["cached"] if "cached" in given else given["input"]
    return Price(given["input"], given["output"], cached)


@dataclass
class Budget:
    """Tokens or dollars that an evaluation may take; what its stores hold counts.

    An episode is begun as long as what was spent, what those in flight are expected to take, and the episode
    itself fit. One is expected to take the mean of those that were played, since `begin`; before the first
    has ended a few are in flight at most. What has begun is played to its end, so that the budget may be
    exceeded by as much as those last episodes differ from the mean.
    """

    tokens: int | None = None
    usd: float | None = None
    prices: Prices | None = None
    spent: dict[str, Usage] = field(default_factory=dict)
    _before: tuple[float, ...] = ()
    _ended: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        for name in ("tokens", "usd"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadArgument(f"budget_{name} is {value}; accepted: 0 or more.")
        if self.usd is not None and self.prices is None:
            raise BadArgument("budget_usd needs prices: a file of dollars for a million tokens, by model.")
        self.begin()

    def begin(self) -> None:
        """Learn anew what an episode takes: another environment is played."""
        self._before, self._ended = self._used(), 0

    def append(self, episode: Episode) -> None:
        """Count an episode that was played, with or without verdict."""
        self.spent = together((self.spent, spent_on((episode,))))
        self._ended += 1

    def admit(self, in_flight: int) -> bool:
        """Tell whether another episode may begin, beside so many."""
        used, limits = self._used(), self._limits()
        if self._ended:
            fits = all(
                now + (now - before) / self._ended * (in_flight + 1) <= limit
                for now, before, limit in zip(used, self._before, limits, strict=True)
            )
        else:
            fits = all(now < limit for now, limit in zip(used, limits, strict=True))
        return fits and (bool(self._ended) or in_flight < UNTRIED)

    def _limits(self) -> tuple[float, ...]:
        return tuple(limit for limit in (self.tokens, self.usd) if limit is not None)

    def _used(self) -> tuple[float, ...]:
        used: list[float] = [] if self.tokens is None else [tokens_of(self.spent)]
        if self.usd is not None and self.prices is not None:
            used.append(self.prices.cost(self.spent))
        return tuple(used)

    def __str__(self) -> str:
        """How much is spent of how much."""
        parts = [f"{tokens_of(self.spent):,} of {self.tokens:,} tokens"] if self.tokens is not None else []
        if self.usd is not None and self.prices is not None:
            parts.append(f"${self.prices.cost(self.spent):.4f} of ${self.usd:g}")
        return ", ".join(parts)
