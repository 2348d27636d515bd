"""The parser of tool calls in model text: XML tags, fenced code, JSON function calls.

Model output is hostile: parsing is linear in the length of the text and never raises. A call that cannot be
parsed is returned with an error text for the agent.
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from gem import parsing
from gem.content import ToolCall as NativeCall

JSON_TAG = "tool_call"
"""The tag around a JSON function call."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call in an action: the tool's name and its keyword arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A call found in an action, from `start` to `end`.

    `call` is None if it cannot be parsed; `error` then says why.
    """

    call: ToolCall | None
    error: str
    start: int
    end: int


class Callable(Protocol):
    """The attributes of a tool that define how its calls are written."""

    @property
    def name(self) -> str:
        """The name that a JSON call uses."""

    @property
    def tag(self) -> str:
        """The XML tag whose content is the first argument; empty for none."""

    @property
    def fences(self) -> Sequence[str]:
        """The languages of fenced code blocks whose content is the first argument."""

    @property
    def first_argument(self) -> str:
        """The name of the first argument."""


def marks_of(tool: Callable) -> list[str]:
    """Return the tag and the fences of a tool as `Env.answer_marks` writes them."""
    return [f"<{tool.tag}>"] * bool(tool.tag) + [f"```{label}" for label in tool.fences]


def find(text: str, tools: Sequence[Callable], answer_marks: Collection[str] = ()) -> list[Found]:
    """Return the calls in `text`, in order.

    It reads, for each tool, ``<tag>...</tag>`` and fenced code of its languages, whose content is the first
    argument; and for every tool ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` or
    ``<tool_call><tool_name>...</tool_name><arguments>{...}</arguments></tool_call>``. An unclosed call is
    ignored; of nested calls the outer one counts. What `answer_marks` begin, as ``"<sql>"`` or
    ``"```sql"``, is no call, and contains none. Calls in closed thinking are drafts, and are left out
    (`gem.parsing.find_thinking`).
    """
    forms = {mark: tool for tool in tools for mark in marks_of(tool)} | dict.fromkeys(answer_marks)
    tags = [mark[1:-1] for mark in forms if mark[0] == "<"]
    spans: list[tuple[int, int, str, str]] = []
    for start, end, label, body in parsing.fences(text):
        if (mark := f"```{label}") in forms:
            spans.append((start, end, mark, body))
    for start, end, tag, body in _find_tags(text, (*tags, JSON_TAG)):
        spans.append((start, end, f"<{tag}>", body if tag == JSON_TAG else _content(body)))
    spans.sort(key=lambda span: span[0])
    drafts = list(parsing.find_thinking(text, spans))
    matches: list[Found] = []
    last = 0
    for start, end, mark, body in spans:
        draft = bisect.bisect_right(drafts, start, key=lambda draft: draft[0]) - 1
        if start < last or (draft >= 0 and start < drafts[draft][1]):
            continue
        last = end
        if mark == f"<{JSON_TAG}>":
            matches.append(_function_call(body, start, end))
        elif tool := forms[mark]:
            matches.append(Found(ToolCall(tool.name, {tool.first_argument: body}), "", start, end))
    return matches


def write(text: str, native: Sequence[NativeCall]) -> str:
    """Return the action that a text agent would write: `text`, then each native call in its tag.

    `find` reads the same calls from it, whatever the arguments contain: text in them that looks like a tag is
    escaped, and arguments that are not a JSON object stay unreadable.
    """
    return "\n".join([*filter(None, (text,)), *map(_write_call, native)])


def _write_call(call: NativeCall) -> str:
    try:
        given = _read_json(call.arguments.strip() or "{}")
        body = _call_body(call.name, given if isinstance(given, dict) else call.arguments)
    except (ValueError, RecursionError):
        body = _call_body(call.name, call.arguments)
    return f"<{JSON_TAG}>{_TAG_LIKE.sub(_escape, body)}</{JSON_TAG}>"


def _read_json(text: str) -> Any:
    """Return a JSON value; its numbers are numbers: a comparison with NaN in a tool would never hold."""
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_read_float)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"JSON has no {text}")


def _read_float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:40]} is beyond any number")
    return value


def _call_body(name: str, arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


_TAG_LIKE = re.compile(r"<(?=[/|a-zA-Z])|◁")


def _escape(sign: re.Match[str]) -> str:
    return f"\\u{ord(sign[0]):04x}"


def _function_call(body: str, start: int, end: int) -> Found:
    try:
        if "<tool_name>" in body:
            name = parsing.tagged(body, "tool_name")
            arguments = _read_json(parsing.tagged(body, "arguments") or "{}")
        else:
            call = _read_json(parsing.code(body) or body)
            name = call["name"]
            arguments = call.get("arguments", call.get("parameters"))
            if isinstance(arguments, str):
                arguments = _read_json(arguments)
    except (ValueError, RecursionError) as error:
        return Found(None, f"this tool call is no JSON: {str(error)[:120]}.", start, end)
    except (KeyError, TypeError, AttributeError):
        return Found(None, 'a tool call is a JSON object {"name": ..., "arguments": {...}}.', start, end)
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return Found(None, "a tool call's name is text, and its arguments are a JSON object.", start, end)
    return Found(ToolCall(name, arguments or {}), "", start, end)


def _content(body: str) -> str:
    """Return the content of a tag; fenced code without its fence and without common indentation."""
    if body.lstrip().startswith(("```", "~~~")):
        return parsing.code(body) or body
    plain = textwrap.dedent(body.strip("\n")).rstrip()
    return plain.lstrip() if plain[:1].isspace() else plain


def _find_tags(text: str, tags: tuple[str, ...]) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, tag and content of each closed tag; the nearest opening tag counts."""
    opened: dict[str, tuple[int, int]] = {}
    for token in _tokens(tags).finditer(text):
        closing, tag = token.groups()
        if not closing:
            opened[tag] = token.span()
        elif tag in opened:
            start, inside = opened.pop(tag)
            yield start, token.end(), tag, text[inside : token.start()]


@functools.lru_cache(maxsize=64)
def _tokens(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"<(/?)({'|'.join(map(re.escape, tags))})>")
