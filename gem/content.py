"""Types for what agents see: text, images, and messages made of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, Literal

from gem.errors import BadArgument

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: encoded bytes and their media type.

    `alt` is shown instead where only text is possible. It is empty where the surrounding text is enough, and
    a name in brackets where no text describes what the picture shows.
    """

    data: bytes
    mime: str = "image/png"
    alt: str = "[image]"

    @property
    def described(self) -> bool:
        """Whether text stands for the picture: its `alt`, or the text around it."""
        return not _NAMED.fullmatch(self.alt)


_NAMED = re.compile(r"\s*\[[^\[\]\n]*[^\W\d_]{3}[^\[\]\n]*\]\s*")  # a row of a board has no word


Part = Text | Image
Obs = str | tuple[Part, ...]
"""An observation: plain text, or parts where pictures are mixed in."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of a tool: `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call: `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=dict)


def written_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools as plain data, in the form of ``info["tools"]`` of a reset."""
    return [
        {"name": tool.name, "description": tool.description, "schema": dict(tool.schema)} for tool in tools
    ]


def tools_in(info: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    """Return the tools in the info of a reset or step; () where ``tools`` has another meaning there."""
    written = info.get("tools")
    if not written or not isinstance(written, list | tuple):
        return ()
    tools = []
    for tool in written:
        if not isinstance(tool, Mapping) or set(tool) != {"name", "description", "schema"}:
            return ()
        tools.append(ToolSpec(**tool))
    return tuple(tools)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    `tool_calls`: the calls that an assistant made beside its text. `tool_call_id`: the call that a ``tool``
    message answers. `name`: the speaker, where several share one role. `reasoning`: the model's reasoning
    before its answer, where the server returns it separately.
    """

    role: Role
    content: Obs
    _: KW_ONLY
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        """The message as plain text; pictures appear as their `alt`."""
        return text_of(self.content)


def size_of(message: Message) -> int:
    """Return about how many bytes a message holds: its text, pictures, reasoning and calls."""
    parts = (message.content,) if isinstance(message.content, str) else message.content
    texts = [
        part if isinstance(part, str) else part.data if isinstance(part, Image) else part.text
        for part in parts
    ]
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
    return sum(map(len, (*texts, *calls, message.reasoning or "")))


def text_of(obs: Obs) -> str:
    """Return an observation as plain text; pictures appear as their `alt`."""
    obs = check_obs(obs)
    if isinstance(obs, str):
        return obs
    texts = (part.text if isinstance(part, Text) else part.alt for part in obs)
    return "\n".join(text for text in texts if text)


def check_pictures(contents: Iterable[Obs], reader: str, strict: bool = True) -> None:
    """Check what a reader of text alone gets: pictures appear to it as their `alt`, of which it warns once.

    Raises:
        BadArgument: with `strict`, for a picture that no text describes.
    """
    several = (content for content in contents if not isinstance(content, str))
    pictures = [part for content in several for part in content if isinstance(part, Image)]
    lacking = [picture.alt for picture in pictures if not picture.described]
    if lacking and strict:
        raise BadArgument(
            f"{reader} reads text alone, and no text describes the picture {lacking[0]!r}; accepted: a model "
            "that sees pictures, over the chat or responses API of a server."
        )
    if pictures:
        _warn_of_pictures(reader)


@cache
def _warn_of_pictures(reader: str) -> None:
    warnings.warn(
        f"{reader} reads text alone: it gets the texts of pictures (`Image.alt`) in their place, and its "
        "score is one of text.",
        stacklevel=4,
    )


def printable(obs: Obs) -> str:
    """Return an observation as text that is safe to print: control characters are escaped."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text_of(obs)
    )


def quote_formula(cell: Any) -> Any:
    """Return a cell, with an apostrophe before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


_FORMULA = re.compile(r"[=@\t\r]|[+-](?![0-9.]+$)")


def join(pieces: Iterable[Obs], separator: str = "\n") -> Obs:
    """Join observations into one; the result is text when every piece is text."""
    kept = [piece for piece in pieces if piece]
    texts = [piece for piece in kept if isinstance(piece, str)]
    if len(texts) == len(kept):
        return separator.join(texts)
    parts: list[Part] = []
    for piece in kept:
        parts.extend((Text(piece),) if isinstance(piece, str) else piece)
    return tuple(parts)


def check_obs(obs: object) -> Obs:
    """Return `obs` as an observation; a list of parts becomes a tuple.

    Raises:
        BadArgument: when it is neither text nor a list of Text and Image parts; it names the wrong part.
    """
    if isinstance(obs, str):
        return obs
    wrong, what, accepted = obs, "observation", "text, or a list of gem.Text('...') and gem.Image(png)"
    if isinstance(obs, list | tuple):
        at = next((k for k, part in enumerate(obs) if not isinstance(part, Text | Image)), None)
        if at is None:
            return tuple(obs)
        wrong, what, accepted = obs[at], f"part {at} of the observation", "gem.Text('...') or gem.Image(png)"
    kind, cure = type(wrong).__name__, ""
    if type(wrong).__module__.startswith("PIL."):
        kind, cure = f"Pillow's {kind}", " image.save(file, 'PNG') writes the bytes that gem.Image takes."
    raise BadArgument(f"{what} is {kind}; it must be {accepted}.{cure}")
