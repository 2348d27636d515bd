"""The record types shared by all parts of gem: asks and replies, turns, episodes, groups.

`gem.rollout.episode` writes an episode; stores, trainers, reports and viewers read it. A turn stores only
what it adds: of its prompt, the ids that no earlier turn has. An episode refers to its environment (`task`)
and to its settings (`run`). `SCHEMA` changes whenever a stored field changes its meaning.
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

from gem.content import Image, Message, Obs, ToolCall, ToolSpec, tools_in
from gem.errors import BadArgument, NoVerdict, check_argument, text_of_error
from gem.history import HistoryPolicy
from gem.specs import TaskRef

SCHEMA = 2
"""Version number of the stored form of Episode."""

SEAT = "agent"
"""The seat of a single-agent episode."""

Ids: TypeAlias = "Sequence[int]"
"""Token ids: an ``array('i')``, 4 bytes each; () where there are none."""


class StopReason(StrEnum):
    """Why an episode ended. The first five come from the task, the next four are limits from outside."""

    SOLVED = "solved"  # the task was solved
    FAILED = "failed"  # the task ended without being solved
    UNREADABLE = "unreadable"  # an action that could not be parsed ended the task
    TURN_BUDGET = "turn_budget"  # the turns that the task states are used up
    ENDED = "ended"  # it ended without a reason, or several seats ended for different reasons
    TURN_LIMIT = "turn_limit"  # the driver's limit of turns (or a TimeLimit wrapper's)
    TOKEN_LIMIT = "token_limit"  # the driver's limit of generated tokens
    CONTEXT_LIMIT = "context_limit"  # the prompt no longer fits the model
    TIME_LIMIT = "time_limit"  # the seconds that the agent may take
    ERROR = "error"  # infrastructure failed: no verdict
    CANCELLED = "cancelled"  # it was stopped from outside: no verdict


class Verdict(StrEnum):
    """Whether an episode has a score. Without a verdict, its reward is unknown; it never counts as 0."""

    SCORED = "scored"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits from outside the task, enforced by `play()`; None means no limit.

    `turns`: steps per episode. `tokens`: generated tokens per episode. `turn_tokens`: generated tokens
    per turn. `context`: tokens of prompt and answer together. `policy_s`: the agent's seconds per episode,
    summed over its asks (`Reply.policy_s`). When they are used up, the episode ends without verdict, as a
    server may be the slow part. With `on_time` ``scored``, for agents whose speed is measured too, the
    episode is scored as it is. `call_s`: seconds for one call of the environment; after that the
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
        """Refuse negative limits, and an unknown `on_time`."""
        check_argument("limit on_time", self.on_time, self.on_time in ("none", "scored"), "'none', 'scored'")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name != "on_time" and value is not None and not value >= 0:
                raise BadArgument(
                    f"limit {limit.name} is {value}; accepted: 0 or more, or None for no limit."
                )


@dataclass(slots=True, eq=False)
class Attempts:
    """How an ask fares at an endpoint, for whoever waits for the answer; times are of `time.perf_counter`.

    `asked`: when it was asked. `until`: when the endpoint took its last request; None while it has none,
    as the ask waits for a place, or to be sent again. `why`: why its last request failed. `last`, set by
    who asks: a request that fails is not sent again.
    """

    asked: float
    until: float | None
    why: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to one agent for its next action.

    `episode`: id of the episode, the key of the agent's caches. `seat`: the seat that acts. `turn`: this
    seat's turn number, from 0. `messages`: all messages that the agent sees. `held`: the token ids of this
    seat's conversation so far (prompt and answer of its last turn), or () when nothing may be reused.
    `fresh`: the number of last messages that `held` does not cover. `seed`: a seed for this ask alone, so
    that sampling does not depend on the rest of the batch. `max_tokens`: limit on tokens of this answer.
    `context`: limit on tokens of prompt and answer together. `tools`: the tools that the model may call.
    `sampling`: settings of this ask that differ from the agent's own. `attempts`: where an agent with an
    endpoint notes how the ask fares.
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
    attempts: Attempts | None = field(default=None, compare=False, repr=False)


DISCARDED = "discarded_"
"""The start of the names of token counts, in `usage`, of answers that were discarded and asked for again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's answer.

    `prompt_ids`: every token the model saw; `token_ids`: the tokens it sampled; both () where the agent has
    no tokens. `logprobs`: the log probabilities of the sampled tokens under the sampling policy, same length;
    None where unknown. `finish`: ``stop``, ``length`` (cut by a token limit) or ``context`` (the prompt did
    not fit and nothing was sampled). `policy_version`: the version of the weights that sampled it.
    `tool_calls` and `reasoning`: the model's output beside its text. `usage`: token counts by name, from the
    server (``prompt_tokens``, ``completion_tokens``). `extra`: other data to store in the turn (routed
    experts, request ids). `policy_s`: the seconds that the agent took for this answer alone, without waiting
    for other answers; None: the driver measures.
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
    """The interface of agents. `gem.agents.BaseAgent` derives each of the two calls from the other."""

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order."""

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask."""

    def forget(self, episode: str) -> None:
        """Drop all data kept for `episode`; called once when it ends, for any reason."""


@dataclass(slots=True)
class Turn:
    """One action of one seat, its result, and the tokens it adds.

    `observation` is the observation before the action, `action` the text passed to step, `reward` the reward
    of the action and `rewards` its named parts. `reply` is the agent's answer where it is more than the
    action as plain text; `said` returns the answer in both cases.

    The prompt's ids are the first `kept` ids of the `parent`'s prompt and answer, then `new_ids`. A
    conversation with a rewritten past, a sub-agent or a parallel call has another parent, or a smaller
    `kept`. `token_ids`, `logprobs` (None: unknown) and `mask` have one entry per sampled token; `mask` is 1
    where a trainer learns. `policy_version` is the version of the weights that sampled them, `value` a
    critic's estimate before the action, `sampling` the settings that differ from the run's, `usage` the
    token counts by name.

    `info` is the environment's info after the action, `timing` seconds by name, `extra` the agent's data for
    consumers; a mapping without entries may be None. `messages` is set only where `gem.history.messages`
    cannot rebuild what the agent saw: then it has the messages after those of the parent and its answer.
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
        """The ids of the whole prompt, assembled from those of the parents."""
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
        """Store the tokens that a model saw and sampled.

        Args:
            prompt_ids: the ids of the whole prompt.
            token_ids: the sampled ids.
            logprobs: a log probability for each sampled token, kept as float32; None: unknown.
            mask: 1 where a trainer learns; None: on every sampled token.
            after: earlier turns; the one that covers most of the prompt becomes the parent (the latest, if
                several cover the same length).

        Raises:
            BadArgument: for ids that are not 32-bit integers, or sequences of different lengths.
        """
        whole = as_ids(prompt_ids)
        self.parent, self.kept = None, 0
        for turn in reversed(list(after)):
            if turn.prompt_length + len(turn.token_ids) > self.kept:  # else it cannot cover more
                kept = _count_shared(turn, whole)
                if kept > self.kept:
                    self.parent, self.kept = turn, kept
        self.new_ids = whole[self.kept :]
        self._store_sampled(token_ids, logprobs, mask)

    def extend(
        self,
        parent: Turn,
        new_ids: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[float] | None = None,
    ) -> None:
        """Store tokens when the prompt is known to be all ids of `parent`, then `new_ids`; see hold."""
        self.parent, self.kept = parent, parent.kept + len(parent.new_ids) + len(parent.token_ids)
        count = len(token_ids)
        if logprobs and len(logprobs) == count:  # as nearly always: written out, because turns are many
            try:
                self.new_ids, self.token_ids = array("i", new_ids), array("i", token_ids)
            except (TypeError, OverflowError):
                pass  # the error is below
            else:
                self.logprobs, self.mask = array("f", logprobs), all_ones(count)
                return
        self.new_ids = as_ids(new_ids)
        self._store_sampled(token_ids, logprobs, None)

    def _store_sampled(
        self, token_ids: Sequence[int], logprobs: Sequence[float] | None, mask: Sequence[int] | None
    ) -> None:
        self.token_ids = as_ids(token_ids)
        count = len(self.token_ids)
        known = 0 if logprobs is None else len(logprobs)
        self.logprobs = array("f", logprobs) if known and logprobs is not None else None
        self.mask = all_ones(count) if mask is None else bytes(mask)
        if len(self.mask) != count or (known and known != count):
            raise BadArgument(
                f"a turn of {count} token_ids has {known} logprobs and {len(self.mask)} mask entries; "
                "accepted: one of each per sampled token, or no logprobs at all."
            )


@lru_cache(maxsize=1024)
def all_ones(count: int) -> bytes:
    """Return a mask of `count` ones: a trainer learns on every token. Turns of equal length share it."""
    return b"\1" * count


def as_ids(ids: Sequence[int]) -> Ids:
    """Return token ids as an array of 4 bytes per id.

    Raises:
        BadArgument: for values that are not 32-bit integers.
    """
    if type(ids) is array and ids.typecode == "i":
        return ids
    try:
        return array("i", ids) if len(ids) else ()
    except (TypeError, OverflowError) as error:
        raise BadArgument(f"token ids are {ids!r:.60} ({error}); accepted: 32-bit integers.") from error


def _count_shared(turn: Turn, prompt_ids: Ids) -> int:
    """Return how many leading ids `prompt_ids` shares with a turn's prompt and answer."""
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
    """A failure: the part that broke (`env`, `agent`, `host`, `driver`), the error's class and message.

    `usage`: token counts of answers that a model gave and the agent discarded, by model and name.
    `no_verdict`: whether the class is a `gem.errors.NoVerdict`, so that a failure of `env` is worth another
    attempt; None: unknown, as in a line of an earlier version.
    """

    boundary: str
    type: str
    message: str
    usage: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)
    no_verdict: bool | None = field(default=None, repr=False)

    @classmethod
    def from_error(cls, boundary: str, error: Exception) -> Failure:
        """Return the failure that an error is, in this part."""
        no_verdict = isinstance(error, NoVerdict)
        usage = dict(error.usage) if isinstance(error, NoVerdict) else {}
        return cls(boundary, type(error).__name__, text_of_error(error), usage, no_verdict)


@dataclass(slots=True)
class SeatEnd:
    """The end of an episode for one seat.

    `observation` and `info` are the last ones it saw. `unearned` is the reward it got before its first turn;
    later rewards are in the turn before them.
    """

    stop: StopReason = StopReason.ERROR
    terminated: bool = False
    truncated: bool = False
    observation: Obs = ""
    info: dict[str, Any] = field(default_factory=dict)
    unearned: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent's name, its model, sampling settings, a hash of its vocabulary, and its endpoint's address."""

    agent: str = ""
    model: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: str | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The settings of a run's episodes; stored once per store, and referred to by `id`.

    `id` is random, so that no two runs share one; no episode depends on it. `agent`, `model`, `sampling`,
    `vocabulary` and `address` are those of AgentInfo; `seats` has them by seat where several agents play.
    `versions` has the versions of gem and Python.
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
    address: str = ""

    @property
    def settings(self) -> RunInfo:
        """The settings alone, without id and versions, and without addresses: a server may move."""
        seats = {seat: replace(info, address="") for seat, info in self.seats.items()}
        return replace(self, id="", versions={}, address="", seats=seats)

    @property
    def addresses(self) -> str:
        """The addresses of its models' endpoints, without their secrets; empty if they have none."""
        each = dict.fromkeys((self.address, *(info.address for info in self.seats.values())))
        return " and ".join(filter(None, each))


@dataclass(frozen=True, slots=True)
class Origin:
    """The start of a branched episode: the id of its source, and the number of turns copied from there."""

    episode: str
    turns: int


@dataclass(slots=True)
class Episode:
    """One episode: a flat list of turns, each with its seat, and how it ended.

    `task` has the seed and all that is needed to make the environment again; `run` has the settings. Three
    fields identify an episode within a run: `job` is the work item, `sample` the number among several samples
    of it, and `attempt` the number of earlier tries that broke. Sampling is seeded from the seed, `sample`
    and `salt`. `group` is the name that all samples of one task share.

    `starts` has the info of reset by seat, `ends` the end of the episode by seat. Simultaneous turns are in
    the order of the seats.
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
        """The id of the episode; no other episode has it, of this or another run."""
        return f"{self.run.id}-{self.job}-{self.sample}-{self.attempt}"

    @property
    def spec(self) -> str:
        """The environment's id."""
        return self.task.spec

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments of the environment."""
        return self.task.kwargs

    @property
    def seed(self) -> int:
        """The seed that starts the episode again."""
        return self.task.seed or 0

    @property
    def policy_version(self) -> int | None:
        """The lowest policy version among the turns; None where no turn has one."""
        versions = [turn.policy_version for turn in self.turns if turn.policy_version is not None]
        return min(versions, default=None)

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended, for every seat."""
        return bool(self.ends) and all(end.terminated for end in self.ends.values())

    @property
    def truncated(self) -> bool:
        """Whether something other than the task ended the episode, for at least one seat."""
        return not self.terminated

    @property
    def several(self) -> bool:
        """Whether the environment has several seats."""
        return len(self.ends) > 1

    @property
    def initial_info(self) -> dict[str, Any]:
        """The info that reset returned; by seat where there are several."""
        return self.starts if len(self.starts) > 1 else next(iter(self.starts.values()), {})

    @property
    def task_id(self) -> str:
        """The id of a row of data, or the name of another task, as reset's info has it; empty without one."""
        given = next(iter(self.starts.values()), {}).get("task", "")
        return str(given) if isinstance(given, str | int) else ""

    @property
    def final_info(self) -> dict[str, Any]:
        """The info that the last step returned; by seat where there are several."""
        if self.several:
            return {seat: end.info for seat, end in self.ends.items()}
        return next((end.info for end in self.ends.values()), {})

    @property
    def final_observation(self) -> Obs:
        """The last observation; empty where there are several seats, see `ends` for theirs."""
        return "" if self.several else next((end.observation for end in self.ends.values()), "")

    @property
    def scored(self) -> bool:
        """Whether the episode counts in training and evaluation."""
        return self.verdict is Verdict.SCORED

    @property
    def bootstrap(self) -> bool:
        """Whether to add a value estimate for the missing rest: the episode is truncated and scored."""
        return self.truncated and self.scored

    @property
    def success(self) -> bool | None:
        """Whether the task was solved; None without verdict, or where the environment did not report it."""
        return self.succeeded()

    def succeeded(self, seat: str | None = None) -> bool | None:
        """Return whether the task of a seat (default: of the episode) was solved; None where unknown."""
        stop = self.stop_of(seat)
        return None if not self.scored or stop is StopReason.ENDED else stop is StopReason.SOLVED

    def stop_of(self, seat: str | None = None) -> StopReason:
        """Return how a seat (default: the episode) ended; ``ended`` for a seat that it does not have."""
        if seat is None or not self.several:
            return self.stop
        return self.ends[seat].stop if seat in self.ends else StopReason.ENDED

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats of the environment; if it never started, the seats that have a turn."""
        return tuple(self.ends or dict.fromkeys(turn.seat for turn in self.turns))

    def _find_seat(self, seat: str) -> str:
        """Return the name of a seat; SEAT is the only one, whatever its name."""
        return next(iter(self.ends)) if seat == SEAT and len(self.ends) == 1 else seat

    def turns_of(self, seat: str = SEAT) -> list[Turn]:
        """Return the turns of one seat, in order; by default those of the only one, whatever its name."""
        seat = self._find_seat(seat)
        return [turn for turn in self.turns if turn.seat == seat]

    def exchanges(self, seat: str = SEAT) -> list[Turn]:
        """Return a seat's turns with the info before each action, as `gem.history.messages` needs them."""
        turns = self.turns_of(seat)
        infos = (self.starts.get(self._find_seat(seat), {}), *(turn.info for turn in turns))
        return [replace(turn, info=info) for turn, info in zip(turns, infos, strict=False)]

    def tools(self, seat: str = SEAT) -> tuple[ToolSpec, ...]:
        """Return the tools that a seat was offered at last."""
        infos = (self.starts.get(self._find_seat(seat), {}), *(turn.info for turn in self.turns_of(seat)))
        return next(filter(None, map(tools_in, reversed(infos))), ())

    def reward(self, seat: str | None = None) -> float:
        """Return the undiscounted sum of a seat's rewards; NaN without verdict.

        Without `seat`: the mean over the seats.

        Raises:
            BadArgument: for a seat that an episode does not have.
        """
        return self.earned(seat) if self.scored else math.nan

    def earned(self, seat: str | None = None) -> float:
        """Return the sum of a seat's rewards so far, or the mean over the seats, even without verdict."""
        if seat is None and self.ends:
            return _sum([self.earned(each) for each in self.ends]) / len(self.ends)
        seat = self._find_seat(seat or SEAT)
        if self.ends and seat not in self.ends:
            raise BadArgument(f"the episode has no seat {seat!r}; its seats are: {', '.join(self.ends)}.")
        unearned = self.ends[seat].unearned if seat in self.ends else 0.0
        return _sum([unearned, *(turn.reward or 0.0 for turn in self.turns if turn.seat == seat)])

    def transcript_hash(self) -> str:
        """Return a hash of observations, actions and rewards; timings and tokens are not part of it."""
        import json  # here, because `import gem` is to be light

        digest = blake2b(digest_size=16)
        for turn in self.turns:
            line = (turn.seat, _plain(turn.observation), turn.action, _number(turn.reward))
            digest.update(json.dumps(line).encode())
        end = (self.stop.value, self.terminated, self.truncated, self.verdict.value)
        digest.update(json.dumps((*end, _plain(self.final_observation))).encode())
        for seat, last in self.ends.items() if self.several else ():
            end_line = (seat, last.stop.value, last.terminated, last.truncated, _plain(last.observation))
            digest.update(json.dumps((*end_line, _number(last.unearned))).encode())
        return digest.hexdigest()


@dataclass(slots=True)
class EpisodeGroup:
    """Episodes of one task from one start state: the unit of GRPO."""

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
