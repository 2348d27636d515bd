"""Any Hugging Face tokenizer's chat template as a Renderer.

The delta of a turn is cut out of a fixed two-message conversation. History is never rendered again, so
templates that change earlier text (strip its thinking, drop its whitespace) cannot change held tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from gem.content import Message
from gem.errors import BadArgument, missing_extra

try:
    from jinja2 import TemplateError
except ImportError:
    raise missing_extra("rendering chat templates", "jinja2", "train") from None

_ANSWER = "ANSWER-8c1e"  # found again in what the template makes of the base
_BASE = (Message("user", "x"), Message("assistant", _ANSWER))
_CUT = "\ufdd0"  # a noncharacter: no text holds it


class ChatTemplateRenderer:
    """Renders by a tokenizer's chat template.

    Text that spells a control token (``<|im_end|>`` in an observation) is encoded as text: what an
    environment or a model says cannot close a turn or open one. Pictures appear as their `alt`.
    """

    def __init__(self, tokenizer: Any, **options: Any) -> None:
        """Render with `tokenizer`, a transformers tokenizer; `options` go to its template.

        An option is what the template knows, such as ``enable_thinking=False``.

        Raises:
            BadArgument: for a tokenizer without chat template, or with which no answer ever ends.
        """
        if not tokenizer.chat_template:
            raise BadArgument(
                f"{type(tokenizer).__name__} has no chat template; set tokenizer.chat_template."
            )
        self.tokenizer = tokenizer
        self.options = options
        special = {token.content: i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        names = "|".join(map(re.escape, special))
        self._control = re.compile(f"(?=(?:{names})).", re.DOTALL) if names else None
        close = self._tail((Message("user", "x"),))[0]
        self.stop_ids = frozenset(special.values()) & {close, tokenizer.eos_token_id}
        self._end = close if close in self.stop_ids else tokenizer.eos_token_id
        if not self.stop_ids:
            raise BadArgument(
                f"{type(tokenizer).__name__} has no end-of-sequence token, and its chat template closes an "
                "answer by text; set tokenizer.eos_token."
            )

    @cached_property
    def vocab_hash(self) -> str:
        """A hash of the vocabulary, the template and its options."""
        vocabulary = sorted((i, token) for token, i in self.tokenizer.get_vocab().items())
        whole = repr((vocabulary, self.tokenizer.chat_template, sorted(self.options.items())))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to and with the start of the next answer.

        Raises:
            BadArgument: when the template refuses the messages.
        """
        return self._encode(self._text(messages))

    def delta(self, held: Sequence[int], fresh: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids that follow `held`: the close of its answer, `fresh`, the next answer's start.

        Where the answer ended with the id that the close begins with, that id is not repeated.

        Raises:
            BadArgument: when the template refuses the messages.
        """
        tail = self._tail(fresh)
        ended = bool(held) and held[-1] in self.stop_ids and held[-1] == tail[0]
        return tail[1:] if ended else tail

    def answer(self, text: str) -> tuple[int, ...]:
        """Return the ids of an answer that is given as text, with the id that ends it."""
        return (*self._encode(self._guard(text)), self._end)

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, without the id that ended it."""
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        text: str = self.tokenizer.decode(list(kept), clean_up_tokenization_spaces=False)
        return text

    def _tail(self, fresh: Sequence[Message]) -> tuple[int, ...]:
        """Return what the template puts behind an assistant's text when `fresh` follows."""
        _, found, tail = self._text((*_BASE, *fresh)).partition(_ANSWER)
        if not found:
            raise BadArgument("the chat template does not show what the assistant said before.")
        return self._encode(tail)

    def _text(self, messages: Sequence[Message]) -> str:
        chat = [{"role": message.role, "content": self._guard(message.text)} for message in messages]
        try:
            text: str = self.tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, tokenize=False, **self.options
            )
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages)
            raise BadArgument(f"the chat template refuses messages of the roles {roles}: {error}") from error
        return text

    def _guard(self, text: str) -> str:
        """Mark where control tokens are spelt, and replace what no tokenizer takes."""
        text = text.replace(_CUT, "\ufffd").encode("utf-8", "replace").decode()
        return self._control.sub(rf"\g<0>{_CUT}", text) if self._control else text

    def _encode(self, text: str) -> tuple[int, ...]:
        # Cut inside its name, a control token is two pieces of plain text.
        pieces = (self.tokenizer.encode(piece, add_special_tokens=False) for piece in text.split(_CUT))
        return tuple(token for piece in pieces for token in piece)


class Mismatch(NamedTuple):
    """A conversation whose held tokens and whose whole re-rendering differ; both as text and ids."""

    answer: str
    held: str
    rendered: str
    held_ids: tuple[int, ...]
    rendered_ids: tuple[int, ...]


def certify(
    renderer: ChatTemplateRenderer,
    answers: Sequence[str] = ("\\boxed{7}", "I guess 12.", "<think>\nHigher.\n</think>\n\n\\boxed{9}"),
) -> Mismatch | None:
    """Return a counter-example to the template being append-only, or None when there is none.

    For each answer: prompt, answer, delta, answer, delta must equal the rendering of the whole conversation.
    Where they differ, training here is sound all the same, as nothing is rendered again; but a server that
    is sent messages would show the model other tokens than the ones it is trained on here.
    """
    for answer in answers:
        chat = [Message("user", "Guess.")]
        held = renderer.prompt(chat)
        for reply in ("Higher.", "Lower."):
            chat += [Message("assistant", answer), Message("user", reply)]
            held += renderer.answer(answer)
            held += renderer.delta(held, chat[-1:])
        rendered = renderer.prompt(chat)
        if held != rendered:
            return Mismatch(answer, renderer.decode(held), renderer.decode(rendered), held, rendered)
    return None
