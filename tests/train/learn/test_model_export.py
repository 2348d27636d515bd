"""A run's model goes out: other programs load it, and it is the model that was trained."""

import json
import re
import shlex
import shutil
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from model_folders import write_folder
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from gem.agents.model_folder import merged_state
from gem.agents.named import named_agent
from gem.agents.random import RandomAgent
from gem.cli import main
from gem.content import Message
from gem.errors import BadArgument, StoreError
from gem.evals import evaluate
from gem.record import SEAT
from gem.registry import Maker
from gem.rollout import Job, rollout
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint, model_export
from gem.train.learn.batch import collate, weigh
from gem.train.learn.learner import Learner, weights
from gem.train.learn.model_export import export_model
from gem.train.learn.policy import CausalPolicy
from gem.train.learn.training import load_policy, make_trainer, trained_agent
from gem.train.report.run_folder import RunFolder

# peft asks transformers by an old name.
pytestmark = pytest.mark.filterwarnings("default:`is_gradient_checkpointing` is deprecated:FutureWarning")
ENV = "game:GuessTheNumber-v0-easy"


def make_base(path, tied):
    """Write a model whose own generation settings are not those of training."""
    write_folder(path, tied=tied, do_sample=True, top_k=3, top_p=0.5, repetition_penalty=1.3)
    (path / "README.md").write_text("---\ntags: [x]\nlicense: mit\n---\n# A card\n")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"), tied=False)


@pytest.fixture(scope="module")
def tied_base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("tied"), tied=True)


def make_run(base, out, **settings):
    """Write the run of a policy whose weights are not those that it began with; return its learner."""
    config = TrainConfig(
        env=ENV,
        model=str(base),
        out=out,
        **{"dtype": "float32", "max_tokens": 6, "max_turns": 2, "temperature": 0.7, **settings},
    )
    trainer = make_trainer(config)
    trainer.folder.begin(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.learner.parameters:
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    trainer.iteration = 1
    trainer.save()
    return trainer.learner


def logprobs_of(policy, batch):
    with torch.no_grad():
        return Learner(policy).logprobs(batch)


def batch_of(policy):
    episodes = rollout([Job(ENV, seed) for seed in range(4)], policy.agent)
    return collate(weigh(episodes, SEAT), policy.pad, policy.capacity)


def load(folder, dtype="float32"):
    """Load an exported folder as another program does, and return a policy that computes with it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.requires_grad_(True)  # an adapter that is loaded to answer is not trained
    return CausalPolicy(model, ChatTemplateRenderer(AutoTokenizer.from_pretrained(folder)))


@pytest.mark.system
@pytest.mark.parametrize(
    ("settings", "tied", "merge", "apart"),
    [
        ({}, False, False, 1e-5),
        ({"train_layers": 1}, True, False, 1e-5),
        ({"dtype": "bfloat16"}, True, False, 1e-5),
        ({"lora_rank": 2}, False, False, 1e-5),
        ({"lora_rank": 2}, False, True, 1e-5),
        ({"lora_rank": 2}, True, True, 1e-5),
        (
            {"lora_rank": 2, "dtype": "bfloat16"},
            True,
            False,
            0.02,
        ),  # transformers rounds an adapter; peft not
        ({"lora_rank": 2, "dtype": "bfloat16"}, False, True, 0.05),  # merged weights are rounded
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else str(value),
)
def test_the_exported_model_is_the_one_that_was_trained(
    base, tied_base, tmp_path, settings, tied, merge, apart
):
    base = tied_base if tied else base
    if "lora_rank" in settings:
        pytest.importorskip("peft")
    learner = make_run(base, tmp_path / "run", **settings)
    batch = batch_of(learner.policy)
    export_model(tmp_path / "run", tmp_path / "out", merge=merge)
    dtype = settings.get("dtype", "float32")
    wanted = logprobs_of(learner.policy, batch)
    assert (logprobs_of(load(tmp_path / "out", dtype), batch) - wanted).abs().max() <= apart
    assert (logprobs_of(load(base, dtype), batch) - wanted).abs().max() > 5 * apart  # they were trained
    adapter = (tmp_path / "out" / "adapter_config.json").exists()
    assert adapter == ("lora_rank" in settings and not merge)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.system
def test_peft_loads_an_adapter(base, tmp_path, dtype):
    peft = pytest.importorskip("peft")
    learner = make_run(base, tmp_path / "run", lora_rank=2, dtype=dtype)
    export_model(tmp_path / "run", tmp_path / "out")
    model = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out", dtype=getattr(torch, dtype))
    model.eval().requires_grad_(True)
    batch = batch_of(learner.policy)
    found = logprobs_of(CausalPolicy(model, learner.policy.renderer), batch)
    assert (found - logprobs_of(learner.policy, batch)).abs().max() <= 1e-5


def test_an_adapter_has_the_whole_path_of_its_base(base, tmp_path, monkeypatch):
    pytest.importorskip("peft")
    monkeypatch.chdir(base.parent)
    make_run(base.name, tmp_path / "run", lora_rank=2)
    export_model(tmp_path / "run", tmp_path / "out")
    settings = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(base)


def test_an_export_leaves_other_folders(base, tmp_path):
    make_run(base, tmp_path / "run")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial/mine").touch()
    export_model(tmp_path / "run", tmp_path / "out")
    assert (tmp_path / "out.partial/mine").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.partial", "run"]


def test_merging_leaves_the_model_as_it_is(base, tmp_path):
    pytest.importorskip("peft")
    policy = make_run(base, tmp_path / "run", lora_rank=2).policy
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    merged = merged_state(policy.model)
    after = policy.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert merged.keys() == AutoModelForCausalLM.from_pretrained(base).state_dict().keys()


@pytest.mark.parametrize("tied", [False, True])
def test_an_adapter_on_shared_weights_is_not_merged(base, tied_base, tied):
    peft = pytest.importorskip("peft")
    model = AutoModelForCausalLM.from_pretrained(tied_base if tied else base)
    with pytest.warns(UserWarning, match="tie") if tied else nullcontext():
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["lm_head"]))
    if tied:
        with pytest.raises(BadArgument, match="lm_head cannot be merged, because other layers share"):
            merged_state(adapted)
    else:
        assert "lm_head.weight" in merged_state(adapted)


def test_a_server_samples_the_exported_model_as_training_did(base, tmp_path):
    """No top-k, top-p or penalty of the base model is left, and the same ids end an answer."""
    learner = make_run(base, tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "out")
    found = GenerationConfig.from_pretrained(tmp_path / "out")
    assert (found.do_sample, found.temperature, found.top_k) == (True, 0.7, 0)
    assert (found.top_p or 1.0, found.repetition_penalty or 1.0) == (1.0, 1.0)
    assert set(found.eos_token_id) == learner.policy.renderer.stop_ids
    asked = (Message("system", "Play."), Message("user", "Guess <|end|> 12."))
    renderer = ChatTemplateRenderer(AutoTokenizer.from_pretrained(tmp_path / "out"))
    assert renderer.prompt(asked) == learner.policy.renderer.prompt(asked)
    assert renderer.vocab_hash == learner.policy.renderer.vocab_hash


def test_the_card_says_where_the_model_comes_from(base, tmp_path):
    make_run(base, tmp_path / "run", answer_prefix="I say ", stop=("}",))
    result = evaluate(RandomAgent(), Maker(ENV), episodes=4)
    folder = RunFolder(tmp_path / "run")
    folder.write(folder.summary, {"random": result.to_json(), "seed": 0})
    export_model(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\n")
    assert re.search(r"\| random play \| \d+\.\d% \|", card)
    assert 'license: "mit"' in card
    for part in (ENV, "rebn", "vllm serve MODEL", "'I say '", "'}'", "--config training.toml"):
        assert part in card
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "out", again)
    assert model_export._licence_of(again) == "mit"  # of a model that is trained on from this one
    for file in (tmp_path / "out").iterdir():
        if file.suffix in (".json", ".md", ".jinja"):
            assert str(tmp_path) not in file.read_text()


def test_the_settings_train_it_again(base, tmp_path, capsys):
    make_run(base, tmp_path / "run", algorithm="grpo", group=4)
    export_model(tmp_path / "run", tmp_path / "out")
    assert main(["train", "--config", str(tmp_path / "out" / "training.toml"), "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert 'algorithm = "grpo"' in printed
    assert "group = 4" in printed


@pytest.mark.parametrize("cloned", [{"episodes": 0}, {"demos_held_out": 0.25, "episodes": 64}])
def test_the_recipe_of_a_run_with_demonstrations_names_them(base, tmp_path, monkeypatch, capsys, cloned):
    demos = tmp_path / "shown/my demos.jsonl"
    settings = {"warmup_steps": 3, "warmup_batch": 5, "warmup_lr": 2e-4, **cloned}
    make_run(base, tmp_path / "run", demos=demos, **settings)
    export_model(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    warmup = "A warm-up before it cloned the demonstrations my demos.jsonl, in 3 steps of 5 episodes, "
    assert f"{warmup}learning rate 0.0002." in card
    (recipe,) = [line for line in card.splitlines() if line.startswith("gem-gym train")]
    assert recipe == "gem-gym train --config training.toml --demos 'my demos.jsonl' --out runs/again"
    assert str(demos) not in card
    monkeypatch.chdir(tmp_path / "out")
    assert main([*shlex.split(recipe)[1:], "--print-config"]) == 0
    printed = tomllib.loads(capsys.readouterr().out)
    assert {name: printed[name] for name in settings} == settings
    assert printed["demos"] == "my demos.jsonl"


@pytest.mark.parametrize("settings", [{"start_from": "first"}, {"warmup_steps": 2, "demos": Path("shown")}])
def test_a_later_phase_of_the_recipe_takes_up_the_settings_of_the_machine(
    base, tmp_path, monkeypatch, capsys, settings
):
    monkeypatch.chdir(tmp_path)
    make_run(base, Path("first"))
    make_run(base, Path("run"), episodes=64, **settings)
    phase = Path("run/phases/polish")
    make_run(base, phase, episodes=640, **settings)
    RunFolder(Path("run")).write(RunFolder(phase).phase, {"after_iteration": 1})
    export_model(Path("run"), Path("out"))
    card = Path("out/README.md").read_text()
    later = [line for line in card.splitlines() if line.startswith("gem-gym train")][1].split()[2:]
    make_run(base, Path("runs/again"), episodes=64, **settings)
    monkeypatch.setattr("gem.train.config.toml_file.accept_settings", lambda *given, **named: None)
    words = [f"out/{word}" if word.endswith(".toml") else word for word in later]
    assert main(["train", *words, "--print-config"]) == 0
    assert "episodes = 640" in capsys.readouterr().out


@pytest.mark.parametrize("agent", [False, True])
def test_a_model_that_a_gpu_trained_is_loaded_without_one(base, tmp_path, monkeypatch, agent):
    learner = make_run(base, tmp_path / "run")
    config = json.loads((tmp_path / "run/config.json").read_text())
    config |= {"device": "cuda", "pass_tokens": 0, "attn_implementation": "flash_attention_2"}
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if agent:
        found = load_policy(tmp_path / "run")
        assert trained_agent(tmp_path / "run") is not None
    else:
        export_model(tmp_path / "run", tmp_path / "out")
        found = load(tmp_path / "out")
        recipe = "--config training.toml --device cuda --out runs/again"
        assert recipe in (tmp_path / "out/README.md").read_text()
    batch = batch_of(learner.policy)
    assert (logprobs_of(found, batch) - logprobs_of(learner.policy, batch)).abs().max() <= 1e-5


def test_the_card_of_a_run_with_a_later_phase_is_about_all_of_it(base, tmp_path):
    make_run(base, tmp_path / "run", episodes=64, lr=1e-3)
    run = RunFolder(tmp_path / "run")
    run.write(run.summary, {"after": evaluate(RandomAgent(), Maker(ENV), episodes=4).to_json()})
    phase = tmp_path / "run" / "phases" / "polish"
    make_run(base, phase, episodes=640, lr=2e-4)
    run.write(RunFolder(phase).phase, {"after_iteration": 1})
    solved = evaluate(named_agent("solver"), Maker(ENV), episodes=4)
    run.write(RunFolder(phase).summary, {"after": solved.to_json()})
    export_model(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "640 episodes" in card
    assert "0.0002" in card
    assert "0.001" in card
    assert re.search(
        r"\| trained, sampled \| 100.0% \|", card
    )  # the figures are those of the exported weights
    again = [line for line in card.splitlines() if line.startswith("gem-gym train")]
    assert again == [
        "gem-gym train --config training.toml --out runs/again",
        "gem-gym train --config training-polish.toml --resume --phase polish --out runs/again",
    ]
    settings = [
        tomllib.loads((tmp_path / "out" / name).read_text())
        for name in ("training.toml", "training-polish.toml")
    ]
    assert [(each["episodes"], each["lr"]) for each in settings] == [(64, 1e-3), (640, 2e-4)]
    export_model(phase, tmp_path / "by its path")  # the phase is named itself
    assert (tmp_path / "by its path/README.md").read_text() == card


def test_the_card_has_the_chain_of_weights_that_a_run_began_with(base, tmp_path):
    make_run(base, tmp_path / "gone")
    make_run(base, tmp_path / "first", episodes=64, lr=1e-3, start_from=str(tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    make_run(base, tmp_path / "second", algorithm="grpo", group=4, start_from=str(tmp_path / "first"))
    make_run(base, tmp_path / "third", start_from=str(tmp_path / "second"))
    export_model(tmp_path / "third", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    second, first = f"second (grpo on {ENV}, ", f"first (rebn on {ENV}, 64 episodes, learning rate 0.001)"
    assert f"It began with the weights of {second}" in card
    assert f", which began with the weights of {first}, which began with the weights of gone." in card
    assert "gem-gym train --config training.toml --from second --out runs/again" in card
    assert str(tmp_path) not in card


def test_the_best_weights_can_be_exported(base, tmp_path, capsys):
    learner = make_run(base, tmp_path / "run")
    args = ["export", f"{tmp_path / 'run'}@best", "--format", "hf", "--out", str(tmp_path / "out")]
    assert main(args) == 2
    assert "has no best weights" in capsys.readouterr().err
    batch = batch_of(learner.policy)
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.mul_(1.1)
    checkpoint.save(RunFolder(tmp_path / "run").best, {**weights(learner.policy), "iteration": 1})
    assert main(args) == 0
    assert capsys.readouterr().out == f"wrote the model of {tmp_path / 'run'}@best to {tmp_path / 'out'}\n"
    found = logprobs_of(load(tmp_path / "out"), batch)
    assert (found - logprobs_of(learner.policy, batch)).abs().max() <= 1e-5


def test_a_failed_export_leaves_nothing(base, tmp_path, monkeypatch):
    make_run(base, tmp_path / "run")

    def full(*args, **kwargs):
        raise StoreError("the disk is full")

    monkeypatch.setattr(model_export, "write_model", full)
    with pytest.raises(StoreError):
        export_model(tmp_path / "run", tmp_path / "out")
    no_folder = tmp_path / "run" / "config.json" / "out"
    with pytest.raises(StoreError, match=r"cannot be written: .*; choose another --out"):
        export_model(tmp_path / "run", no_folder)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_cannot_be_exported_is_told(base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(base, Path("run"))
    tiny = TrainConfig(out=Path("tiny"))
    Path("tiny").mkdir()
    Path("tiny/config.json").write_text(json.dumps(tiny.to_json()))
    for args, words in [
        (["run", "out", "--format", "hf", "--merge"], "there is no adapter to merge; leave out --merge"),
        (["tiny", "out", "--format", "hf"], "whose architecture and tokenizer are gem's own"),
        (["none", "out", "--format", "hf"], "no folder 'none'; accepted: the folder of a training run"),
        (["run", "run", "--format", "hf"], "run already exists"),
        (["run", "--format", "hf"], "give one: OUT behind RUN, or --out OUT"),
        (["run", "out", "--out", "other", "--format", "hf"], "is out and other; give one"),
        (["run", "out", "--format", "hf", "--per", "turn"], "--per and --no-tokens are for episodes"),
        (["run", "out.jsonl", "--merge"], "--merge is for a trained model; give --format hf"),
        (["run", "out", "--format", "gguf"], "for a model: hf"),
    ]:
        assert main(["export", *args]) == 2, args
        assert words in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "tiny"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # TRL's and transformers', of their own names
def test_trl_trains_an_exported_model(base, tmp_path):
    trl = pytest.importorskip("trl", reason="needs TRL: pip install 'gem-gym[trl]'")
    datasets = pytest.importorskip("datasets")
    make_run(base, tmp_path / "run", lora_rank=2)
    export_model(tmp_path / "run", tmp_path / "out", merge=True)
    said = [{"role": "user", "content": "Guess."}, {"role": "assistant", "content": "12"}]
    how = trl.SFTConfig(output_dir=str(tmp_path / "trl"), max_steps=1, report_to=[], use_cpu=True)
    data = datasets.Dataset.from_list([{"messages": said}] * 4)
    trainer = trl.SFTTrainer(model=str(tmp_path / "out"), args=how, train_dataset=data)
    assert trainer.train().training_loss > 0
