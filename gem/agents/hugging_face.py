"""HuggingFaceAgent: answers sampled from any causal language model of transformers.

Axes: B rows still being written, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from gem.agents.base import BaseAgent
from gem.agents.sampling import sample, uniforms
from gem.content import ToolCall
from gem.errors import BadArgument
from gem.record import AgentInfo, Ask, Reply
from gem.tokens.renderer import Renderer, knows_tools, render
from gem.tokens.sampled_calls import taken


class HuggingFaceAgent(BaseAgent):
    """Samples from a decoder-only transformers model, a batch at a time, where the model lives.

    `temperature` 0 is greedy. Log probabilities are those of the distribution that was sampled from: a
    trainer divides its logits by the same temperature. An answer ends with a stop id, or after `max_tokens`.

    With `tools` ``native`` the environment's tools are offered through the chat template, and the calls that
    the model samples, in any form of `gem.tokens.sampled_calls`, become the reply's `tool_calls`; a call that
    cannot be read stays text. With ``text`` the model reads how to call in the environment's words alone, and
    calls in its text. The default is ``native`` where the template knows tools, else ``text``. The tokens are
    the sampled ones either way.

    A reply depends on its own ask: chance comes from the ask's seed, and what else is in the batch changes
    the logits by rounding alone. Each call processes whole prompts, so weights may change between calls.

    ::

        model = AutoModelForCausalLM.from_pretrained(name)
        agent = HuggingFaceAgent(model, ChatTemplateRenderer(AutoTokenizer.from_pretrained(name)))
    """

    def __init__(
        self,
        model: Any,
        renderer: Renderer,
        temperature: float = 1.0,
        max_tokens: int = 1024,
        batch_size: int = 64,
        tools: Literal["native", "text"] | None = None,
    ) -> None:
        """Serve `model`, at most `batch_size` conversations at a time.

        Raises:
            BadArgument: for limits below 1; for native tools where the chat template knows none.
        """
        known = knows_tools(renderer)
        if tools not in (None, "native", "text"):
            raise BadArgument(f"tools is {tools!r}; accepted: 'native', 'text', None.")
        if tools == "native" and not known:
            raise BadArgument("tools='native' wants a chat template that knows tools; this one does not.")
        self.tools = tools or ("native" if known else "text")
        if min(max_tokens, batch_size) < 1:
            raise BadArgument(f"got {max_tokens=}, {batch_size=}; accepted: 1 or more.")
        self.model = model
        self.renderer = renderer
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.tokens_sampled = 0
        text = model.config.get_text_config()
        self.context: int | None = getattr(text, "max_position_embeddings", None)

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        name = getattr(self.model.config, "name_or_path", "") or type(self.model).__name__
        settings: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.tools == "native":
            settings["tools"] = self.tools
        return AgentInfo(type(self).__name__, name, settings, self.renderer.vocab_hash)

    def publish(self, version: int, weights: Any = None) -> None:
        """Answer as policy `version` from now on, with `weights` (a state dict) where they are given."""
        if weights is not None:
            self.model.load_state_dict(weights)
        self.policy_version = version

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order."""
        prompts = [render(self.renderer, ask, tools=self.tools == "native") for ask in asks]
        limits = [self._room(ask, len(prompt)) for ask, prompt in zip(asks, prompts, strict=True)]
        replies = [
            Reply("", prompt, finish="context", policy_version=self.policy_version) for prompt in prompts
        ]
        rows = [row for row, limit in enumerate(limits) if limit > 0]
        rows.sort(key=lambda row: len(prompts[row]))  # batches of equal lengths hold little padding
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            tokens, logprobs = self._generate(
                [prompts[row] for row in batch],
                [limits[row] for row in batch],
                [asks[row].seed for row in batch],
            )
            for place, row in enumerate(batch):
                replies[row] = self._reply(asks[row], prompts[row], tokens[place], logprobs[place])
        return replies

    def _room(self, ask: Ask, prompt_tokens: int) -> int:
        """How many tokens the answer may take; none when the prompt fills the context."""
        room = [self.max_tokens if ask.max_tokens is None else min(self.max_tokens, ask.max_tokens)]
        room += [limit - prompt_tokens for limit in (self.context, ask.context) if limit is not None]
        return min(room)

    def _reply(self, ask: Ask, prompt: tuple[int, ...], tokens: list[int], logprobs: list[float]) -> Reply:
        self.tokens_sampled += len(tokens)
        text, calls = self.renderer.decode(tokens), tuple[ToolCall, ...]()
        if self.tools == "native" and ask.tools:
            text, calls = taken(text, ask.turn)
        return Reply(
            text,
            prompt,
            tuple(tokens),
            tuple(logprobs),
            "stop" if tokens[-1] in self.renderer.stop_ids else "length",
            self.policy_version,
            tool_calls=calls,
        )

    def _generate(
        self, prompts: list[tuple[int, ...]], limits: list[int], seeds: list[int]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Sample until every row has ended; rows that have are dropped from the batch."""
        tokens: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        device = self.model.device
        longest = max(map(len, prompts))
        # Padded on the left, every row's newest token stands in the last column; the mask hides padding.
        ids_BT = torch.tensor([[0] * (longest - len(ids)) + list(ids) for ids in prompts], device=device)
        mask_BT = torch.tensor(
            [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts], device=device
        )
        at_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
        active = list(range(len(prompts)))
        past = None
        with _evaluating(self.model), torch.inference_mode():
            for step in range(max(limits)):
                output = self.model(
                    input_ids=ids_BT,
                    attention_mask=mask_BT,
                    position_ids=at_BT,
                    past_key_values=past,
                    use_cache=True,
                    logits_to_keep=1,
                )
                u_B = uniforms([seeds[row] for row in active], step)
                ids_B, logp_B = sample(output.logits[:, -1], self.temperature, u_B)
                going = []
                sampled = zip(active, ids_B.tolist(), logp_B.tolist(), strict=True)
                for place, (row, token, logprob) in enumerate(sampled):
                    tokens[row].append(token)
                    logprobs[row].append(logprob)
                    if token not in self.renderer.stop_ids and len(tokens[row]) < limits[row]:
                        going.append(place)
                if not going:
                    break
                past = output.past_key_values
                if len(going) < len(active):
                    kept = torch.tensor(going, device=device)
                    past.batch_select_indices(kept)
                    ids_B, at_BT, mask_BT = ids_B[kept], at_BT[kept], mask_BT[kept]
                    active = [active[place] for place in going]
                ids_BT = ids_B[:, None]
                at_BT = at_BT[:, -1:] + 1
                mask_BT = torch.cat([mask_BT, torch.ones_like(ids_BT)], dim=-1)
        return tokens, logprobs


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off, and back to what the trainer had."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
