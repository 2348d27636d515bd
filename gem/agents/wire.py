"""Shared parts of the wire formats: request settings, messages, and safe reading of responses."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol

from gem.agents.outcomes import EXCERPT, Said, complaint, written_call
from gem.content import Image, Message, Obs, Text, ToolCall, join, text_of
from gem.record import Ask
from gem.tools import calls as written


class Form(IntEnum):
    """The forms in which a conversation can be sent; if a server refuses one, the next is tried.

    A model must not be able to end its episodes without verdict by writing text that its server refuses to
    read again. So a refused conversation is sent again: first with `EMPTY` where there is no text, then
    without anything that a server may refuse: calls as text, no control characters, no lone surrogates,
    nothing that looks like a model's special tokens.
    """

    AS_IT_IS = 0
    FILLED = 1
    PLAIN = 2


@dataclass(slots=True)
class Settings:
    """The settings of requests; a refusal by the server changes them for all later requests.

    `limit_field`: the name of the field for the token limit. `left_out`: fields that are not sent.
    `send_reasoning`: the message field for reasoning; empty: none is sent. `form`: the form in which
    conversations are sent first.
    """

    model: str
    temperature: float | None
    max_tokens: int | None
    limit_field: str
    tools: bool
    stream: bool
    send_reasoning: str
    token_ids: bool
    extra: Mapping[str, Any]
    left_out: set[str] = field(default_factory=set)
    form: Form = Form.AS_IT_IS

    def limit(self, ask: Ask) -> int | None:
        """Return the token limit of an answer."""
        given = (ask.sampling or {}).get("max_tokens", self.max_tokens)
        return min((limit for limit in (given, ask.max_tokens) if limit is not None), default=None)

    def complete(self, request: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """Return the request with the fields of user and ask, without fields that the server refuses."""
        kept = {key: value for key, value in request.items() if key not in self.left_out}
        unfit = () if "tools" in request else OF_TOOLS
        extra = {key: value for key, value in self.extra.items() if key not in unfit}
        own = {key: value for key, value in (ask.sampling or {}).items() if key != "max_tokens"}
        return kept | extra | own


class Collector(Protocol):
    """The interface that assembles a response from the events of a stream."""

    ended: bool
    """Whether the answer's end was seen."""

    closed: bool
    """Whether the stream is complete."""

    def take(self, event: Any) -> None:
        """Add the data of an event."""

    def body(self) -> Any:
        """Return the response in the form that it has without streaming."""


class Chunks:
    """A collector of chunks with choices, of which it keeps the first choice's.

    A chunk of another answer is an error: two ids, of which one came more than once. Some servers give every
    chunk an id of its own.
    """

    def __init__(self) -> None:
        """Begin without chunks."""
        self.ended = self.closed = False
        self._body: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._lists: dict[str, list[Any]] = {}
        self._ids: set[str] = set()
        self._chunks = 0  # that have an id
        self._unnumbered = False  # a chunk had text, and not its tokens

    def take(self, event: Any) -> None:
        """See Collector.take."""
        chunk = as_object(event)
        if error_of(chunk):
            self._body, self._choice, self.ended, self.closed = chunk, {}, True, True
            return
        for key in ("id", "model", "system_fingerprint", "usage"):
            if chunk.get(key):
                self._body[key] = chunk[key]
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise NoResponse("choices of another type")
        own = chunk.get("id")
        if choices and own and isinstance(own, str):  # chunks with notes of a filter have an empty one
            self._ids.add(own)
            self._chunks += 1
            if 1 < len(self._ids) < self._chunks:
                raise NoResponse("chunks of several answers in one stream")
        self.take_whole(chunk)
        for choice in map(as_object, choices):
            if choice.get("index") in (0, None):
                self.take_choice(choice)
                if choice.get("finish_reason") is not None:
                    self._choice["finish_reason"] = choice["finish_reason"]
                    self.ended = True

    def _extend(self, name: str, values: Any) -> None:
        if isinstance(values, list):
            self._lists.setdefault(name, []).extend(values)

    def _keep_prompt(self, values: Any) -> None:
        """Keep the tokens of the prompt, which some servers repeat in each chunk."""
        if isinstance(values, list):
            self._lists.setdefault("prompt_token_ids", values)

    def _find_token_ids(self) -> list[Any] | None:
        """Return the tokens of the answer; None where a part of them may be missing."""
        ids, usage = self._lists.get("token_ids"), self._body.get("usage")
        counted = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
        return None if ids is None or (self._unnumbered and len(ids) != counted) else ids

    def take_whole(self, chunk: Mapping[str, Any]) -> None:
        """Take what stands in the chunk beside its choices; by default nothing."""

    def take_choice(self, choice: Mapping[str, Any]) -> None:
        """Take a piece of the first choice, and make `_choice` not empty."""
        raise NotImplementedError


def join_pieces(pieces: Iterable[str]) -> str:
    """Return a text that came in pieces; one may end within a character of two UTF-16 units."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


class WireFormat(Protocol):
    """The interface of a protocol: it writes requests and reads responses."""

    path: str
    """The path after the base address."""

    name: str
    """The name of its responses in errors."""

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """Return the request for an ask, its answer no longer than `limit` tokens."""

    def read(self, data: Any, ask: Ask) -> Said:
        """Read a response.

        Raises:
            LookupError, TypeError, ValueError: for data that is not a response of the protocol.
        """

    def collector(self) -> Collector:
        """Return a new collector for a stream."""


# -- requests


OF_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Fields that servers refuse where no tools are sent, as in a plain question."""
SEEDS = 2**31
"""The number of seeds that are sent: some servers take 32 bits with a sign."""
NO_NAME = "unknown"
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def sent_name(name: str) -> str:
    """Return a called tool's name in a form that servers accept; a model may write any name."""
    return _NOT_OF_A_NAME.sub("_", name)[:64] or NO_NAME


def sent_arguments(arguments: str) -> str:
    """Return a call's arguments in a form that servers accept.

    Some servers parse them and refuse the conversation on an error; then the model could end its episodes
    without verdict. Arguments that are not a JSON object are sent inside one.
    """
    try:
        if isinstance(_strict(arguments or "{}"), dict):
            return arguments or "{}"
    except (ValueError, RecursionError):
        pass
    return json.dumps({"unreadable": arguments})


def _strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"JSON has no {word}")

    return json.loads(text, parse_constant=refuse)


def data_url(image: Image) -> str:
    """Return an image as a data URL."""
    return f"data:{image.mime};base64,{base64.b64encode(image.data).decode('ascii')}"


def adapt_messages(messages: Sequence[Message], native: bool) -> Iterator[Message]:
    """Yield the messages in the form in which they are sent.

    The protocols accept only text as a tool's result. Its images follow in a user message after the results,
    each with the name of its call. Where calls are not `native`, calls and their results are text.
    """
    behind: list[Obs] = []  # content of the next user message
    for message in messages:
        if message.role != "tool" and behind:
            yield Message("user", join(behind))
            behind = []
        if message.role == "tool" and not native:
            behind.append(message.content)
        elif message.role == "tool" and not isinstance(message.content, str):
            name = f"Pictures of the result of {message.name or 'the call'} ({message.tool_call_id}):"
            behind += [name, tuple(part for part in message.content if isinstance(part, Image))]
            yield Message("tool", text_of(message.content), tool_call_id=message.tool_call_id)
        elif message.tool_calls and not native:
            text = written.write(message.text, message.tool_calls)
            yield Message("assistant", text, reasoning=message.reasoning)
        else:
            yield message
    if behind:
        yield Message("user", join(behind))


EMPTY = "(empty)"
"""Sent in place of an empty text, if a server refuses a message without text."""


def retold(messages: tuple[Message, ...], form: Form) -> tuple[Message, ...]:
    """Return a conversation in another form."""
    if form is Form.AS_IT_IS:
        return messages
    if form is Form.PLAIN:
        messages = tuple(
            replace(each, content=_harmless(each.content)) for each in adapt_messages(messages, False)
        )
    return tuple(_fill_empty(each) for each in messages)


def _fill_empty(message: Message) -> Message:
    if message.tool_calls or (not isinstance(message.content, str) and message.content):
        return message
    return message if message.text.strip() else replace(message, content=EMPTY)


def _harmless(content: Obs) -> Obs:
    if isinstance(content, str):
        return _SPECIAL.sub("< ", _ODD.sub("\ufffd", content))
    parts = (Text(str(_harmless(part.text))) if isinstance(part, Text) else part for part in content)
    return tuple(parts)


_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_SPECIAL = re.compile(r"<(?=\||/?(?:s|bos|eos|pad|unk|image|img|video|audio|start_of_image)>)", re.IGNORECASE)


def own_share(messages: Sequence[Message]) -> float:
    """Return the share of a conversation that the model wrote, from 0 to 1, in characters and bytes."""
    own = other = 0
    for message in messages:
        content = message.content
        parts: Sequence[Any] = (Text(content),) if isinstance(content, str) else content
        size = sum(len(part.text) if isinstance(part, Text) else len(part.data) for part in parts)
        size += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        if message.role == "assistant":
            own += size
        else:
            other += size
    return own / (own + other) if own else 0.0


# -- responses


class NoResponse(ValueError):
    """Raised when a server's data is not a response of the protocol."""


def as_object(data: Any) -> dict[str, Any]:
    """Return `data` if it is a JSON object.

    Raises:
        NoResponse: when it is not.
    """
    if not isinstance(data, dict):
        raise NoResponse("no JSON object")
    return data


def error_of(data: Mapping[str, Any]) -> Said | None:
    """Return the error in a response with status 200; None where it is not an error."""
    error = data.get("error")
    if not error and data.get("object") != "error":
        return None
    text = complaint(error or dict(data))
    why = f"answered with an error: {text[:EXCERPT]!r}"
    return Said(why, failed=True, complaint=text, text=written_call(data))


def choice_of(data: Any) -> dict[str, Any] | Said:
    """Return the first choice of a response, or the error in the response or in that choice.

    Raises:
        NoResponse: when there is no choice.
    """
    data = as_object(data)
    if failed := error_of(data):
        return failed
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NoResponse("no choices")
    choice = as_object(choices[0])
    return error_of(choice) or choice


def read_usage(usage: Any, names: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return a server's token counts by name; the detailed ones too, if they are not 0.

    Some servers count reasoning apart from the answer, in the total alone; here it is part of the answer's.
    Tokens of a cache or of citations that the total has beside the prompt are not.
    """
    counters: dict[str, int] = {}
    details: list[tuple[str, Mapping[str, Any]]] = []
    for name, value in list(usage.items())[:_MOST_COUNTERS] if isinstance(usage, dict) else ():
        if _is_count(value):
            counters[(names or {}).get(name, name)[:_NAME]] = value
        elif isinstance(value, dict):
            details.append((name, value))
    prompt, completion, total = map(counters.get, ("prompt_tokens", "completion_tokens", "total_tokens"))
    beside = [value for name, value in counters.items() if name.endswith("_tokens") and name not in _ANSWERED]
    for name, inner in details:
        for key, value in list(inner.items())[:_MOST_COUNTERS]:
            if _is_count(value) and value:
                if name.startswith(("prompt", "input")) and value > (prompt or 0):
                    beside.append(value)  # it cannot be part of the prompt
                counters[(key if key not in counters else f"{name}.{key}")[:_NAME]] = value
    if prompt is not None:
        reasoning, more = counters.get("reasoning_tokens", 0), (total or 0) - prompt - (completion or 0)
        for value in sorted(beside, reverse=True):
            more -= value if value <= more else 0  # else the prompt has them
        if sampled := max((completion or 0) + max(0, min(more, reasoning or more)), reasoning):
            counters["completion_tokens"] = sampled
    return counters


_ANSWERED = ("prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens", "thinking_tokens")
_MOST_COUNTERS = 32
_NAME = 100  # characters of a counter's name


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def small_strings(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the short strings that identify a response and its server, if there are any."""
    pairs = ((key, data.get(key)) for key in ("id", "model", "system_fingerprint"))
    return {key: value for key, value in pairs if isinstance(value, str) and 0 < len(value) <= 200}


def word_in(value: Any) -> str | None:
    """Return a short word, or None.

    Raises:
        NoResponse: for anything else.
    """
    word = text_in(value)
    return None if word is None else word[:100]


def text_in(content: Any) -> str | None:
    """Return content if it is text or None.

    Raises:
        NoResponse: for anything else.
    """
    if content is None or isinstance(content, str):
        return content
    raise NoResponse("text of another type")


@dataclass(slots=True)
class Pieces:
    """The collected parts of content. They are joined once: a sum for each part would take quadratic time."""

    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        """The text; None: there was no text part."""
        return "".join(self.texts) if self.texts else None

    @property
    def refusal(self) -> str:
        """The refusal."""
        return "".join(self.refusals)

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        return "".join(self.thoughts)

    def add(self, part: Any) -> None:
        """Add a part.

        Raises:
            NoResponse: for a part that is not an object, or whose text has a wrong type.
        """
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind = as_object(part).get("type")
        if kind in ("text", "output_text"):
            if "text" not in part:  # what the model said was lost: it is not empty
                raise NoResponse("a part of text without its text")
            self.texts.append(text_in(part.get("text")) or "")
        elif kind == "refusal":
            self.refusals.append(text_in(part.get("refusal", part.get("text"))) or "")
        elif kind in ("reasoning", "thinking", "reasoning_text", "summary_text"):
            self.think(part)

    def think(self, part: Mapping[str, Any]) -> None:
        """Add a reasoning part; it may have parts itself, or only a summary."""
        for key in ("text", "reasoning", "thinking", "content", "summary"):
            value = part.get(key)
            if isinstance(value, list):
                texts = [inner.get("text") for inner in value if isinstance(inner, dict)]
                value = "\n".join(text for text in texts if isinstance(text, str))
            if value and isinstance(value, str):
                self.thoughts.append(value)
                return


def tool_call(call_id: Any, name: Any, arguments: Any, made: str) -> ToolCall:
    """Return a call as the model wrote it; a call without an id gets the id `made`.

    Raises:
        NoResponse: for a name that is not text.
    """
    if not isinstance(name, str):
        raise NoResponse("a call without a name")
    if arguments is None:
        arguments = ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call_id if isinstance(call_id, str) and call_id else made, name, arguments)


def with_ids_of_their_own(calls: Sequence[ToolCall], turn: int) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids."""
    ids: set[str] = set()
    unique = []
    for number, call in enumerate(calls):
        if call.id in ids:
            call = ToolCall(made_id(turn, number), call.name, call.arguments)
        ids.add(call.id)
        unique.append(call)
    return tuple(unique)


def made_id(turn: int, number: int) -> str:
    """Return an id for a call to which the server gave none."""
    return f"call_{turn}_{number}"


def token_ids(values: Any) -> tuple[int, ...]:
    """Return token ids; () if any value is not a valid id."""
    if not isinstance(values, list) or not all(type(each) is int and 0 <= each < 2**31 for each in values):
        return ()
    return tuple(values)


def log_probabilities(values: Any, count: int) -> tuple[float, ...] | None:
    """Return one log probability for each of `count` tokens; None if any is missing."""
    if not count or not isinstance(values, list) or len(values) != count:
        return None
    entries = [value.get("logprob") if isinstance(value, dict) else None for value in values]
    numbers = tuple(float(each) for each in entries if isinstance(each, int | float) and abs(each) < 1e30)
    return numbers if len(numbers) == count else None
