"""The one place that turns past turns into what the agent is shown.

`play()` applies `messages` to the raw turns of an episode; the observation wrapper applies the same
function for gym-style loops. Nobody else assembles prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gem.content import Message, Obs, join
from gem.errors import BadArgument

Kind = Literal["last", "concat", "concat_with_action", "chat"]
KINDS: tuple[Kind, ...] = ("last", "concat", "concat_with_action", "chat")


class Exchange(Protocol):
    """What history reads of a turn; `action` is None while the turn waits for one."""

    @property
    def observation(self) -> Obs:
        """What the environment said."""
        ...

    @property
    def action(self) -> str | None:
        """What the agent answered."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """What came with the observation.

        `prefix` and `suffix` are text around it while it is the latest; `tool_results` says how much of it
        each call of the turn before gave.
        """
        ...

    @property
    def reply(self) -> Message | None:
        """The answer with its native calls and its reasoning, where there are any."""
        ...


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """Which past turns an agent sees, and in what form.

    `kind`: ``last``: the latest observation alone; ``concat``: the observations, joined in one user
    message; ``concat_with_action``: likewise with the actions between them; ``chat``: user and
    assistant messages in turn.
    `window`: how many latest observations are kept (None: all).
    `keep_first`: a window also keeps the first observation, which states the rules.
    `system`: a system message in front.
    """

    kind: Kind = "chat"
    window: int | None = None
    keep_first: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no policy means."""
        if self.kind not in KINDS:
            raise BadArgument(f"history kind is {self.kind!r}; accepted: {', '.join(KINDS)}.")
        if self.window is not None and self.window < 1:
            raise BadArgument(f"history window is {self.window}; accepted: 1 or more turns, or None.")

    @property
    def append_only(self) -> bool:
        """Whether each prompt extends the previous one, so that held tokens stay valid."""
        return self.kind == "chat" and self.window is None


LAST = HistoryPolicy("last")
CHAT = HistoryPolicy("chat")


def messages(turns: Sequence[Exchange], policy: HistoryPolicy = CHAT) -> tuple[Message, ...]:
    """Return what the agent is shown before it acts in the last of `turns`.

    Raises:
        BadArgument: when there is no turn at all.
    """
    if not turns:
        raise BadArgument("history of no turns; the first turn holds the first observation.")
    shown = [len(turns) - 1] if policy.kind == "last" else _window(len(turns), policy)
    head = (Message("system", policy.system),) if policy.system else ()
    if policy.kind == "chat":
        chat: list[Message] = []
        for place, next_place in zip(shown, [*shown[1:], None], strict=True):
            before = turns[place - 1] if place - 1 in shown else None
            chat += _told(turns[place], before, latest=next_place is None)
            if next_place is not None:
                chat.append(_said(turns[place], native=next_place == place + 1))
        return (*head, *chat)
    pieces: list[Obs] = []
    for place in shown[:-1]:
        turn = turns[place]
        pieces.append(turn.observation)
        if policy.kind == "concat_with_action" and turn.action:
            pieces.append(turn.action)
    return (*head, Message("user", join([*pieces, _latest(turns[shown[-1]])])))


def extended(
    shown: tuple[Message, ...], turns: Sequence[Exchange], policy: HistoryPolicy
) -> tuple[tuple[Message, ...], bool]:
    """Return ``messages(turns, policy)``, and whether that is `shown`, an answer and a new observation.

    `shown` is what the agent was shown before it acted in the turn before the last; () before the first. A
    long episode then costs no more per turn than a short one. A prompt does not extend the last one where
    the policy rewrites the past, or where text stood around the last observation that is gone now.
    """
    if not shown or not policy.append_only:
        return messages(turns, policy), False
    last = turns[-2]
    tail = _said(last, native=True), *_told(turns[-1], last, latest=True)
    if shown[-1].role == "user":
        if shown[-1].content == last.observation:
            return shown + tail, True
        return (*shown[:-1], Message("user", last.observation), *tail), False
    results = _told(last, turns[-3], latest=False)
    before, latest = shown[: -len(results)], shown[-len(results) :]
    return (*before, *results, *tail), latest == results


def _window(count: int, policy: HistoryPolicy) -> Sequence[int]:
    """Return the places of the turns that are shown."""
    if policy.window is None or count <= policy.window:
        return range(count)
    kept = range(count - policy.window, count)
    return (0, *kept[1:]) if policy.keep_first and policy.window > 1 else kept


def _said(turn: Exchange, native: bool) -> Message:
    """Return an answer; as text where its calls cannot stand beside their results."""
    if turn.reply is None or (turn.reply.tool_calls and not native):
        return Message("assistant", turn.action or "")
    return turn.reply


def _told(turn: Exchange, before: Exchange | None, latest: bool) -> tuple[Message, ...]:
    """Return what the environment said: a message of the user, or one of the tool for each native call."""
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
    """Return what each of `count` calls gave.

    The observation begins with the results whose length `tool_results` tells. What follows them belongs to
    the first call whose result has none, or else to the last call.
    """
    obs, told = turn.observation, turn.info.get("tool_results")
    sizes = [_size(each) for each in told] if isinstance(told, list | tuple) else []
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
"""What stands for the result of a call where the environment gave one text for several."""


def _latest(turn: Exchange) -> Obs:
    prefix, suffix = turn.info.get("prefix"), turn.info.get("suffix")
    if not prefix and not suffix:
        return turn.observation
    return join([prefix or "", turn.observation, suffix or ""])
