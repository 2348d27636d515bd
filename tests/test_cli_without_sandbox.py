"""Commands where no backend of the sandbox works: what works there, and what is said of the rest."""

import sys
from dataclasses import replace

import pytest
import without_sandbox

import gem
from gem import cli, doctor
from gem.agents import SolverAgent
from gem.errors import BadArgument
from gem.rollout import Job, rollout
from gem.rollout.store import EpisodeStore
from gem.sandbox import choice
from gem.sandbox.base import SandboxFailed

SAID = "SandboxFailed: no sandbox works here, and programs run in one: "


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX", "none")
    monkeypatch.delenv("GEM_SANDBOX_ALLOW_UNSAFE", raising=False)


@pytest.mark.parametrize(
    ("args", "user"),
    [
        (["play", "code:Basics-v0-easy"], "code:Basics-v0-easy"),
        (["play", "terminal:Archives-v0-easy", "--agent", "solver"], "terminal:Archives-v0-easy"),
        (["check", "db:Bank-v0-questions"], "db:Bank-v0-questions"),
        (["audit", "db"], "and 13 more"),
        (["audit", "--grader", "code"], "the grader code"),
        (["eval", "code:Basics-v0-easy", "--out", "out"], "code:Basics-v0-easy"),
        (["eval", "math:Arithmetic-v0-easy", "--tools", "python"], "the tool python"),
        (["demos", "code:Basics-v0-easy", "--out", "out"], "code:Basics-v0-easy"),
        (["demos", "math:Arithmetic-v0-easy", "--out", "out", "--tools", "python"], "the tool python_tool"),
        (["serve", "game:Mastermind-v0-easy", "code:Basics-v0-easy", "--port", "0"], "code:Basics-v0-easy"),
        (["regrade", "stored.jsonl", "--grader", "code"], "the grader code"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_runs_programs_is_refused_at_once(args, user, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    EpisodeStore(tmp_path / "stored.jsonl").close()
    before = sorted(tmp_path.iterdir())
    assert cli.main(args) == cli.MISUSED
    error = capsys.readouterr().err
    assert SAID in error
    assert f"{user} cannot be used. `gem-gym sandbox` says why, and what to do." in error
    assert "Traceback" not in error
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("args", "user"),
    [
        (["--env", "code:Basics-v0-easy"], "code:Basics-v0-easy"),
        (["--env", "math:Arithmetic-v0-easy", "--tools", "python"], "the tool python"),
    ],
)
def test_training_is_refused_before_it_begins(args, user, capsys, tmp_path):
    pytest.importorskip("torch")
    assert cli.main(["train", *args, "--out", str(tmp_path / "run")]) == cli.MISUSED
    assert f"{SAID}{user} cannot be used." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_rows_of_code_are_read_and_their_solutions_are_not_run(capsys, tmp_path):
    row = '{"question": "Write f.", "test": ["assert f() == 1"], "solution": "def f(): return 2"}'
    (tmp_path / "q.jsonl").write_text(row)
    assert cli.main(["audit", "--data", str(tmp_path / "q.jsonl"), "--grader", "code"]) == 0
    told = capsys.readouterr()
    assert "all 1 row can be used" in told.out
    assert told.err.startswith("no solution was run: no sandbox works here")


def test_the_list_and_the_doctor_say_what_cannot_be_played(capsys, monkeypatch):
    assert cli.main(["list", "db"]) == 0
    assert all(line.endswith("no sandbox here") for line in capsys.readouterr().out.splitlines()[1:])
    assert cli.main(["list", "game"]) == 0
    assert all(line.endswith("-") for line in capsys.readouterr().out.splitlines()[1:])
    assert doctor.family("db").result.startswith("  0 of 18  no sandbox works here")
    assert next(doctor.backends()) == ("GEM_SANDBOX", "is none: no other backend is used", "", False)
    monkeypatch.setenv("GEM_SANDBOX", "userns")
    assert cli.main(["list", "db"]) == 0
    assert all(line.endswith(" sandbox") for line in capsys.readouterr().out.splitlines()[1:])


def test_what_runs_no_programs_is_checked_and_the_rest_left_out(capsys):
    assert cli.main(["check", "code:Basics-v0-easy", "game:GuessTheNumber-v0-easy"]) == cli.FAILED
    streams = capsys.readouterr()
    assert "left out: no sandbox works here" in streams.err
    assert streams.out.startswith("game:GuessTheNumber-v0-easy: ")
    assert " 0 broken" in streams.out


def test_a_suite_is_played_without_what_runs_programs(capsys, tmp_path):
    file = tmp_path / "suite.toml"
    entries = "".join(
        f'[[environments]]\nid = "{env}"\nn = 2\n'
        for env in ("code:Basics-v0-easy", "game:GuessTheNumber-v0-easy")
    )
    file.write_text(f'name = "both"\n{entries}')
    assert cli.main(["eval", str(file), "--agent", "solver"]) == 1  # one of the two is missing
    streams = capsys.readouterr()
    assert "code:Basics-v0-easy: not here: no sandbox works here" in streams.err + streams.out
    assert "100.0%" in streams.out


def test_the_value_of_turns_is_refused_before_an_agent_is_made(capsys, monkeypatch, tmp_path):
    (episode,) = rollout([Job("code:Basics-v0-easy", 1)], SolverAgent())
    with EpisodeStore(tmp_path / "stored.jsonl") as store:
        store.append(episode)
    made = []
    monkeypatch.setattr("gem.cli.value.local_agent", made.append)
    assert cli.main(["value", str(tmp_path / "stored.jsonl"), "0", "--agent", "random"]) == cli.MISUSED
    assert f"{SAID}code:Basics-v0-easy cannot be used." in capsys.readouterr().err
    assert not made


def test_a_sandbox_that_the_record_names_is_used_for_the_value_of_turns(capsys, monkeypatch, tmp_path):
    (episode,) = rollout([Job("code:Basics-v0-easy", 1)], SolverAgent())
    episode.task = replace(episode.task, kwargs={**episode.task.kwargs, "sandbox_type": "container"})
    with EpisodeStore(tmp_path / "stored.jsonl") as store:
        store.append(episode)

    def refuse(name):
        raise BadArgument(f"there is no agent {name}.")

    monkeypatch.setattr("gem.cli.value.local_agent", refuse)
    assert cli.main(["value", str(tmp_path / "stored.jsonl"), "0", "--agent", "random"]) == cli.MISUSED
    assert capsys.readouterr().err == "BadArgument: there is no agent random.\n"


def test_a_tool_is_refused_where_the_environment_alone_names_a_sandbox():
    spec = gem.spec("code:Basics-v0-easy")
    choice.check_needs([spec], ["search"], {"sandbox_type": "container"})
    with pytest.raises(SandboxFailed, match="in one: the tool python cannot be used"):
        choice.check_needs([spec], ["python"], {"sandbox_type": "container"})


def test_no_isolation_may_be_accepted(monkeypatch):
    assert not choice.has_sandbox()
    monkeypatch.setenv("GEM_SANDBOX_ALLOW_UNSAFE", "1")
    assert choice.has_sandbox()
    choice.check_needs([gem.spec("code:Basics-v0-easy")], ["python"])


def test_on_a_mac_the_message_names_what_there_is_on_a_mac(capsys, monkeypatch):
    monkeypatch.delenv("GEM_SANDBOX")
    monkeypatch.setattr("gem.sandbox.selftest._tested", {})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxFailed, match="GEM_SANDBOX=container") as refusal:
        choice.open_sandbox()
    assert "gem's own are for Linux, and this is darwin" in str(refusal.value)
    assert "sysctl" not in str(refusal.value)
    assert cli.main(["list", "code"]) == 0
    assert "no sandbox here" in capsys.readouterr().out
    assert cli.main(["sandbox"]) == cli.FAILED
    assert "GEM_SANDBOX=container" in capsys.readouterr().out


def test_only_a_named_test_that_was_refused_a_sandbox_is_skipped(monkeypatch):
    monkeypatch.setattr(without_sandbox, "programs_run", lambda: False)
    monkeypatch.setattr(without_sandbox, "REFUSED", [])
    skipped = without_sandbox.is_for_want_of_a_sandbox
    assert not skipped("tests/envs/code/test_env.py::test_it")
    monkeypatch.setattr(without_sandbox, "REFUSED", ["no sandbox works here"])
    assert skipped("tests/envs/code/test_env.py::test_it")
    assert skipped("tests/contract/test_every_id.py::test_every_rule_holds[code:Basics-v0-easy]")
    assert not skipped("tests/contract/test_every_id.py::test_every_rule_holds[game:Sudoku-v0-easy]")
    assert not skipped("tests/test_core.py::test_it")
    monkeypatch.setattr(without_sandbox, "programs_run", lambda: True)
    assert not skipped("tests/envs/code/test_env.py::test_it")
