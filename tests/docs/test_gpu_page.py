"""The page about GPUs shows what the arithmetic says."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from gem.train.learn.memory import Footprint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "training_gpu.md"


@pytest.mark.system
def test_the_table_of_memory_is_what_the_command_prints():
    from bench.gpu import memory_rows

    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| Qwen3")]
    assert [line.strip("| ").split(" | ") for line in lines] == memory_rows()


@pytest.mark.system
@pytest.mark.parametrize(("name", "tied"), [("Qwen3-4B", True), ("Qwen3-8B", False)])
def test_a_footprint_of_the_table_is_that_of_the_model(name, tied):
    import torch
    from transformers import AutoModelForCausalLM, Qwen3Config

    from bench.gpu import HEAD, SHAPES, VOCABULARY, estimate

    shape = SHAPES[name]
    config = Qwen3Config(
        hidden_size=shape["width"],
        intermediate_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["queries"] // HEAD,
        num_key_value_heads=shape["keys"] // HEAD,
        head_dim=HEAD,
        vocab_size=VOCABULARY,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    assert Footprint.of(model) == estimate(name)
