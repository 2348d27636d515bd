"""What `gem-gym export --format sft` and `--format preferences` write, in TRL's own trainers."""

import json

import pytest

pytest.importorskip("trl", reason="needs TRL: pip install 'gem-gym[trl]'")
torch = pytest.importorskip("torch")

import datasets
from awkward_episodes import with_tools
from datasets import load_dataset
from tool_templates import renderer
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from gem.adapters.chats import write_preferences, write_sft
from gem.agents import ScriptedAgent
from gem.rollout import Job, rollout

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # transformers', of its own names
]


TOKENIZER = renderer("qwen").tokenizer


def tiny():
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": len(TOKENIZER)}
    return Qwen3ForCausalLM(Qwen3Config(**shape, **heads))


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def guesses(*numbers):
    """An episode of these guesses at the number 9."""
    agent = ScriptedAgent(lambda ask: f"\\boxed{{{numbers[ask.turn]}}}")
    return rollout([Job("game:GuessTheNumber-v0-easy", 3)], agent)[0]


def loaded(path, tmp_path):
    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))


def settings(tmp_path):
    return {
        "output_dir": str(tmp_path / "out"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
    }


@pytest.mark.system
def test_sft(tmp_path):
    episodes = [guesses(5, 9), guesses(1, 2, 3, 4)]
    write_sft(episodes, tmp_path / "sft.jsonl")
    trained = SFTTrainer(
        tiny(),
        args=SFTConfig(**settings(tmp_path)),
        train_dataset=loaded(tmp_path / "sft.jsonl", tmp_path),
        processing_class=TOKENIZER,
    )
    texts = [TOKENIZER.decode(row["input_ids"]) for row in trained.train_dataset]
    for text, episode in zip(texts, episodes, strict=True):
        for turn in episode.turns:
            assert f"<|im_start|>user\n{turn.observation}<|im_end|>" in text
            assert f"<|im_start|>assistant\n{turn.action}<|im_end|>" in text
    trained.train()
    assert trained.state.global_step == 1


def test_native_calls_reach_the_template(tmp_path):
    write_sft([with_tools(), guesses(9)], tmp_path / "sft.jsonl")
    rows = loaded(tmp_path / "sft.jsonl", tmp_path)
    first = json.loads((tmp_path / "sft.jsonl").read_text().splitlines()[0])
    assert rows[0]["messages"] == first["messages"]  # nothing is added to it by the form of a table
    trained = SFTTrainer(
        tiny(), args=SFTConfig(**settings(tmp_path)), train_dataset=rows, processing_class=TOKENIZER
    )
    text = TOKENIZER.decode(trained.train_dataset[0]["input_ids"])
    assert '<tool_call>\n{"name": "look", "arguments": {"at": ' in text
    assert "Look around." in text  # the tool that was offered


@pytest.mark.system
def test_preferences(tmp_path):
    write_preferences([guesses(5, 6, 7, 8), guesses(5, 9)], tmp_path / "pairs.jsonl")
    trained = DPOTrainer(
        tiny(),
        tiny(),
        args=DPOConfig(**settings(tmp_path)),
        train_dataset=loaded(tmp_path / "pairs.jsonl", tmp_path),
        processing_class=TOKENIZER,
    )
    (row,) = trained.train_dataset
    texts = [TOKENIZER.decode(row[name]) for name in ("prompt_ids", "chosen_ids", "rejected_ids")]
    assert texts[0].endswith("The secret is higher than 5.<|im_end|>\n<|im_start|>assistant\n")
    assert texts[1:] == ["\\boxed{9}<|im_end|>\n", "\\boxed{6}<|im_end|>\n"]
    trained.train()
    assert trained.state.global_step == 1
