"""``gem-gym baseline``: what it refuses, shows and reports; runs are tested in tests/train/baselines."""

import pytest

pytest.importorskip("torch")

from gem.cli import main

STUDY = """
title = "Which?"
seeds = [1, 2]

[settings]
episodes = 96
batch = 32

[[environments]]
id = "game:GuessTheNumber-v0-easy"
name = "guess"

[[variants]]
name = "rebn"
algorithm = "rebn"

[[variants]]
name = "grpo"
algorithm = "grpo"
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(STUDY)
    return tmp_path / "mine.toml"


def test_a_dry_run_lists_the_runs_that_are_chosen_and_writes_nothing(study, capsys):
    assert main(["baseline", "mine.toml", "--dry-run", "--variant", "grpo", "--seed", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["environment", "variant", "seed", "state"], ["guess", "grpo", "2", "open"]]
    assert [path.name for path in study.parent.iterdir()] == ["mine.toml"]


def test_a_report_of_nothing_says_what_has_not_run(study, capsys):
    assert main(["baseline", "mine.toml", "--report"]) == 0
    out = capsys.readouterr().out
    assert "all 2    -            -          not run" in out
    assert out.count("not run") == 1
    assert "page: docs/baselines/mine.md" in out
    assert "not run" in (study.parent / "docs/baselines/mine.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "gues"], "no environment 'gues'. Did you mean 'guess'?"),
        (["--variant", "x"], "no variant 'x'. It has rebn, grpo."),
        (["--seed", "3"], "no seed 3; it has 1, 2."),
        (["--workers", "0"], "workers is 0"),
        (["--dry-run", "--report"], "choose one"),
    ],
)
def test_what_the_study_does_not_have_is_refused(study, capsys, words, said):
    assert main(["baseline", "mine.toml", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(study, capsys):
    assert main(["baseline", "yours.toml"]) == 2
    assert "yours.toml cannot be read" in capsys.readouterr().err


OWN = """
from dataclasses import replace
from gem.estimators.algorithms import ALGORITHMS
OWN = replace(ALGORITHMS["reinforce"], name="own")
"""

RELAY = """
import gem

class Relay(gem.Env):
    def reset(self, seed=None):
        super().reset(seed=seed)
        return gem.Start("Say a.", {})

    def step(self, action):
        return gem.Step("over", float(action == "a"), True, False, {})

    def sample_random_action(self):
        return self.actor_rng.choice("ab")
"""


@pytest.mark.slow
def test_a_study_names_files_and_notices_that_one_was_edited(study, monkeypatch, capsys):
    monkeypatch.setenv("GEM_CACHE", str(study.parent / "cache"))
    (study.parent / "own.py").write_text(OWN)
    (study.parent / "relay.py").write_text(RELAY)
    study.write_text("""
title = "Mine?"
seeds = [1]
settings = {episodes = 16, batch = 16, warmup_steps = 0, eval_episodes = 2, watch = 0}
environments = [{id = "relay.py:Relay", name = "relay"}]
variants = [{name = "own", algorithm = "own.py:OWN"}]
""")
    assert main(["baseline", "mine.toml"]) == 2
    assert "add --trust" in capsys.readouterr().err
    assert main(["baseline", "mine.toml", "--trust"]) == 0
    assert "finished: relay, own, seed 1" in capsys.readouterr().out
    assert main(["baseline", "mine.toml", "--dry-run"]) == 0
    assert capsys.readouterr().out.split()[-1] == "finished"
    for name in ("own.py", "relay.py"):
        (study.parent / name).write_text((study.parent / name).read_text() + "# edited\n")
    assert main(["baseline", "mine.toml", "--trust", "--dry-run"]) == 0
    assert "changed  env, algorithm" in capsys.readouterr().out


def test_the_oracle_judges_an_algorithm_in_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    assert main(["oracle", "--algorithm", "own.py:OWN", "--env", "bandit", "--batch", "2"]) == 0
    assert "own.py:OWN" in capsys.readouterr().out
    assert main(["oracle", "--algorithm", "own.py:OWNER", "--env", "bandit"]) == 2
    assert "Did you mean 'OWN'?" in capsys.readouterr().err
