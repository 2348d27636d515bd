"""Runs that start from the weights of an earlier run, or of a folder in Hugging Face's form."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, same_weights, weights

from gem.errors import BadArgument, StoreError
from gem.train.command import command
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.policy import make_policy
from gem.train.learn.start_weights import check_source, load_source, settings_of_source
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder

NOTHING = {"lr": 0.0, "kl": 0.0, "warmup_steps": 0}
"""Settings of a run that keeps the weights it starts with."""


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    out = tmp_path_factory.mktemp("first") / "run"
    train(replace(QUICK, eval_every=1, held_out=8, seed=3, out=out))
    return out


@pytest.mark.system
def test_a_run_starts_from_the_last_or_the_best_weights(first, tmp_path):
    for name, file in (("last", first), ("best", f"{first}@best")):
        train(replace(QUICK, **NOTHING, start_from=str(file), episodes=16, out=tmp_path / name))
    assert same_weights(weights(tmp_path / "last"), weights(first))
    assert same_weights(weights(tmp_path / "best"), checkpoint.load(RunFolder(first).best)["model"])


def test_a_run_that_started_from_another_goes_on_without_it(first, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in ("checkpoint.pt", "config.json"):
        (moved / file).write_bytes((first / file).read_bytes())
    config = replace(QUICK, start_from=str(moved), warmup_steps=0, out=tmp_path / "next")
    train(config)
    (moved / "checkpoint.pt").unlink()
    assert train(config, resume=True)["episodes"] == 64


@pytest.mark.parametrize("form", ["--from {}", "--start-from {}", "--start_from {}", "--start_from={}"])
def test_all_forms_of_the_flag_have_the_defaults_of_the_run(first, capsys, form):
    assert command([*form.format(first).split(), "--print-config"], "gem-gym train") == 0
    shown = capsys.readouterr().out.splitlines()
    for line in ("width = 16", "layers = 1", "heads = 2", "warmup_steps = 0", f'start_from = "{first}"'):
        assert line in shown


@pytest.mark.system
def test_the_command_takes_the_model_from_the_run(first, tmp_path, capsys):
    assert command(["--from", str(first), "--print-config"], "gem-gym train") == 0
    shown = capsys.readouterr().out
    for line in ("width = 16", "layers = 1", "heads = 2", "warmup_steps = 0", f'start_from = "{first}"'):
        assert line in shown.splitlines()
    words = ["--from", str(first), "--episodes=8", "--batch=8", "--eval-episodes=4", "--watch=0"]
    assert command([*words, f"--out={tmp_path / 'next'}", "--env-kwargs", '{"max_number": 4}'], "x") == 0
    assert RunFolder(tmp_path / "next").read_config().start_from == str(first)


def test_a_config_takes_the_model_from_the_run(first):
    config = TrainConfig(start_from=str(first))
    assert (config.width, config.layers, config.heads, config.warmup_steps) == (16, 1, 2, 0)
    check_source(config)
    assert TrainConfig(start_from=str(first), width=32, warmup_steps=3).warmup_steps == 3


def test_what_does_not_fit_is_refused_in_one_sentence(first, tmp_path):
    def start(source, **given):
        train(replace(QUICK, start_from=str(source), out=tmp_path / "run", **given))

    with pytest.raises(BadArgument, match=r"width is 32, and .* has 16; give that or leave it out"):
        start(first, width=32)
    with pytest.raises(BadArgument, match="holds neither a run nor a model; accepted: the folder of a run"):
        start(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_text("{}")
    with pytest.raises(BadArgument, match=r"has no checkpoint.pt yet"):
        start(tmp_path / "begun")
    with pytest.raises(BadArgument, match=r"the folder of a run; --from .* starts from its weights"):
        TrainConfig(model=str(first))
    assert not (tmp_path / "run").exists()


# -- language models


@pytest.mark.parametrize(
    "values",
    [
        *({"r": "8"}, {"r": 8, "lora_alpha": []}, {"r": 8, "target_modules": 7}, {"r": -1}),
        *({"r": 8, "use_rslora": True}, {"r": 8, "alpha_pattern": {"q_proj": 64}}),
    ],
)
def test_an_adapter_of_another_kind_is_refused_in_one_sentence(tmp_path, values):
    text = json.dumps({"base_model_name_or_path": "some", **values})
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(BadArgument, match=r"adapter_config\.json.* accepted: "):
        settings_of_source(str(tmp_path))


@pytest.mark.filterwarnings("ignore")  # peft's
def test_a_cut_adapter_is_refused_in_one_sentence(folder, tmp_path):
    pytest.importorskip("peft")
    given = {"model": str(folder), "lora_rank": 2, "lora_targets": ("q_proj",)}
    make_policy(small(tmp_path, **given)).model.save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter/adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    config = small(tmp_path, start_from=str(tmp_path / "adapter"), **given)
    with pytest.raises(StoreError, match=r"adapter_model\.safetensors cannot be loaded: .*\.$"):
        load_source(make_policy(config), config)


def test_a_folder_is_the_same_model_by_a_relative_path(tmp_path, monkeypatch):
    for name in ("base", "other", "adapter"):
        (tmp_path / name).mkdir()
    values = {"base_model_name_or_path": str(tmp_path / "base"), "r": 2, "target_modules": ["q_proj"]}
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(values))
    (tmp_path / "adapter/adapter_model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    config = small(tmp_path, start_from="adapter", model="base")
    check_source(config)
    with pytest.raises(BadArgument, match="model is 'other'"):
        check_source(replace(config, model="other"))


@pytest.mark.parametrize(
    ("stated", "given", "refused"), [(64, 4.0, "4.0"), (64, 0.0, "4.0"), (4, 0.0, ""), (64, 64.0, "")]
)
def test_another_scale_of_an_adapter_is_refused(tmp_path, stated, given, refused):
    """Of equal weights it makes another policy. 0 is twice the rank, here 4."""
    values = {"base_model_name_or_path": "some", "r": 2, "lora_alpha": stated, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(values))
    config = small(tmp_path, start_from=str(tmp_path))
    assert config.lora_alpha == stated
    error = pytest.raises(BadArgument, match=f"lora_alpha is {refused}, and .* has 64.0; give that or leave")
    with error if refused else nullcontext():
        check_source(replace(config, lora_alpha=given))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    from model_folders import write_folder

    return write_folder(tmp_path_factory.mktemp("model"))


def small(out, **given):
    words = {"env_kwargs": {"max_number": 4, "max_turns": 2}, "episodes": 8, "batch": 8, "lr_end": 1.0}
    words |= {
        "max_tokens": 6,
        "entropy": 0.01,
        "eval_episodes": 4,
        "watch": 0,
        "warmup_steps": 0,
        "dtype": "float32",
    }
    return TrainConfig.fit(**{**words, "lr_ramp": 0, "out": out, **given})


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
@pytest.mark.parametrize(
    "given", [{}, {"lora_rank": 2, "lora_targets": ("q_proj",), "lora_alpha": 9.0, "lr": 0.05}]
)
def test_language_models(folder, tmp_path, given):
    """A run, one that starts from it, and one that starts from its export."""
    pytest.importorskip("peft")
    from gem.train.learn.model_export import export_model

    out = tmp_path / "run"
    train(small(out, model=str(folder), kl=0.0, **given))
    for name, source in (("run", out), ("export", export_model(out, tmp_path / "exported"))):
        config = small(tmp_path / f"from {name}", start_from=str(source))
        assert (config.lora_rank, config.lora_targets) == (
            given.get("lora_rank", 0),
            given.get("lora_targets", ()),
        )
        train(replace(config, lr=0.0, kl=0.05))
        assert same_weights(weights(config.out), weights(out))
        (line,) = RunFolder(config.out).history()
        assert abs(line.kl) < 1e-6  # the reference is what the run starts from, adapter and all
    with pytest.raises(BadArgument, match=f"lora_rank is 3, and .* has {given.get('lora_rank', 0)}"):
        train(replace(config, start_from=str(out), model=str(folder), lora_rank=3, out=tmp_path / "other"))


def test_layers_alone_do_not_start_from_a_run(folder, tmp_path):
    train(small(tmp_path / "run", model=str(folder), kl=0.0))
    with pytest.raises(BadArgument, match="train_layers does not go with the weights of another run"):
        train(small(tmp_path / "next", model=str(folder), start_from=str(tmp_path / "run"), train_layers=1))
