"""TinyLM and TinyAgent: a tiny built-in language model, and the agent that samples from it.

A decoder-only transformer (pre-RMSNorm, rotary positions, GELU, one key/value head for all query heads,
tied embeddings) with random initial weights. It reads and writes the same text as any other model. The
default has 0.15 million parameters and trains on one core.

Axes: B rows, T new positions, S all positions so far, H query heads, K width of a head, D width of the model,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gem.agents.base import BaseAgent
from gem.agents.sampling import sample, sample_with_entropy, uniforms
from gem.errors import BadArgument, check_least
from gem.record import AgentInfo, Ask, Reply
from gem.tokens.renderer import render
from gem.tokens.tiny import PAD, TinyRenderer


@dataclass(frozen=True)
class TinyConfig:
    """The shape of the model. `context`: the most positions of a conversation."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 4096
    rope_base: float = 1000.0

    def __post_init__(self) -> None:
        """Refuse shapes that do not divide."""
        if self.width % (2 * self.heads):
            raise BadArgument(f"width is {self.width}; accepted: a multiple of 2 x heads ({2 * self.heads}).")


class Prefix:
    """Keys and values of a shared prefix and of a batch, for training, or for a prompt that rows share.

    The model stores the keys and values of new positions here, or in `Slots`.
    """

    def __init__(self, past: Prefix | None = None) -> None:
        """Continue after `past`, whose rows (1 or B) precede the rows of the batch."""
        self.past = past
        self.layers: list[tuple[Tensor, Tensor]] = []

    def extend(self, layer: int, keys_BTK: Tensor, values_BTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of new positions; return those of all positions, each (B, S, K)."""
        if self.past is not None:
            before_k, before_v = self.past.layers[layer]
            rows = keys_BTK.shape[0]
            keys_BTK = torch.cat((before_k.expand(rows, -1, -1), keys_BTK), 1)
            values_BTK = torch.cat((before_v.expand(rows, -1, -1), values_BTK), 1)
        self.layers.append((keys_BTK, values_BTK))
        return keys_BTK, values_BTK


class TinyLM(nn.Module):
    """The model: ids to hidden states, hidden states to logits."""

    cos: Tensor
    sin: Tensor

    def __init__(self, vocabulary: int, config: TinyConfig, seed: int = 0) -> None:
        """Initialise random weights from a private generator."""
        super().__init__()
        self.config = config
        width, head = config.width, config.width // config.heads
        self.embed = nn.Parameter(torch.empty(vocabulary, width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(width))
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                scale = 0.5 if parameter is self.embed else 1.0
                parameter.data.normal_(0.0, scale * width**-0.5, generator=generator)
        for block in self.blocks:  # residual branches start at 0, so that depth does no harm at first
            nn.init.zeros_(block.out)  # type: ignore[arg-type]
            nn.init.zeros_(block.down)  # type: ignore[arg-type]
        frequency = config.rope_base ** (-torch.arange(0, head, 2) / head)
        # Padding may reach a prompt's length beyond the context.
        angle = torch.arange(2 * config.context)[:, None] * frequency
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids_BT: Tensor, position_BT: Tensor, cache: Prefix | Slots, mask: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of `ids` at `position` (B or 1 rows).

        `mask` is additive, (B or 1, T, S): 0 where a query may attend, -inf elsewhere.
        """
        x = self.embed[ids_BT]
        rope = (self.cos[position_BT][:, :, None], self.sin[position_BT][:, :, None])
        for layer, block in enumerate(self.blocks):
            x = block(x, rope, layer, cache, mask)
        return rms_norm(x, self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) of hidden states (..., D)."""
        return hidden @ self.embed.T


class Block(nn.Module):
    """A transformer block: attention and a two-layer perceptron, each with a pre-norm and a residual."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        width, head = config.width, config.width // config.heads
        self.heads = config.heads
        self.norm_attention = nn.Parameter(torch.ones(width))
        self.qkv = nn.Parameter(torch.empty(width + 2 * head, width))
        self.out = nn.Parameter(torch.empty(width, width))
        self.norm_mlp = nn.Parameter(torch.ones(width))
        self.up = nn.Parameter(torch.empty(4 * width, width))
        self.down = nn.Parameter(torch.empty(width, 4 * width))

    def forward(
        self, x_BTD: Tensor, rope: tuple[Tensor, Tensor], layer: int, cache: Prefix | Slots, mask: Tensor
    ) -> Tensor:
        """Return the block's output, (B, T, D)."""
        rows, steps, width = x_BTD.shape
        head = width // self.heads
        qkv = F.linear(rms_norm(x_BTD, self.norm_attention), self.qkv)
        turned, v = torch.split(qkv, [width + head, head], -1)
        turned = rotate(turned.view(rows, steps, self.heads + 1, head), *rope)
        q_BTHK, k_BTK = turned[:, :, :-1] * head**-0.5, turned[:, :, -1]
        keys_BSK, values_BSK = cache.extend(layer, k_BTK, v)
        mixed = attend(q_BTHK, keys_BSK, values_BSK, mask).reshape(rows, steps, width)
        x_BTD = x_BTD + F.linear(mixed, self.out)
        hidden = F.gelu(F.linear(rms_norm(x_BTD, self.norm_mlp), self.up))
        return x_BTD + F.linear(hidden, self.down)


def attend(q_BTHK: Tensor, keys_BSK: Tensor, values_BSK: Tensor, mask: Tensor) -> Tensor:
    """Return the attention output, (B, T, H, K); the scale is already in the queries.

    All query heads share one key head. For one new position the heads become part of the query axis, which
    takes two batched products. For more positions PyTorch's fused kernel never stores the scores, which
    would take most of the memory.
    """
    rows, steps, heads, head = q_BTHK.shape
    if steps == 1:
        scores = (q_BTHK[:, 0] @ keys_BSK.transpose(1, 2)).add_(mask)
        return (scores.softmax(-1) @ values_BSK)[:, None]
    shared = (rows, heads, -1, head)
    mixed_BHTK = F.scaled_dot_product_attention(
        q_BTHK.transpose(1, 2),
        keys_BSK[:, None].expand(shared),
        values_BSK[:, None].expand(shared),
        attn_mask=mask[:, None],
        scale=1.0,
    )
    return mixed_BHTK.transpose(1, 2)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x` scaled to unit root mean square along its last axis, times `weight`."""
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def rotate(x_BTHK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of a head's coordinates by the angles of their position (RoPE, arXiv 2104.09864)."""
    a, b = x_BTHK.chunk(2, -1)
    return torch.cat((torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)), -1)


def causal_mask(position_BT: Tensor, positions: int) -> Tensor:
    """Return the additive mask (B, T, S): a query attends to the positions up to its own."""
    visible = torch.arange(positions) <= position_BT[:, :, None]
    return torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)


class Slots:
    """Keys and values of all current conversations, one slot each, so that a turn adds only its new ones.

    Position p of a conversation is at index p of its slot. Memory grows by doubling, up to the context.
    """

    def __init__(self, config: TinyConfig) -> None:
        self.config = config
        self.positions = 128
        self.data = self._empty(0)
        self.free: list[int] = []
        self.rows = torch.empty(0, dtype=torch.long)
        self.at_BT = torch.empty(0, 0, dtype=torch.long)
        self.reach = 0

    def _empty(self, slots: int) -> Tensor:
        config = self.config
        return torch.zeros(config.layers, 2, slots, self.positions, config.width // config.heads)

    def take(self) -> int:
        """Return a free slot."""
        if not self.free:
            have = self.data.shape[2]
            grown = max(64, have)
            self.data = torch.cat((self.data, self._empty(grown)), 2)
            self.free.extend(range(have + grown - 1, have - 1, -1))
        return self.free.pop()

    def aim(self, rows: Tensor, at_BT: Tensor) -> None:
        """Set where the next forward pass stores new positions: slot of each row, position of each token."""
        self.rows, self.at_BT = rows, at_BT
        self.reach = int(at_BT.max()) + 1
        while self.positions < self.reach:
            self.data = torch.cat((self.data, torch.zeros_like(self.data)), 3)
            self.positions *= 2

    def extend(self, layer: int, keys_BTK: Tensor, values_BTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of new positions; return those of all positions, each (B, S, K)."""
        keys, values = self.data[layer]
        where = (self.rows[:, None], self.at_BT)
        keys[where] = keys_BTK
        values[where] = values_BTK
        return keys[self.rows, : self.reach], values[self.rows, : self.reach]


@dataclass
class Conversation:
    """One seat's conversation in one episode: its slot, and the ids whose keys and values are there."""

    slot: int
    ids: tuple[int, ...] = ()


class TinyAgent(BaseAgent):
    """An agent that samples batches from a TinyLM; it processes only tokens that are new since the last turn.

    `temperature` 0 is greedy. Log probabilities are those of the distribution that was sampled from, so at
    temperature 1 they are the model's own. An answer ends as `TinyRenderer.ends` says, or after `max_tokens`.
    With `entropy`, a reply's `extra` has the entropy of that distribution at each sampled token, in nats.
    """

    def __init__(
        self,
        model: TinyLM,
        renderer: TinyRenderer | None = None,
        temperature: float = 1.0,
        max_tokens: int = 16,
        *,
        entropy: bool = False,
    ) -> None:
        """Serve `model`; call `reset_cache` after its weights have changed.

        Raises:
            BadArgument: for `max_tokens` below 1.
        """
        check_least("max_tokens", max_tokens)
        self.model = model
        self.renderer = renderer or TinyRenderer()
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.entropy = entropy
        self.tokens_sampled = 0
        self._slots = Slots(model.config)
        self._conversations: dict[str, dict[str, Conversation]] = {}

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        settings: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.weights:
            settings["weights"] = self.weights
        return AgentInfo(type(self).__name__, "tiny", settings, self.renderer.vocab_hash)

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy version of all later replies, and load `weights` (a state dict) if given."""
        if weights is not None:
            self.model.load_state_dict(weights)
        self.weights = ""
        self.reset_cache()
        self.policy_version = version

    def reset_cache(self) -> None:
        """Drop the keys and values of all conversations; they are valid only for the old weights."""
        self._slots = Slots(self.model.config)
        self._conversations.clear()

    def forget(self, episode: str) -> None:
        """Free the slots of an episode."""
        for conversation in self._conversations.pop(episode, {}).values():
            self._slots.free.append(conversation.slot)

    @torch.inference_mode()
    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order.

        Raises:
            BadArgument: for two asks of one seat of one episode: they would share a cache.
        """
        if len({(ask.episode, ask.seat) for ask in asks}) < len(asks):
            raise BadArgument("two asks of a batch have the same episode and seat; each needs its own.")
        replies: list[Reply | None] = [None] * len(asks)
        prompts = [render(self.renderer, ask) for ask in asks]
        limits = [self._room(ask, prompt) for ask, prompt in zip(asks, prompts, strict=True)]
        rows = [i for i, limit in enumerate(limits) if limit > 0]
        for i, limit in enumerate(limits):
            if limit <= 0:
                replies[i] = Reply("", prompts[i], finish="context", policy_version=self.policy_version)
        if rows:
            talks = [self._conversation(asks[i]) for i in rows]
            hidden = self._prefill(talks, [prompts[i] for i in rows])
            tokens, logprobs, entropies = self._decode(
                hidden,
                torch.tensor([talk.slot for talk in talks]),
                torch.tensor([len(prompts[i]) for i in rows]),
                [asks[i].seed for i in rows],
                [limits[i] for i in rows],
            )
            for row, i in enumerate(rows):
                # The last token was sampled, not yet processed: the next turn processes it.
                talks[row].ids = (*prompts[i], *tokens[row][:-1])
                ended = self.renderer.ends(tokens[row])
                replies[i] = Reply(
                    self.renderer.decode(tokens[row]),
                    prompts[i],
                    tuple(tokens[row]),
                    tuple(logprobs[row]),
                    "stop" if ended else "length",
                    self.policy_version,
                    extra={"entropy": entropies[row]} if self.entropy else {},
                )
                self.tokens_sampled += len(tokens[row])
        return [reply for reply in replies if reply is not None]

    def _room(self, ask: Ask, prompt: tuple[int, ...]) -> int:
        """Return the token limit of the answer."""
        context = self.model.config.context
        if ask.context is not None:
            context = min(context, ask.context)
        wanted = self.max_tokens if ask.max_tokens is None else min(self.max_tokens, ask.max_tokens)
        return min(wanted, context - len(prompt))

    def _conversation(self, ask: Ask) -> Conversation:
        seats = self._conversations.setdefault(ask.episode, {})
        if ask.seat not in seats:
            seats[ask.seat] = Conversation(self._slots.take())
        return seats[ask.seat]

    def _prefill(self, talks: list[Conversation], prompts: list[tuple[int, ...]]) -> Tensor:
        """Process the part of each prompt that its slot lacks; return the last hidden states, (B, D)."""
        known = []
        for talk, prompt in zip(talks, prompts, strict=True):
            # At least the last token is processed: its hidden state is needed. A prompt that does not
            # extend the slot's ids (history was rewritten) starts over.
            reusable = talk.ids == prompt[: len(talk.ids)]
            known.append(min(len(talk.ids), len(prompt) - 1) if reusable else 0)
            talk.ids = prompt[: known[-1]]  # only these are certain to be in the slot if sampling breaks
        result = torch.empty(len(talks), self.model.config.width)
        batches: dict[bool, list[int]] = {}
        for row, start in enumerate(known):
            batches.setdefault(start == 0, []).append(row)
        if fresh := batches.get(True):
            self._start(talks, prompts, fresh, result)
        if going := batches.get(False):
            new = [prompts[row][known[row] :] for row in going]
            result[going] = self._process([talks[r].slot for r in going], [known[r] for r in going], new)
        return result

    def _start(
        self, talks: list[Conversation], prompts: list[tuple[int, ...]], rows: list[int], result: Tensor
    ) -> None:
        """Process whole prompts; rows with the same prompt are processed once and copied."""
        first: dict[tuple[int, ...], int] = {}
        for row in rows:
            first.setdefault(prompts[row], row)
        unique = list(first.values())
        result[unique] = self._process([talks[r].slot for r in unique], [0] * len(unique), list(first))
        copies = [row for row in rows if first[prompts[row]] != row]
        if copies:
            origin = [first[prompts[row]] for row in copies]
            reach = max(len(prompts[row]) for row in copies)
            data = self._slots.data
            sources = torch.tensor([talks[r].slot for r in origin])
            targets = torch.tensor([talks[r].slot for r in copies])
            data[:, :, targets, :reach] = data[:, :, sources, :reach]
            result[copies] = result[origin]

    def _process(self, slots: list[int], starts: list[int], new: list[tuple[int, ...]]) -> Tensor:
        """Run the model over new tokens; return the hidden state of each row's last one, (B, D)."""
        lengths = torch.tensor([len(ids) for ids in new])
        longest = int(lengths.max())
        ids_BT = torch.tensor([(*ids, *(PAD,) * (longest - len(ids))) for ids in new])
        # Padding is after the row's last token: nothing attends to it and the next turn overwrites it.
        at_BT = torch.tensor(starts)[:, None] + torch.arange(longest)
        self._slots.aim(torch.tensor(slots), at_BT)
        mask = causal_mask(at_BT, self._slots.reach)
        hidden_BTD = self.model(ids_BT, at_BT, self._slots, mask)
        return hidden_BTD[torch.arange(len(new)), lengths - 1]  # type: ignore[no-any-return]

    def _decode(
        self, hidden_BD: Tensor, slots: Tensor, position_B: Tensor, seeds: list[int], limits: list[int]
    ) -> tuple[list[list[int]], list[list[float]], list[list[float]]]:
        """Sample until every row has ended; finished rows are dropped from the batch.

        Returns tokens, log probabilities and, if requested, entropies.
        """
        tokens: list[list[int]] = [[] for _ in seeds]
        logprobs: list[list[float]] = [[] for _ in seeds]
        entropies: list[list[float]] = [[] for _ in seeds]
        active = list(range(len(seeds)))
        for step in range(max(limits)):
            logits_BV = self.model.logits(hidden_BD)
            u_B = uniforms([seeds[r] for r in active], step)
            if self.entropy:
                ids_B, logp_B, entropy_B = sample_with_entropy(logits_BV, self.temperature, u_B)
                for row, entropy in zip(active, entropy_B.tolist(), strict=True):
                    entropies[row].append(entropy)
            else:
                ids_B, logp_B = sample(logits_BV, self.temperature, u_B)
            keep = []
            for place, (row, token, logp) in enumerate(
                zip(active, ids_B.tolist(), logp_B.tolist(), strict=True)
            ):
                tokens[row].append(token)
                logprobs[row].append(logp)
                if not self.renderer.ends(tokens[row]) and len(tokens[row]) < limits[row]:
                    keep.append(place)
            if not keep:
                break
            if len(keep) < len(active):
                kept = torch.tensor(keep)
                ids_B, position_B, slots = ids_B[kept], position_B[kept], slots[kept]
                active = [active[place] for place in keep]
            self._slots.aim(slots, position_B[:, None])
            mask = causal_mask(position_B[:, None], self._slots.reach)
            hidden_BD = self.model(ids_B[:, None], position_B[:, None], self._slots, mask)[:, 0]
            position_B = position_B + 1
        return tokens, logprobs, entropies
