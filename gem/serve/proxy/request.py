"""Requests and answers in a form common to all protocols, and the errors of refused requests."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem.content import Image, Message, Obs, Text, ToolCall, ToolSpec
from gem.errors import BadArgument

MOST_STOPS = 16
MOST_NOTED, LONGEST_NOTE = 64, 1000
"""Settings of a request that are stored in the record, and the most characters of one of them."""


class Refused(BadArgument):
    """A refused request; the client gets `status`, `kind`, `code` and the message."""

    status = 400
    kind = "invalid_request_error"
    code: str | None = None


class NoKey(Refused):
    """A request without a key, or with an unknown one."""

    status, kind, code = 401, "authentication_error", "invalid_api_key"


class NotThere(Refused):
    """An episode or an address that does not exist."""

    status, code = 404, "not_found"


class NotNow(Refused):
    """A request that the state of the episode does not allow."""

    status, code = 409, "conflict"


class TooLarge(Refused):
    """A body that is longer than allowed."""

    status, code = 413, "request_too_large"


class TooLong(Refused):
    """A prompt that fills the model's context."""

    code = "context_length_exceeded"


class OverBudget(Refused):
    """A call beyond the limits of its episode. Not 429, because some clients would wait and try again."""

    status, kind, code = 403, "insufficient_quota", "insufficient_quota"


class TooMany(Refused):
    """More episodes than may be open at a time; the client may try again later."""

    status, kind, code = 429, "rate_limit_error", "rate_limit_exceeded"


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a model.

    `messages`: the conversation, or with `previous` (the id of an earlier answer) what follows it. `asked`:
    the other fields, including sampling settings, as chat completions have them; `schema`: whether one of
    them requires a form of the answer. `usage`: whether a stream ends with token counts. `ids`: whether the
    answer includes token ids; `logprobs`: whether it includes their log probabilities. `forms`: tools whose
    calls are written in another form than functions: those of a namespace with (namespace, name), free text
    with None.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    model: str = ""
    stream: bool = False
    usage: bool = False
    ids: bool = False
    logprobs: bool = False
    schema: bool = False
    previous: str | None = None
    forms: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def noted(self) -> dict[str, Any]:
        """The settings of the request for the record, without long values."""
        wanted = {"model": self.model, "max_tokens": self.max_tokens, "stop": list(self.stop), **self.asked}
        return {
            name: value
            for name, value in list(wanted.items())[:MOST_NOTED]
            if value not in (None, "", []) and len(json.dumps(value)) <= LONGEST_NOTE
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call, as the program gets it, with its tokens."""

    id: str
    model: str
    message: Message
    finish: str
    usage: Mapping[str, int]
    prompt_ids: Sequence[int] = ()
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    created: int = 0


# -- reading values of any shape


def an_object(value: Any, what: str) -> dict[str, Any]:
    """Return a JSON object, or refuse."""
    if not isinstance(value, dict):
        raise Refused(f"{what} is {_short(value)}; accepted: a JSON object.")
    return value


def a_list(value: Any, what: str) -> list[Any]:
    """Return a list, or refuse."""
    if not isinstance(value, list):
        raise Refused(f"{what} is {_short(value)}; accepted: a list.")
    return value


def a_text(value: Any, what: str) -> str:
    """Return a text, or refuse."""
    if not isinstance(value, str):
        raise Refused(f"{what} is {_short(value)}; accepted: text.")
    return value


def a_flag(value: Any, what: str) -> bool:
    """Return a boolean, False for null, or refuse."""
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{what} is {_short(value)}; accepted: true or false.")
    return bool(value)


def a_count(value: Any, what: str) -> int | None:
    """Return a whole number from 1, or None, or refuse."""
    if value is None:
        return None
    if type(value) is not int or not 1 <= value < 2**31:
        raise Refused(f"{what} is {_short(value)}; accepted: a whole number from 1 to {2**31 - 1}.")
    return value


def stops_in(value: Any) -> tuple[str, ...]:
    """Return the texts at which an answer stops, or refuse."""
    texts = [value] if isinstance(value, str) else a_list([] if value is None else value, "stop")
    if len(texts) > MOST_STOPS or not all(isinstance(text, str) and text for text in texts):
        raise Refused(f"stop is {_short(value)}; accepted: up to {MOST_STOPS} texts, none of them empty.")
    return tuple(texts)


def refuse_fields(body: Mapping[str, Any], instead: Mapping[str, str]) -> None:
    """Refuse a body that has one of these fields, and say what stands in its place."""
    for name, accepted in instead.items():
        if body.get(name):
            raise Refused(f"{name} is not read; accepted: {accepted}.")


def tools_on_offer(tools: tuple[ToolSpec, ...], choice: Any) -> tuple[tuple[ToolSpec, ...], dict[str, Any]]:
    """Return the tools that the model may call, and the field that says which of them it is to call."""
    if choice == "none" or not tools:
        return (), {}
    return tools, {} if choice is None else {"tool_choice": choice}


def a_tool(tool: Mapping[str, Any], what: str) -> ToolSpec:
    """Return the tool of a function definition, or refuse."""
    name = a_text(tool.get("name"), f"{what}.name")
    description = a_text(tool.get("description") or "", f"{what}.description")
    return ToolSpec(name, description, an_object(tool.get("parameters") or {}, f"{what}.parameters"))


def a_call(call_id: Any, name: Any, arguments: Any, what: str) -> ToolCall:
    """Return a call of an earlier answer, or refuse."""
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return ToolCall(a_text(call_id or "", f"{what}.id"), a_text(name, f"{what}.name"), arguments)


def content_of(value: Any, what: str) -> Obs:
    """Return the content of a message: text, or texts and pictures, or refuse."""
    if value is None or isinstance(value, str):
        return value or ""
    parts = [_part(part, f"{what}[{place}]") for place, part in enumerate(a_list(value, what))]
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "\n".join(texts) if len(texts) == len(parts) and len(parts) < 2 else tuple(parts)


def _part(part: Any, what: str) -> Text | Image:
    if isinstance(part, str):
        return Text(part)
    kind = an_object(part, what).get("type")
    if kind in ("text", "input_text", "output_text"):
        return Text(a_text(part.get("text"), f"{what}.text"))
    if kind == "refusal":
        return Text(a_text(part.get("refusal"), f"{what}.refusal"))
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        return _image(url.get("url") if isinstance(url, dict) else url, what)
    raise Refused(f"{what} is of the type {_short(kind)}; accepted: text, and pictures as data: addresses.")


_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]{1,40});base64,")


def _image(url: Any, what: str) -> Image:
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if match is None:
        raise Refused(
            f"{what} has the picture {_short(url)}; nothing is fetched: accepted are data: addresses."
        )
    try:
        return Image(base64.b64decode(url[match.end() :], validate=True), match[1])
    except (binascii.Error, ValueError) as error:
        raise Refused(f"{what} has a picture that is no base64: {error}.") from error


def _short(value: Any) -> str:
    return f"{value!r:.60}"
