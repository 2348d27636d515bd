"""docs/start/own_model.md: an environment in a file is checked, played, trained on, and its model taken out.

The part with a real vLLM is in tests/frameworks/test_vllm.py.
"""

import json

import pytest
from own_model import ROOT, commands, gem_gym, write_environment


def test_the_page_shows_the_file_of_the_examples(tmp_path):
    write_environment(tmp_path)
    assert (tmp_path / "relay.py").read_text() == (ROOT / "examples/author/relay.py").read_text()


@pytest.mark.system
def test_the_environment_is_checked_and_played(tmp_path):
    write_environment(tmp_path)
    ((*check,), (*play,)) = commands("check") + commands("play")
    assert "0 broken" in gem_gym(tmp_path, check)
    assert "return 0.333333" in gem_gym(tmp_path, play, "bread\nx\nx\n")


@pytest.mark.slow
def test_its_return_rises_on_held_out_seeds_with_three_seeds_and_the_model_leaves(tmp_path):
    pytest.importorskip("torch")
    models = pytest.importorskip("gem.models")
    if models.find("smollm2") is None:
        pytest.skip("the model smollm2 is not on this machine: gem-gym models --fetch smollm2")
    write_environment(tmp_path)
    train, again, phase = commands("train")
    for seed in range(3):
        at, out = train.index("--seed") + 1, train.index("--out") + 1
        words = [*train[:at], str(seed), *train[at + 1 : out], f"runs/seed{seed}" if seed else train[out]]
        gem_gym(tmp_path, words)
        run = tmp_path / words[-1]
        lines = (run / "evaluations.jsonl").read_text().splitlines()
        returns = [json.loads(line)["result"]["reward"]["mean"] for line in lines]
        assert returns[0] < 0.3
        assert returns[-1] > 0.8
    (export,) = commands("export")
    gem_gym(tmp_path, export)
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "relay-model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "relay-model")
    chat = [{"role": "user", "content": "Pass on each word that you are handed. The word: island."}]
    ids = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = model.generate(**ids, max_new_tokens=3, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert tokenizer.decode(said, skip_special_tokens=True).lower().startswith("island")
    gem_gym(tmp_path, again)
    summary = json.loads((tmp_path / "runs/relay-from/summary.json").read_text())
    assert summary["before"]["reward"]["mean"] > 0.8  # it began where the first run ended
    gem_gym(tmp_path, phase)
