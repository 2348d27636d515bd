"""The wire format of the chat completions protocol, which every server supports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gem.agents.outcomes import Said
from gem.agents.wire import (
    SEEDS,
    Chunks,
    Collector,
    NoResponse,
    Pieces,
    Settings,
    adapt_messages,
    as_object,
    choice_of,
    data_url,
    join_pieces,
    log_probabilities,
    made_id,
    read_usage,
    sent_arguments,
    sent_name,
    small_strings,
    text_in,
    token_ids,
    tool_call,
    with_ids_of_their_own,
    word_in,
)
from gem.content import Image, Message, ToolCall
from gem.record import Ask


class ChatCompletions:
    """``POST /chat/completions``."""

    path = "/chat/completions"
    name = "a chat completion"

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """See WireFormat.request."""
        messages = adapt_messages(ask.messages, settings.tools)
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": [_message(message, settings.send_reasoning) for message in messages],
        }
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        request["seed"] = ask.seed % SEEDS
        if limit is not None:
            request[settings.limit_field] = limit
        if settings.tools and ask.tools:
            request["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.schema),
                    },
                }
                for tool in ask.tools
            ]
        if settings.token_ids:
            request |= {"return_token_ids": True, "logprobs": True}
        if settings.stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return settings.complete(request, ask)

    def read(self, data: Any, ask: Ask) -> Said:
        """See WireFormat.read."""
        choice = choice_of(data)
        if isinstance(choice, Said):
            return choice
        message = as_object(choice.get("message") or ({} if _end(choice) else None))
        pieces = _pieces(message)
        ids = token_ids(choice.get("token_ids"))
        logprobs = choice.get("logprobs")
        return Said(
            why=f"gave no answer (finish_reason {_end(choice)!r})",
            text=pieces.text,
            refusal=pieces.refusal,
            reasoning=pieces.reasoning,
            calls=_calls(message, ask.turn),
            end=_end(choice),
            usage=read_usage(data.get("usage")),
            prompt_ids=token_ids(data.get("prompt_token_ids")),
            token_ids=ids,
            logprobs=log_probabilities(logprobs.get("content"), len(ids))
            if isinstance(logprobs, dict)
            else None,
            extra=small_strings(data),
        )

    def collector(self) -> Collector:
        """See WireFormat.collector."""
        return _Chunks()


def _message(message: Message, reasoning_field: str) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": _content(message)}
    if message.role == "assistant" and message.reasoning and reasoning_field:
        sent[reasoning_field] = message.reasoning
    if message.tool_calls:
        sent["content"] = sent["content"] or None
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": sent_name(call.name), "arguments": sent_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id
    return sent


def _content(message: Message) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    return [
        {"type": "image_url", "image_url": {"url": data_url(part)}}
        if isinstance(part, Image)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


def _pieces(message: Mapping[str, Any]) -> Pieces:
    pieces = Pieces()
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thought := message.get(name), str) and thought:
            pieces.thoughts.append(thought)
            break
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        pieces.add(part)
    if not isinstance(content, list) and (text := text_in(content)) is not None:
        pieces.texts.append(text)
    pieces.refusals.append(text_in(message.get("refusal")) or "")
    return pieces


def _calls(message: Mapping[str, Any], turn: int) -> tuple[ToolCall, ...]:
    entries = message.get("tool_calls") or []
    if not isinstance(entries, list):
        raise NoResponse("tool calls of another type")
    calls = []
    for number, call in enumerate(entries):
        function = as_object(as_object(call).get("function"))
        made = made_id(turn, number)
        calls.append(tool_call(call.get("id"), function.get("name"), function.get("arguments"), made))
    legacy = message.get("function_call")
    if legacy and not calls:
        function = as_object(legacy)
        calls = [tool_call(None, function.get("name"), function.get("arguments"), made_id(turn, 0))]
    return with_ids_of_their_own(calls, turn)


def _end(choice: Mapping[str, Any]) -> str | None:
    end = choice.get("finish_reason")
    if isinstance(end, dict):  # SGLang's own form
        end = end.get("type")
    return word_in(end)


class _Chunks(Chunks):
    """Puts together the chunks of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self._text: dict[str, list[str]] = {}
        self._parts: list[Any] = []
        self._calls: list[_Call] = []
        self._latest: dict[Any, _Call] = {}  # of each index

    def take_whole(self, chunk: Mapping[str, Any]) -> None:
        self._keep_prompt(chunk.get("prompt_token_ids"))

    def take_choice(self, choice: Mapping[str, Any]) -> None:
        self._choice.setdefault("message", {})
        self._extend("token_ids", choice.get("token_ids"))
        if isinstance(logprobs := choice.get("logprobs"), dict):
            self._extend("logprobs", logprobs.get("content"))
        delta = as_object(choice.get("delta") or choice.get("message") or {})
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            value = delta.get(key)
            if key == "content" and isinstance(value, list):
                self._parts += value
            elif isinstance(value, str):
                self._text.setdefault(key, []).append(value)
                self._unnumbered |= value != "" and not choice.get("token_ids")
            elif value is not None and not key.startswith("reasoning"):
                raise NoResponse("text of another type")
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise NoResponse("tool calls of another type")
        for call in map(as_object, calls):
            self._call(call, as_object(call.get("function") or {}))
        if delta.get("function_call"):
            self._call({"index": "function_call"}, as_object(delta["function_call"]))

    def _call(self, delta: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        """Add to the call with the same index, unless the id or, without ids, the name begins a new one."""
        call_id, index = delta.get("id"), delta.get("index")
        if isinstance(index, list | dict):
            raise NoResponse("an index of another type")
        newest = self._calls[-1] if self._calls else None
        last = newest if index is None else self._latest.get(index)
        known = bool(call_id and last and last.id)
        if last is None or (call_id != last.id if known else last.is_followed_by(function)):
            last = self._latest[index] = _Call()
            self._calls.append(last)
        last.id = last.id or call_id
        last.name = last.name or function.get("name")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            last.arguments.append(arguments)
        elif arguments is not None:
            last.whole = arguments

    def body(self) -> dict[str, Any]:
        if "message" not in self._choice:
            return self._body
        message: dict[str, Any] = {key: join_pieces(each) for key, each in self._text.items()}
        if self._parts:
            text = message.get("content")
            message["content"] = [*([text] if text else []), *self._parts]
        if self._calls:
            message["tool_calls"] = [call.whole_call() for call in self._calls]
        choice = self._choice | {"message": message, "token_ids": self._find_token_ids()}
        choice["logprobs"] = {"content": self._lists.get("logprobs")}
        return self._body | {
            "choices": [choice],
            "prompt_token_ids": self._lists.get("prompt_token_ids"),
        }


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


class _Call:
    """A call whose arguments come in pieces."""

    def __init__(self) -> None:
        self.id: Any = None
        self.name: Any = None
        self.arguments: list[str] = []
        self.whole: Any = None

    def is_followed_by(self, function: Mapping[str, Any]) -> bool:
        """Return whether a piece is of another call: of another name, or with arguments behind whole ones."""
        name = function.get("name")
        if not name or not self.name:
            return False
        more = str(function.get("arguments") or "").strip()
        is_whole = self.whole is not None or _is_json("".join(self.arguments))
        return name != self.name or bool(more and is_whole)

    def whole_call(self) -> dict[str, Any]:
        arguments = join_pieces(self.arguments) or self.whole
        return {"id": self.id, "function": {"name": self.name, "arguments": arguments}}
