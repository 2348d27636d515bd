"""Renderers, which turn messages into token ids: the only place where a conversation becomes tokens.

An agent never tokenises history again. The ids of earlier turns, as the model saw and sampled them, come with
each `Ask` in `held`, and only the new messages are rendered after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gem.content import Message, ToolCall, ToolSpec, check_pictures
from gem.record import Ask

READER = "a model that gets token ids"


class Renderer(Protocol):
    """A converter of one model's conversations to token ids.

    A renderer whose `knows_tools` is absent or false is never given tools or calls, and need not take them.
    """

    @property
    def knows_tools(self) -> bool:
        """Whether tools, calls and their results are rendered in the model's own form."""

    @property
    def vocab_hash(self) -> str:
        """A hash of the vocabulary and template; a checkpoint stores it and loads with no other."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer; the one that ended it is part of the answer's `token_ids`."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to and including the start of the next answer."""

    def delta(
        self, held: Sequence[int], fresh: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...]:
        """Return the ids that follow `held`: the close of a cut answer, `fresh`, the next answer's start.

        `held` ends with an answer as it was sampled. Nothing of it is rendered again.
        """

    def answer(self, text: str, calls: Sequence[ToolCall] = ()) -> tuple[int, ...]:
        """Return the ids of an answer that is given as text (a demonstration), with the id that ends it."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, without the ids that only end it."""


def render(renderer: Renderer, ask: Ask, *, tools: bool = True) -> tuple[int, ...]:
    """Return every id the model must see to answer `ask`; it extends ``ask.held`` where that is given.

    The tools of the ask are left out without `tools`, and where the renderer does not know tools.

    Raises:
        BadArgument: for a first question with a picture that no text describes.
    """
    offered = (ask.tools,) if tools and ask.tools and knows_tools(renderer) else ()
    fresh = ask.messages[len(ask.messages) - ask.fresh :] if ask.held else ask.messages
    check_pictures((message.content for message in fresh), READER, strict=not ask.turn)
    if ask.held:
        return (*ask.held, *renderer.delta(ask.held, fresh, *offered))
    return renderer.prompt(ask.messages, *offered)


def knows_tools(renderer: Renderer) -> bool:
    """Return whether a renderer has its own form for tools; one without this attribute has not."""
    return bool(getattr(renderer, "knows_tools", False))
