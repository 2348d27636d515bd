"""The server side of the Responses API: read requests, write answers whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gem.content import Message, Obs, ToolCall, ToolSpec
from gem.serve.proxy.chat import ROLES, pieces
from gem.serve.proxy.request import (
    Answer,
    Refused,
    Request,
    a_call,
    a_count,
    a_flag,
    a_list,
    a_text,
    a_tool,
    an_object,
    content_of,
    tools_on_offer,
)

SAME = frozenset(("temperature", "top_p", "parallel_tool_calls"))
"""Settings that chat completions have too, under the same name."""

READ = frozenset(("model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "stream"))
READ |= {"previous_response_id", "text", "reasoning", "conversation", "prompt", "background"}

LEFT_OUT = frozenset(("store", "include", "metadata", "client_metadata", "user", "safety_identifier", "seed"))
LEFT_OUT |= {"prompt_cache_key", "prompt_cache_retention", "context_management", "service_tier"}
LEFT_OUT |= {"truncation", "max_tool_calls", "top_logprobs", "stream_options"}
"""Fields that are not passed on between the two protocols, as they change nothing that is recorded here."""

NEUTRAL = {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "logprobs": False}
"""Settings that only one of the protocols has, with the values that change nothing and are left out too."""

FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "the whole input of the tool, as plain text"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters that stand for the free text of a custom tool."""


def read(body: Any) -> Request:
    """Return the request of ``POST /responses``.

    Raises:
        Refused: for an invalid request, and for what a proxy cannot do: tools that run at the provider, and
            prompts that are stored there.
    """
    body = an_object(body, "the body")
    for name in ("conversation", "prompt", "background"):
        if body.get(name):
            raise Refused(f"{name} is stored at the provider, which is not available; send the whole input.")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else a_list(given, "input")
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append(Message("system", a_text(body["instructions"], "instructions")))
    for place, item in enumerate(items):
        _add(messages, an_object(item, f"input[{place}]"), f"input[{place}]")
    if not messages:
        raise Refused("input is empty; accepted: text, or one item or more.")
    forms: dict[str, tuple[str, str] | None] = {}
    offered = a_list(body.get("tools") or [], "tools")
    tools = tuple(
        spec for place, tool in enumerate(offered) for spec in _tools(tool, f"tools[{place}]", forms)
    )
    previous = body.get("previous_response_id")
    tools, asked = tools_on_offer(tools, _read_choice(body.get("tool_choice")))
    asked |= _read_settings(body)
    return Request(
        tuple(messages),
        tools,
        a_count(body.get("max_output_tokens"), "max_output_tokens"),
        model=a_text(body.get("model") or "", "model"),
        stream=a_flag(body.get("stream"), "stream"),
        schema="response_format" in asked,
        previous=None if previous is None else a_text(previous, "previous_response_id"),
        forms=forms,
        asked=asked,
    )


def _read_choice(choice: Any) -> Any:
    """Return which tool is to be called as chat completions say it."""
    if choice is None or isinstance(choice, str):
        return choice
    if an_object(choice, "tool_choice").get("type") not in ("function", "custom"):
        raise Refused(
            f"tool_choice is of the type {choice.get('type')!r:.40}; accepted: function, custom, or a word."
        )
    name = _join(choice.get("namespace"), a_text(choice.get("name"), "tool_choice.name"))
    return {"type": "function", "function": {"name": name}}


def _read_settings(body: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a request as chat completions have them, or refuse."""
    for name, value in body.items():
        if value not in (None, NEUTRAL.get(name)) and name not in SAME | READ | LEFT_OUT:
            raise Refused(f"{name!r:.40} is not passed on from the Responses API; leave it out.")
    text = an_object(body.get("text") or {}, "text")
    reasoning = an_object(body.get("reasoning") or {}, "reasoning")
    form = an_object(text.get("format") or {}, "text.format")
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": {key: form[key] for key in form if key != "type"}}
    asked = {name: body.get(name) for name in SAME}
    asked |= {"verbosity": text.get("verbosity"), "reasoning_effort": reasoning.get("effort")}
    if form.get("type", "text") != "text":
        asked["response_format"] = form
    return {name: value for name, value in asked.items() if value is not None}


def write_settings(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of chat completions as this protocol has them.

    Raises:
        Refused: for one that it lacks.
    """
    sent: dict[str, Any] = {}
    for name, value in asked.items():
        if name in SAME:
            sent[name] = value
        elif name == "tool_choice":
            sent[name] = _write_choice(value) if isinstance(value, dict) else value
        elif name == "reasoning_effort":
            sent["reasoning"] = {"effort": value}
        elif name == "verbosity":
            sent.setdefault("text", {})["verbosity"] = value
        elif name == "response_format":
            schema = an_object(value.get("json_schema") or {}, "response_format.json_schema")
            sent.setdefault("text", {})["format"] = {"type": value.get("type"), **schema}
        elif name not in LEFT_OUT and value != NEUTRAL.get(name):
            raise Refused(
                f"{name!r:.40} is not passed on: the Responses API has no such field; leave it out."
            )
    return sent


def _write_choice(choice: dict[str, Any]) -> dict[str, Any]:
    if choice.get("type", "function") != "function":
        raise Refused(f"tool_choice is of the type {choice['type']!r:.40}; accepted: function, or a word.")
    return {"type": "function", **an_object(choice.get("function"), "tool_choice.function")}


def _tools(tool: Any, what: str, forms: dict[str, tuple[str, str] | None]) -> list[ToolSpec]:
    """Return a tool, or those of a namespace, as functions; `forms` gets how their calls are written."""
    tool = an_object(tool, what)
    match tool.get("type"):
        case "function":
            return [a_tool(tool, what)]
        case "custom":  # its input is text of any form, in place of an object
            spec = a_tool({**tool, "parameters": FREE_TEXT}, what)
            forms[spec.name] = None
            return [spec]
        case "namespace":
            space = a_text(tool.get("name"), f"{what}.name")
            specs = []
            for place, inner in enumerate(a_list(tool.get("tools") or [], f"{what}.tools")):
                where = f"{what}.tools[{place}]"
                if an_object(inner, where).get("type") != "function":
                    raise Refused(f"{where} is of the type {inner.get('type')!r:.40}; accepted: function.")
                spec = a_tool(inner, where)
                forms[name := _join(space, spec.name)] = space, spec.name
                specs.append(replace(spec, name=name))
            return specs
        case other:
            raise Refused(
                f"{what} is of the type {other!r:.40}, which runs at a provider; accepted: function, custom, "
                "namespace."
            )


def _join(space: Any, name: str) -> str:
    """Return the name of a tool of a namespace, as the model calls it."""
    return f"{space}__{name}" if isinstance(space, str) and space else name


def _add(messages: list[Message], item: dict[str, Any], what: str) -> None:
    """Add an item of the input; text and calls of one answer become one message."""
    kind = item.get("type") or "message"
    if kind == "message":
        role = item.get("role")
        role = ROLES.get(role, role) if isinstance(role, str) else role
        if role not in ("system", "user", "assistant"):
            raise Refused(f"{what}.role is {role!r:.40}; accepted: system, developer, user, assistant.")
        content = content_of(item.get("content"), f"{what}.content")
        _say(messages, Message(role, content))  # type: ignore[arg-type]  # checked above
    elif kind in ("function_call", "custom_tool_call"):
        name = _join(item.get("namespace"), a_text(item.get("name"), f"{what}.name"))
        custom = kind == "custom_tool_call"
        arguments = {"input": item.get("input")} if custom else item.get("arguments")
        call = a_call(item.get("call_id"), name, arguments, what)
        if messages and messages[-1].role == "assistant":
            last = messages[-1]
            calls = (*last.tool_calls, call)
            messages[-1] = Message("assistant", last.content, tool_calls=calls, reasoning=last.reasoning)
        else:
            messages.append(Message("assistant", "", tool_calls=(call,)))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        call_id = a_text(item.get("call_id"), f"{what}.call_id")
        called = next(
            (call.name for each in messages for call in each.tool_calls if call.id == call_id), None
        )
        output: Obs = content_of(item.get("output"), f"{what}.output")
        messages.append(Message("tool", output, tool_call_id=call_id, name=called))
    elif kind == "reasoning":
        thought = "\n".join(
            part["text"]
            for name in ("content", "summary")
            for part in a_list(item.get(name) or [], f"{what}.{name}")
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
        if thought:
            messages.append(Message("assistant", "", reasoning=thought))
    else:
        raise Refused(
            f"{what} is of the type {kind!r:.40}; accepted: message, reasoning, function_call, "
            "function_call_output, custom_tool_call, custom_tool_call_output."
        )


def _say(messages: list[Message], message: Message) -> None:
    """Add a message; an answer's text is merged with the reasoning before it."""
    last = messages[-1] if messages else None
    if message.role == "assistant" and last is not None and last.reasoning and not last.content:
        messages[-1] = Message("assistant", message.content, reasoning=last.reasoning)
    else:
        messages.append(message)


def write(answer: Answer, request: Request) -> dict[str, Any]:
    """Return the answer as a response."""
    reply, stopped = answer.message, answer.finish == "stop"
    status = "completed" if stopped else "incomplete"
    output: list[dict[str, Any]] = []
    if reply.reasoning:
        content = [{"type": "reasoning_text", "text": reply.reasoning}]
        output.append({"id": f"rs_{answer.id}", "type": "reasoning", "summary": [], "content": content})
    if reply.text or not reply.tool_calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        output.append(
            {
                "id": f"msg_{answer.id}",
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [part],
            }
        )
    output += [_call(answer, call, number, request) for number, call in enumerate(reply.tool_calls)]
    return {
        "id": answer.id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": None,
        "incomplete_details": None if stopped else {"reason": "max_output_tokens"},
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": request.previous,
        "temperature": None,
        "top_p": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(answer),
    }


def _call(answer: Answer, call: ToolCall, number: int, request: Request) -> dict[str, Any]:
    """Return a call in the form in which its tool was offered."""
    item = {"call_id": call.id, "name": call.name, "status": "completed"}
    form = request.forms.get(call.name)
    if form is None and call.name in request.forms:
        return {
            "id": f"ctc_{answer.id}_{number}",
            "type": "custom_tool_call",
            **item,
            "input": _text_of(call),
        }
    if form is not None:
        item |= {"namespace": form[0], "name": form[1]}
    return {"id": f"fc_{answer.id}_{number}", "type": "function_call", **item, "arguments": call.arguments}


def _text_of(call: ToolCall) -> str:
    """Return the text of a call of a tool that takes free text, in whatever form the model wrote it."""
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    text = given.get("input") if isinstance(given, dict) else given
    return text if isinstance(text, str) else call.arguments


def _usage(answer: Answer) -> dict[str, Any]:
    prompt, sampled = (answer.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sampled,
    }


def events(answer: Answer, request: Request) -> Iterator[tuple[str | None, Any]]:
    """Yield the events of a stream: their names and data."""
    for number, event in enumerate(_events(write(answer, request))):
        yield event["type"], {**event, "sequence_number": number}


def _events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        text = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
        if text:
            empty: dict[str, Any] = {text: ""}
        else:
            empty = {"content": []}
        if "status" in item:
            empty["status"] = "in_progress"
        yield {"type": "response.output_item.added", "output_index": index, "item": item | empty}
        if text:
            kind = f"response.{item['type']}_{text}"
            for piece in pieces(item[text]):
                yield {"type": f"{kind}.delta", **place, "delta": piece}
            yield {"type": f"{kind}.done", **place, "name": item["name"], text: item[text]}
        elif item["type"] == "message":
            (part,) = item["content"]
            place["content_index"] = 0
            yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
            for piece in pieces(part["text"]):
                yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}
