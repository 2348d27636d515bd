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
        """May hold `prefix` and `suffix`: text around this observation while it is the latest."""
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
    shown = turns[-1:] if policy.kind == "last" else _window(turns, policy)
    head = (Message("system", policy.system),) if policy.system else ()
    if policy.kind == "chat":
        chat: list[Message] = []
        for turn in shown[:-1]:
            chat.append(Message("user", turn.observation))
            chat.append(Message("assistant", turn.action or ""))
        return (*head, *chat, Message("user", _latest(shown[-1])))
    pieces: list[Obs] = []
    for turn in shown[:-1]:
        pieces.append(turn.observation)
        if policy.kind == "concat_with_action" and turn.action:
            pieces.append(turn.action)
    return (*head, Message("user", join([*pieces, _latest(shown[-1])])))


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
    tail = Message("assistant", last.action or ""), Message("user", _latest(turns[-1]))
    if shown[-1].content == last.observation:
        return shown + tail, True
    return (*shown[:-1], Message("user", last.observation), *tail), False


def _window(turns: Sequence[Exchange], policy: HistoryPolicy) -> Sequence[Exchange]:
    if policy.window is None or len(turns) <= policy.window:
        return turns
    kept = turns[-policy.window :]
    return [turns[0], *kept[1:]] if policy.keep_first and policy.window > 1 else kept


def _latest(turn: Exchange) -> Obs:
    prefix, suffix = turn.info.get("prefix"), turn.info.get("suffix")
    if not prefix and not suffix:
        return turn.observation
    return join([prefix or "", turn.observation, suffix or ""])
