"""A small random language model with its tokenizer, as a folder."""

import torch
from bpe_tokenizers import make_tokenizer
from transformers import AutoModelForCausalLM, Qwen3Config

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def write_folder(path, *, tied=False, tokenizer=None, config=Qwen3Config, settings=None, **generation):
    """Write the model and its tokenizer; `generation`: sampling settings that come with it."""
    tokenizer = tokenizer or make_tokenizer()
    config = config(vocab_size=len(tokenizer), tie_word_embeddings=tied, **SHAPE, **(settings or {}))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            model.get_output_embeddings().weight.normal_(
                std=0.1 if tied else 0.3
            )  # not uniform, nor a copy of the input
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
