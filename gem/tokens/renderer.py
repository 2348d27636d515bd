"""Messages to token ids, and the delta of a turn: the one place where a conversation becomes tokens.

An agent never tokenises history again: the ids of earlier turns, as the model saw and sampled them, come
back with each `Ask` in `held`, and only what is new is rendered behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gem.content import Message
from gem.record import Ask


class Renderer(Protocol):
    """How one model's conversation looks in tokens."""

    @property
    def vocab_hash(self) -> str:
        """A hash of the vocabulary and template; checkpoints hold it and refuse another."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer; the one that did is part of the answer's `token_ids`."""
        ...

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to and with the start of the next answer."""
        ...

    def delta(self, held: Sequence[int], fresh: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids that follow `held`: the close of a cut answer, `fresh`, the next answer's start.

        `held` ends with an answer as it was sampled.
        """
        ...

    def answer(self, text: str) -> tuple[int, ...]:
        """Return the ids of an answer that is given as text (a demonstration), with the id that ends it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, without the ids that only end it."""
        ...


def render(renderer: Renderer, ask: Ask) -> tuple[int, ...]:
    """Return every id the model must see to answer `ask`; it extends ``ask.held`` where that is given."""
    if ask.held:
        fresh = ask.messages[len(ask.messages) - ask.fresh :]
        return (*ask.held, *renderer.delta(ask.held, fresh))
    return renderer.prompt(ask.messages)
