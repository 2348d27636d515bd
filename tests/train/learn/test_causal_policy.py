import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytest.importorskip("httpx")

import bpe_tokenizers
from model_folders import write_folder
from token_server import TokenServer
from transformers import AutoModelForCausalLM, Gemma2Config, Qwen3Config

from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.model_folder import merged_state
from gem.agents.random import RandomAgent
from gem.errors import BadArgument
from gem.record import SEAT
from gem.rollout import EpisodeStore, Job, rollout
from gem.rollout.demos import write_demos
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn import policy as policy_module
from gem.train.learn.batch import collate, weigh
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import make_policy
from gem.train.learn.preparation import warm
from gem.train.learn.training import load_policy, make_trainer, train, trained_agent
from gem.train.report.run_folder import RunFolder
from gem.train.report.watcher import Watcher

ENV = "game:GuessTheNumber-v0-easy"
CONFIGS = {
    "qwen3": {"config": Qwen3Config},
    # Its logits are squashed behind the head.
    "gemma2": {"config": Gemma2Config, "settings": {"final_logit_softcapping": 5.0, "sliding_window": 64}},
}


def make_tokenizer():
    """A tokenizer trained on what the game says."""
    texts = [
        text
        for episode in rollout([Job(ENV, seed) for seed in range(20)], RandomAgent())
        for turn in episode.turns
        for text in (turn.observation, turn.action)
    ]
    return bpe_tokenizers.make_tokenizer(texts, 400)


@pytest.fixture(scope="module", params=["qwen3", pytest.param("gemma2", marks=pytest.mark.slow)])
def folder(request, tmp_path_factory):
    """A randomly initialised model and its tokenizer, as a folder."""
    path = tmp_path_factory.mktemp(request.param)
    return write_folder(path, tokenizer=make_tokenizer(), **CONFIGS[request.param])


def small(folder, out, **how):
    return TrainConfig(
        env=ENV,
        model=str(folder),
        out=out,
        **{
            "episodes": 16,
            "batch": 8,
            "minibatch": 4,
            "warmup_steps": 20,
            "warmup_batch": 8,
            "warmup_lr": 2e-2,
            "warmup_on": "answers",
            "eval_episodes": 10,
            "save_every": 1,
            "max_turns": 2,
            "max_tokens": 24,
            "dtype": "float32",
            **how,
        },
    )


@pytest.mark.system
def test_the_whole_loop(folder, tmp_path):
    config = small(folder, tmp_path)
    summary = train(config)
    history = RunFolder(tmp_path).history()
    assert [m.iteration for m in history] == [1, 2]
    assert all(math.isfinite(m.loss) and math.isfinite(m.kl) for m in history)
    assert 0 <= summary["after"]["success"]["mean"] <= 1
    before = dict(make_policy(config).model.named_parameters())
    after = checkpoint.load(RunFolder(tmp_path).checkpoint)["model"]
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_goes_on_from_the_warm_up(folder, tmp_path, dtype):
    trainer = make_trainer(small(folder, tmp_path, dtype=dtype, warmup_steps=2))
    fresh = [p.detach().clone() for p in trainer.learner.parameters]
    warm(trainer)
    warmed = [p.detach().clone() for p in trainer.learner.parameters]
    assert any(not torch.equal(a, b) for a, b in zip(fresh, warmed, strict=True))
    trainer.learner.step()  # without gradients
    assert all(torch.equal(a, b) for a, b in zip(warmed, trainer.learner.parameters, strict=True))


@pytest.mark.system
@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
def test_a_server_that_samples_follows_the_training(folder, tmp_path, protocol, staleness):
    """The server's copy answers every turn, with the weights of the iteration that it plays for."""
    path = folder if folder.name.startswith("qwen3") else pytest.skip("one architecture is enough")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with TokenServer(model, protocol) as server:
        sampler = f"{protocol}:{server.url}"
        how = {"staleness": staleness, "kl": 0.0, "store": "tokens", "lr": 1e-2}
        config = small(path, tmp_path, sampler=sampler, **how)
        train(config)
    history = RunFolder(tmp_path).history()
    assert all(m.no_verdict == 0 and m.logprob_gap < 1e-3 for m in history[: 1 if staleness else None])
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        turns = [turn for episode in store for turn in episode.turns]
        assert {episode.run.agent for episode in store} == {"TokenServerAgent"}
    assert {turn.policy_version for turn in turns} == ({0} if staleness else {0, 1})
    trained = checkpoint.load(RunFolder(tmp_path).checkpoint)["model"]
    served = dict(model.named_parameters())
    assert all(torch.allclose(served[name], tensor, atol=1e-6) for name, tensor in trained.items())
    again = trained_agent(tmp_path)  # plays the run's weights, and asks no server, which may have others
    assert isinstance(again, HuggingFaceAgent)
    again.close()


@pytest.mark.system
@pytest.mark.filterwarnings("default:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_a_server_samples_for_an_adapter_with_prefix_and_stop(folder, tmp_path, monkeypatch):
    """The server gets the merged weights, and answers are as the trained model's own agent gives them."""
    pytest.importorskip("peft")
    path = folder if folder.name.startswith("qwen3") else pytest.skip("one architecture is enough")
    loaded = []
    load = policy_module.load_causal
    monkeypatch.setattr(policy_module, "load_causal", lambda *a, **k: loaded.append(1) or load(*a, **k))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with TokenServer(model, "vllm") as server:
        config = small(
            path,
            tmp_path,
            sampler=f"vllm:{server.url}",
            lora_rank=2,
            answer_prefix="\\boxed{",
            stop=("}",),
            staleness=1,
            algorithm="reinforce",
            **{"kl": 0.0, "store": "tokens", "lr": 1e-2, "watch": 0},
        )
        train(config)
    assert len(loaded) == 1  # the server holds the only other copy
    history = RunFolder(tmp_path).history()
    assert all(m.no_verdict == 0 for m in history)
    assert history[0].logprob_gap < 1e-4
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        turns = [turn for episode in store for turn in episode.turns]
    assert all(turn.action.startswith("\\boxed{") for turn in turns)
    assert any(turn.action.endswith("}") for turn in turns)
    assert all("}" not in turn.action[:-1] for turn in turns)
    merged = merged_state(load_policy(tmp_path).model)
    assert all(torch.allclose(merged[name], value, atol=1e-6) for name, value in model.state_dict().items())


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_sampler_and_the_trainer_see_the_same_distribution(folder, temperature):
    policy = make_policy(small(folder, folder, temperature=temperature, max_tokens=12))
    episodes = rollout([Job(ENV, seed) for seed in range(12)], policy.agent)
    batch = collate(weigh(episodes, SEAT), policy.pad, policy.capacity)
    assert len(batch.target) > 40
    with torch.no_grad():
        found = Learner(policy, Settings(temperature=temperature)).logprobs(batch)
    assert (found - batch.old_logprob).abs().max() <= 1e-4
    assert batch.old_logprob.std() > 0.05


@pytest.mark.system
@pytest.mark.filterwarnings("default:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
@pytest.mark.parametrize(
    "given",
    [
        {"train_layers": 1},
        {"lora_rank": 2},
        {"lora_rank": 2, "lora_alpha": 3.0, "lora_targets": ("q_proj", "v_proj")},
        {"checkpointing": True},
    ],
)
def test_what_is_trained_is_what_a_checkpoint_holds(folder, tmp_path, given):
    """A run of each kind, cut and gone on with, is the run that it would have been."""
    if "lora_rank" in given:
        pytest.importorskip("peft")
    quick = {"warmup_steps": 0, "save_every": 2, "eval_episodes": 4, "episodes": 24, **given}
    train(small(folder, tmp_path / "whole", **quick))
    config = small(folder, tmp_path / "cut", **quick)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop())
    train(config, resume=True)
    one, other = (checkpoint.load(RunFolder(tmp_path / n).checkpoint)["model"] for n in ("whole", "cut"))
    assert one
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(name.startswith("model.layers.0.") for name in one) == (
        "train_layers" not in given and "lora_rank" not in given
    )


@pytest.mark.filterwarnings("default:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_adapters_have_the_alpha_and_the_targets_that_were_asked_for(folder, tmp_path):
    pytest.importorskip("peft")
    given = {"lora_rank": 2, "lora_alpha": 3.0, "lora_targets": ("q_proj", "v_proj")}
    trained = [
        n
        for n, p in make_policy(small(folder, tmp_path, **given)).model.named_parameters()
        if p.requires_grad
    ]
    assert {name.split(".")[-4] for name in trained} == {"q_proj", "v_proj"}
    model = make_policy(small(folder, tmp_path, **given)).model
    assert {part.scaling["default"] for part in model.modules() if hasattr(part, "lora_A")} == {1.5}
    with pytest.raises(BadArgument, match=r"lora_targets are query, and .* accepted: .*q_proj"):
        make_policy(small(folder, tmp_path, lora_rank=2, lora_targets=("query",)))
    with pytest.raises(BadArgument, match=r"lora_alpha is 3.0; it has an effect only with LoRA"):
        small(folder, tmp_path, lora_alpha=3.0)


class Stop(Watcher):
    """Ctrl-C after the first iteration."""

    def iterated(self, metrics, config):
        raise KeyboardInterrupt


@pytest.mark.system
@pytest.mark.parametrize("every", [1, 10])  # from the first iteration, or from the checkpoint before it
def test_an_interrupted_run_goes_on_as_the_same_run(folder, tmp_path, every):
    train(small(folder, tmp_path / "whole", save_every=every))
    config = small(folder, tmp_path / "cut", save_every=every)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Stop())
    train(config, resume=True)
    one, other = (checkpoint.load(RunFolder(tmp_path / n).checkpoint)["model"] for n in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.system
def test_a_run_does_not_know_of_the_seeds_that_are_watched(folder, tmp_path):
    given = {"answer_prefix": "\\boxed{", "stop": ("}",)}
    train(small(folder, tmp_path / "with", **given, watch=2))
    train(small(folder, tmp_path / "without", **given, watch=0))
    one, other = (checkpoint.load(RunFolder(tmp_path / n).checkpoint)["model"] for n in ("with", "without"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    with EpisodeStore(RunFolder(tmp_path / "with").watched, read_only=True) as store:
        for episode in store:
            assert episode.run.sampling["prefix"] == "\\boxed{"
            assert all(len(turn.extra["entropy"]) == len(turn.token_ids) > 0 for turn in episode.turns)
        assert sorted(episode.job for episode in store) == [
            f"{i}-{n}" for i in range(len(store) // 2) for n in range(2)
        ]
        assert len(store) > 2


def test_no_such_model(tmp_path):
    with pytest.raises(BadArgument, match=r"model '.*nothing' cannot be loaded on 'cpu'"):
        make_policy(small(tmp_path / "nothing", tmp_path))


def test_no_such_device(folder):
    with pytest.raises(BadArgument, match="cannot be loaded on 'nowhere'"):
        make_policy(small(folder, folder, device="nowhere"))


def test_a_model_computes_attention_as_asked(folder):
    policy = make_policy(small(folder, folder, attn_implementation="eager"))
    assert policy.model.config._attn_implementation == "eager"
    with pytest.raises(BadArgument, match=r"cannot be loaded on 'cpu': .*[Ff]lash"):
        make_policy(small(folder, folder, attn_implementation="flash_attention_2"))


@pytest.mark.system
def test_demonstrations_alone_are_cloned(folder, tmp_path):
    demos = tmp_path / "demos.jsonl"
    write_demos(ENV, demos, episodes=12)
    config = small(
        folder, tmp_path / "run", episodes=0, demos=demos, demos_held_out=0.25, eval_every=1, held_out=4
    )
    summary = train(config)
    steps = RunFolder(config.out).warmed()
    assert len(steps) == 20
    assert steps[-1].loss < steps[0].loss
    assert steps[-1].held_out_loss < steps[0].held_out_loss
    assert {"untrained", "after", "greedy", "held_out"} <= set(summary)
