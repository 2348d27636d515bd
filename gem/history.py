"""Build the messages that an agent sees from the past turns of an episode.

`play()` applies `messages` to the raw turns of an episode; the observation wrapper applies the same
function in gym-style loops. No other code assembles prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gem.content import Message, Obs, join
from gem.errors import BadArgument, check_argument

Kind = Literal["last", "concat", "concat_with_action", "chat"]
KINDS: tuple[Kind, ...] = ("last", "concat", "concat_with_action", "chat")


class Exchange(Protocol):
    """The fields of a turn that this module reads; `action` is None while the turn waits for one."""

    @property
    def observation(self) -> Obs:
        """The environment's observation."""

    @property
    def action(self) -> str | None:
        """The agent's answer."""

    @property
    def info(self) -> Mapping[str, Any]:
        """The info that came with the observation.

        `prefix` and `suffix` are put around the observation while it is the latest. `tool_results` has, for
        each call of the turn before, the length of its share of the observation.
        """

    @property
    def reply(self) -> Message | None:
        """The answer with its native calls and its reasoning; None where it has neither."""


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """The rule for which past turns an agent sees, and in what form.

    `kind`: ``last``: the latest observation alone; ``concat``: the observations, joined in one user
    message; ``concat_with_action``: the same with the actions between them; ``chat``: alternating user and
    assistant messages.
    `window`: the number of latest observations to keep (None: all).
    `keep_first`: a window also keeps the first observation, which states the rules: in place of its oldest,
    or beside a single one.
    `system`: a system message in front.
    """

    kind: Kind = "chat"
    window: int | None = None
    keep_first: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown kind, and a window below 1."""
        check_argument("history kind", self.kind, self.kind in KINDS, ", ".join(KINDS))
        check_argument(
            "history window", self.window, self.window is None or self.window >= 1, "1 or more turns, or None"
        )

    @property
    def append_only(self) -> bool:
        """Whether each prompt extends the previous one, so that held tokens stay valid."""
        return self.kind == "chat" and self.window is None


LAST = HistoryPolicy("last")
CHAT = HistoryPolicy("chat")


def messages(turns: Sequence[Exchange], policy: HistoryPolicy = CHAT) -> tuple[Message, ...]:
    """Return the messages that the agent sees before it acts in the last of `turns`.

    Raises:
        BadArgument: when there is no turn at all.
    """
    if not turns:
        raise BadArgument("history of no turns; the first turn holds the first observation.")
    places = [len(turns) - 1] if policy.kind == "last" else _window(len(turns), policy)
    head = (Message("system", policy.system),) if policy.system else ()
    if policy.kind == "chat":
        chat: list[Message] = []
        for place, next_place in zip(places, [*places[1:], None], strict=True):
            before = turns[place - 1] if place - 1 in places else None
            chat += _observation_messages(turns[place], before, latest=next_place is None)
            if next_place is not None:
                chat.append(_answer_message(turns[place], native=next_place == place + 1))
        return (*head, *chat)
    pieces: list[Obs] = []
    for place in places[:-1]:
        turn = turns[place]
        pieces.append(turn.observation)
        if policy.kind == "concat_with_action" and turn.action:
            pieces.append(turn.action)
    return (*head, Message("user", join([*pieces, _latest(turns[places[-1]])])))


def extend_messages(
    prompt: tuple[Message, ...], turns: Sequence[Exchange], policy: HistoryPolicy
) -> tuple[tuple[Message, ...], bool]:
    """Return ``messages(turns, policy)``, and whether they are `prompt` plus an answer and an observation.

    `prompt` has the messages that the agent saw in the turn before the last; () before the first turn. With
    it, a turn of a long episode costs no more than a turn of a short one. A prompt does not extend the last
    one where the policy rewrites the past, or where the last observation had a prefix or suffix.
    """
    if not prompt or not policy.append_only:
        return messages(turns, policy), False
    last = turns[-2]
    tail = _answer_message(last, native=True), *_observation_messages(turns[-1], last, latest=True)
    if prompt[-1].role == "user":
        if prompt[-1].content == last.observation:
            return prompt + tail, True
        return (*prompt[:-1], Message("user", last.observation), *tail), False
    results = _observation_messages(last, turns[-3], latest=False)
    before, latest = prompt[: -len(results)], prompt[-len(results) :]
    return (*before, *results, *tail), latest == results


def _window(count: int, policy: HistoryPolicy) -> Sequence[int]:
    """Return the indices of the turns that are shown."""
    if policy.window is None or count <= policy.window:
        return range(count)
    kept = range(count - policy.window, count)
    return (0, *kept[-max(1, policy.window - 1) :]) if policy.keep_first else kept


def _answer_message(turn: Exchange, native: bool) -> Message:
    """Return an answer as a message; as text where native calls cannot be shown with their results."""
    if turn.reply is None or (turn.reply.tool_calls and not native):
        return Message("assistant", turn.action or "")
    return turn.reply


def _observation_messages(turn: Exchange, before: Exchange | None, latest: bool) -> tuple[Message, ...]:
    """Return an observation as a user message, or as one tool message for each native call."""
    calls = before.reply.tool_calls if before is not None and before.reply is not None else ()
    if not calls:
        return (Message("user", _latest(turn) if latest else turn.observation),)
    pieces = _results(turn, len(calls))
    if latest:
        pieces[0] = join([turn.info.get("prefix") or "", pieces[0]])
        pieces[-1] = join([pieces[-1], turn.info.get("suffix") or ""])
    return tuple(
        Message("tool", piece, tool_call_id=call.id, name=call.name)
        for piece, call in zip(pieces, calls, strict=True)
    )


def _results(turn: Exchange, count: int) -> list[Obs]:
    """Return the result of each of `count` calls.

    The observation begins with the results whose length is in `tool_results`. The rest belongs to the first
    call whose result has no length there, or else to the last call.
    """
    obs, entries = turn.observation, turn.info.get("tool_results")
    sizes = [_size(each) for each in entries] if isinstance(entries, list | tuple) else []
    if len(sizes) != count:
        sizes = [None] * count
    pieces: list[Obs | None] = []
    at = 0
    for size in sizes:
        if size is None:
            pieces.append(None)
            continue
        pieces.append(obs[at : at + size])
        at += size
        if isinstance(obs, str) and at < len(obs):
            if obs[at] != "\n":
                at = -1
            at += 1
        if not 0 < at <= len(obs):  # a wrapper has rewritten the observation
            pieces, at = [None] * count, 0
            break
    rest = obs[at:]
    if None in pieces:
        first = pieces.index(None)
        pieces[first] = rest.lstrip("\n") if isinstance(rest, str) and at else rest  # a blank line parts them
        return [WITH_ANOTHER if piece is None else piece for piece in pieces]
    whole = [piece for piece in pieces if piece is not None]
    whole[-1] = join([whole[-1], rest])
    return whole


def _size(result: Any) -> int | None:
    size = result.get("shown") if isinstance(result, Mapping) else None
    return size if isinstance(size, int) and size >= 0 else None


WITH_ANOTHER = "(The result stands with another call of this turn.)"
"""Shown as the result of a call where the environment returned one text for several calls."""


def _latest(turn: Exchange) -> Obs:
    prefix, suffix = turn.info.get("prefix"), turn.info.get("suffix")
    if not prefix and not suffix:
        return turn.observation
    return join([prefix or "", turn.observation, suffix or ""])
