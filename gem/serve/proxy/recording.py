"""Record calls as the turns of one episode, and find which call each one continues. No I/O, clock or threads.

A call continues an earlier one if its prompt starts with that one's prompt and answer, token by token.
Anything else (a sub-agent, a rewritten history, a second answer to the same question) starts a new branch.
Branches never join. If the tokens are not known, messages are compared instead, and the episode cannot be
trained on.

If a program sends an answer back unchanged, it is not tokenised again: the model continues from the tokens
that it sampled (`Ask.held`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from gem import seeding
from gem.content import Image, Message, Text, join, size_of, written_tools
from gem.dialogue import warn_uncounted
from gem.record import (
    DISCARDED,
    SEAT,
    Ask,
    Attempts,
    Episode,
    Failure,
    Reply,
    SeatEnd,
    StopReason,
    Turn,
    Verdict,
    as_ids,
)
from gem.serve.proxy.request import OverBudget, Refused, Request, TooLong
from gem.tools import calls as written

CUT = "cut"
"""The key in a turn's `extra` for the number of characters from a stop text on, which the program lacks."""


@dataclass(slots=True)
class Call:
    """An answered call: its turn, the answer that the program got, and the call that it continues.

    `after` stands for the conversation up to and with the answer, `tokens` for its tokens, `length` of them.
    """

    turn: Turn
    answer: Message
    before: Call | None
    fresh: tuple[Message, ...]
    after: bytes
    length: int
    tokens: bytes

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, with the answer."""
        chain: list[Call] = []
        call: Call | None = self
        while call is not None:
            chain.append(call)
            call = call.before
        return tuple(each for call in reversed(chain) for each in (*call.fresh, call.answer))


@dataclass(frozen=True, slots=True)
class Begun:
    """A call in progress: the model's request, and the call that it continues."""

    key: bytes
    ask: Ask
    request: Request
    before: Call | None
    prefix: bytes
    """The key of the request's messages."""
    tools: list[Any]
    """The offered tools, as the record has them."""


@dataclass(slots=True)
class Recording:
    """The record of one episode in progress; its calls come in any order, also several at once."""

    episode: Episode
    answers: int = 0
    """The number of started calls."""
    calls: list[Call] = field(default_factory=list)
    sampled: int = 0
    spent: StopReason | None = None
    """The limit that was reached."""
    price: Callable[[Episode], str] | None = None
    """Says that the episode has cost what it may cost; returns '' before that."""
    room: int = 128 << 20
    """The bytes of messages that the record still takes."""
    _latest: dict[bytes, Call] = field(default_factory=dict)
    _by_tokens: dict[bytes, Call] = field(default_factory=dict)
    _lengths: Counter[int] = field(default_factory=Counter)
    _unheard: Counter[bytes] = field(default_factory=Counter)
    _failed: dict[bytes, str] = field(default_factory=dict)
    _discarded: dict[str, Counter[str]] = field(default_factory=dict)
    """Token counts of answers discarded before the first turn, by model; that takes them."""
    _stepped: int = 0
    _unearned: float = 0.0

    # -- calls

    def begin(
        self,
        key: bytes,
        request: Request,
        sampling: Mapping[str, Any] | None = None,
        salt: int = 0,
        attempts: Attempts | None = None,
    ) -> Begun:
        """Start a call, and return what to ask the model.

        Args:
            key: identifies the request: a repeated request has the same key.
            request: the request of the program.
            sampling: the sampling settings of the request that the model uses.
            salt: changes the seed of sampling.
            attempts: where the agent notes how the call fares.

        Raises:
            OverBudget: when the episode's turns, tokens or bytes are used up.
        """
        episode, limits = self.episode, self.episode.run.limits
        if limits.turns is not None and self.answers >= limits.turns:
            self.spent = self.spent or StopReason.TURN_LIMIT
            raise OverBudget(f"The {limits.turns} calls of this episode are used up.")
        left = None if limits.tokens is None else limits.tokens - self.sampled
        if left is not None and left < 1:
            self.spent = self.spent or StopReason.TOKEN_LIMIT
            raise OverBudget(f"The {limits.tokens} tokens of this episode are used up.")
        if self.price is not None and (why := self.price(episode)):
            self.spent = self.spent or StopReason.TOKEN_LIMIT
            raise OverBudget(why)
        bounds = [each for each in (left, limits.turn_tokens, request.max_tokens) if each is not None]
        tools = written_tools(request.tools)
        text = json.dumps(tools, sort_keys=True, default=repr)
        before, covered, prefix = self._match(request, text)
        fresh = sum(map(size_of, request.messages[covered:])) + len(json.dumps(sampling, default=repr))
        fresh += len(text) * self._are_new(tools)
        if fresh > self.room:
            self.spent = self.spent or StopReason.TOKEN_LIMIT
            raise OverBudget(
                "The messages, tools and settings of this episode are more than its record keeps."
            )
        self.room -= fresh
        known: tuple[int, ...] = ()
        if before is not None and before.length:
            known = (*before.turn.prompt_ids, *before.turn.token_ids)
        ask = Ask(
            episode.id,
            SEAT,
            self.answers,
            request.messages,
            known,
            len(request.messages) - covered,
            seeding.derive(salt, episode.seed or 0, episode.salt, episode.job, episode.sample, self.answers),
            min(bounds, default=None),
            limits.context,
            tools=request.tools,
            sampling=sampling or None,
            attempts=attempts,
        )
        self.answers += 1
        self._unheard[key] += 1
        return Begun(key, ask, request, before, prefix, tools)

    def take(self, begun: Begun, reply: Reply, took_s: float) -> Call:
        """Write a turn for an answer.

        Raises:
            TooLong: when the prompt fills the context, and nothing was sampled.
            BadArgument: for an answer with invalid tokens.
        """
        if reply.finish == "context":
            self.note_discarded({self.episode.run.model or "": reply.usage})
            raise TooLong(
                str(
                    reply.extra.get("error")
                    or "The prompt is longer than the model's maximum context length."
                )
            )
        request = begun.request
        answer, cut = _cut_answer(reply, request.stop)
        turn = Turn(SEAT, "", finish=reply.finish, policy_version=reply.policy_version)
        before = self._extend(turn, begun.before, reply)
        covered = 0 if before is None else len(before.messages)
        fresh = request.messages[covered:]
        turn.messages, turn.reply = fresh, answer
        turn.observation = join([message.content for message in fresh if message.role != "assistant"])
        turn.action = written.write(answer.text, answer.tool_calls)
        turn.timing = {"policy_s": took_s if reply.policy_s is None else reply.policy_s}
        turn.usage = dict(reply.usage) or (
            {"prompt_tokens": len(reply.prompt_ids), "completion_tokens": len(reply.token_ids)}
            if reply.token_ids
            else None
        )
        self._add_discarded(turn)
        turn.sampling = dict(begun.ask.sampling or {}) or None
        turn.extra = {**reply.extra, "asked": request.noted}
        if cut:
            turn.extra[CUT] = cut
        self._note_tools(turn, begun.tools)
        after = _extend_key(begun.prefix, answer)
        length = turn.prompt_length + len(turn.token_ids) if turn.token_ids else 0
        tokens = _digest(turn.prompt_ids.tobytes() + _raw(turn.token_ids)) if length else b""
        call = Call(turn, answer, before, fresh, after, length, tokens)
        self._latest[after] = call
        if length:
            self._by_tokens[tokens] = call
            self._lengths[length] += 1
        self.calls.append(call)
        self.episode.turns.append(turn)
        count = len(turn.token_ids) or (turn.usage or {}).get("completion_tokens", 0)
        self.sampled += count
        warn_uncounted(self.episode.run.limits, reply, count)
        return call

    def note_heard(self, begun: Begun) -> None:
        """Record that an answer reached the program; this clears earlier failures under the same key."""
        self._end(begun)
        self._failed.pop(begun.key, None)

    def note_refusal(self, begun: Begun) -> None:
        """Record that a call was refused because of its content, which is not a failure."""
        self._end(begun)

    def note_failure(self, begun: Begun, why: str, usage: Mapping[str, Mapping[str, int]] = {}) -> None:
        """Record that a call was not answered; unless the program repeats it, the episode is incomplete.

        `usage`: token counts of answers that were discarded, by model.
        """
        self._end(begun)
        self._failed[begun.key] = why
        self.note_discarded(usage)

    def note_discarded(self, usage: Mapping[str, Mapping[str, int]]) -> None:
        """Count the tokens of answers that no program gets, by model: they are paid for all the same."""
        for model, counts in usage.items():
            total = self._discarded.setdefault(model, Counter())
            for name, count in counts.items():
                total[DISCARDED + name.removeprefix(DISCARDED)] += count
        if self.calls:  # at once: the price of the episode is looked at before each call
            self._add_discarded(self.calls[-1].turn)

    def _add_discarded(self, turn: Turn) -> None:
        if self._discarded:
            total = Counter(turn.usage or {})
            for counts in self._discarded.values():
                total.update(counts)
            turn.usage = dict(total)
            self._discarded.clear()

    def _end(self, begun: Begun) -> None:
        self._unheard[begun.key] -= 1
        if not self._unheard[begun.key]:
            del self._unheard[begun.key]

    @property
    def missing(self) -> str:
        """Why the record is incomplete: calls whose answers reached nobody; empty if it is complete."""
        lost = sum(self._unheard.values())
        pieces = [f"{lost} answer{'s' * (lost != 1)} reached nobody"] * bool(lost)
        pieces += [f"a call was not answered: {why}" for why in list(self._failed.values())[:1]]
        return "; ".join(pieces)

    @property
    def untrainable(self) -> str:
        """Why the episode cannot be trained on so far; empty if it can."""
        if self.episode.error is not None:
            return self.episode.error.message
        if self.missing:
            return self.missing
        if not self.calls:
            return "no call was made"
        for number, call in enumerate(self.calls):
            if not call.length:
                return f"call {number} has no token ids: the record is text only"
            if call.turn.logprobs is None:
                return f"call {number} has no log probabilities"
        return ""

    def _match(self, request: Request, tools: str) -> tuple[Call | None, int, bytes]:
        """Return the call whose messages start the request, their number, and the key of all messages."""
        key = _digest(tools.encode())
        match: tuple[Call | None, int] = (None, 0)
        for covered, message in enumerate(request.messages, 1):
            key = _extend_key(key, message)
            call = self._latest.get(key)
            if call is not None:
                match = call, covered
        return (*match, key)

    def _extend(self, turn: Turn, before: Call | None, reply: Reply) -> Call | None:
        """Give a turn its tokens, and return the call that it goes on from."""
        prompt = as_ids(reply.prompt_ids)
        if not reply.token_ids or not len(prompt):
            if before is not None:
                turn.parent = before.turn
            return before
        covering = self._covering(prompt)
        logprobs = reply.logprobs
        if logprobs is not None and not all(map(math.isfinite, logprobs)):
            logprobs = None  # of a model that is broken: nothing could be learned from them
        if covering is None:
            turn.hold(prompt, reply.token_ids, logprobs)
        else:
            turn.extend(covering.turn, prompt[covering.length :], reply.token_ids, logprobs)
        return covering

    def _covering(self, prompt: Sequence[int]) -> Call | None:
        """Return the call whose prompt and answer are the longest prefix of `prompt`; on ties, the latest."""
        raw, hashed, longest = _raw(prompt), blake2b(digest_size=16), None
        done = 0
        for length in sorted(self._lengths):
            if length > len(prompt):
                break
            hashed.update(raw[4 * done : 4 * length])
            longest = self._by_tokens.get(hashed.digest(), longest)
            done = length
        return longest

    def _note_tools(self, turn: Turn, tools: list[Any]) -> None:
        """Store the offered tools once, and in a turn only if they differ from the first call's."""
        if not self.calls:
            self.episode.starts.setdefault(SEAT, {})["tools"] = tools
        elif self._are_new(tools):
            assert turn.extra is not None
            turn.extra["tools"] = tools

    def _are_new(self, tools: list[Any]) -> bool:
        """Return whether tools differ from those of the first call."""
        return not self.calls or tools != self.episode.starts[SEAT].get("tools")

    # -- rewards, and the end

    def reward(self, value: float) -> None:
        """Add a reward to the latest turn.

        Raises:
            Refused: for a value that is not a finite number.
        """
        value = _finite(value)
        _finite(self.episode.earned() + self._unearned + value)
        if self.calls:
            turn = self.calls[-1].turn
            turn.reward = (turn.reward or 0.0) + value
        else:
            self._unearned += value

    def add_step(self, played: Turn) -> None:
        """Add a step of the environment, which resulted from the calls since the last step.

        The latest of these calls gets its action and reward. If there were none, the previous turn gets the
        reward.
        """
        calls = self.calls[self._stepped :]
        self._stepped = len(self.calls)
        for call in calls[:-1]:
            call.turn.action, call.turn.reward = None, 0.0
        if calls:
            turn = calls[-1].turn
            turn.observation, turn.action = played.observation, played.action
            turn.reward, turn.rewards, turn.info = played.reward, played.rewards, played.info
            turn.timing |= {name: value for name, value in played.timing.items() if name != "policy_s"}
        elif self.calls:
            turn = self.calls[-1].turn
            turn.reward = (turn.reward or 0.0) + (played.reward or 0.0)
            turn.extra = turn.extra or {}
            turn.extra.setdefault("steps", []).append(played.action)
        else:
            self._unearned += played.reward or 0.0

    def finish(self, stop: StopReason, *, info: Mapping[str, Any] | None = None) -> Episode:
        """End the episode with a score and return its record; without a verdict if a call is missing.

        Args:
            stop: how it ended; overridden by a limit that was reached.
            info: the info of the end.
        """
        if not self.answers:  # a program that never came is no program that failed
            return self.cancel("no call was made.")
        stop = self.spent or stop
        own = stop in (StopReason.SOLVED, StopReason.FAILED, StopReason.ENDED)
        self._close(SeatEnd(stop, own, not own, info=dict(info or {}), unearned=self._unearned))
        return self._finish()

    def finish_played(self, played: Episode) -> Episode:
        """End the episode as the environment's record does; if that is not over, by a limit reached here."""
        for call in self.calls[self._stepped :]:  # behind the last step
            call.turn.action = None
        self._stepped = len(self.calls)
        (seat,) = played.ends or {SEAT: SeatEnd()}
        end, stop, verdict = played.ends.get(seat) or SeatEnd(), played.stop, played.verdict
        if self.spent and played.error is None and not (end.terminated or end.truncated):
            end = replace(end, stop=self.spent, truncated=True)
            stop, verdict = self.spent, Verdict.SCORED
        episode = self.episode
        episode.task, episode.error = played.task, played.error
        starts = {"env": played.starts.get(seat, {})} if played.starts.get(seat) else {}
        episode.starts[SEAT] = {**episode.starts.get(SEAT, {}), **starts}
        self._close(replace(end, unearned=end.unearned + self._unearned))
        episode.stop, episode.verdict = stop, verdict
        return self._finish() if episode.scored else episode

    def finish_program(self, end: SeatEnd) -> Episode:
        """End the episode of a program that has ended; answers that it no longer waited for are not missing.

        It is scored with any number of calls, unless the model failed and the call was not repeated, which
        the end of its time may have made impossible.
        """
        self._unheard.clear()
        self._close(replace(end, unearned=self._unearned))
        return self._finish()

    def cancel(self, why: str) -> Episode:
        """End the episode without a verdict, because it got no reward."""
        self._close(SeatEnd(StopReason.CANCELLED, False, True, unearned=self._unearned))
        self.episode.verdict = Verdict.NONE
        self.episode.error = self._failure("driver", "Cancelled", why)
        return self.episode

    def _failure(self, boundary: str, kind: str, why: str) -> Failure:
        return Failure(boundary, kind, why, {model: dict(c) for model, c in self._discarded.items()})

    def _close(self, end: SeatEnd) -> None:
        for call in self.calls:
            if call.turn.reward is None:
                call.turn.reward = 0.0
        self.episode.ends = {SEAT: end}
        self.episode.stop, self.episode.verdict = end.stop, Verdict.SCORED

    def _finish(self) -> Episode:
        if self.missing:
            self.episode.stop, self.episode.verdict = StopReason.ERROR, Verdict.NONE
            self.episode.ends[SEAT] = replace(
                self.episode.ends[SEAT], stop=StopReason.ERROR, terminated=False, truncated=True
            )
            self.episode.error = self._failure("agent", "LostCall", self.missing)
        return self.episode


def _raw(ids: Sequence[int]) -> bytes:
    """Return token ids as bytes."""
    array = as_ids(ids)
    return array.tobytes() if hasattr(array, "tobytes") else b""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _extend_key(before: bytes, message: Message) -> bytes:
    """Return the key of a conversation extended by one message.

    It ignores what programs change when they send an answer back: reasoning, and spaces in the JSON of
    arguments.
    """
    content = message.content
    if not isinstance(content, str):
        texts = [part.text for part in content if isinstance(part, Text)]
        content = join(texts) if len(texts) == len(content) else content
    parts: list[Any] = [message.role, message.tool_call_id or ""]
    if isinstance(content, str):
        parts.append(content)
    else:
        parts += [_digest(part.data).hex() if isinstance(part, Image) else [part.text] for part in content]
    parts.append([[call.id, call.name, _arguments(call.arguments)] for call in message.tool_calls])
    return _digest(before + json.dumps(parts).encode())


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _cut_answer(reply: Reply, stop: Sequence[str]) -> tuple[Message, int]:
    """Return an answer as the program sees it, up to a stop text, and the number of removed characters."""
    ends = [at for text in stop if (at := reply.text.find(text)) >= 0]
    text = reply.text[: min(ends)] if ends else reply.text
    message = Message("assistant", text, tool_calls=reply.tool_calls, reasoning=reply.reasoning)
    return message, len(reply.text) - len(text)


def _finite(value: Any) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # of a whole number
        pass
    raise Refused(f"reward comes to {value!r:.40}; accepted: a finite number.")
