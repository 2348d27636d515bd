"""What a trainer needs of a model: its distributions at sampled tokens, and an agent that samples from it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gem import seeding
from gem.agents.base import BaseAgent
from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.tiny import Prefix, TinyAgent, TinyConfig, TinyLM, causal_mask
from gem.errors import BadArgument, missing_extra
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.renderer import Renderer
from gem.tokens.tiny import PAD, TinyRenderer
from gem.train.batch import Batch
from gem.train.config import TrainConfig


class Policy(Protocol):
    """A model that is trained and sampled from."""

    @property
    def model(self) -> nn.Module:
        """The module whose parameters are trained."""
        ...

    @property
    def agent(self) -> BaseAgent:
        """The agent that samples from the model."""
        ...

    @property
    def renderer(self) -> Renderer:
        """How the model's conversations look in tokens."""
        ...

    @property
    def pad(self) -> int:
        """The id that fills rows of a batch."""
        ...

    @property
    def context(self) -> int | None:
        """Tokens that a conversation may take; None where nobody says."""
        ...

    def temper(self, temperature: float) -> None:
        """Let the agent sample at this temperature from now on; 0 is greedy."""
        ...

    def distributions(self, batch: Batch) -> Tensor:
        """Return the log probability of every token where one was sampled, (N, V), with gradient.

        They stand on the CPU, as the batch does, and are of the distribution that the agent samples from
        while training, at its temperature.
        """
        ...

    def updated(self, version: int) -> None:
        """Take note that the weights have changed: whatever the agent cached under the old ones is void."""
        ...


class TinyPolicy:
    """The embedded tiny model as a policy."""

    pad = PAD

    def __init__(self, config: TinyConfig, seed: int, temperature: float = 1.0, max_tokens: int = 16) -> None:
        """Draw random weights from `seed`."""
        self.renderer = TinyRenderer()
        self.model = TinyLM(len(self.renderer), config, seed)
        self.agent = TinyAgent(self.model, self.renderer, temperature, max_tokens)
        self.context = config.context
        self.temperature = temperature

    def temper(self, temperature: float) -> None:
        """See Policy.temper."""
        self.agent.temperature = temperature

    def distributions(self, batch: Batch) -> Tensor:
        """See Policy.distributions."""
        shared, (_, steps) = len(batch.prefix), batch.ids.shape
        past = None
        if shared:
            past = Prefix()
            at_1P = torch.arange(shared)[None]
            self.model(batch.prefix[None], at_1P, past, causal_mask(at_1P, shared))
        at_1T = torch.arange(shared, shared + steps)[None]
        hidden_BTD = self.model(batch.ids, at_1T, Prefix(past), causal_mask(at_1T, shared + steps))
        logits_NV = self.model.logits(hidden_BTD[batch.row, batch.column - 1])
        return (logits_NV / self.temperature).log_softmax(-1)

    def updated(self, version: int) -> None:
        """See Policy.updated."""
        self.agent.publish(version)


class CausalPolicy:
    """A Hugging Face causal language model as a policy."""

    def __init__(
        self, name: str, temperature: float = 1.0, max_tokens: int = 1024, device: str = "cpu"
    ) -> None:
        """Load the model and its tokenizer from a folder or the hub, and put the model on `device`.

        Raises:
            MissingExtra: without the transformers package.
            BadArgument: when there is no such model, or it has no chat template.
        """
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError:
            raise missing_extra(f"the model {name!r}", "transformers", "train") from None
        try:
            self.renderer = ChatTemplateRenderer(AutoTokenizer.from_pretrained(name))
            model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
            self.model: Any = model.to(device)
        except BadArgument:
            raise
        except (
            OSError,
            ValueError,
            RuntimeError,
            AssertionError,
        ) as error:  # torch asserts that CUDA is there
            raise BadArgument(f"model {name!r} cannot be loaded on {device!r}: {error}") from error
        self.agent = HuggingFaceAgent(self.model, self.renderer, temperature, max_tokens)
        self.context = self.agent.context
        self.pad = min(self.renderer.stop_ids)
        self.temperature = temperature

    def distributions(self, batch: Batch) -> Tensor:
        """See Policy.distributions."""
        device = self.model.device
        ids_BS = torch.cat((batch.prefix.expand(len(batch.ids), -1), batch.ids), 1).to(device)
        # Logits are what takes memory, so they are made where some row needs them and nowhere else.
        needed, place_N = (len(batch.prefix) + batch.column - 1).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        # Padding stands on the right, where causal attention never looks; no mask is needed.
        output = self.model(input_ids=ids_BS, use_cache=False, logits_to_keep=needed.to(device))
        logits_NV = output.logits[batch.row.to(device), place_N.to(device)]
        return (logits_NV.float() / self.temperature).log_softmax(-1).cpu()  # type: ignore[no-any-return]

    def temper(self, temperature: float) -> None:
        """See Policy.temper."""
        self.agent.temperature = temperature

    def updated(self, version: int) -> None:
        """See Policy.updated."""
        self.agent.publish(version)


def make_policy(config: TrainConfig) -> Policy:
    """Return the policy that a config asks for, with fresh or loaded weights."""
    if config.model == "tiny":
        shape = TinyConfig(width=config.width, layers=config.layers, heads=config.heads)
        return TinyPolicy(
            shape, seeding.derive(config.seed, "weights"), config.temperature, config.max_tokens
        )
    return CausalPolicy(config.model, config.temperature, config.max_tokens, config.device)
