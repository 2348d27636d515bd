"""The records that every consumer reads: asks and replies, turns, episodes, groups.

An episode is written once, by `gem.rollout.play`, and read by stores, trainers, reports and viewers.
`SCHEMA` changes whenever a stored field changes its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

from gem.content import Image, Message, Obs
from gem.errors import BadArgument

SCHEMA = 1
"""Number of the stored form of Episode."""

SEAT = "agent"
"""The seat of a single-agent episode."""


class StopReason(StrEnum):
    """Why an episode ended. The first five are the task's own ends, the next four limits from outside."""

    SOLVED = "solved"  # the task was done
    FAILED = "failed"  # the task was ended without being done
    UNREADABLE = "unreadable"  # an action that could not be read ended the task
    TURN_BUDGET = "turn_budget"  # the turns that the task states are used up
    ENDED = "ended"  # it ended without saying how, or each of several seats in its own way
    TURN_LIMIT = "turn_limit"  # the driver's turns (or a TimeLimit wrapper's)
    TOKEN_LIMIT = "token_limit"  # the driver's generated tokens
    CONTEXT_LIMIT = "context_limit"  # the prompt no longer fits the model
    TIME_LIMIT = "time_limit"  # wall clock used by the policy
    ERROR = "error"  # infrastructure failed: no verdict
    CANCELLED = "cancelled"  # somebody stopped it: no verdict


class Verdict(StrEnum):
    """Whether an episode has a score. An episode without verdict has no reward; it is never 0."""

    SCORED = "scored"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits from outside, owned by `play()`; None means no limit.

    `turns`: steps per episode. `tokens`: generated tokens per episode. `turn_tokens`: generated tokens
    per turn. `context`: tokens of prompt and answer together. `policy_s`: seconds of wall clock that the
    agent may use over the episode; `call_s`: seconds for one call of the environment, after which the
    environment counts as broken (no verdict).
    """

    turns: int | None = None
    tokens: int | None = None
    turn_tokens: int | None = None
    context: int | None = None
    policy_s: float | None = None
    call_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that every episode would be past before it begins."""
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and not value >= 0:
                raise BadArgument(
                    f"limit {limit.name} is {value}; accepted: 0 or more, or None for no limit."
                )


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to one agent for its next action.

    `episode`: id of the episode, the key of the agent's caches. `agent`: the seat that acts.
    `turn`: this seat's turn number, from 0. `messages`: all that the agent is shown. `held`: the token
    ids of this seat's conversation so far (prompt and answer of its last turn), or () when nothing may
    be reused. `fresh`: how many of the last messages `held` does not cover. `seed`: a seed of this ask
    alone, so that sampling does not depend on what else is in the batch. `max_tokens` and `context`:
    the tokens this answer may take, and prompt and answer together.
    """

    episode: str
    agent: str
    turn: int
    messages: tuple[Message, ...]
    held: tuple[int, ...] = ()
    fresh: int = 0
    seed: int = 0
    max_tokens: int | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's answer.

    `prompt_ids`: every token the model saw; `token_ids`: the tokens it sampled; `logprobs`: their log
    probabilities under the sampling policy, same length; () each where the agent has no tokens.
    `finish`: ``stop``, ``length`` (cut by a token limit) or ``context`` (the prompt did not fit and
    nothing was sampled).
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = "stop"
    policy_version: int | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the host of an environment: ``getattr(env, verb)(*args, **kwargs)``."""

    env: Any
    verb: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Agent(Protocol):
    """Whoever acts. `gem.agents.BaseAgent` derives either call from the other."""

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order."""
        ...

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask."""
        ...

    def forget(self, episode: str) -> None:
        """Drop whatever is kept for `episode`; called once when it ends, however it ends."""
        ...


@dataclass(slots=True)
class Turn:
    """One action of one seat and what it led to.

    `observation` is what the environment said before the action, `reward` what the action earned.
    `token_ids`, `logprobs` and `mask` run over the sampled tokens; `mask` is 1 where a trainer learns.
    `info` is the environment's info after the action; `timing` holds seconds by name.
    """

    agent: str
    observation: Obs
    action: str | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    mask: tuple[int, ...] = ()
    reward: float | None = None
    finish: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Failure:
    """What broke: where (`env`, `agent`, `host`, `driver`), the error's class and its message."""

    boundary: str
    type: str
    message: str


@dataclass(slots=True)
class SeatEnd:
    """How one seat of a multi-agent episode ended.

    `observation` and `info` are what it was shown last. `unearned` is what it was paid before its first
    turn: what a seat is paid later stands in the turn before.
    """

    stop: StopReason = StopReason.ERROR
    terminated: bool = False
    truncated: bool = False
    observation: Obs = ""
    info: dict[str, Any] = field(default_factory=dict)
    unearned: float = 0.0


@dataclass(slots=True)
class Episode:
    """One episode: a flat list of turns, each tagged with its seat, and how it ended.

    `spec` and `kwargs` make the environment again, `seed` starts it again. `group` names the task that
    several samples share; `sample` numbers them. `initial_info` is what reset returned beside the first
    turn's observation; `final_observation` and `final_info` are what the last step returned.

    `ends` says how each seat of a multi-agent episode ended, and is empty for a single agent. There
    `initial_info` holds, by seat, the info before the seat's first turn, and `final_observation` is empty:
    each end has its own. Turns that were taken at the same time stand in the order of the seats.
    """

    id: str
    spec: str
    seed: int
    kwargs: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    sample: int = 0
    turns: list[Turn] = field(default_factory=list)
    stop: StopReason = StopReason.ERROR
    terminated: bool = False
    truncated: bool = False
    verdict: Verdict = Verdict.NONE
    error: Failure | None = None
    initial_info: dict[str, Any] = field(default_factory=dict)
    final_observation: Obs = ""
    final_info: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, SeatEnd] = field(default_factory=dict)
    policy_version: int | None = None
    timing: dict[str, float] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def scored(self) -> bool:
        """Whether the episode counts in training and evaluation."""
        return self.verdict is Verdict.SCORED

    @property
    def bootstrap(self) -> bool:
        """Whether a value estimate stands in for what would have come: truncated and scored."""
        return self.truncated and self.scored

    @property
    def success(self) -> bool | None:
        """Whether the task was solved; None without verdict, or where a foreign env did not say."""
        return self.succeeded()

    def succeeded(self, seat: str | None = None) -> bool | None:
        """Return whether a seat's task was solved, or the episode's; None where nobody knows."""
        stop = self.stop if seat is None or not self.ends else self.ends[seat].stop
        if not self.scored or stop is StopReason.ENDED:
            return None
        return stop is StopReason.SOLVED

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats: all of a multi-agent episode, else those that acted, in order of their first turn."""
        return tuple(self.ends or dict.fromkeys(turn.agent for turn in self.turns))

    def turns_of(self, seat: str = SEAT) -> list[Turn]:
        """Return the turns of one seat, in order."""
        return [turn for turn in self.turns if turn.agent == seat]

    def exchanges(self, seat: str = SEAT) -> list[Turn]:
        """Return a seat's turns as `gem.history.messages` reads them: with the info before each action."""
        turns = self.turns_of(seat)
        first = self.initial_info.get(seat, {}) if self.ends else self.initial_info
        infos = (first, *(turn.info for turn in turns))
        return [replace(turn, info=info) for turn, info in zip(turns, infos, strict=False)]

    def reward(self, seat: str | None = None) -> float:
        """Return the undiscounted sum of a seat's rewards; NaN without verdict.

        Without `seat`: of the single agent, or the mean over the seats of a multi-agent episode.
        """
        if not self.scored:
            return math.nan
        if seat is None and self.ends:
            return math.fsum(self.reward(each) for each in self.ends) / len(self.ends)
        seat = seat or SEAT
        unearned = self.ends[seat].unearned if seat in self.ends else 0.0
        return math.fsum((unearned, *(turn.reward or 0.0 for turn in self.turns if turn.agent == seat)))

    def transcript_hash(self) -> str:
        """Return a hash of all that was said, done and earned; timings and tokens do not enter."""
        import json  # here, because `import gem` is to be light

        digest = blake2b(digest_size=16)
        for turn in self.turns:
            line = (turn.agent, _plain(turn.observation), turn.action, _number(turn.reward))
            digest.update(json.dumps(line).encode())
        end = (self.stop.value, self.terminated, self.truncated, self.verdict.value)
        digest.update(json.dumps((*end, _plain(self.final_observation))).encode())
        for seat, last in self.ends.items():
            said = (seat, last.stop.value, last.terminated, last.truncated, _plain(last.observation))
            digest.update(json.dumps((*said, _number(last.unearned))).encode())
        return digest.hexdigest()


@dataclass(slots=True)
class EpisodeGroup:
    """Episodes of one task from one start state: GRPO's unit."""

    group: str
    episodes: list[Episode] = field(default_factory=list)


def group_episodes(episodes: Sequence[Episode]) -> list[EpisodeGroup]:
    """Collect episodes by their `group`, in order of first appearance."""
    groups: dict[str, EpisodeGroup] = {}
    for episode in episodes:
        groups.setdefault(episode.group, EpisodeGroup(episode.group)).episodes.append(episode)
    return list(groups.values())


def _plain(obs: Obs) -> Any:
    if isinstance(obs, str):
        return obs
    return [
        ("image", part.mime, blake2b(part.data, digest_size=16).hexdigest())
        if isinstance(part, Image)
        else ("text", part.text)
        for part in obs
    ]


def _number(reward: float | None) -> float | str | None:
    return repr(reward) if reward is not None and not math.isfinite(reward) else reward
