"""EngineAgent: answers through the inference engine that a framework owns; token ids in, token ids out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gem.agents.base import BaseAgent
from gem.errors import BadArgument, NoVerdict
from gem.record import AgentInfo, Ask, Episode, Reply
from gem.tokens.renderer import Renderer, knows_tools, render
from gem.tokens.sampled_calls import taken


class EngineAgent(BaseAgent):
    """Renders what is asked, has `sample` continue it, and reads the answer; subclasses define `sample`.

    Nothing is tokenised twice: the ids that the engine was given and gave stand in the reply. An answer
    without a token, or without log probabilities where they are wanted, is the engine's doing: no verdict.
    The environment's tools are offered where the chat template knows tools.
    """

    def __init__(
        self,
        renderer: Renderer,
        *,
        model: str | None = None,
        sampling: Mapping[str, Any] | None = None,
        prompt_tokens: int | None = None,
        response_tokens: int | None = None,
        logprobs: bool = True,
    ) -> None:
        """Answer in tokens of `renderer`.

        Args:
            renderer: how a conversation looks in tokens.
            model: its name, for the record.
            sampling: the settings of sampling, for the record.
            prompt_tokens: the most tokens in front of the first answer of a row; None: any number.
            response_tokens: the most tokens of a row from there on, those that are shown included.
            logprobs: whether an answer without log probabilities is a failure of the engine.

        Raises:
            BadArgument: for limits below 1.
        """
        for name, limit in (("prompt_tokens", prompt_tokens), ("response_tokens", response_tokens)):
            if limit is not None and limit < 1:
                raise BadArgument(f"{name} is {limit}; accepted: 1 or more, or None.")
        self.renderer = renderer
        self.prompt_tokens, self.response_tokens, self.logprobs = prompt_tokens, response_tokens, logprobs
        self._model, self._sampling = model, dict(sampling or {})
        self._native = knows_tools(renderer)
        self._prompts: dict[str, int] = {}  # by episode: the tokens in front of its row's first answer

    @abstractmethod
    async def sample(self, ask: Ask, prompt_ids: tuple[int, ...], max_tokens: int | None) -> Reply:
        """Return what the engine sampled behind the ids: `token_ids`, `logprobs`, and what else it said.

        Args:
            ask: what is answered; its tokens are rendered already.
            prompt_ids: every token that the model is to see.
            max_tokens: the most tokens of the answer; None: as many as the engine allows.

        Raises:
            NoVerdict: when the engine gave up.
        """

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        return AgentInfo(type(self).__name__, self._model, self._sampling, self.renderer.vocab_hash)

    def forget(self, episode: str) -> None:
        """Drop what is kept for an episode."""
        self._prompts.pop(episode, None)

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            NoVerdict: when the engine gave no usable answer.
        """
        prompt = render(self.renderer, ask, tools=self._native)
        if not ask.held or ask.episode not in self._prompts:
            self._prompts[ask.episode] = len(prompt)
        begun = self._prompts[ask.episode]
        room = [ask.max_tokens]
        if ask.context is not None:
            room.append(ask.context - len(prompt))
        if self.response_tokens is not None:
            room.append(self.response_tokens - (len(prompt) - begun))
        limit = min((each for each in room if each is not None), default=None)
        if (limit is not None and limit < 1) or (self.prompt_tokens or begun) < begun:
            return Reply("", prompt, finish="context", policy_version=self.policy_version)
        said = await self.sample(ask, prompt, limit)
        if not said.token_ids:
            raise NoVerdict("the engine gave an answer without a token.")
        if said.logprobs is None and self.logprobs:
            raise NoVerdict("the engine gave an answer without log probabilities.")
        text, calls = self.renderer.decode(said.token_ids), said.tool_calls
        if self._native and ask.tools:
            text, calls = taken(text, ask.turn)
        ended = said.token_ids[-1] in self.renderer.stop_ids
        finish = "stop" if ended else "length"
        return replace(said, text=text, prompt_ids=prompt, finish=finish, tool_calls=calls)


def why_unscored(episode: Episode) -> str:
    """Return why nothing is learned from an episode: what broke, or how it ended before the first answer."""
    error = episode.error
    return f"{error.boundary}: {error.type}: {error.message}" if error else f"it ended by {episode.stop}"
