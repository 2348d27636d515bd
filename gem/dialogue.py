"""Dialogue: one seat's turns in an episode, the messages it sees next, and the tokens of its conversation.

`gem.rollout.episode` keeps one Dialogue per seat. The wrapper that plays the other seats of a game keeps one
for each of those. Both build an Ask from observations, and a Turn from a Reply, in the same way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from gem import seeding
from gem.content import Message, Obs, ToolCall, ToolSpec, text_of, tools_in
from gem.errors import BadArgument, ContractBroken
from gem.history import CHAT, HistoryPolicy, extend_messages
from gem.record import Ask, Limits, Reply, Turn


@dataclass(slots=True)
class _Exchange:
    """An observation, its info, and the answer: the fields that `gem.history` reads."""

    observation: Obs
    info: dict[str, Any]
    action: str | None = None
    reply: Message | None = None


class Dialogue:
    """All observations and answers of one seat, from its first turn on."""

    __slots__ = (
        "_exchanges",
        "_fresh",
        "_messages",
        "_seed_of",
        "_tokens",
        "episode",
        "policy",
        "seat",
        "tools",
        "turns",
    )

    def __init__(
        self,
        seat: str,
        episode: str,
        seed: int,
        sample: int = 0,
        policy: HistoryPolicy = CHAT,
        salt: int = 0,
        tools: tuple[ToolSpec, ...] = (),
    ) -> None:
        """Begin a dialogue.

        Args:
            seat: the seat that acts.
            episode: the id of the episode; agents use it as the key of their caches.
            seed: the seed of the episode.
            sample: the number of this sample among those of one seed; each samples with other seeds.
            policy: which past turns are shown.
            salt: another salt gives other sampling seeds for the same seed and sample.
            tools: the tools that the agent may call.
        """
        self.seat, self.episode, self.policy, self.tools = seat, episode, policy, tools
        salted = ("salt", salt) if salt else ()
        self._seed_of = seeding.children(seed, "sample", sample, *salted, seat)
        self.turns: list[Turn] = []
        self._exchanges: list[_Exchange] = []
        self._messages: tuple[Message, ...] = ()
        self._fresh = 0
        self._tokens: tuple[int, ...] = ()

    def open(self, obs: Obs, info: dict[str, Any]) -> Turn:
        """Begin a turn; the prefix and suffix in `info` are put around the observation.

        Its `tools` are offered from now on, and the prompt is rendered anew.
        """
        if self.turns:
            past, last = self._exchanges[-1], self.turns[-1]
            past.action, past.reply = last.action, last.reply
            if (tools := tools_in(info)) and tools != self.tools:
                self.tools, self._tokens = tools, ()
        self._exchanges.append(_Exchange(obs, info))
        turn = Turn(self.seat, obs, info=info)
        self.turns.append(turn)
        return turn

    def ask(
        self, max_tokens: int | None = None, context: int | None = None, policy_s: float | None = None
    ) -> Ask:
        """Return the Ask of the open turn; for the limits see Ask."""
        self._show()
        known_ids, number = self._tokens, len(self.turns) - 1
        return Ask(
            self.episode,
            self.seat,
            number,
            self._messages,
            known_ids,
            self._fresh if known_ids else len(self._messages),
            self._seed_of(number),
            max_tokens,
            context,
            tools=self.tools,
            policy_s=policy_s,
        )

    def answer(self, reply: Reply) -> int:
        """Enter a reply into the open turn, and return the number of generated tokens.

        The caller sets the turn's action.

        Raises:
            BadArgument: when it is not a Reply, or its tokens and log probabilities do not match.
        """
        _check(reply)
        turn, known_ids = self.turns[-1], self._tokens
        prompt, sampled, logprobs = reply.prompt_ids, reply.token_ids, reply.logprobs
        if not type(prompt) is type(sampled) is type(logprobs) is tuple:
            prompt, sampled = _column(prompt), _column(sampled)
            logprobs = None if logprobs is None else _column(logprobs)
        if logprobs and not math.isfinite(sum(logprobs)):
            raise BadArgument("the agent's reply has logprobs that are not finite; accepted: finite numbers.")
        if prompt or sampled:
            known = len(known_ids)
            if known and prompt[:known] == known_ids:
                turn.extend(self.turns[-2], prompt[known:], sampled, logprobs)
            else:
                turn.hold(prompt, sampled, logprobs, after=self.turns[-2:-1])
            self._tokens = prompt + sampled
        elif known_ids:
            self._tokens = ()
        if reply.tool_calls or reply.reasoning is not None:
            turn.reply = Message(
                "assistant", reply.text, tool_calls=reply.tool_calls, reasoning=reply.reasoning
            )
        turn.finish, turn.policy_version = reply.finish, reply.policy_version
        if reply.usage:
            turn.usage = dict(reply.usage)
        if reply.extra:
            turn.extra = dict(reply.extra)
        return _count_tokens(reply)

    def recall(self, turn: Turn) -> int:
        """Enter the answer of a recorded turn into the open turn, and return its number of tokens.

        Its tokens are masked: a trainer does not learn on them.

        Raises:
            ContractBroken: when the environment shows another observation than the recorded one.
        """
        now = self.turns[-1]
        if now.observation != turn.observation:
            raise ContractBroken(
                f"turn {len(self.turns) - 1} of seat {self.seat!r} was shown "
                f"{text_of(turn.observation)!r:.80} when it was recorded, and "
                f"{text_of(now.observation)!r:.80} now; only an environment that its seed determines can "
                "be replayed."
            )
        self._show()
        now.reply, now.finish, now.policy_version = (
            turn.reply,
            turn.finish,
            turn.policy_version,
        )
        now.value, now.sampling = turn.value, turn.sampling
        now.usage, now.extra = turn.usage, turn.extra
        prompt = turn.prompt_ids
        if prompt or turn.token_ids:
            nothing = (0,) * len(turn.token_ids)
            now.hold(prompt, turn.token_ids, turn.logprobs, nothing, after=self.turns[-2:-1])
        self._tokens = (*prompt, *turn.token_ids)
        return _count_tokens(turn)

    def _show(self) -> None:
        """Build the messages that the agent sees; tokens are held only where they extend the last prompt."""
        before = len(self._messages)
        self._messages, extends = extend_messages(self._messages, self._exchanges, self.policy)
        self._fresh = len(self._messages) - before - 1
        if not extends:
            self._tokens = ()


def _count_tokens(answer: Reply | Turn) -> int:
    """Return the number of tokens of an answer; the server's count where it has no token ids."""
    return len(answer.token_ids) or (answer.usage or {}).get("completion_tokens", 0)


def warn_uncounted(limits: Limits, reply: Reply, count: int) -> None:
    """Warn that a limit on tokens ends no episode, where a model's answer has no count."""
    if limits.tokens is not None and not count and (reply.text or reply.tool_calls or reply.reasoning):
        warnings.warn(
            f"the limit of {limits.tokens} tokens (--tokens-per-episode) ends no episode, as the server does "
            "not count the tokens of its answers; limit the turns (--turns).",
            stacklevel=2,
        )


def _column(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return token ids or log probabilities as plain numbers; arrays and tensors are taken too."""
    if type(values) is tuple:
        return values
    return tuple(values.tolist() if hasattr(values, "tolist") else values)


def _check(reply: Reply) -> None:
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise BadArgument(f"the agent answered {reply!r:.80}; an answer is a Reply whose text is a str.")
    version = reply.policy_version
    took: Any = reply.policy_s
    plain = type(reply.finish) is str and (version is None or type(version) is int)
    plain = plain and (took is None or (type(took) is float and 0.0 <= took < math.inf))
    if plain and reply.reasoning is None and not reply.tool_calls and not reply.usage:
        return  # as nearly always, and in no time
    for name, fits in (  # else the record could not be stored
        ("finish", isinstance(reply.finish, str)),
        ("reasoning", reply.reasoning is None or isinstance(reply.reasoning, str)),
        ("policy_version", version is None or isinstance(version, Integral)),
        ("tool_calls", all(map(_is_call, reply.tool_calls or ()))),
        ("usage", not reply.usage or isinstance(dict(reply.usage).get("completion_tokens", 0), int)),
        ("policy_s", took is None or (isinstance(took, float | int) and 0 <= took < math.inf)),
    ):
        if not fits:
            raise BadArgument(
                f"the agent's reply has {name}={getattr(reply, name)!r:.80}; see gem.record.Reply."
            )


def _is_call(call: object) -> bool:
    return isinstance(call, ToolCall) and all(
        isinstance(text, str) for text in (call.id, call.name, call.arguments)
    )
