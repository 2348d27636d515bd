"""Train with Oat on gem's environments: turn episodes into Oat's multi-turn transitions, one per turn.

A turn is the unit of Oat's multi-turn learner: each has its prompt and answer as token ids, its own reward
and, from the learner, its own advantage. So rewards are dense, and conversations need not be append-only. An
episode without a verdict is left out, and counted. Pictures appear as their `alt`.

`VllmAgent` samples from the engine of an Oat actor. See `examples/researcher/oat_actor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gem.agents.base import BaseAgent
from gem.content import text_of
from gem.errors import MissingExtra
from gem.evals.results import find_successes_by_env
from gem.record import Ask, Episode, Reply, StopReason
from gem.tokens.renderer import Renderer, render
from gem.tokens.sampled_calls import read_answer

try:
    from oat.types import Transition
except ImportError as error:
    raise MissingExtra(
        "Oat's transitions need the oat-llm package, which declares Python below 3.11: "
        "pip install --no-deps --ignore-requires-python oat-llm"
    ) from error


class VllmAgent(BaseAgent):
    """An agent that samples from vLLM in batches; token ids go in, ids and log probabilities come out."""

    def __init__(
        self,
        generate: Callable[[list[list[int]], list[Any]], Sequence[Any]],
        sampling: Any,
        renderer: Renderer,
        context: int,
    ) -> None:
        """Sample with `generate`.

        Args:
            generate: the method of an Oat actor, or vLLM's own; it gets prompts and their sampling settings.
            sampling: vLLM's SamplingParams, with logprobs; each request gets a copy with its seed and limits.
            renderer: renders messages as token ids.
            context: the most tokens of prompt and answer together.
        """
        self.generate, self.sampling, self.renderer, self.context = generate, sampling, renderer, context

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of requests, in order."""
        prompts = [render(self.renderer, ask) for ask in asks]
        replies = [Reply("", prompt, finish="context") for prompt in prompts]
        rooms = [self._room(ask, len(prompt)) for ask, prompt in zip(asks, prompts, strict=True)]
        fitting = [place for place, room in enumerate(rooms) if room > 0]
        params = [self._params(asks[place], rooms[place]) for place in fitting]
        if fitting:
            outputs = self.generate([list(prompts[place]) for place in fitting], params)
            for place, output in zip(fitting, outputs, strict=True):
                replies[place] = self._reply(asks[place], prompts[place], output.outputs[0])
        return replies

    def _room(self, ask: Ask, prompt: int) -> int:
        limits: list[int | None] = [self.sampling.max_tokens, ask.max_tokens, self.context - prompt]
        limits += [] if ask.context is None else [ask.context - prompt]
        return min(limit for limit in limits if limit is not None)

    def _params(self, ask: Ask, room: int) -> Any:
        params = self.sampling.clone()
        params.max_tokens, params.seed = room, ask.seed
        params.stop_token_ids = sorted(self.renderer.stop_ids)
        return params

    def _reply(self, ask: Ask, prompt: tuple[int, ...], output: Any) -> Reply:
        ids = tuple(output.token_ids)
        logprobs = tuple(at[token].logprob for at, token in zip(output.logprobs, ids, strict=True))
        text, calls = read_answer(self.renderer, ids, ask)
        finish = "length" if output.finish_reason == "length" else "stop"
        return Reply(text, prompt, ids, logprobs, finish, tool_calls=calls)


def transitions(episode: Episode, decode: Callable[[Sequence[int]], str]) -> list[Transition]:
    """Return the turns of an episode that has a verdict; `decode` turns ids into text, for Oat's logs.

    The last turn is marked done, however the episode ended: Oat's learner does not bootstrap after
    truncation.
    """
    turns = episode.turns
    made = []
    for turn in turns:
        prompt, response = list(turn.prompt_ids), list(turn.token_ids)
        readable = not (turn is turns[-1] and episode.stop is StopReason.UNREADABLE)
        made.append(
            Transition(
                obs=text_of(turn.observation),
                action=turn.action or "",
                rewards=turn.reward or 0.0,
                done=turn is turns[-1],
                prompt=decode(prompt),
                prompt_ids=prompt,
                response=decode(response),
                response_ids=response,
                response_logprobs=list(turn.logprobs or ()),
                response_is_truncated=turn.finish == "length",
                action_is_formatted=readable,
                loss_mask=True,
                info={},
            )
        )
    return made


def experience(
    episodes: Sequence[Episode], decode: Callable[[Sequence[int]], str]
) -> tuple[list[list[Transition]], dict[str, float]]:
    """Return the result of ``collect_experience`` of Oat's multi-turn actor: episodes and metrics."""
    scored = [episode for episode in episodes if episode.scored and episode.turns]
    known = [won for won in find_successes_by_env(scored) if won is not None]
    figures = {"actor/no_verdict": float(sum(not episode.scored for episode in episodes))}
    if known:
        figures["actor/success"] = sum(known) / len(known)
    return [transitions(episode, decode) for episode in scored], figures
