"""Token usage of episodes by model, its price, and a budget that ends an evaluation cleanly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, check_argument, did_you_mean
from gem.files import read_toml
from gem.naming import without_digest
from gem.record import DISCARDED, Episode, RunInfo, Turn

MILLION = 1_000_000
TOKENS = ("prompt_tokens", "completion_tokens")
UNTRIED = 4
"""Episodes in flight under a budget while few have ended: short episodes end first, so their mean usage is
too low at first."""


def dollars(cost: float | None) -> str:
    """Return an amount of money as text, of two digits or more; a dash where it is unknown."""
    if cost is None:
        return "-"
    if 0 < cost < 0.01:
        cost = float(f"{cost:.1e}")  # 0.00996 is 0.01
        return f"${cost:.{max(4, 1 - math.floor(math.log10(cost)))}f}"
    return f"${cost:.4f}" if cost < 1 else f"${cost:,.2f}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts: of prompts (`cached` included), and of answers (`reasoning` included).

    `uncounted`: the number of turns whose token count is unknown.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    uncounted: int = 0

    @property
    def total(self) -> int:
        """The tokens of prompts and answers together."""
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Usage)))


Spent = Mapping[str, Usage]
"""Usage by model."""


def spent_on(episodes: Iterable[Episode], seat: str | None = None) -> dict[str, Usage]:
    """Return the token usage of episodes, by model; that of one seat's turns, if one is given.

    A turn's tokens are the server's count, else the number of ids that the agent kept. Answers that the agent
    discarded, and asked for again, count as far as the server counted them. An agent without a model uses
    what it counts, under its own name; nothing, where it counts nothing in all these episodes.
    """
    models: dict[str, Usage] = {}
    others: dict[str, Usage] = {}
    for episode in episodes:
        for turn in episode.turns if seat is None else episode.turns_of(seat):
            model = model_of(episode.run, turn)
            of, name = (others, _agent_of(episode.run, turn)) if model is None else (models, model)
            of[name] = of.get(name, Usage()) + _usage(turn, model) + _discarded_usage(turn.usage)
        if episode.error is not None:
            discarded = {model: _discarded_usage(each) for model, each in episode.error.usage.items()}
            models = together((models, discarded))
    return together((models, {name: usage for name, usage in others.items() if usage.total}))


def count_judged(episodes: Iterable[Episode]) -> int:
    """Return the tokens of the verdicts that judges gave on episodes, as far as their servers counted them.

    They are in no `Usage`: a judge is no part of what is evaluated.
    """
    infos = [turn.info for episode in episodes for turn in episode.turns]
    parts = [info["parts"].values() for info in infos if isinstance(info.get("parts"), Mapping)]
    used = [each.get("judge_usage") for each in chain(infos, *parts) if isinstance(each, Mapping)]
    counts = [each.get(name) for each in used if isinstance(each, Mapping) for name in TOKENS]
    return sum(count for count in counts if type(count) is int)


def together(parts: Iterable[Spent]) -> dict[str, Usage]:
    """Return the sum of several usages, by model."""
    total: dict[str, Usage] = {}
    for part in parts:
        for model, usage in part.items():
            total[model] = total.get(model, Usage()) + usage
    return total


def tokens_of(spent: Spent) -> int:
    """Return the tokens of all models together."""
    return sum(usage.total for usage in spent.values())


def count_uncounted(spent: Spent) -> int:
    """Return the number of turns of all models whose token count is unknown."""
    return sum(usage.uncounted for usage in spent.values())


def model_of(run: RunInfo, turn: Turn) -> str | None:
    """Return the model that gave a turn's answer; None for an agent without one."""
    return run.seats[turn.seat].model if turn.seat in run.seats else run.model


def _agent_of(run: RunInfo, turn: Turn) -> str:
    """Return the name of the agent that gave a turn's answer, whatever its file holds."""
    return without_digest(run.seats[turn.seat].agent if turn.seat in run.seats else run.agent)


def count_tokens(turn: Turn) -> tuple[int | None, int | None]:
    """Return the tokens of a turn's prompt and of its answer; None where unknown.

    They are the server's counts, else the numbers of ids that the agent kept. A count of 0 for an answer that
    says something is none.
    """
    counters, kept = turn.usage or {}, turn.prompt_length or len(turn.token_ids)
    uncounted = not any(name in counters for name in TOKENS)
    unknown = 0 if turn.finish == "context" and uncounted else None  # nothing was read or sampled
    prompt = counters.get("prompt_tokens", turn.prompt_length) or unknown
    completion = counters.get("completion_tokens", len(turn.token_ids) if kept else unknown)
    return prompt, None if completion == 0 and (turn.action or turn.said.reasoning) else completion


def _usage(turn: Turn, model: str | None) -> Usage:
    counters, (prompt, completion) = turn.usage or {}, count_tokens(turn)
    if model is None and not any(name in counters for name in TOKENS):
        prompt = completion = None  # ids are no count of what it costs to ask an agent without a model
    return Usage(
        prompt or 0,
        completion or 0,
        min(counters.get("cached_tokens", 0), prompt or 0),
        counters.get("reasoning_tokens", 0),
        0 if None not in (prompt, completion) or turn.action is None else 1,
    )


def _discarded_usage(counters: Mapping[str, int] | None) -> Usage:
    """Return the usage of discarded answers."""
    names = (*TOKENS, "cached_tokens", "reasoning_tokens")
    prompt, completion, cached, reasoning = ((counters or {}).get(DISCARDED + name, 0) for name in names)
    return Usage(prompt, completion, min(cached, prompt), reasoning)


MOST_USD = 1e12
"""The highest price of a million tokens, in dollars."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens: of prompts, of their `cached` part, and of answers."""

    input: float
    output: float
    cached: float


@dataclass(frozen=True)
class Prices:
    """The token prices of models. `source` is the name of the file."""

    models: Mapping[str, Price]
    source: str = "the prices"

    @classmethod
    def read(cls, path: Path) -> Prices:
        """Read a price file: a table ``[models."NAME"]`` per model, with input, output and optionally cached.

        Raises:
            BadArgument: for a file that is not a price file.
        """
        try:
            values = read_toml(path)
        except (OSError, ValueError) as error:
            raise BadArgument(f"{path}: cannot be read as a price file: {error}") from error
        for name in values:
            if name != "models":
                raise BadArgument(f"{path} has {name!r}.{did_you_mean(name, ('models',))} Accepted: models.")
        models = values.get("models")
        if not isinstance(models, dict) or not models:
            raise BadArgument(f'{path} has no prices; accepted: tables such as [models."NAME"].')
        return cls({name: _price(path, name, given) for name, given in models.items()}, str(path))

    def check(self, models: Iterable[str | None]) -> None:
        """Raise BadArgument for a model without a price."""
        for model in models:
            if model is not None and model not in self.models:
                hint = did_you_mean(model, self.models)
                raise BadArgument(
                    f"{self.source} has no price of {model!r}.{hint} Add [models.{_quote_key(model)}] with "
                    "input and output, 0 if it costs nothing."
                )

    def cost(self, spent: Spent) -> float:
        """Return the cost of tokens in dollars.

        Raises:
            BadArgument: for a model without a price.
        """
        self.check(spent)
        dollars = 0.0
        for model, usage in spent.items():
            price = self.models[model]
            dollars += price.input * (usage.prompt - usage.cached) + price.cached * usage.cached
            dollars += price.output * usage.completion
        return dollars / MILLION


@dataclass(frozen=True, slots=True)
class EpisodePrice:
    """A limit in dollars on one episode, checked before each call of its model."""

    prices: Prices
    usd: float

    def __post_init__(self) -> None:
        """Refuse a limit that allows nothing."""
        check_argument("usd_per_episode", self.usd, 0 < self.usd < math.inf, "dollars above 0")

    def __call__(self, episode: Episode) -> str:
        """Return why the episode has cost what it may cost, '' before that.

        Where the tokens of a call are unknown, so is its price, and no further call is allowed.

        Raises:
            BadArgument: for a model without a price.
        """
        spent = spent_on((episode,))
        if count_uncounted(spent) or (not spent and any(turn.action is not None for turn in episode.turns)):
            return "The server does not count tokens, so what this episode costs is unknown."
        cost = self.prices.cost(spent)
        return "" if cost < self.usd else f"This episode has cost {dollars(cost)} of ${self.usd:g}."


def _quote_key(name: str) -> str:
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
        if type(value) not in (int, float) or not 0 <= value <= MOST_USD:
            raise BadArgument(
                f"{path}: {name} of {model!r} is {value!r:.40}; accepted: dollars per million tokens, 0 to "
                f"{MOST_USD:g}."
            )
    for name in ("input", "output"):
        if name not in given:
            raise BadArgument(f"{path}: the price of {model!r} lacks {name!r}.")
    return Price(**{"cached": given["input"], **given})


class Budget:
    """A limit on the tokens or dollars of an evaluation; episodes already in its stores count.

    An episode starts only if the spent amount, the expected amount of the episodes in flight, and that of the
    episode itself fit into the budget. The expected amount is the mean over the ended episodes of the same
    agent in environments of this id; except for a few at the start, no more episodes are in flight than have
    ended. Started episodes are played to their end, so the budget may be exceeded by the difference of the
    last episodes from the mean.
    """

    def __init__(
        self, tokens: int | None = None, usd: float | None = None, prices: Prices | None = None
    ) -> None:
        """Set the limits.

        Raises:
            BadArgument: for numbers below 0, or dollars without prices.
        """
        for name, value in (("tokens", tokens), ("usd", usd)):
            check_argument(f"budget_{name}", value, value is None or 0 <= value < math.inf, "0 or more")
        if usd is not None and prices is None:
            raise BadArgument("budget_usd needs prices: a file of dollars per million tokens, by model.")
        self.tokens, self.usd, self.prices = tokens, usd, prices
        self.spent: dict[str, Usage] = {}
        self._ended, self._taken = Counter[tuple[str, str]](), dict[tuple[str, str], dict[str, Usage]]()
        self._next = ("", "")

    def begin(self, agent: str, env: str) -> None:
        """Record whose episodes, and in environments of which id, are admitted next."""
        self._next = (agent, env)

    def append(self, episode: Episode, agent: str) -> None:
        """Count an episode that an agent played, with or without verdict."""
        own, key = spent_on((episode,)), (agent, episode.spec)
        self.spent = together((self.spent, own))
        self._taken[key] = together((self._taken.get(key, {}), own))
        self._ended[key] += 1

    def admit(self, in_flight: int) -> bool:
        """Return whether another episode may start while `in_flight` are running."""
        ended = self._ended[self._next]
        limits = [limit for limit in (self.tokens, self.usd) if limit is not None]
        spent, taken = self._sum_amounts(self.spent), self._sum_amounts(self._taken.get(self._next, {}))
        if not ended:
            return in_flight < UNTRIED and all(now < limit for now, limit in zip(spent, limits, strict=True))
        return in_flight < max(UNTRIED, ended) and all(
            now + own / ended * (in_flight + 1) <= limit
            for now, own, limit in zip(spent, taken, limits, strict=True)
        )

    def _sum_amounts(self, spent: Spent) -> list[float]:
        """Return the amounts of tokens and dollars that are limited."""
        counted: list[float] = [] if self.tokens is None else [tokens_of(spent)]
        if self.usd is not None and self.prices is not None:
            counted.append(self.prices.cost(spent))
        return counted

    def __str__(self) -> str:
        """The spent amounts and the limits as text."""
        parts = [] if self.tokens is None else [f"{tokens_of(self.spent):,} of {self.tokens:,} tokens"]
        if self.usd is not None and self.prices is not None:
            parts.append(f"{dollars(self.prices.cost(self.spent))} of ${self.usd:g}")
        return ", ".join(parts)
