"""HuggingFaceAgent: sample answers from any causal language model of transformers.

Axes: B rows still being written, T positions, D width of the model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gem.agents.answer_shape import AnswerShape, stops_of
from gem.agents.base import BaseAgent
from gem.agents.sampling import (
    no_distribution,
    sample,
    sample_with_entropy,
    sample_without_waiting,
    uniforms,
    uniforms_of_steps,
)
from gem.content import ToolCall
from gem.errors import BadArgument
from gem.models import name_of
from gem.record import AgentInfo, Ask, Reply
from gem.tokens.renderer import Renderer, render
from gem.tokens.sampled_calls import take_calls

CHECK_EVERY = 16
"""Tokens that are sampled before they are looked at, on a device other than the CPU."""
CACHE_BYTES = 4 << 30
"""Most bytes of keys and values that an agent keeps between calls, unless it is told."""


class HuggingFaceAgent(BaseAgent):
    """An agent that samples batches from a decoder-only transformers model, on the model's device.

    `temperature` 0 is greedy. Log probabilities are those of the distribution that was sampled from: a
    trainer divides its logits by the same temperature. An answer ends with a stop id, with a token that
    completes one of the texts in `stop` or in the ``stop`` of `Ask.sampling`, or after `max_tokens`. With
    `prefix`, every answer begins with that text: its tokens are part of the prompt, so they are neither
    sampled nor learned on. With `entropy`, a reply's `extra` has the entropy of the distribution at each
    sampled token, in nats.

    With `tools` ``native`` the chat template gets the environment's tools. Calls that the model samples, in
    any form of `gem.tokens.sampled_calls`, become the reply's `tool_calls`; a call that cannot be parsed
    stays text. With ``text`` only the environment's text says how to call, and calls are text. The default is
    ``native`` where the template supports tools and no prefix is set, else ``text``. The tokens are the
    sampled ones in both cases.

    A reply depends only on its ask: its random numbers come from the ask's seed, and the rest of the batch
    changes the logits only by rounding. Asks with the same context share a row until they differ.

    Keys and values are kept between calls, at most `cache_bytes` of them beside those of the batch itself, so
    that only the new part of a prompt is processed: **after a change of weights, call `publish`.** The least
    recently used ones are dropped first. A model with another kind of memory (windows, states) gets whole
    prompts; the first call finds out which kind it has by comparing logits.

    On a device other than the CPU each look at a token waits for the device. So there tokens are looked at
    only after every `check_every` of them (None: 16; on the CPU 1): some are sampled in vain, behind the end
    of an answer, and asks with the same context share a row only until the first token. A model without a
    cache is sampled token by token.

    The model computes in its own precision. The logits are computed from its hidden states in float32, where
    the model's own logits are just these states times the output embedding.

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
        prefix: str = "",
        stop: Sequence[str] = (),
        cache_bytes: int = CACHE_BYTES,
        *,
        entropy: bool = False,
        check_every: int | None = None,
    ) -> None:
        """Serve `model`, at most `batch_size` conversations at a time.

        Raises:
            BadArgument: for limits below 1; for native tools where the chat template has none, or with a
                prefix; for a prefix that tokenizing and decoding changes; for an empty text in `stop`.
        """
        self._shape = shape = AnswerShape(renderer, tools, prefix, stop)
        if min(max_tokens, batch_size) < 1:
            raise BadArgument(f"got {max_tokens=}, {batch_size=}; accepted: 1 or more.")
        if check_every is not None and check_every < 1:
            raise BadArgument(f"{check_every=}; accepted: 1 or more, or None.")
        if cache_bytes < 0:
            raise BadArgument(f"{cache_bytes=}; accepted: 0 (keep nothing) or more.")
        self.model = model
        self.renderer = renderer
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.tools, self.prefix, self.stop = shape.tools, prefix, shape.stop
        self.prefix_ids = shape.prefix_ids
        self.cache_bytes = cache_bytes
        self.entropy = entropy
        self.check_every = check_every
        self.tokens_sampled = 0
        text = model.config.get_text_config()
        self.context: int | None = getattr(text, "max_position_embeddings", None)
        self._forward = _Forward(model)
        self._cached: Any = None
        self._probed: Any = None

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        name = name_of(getattr(self.model.config, "name_or_path", "")) or type(self.model).__name__
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self._shape.settings}
        if self.weights:
            settings["weights"] = self.weights
        return AgentInfo(type(self).__name__, name, settings, self.renderer.vocab_hash)

    def temper(self, temperature: float) -> None:
        """Set the sampling temperature of all later answers; 0 is greedy."""
        self.temperature = temperature

    def publish(self, version: int, weights: Mapping[str, Tensor] | nn.Module | None = None) -> None:
        """Set the policy version of all later replies, and drop all cached keys and values.

        `weights`: the weights to load, unless the model already has them: a state dict, or a module that has
        one; on any device and in any precision.
        """
        if weights is not None:
            self.model.load_state_dict(weights.state_dict() if isinstance(weights, nn.Module) else weights)
        self.weights = ""
        self._forward.clear()
        if self._cached is not None:
            self._cached.clear()
        self.policy_version = version

    def forget(self, episode: str) -> None:
        """Free the cache that only this episode used."""
        if self._cached is not None:
            self._cached.tree.forget(episode)

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order."""
        prompts = [
            (*render(self.renderer, ask, tools=self.tools == "native"), *self.prefix_ids) for ask in asks
        ]
        limits = [self._room(ask, len(prompt)) for ask, prompt in zip(asks, prompts, strict=True)]
        replies = [
            Reply("", prompt, finish="context", policy_version=self.policy_version) for prompt in prompts
        ]
        rows = [row for row, limit in enumerate(limits) if limit > 0]
        # Batches of equal lengths need little padding, and equal prompts share a batch.
        rows.sort(key=lambda row: (len(prompts[row]), prompts[row]))
        with evaluating(self.model), torch.inference_mode():
            place = (self.model.device, getattr(self.model, "dtype", None))
            if rows and self._probed != place:  # the first call, or the model was moved
                self._forward.clear()
                self._cached, self._probed = self._probe(), place
            every = self.check_every or (1 if torch.device(self.model.device).type == "cpu" else CHECK_EVERY)
            self._forward.masks = every > 1
            generate = self._generate_cached if every == 1 else partial(self._generate_unseen, every=every)
            if self._cached is None:
                generate = self._generate
            for start in range(0, len(rows), self.batch_size):
                batch = [
                    _Writing(asks[row], prompts[row], limits[row], self.stop)
                    for row in rows[start : start + self.batch_size]
                ]
                generate(batch)
                for row, writing in zip(rows[start:], batch, strict=False):
                    replies[row] = self._reply(writing)
        return replies

    def _room(self, ask: Ask, prompt_tokens: int) -> int:
        """Return the token limit of the answer; 0 when the prompt fills the context."""
        room = [self.max_tokens if ask.max_tokens is None else min(self.max_tokens, ask.max_tokens)]
        room += [limit - prompt_tokens for limit in (self.context, ask.context) if limit is not None]
        return min(room)

    def _reply(self, made: _Writing) -> Reply:
        self.tokens_sampled += len(made.tokens)
        text, calls = self.renderer.decode((*self.prefix_ids, *made.tokens)), tuple[ToolCall, ...]()
        if self.tools == "native" and made.ask.tools:
            text, calls = take_calls(text, made.ask.turn)
        return Reply(
            text,
            made.prompt,
            tuple(made.tokens),
            tuple(made.logprobs),
            "stop" if self._ends_answer(made) else "length",
            self.policy_version,
            tool_calls=calls,
            extra={"entropy": made.entropies} if self.entropy else {},
        )

    def _ends_answer(self, writing: _Writing) -> bool:
        """Return whether the last token ends the answer."""
        tokens, stop = writing.tokens, writing.stop
        if tokens[-1] in self.renderer.stop_ids:
            return True
        if not stop or not any(text in self.renderer.decode(tokens[-writing.tail :]) for text in stop):
            return False
        whole = self.renderer.decode(tokens)  # tokens may decode to another text when others precede them
        return any(text in whole for text in stop)

    def _take(self, writing: _Writing, token: int, logprob: float, entropy: float) -> bool:
        """Add a token to an answer; return whether the answer continues."""
        writing.tokens.append(token)
        writing.logprobs.append(logprob)
        writing.entropies.append(entropy)
        return len(writing.tokens) < writing.limit and not self._ends_answer(writing)

    def _probe(self) -> Any:
        """Return the model with cached keys and values, or None where it needs whole prompts."""
        text = self.model.config.get_text_config()
        rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
        if rope.get("rope_type") in ("dynamic", "longrope"):
            return None  # keys change when the conversation grows beyond a length
        if not hasattr(text, "vocab_size"):
            return None
        from gem.agents.kv_cache import add_cache

        return add_cache(self._forward, text.vocab_size, self.cache_bytes)

    def _start_groups(self, batch: list[_Writing]) -> tuple[list[list[_Writing]], Any, Tensor]:
        """Process the prompts; return the answers to each, the cached rows and the logits, in one order.

        Answers to equal prompts are next to each other in the batch.
        """
        groups = [list(group) for _, group in groupby(batch, key=lambda writing: writing.prompt)]
        prompts = [group[0].prompt for group in groups]
        self._cached.share(prompts)
        rows, logits_BV, order = self._cached.start(prompts, min(32, max(each.limit for each in batch)))
        return [groups[place] for place in order], rows, logits_BV

    def _generate_cached(self, batch: list[_Writing]) -> None:
        """Sample until every answer has ended. Answers with the same ids so far share a row.

        Answers to equal prompts are next to each other in the batch.
        """
        cached, step = self._cached, 0
        groups, rows, logits_BV = self._start_groups(batch)
        while True:
            going: dict[tuple[int, int], list[_Writing]] = {}
            for row, (group, ids, *figures) in enumerate(
                zip(groups, *self._sample(logits_BV, groups, step), strict=True)
            ):
                for writing, token, logprob, entropy in zip(group, ids, *figures, strict=False):
                    if self._take(writing, token, logprob, entropy):
                        going.setdefault((row, token), []).append(writing)
                    else:  # the last token was sampled, not processed
                        kept = (*writing.prompt, *writing.tokens[:-1])
                        cached.keep(kept, writing.ask.episode, rows, row)
            if not going:
                return
            place = rows.arrange([row for row, _ in going])
            groups = [list(going.values())[i] for i in place]
            logits_BV = cached.step(rows, [group[0].tokens[-1] for group in groups])
            step += 1

    def _generate_unseen(self, batch: list[_Writing], every: int) -> None:
        """Sample until every answer has ended; look at the tokens only after `every` of them.

        Answers to equal prompts are next to each other in the batch. Each has a row of its own.
        """
        groups, rows, logits_BV = self._start_groups(batch)
        batch = [writing for group in groups for writing in group]
        origins = [row for row, group in enumerate(groups) for _ in group]
        cached, step, device = self._cached, 0, logits_BV.device
        while batch:
            place = rows.arrange(origins)
            batch = [batch[i] for i in place]
            logits_BV = logits_BV[torch.tensor([origins[i] for i in place], device=device)]
            left = [writing.limit - len(writing.tokens) for writing in batch]
            count = min(every, *left)  # no row grows beyond its limit, which may be the model's
            seeds = [writing.ask.seed for writing in batch]
            u_NB = uniforms_of_steps(seeds, step, count).to(device)
            made = []
            for n in range(count):
                ids_B, logp_B, logp_BV, fine_B = sample_without_waiting(logits_BV, self.temperature, u_NB[n])
                figures = [ids_B, logp_B, fine_B]
                if self.entropy and self.temperature:
                    figures.append(torch.special.entr(logp_BV.exp()).sum(-1))
                made.append(torch.stack([figure.double() for figure in figures]))
                if n + 1 < count or count < max(left):
                    logits_BV = cached.step(rows, ids_B)
            ids_BN, logp_BN, fine_BN, *entropy = torch.stack(made, -1).cpu()  # the only wait
            if not fine_BN.all():
                raise no_distribution()
            entropy_BN = (
                entropy[0] if entropy else torch.full_like(logp_BN, 0.0 if self.entropy else torch.nan)
            )
            batch, origins = self._take_many(batch, ids_BN.long(), logp_BN, entropy_BN, rows)
            step += count

    def _take_many(
        self, batch: list[_Writing], ids_BN: Tensor, logp_BN: Tensor, entropy_BN: Tensor, rows: Any
    ) -> tuple[list[_Writing], list[int]]:
        """Add tokens to answers, up to the ends of these; return those that continue, and their rows."""
        ends_BN = torch.isin(ids_BN, torch.tensor(sorted(self.renderer.stop_ids)))
        ends_BN[:, -1] = True
        counts = (ends_BN.int().argmax(-1) + 1).tolist()
        going = []
        for row, (writing, count) in enumerate(zip(batch, counts, strict=True)):
            figures = [each[row, :count].tolist() for each in (ids_BN, logp_BN, entropy_BN)]
            near = (
                self.renderer.decode([*writing.tokens[-writing.tail :], *figures[0]]) if writing.stop else ""
            )
            if any(text in near for text in writing.stop):
                goes_on = all(self._take(writing, *each) for each in zip(*figures, strict=True))
            else:
                writing.tokens += figures[0][:-1]
                writing.logprobs += figures[1][:-1]
                writing.entropies += figures[2][:-1]
                goes_on = self._take(writing, *(each[-1] for each in figures))
            if goes_on:
                going.append(row)
            else:
                kept = (*writing.prompt, *writing.tokens[:-1])
                self._cached.keep(kept, writing.ask.episode, rows, row)
        return [batch[row] for row in going], going

    def _sample(
        self, logits_BV: Tensor, groups: list[list[_Writing]], step: int
    ) -> tuple[list[list[int]], list[list[float]], list[list[float]]]:
        """Return a token, its log probability and the entropy (NaN if not requested) for each answer.

        There is one list per group, with padding at the end.
        """
        chance = iter(uniforms([each.ask.seed for group in groups for each in group], step).tolist())
        most = max(map(len, groups))
        u_BM = [[next(chance) for _ in group] + [0.0] * (most - len(group)) for group in groups]
        u = torch.tensor(u_BM, dtype=torch.float64)
        drawn = (
            sample_with_entropy(logits_BV, self.temperature, u)
            if self.entropy
            else (*sample(logits_BV, self.temperature, u), torch.full(u.shape, torch.nan))
        )
        ids, logprobs, entropies = (each.tolist() for each in drawn)
        return ids, logprobs, entropies

    def _generate(self, batch: list[_Writing]) -> None:
        """Sample until every answer has ended, from whole prompts and the model's own cache."""
        device = self.model.device
        longest = max(len(writing.prompt) for writing in batch)
        # Padded on the left, every row's newest token is in the last column; the mask hides padding.
        padding = [longest - len(writing.prompt) for writing in batch]
        ids_BT = torch.tensor(
            [[0] * pad + list(writing.prompt) for pad, writing in zip(padding, batch, strict=True)],
            device=device,
        )
        mask_BT = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding], device=device)
        at_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
        past, step = None, 0
        while True:
            logits_BV, past = self._forward(ids_BT, mask_BT, at_BT, past)
            sampled = self._sample(logits_BV, [[writing] for writing in batch], step)
            going = [
                place
                for place, (writing, (token,), (logprob,), (entropy,)) in enumerate(
                    zip(batch, *sampled, strict=True)
                )
                if self._take(writing, token, logprob, entropy)
            ]
            if not going:
                return
            if len(going) < len(batch):
                kept = torch.tensor(going, device=device)
                past.batch_select_indices(kept)
                at_BT, mask_BT = at_BT[kept], mask_BT[kept]
                batch = [batch[place] for place in going]
            ids_BT = torch.tensor([[writing.tokens[-1]] for writing in batch], device=device)
            at_BT = at_BT[:, -1:] + 1
            mask_BT = torch.cat([mask_BT, torch.ones_like(ids_BT)], dim=-1)
            step += 1


class _Writing:
    """An answer that is being sampled."""

    __slots__ = ("ask", "entropies", "limit", "logprobs", "prompt", "stop", "tail", "tokens")

    def __init__(self, ask: Ask, prompt: tuple[int, ...], limit: int, stop: tuple[str, ...]) -> None:
        self.ask, self.prompt, self.limit = ask, prompt, limit
        self.stop = (*stop, *stops_of(ask))
        # A text that a token completes is in the last tokens, of a byte or more each; some have no text.
        self.tail = 8 + max((len(text.encode()) for text in self.stop), default=0)
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []


class _Forward:
    """Forward passes of a model, to the logits of the last position.

    Where the logits are just the hidden states times the output embedding, they are computed in float32: in
    bfloat16, two passes over the same ids differ by more than a trainer can ignore.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._parts: tuple[Any, Any] | None = None
        self._probed = False
        self._weight: Tensor | None = None
        self.masks = False
        """Whether to make the mask of a new token here: transformers would wait for the device."""

    def clear(self) -> None:
        """Drop values computed from the weights."""
        self._weight = None

    def __call__(self, ids_BT: Tensor, mask_BS: Tensor, at_BT: Tensor, past: Any) -> tuple[Tensor, Any]:
        """Return the logits of the last column, (B, V), and the cache."""
        device = self.model.device
        mask = mask_BS.to(device)
        if self.masks and ids_BT.shape[1] == 1 and self.model.config._attn_implementation == "sdpa":
            mask = mask.bool()[:, None, None]
        inputs = {
            "input_ids": ids_BT.to(device),
            "attention_mask": mask,
            "position_ids": at_BT.to(device),
            "past_key_values": past,
            "use_cache": True,
        }
        if not self._probed:
            self._parts, self._probed = _decoder_and_head(self.model), True
        if self._parts is None:
            output = self.model(**inputs, logits_to_keep=1)
            return output.logits[:, -1], output.past_key_values
        decoder, head = self._parts
        output = decoder(**inputs)
        if self._weight is None:
            self._weight = head.weight.float()  # the weight itself, where it is float32 already
        hidden_BD = output.last_hidden_state[:, -1].to(self._weight.device).float()
        bias = None if head.bias is None else head.bias.float()
        return F.linear(hidden_BD, self._weight, bias), output.past_key_values


def _decoder_and_head(model: Any) -> tuple[Any, nn.Linear] | None:
    """Return a model's decoder and head, if its logits are just the head of the decoder's output; else None.

    A pass over a few ids checks this, so scaled or capped logits and adapters on the head are found.
    """
    if not hasattr(model, "get_decoder") or not hasattr(model, "get_output_embeddings"):
        return None
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    if decoder in (None, model) or type(head) is not nn.Linear or head.weight.is_meta:
        return None
    captures: dict[str, Any] = {}
    hooks = [
        decoder.register_forward_hook(lambda _, __, output: captures.update(hidden=output)),
        head.register_forward_hook(lambda _, given, __: captures.update(given=given[0])),
    ]
    ids_1T = torch.arange(8, device=model.device)[None] % head.out_features
    try:
        logits = model(input_ids=ids_1T, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    hidden = getattr(captures.get("hidden"), "last_hidden_state", None)
    if hidden is None or "given" not in captures or not torch.equal(hidden, captures["given"]):
        return None
    return (decoder, head) if torch.equal(F.linear(hidden, head.weight, head.bias), logits) else None


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off inside the block, then restore the model's mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
