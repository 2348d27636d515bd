"""A small random language model with its tokenizer, as a folder."""

import torch
from random_models import TEMPLATE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config


def make_tokenizer():
    """A byte-level BPE without merges, so that no text is needed to train it."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=258,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def write_folder(path, *, tied=False, **generation):
    """Write the model and its tokenizer; `generation`: sampling settings that come with it."""
    tokenizer = make_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=tied,
    )
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
