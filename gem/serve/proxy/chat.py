"""The server side of the chat completions API: read requests, write answers whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gem.content import Message, ToolCall
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
    refuse_fields,
    stops_in,
    tools_on_offer,
)

ROLES = {"developer": "system", "function": "tool"}
"""Roles that were renamed in the API, with their current names."""

READ = frozenset(
    ("model", "messages", "tools", "tool_choice", "stream", "stream_options", "n", "max_tokens", "stop")
)
READ |= {"max_completion_tokens", "return_token_ids", "logprobs", "top_logprobs"}
"""Fields that are not passed on unchanged."""

INSTEAD = {
    **dict.fromkeys(("functions", "function_call"), "tools and tool_choice"),
    **dict.fromkeys(("input", "instructions", "prompt", "prompt_token_ids", "input_ids"), "messages"),
    **dict.fromkeys(("previous_response_id", "conversation"), "messages"),
    **dict.fromkeys(("max_output_tokens", "max_new_tokens"), "max_tokens"),
}
"""Fields that are refused, as some servers would read them in place of those that the record has."""


def read(body: Any) -> Request:
    """Return the request of ``POST /chat/completions``.

    Raises:
        Refused: for what is none.
    """
    body = an_object(body, "the body")
    refuse_fields(body, INSTEAD)
    if body.get("n") not in (None, 1):
        raise Refused(f"n is {body['n']!r:.20}; accepted: 1. Ask again for another answer.")
    messages = a_list(body.get("messages"), "messages")
    if not messages:
        raise Refused("messages is empty; accepted: one message or more.")
    offered = a_list(body.get("tools") or [], "tools")
    tools, chosen = tools_on_offer(
        tuple(_tool(tool, f"tools[{place}]") for place, tool in enumerate(offered)), body.get("tool_choice")
    )
    limits = [a_count(body.get(name), name) for name in ("max_tokens", "max_completion_tokens")]
    form = body.get("response_format")
    form = an_object({} if form is None else form, "response_format")
    options = an_object(body.get("stream_options") or {}, "stream_options")
    return Request(
        tuple(_message(message, f"messages[{place}]") for place, message in enumerate(messages)),
        tools,
        min((limit for limit in limits if limit is not None), default=None),
        stops_in(body.get("stop")),
        a_text(body.get("model") or "", "model"),
        stream=a_flag(body.get("stream"), "stream"),
        usage=bool(options.get("include_usage")),
        ids=a_flag(body.get("return_token_ids"), "return_token_ids"),
        logprobs=a_flag(body.get("logprobs"), "logprobs"),
        schema=bool(form) and form.get("type") != "text",
        asked=chosen
        | {
            name: value
            for name, value in body.items()
            if value is not None and name not in READ and name not in INSTEAD
        },
    )


def _tool(tool: Any, what: str) -> Any:
    tool = an_object(tool, what)
    if tool.get("type", "function") != "function":
        raise Refused(f"{what} is of the type {tool['type']!r:.40}; accepted: function.")
    return a_tool(an_object(tool.get("function"), f"{what}.function"), f"{what}.function")


def _message(message: Any, what: str) -> Message:
    message = an_object(message, what)
    role = message.get("role")
    role = ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ("system", "user", "assistant", "tool"):
        raise Refused(f"{what}.role is {role!r:.40}; accepted: system, developer, user, assistant, tool.")
    calls = []
    for place, call in enumerate(a_list(message.get("tool_calls") or [], f"{what}.tool_calls")):
        where = f"{what}.tool_calls[{place}]"
        function = an_object(an_object(call, where).get("function"), f"{where}.function")
        calls.append(a_call(call.get("id"), function.get("name"), function.get("arguments"), where))
    if calls and role != "assistant":
        raise Refused(f"{what} of the role {role} has tool_calls; only the assistant calls tools.")
    answered = message.get("tool_call_id")
    thought = message.get("reasoning_content") or message.get("reasoning")
    return Message(
        role,  # type: ignore[arg-type]  # checked above
        content_of(message.get("content"), f"{what}.content"),
        tool_calls=tuple(calls),
        tool_call_id=None if role != "tool" else a_text(answered or "", f"{what}.tool_call_id"),
        name=None if message.get("name") is None else a_text(message["name"], f"{what}.name"),
        reasoning=thought if role == "assistant" and isinstance(thought, str) else None,
    )


def write(answer: Answer, request: Request) -> dict[str, Any]:
    """Return the answer as a chat completion."""
    reply = answer.message
    message: dict[str, Any] = {
        "role": "assistant",
        "content": reply.text or (None if reply.tool_calls else ""),
    }
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(answer) if request.logprobs and answer.logprobs else None,
        "finish_reason": "tool_calls" if reply.tool_calls and answer.finish == "stop" else answer.finish,
    }
    body: dict[str, Any] = {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
        "usage": _usage(answer),
    }
    if request.ids:
        body["prompt_token_ids"], choice["token_ids"] = list(answer.prompt_ids), list(answer.token_ids)
    return body


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _logprobs(answer: Answer) -> dict[str, Any]:
    """Return log probabilities, with tokens named by their ids, as vLLM can do."""
    pairs = zip(answer.token_ids, answer.logprobs, strict=True)
    rows: list[dict[str, Any]] = [
        {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
        for token, value in pairs
    ]
    return {"content": rows, "refusal": None}


def _usage(answer: Answer) -> dict[str, int]:
    prompt, sampled = (answer.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


PIECE = 48
"""The characters of one event of a stream."""


def pieces(text: str) -> list[str]:
    """Split a text into the pieces of a stream."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def events(answer: Answer, request: Request) -> Iterator[tuple[str | None, Any]]:
    """Yield the answer as the chunks of a stream; ``[DONE]`` follows the last one."""
    whole = write(answer, request)
    (choice,) = whole["choices"]
    message = choice["message"]
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> tuple[None, Any]:
        return None, {
            **head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **more}],
        }

    _, first = chunk({"role": "assistant", "content": ""})
    if request.ids:
        first["prompt_token_ids"] = whole["prompt_token_ids"]
    yield None, first
    for name in ("reasoning_content", "content"):
        for piece in pieces(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{**call, "index": index, "function": function}]})
        for piece in pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    ids = {"token_ids": choice["token_ids"]} if request.ids else {}
    yield chunk({}, choice["finish_reason"], **ids, logprobs=choice["logprobs"])
    if request.usage:
        yield None, {**head, "choices": [], "usage": whole["usage"]}
    yield None, "[DONE]"
