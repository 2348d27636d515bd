import json
import math
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy
import pytest
import tyro

pytest.importorskip("torch")

import gem
from gem.errors import BadArgument, SchemaMismatch, StoreError
from gem.testing import EchoEnv
from gem.train.command import _flag, command
from gem.train.config import TrainConfig
from gem.train.config.bounds import AT_LEAST_ONE, NOT_NEGATIVE, bounds_of

BOUNDS = bounds_of(TrainConfig)


def test_a_class_or_a_function_goes_in_as_environment():
    class Own(EchoEnv):
        pass

    config = TrainConfig(env=Own)
    assert isinstance(gem.make(config.env), Own)
    assert TrainConfig.from_json(config.to_json()).env == config.env
    parts = TrainConfig(environments=[{"id": Own}, {"id": lambda: Own()}]).environments
    assert [type(gem.make(part.id)) for part in parts] == [Own, Own]
    assert TrainConfig(env=EchoEnv).env == "gem.testing.doubles:EchoEnv"  # other processes find it too


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampler": "vllm"}, "accepted: vllm:URL or sglang:URL"),
        ({"sampler": "trt:http://x"}, "accepted: vllm:URL or sglang:URL"),
        ({"sampler": "vllm:http://x", "ray": "local"}, "ray and sampler both say where answers are sampled"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(model="some", **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agent": "python ask.py"}, "agent is 'python ask.py'; accepted: program:COMMAND"),
        ({"agent": "program: "}, "accepted: program:COMMAND"),
        ({"host": "process"}, "accepted: thread, serial"),
        ({"ray": "local"}, "leave it out, or the program"),
        ({"staleness": 1}, "staleness 1 needs a second model"),
        ({"opponent": ("random",)}, "a program plays alone"),
        ({"warmup_check": 5}, "warmup_check plays without the program"),
        ({"algorithm": "turn_grpo"}, "turn_grpo goes on from turns of other episodes"),
    ],
)
def test_what_a_program_cannot_play_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig.fit(**{"agent": "program:python ask.py", **given})


def test_programs_play_many_at_a_time_unless_another_host_is_named():
    assert TrainConfig.fit(agent="program:python ask.py").host == "thread"
    assert TrainConfig.fit(agent="program:python ask.py", host="serial").host == "serial"


def test_a_config_comes_back_from_json():
    config = TrainConfig(env_kwargs={"max_number": [5, 9]}, out=Path("some where"), max_turns=3, gamma=0.9)
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("name", [name for name in BOUNDS if BOUNDS[name] is AT_LEAST_ONE])
def test_counts_start_at_one(name):
    with pytest.raises(BadArgument, match=f"{name} is 0; accepted: 1 or more"):
        TrainConfig(**{name: 0})


@pytest.mark.parametrize("name", [name for name in BOUNDS if BOUNDS[name] is NOT_NEGATIVE])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
def test_weights_are_not_negative(name, value):
    with pytest.raises(BadArgument, match=f"{name} is {value}; accepted: (0 or more|a whole number)"):
        TrainConfig(**{name: value})


def test_every_number_has_a_bound():
    numbers = {name for name, value in TrainConfig().to_json().items() if type(value) in (int, float)}
    assert numbers - {"staleness"} <= {*BOUNDS}  # which has two values


@pytest.mark.parametrize("name", ["temperature", "max_grad_norm", "loss_constant"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_what_is_divided_by_is_positive(name, value):
    with pytest.raises(BadArgument, match=f"{name} is {value}; accepted: above 0"):
        TrainConfig(**{name: value})


@pytest.mark.parametrize("name", ["gamma", "lr_end"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_shares_are_shares(name, value):
    with pytest.raises(BadArgument, match=f"{name} is {value}; accepted: 0 to 1"):
        TrainConfig(**{name: value})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"held_out": 50}, r"held_out is 50; it has an effect only with held-out evaluations \(eval_every\)"),
        ({"eval_temperature": 0.0}, "eval_temperature is 0.0; it has an effect only with held-out"),
        ({"pool_every": 2}, r"pool_every is 2; it has an effect only with a pool of opponents \(pool\)"),
        ({"pool_by": "hard"}, "pool_by is 'hard'; it has an effect only with a pool"),
        ({"keep": 0.5}, "keep is 0.5; it has an effect only with a curriculum"),
        ({"advance_at": 0.5}, "advance_at is 0.5; it has an effect only with a curriculum"),
        ({"normalise_by": "batch"}, "normalise_by is 'batch'; it has an effect only with several"),
        ({"warmup_steps": 0, "warmup_check": 2}, "warmup_check tests the warm-up, and there is none"),
        ({"warmup_steps": 0, "warmup_check": 2, "warmup_most": 9}, "and there is none; set its length"),
        ({"temperature": math.inf}, "temperature is inf; accepted: above 0, and finite"),
        ({"kl_reward": True, "kl": 0.0}, "kl_reward is True; it has an effect only with a divergence"),
        ({"kl_schedule": "cosine", "kl": 0.0}, "kl_schedule is 'cosine'; it has an effect only with a div"),
        ({"kl_estimator": "k2", "kl": 0.0}, "kl_estimator is 'k2'; .* Leave it out, or give 'full'"),
        ({"kl_estimator": "k2", "kl_reward": True}, r"only with a divergence in the loss \(kl, without kl_r"),
        ({"entropy_schedule": "constant"}, "entropy_schedule is 'constant'; .* an entropy bonus"),
        ({"loss_constant": 5.0}, "loss_constant is 5.0; it has an effect only with a constant divisor"),
        ({"program_s": 60.0}, r"program_s is 60.0; it has an effect only with a program \(agent\)"),
        ({"tools": ("python", "python")}, "tools are python python; give each name once"),
    ],
)
def test_what_would_have_no_effect_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(**given)


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(
        BadArgument, match="algorithm is 'dpo'; accepted: reinforce, rebn, turn_rebn, rloo, grpo"
    ):
        TrainConfig(algorithm="dpo")


def test_tools_are_named():
    with pytest.raises(BadArgument, match="tools has 'shell'; accepted: python, search"):
        TrainConfig(tools=("shell",))
    assert TrainConfig(tools=("python",)).tools == ("python",)


def test_groups_divide_the_batch():
    with pytest.raises(BadArgument, match=r"batch is 20; grpo takes a multiple of group \(8\)"):
        TrainConfig(algorithm="grpo", batch=20, group=8)
    TrainConfig(algorithm="rebn", batch=20, group=8)


def test_a_group_has_something_to_compare():
    with pytest.raises(BadArgument, match="group is 1; rloo compares at least 2 samples of a task"):
        TrainConfig(algorithm="rloo", group=1)


@pytest.mark.parametrize(
    "given",
    [
        {"train_layers": 2},
        {"lora_rank": 4},
        {"checkpointing": True},
        {"answer_prefix": "x"},
        {"stop": ("}",)},
        {"dtype": "bfloat16"},
        {"attn_implementation": "sdpa"},
        {"pack": 100},
    ],
)
def test_what_belongs_to_a_language_model_is_refused_for_the_tiny_one(given):
    with pytest.raises(BadArgument, match=f"{next(iter(given))} is a setting of language models"):
        TrainConfig(**given)
    TrainConfig(model="some/model", **given)


def test_an_implementation_of_attention_that_there_is_not_lists_those_that_there_are():
    with pytest.raises(
        BadArgument, match=r"attn_implementation.*'fast'.*auto, eager, sdpa, flash_attention_2"
    ):
        TrainConfig(model="some/model", attn_implementation="fast")


def test_lora_and_layers_exclude_each_other():
    with pytest.raises(BadArgument, match="lora_rank and train_layers both say what is trained"):
        TrainConfig(model="some/model", lora_rank=4, train_layers=2)


def test_defaults_fit_the_algorithm_and_the_model():
    assert TrainConfig(algorithm="grpo").gamma == 1.0
    assert TrainConfig(algorithm="grpo", gamma=0.5).gamma == 0.5
    assert TrainConfig(algorithm="gspo").ratio == "sequence"
    assert TrainConfig(staleness=1).importance_cap == 2.0
    large = TrainConfig("game:Sudoku-v0-easy", model="some/model", algorithm="rloo", lr=1e-6)
    assert (large.warmup_steps, large.batch, large.gamma, large.lr) == (0, 64, 1.0, 1e-6)
    assert large.env == "game:Sudoku-v0-easy"
    assert TrainConfig.fit(algorithm="gspo") == TrainConfig(algorithm="gspo")


def test_a_setting_by_its_place_is_given_once():
    assert TrainConfig("game:Sudoku-v0-easy") == TrainConfig(env="game:Sudoku-v0-easy")
    with pytest.raises(TypeError, match="multiple values"):
        TrainConfig("game:Sudoku-v0-easy", env="game:Sudoku-v0-easy")


def test_a_changed_copy_keeps_its_other_settings():
    gspo = TrainConfig(algorithm="gspo")
    assert (gspo.gamma, replace(gspo, algorithm="rebn").gamma) == (1.0, 1.0)
    assert replace(TrainConfig(), algorithm="no_such.py:X").gamma == 0.3  # which is read when a run begins


def test_a_stored_config_means_what_it_meant():
    """What an earlier version did not have, and did not store, has no effect, whatever the algorithm is."""
    stored = TrainConfig(algorithm="gspo", model="some/model").to_json()
    del stored["clip_high"], stored["lr_ramp"]
    found = TrainConfig.from_json(stored)
    assert (found.clip, found.clip_high, found.lr_ramp) == (3e-4, 0.0, 0)


def test_the_step_size_rises_and_falls():
    config = TrainConfig(episodes=10 * 256, lr=1.0, lr_ramp=3, lr_end=0.1)
    found = [config.lr_at(iteration) for iteration in range(10)]
    assert found[:4] == pytest.approx([0.25, 0.5 * 0.91, 0.75 * 0.82, 0.73])
    assert found[9] == pytest.approx(0.1 + 0.9 * 0.1)


def test_the_tiny_model_lives_on_the_cpu():
    with pytest.raises(BadArgument, match="device is 'cuda'; the tiny model runs on cpu only"):
        TrainConfig(device="cuda")


def test_the_last_iteration_may_be_begun():
    assert TrainConfig(episodes=100, batch=32).iterations == 4
    assert TrainConfig(episodes=96, batch=32).iterations == 3


def test_a_config_of_another_version_is_refused():
    values = {**TrainConfig().to_json(), "gama": 0.9}
    with pytest.raises(SchemaMismatch, match=r"has 'gama', .* Did you mean 'gamma'"):
        TrainConfig.from_json(values)
    with pytest.raises(SchemaMismatch, match="a config is a JSON object"):
        TrainConfig.from_json([1])


@pytest.mark.parametrize("make", [TrainConfig.from_json, lambda given: TrainConfig(**given)])
@pytest.mark.parametrize(
    "value",
    ["16", 1.5, True, None, [], [1], {}, -1, 10**400, 32.0, object(), Path("x"), numpy.int64(3)],
    ids=lambda v: f"{v!r:.9}",
)
def test_a_value_of_another_type_is_refused_in_a_sentence(make, value):
    for setting in fields(TrainConfig):
        with suppress(BadArgument):  # any other error is a traceback
            config = make({setting.name: value})
            assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_number_in_quotes_says_what_is_accepted():
    with pytest.raises(BadArgument, match=r"the run's config: width is '16'; accepted: a whole number."):
        TrainConfig.from_json({"width": "16"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"whiten": "no"}, "whiten is 'no'; accepted: true or false"),
        ({"epochs": 1.5}, "epochs is 1.5; accepted: a whole number"),
        ({"batch": 32.0}, "batch is 32.0; accepted: a whole number"),
        ({"layers": True}, "layers is True; accepted: a whole number"),
        ({"gamma": "0.5"}, "gamma is '0.5'; accepted: a number"),
        ({"max_turns": "none"}, "max_turns is 'none'; accepted: a whole number, or None"),
        ({"out": None}, "out is None; accepted: the path of a file or folder"),
        ({"tools": "python"}, "tools is 'python'; accepted: a list of texts"),
        ({"callback": "own.py:Own"}, "callback is 'own.py:Own'; accepted: a list of texts"),
        ({"start_from": Path("run")}, r"start_from is .*Path\('run'\); accepted: a text"),
        ({"env_kwargs": {1: 2}}, "env_kwargs is {1: 2}; accepted: keywords with values"),
    ],
)
def test_a_program_gives_the_types_that_a_file_gives(given, words):
    with pytest.raises(BadArgument, match=f"^{words}"):
        TrainConfig(**given)


def test_what_means_the_same_is_converted():
    config = TrainConfig(
        out="runs/a", lr=1, batch=numpy.int64(64), gamma=numpy.float64(0.5), tools=["python"]
    )
    assert config == TrainConfig(out=Path("runs/a"), lr=1.0, batch=64, gamma=0.5, tools=("python",))
    assert json.dumps(config.to_json())


def test_differences_leave_the_folder_out():
    config = TrainConfig(env_kwargs={"max_number": (5, 9)})
    stored = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert config.differences(replace(stored, out=Path("elsewhere"))) == []
    assert config.differences(replace(stored, gamma=0.77, seed=5)) == ["gamma", "seed"]


def test_keywords_of_the_environment_are_json():
    args = ["--env-kwargs", '{"max_number": [4, 6], "reward": "sparse"}']
    assert tyro.cli(TrainConfig, args=args).env_kwargs == {"max_number": [4, 6], "reward": "sparse"}
    assert tyro.cli(TrainConfig, args=[]) == TrainConfig()


@pytest.mark.parametrize("text", ["max_number=4", "[4]", "4", ""])
def test_other_keywords_are_refused(text, capsys):
    with pytest.raises(SystemExit) as stopped:
        tyro.cli(TrainConfig, args=["--env-kwargs", text])
    assert stopped.value.code == 2
    assert "Error parsing --env-kwargs" in capsys.readouterr().err


def test_a_flag_that_is_given_twice_counts_as_last_given(tmp_path):
    """What is looked up before parsing, and removed with --overwrite, is the folder that the run goes to."""
    assert _flag(["--out", "a", "--out=b"], "out") == "b"
    assert _flag(["--out=b", "--out", "a"], "out") == "a"
    assert _flag(["--output", "a"], "out") is None
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint.pt").write_text("a run")
    args = ["--out", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    with pytest.raises(StoreError, match=f"{tmp_path / 'b'} holds a run already"):
        command(args, "gem-gym train")
