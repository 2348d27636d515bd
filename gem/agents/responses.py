"""The wire format of the Responses protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gem.agents.outcomes import Said
from gem.agents.wire import (
    Collector,
    NoResponse,
    Pieces,
    Settings,
    adapt_messages,
    as_object,
    data_url,
    error_of,
    made_id,
    read_usage,
    sent_arguments,
    sent_name,
    small_strings,
    text_in,
    tool_call,
    with_ids_of_their_own,
    word_in,
)
from gem.content import Image, Message, ToolCall
from gem.record import Ask

COUNTERS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
"""Names of its token counts in the other protocols."""

LAST_EVENTS = frozenset(
    ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
)


class Responses:
    """``POST /responses``. The whole conversation is sent each time; the server stores nothing."""

    path = "/responses"
    name = "a response"

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """See WireFormat.request. This protocol has no seed."""
        messages = list(adapt_messages(ask.messages, settings.tools))
        request: dict[str, Any] = {"model": settings.model, "store": False}
        if messages and messages[0].role == "system":
            request["instructions"] = messages.pop(0).text
        request["input"] = [
            item
            for number, each in enumerate(messages)
            for item in _items(each, number, settings.send_reasoning)
        ]
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if limit is not None:
            request["max_output_tokens"] = limit
        if settings.tools and ask.tools:
            request["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.schema),
                    "strict": False,
                }
                for tool in ask.tools
            ]
        if settings.stream:
            request["stream"] = True
        return settings.complete(request, ask)

    def read(self, data: Any, ask: Ask) -> Said:
        """See WireFormat.read."""
        data = as_object(data)
        if failed := error_of(data):
            return failed
        output = data.get("output")
        if not isinstance(output, list):
            raise NoResponse("no output")
        pieces = Pieces()
        calls: list[ToolCall] = []
        for item in map(as_object, output):
            if item.get("type") == "function_call":
                made = made_id(ask.turn, len(calls))
                calls.append(tool_call(item.get("call_id"), item.get("name"), item.get("arguments"), made))
            elif item.get("type") == "reasoning":
                pieces.think(item)
            elif item.get("type") == "message":
                _read_message(item, pieces)
        end = _end(data)
        return Said(
            why=f"gave no answer (status {end!r})",
            text=pieces.text,
            refusal=pieces.refusal,
            reasoning=pieces.reasoning,
            calls=with_ids_of_their_own(calls, ask.turn),
            end=end,
            usage=read_usage(data.get("usage"), COUNTERS),
            extra=small_strings(data),
        )

    def collector(self) -> Collector:
        """See WireFormat.collector."""
        return _Parts()


def _items(message: Message, number: int, reasoning_field: str) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}
        return
    if message.role == "assistant" and message.reasoning and reasoning_field:
        content = [{"type": "reasoning_text", "text": message.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content}
    if message.content or not message.tool_calls:
        yield {"role": message.role, "content": _content(message)}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": sent_name(call.name),
            "arguments": sent_arguments(call.arguments),
        }


def _content(message: Message) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    if message.role == "assistant":
        return message.text
    return [
        {"type": "input_image", "detail": "auto", "image_url": data_url(part)}
        if isinstance(part, Image)
        else {"type": "input_text", "text": part.text}
        for part in message.content
    ]


def _read_message(item: Mapping[str, Any], pieces: Pieces) -> None:
    content = item.get("content")
    if not isinstance(content, list):
        content = [] if content is None else [text_in(content)]
    for part in content:
        pieces.add(part)


def _end(data: Mapping[str, Any]) -> str | None:
    """Return the finish reason: the reason of an incomplete response, else its status."""
    status = word_in(data.get("status"))
    if status == "incomplete":
        details = data.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return word_in(reason) or "incomplete"
    return status


class _Parts:
    """A collector that takes the whole response from the stream's last event."""

    def __init__(self) -> None:
        self.ended = self.closed = False
        self._items: list[Any] = []
        self._body: dict[str, Any] = {}

    def take(self, event: Any) -> None:
        event = as_object(event)
        kind = event.get("type")
        if kind == "response.output_item.done":
            self._items.append(event.get("item"))
        elif kind in LAST_EVENTS:
            self._body = as_object(event.get("response"))
            self.ended = self.closed = True
        elif kind == "error" or (kind is None and error_of(event)):
            error = {key: event.get(key) for key in ("code", "message", "error") if event.get(key)}
            self._body = {"error": error or "error"}
            self.ended = self.closed = True

    def body(self) -> dict[str, Any]:
        if not self._body.get("output") and self._items:  # some leave it to the items
            return self._body | {"output": self._items}
        return self._body
