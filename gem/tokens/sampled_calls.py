"""Parsing of tool calls in sampled text, in the forms that chat templates teach models to write."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gem.content import ToolCall
from gem.parsing import drop_thinking, find_thinking
from gem.record import Ask
from gem.tokens.renderer import Renderer, knows_tools
from gem.tools import calls

_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_CALL = re.compile(r"\s*([\w.:/-]{1,128})(?:\[CALL_ID\]\w*)?\[ARGS\]\s*")
_LLAMA_TAG = "<|python_tag|>"
_BETWEEN = re.compile(r"[\s;,]*")
_MORE_CALLS = re.compile(r"</\w|```|~~~")
_KEYS = frozenset(("name", "arguments", "parameters", "type", "id"))
_DECODER = json.JSONDecoder()

Named = tuple[str, dict[str, Any]]


def read_answer(renderer: Renderer, ids: Sequence[int], ask: Ask) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text of sampled ids without its tool calls, and these, if tools were offered natively."""
    text = renderer.decode(ids)
    return take_calls(text, ask.turn) if ask.tools and knows_tools(renderer) else (text, ())


def take_calls(text: str, turn: int = 0) -> tuple[str, tuple[ToolCall, ...]]:
    """Return a reply's text without its tool calls, and the calls.

    It reads ``<tool_call>{...}</tool_call>`` (Hermes, Qwen, SmolLM), an answer that is one or more objects
    ``{"name": ..., "parameters": {...}}`` (Llama 3), and ``[TOOL_CALLS][...]`` or
    ``[TOOL_CALLS]name[ARGS]{...}`` (Mistral). Where a call cannot be read, or where the calls cannot be
    removed without changing the request, the whole reply stays text, for the environment to read. Drafts
    inside closed thinking stay text too.

    Args:
        text: the sampled text, which may be anything.
        turn: the number of the turn, which makes the ids of calls unique in an episode.
    """
    try:
        for reader in (_hermes, _mistral, _llama):
            read = reader(text)
            if read is not None:
                return _check_calls(text, *read, turn)
    except (ValueError, RecursionError):  # no JSON, or nested beyond measure
        pass
    return text, ()


def _check_calls(text: str, rest: str, named: Sequence[Named], turn: int) -> tuple[str, tuple[ToolCall, ...]]:
    """Return what was read, if the text that is written from it again asks for the same calls."""
    made = tuple(
        ToolCall(f"t{turn:04d}n{place:03d}", name, json.dumps(arguments, ensure_ascii=False))
        for place, (name, arguments) in enumerate(named)
    )
    again = [
        each.call and (each.call.name, json.dumps(each.call.arguments))
        for each in calls.find(calls.write(rest, made), ())
    ]
    if again != [(name, json.dumps(arguments)) for name, arguments in named]:
        return text, ()
    return rest, made


def _hermes(text: str) -> tuple[str, list[Named]] | None:
    matches = calls.find(text, ())
    if not matches:
        return None
    named = [(each.call.name, dict(each.call.arguments)) for each in matches if each.call is not None]
    ends = [each.end for each in matches]
    starts = [*(each.start for each in matches[1:]), len(text)]
    behind = [text[end:start].strip() for end, start in zip(ends, starts, strict=True)]
    if len(named) < len(matches) or _MORE_CALLS.search("\n".join(behind)):
        return None
    return "\n".join(filter(None, (text[: matches[0].start].rstrip(), *behind))), named


def _mistral(text: str) -> tuple[str, list[Named]] | None:
    before, mark, body = text.partition(_MISTRAL)
    if not mark or any(find_thinking(body)):
        return None
    named: list[Named] = []
    if body.lstrip().startswith("["):
        listed, end = _DECODER.raw_decode(body, len(body) - len(body.lstrip()))
        if body[end:].strip():
            return None
        named = [call for each in listed if (call := _read_call(each)) is not None]
        return (before.rstrip(), named) if named and len(named) == len(listed) else None
    for piece in body.split(_MISTRAL):
        head = _MISTRAL_CALL.match(piece)
        if head is None:
            return None
        arguments, end = _DECODER.raw_decode(piece, head.end())
        if piece[end:].strip() or not isinstance(arguments, dict):
            return None
        named.append((head[1], arguments))
    return before.rstrip(), named


def _llama(text: str) -> tuple[str, list[Named]] | None:
    answer = drop_thinking(text)
    body = answer.strip().removeprefix(_LLAMA_TAG).strip()
    if not body.startswith("{"):
        return None
    named: list[Named] = []
    at = 0
    while at < len(body):
        read, at = _DECODER.raw_decode(body, at)
        call = _read_call(read)
        if call is None:
            return None
        named.append(call)
        between = _BETWEEN.match(body, at)
        at = between.end() if between else at
    return text.removesuffix(answer), named


def _read_call(read: Any) -> Named | None:
    """Return the name and arguments of what may be a call."""
    if not isinstance(read, dict) or not _KEYS.issuperset(read) or not isinstance(read.get("name"), str):
        return None
    if ("arguments" in read) == ("parameters" in read):
        return None
    arguments = read.get("arguments", read.get("parameters"))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return (read["name"], arguments or {}) if isinstance(arguments, dict | None) else None
