"""Wrong input to commands: one message without a traceback, and the exit code of misuse."""

import importlib.util
import json
import socket

import pytest

from gem import cli
from gem.errors import install_command
from gem.rollout.store import EpisodeStore

SUDOKU = "game:Sudoku-v0-easy"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "failing.py").write_text("\nimport no_such_module_of_gem\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["report", "empty"],
            "empty holds no training run; accepted: folders that `gem-gym train --out` wrote.",
        ),
        (["check", "broken.py:A"], "broken.py is not valid Python:"),
        (["check", "failing.py:A"], "failing.py, line 2"),
        (["audit", "game", "--episodes", "-3"], "episodes is -3; accepted: 2 or more."),
        (["check", SUDOKU, "--seeds", "0"], "seeds is 0; accepted: 1 to 1,000,000."),
        (["check", SUDOKU, "--seeds", "9" * 30], "accepted: 1 to 1,000,000."),
        (["check", SUDOKU, "--call-s", "inf"], "call_s is inf; accepted: seconds above 0, at most"),
        (["eval", SUDOKU, "--call-s", "nan"], "call_s is nan; accepted: "),
        (["eval", SUDOKU, "--program-s", "nan"], "program_s is nan; accepted: seconds above 0, at most"),
        (["audit", SUDOKU, "--instances", "1"], "instances is 1; accepted: 2 or more."),
        (["audit", SUDOKU, "--json", "empty"], "empty holds no cards (Is a directory)"),
        (["init", "word-ladder", "--into", "text.txt"], "cannot be written: Not a directory"),
        (["play", SUDOKU, "--agent", "random", "--others", "random"], f"{SUDOKU} has one seat;"),
        (["play", SUDOKU, "--agent", "random", "--seat", "white"], f"{SUDOKU} has one seat;"),
        (["play", "multi:KuhnPoker-v0", "--agent", "random", "--others", "random"], "give --seat: "),
        (["eval", "absent.toml"], "no suite 'absent.toml' can be read: No such file or directory."),
        (["eval", "--resume", "--out", "empty"], "command.json: No such file or directory."),
        (["view", "text.txt", "--port", "0"], "does not begin an episode"),
        (["serve", SUDOKU, "--wrappers", "foo"], "no wrapper 'foo'. Known: concat"),
        (
            ["proxy", "--model", "http://127.0.0.1:1/v1", "--out", "p", "--calls", "0"],
            "calls is 0; accepted: 1",
        ),
        (
            ["proxy", "--model", "http://127.0.0.1:1/v1", "--out", "p", "--temperature", "-3"],
            "accepted: 0 (greedy)",
        ),
    ],
)
def test_it_is_refused_with_one_message(folder, capsys, args, said):
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["game:Sudok-v0-easy"], "no environment 'game:Sudok-v0-easy'"),
        (["mathematic"], "'mathematic' is no environment and no suite. Did you mean 'mathematics'"),
        ([SUDOKU, "--episodes=-1e400"], "episodes is '-1e400'; accepted: 1 or more, or all."),
        ([SUDOKU, "--episodes", "9" * 5000], "episodes is '9999"),
        ([SUDOKU, "--agent", "nobody"], "agent is 'nobody'"),
        ([SUDOKU, "--gate", "success>=x"], "gate 'success>=x' cannot be read"),
    ],
)
def test_what_a_stored_command_says_wrong_names_its_file(folder, capsys, words, said):
    (folder / "empty" / "command.json").write_text(json.dumps([*words, "--out", "empty"]))
    assert cli.main(["eval", "--resume", "--out", "empty", "--trust"]) == 2
    assert f": empty/command.json: {said}" in capsys.readouterr().err
    if words[0] == SUDOKU:
        assert cli.main(["eval", *words]) == 2
        assert f": {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('id = "game:Sudok-v0-easy"', "no environment 'game:Sudok-v0-easy'"),
        (f'id = "{SUDOKU}"\nn = -1', "episodes is -1; accepted"),
        (f'id = "{SUDOKU}"\nwrappers = ["foo"]', "no wrapper 'foo'"),
        (f'id = "{SUDOKU}"\nweight = inf', "weight is inf; accepted"),
    ],
)
def test_what_a_suite_says_wrong_names_its_file(folder, capsys, line, said):
    (folder / "suite.toml").write_text(f"[[environments]]\n{line}\n")
    assert cli.main(["eval", "suite.toml"]) == 2
    assert f": suite.toml: {said}" in capsys.readouterr().err


def test_what_a_flag_says_wrong_does_not_name_the_suite(folder, capsys):
    (folder / "suite.toml").write_text(f'[[environments]]\nid = "{SUDOKU}"\n')
    assert cli.main(["eval", "suite.toml", "--temperature=-3"]) == 2
    assert "BadArgument: temperature is -3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agent", "random", "--model", "openai:m"], "--model has no effect: random does not use it"),
        (["--program-s", "5"], "--program-s has no effect: random does not use it"),
        (
            ["--agent", "solver", "--agent", "random", "--stream", "--timeout", "9"],
            "--timeout, --stream have no effect: solver, random do not use them",
        ),
        (["--agent", "random", "--concurrency", "2"], ""),
    ],
)
def test_flags_without_an_agent_that_uses_them_are_named(folder, capsys, words, said):
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "-n", "1", *words]) in (0, 1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]
    assert lines == [said] * bool(said)


@pytest.mark.parametrize("agent", ["openai:m@http://127.0.0.1:9/v1", "program:cat"])
def test_a_variable_without_a_key_is_refused_at_once(folder, capsys, agent, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    words = ["eval", SUDOKU, "--agent", agent, "--api-key-env", "NO_SUCH_KEY", "-n", "1"]
    assert cli.main([*words, *["--model", "openai:m@http://127.0.0.1:9/v1"] * (agent[0] == "p")]) == 2
    err = capsys.readouterr().err
    assert "BadArgument: api_key_env is 'NO_SUCH_KEY', a variable that is not set;" in err
    assert "no effect" not in err


@pytest.mark.parametrize("model", ["http://127.0.0.1:9/v1", "openai:m@http://127.0.0.1:9/v1"])
def test_the_proxy_refuses_a_variable_without_a_key(folder, capsys, model, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert cli.main(["proxy", "--model", model, "--out", "p", "--api-key-env", "NO_SUCH_KEY"]) == 2
    assert "api_key_env is 'NO_SUCH_KEY', a variable that is not set;" in capsys.readouterr().err


@pytest.mark.parametrize("blank", ["", "   "])
@pytest.mark.parametrize(
    "args",
    [
        ["eval", SUDOKU, "-n", "1", "--out"],
        ["demos", SUDOKU, "-n", "1", "--out"],
        ["mcp", SUDOKU, "--out"],
        ["proxy", "--model", "http://127.0.0.1:1/v1", "--out"],
        ["serve", SUDOKU, "--out"],
        ["init", "word-ladder", "--into"],
        ["view", "trained", "--export"],
        ["export", "text.txt"],
        ["store", "merge"],
        pytest.param(
            ["train", "--out"],
            marks=pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch"),
        ),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_a_blank_path_is_refused(folder, capsys, args, blank):
    before = set(folder.rglob("*"))
    assert cli.main([*args, blank, *["text.txt"] * (args[0] == "store")]) == 2
    assert f"is {blank!r}; accepted: the path of a file or folder." in capsys.readouterr().err
    assert set(folder.rglob("*")) == before


def test_a_file_of_cards_that_cannot_be_written_is_refused_before_the_audit(folder, capsys, monkeypatch):
    monkeypatch.setattr("gem.testing.audit.audit_env", lambda *args, **kwargs: pytest.fail("it was audited"))
    assert cli.main(["audit", SUDOKU, "--json", "text.txt/cards.json"]) == 2
    assert "text.txt" in capsys.readouterr().err


def test_replay_refuses_an_unknown_host_once(folder, capsys):
    with EpisodeStore(folder / "e.jsonl"):
        pass
    assert cli.main(["replay", "e.jsonl", "all", "--host", "foo"]) == 2
    assert capsys.readouterr().err.startswith("BadArgument: backend is 'foo'; accepted: serial")


@pytest.mark.parametrize("command", [["view", "e.jsonl"], ["serve-search", "world"]])
def test_a_port_in_use_is_named_without_the_error_s_number(folder, capsys, command):
    with EpisodeStore(folder / "e.jsonl"):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main([*command, "--port", str(taken.getsockname()[1])]) == 2
    assert ": Address already in use; " in capsys.readouterr().err


def test_an_empty_folder_has_nothing_to_import(folder, capsys):
    assert cli.main(["import", "empty", "new.jsonl", "--format", "atif"]) == 1
    assert "empty holds no episode of the format atif." in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_named_without_a_traceback(folder, capsys, monkeypatch):
    def refuse(args, prog):
        (folder / "text.txt" / "below").mkdir()

    monkeypatch.setattr(cli, "load", lambda entry_point: refuse)
    assert cli.main(["eval"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("NotADirectoryError: ")
    assert "text.txt/below cannot be read or written: Not a directory." in err


def test_the_help_of_an_argument_is_one_paragraph(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help"])
    assert "the episode's success and the mean return." in capsys.readouterr().out


def test_training_on_ray_is_refused_before_it_begins_where_ray_is_missing(folder, capsys):
    pytest.importorskip("torch")
    if importlib.util.find_spec("ray"):
        pytest.skip("Ray is installed")
    assert cli.main(["train", "--ray", "local", "--out", "run"]) == 2
    streams = capsys.readouterr()
    assert install_command("ray") in streams.err
    assert "warm-up" not in streams.out


@pytest.mark.parametrize(
    ("args", "flag"),
    [
        (["baseline", "x.toml", "--only", "A", "--only", "B"], "--only"),
        (["train", "--tools", "python", "--tools=search"], "--tools"),
        (["demos", "game:GuessTheNumber-v0-easy", "--out", "a", "--seed", "1", "--seed", "2"], "--seed"),
    ],
)
def test_a_flag_given_twice_is_refused(args, flag, capsys):
    assert cli.main(args) == cli.MISUSED
    assert f"BadArgument: {flag} is given twice; give it once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("evl", "no command 'evl'. Did you mean 'eval'? `gem-gym --help` shows all."),
        (
            "eval --agnt x",
            "no flag --agnt. Did you mean '--agent' or '--seat' or '--gate'? `gem-gym eval --help`",
        ),
        ("eval --agent", "--agent NAME: the value must be given. `gem-gym eval --help` explains it."),
        ("eval --agent --jsn", "no flag --jsn. Did you mean '--json'"),
        ("eval --turns 1.5", "--turns is '1.5'; accepted: a whole number."),
        (f"eval --turns {'9' * 5000}", "--turns is too long; accepted: a whole number of fewer digits."),
        ("eval --call-s 1,5", "--call-s is '1,5'; accepted: a number."),
        ("eval --tool-calls x", "--tool-calls is 'x'; accepted: native, text.\n"),
        (
            "compare a b --metric sucess",
            "--metric is 'sucess'; accepted: success, return. Did you mean 'success'?",
        ),
        ("compare a", "RUN_B must be given. `gem-gym compare --help` explains it."),
        ("value x --agnt random", "no flag --agnt. Did you mean '--agent'"),
        ("value x", "ID|NUMBER and --agent STR must be given. `gem-gym value --help` explains them."),
        ("completion fish", "shell is 'fish'; accepted: bash, zsh."),
        ("store", "the word after `gem-gym store` is missing; accepted: ls, cat, merge, verify, schema."),
        ("store lst", "the word after `gem-gym store` is 'lst'; accepted: "),
        (
            "store ls a b -3",
            "'b', '-3': more than `gem-gym store ls` takes. `gem-gym store ls --help` shows all.",
        ),
    ],
)
def test_the_parser_refuses_with_one_sentence(line, said, capsys):
    assert cli.main(line.split()) == cli.MISUSED
    out, err = capsys.readouterr()
    assert err.startswith(f"BadArgument: {said}")
    assert err.count("\n") == 1
    assert out == ""


def test_the_parser_of_training_refuses_as_the_others(capsys):
    pytest.importorskip("torch")
    assert cli.main(["train", SUDOKU]) == cli.MISUSED
    assert capsys.readouterr().err == (
        f"BadArgument: '{SUDOKU}': more than `gem-gym train` takes. An environment is named by --env. "
        "`gem-gym train --help` shows all.\n"
    )
    assert cli.main(["train", "--env-kwargs", "{"]) == cli.MISUSED
    assert capsys.readouterr().err.startswith(
        "BadArgument: --env-kwargs: got '{', which is not JSON (Expecting "
    )
    assert cli.main(["train", "--env-kwargs", "max_number=3"]) == cli.MISUSED
    assert "a JSON object in quotes, as '{\"max_number\": 10}'" in capsys.readouterr().err
