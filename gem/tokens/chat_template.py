"""A renderer for the chat template of any Hugging Face tokenizer.

The ids that a turn adds are cut out of a fixed two-message conversation. History is never rendered again, so
templates that change earlier text (strip its thinking, drop its whitespace) cannot change held tokens.

A template that knows tools renders them too: the offered tools, an assistant's calls, and the results, as
messages of the role ``tool``. With any other template, offered tools are left out (the environment's own text
explains how to call them), calls are text in ``<tool_call>`` tags, and results are user messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

from gem.content import Message, Obs, ToolCall, ToolSpec, join
from gem.errors import BadArgument, needs_extra
from gem.tools.base_tool import openai_schema
from gem.tools.calls import write

with needs_extra("rendering chat templates", "jinja2", "train"):
    from jinja2 import TemplateError

_CUT = "\ufdd0"  # a noncharacter: no text holds it, because those that do lose it first
_ANSWER = "ANSWER-\ufdd1"  # found again in what the template makes of the base; likewise
_ENDS_TOO = frozenset(("<|eom_id|>",))
"""Further control tokens that can end an answer instead of the template's own: Llama's, after a tool call."""

_USER = Message("user", "x")
_BASE = (_USER, Message("assistant", _ANSWER))
_NOBODYS = str.maketrans({"\ufdd0": "\ufffd", "\ufdd1": "\ufffd"})

_PROBE = ToolSpec("probe_5f1d", "offered_5f1d", {"type": "object", "properties": {"q": {"type": "string"}}})
_PROBED = (
    _USER,
    Message("assistant", "", tool_calls=(ToolCall("probe5f1d", _PROBE.name, '{"q": "asked_5f1d"}'),)),
    Message("tool", "told_5f1d", tool_call_id="probe5f1d", name=_PROBE.name),
)

Style: TypeAlias = Literal["objects", "strings", "texts"]
_STYLES: tuple[Style, ...] = ("objects", "strings", "texts")
"""How a template gets calls: arguments as an object, as most want them; as a string; or the whole as text."""


class ChatTemplateRenderer:
    """A renderer that uses a tokenizer's chat template.

    Text that spells a control token (``<|im_end|>`` in an observation) is encoded as text: what an
    environment or a model says cannot close a turn or open one. Pictures appear as their `alt`.
    """

    def __init__(self, tokenizer: Any, **options: Any) -> None:
        """Render with `tokenizer`, a transformers tokenizer; `options` go to its template.

        Options are variables of the template, such as ``enable_thinking=False``.

        Raises:
            BadArgument: for a tokenizer without chat template, or without a token that ends an answer.
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
        close = self._tail((_USER,))[0]
        ends = frozenset(special.values()) & {close, tokenizer.eos_token_id}
        self._end = close if close in ends else tokenizer.eos_token_id
        self._ends_too = frozenset(i for token, i in special.items() if token in _ENDS_TOO)
        self.stop_ids = ends | self._ends_too
        if not ends:
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

    @cached_property
    def knows_tools(self) -> bool:
        """Whether the template renders offered tools, calls and results."""
        try:
            text = self._text_of_calls(_PROBED, (_PROBE,))
        except BadArgument:
            return False
        return all(mark in text for mark in (_PROBE.description, "asked_5f1d", "told_5f1d"))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Return the ids of a whole conversation, up to and including the start of the next answer.

        Raises:
            BadArgument: when the template refuses the messages.
        """
        return self._encode(self._text(messages, tools))

    def delta(
        self, held: Sequence[int], fresh: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...]:
        """Return the ids that follow `held`: the close of its answer, `fresh`, the next answer's start.

        Where the answer ended with the first id of its close, that id is not repeated. It is not added either
        after another id that ends an answer in its place.

        Raises:
            BadArgument: when the template refuses the messages.
        """
        tail = self._tail(fresh, tools)
        ended = bool(held) and held[-1] in ({tail[0]} & self.stop_ids) | self._ends_too
        return tail[1:] if ended else tail

    def answer(self, text: str, calls: Sequence[ToolCall] = ()) -> tuple[int, ...]:
        """Return the ids of an answer that is given as text, with the id that ends it.

        Calls are written as the template writes them, or in ``<tool_call>`` tags where it does not.
        """
        body = self._write_calls(text, calls) if calls else None
        if body is None:
            body = self._guard(write(text, calls) if calls else text)
        return (*self._encode(body), self._end)

    def decode(self, ids: Sequence[int]) -> str:
        """Return an answer's text, without the id that ended it."""
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        text: str = self.tokenizer.decode(list(kept), clean_up_tokenization_spaces=False)
        return text

    def _tail(self, fresh: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Return what the template puts behind an assistant's text when `fresh` follows."""
        try:
            _, separator, tail = self._text((*_BASE, *fresh), tools).partition(_ANSWER)
        except BadArgument:
            if not any(message.role == "tool" for message in fresh):
                raise
            return self._encode(self._tail_of_calls(fresh, tools))
        if not separator:
            raise BadArgument("the chat template does not show earlier messages of the assistant.")
        return self._encode(tail)

    def _tail_of_calls(self, fresh: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """Return the same for a template that takes results behind calls alone."""
        made = [
            ToolCall(message.tool_call_id or "", message.name or "", "{}")
            for message in fresh
            if message.role == "tool"
        ]
        called = (_USER, Message("assistant", "", tool_calls=tuple(made)))
        before = self._text(called, tools, start=False)
        after = self._text((*called, *fresh), tools)
        _, separator, close = self._text(_BASE, tools, start=False).partition(_ANSWER)
        if not separator or not before.endswith(close) or not after.startswith(before):
            raise BadArgument("the chat template changes a call when its result follows.")
        return close + after[len(before) :]

    def _write_calls(self, text: str, calls: Sequence[ToolCall]) -> str | None:
        """Return an answer with calls as the template writes it; None where this cannot be determined."""
        if not self.knows_tools:
            return None
        message = Message("assistant", text, tool_calls=tuple(calls))
        try:
            begun = self._text((_USER,), (_PROBE,))
            whole = self._text((_USER, message), (_PROBE,), start=False)
            _, separator, close = self._text(_BASE, (_PROBE,), start=False).partition(_ANSWER)
        except BadArgument:
            return None
        if not separator or not whole.startswith(begun) or not whole.endswith(close):
            return None
        return whole[len(begun) : len(whole) - len(close)]

    def _text(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), start: bool = True) -> str:
        """Return a conversation as text; with `start`, up to and with the start of the next answer."""
        if not any(message.tool_calls or message.role == "tool" for message in messages):
            return self._template(messages, tools if tools and self.knows_tools else (), start)
        if not self.knows_tools:
            return self._template(_as_text(messages), (), start)
        return self._text_of_calls(messages, tools, start)

    def _text_of_calls(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], start: bool = True
    ) -> str:
        """Return a conversation with calls as text, in the first style of calls that the template takes."""
        refused: BadArgument | None = None
        for style in _STYLES:
            try:
                return self._template(messages, tools, start, style)
            except BadArgument as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _entry(self, message: Message, style: Style) -> dict[str, Any]:
        """Return a message as templates take it."""
        if message is _BASE[1]:
            return {"role": message.role, "content": _ANSWER}
        if not message.tool_calls or style == "texts":
            text = write(message.text, message.tool_calls) if message.tool_calls else message.text
            entry: dict[str, Any] = {"role": message.role, "content": self._guard(text)}
            if message.role == "tool":
                entry["tool_call_id"] = self._guard(message.tool_call_id or "")
                entry["name"] = self._guard(message.name or "")
            return entry
        made = [
            {
                "id": self._guard(call.id),
                "type": "function",
                "function": {
                    "name": self._guard(call.name),
                    "arguments": self._object(call.arguments)
                    if style == "objects"
                    else self._guard(call.arguments or "{}"),
                },
            }
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": self._guard(message.text), "tool_calls": made}

    def _object(self, arguments: str) -> Any:
        """Return arguments as an object; as the text that they are, where they are none."""
        try:
            read = json.loads(arguments.strip() or "{}")
        except (ValueError, RecursionError):
            read = None
        return self._guard_all(read) if isinstance(read, dict) else self._guard(arguments)

    def _guard_all(self, value: Any) -> Any:
        """Return plain data with every text in it guarded."""
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, Mapping):
            return {self._guard(str(key)): self._guard_all(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard_all(each) for each in value]
        return value

    def _template(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        start: bool = True,
        style: Style = "objects",
    ) -> str:
        """Apply the template."""
        try:
            chat = [self._entry(message, style) for message in messages]
            text: str = self.tokenizer.apply_chat_template(
                chat,
                tools=[self._guard_all(openai_schema(tool)) for tool in tools] or None,
                add_generation_prompt=start,
                tokenize=False,
                **self.options,
            )
        except (TemplateError, TypeError, ValueError, RecursionError) as error:
            roles = ", ".join(message.role for message in messages)
            raise BadArgument(f"the chat template refuses messages of the roles {roles}: {error}") from error
        return text

    def _guard(self, text: str) -> str:
        """Mark where control tokens are spelt, and replace what no tokenizer takes."""
        text = text.translate(_NOBODYS).encode("utf-8", "replace").decode()
        return self._control.sub(rf"\g<0>{_CUT}", text) if self._control else text

    def _encode(self, text: str) -> tuple[int, ...]:
        # Cut inside its name, a control token is two pieces of plain text.
        pieces = (self.tokenizer.encode(piece, add_special_tokens=False) for piece in text.split(_CUT))
        return tuple(token for piece in pieces for token in piece)


class Mismatch(NamedTuple):
    """A conversation whose held tokens differ from a rendering of the whole; both as text and ids."""

    answer: str
    held: str
    rendered: str
    held_ids: tuple[int, ...]
    rendered_ids: tuple[int, ...]


def certify(
    renderer: ChatTemplateRenderer,
    answers: Sequence[str] = ("\\boxed{7}", "I guess 12.", "<think>\nHigher.\n</think>\n\n\\boxed{9}"),
) -> Mismatch | None:
    """Check that the template is append-only; return a counter-example, or None when there is none.

    For each answer: prompt, answer, delta, answer, delta must equal the rendering of the whole conversation;
    where the template knows tools, also with a call as the first answer and its result as what follows. Where
    they differ, training here is correct all the same, as nothing is rendered again. But a server that is
    sent messages would show the model other tokens than those it is trained on here.
    """
    for answer in answers:
        plain = (Message("assistant", answer), Message("user", "Higher."))
        mismatch = _differs(renderer, answer, (*plain, plain[0], Message("user", "Lower.")), ())
        if mismatch is not None:
            return mismatch
    if not renderer.knows_tools:
        return None
    called = (Message("assistant", "", tool_calls=_PROBED[1].tool_calls), _PROBED[2])
    plain = (Message("assistant", answers[0]), Message("user", "Lower."))
    written = write("", called[0].tool_calls)
    return _differs(renderer, written, (*called, *plain), (_PROBE,))


def _differs(
    renderer: ChatTemplateRenderer, answer: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> Mismatch | None:
    """Return how the tokens that are held over a conversation differ from those of the whole."""
    chat = [Message("user", "Guess.")]
    ids = renderer.prompt(chat, tools)
    for message in messages:
        if message.role == "assistant":
            ids += renderer.answer(message.text, message.tool_calls)
        else:
            ids += renderer.delta(ids, [message], tools)
        chat.append(message)
    rendered = renderer.prompt(chat, tools)
    if ids == rendered:
        return None
    return Mismatch(answer, renderer.decode(ids), renderer.decode(rendered), ids, rendered)


def _as_text(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation without calls and results: calls as text, the results of a turn as the user's."""
    plain: list[Message] = []
    results: list[Obs] = []
    for message in (*messages, None):
        if message is not None and message.role == "tool":
            results.append(message.content)
            continue
        if results:
            plain.append(Message("user", join(results)))
            results = []
        if message is not None and message.tool_calls:
            plain.append(Message(message.role, write(message.text, message.tool_calls)))
        elif message is not None:
            plain.append(message)
    return plain
