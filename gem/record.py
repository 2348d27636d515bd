"""The records that every consumer reads: asks and replies, turns, episodes, groups.

An episode is written once, by `gem.rollout.episode`, and read by stores, trainers, reports and viewers. A
turn keeps what it adds: of its prompt only the ids that no earlier turn holds. An episode knows what it was
played in (`task`) and how (`run`). `SCHEMA` changes whenever a stored field changes its meaning.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from gem.content import Image, Message, Obs, ToolCall, ToolSpec
from gem.errors import BadArgument
from gem.history import HistoryPolicy
from gem.specs import TaskRef

SCHEMA = 2
"""Number of the stored form of Episode."""

SEAT = "agent"
"""The seat of a single-agent episode."""

Ids: TypeAlias = "Sequence[int]"
"""Token ids: an ``array('i')``, 4 bytes each; () where there are none."""


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
    TIME_LIMIT = "time_limit"  # the seconds that the agent may take
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
    per turn. `context`: tokens of prompt and answer together. `policy_s`: seconds that the agent may take
    over the episode, summed over its asks (`Reply.policy_s`). Spent, they end the episode without verdict:
    the slowness may be a server's. With `on_time` ``scored``, for agents whose speed is measured too, the
    episode counts as it stands. `call_s`: seconds for one call of the environment, after which the
    environment counts as broken (no verdict).
    """

    turns: int | None = None
    tokens: int | None = None
    turn_tokens: int | None = None
    context: int | None = None
    policy_s: float | None = None
    call_s: float | None = None
    on_time: Literal["none", "scored"] = "none"

    def __post_init__(self) -> None:
        """Refuse limits that every episode would be past before it begins."""
        if self.on_time not in ("none", "scored"):
            raise BadArgument(f"limit on_time is {self.on_time!r}; accepted: 'none', 'scored'.")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name != "on_time" and value is not None and not value >= 0:
                raise BadArgument(
                    f"limit {limit.name} is {value}; accepted: 0 or more, or None for no limit."
                )


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to one agent for its next action.

    `episode`: id of the episode, the key of the agent's caches. `seat`: who acts. `turn`: this seat's turn
    number, from 0. `messages`: all that the agent is shown. `held`: the token ids of this seat's conversation
    so far (prompt and answer of its last turn), or () when nothing may be reused. `fresh`: how many of the
    last messages `held` does not cover. `seed`: a seed of this ask alone, so that sampling does not depend on
    what else is in the batch. `max_tokens` and `context`: the tokens this answer may take, and prompt and
    answer together. `tools`: what the model may call. `sampling`: settings of this ask that differ from the
    agent's own.
    """

    episode: str
    seat: str
    turn: int
    messages: tuple[Message, ...]
    held: tuple[int, ...] = ()
    fresh: int = 0
    seed: int = 0
    max_tokens: int | None = None
    context: int | None = None
    _: KW_ONLY
    tools: tuple[ToolSpec, ...] = ()
    sampling: Mapping[str, Any] | None = None
    policy_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's answer.

    `prompt_ids`: every token the model saw; `token_ids`: the tokens it sampled; () each where the agent has
    no tokens. `logprobs`: the log probabilities of the sampled tokens under the sampling policy, same length;
    None where nobody knows them. `finish`: ``stop``, ``length`` (cut by a token limit) or ``context`` (the
    prompt did not fit and nothing was sampled). `policy_version`: of the weights that sampled it.
    `tool_calls` and `reasoning`: what the model said beside its text. `usage`: tokens by name, as a server
    counts them (``prompt_tokens``, ``completion_tokens``). `extra`: whatever else a consumer wants to find in
    the turn (routed experts, request ids). `policy_s`: the seconds that the agent took for this answer alone,
    without its wait for other answers; None where the driver is to measure.
    """

    text: str
    prompt_ids: Sequence[int] = ()
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] | None = None
    finish: str = "stop"
    policy_version: int | None = None
    _: KW_ONLY
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    policy_s: float | None = field(default=None, compare=False)


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
    """One action of one seat, what it led to, and the tokens it adds.

    `observation` is what the environment said before the action, `action` what it was given, `reward` what
    the action earned and `rewards` the named parts of that. `reply` is the agent's answer where it is more
    than the action as plain text; `said` gives it either way.

    The prompt's ids are the first `kept` ids of the `parent`'s prompt and answer, then `new_ids`; a
    conversation whose past was rewritten, sub-agents and parallel calls all are another parent, or a smaller
    `kept`. `token_ids`, `logprobs` (None: unknown) and `mask` run over the sampled tokens; `mask` is 1 where
    a trainer learns. `policy_version` sampled them, `value` is a critic's estimate before the action,
    `sampling` holds settings that differ from the run's, `usage` tokens by name.

    `info` is the environment's info after the action, `timing` seconds by name, `extra` what the agent gave
    for consumers; a mapping that nobody filled is None. `messages` is filled only where
    `gem.history.messages` cannot give what was shown: the messages behind those of the parent and its answer.
    """

    seat: str
    observation: Obs
    action: str | None = None
    reply: Message | None = None
    finish: str = ""
    parent: Turn | None = field(default=None, repr=False, compare=False)
    kept: int = 0
    new_ids: Ids = ()
    token_ids: Ids = ()
    logprobs: Sequence[float] | None = None
    mask: bytes = b""
    policy_version: int | None = None
    value: float | None = None
    reward: float | None = None
    rewards: dict[str, float] | None = None
    sampling: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] | None = None
    messages: tuple[Message, ...] | None = None

    @property
    def said(self) -> Message:
        """The agent's answer as a message."""
        return self.reply or Message("assistant", self.action or "")

    @property
    def prompt_length(self) -> int:
        """The number of tokens of the whole prompt."""
        return self.kept + len(self.new_ids)

    @property
    def prompt_ids(self) -> array[int]:
        """The ids of the whole prompt, put together from the parents'."""
        pieces = [self.new_ids]
        wanted, turn = self.kept, self.parent
        while wanted and turn is not None:
            length = turn.prompt_length
            if wanted > length:
                pieces.append(turn.token_ids[: wanted - length])
                wanted = length
            if wanted > turn.kept:
                pieces.append(turn.new_ids[: wanted - turn.kept])
                wanted = turn.kept
            turn = turn.parent
        whole = array("i")
        for piece in reversed(pieces):
            whole.extend(piece)
        return whole

    def hold(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int] = (),
        logprobs: Sequence[float] | None = None,
        mask: Sequence[int] | None = None,
        *,
        after: Iterable[Turn] = (),
    ) -> None:
        """Take in the tokens that a model saw and sampled.

        Args:
            prompt_ids: the whole prompt.
            token_ids: what was sampled.
            logprobs: a log probability for each sampled token, kept as float32; None: unknown.
            mask: 1 where a trainer learns; None: on every sampled token.
            after: earlier turns; the one that covers most of the prompt becomes the parent, of equal ones
                the latest.

        Raises:
            BadArgument: for ids that are no 32-bit integers, or columns of different lengths.
        """
        whole = as_ids(prompt_ids)
        self.parent, self.kept = None, 0
        for turn in reversed(list(after)):
            if turn.prompt_length + len(turn.token_ids) > self.kept:  # else it cannot cover more
                kept = _covered(turn, whole)
                if kept > self.kept:
                    self.parent, self.kept = turn, kept
        self.new_ids = whole[self.kept :]
        self._sampled(token_ids, logprobs, mask)

    def extend(
        self,
        parent: Turn,
        new_ids: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[float] | None = None,
    ) -> None:
        """Take in tokens where it is known that the prompt is all of `parent`'s, then `new_ids`; see hold."""
        self.parent, self.kept = parent, parent.kept + len(parent.new_ids) + len(parent.token_ids)
        count = len(token_ids)
        if logprobs and len(logprobs) == count:  # as nearly always: written out, because turns are many
            try:
                self.new_ids, self.token_ids = array("i", new_ids), array("i", token_ids)
            except (TypeError, OverflowError):
                pass  # told below
            else:
                self.logprobs, self.mask = array("f", logprobs), all_ones(count)
                return
        self.new_ids = as_ids(new_ids)
        self._sampled(token_ids, logprobs, None)

    def _sampled(
        self, token_ids: Sequence[int], logprobs: Sequence[float] | None, mask: Sequence[int] | None
    ) -> None:
        self.token_ids = as_ids(token_ids)
        count = len(self.token_ids)
        told = 0 if logprobs is None else len(logprobs)
        self.logprobs = array("f", logprobs) if told and logprobs is not None else None
        self.mask = all_ones(count) if mask is None else bytes(mask)
        if len(self.mask) != count or (told and told != count):
            raise BadArgument(
                f"a turn of {count} token_ids has {told} logprobs and {len(self.mask)} mask entries; "
                "one of each per sampled token, or no logprobs at all."
            )


@lru_cache(maxsize=1024)
def all_ones(count: int) -> bytes:
    """Return the mask of `count` sampled tokens that are all learned on; turns of one length share it."""
    return b"\1" * count


def as_ids(ids: Sequence[int]) -> Ids:
    """Return token ids as 4 bytes each.

    Raises:
        BadArgument: for what is no 32-bit integer.
    """
    if type(ids) is array and ids.typecode == "i":
        return ids
    try:
        return array("i", ids) if len(ids) else ()
    except (TypeError, OverflowError) as error:
        raise BadArgument(f"token ids are {ids!r:.60} ({error}); accepted: 32-bit integers.") from error


def _covered(turn: Turn, prompt_ids: Ids) -> int:
    """Return how many leading ids of `prompt_ids` are those of a turn's prompt and answer."""
    before = turn.prompt_ids
    before.extend(turn.token_ids)
    return common_prefix(before, prompt_ids)


def common_prefix(one: Ids, other: Ids) -> int:
    """Return how many leading elements two sequences of the same type share."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low + 1 < high:  # the first `low` are equal, the first `high` are not
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


@dataclass(slots=True)
class Failure:
    """What broke: where (`env`, `agent`, `host`, `driver`), the error's class and its message."""

    boundary: str
    type: str
    message: str


@dataclass(slots=True)
class SeatEnd:
    """How an episode ended for one seat.

    `observation` and `info` are what it was shown last. `unearned` is what it was paid before its first
    turn: what a seat is paid later stands in the turn before.
    """

    stop: StopReason = StopReason.ERROR
    terminated: bool = False
    truncated: bool = False
    observation: Obs = ""
    info: dict[str, Any] = field(default_factory=dict)
    unearned: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """Who acted: the agent's name, its model, sampling settings, and a hash of its vocabulary."""

    agent: str = ""
    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: str | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """How the episodes of a run were played; written once per store, and referred to by `id`.

    `id` is random, so that no two runs share one; nothing that is played depends on it. `agent`, `model`,
    `sampling` and `vocabulary` are those of AgentInfo; `seats` has them by seat where several agents play.
    `versions`: of gem and Python.
    """

    id: str = field(default_factory=lambda: os.urandom(8).hex())
    agent: str = ""
    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: str | None = None
    limits: Limits = field(default_factory=Limits)
    history: HistoryPolicy | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    seats: Mapping[str, AgentInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an episode branched off: the id of another one, and how many of its turns it began with."""

    episode: str
    turns: int


@dataclass(slots=True)
class Episode:
    """One episode: a flat list of turns, each tagged with its seat, and how it ended.

    `task` makes the environment again and says the seed; `run` says how it was played. `job`, `sample` and
    `attempt` tell the episodes of a run apart: what was to be played, which of several samples of it, and how
    often it had been tried before because something broke. `salt` is what the noise of sampling came from,
    beside seed and sample. `group` names the task that several samples share.

    `starts` holds, by seat, what reset returned beside the observation of the seat's first turn, `ends` how
    the episode ended for the seat. Turns that were taken at the same time stand in the order of the seats.
    """

    task: TaskRef
    run: RunInfo = field(default_factory=RunInfo)
    job: str = ""
    sample: int = 0
    attempt: int = 0
    salt: int = 0
    group: str = ""
    turns: list[Turn] = field(default_factory=list)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: dict[str, SeatEnd] = field(default_factory=dict)
    stop: StopReason = StopReason.ERROR
    verdict: Verdict = Verdict.NONE
    error: Failure | None = None
    origin: Origin | None = None
    timing: dict[str, float] = field(default_factory=dict)
    schema: int = SCHEMA

    # -- views

    @property
    def id(self) -> str:
        """What tells this episode from every other, of other runs too."""
        return f"{self.run.id}-{self.job}-{self.sample}-{self.attempt}"

    @property
    def spec(self) -> str:
        """The environment's id."""
        return self.task.spec

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The environment's keywords."""
        return self.task.kwargs

    @property
    def seed(self) -> int:
        """The seed that starts the episode again."""
        return self.task.seed or 0

    @property
    def policy_version(self) -> int | None:
        """The least policy version among the turns; None where no turn has one."""
        versions = [turn.policy_version for turn in self.turns if turn.policy_version is not None]
        return min(versions, default=None)

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended, for every seat."""
        return bool(self.ends) and all(end.terminated for end in self.ends.values())

    @property
    def truncated(self) -> bool:
        """Whether something else ended the episode, for one seat at least."""
        return not self.terminated

    @property
    def several(self) -> bool:
        """Whether the environment has several seats."""
        return len(self.ends) > 1

    @property
    def initial_info(self) -> dict[str, Any]:
        """What reset returned beside the first observation; by seat where there are several."""
        return self.starts if len(self.starts) > 1 else next(iter(self.starts.values()), {})

    @property
    def final_info(self) -> dict[str, Any]:
        """What the last step returned; by seat where there are several."""
        if self.several:
            return {seat: end.info for seat, end in self.ends.items()}
        return next((end.info for end in self.ends.values()), {})

    @property
    def final_observation(self) -> Obs:
        """What the agent was shown last; empty where there are several seats, whose ends have their own."""
        return "" if self.several else next((end.observation for end in self.ends.values()), "")

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
        stop: StopReason | None = self.stop
        if seat is not None and self.several:
            stop = self.ends[seat].stop if seat in self.ends else None
        if not self.scored or stop in (None, StopReason.ENDED):
            return None
        return stop is StopReason.SOLVED

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats of the environment; where it never began, those that have a turn."""
        return tuple(self.ends or dict.fromkeys(turn.seat for turn in self.turns))

    def turns_of(self, seat: str = SEAT) -> list[Turn]:
        """Return the turns of one seat, in order."""
        return [turn for turn in self.turns if turn.seat == seat]

    def exchanges(self, seat: str = SEAT) -> list[Turn]:
        """Return a seat's turns as `gem.history.messages` reads them: with the info before each action."""
        turns = self.turns_of(seat)
        infos = (self.starts.get(seat, {}), *(turn.info for turn in turns))
        return [replace(turn, info=info) for turn, info in zip(turns, infos, strict=False)]

    def reward(self, seat: str | None = None) -> float:
        """Return the undiscounted sum of a seat's rewards; NaN without verdict.

        Without `seat`: the mean over the seats.
        """
        return self.earned(seat) if self.scored else math.nan

    def earned(self, seat: str | None = None) -> float:
        """Return what a seat was paid until now, or the mean over the seats; without verdict too."""
        if seat is None and self.ends:
            return _sum([self.earned(each) for each in self.ends]) / len(self.ends)
        seat = seat or SEAT
        unearned = self.ends[seat].unearned if seat in self.ends else 0.0
        return _sum([unearned, *(turn.reward or 0.0 for turn in self.turns if turn.seat == seat)])

    def transcript_hash(self) -> str:
        """Return a hash of all that was said, done and earned; timings and tokens do not enter."""
        import json  # here, because `import gem` is to be light

        digest = blake2b(digest_size=16)
        for turn in self.turns:
            line = (turn.seat, _plain(turn.observation), turn.action, _number(turn.reward))
            digest.update(json.dumps(line).encode())
        end = (self.stop.value, self.terminated, self.truncated, self.verdict.value)
        digest.update(json.dumps((*end, _plain(self.final_observation))).encode())
        for seat, last in self.ends.items() if self.several else ():
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


def _sum(rewards: Sequence[float]) -> float:
    try:
        return math.fsum(rewards)
    except (OverflowError, ValueError):  # beyond all numbers, or infinite both ways
        return float(sum(rewards))


def _number(reward: float | None) -> float | str | None:
    return repr(reward) if reward is not None and not math.isfinite(reward) else reward
