"""Small byte-level tokenizers."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL = ("<|start|>", "<|end|>")


def make_bpe(texts, size, special, *, alphabet=True, digits=False):
    """Train a byte-level BPE; `alphabet`: it knows every byte; `digits`: each digit stands apart."""
    bpe = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    apart = pre_tokenizers.Digits(individual_digits=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([apart, split]) if digits else split
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=split.alphabet() if alphabet else [],
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return bpe


def make_tokenizer(texts=(), size=258, *, special=SPECIAL, template=TEMPLATE, **how):
    """Return a tokenizer of transformers; the last of the special tokens ends an answer. Without texts it has
    no merges. `how`: see make_bpe().
    """
    bpe = make_bpe(texts, size, special, **how)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=special[-1])
    tokenizer.chat_template = template
    return tokenizer
