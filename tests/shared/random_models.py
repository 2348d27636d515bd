"""Small transformers models with random weights, a tokenizer for them, and an environment to talk with."""

import torch
from bpe_tokenizers import TEMPLATE, make_tokenizer
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen3Config,
)

from gem import Env, Start, Step
from gem.tokens.chat_template import ChatTemplateRenderer


def make_renderer(start="<|start|>", end="<|end|>"):
    """A byte-level BPE over few letters; several ids end an answer, so that a random model soon does."""
    texts = ["the secret number is higher or lower", "user\nassistant\nsystem\n0123456789"]
    template = TEMPLATE.replace("<|start|>", start).replace("<|end|>", end)
    tokenizer = make_tokenizer(texts, 60, special=(start, end), template=template, alphabet=False)
    renderer = ChatTemplateRenderer(tokenizer)
    renderer.stop_ids |= set(range(10, 15))
    return renderer


RENDERER = make_renderer()
VOCABULARY = len(RENDERER.tokenizer)
SHAPE = {
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
BODY = {**SHAPE, **HEADS, "max_position_embeddings": 512}
CONFIGS = {
    "qwen3": Qwen3Config(**BODY, attention_dropout=0.5),
    "gpt2": GPT2Config(**SHAPE, n_head=4, n_positions=512),
    "gemma3": Gemma3TextConfig(**BODY, sliding_window=16),
    "llama": LlamaConfig(**BODY),
    "mixtral": MixtralConfig(**BODY, num_local_experts=4),
    "granite": GraniteConfig(**BODY, logits_scaling=3.0),
    "gemma2": Gemma2Config(**BODY, sliding_window=16, attn_implementation="eager"),
}


def make_model(name="qwen3"):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[name])
        torch.nn.init.normal_(
            model.get_output_embeddings().weight, std=0.1
        )  # not uniform, yet every token comes up
    return model.float().eval()


class Chatter(Env):
    """Talks for a number of turns that depends on the seed."""

    def reset(self, seed=None):
        super().reset(seed)
        self.left = self.rng.randint(1, 4)
        return Start("the secret " * self.rng.randint(1, 6), {})

    def step(self, action):
        self.left -= 1
        return Step("higher or lower " * self.rng.randint(1, 3), 1.0, self.left == 0, False, {})
