"""The wire format of the plain completions protocol: one prompt in, the text that follows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem.agents.outcomes import Said
from gem.agents.wire import (
    SEEDS,
    Chunks,
    Collector,
    Settings,
    adapt_messages,
    choice_of,
    join_pieces,
    log_probabilities,
    read_usage,
    small_strings,
    text_in,
    token_ids,
    word_in,
)
from gem.content import Message, check_pictures
from gem.record import Ask
from gem.tokens.renderer import Renderer

ANSWER_TOKENS = 1024
"""Token limit of an answer where none is set; without it, servers of this protocol stop after 16."""

SPEAKERS = {"system": "System", "user": "User", "assistant": "Assistant"}
TURN_OF_ANOTHER = ("\nUser:", "\nSystem:")
"""Texts that end an answer of a transcript: the model begins another speaker's turn."""


class Completions:
    """``POST /completions``, for servers and base models without a chat format.

    With a `renderer` the prompt is the ids from its chat template. Without one it is a transcript: each
    message as ``Speaker: text``, the speakers System, User and Assistant, an empty line between them, and
    ``Assistant:`` at the end. The answer ends where the model writes another speaker's name. A speaker's name
    inside a text also looks like a new turn in a transcript; a chat template avoids this.

    Tools are not sent as schemas: the environment's text says how to call them, and calls are text.
    """

    path = "/completions"
    name = "a completion"

    def __init__(self, renderer: Renderer | None = None) -> None:
        """Render prompts with `renderer`, or as transcripts."""
        self._renderer = renderer

    def request(self, ask: Ask, settings: Settings, limit: int | None) -> dict[str, Any]:
        """See WireFormat.request; BadArgument for a first question with a picture that no text describes."""
        contents = (message.content for message in ask.messages)
        check_pictures(contents, "a model over the completions API", strict=not ask.turn)
        messages = tuple(adapt_messages(ask.messages, False))
        prompt: str | list[int]
        prompt = transcript(messages) if self._renderer is None else list(self._renderer.prompt(messages))
        request: dict[str, Any] = {"model": settings.model, "prompt": prompt}
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        request["seed"] = ask.seed % SEEDS
        request["max_tokens"] = ANSWER_TOKENS if limit is None else limit
        if self._renderer is None:
            request["stop"] = list(TURN_OF_ANOTHER)
        if settings.token_ids:
            request |= {"return_token_ids": True, "logprobs": 1}
        if settings.stream:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return settings.complete(request, ask)

    def read(self, data: Any, ask: Ask) -> Said:
        """See WireFormat.read."""
        choice = choice_of(data)
        if isinstance(choice, Said):
            return choice
        text, end = text_in(choice.get("text")), word_in(choice.get("finish_reason"))
        ids, logprobs = token_ids(choice.get("token_ids")), choice.get("logprobs")
        if text is not None and self._renderer is None:
            for name in TURN_OF_ANOTHER:  # a server may not know `stop`
                text = text.partition(name)[0]
            text = text.strip()
        return Said(
            why=f"gave no answer (finish_reason {end!r})",
            text=text,
            end=end,
            usage=read_usage(data.get("usage")),
            prompt_ids=token_ids(choice.get("prompt_token_ids")),
            token_ids=ids,
            logprobs=_logprobs(logprobs, len(ids)),
            extra=small_strings(data),
        )

    def collector(self) -> Collector:
        """See WireFormat.collector."""
        return _Chunks()


def transcript(messages: Sequence[Message]) -> str:
    """Return a conversation as text that a model continues."""
    turns = [f"{SPEAKERS[each.role]}: {each.text}" for each in messages]
    return "\n\n".join((*turns, "Assistant:"))


def _logprobs(values: Any, count: int) -> tuple[float, ...] | None:
    numbers = values.get("token_logprobs") if isinstance(values, Mapping) else None
    if not isinstance(numbers, list):
        return None
    return log_probabilities([{"logprob": each} for each in numbers], count)


class _Chunks(Chunks):
    """Puts together the chunks of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self._text: list[str] = []

    def take_choice(self, choice: Mapping[str, Any]) -> None:
        if (text := text_in(choice.get("text"))) is not None:
            self._text.append(text)
            self._unnumbered |= text != "" and not choice.get("token_ids")
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, Mapping):
            self._extend("token_logprobs", logprobs.get("token_logprobs"))
        self._extend("token_ids", choice.get("token_ids"))
        self._keep_prompt(choice.get("prompt_token_ids"))
        self._choice.setdefault("finish_reason", None)

    def body(self) -> dict[str, Any]:
        if not self._choice:
            return self._body
        text = join_pieces(self._text) if self._text else None
        lists = self._lists | {"token_ids": self._find_token_ids()}
        choice = self._choice | {"text": text, "logprobs": self._lists} | lists
        return self._body | {"choices": [choice]}
