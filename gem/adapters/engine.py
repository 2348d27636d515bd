"""Shared by adapters of trainers: an agent of a framework's engine, token rewards, and calls that wait."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import fsum
from typing import Any, TypeVar

from gem.agents.base import BaseAgent
from gem.errors import NoVerdict, check_argument
from gem.estimators import turn_rewards
from gem.record import AgentInfo, Ask, Episode, Reply
from gem.tokens.renderer import Renderer, render
from gem.tokens.rows import Row
from gem.tokens.sampled_calls import read_answer

T = TypeVar("T")


class EngineAgent(BaseAgent):
    """An agent that renders the prompt, samples with `sample`, and parses the answer.

    Subclasses define `sample`. Nothing is tokenised twice: the reply holds the ids that the engine received
    and returned. An answer without a token, or without required log probabilities, is a failure of the
    engine: no verdict. The environment's tools are offered if the chat template supports tools.
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
            renderer: renders a conversation as tokens.
            model: the model's name, for the record.
            sampling: the sampling settings, for the record.
            prompt_tokens: the most tokens before the first answer of a row; None: any number.
            response_tokens: the most tokens of a row from the first answer on, including later observations.
            logprobs: whether an answer without log probabilities is a failure of the engine.

        Raises:
            BadArgument: for limits below 1.
        """
        for name, limit in (("prompt_tokens", prompt_tokens), ("response_tokens", response_tokens)):
            check_argument(name, limit, limit is None or limit >= 1, "1 or more, or None")
        self.renderer = renderer
        self.prompt_tokens, self.response_tokens, self.logprobs = prompt_tokens, response_tokens, logprobs
        self._model, self._sampling = model, dict(sampling or {})
        self._prompts: dict[str, int] = {}  # by episode: the tokens in front of its row's first answer

    @abstractmethod
    async def sample(self, ask: Ask, prompt_ids: tuple[int, ...], max_tokens: int | None) -> Reply:
        """Return the engine's continuation of the ids: `token_ids`, `logprobs`, and its other outputs.

        Args:
            ask: the request to answer; its tokens are rendered already.
            prompt_ids: the whole prompt.
            max_tokens: the most tokens of the answer; None: as many as the engine allows.

        Raises:
            NoVerdict: when the engine gave up.
        """

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        return AgentInfo(type(self).__name__, self._model, self._sampling, self.renderer.vocab_hash)

    def forget(self, episode: str) -> None:
        """Drop the data kept for an episode."""
        self._prompts.pop(episode, None)

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            NoVerdict: when the engine gave no usable answer.
        """
        prompt = render(self.renderer, ask)
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
        reply = await self.sample(ask, prompt, limit)
        if not reply.token_ids:
            raise NoVerdict("the engine returned an answer without a token.")
        if reply.logprobs is None and self.logprobs:
            raise NoVerdict("the engine returned an answer without log probabilities.")
        text, calls = read_answer(self.renderer, reply.token_ids, ask)
        finish = "stop" if reply.token_ids[-1] in self.renderer.stop_ids else "length"
        return replace(
            reply, text=text, prompt_ids=prompt, finish=finish, tool_calls=calls or reply.tool_calls
        )


def why_unscored(episode: Episode) -> str:
    """Return why an episode cannot be trained on: its error, or how it ended before the first answer."""
    error = episode.error
    return f"{error.boundary}: {error.type}: {error.message}" if error else f"it ended by {episode.stop}"


def token_rewards(episode: Episode, row: Row, *, alone: bool) -> list[float]:
    """Return the reward of each token of a row's completion, for a trainer that sums them per row.

    They sum to the episode's return in every row. With only its own turns' rewards, a row would be worth 0
    if the environment rewards only the last turn of the episode.

    Args:
        episode: an episode with a verdict.
        row: one of `gem.tokens.rows.rows(episode)`.
        alone: whether it is the only row. If so, each turn's reward is on its last token; else the whole
            return is on the row's last token.
    """
    response = row.split()[1]
    earned = [0.0] * len(response.ids)
    if alone:
        each = turn_rewards(episode)
        for turn, place in response.ends.items():
            earned[place] = each[turn]
    # Rewards before the first turn, or of turns without tokens here, are part of the return too.
    earned[-1] += episode.reward() - fsum(earned)
    return earned


async def run_call(waits: bool, work: Callable[[], T]) -> T:
    """Do what calls the environment; in a thread where that waits for something."""
    return await asyncio.to_thread(work) if waits else work()
