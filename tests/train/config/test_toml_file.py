"""Configs as TOML: what comes back, what is refused, and how files, flags and a stored run go together."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from runs import QUICK

from gem.errors import BadArgument, StoreError
from gem.train.command import command
from gem.train.config import TrainConfig
from gem.train.config.toml_file import read_config, read_configs, to_toml
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.played_env import played_envs

EXAMPLES = Path(__file__).parents[3] / "examples/configs"


@pytest.fixture
def write(tmp_path):
    def write(text, name="config.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def printed(capsys, *args):
    """What --print-config says of the settings that a command line stands for."""
    assert command([*map(str, args), "--print-config"], "gem-gym train") == 0
    return capsys.readouterr().out


def test_help_tells_what_a_setting_accepts(capsys):
    with pytest.raises(SystemExit):
        command(["--help"], "gem-gym train")
    assert "0 to 1; default: 0.3" in " ".join(capsys.readouterr().out.replace("│", "").split())


# -- one file


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(TEXT, JSON, max_size=3),
    st.tuples(TEXT, TEXT),
    st.none() | st.integers(1),
    st.floats(0, 1),
)
def test_a_config_comes_back_from_toml(tmp_path_factory, keywords, stop, turns, gamma):
    config = TrainConfig(
        env_kwargs=keywords,
        model="some",
        stop=stop,
        max_turns=turns,
        gamma=gamma,
        tools=("python",),
        kl_reward=True,
    )
    file = tmp_path_factory.getbasetemp() / "given-back.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert TrainConfig(**read_config(file)) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gama = 1", "has 'gama', which is not a setting. Did you mean 'gamma'"),
        ("warmup-steps = 1", "has 'warmup-steps', which is not a setting. Did you mean 'warmup_steps'"),
        ("[train]\nlr = 1", "has 'train', which is not a setting"),
        ("xyz = 1", "`gem-gym train --print-config` shows all"),
        ("lr = 1\n\nbatch = \n", r"is not TOML: .*\(at line 3, column 9\)"),
        ("lr = 1\nlr = 2\n\n", r"is not TOML: Cannot overwrite a value \(at line 2"),
        ('batch = "many"', "batch is 'many'; accepted: a whole number."),
        ("batch = 2.5", "batch is 2.5; accepted: a whole number."),
        ("batch = true", "batch is True; accepted: a whole number."),
        ("lr = -1", r"the config .*config.toml: lr is -1; accepted: 0 or more"),
        ("gamma = nan", "gamma is nan; accepted: 0 to 1"),
        ("max_turns = 0", "max_turns is 0; accepted: 1 or more"),
        ("lr = true", "lr is True; accepted: a number."),
        ("kl_reward = 1", "kl_reward is 1; accepted: true or false."),
        ("max_turns = 'many'", "max_turns is 'many'; accepted: a whole number, or \"none\"."),
        ("out = 3", "out is 3; accepted: the path of a file or folder"),
        ("out = ''", "out is ''; accepted: the path of a file or folder"),
        ("stop = '}'", "stop is '}'; accepted: a list of texts"),
        ("tools = [3]", r"tools is \[3\]; accepted: a list of texts"),
        ("algorithm = 'dpo'", r"toml: algorithm is 'dpo'; accepted: reinforce, rebn, .* or one of your own"),
        ("staleness = 2", "staleness is 2; accepted: 0, 1."),
        ("env_kwargs = {day = 2020-01-01}", "accepted: keywords with values; in TOML as {max_number = 10}"),
        ("env_kwargs = '[1]'", "accepted: keywords with values; in TOML as {max_number = 10}"),
        ("env_kwargs = '{'", "accepted: keywords with values; in TOML as {max_number = 10}"),
        ("agent = 'program:python ask.py {task}'", "gives agent as 'program:python ask.py.*add --trust"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(write, text, words):
    with pytest.raises(BadArgument, match=words):
        read_config(write(text))


def test_a_file_that_is_none_is_said(tmp_path):
    for path, words in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadArgument, match=f"the config {path} cannot be read: {words}"):
            read_config(path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgument, match="is not TOML: 'utf-8' codec"):
        read_config(tmp_path / "binary")


def test_keywords_may_be_a_table_or_json(write):
    assert read_config(write("[env_kwargs]\nmax_number = 4"))["env_kwargs"] == {"max_number": 4}
    assert read_config(write("env_kwargs = '{\"max_number\": null}'"))["env_kwargs"] == {"max_number": None}


# -- files and flags


def test_the_later_file_counts_and_flags_before_files(write, capsys):
    one = write("gamma = 0.5\nlr = 0.5\nbatch = 7\nmax_turns = 3", "one.toml")
    two = write("lr = 0.25\nbatch = 8", "two.toml")
    assert read_configs([one, two]) == {"gamma": 0.5, "lr": 0.25, "batch": 8, "max_turns": 3}
    text = printed(capsys, "--config", one, f"--config={two}", "--batch", "9", "--max-turns", "none")
    found = read_config(write(text))
    assert TrainConfig(**found) == TrainConfig(gamma=0.5, lr=0.25, batch=9)


def test_what_is_printed_is_the_same_config_given_back(write, capsys):
    text = printed(
        capsys, "--model", "some", "--algorithm", "gspo", "--env-kwargs", '{"a": [null]}', "--stop", "}"
    )
    assert printed(capsys, "--config", write(text)) == text
    expected = TrainConfig.fit(model="some", algorithm="gspo", env_kwargs={"a": [None]}, stop=("}",))
    assert TrainConfig(**read_config(write(text))) == expected


def test_defaults_follow_the_model_and_algorithm_of_a_file(write, capsys):
    file = write('model = "some"\nalgorithm = "grpo"\nlr = 1e-6')
    assert TrainConfig(**read_config(write(printed(capsys, "--config", file), "found"))) == TrainConfig.fit(
        model="some", algorithm="grpo", lr=1e-6
    )
    text = printed(capsys, "--config", file, "--algorithm", "rebn", "--staleness", "1")
    assert TrainConfig(**read_config(write(text, "found"))) == TrainConfig.fit(
        model="some", algorithm="rebn", lr=1e-6, staleness=1
    )


def test_a_flag_may_mend_what_a_file_cannot_say_alone(write, capsys):
    file = write('algorithm = "grpo"\nbatch = 20')
    with pytest.raises(BadArgument, match="batch is 20; grpo takes a multiple of group"):
        printed(capsys, "--config", file)
    assert "batch = 24\n" in printed(capsys, "--config", file, "--batch", 24)


def test_tools_and_wrappers_of_a_file_are_around_the_environment(write):
    file = write('env = "math:Arithmetic-v0-easy"\ntools = ["python"]\nwrappers = ["episode_tracking"]')
    by_flags = TrainConfig(env="math:Arithmetic-v0-easy", tools=("python",), wrappers=("episode_tracking",))
    config = TrainConfig.fit(**read_config(file))
    assert played_envs(config)[0].maker == played_envs(by_flags)[0].maker
    assert len(played_envs(config)[0].maker.wrappers) == 2


def test_the_folder_may_be_a_files(write, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoint.pt").write_text("a run")
    file = write(f"out = '{tmp_path / 'run'}'")
    with pytest.raises(StoreError, match=f"{tmp_path / 'run'} holds a run already"):
        command(["--config", str(file)], "gem-gym train")


# -- a run


@pytest.mark.system
def test_a_run_goes_on_with_the_config_it_began_with_and_no_other(write, tmp_path, capsys):
    out = tmp_path / "run"
    config = replace(QUICK, episodes=16, eval_episodes=1, out=out)
    file = write(to_toml(config))
    train(config)
    assert command(["--config", str(file), "--resume"], "gem-gym train") == 0
    capsys.readouterr()
    other = write(f"lr = 0.5\nout = '{out}'", "other.toml")
    with pytest.raises(
        BadArgument, match=r"has lr=0.001, --resume was given 0.5; a resumed run keeps its settings"
    ):
        command(["--config", str(other), "--resume"], "gem-gym train")
    assert TrainConfig(**read_config(write(printed(capsys, "--out", out, "--resume")))) == config
    assert RunFolder(out).read_config() == config


# -- the examples


def test_the_demonstrations_config_says_what_the_defaults_are():
    assert TrainConfig.fit(**read_config(EXAMPLES / "demo.toml")) == TrainConfig(out=Path("runs/demo"))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_an_example_parses_and_its_own_command_gives_its_settings(file, write, capsys, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parents[1])
    (line,) = (line for line in file.read_text().splitlines() if " gem-gym train " in line)
    given = shlex.split(line.partition("gem-gym train ")[2])
    assert given[1] == str(file.relative_to(Path.cwd()))
    found = read_config(write(printed(capsys, *given)))
    wanted = read_config(file)
    assert {name: found[name] for name in wanted} == wanted
    played_envs(TrainConfig(**found))


@pytest.mark.system
def test_from_a_shell(write):
    file = write("gama = 1")
    done = subprocess.run(
        [sys.executable, "-m", "gem", "train", "--config", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'gamma'?" in done.stderr
    assert "Traceback" not in done.stderr
