"""The command line: what it prints, where, and its exit codes."""

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gem
import gem.testing
from gem import cli
from gem.agents import BaseAgent
from gem.errors import install_command, missing_extra
from gem.testing.golden import compare


def gem_gym(
    *args: str, stdin: str = "", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gem", *args],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


@pytest.fixture
def run_here(capsys, monkeypatch):
    """Return a function that runs the command line in this process."""

    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            code = cli.main(args)
        except SystemExit as end:
            code = end.code
        return subprocess.CompletedProcess(args, code, *capsys.readouterr())

    return run


def test_without_arguments_three_things_to_try_are_shown(capsys, monkeypatch):
    assert cli.main([]) == 0
    tries = re.findall("^  gem-gym (.+?)  ", capsys.readouterr().out, re.MULTILINE)
    assert len(tries) == 3
    monkeypatch.setenv("GEM_SANDBOX", "none")
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n" * 9))
    for each in tries:
        if each != "doctor":  # the wheel's tests run it
            assert cli.main(each.split()) == 0
    assert "100.0%" in capsys.readouterr().out


def test_help_shows_each_command_with_its_summary(capsys):
    assert cli.main(["help"]) == 0
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    if name == "train":
        pytest.importorskip("torch")
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: gem-gym {name}" in capsys.readouterr().out


def test_version_is_the_package_s(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gem-gym {gem.__version__}\n"


def test_unknown_command_names_the_nearest(capsys):
    assert cli.main(["lst"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("BadArgument: no command 'lst'. Did you mean 'list'?")


def test_list_prints_one_plain_line_per_id(capsys):
    assert cli.main(["list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "turns", "solver", "extra", "needs"]
    assert [line.split()[0] for line in lines] == gem.ids()


@pytest.mark.parametrize("family", ["game", "game:"])
def test_list_takes_a_family(family, capsys):
    assert cli.main(["list", family]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == gem.ids("game")


def test_list_as_json_has_every_claim(capsys):
    assert cli.main(["list", "game", "--json"]) == 0
    specs = json.loads(capsys.readouterr().out)
    assert [spec["id"] for spec in specs] == gem.ids("game")
    assert all(spec["solver"] == gem.spec(spec["id"]).solver and spec["entry_point"] for spec in specs)


def test_help_explains_a_command(capsys):
    assert cli.main(["help"]) == 0
    assert "gem-gym help COMMAND" in capsys.readouterr().out
    said = []
    for args in (["help", "list"], ["list", "--help"]):
        with pytest.raises(SystemExit) as end:
            cli.main(args)
        assert not end.value.code
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "usage: gem-gym list" in said[0]
    assert cli.main(["help", "lst"]) == 2


def test_unknown_family_names_the_nearest(capsys):
    assert cli.main(["list", "gmae"]) == 2
    assert "no family 'gmae'. Did you mean 'game'?" in capsys.readouterr().err


@pytest.mark.system
def test_a_pipe_gets_plain_unwrapped_text_however_narrow_the_terminal():
    done = gem_gym("list", COLUMNS="20", FORCE_COLOR="1")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 1 + len(gem.ids())


@pytest.mark.system
def test_a_terminal_gets_a_table_of_80_columns_with_every_id_whole():
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "gem", "eval", "game:GuessTheNumber-v0-easy", "--episodes", "3"]
    terminal = {**os.environ, "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=follower, stdin=follower, env=terminal) as process:
        os.close(follower)
        shown = b""
        while chunk := read(leader):
            shown += chunk
    os.close(leader)
    assert process.returncode == 0
    lines = shown.decode().splitlines()
    assert "game:GuessTheNumber-v0-easy" in lines
    assert max(map(len, lines)) <= 80
    assert "…" not in shown.decode()


def read(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # how Linux reports that the other end is gone
        return b""


def test_play_shows_the_whole_episode(capsys):
    assert cli.main(["play", "game:GuessTheNumber-v0-easy", "--agent", "solver", "--seed", "0"]) == 0
    shown = capsys.readouterr().out
    env = gem.make("game:GuessTheNumber-v0-easy")
    said = [env.reset(seed=0).obs]
    step = None
    while step is None or not step.done:
        action = env.solve()
        step = env.step(action)
        said += [f"agent> {action}", step.obs]
    assert [line for line in shown.splitlines() if line][1:-1] == said
    assert shown.endswith(f"solved after {len(said) // 2} turns, return 1\n")


def test_play_names_the_seed_that_shows_the_episode_again(capsys):
    game = ["play", "game:GuessTheNumber-v0-hard", "--agent", "random"]
    assert cli.main(game) == 0
    first = capsys.readouterr().out
    seed = first.splitlines()[0].rpartition(" ")[2]
    assert cli.main([*game, "--seed", seed]) == 0
    assert capsys.readouterr().out == first


def test_play_stops_where_it_is_told(capsys):
    assert (
        cli.main(["play", "game:GuessTheNumber-v0-hard", "--agent", "solver", "--seed", "0", "--turns", "1"])
        == 0
    )
    assert "turn_limit after 1 turn, return" in capsys.readouterr().out


def test_a_human_plays_in_the_terminal(run_here):
    done = run_here("play", "game:GuessTheNumber-v0-easy", "--seed", "0", stdin="5\nhalf\n")
    assert done.returncode == 0
    assert "I have a secret whole number between 1 and 10." in done.stdout
    assert "unreadable after 2 turns" in done.stdout


def test_a_human_who_leaves_ends_the_program(run_here):
    done = run_here("play", "game:GuessTheNumber-v0-easy", stdin="")
    assert done.returncode == 130
    assert done.stderr == ""


@pytest.mark.parametrize("seed", ["-1", "half", "1.5"])
def test_play_refuses_what_is_no_seed(seed, run_here):
    done = run_here("play", "game:GuessTheNumber-v0-easy", "--seed", seed)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert seed in done.stderr


def test_play_escapes_what_would_steer_the_terminal(monkeypatch, capsys):
    class Bell(gem.Env):
        def reset(self, seed=None):
            super().reset(seed)
            return gem.Start("\x1b[2J\aboom", {})

        def step(self, action):
            return gem.Step("", 0.0, True, False, {})

        def solve(self):
            return "x"

    monkeypatch.setattr("gem.registry.ENV_REGISTRY", {})
    gem.register("my:Bell-v0", Bell)
    assert cli.main(["play", "my:Bell-v0", "--agent", "solver"]) == 0
    assert "\\x1b[2J\\x07boom" in capsys.readouterr().out


def test_an_episode_without_verdict_says_why_and_fails(capsys):
    class Broken(gem.Env):
        def reset(self, seed=None):
            raise OSError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gem.registry.ENV_REGISTRY", {})
        gem.register("my:Broken-v0", Broken)
        assert cli.main(["play", "my:Broken-v0", "--agent", "solver"]) == 1
    assert "No verdict after 0 turns: OSError in env: the disk is gone" in capsys.readouterr().out


def test_play_refuses_an_agent_that_is_not_there(capsys):
    assert cli.main(["play", "game:GuessTheNumber-v0-easy", "--agent", "slover"]) == 2
    assert "agent is 'slover'; accepted: " in capsys.readouterr().err


def test_check_judges_an_id(capsys):
    assert cli.main(["check", "game:GuessTheNumber-v0-easy", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.startswith("game:GuessTheNumber-v0-easy: ")


OWN = """
import random

import gem


class Noisy(gem.Env):
    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("a question", {})

    def step(self, action):
        return gem.Step(str(random.random()), 0.0, True, False, {})

    def sample_random_action(self):
        return "x"
"""


@pytest.mark.system
@pytest.mark.parametrize("target", ["own_envs.py:Noisy", "own_envs:Noisy"])
def test_check_judges_a_class_in_a_file(target, tmp_path):
    (tmp_path / "own_envs.py").write_text(OWN)
    done = gem_gym("check", target, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "BROKEN global-rng:" in done.stdout


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("game:Soduku-v0-easy", "Did you mean 'game:Sudoku-v0-easy'"),
        ("nowhere.py:Game", "there is no file nowhere.py"),
        ("nowhere:Game", "no module 'nowhere' is installed"),
        ("gem.envs.games.sudoku:Soduku", "Did you mean 'Sudoku'?"),
        ("Sudoku", "no environment 'Sudoku'"),
    ],
)
def test_check_says_what_it_cannot_find(target, why, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(["check", target]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.system
def test_check_names_a_rule_that_does_not_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("gem.cli.silence.AFTER_S", 0.1)
    (tmp_path / "slow_envs.py").write_text(
        "import time\n"
        "from gem.testing.doubles import EchoEnv\n"
        "class Slow(EchoEnv):\n"
        "    def __init__(self):\n"
        "        time.sleep(0.3)\n"
        "        super().__init__()\n"
    )
    cli.main(["check", f"{tmp_path / 'slow_envs.py'}:Slow", "--seeds", "1"])
    err = capsys.readouterr().err
    assert "waiting for the rule is-env of " in err
    assert "does the environment return? Ctrl-C stops" in err


def test_check_records_a_golden_transcript(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    game = ["check", "game:GuessTheNumber-v0-easy", "--seeds", "1", "--record"]
    assert cli.main(game) == 2
    assert "there is no tests/golden/ here" in capsys.readouterr().err
    (tmp_path / "tests/golden").mkdir(parents=True)
    assert cli.main(game) == 0
    assert compare("game:GuessTheNumber-v0-easy", tmp_path / "tests/golden") == ""


def test_an_error_of_ours_has_no_traceback(run_here):
    done = run_here("list", "nothing-of-the-kind")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("UnknownEnv: ")
    assert done.stderr.count("\n") == 1


def test_unknown_flag_is_refused(run_here):
    done = run_here("list", "--famly")
    assert done.returncode == 2
    assert "--famly" in done.stderr


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def interrupted() -> None:
        """Be stopped."""
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "wait", cli.Command("gem.cli:interrupted", "wait"))
    monkeypatch.setattr(cli, "interrupted", interrupted, raising=False)
    assert cli.main(["wait"]) == 130
    assert capsys.readouterr().err == "\nstopped by Ctrl-C\n"


@pytest.mark.parametrize("module", ["gem.record", "tyro"])
def test_ctrl_c_while_the_command_is_imported_ends_with_130_and_no_traceback(module):
    written = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    entry, _, function = written["project"]["scripts"]["gem-gym"].partition(":")
    program = f"""
import os, signal, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Stop())
from {entry} import {function}
sys.exit({function}())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stdout == done.stderr == ""


@pytest.mark.system
def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "gem", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    with process:
        _, errors = process.communicate(timeout=60)
    assert errors == ""


@pytest.mark.system
def test_text_that_the_terminal_cannot_show_is_escaped():
    done = gem_gym("list", "\N{SNOWMAN}", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert "\\u2603" in done.stderr


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["play", "--turns", "0"], "turns is 0; accepted: 1 or more."),
        (
            ["play", "--agent", "nobody"],
            "accepted: human, random, solver, openai:MODEL[@BASE_URL], program:COMMAND, hf:NAME_OR_FOLDER, ",
        ),
        (["eval", "--turns", "-1"], "turns is -1; accepted: 1 or more."),
        (["eval", "--seed", "-1"], "seed is -1; a seed is a non-negative integer"),
        (["eval", "--temperature", "nan"], "temperature is nan; accepted: 0 (greedy) or more."),
    ],
)
def test_a_value_out_of_range_is_refused_before_anything_is_played(command, complaint, capsys):
    name, *flags = command
    assert cli.main([name, "game:GuessTheNumber-v0-easy", *flags]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert complaint in streams.err


def test_an_agent_without_any_verdict_fails_and_its_first_error_is_shown(monkeypatch, capsys):
    class Broken(BaseAgent):
        def __call__(self, asks):
            raise ConnectionError("the server\x1b[2J is gone")

    monkeypatch.setattr("gem.cli.eval.local_agent", lambda *_: Broken())
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "--episodes", "3"]) == 1
    streams = capsys.readouterr()
    assert "0/3" in streams.out
    assert "3 episodes without verdict, agent: ConnectionError, as: the server" in streams.err
    assert "\x1b" not in streams.err


def test_a_name_that_is_neither_id_nor_class_says_what_is_accepted(capsys):
    assert cli.main(["check", "nowhere_at_all:Thing-v0"]) == 2
    complaint = capsys.readouterr().err
    assert "there is no environment 'nowhere_at_all:Thing-v0'" in complaint
    assert "Accepted: a registered name, package.module:Attribute, or path/file.py:Attribute." in complaint


def test_a_file_without_a_class_says_how_to_name_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_envs.py").write_text("class Nim: ...")
    assert cli.main(["check", "my_envs.py"]) == 2
    assert "names a file; accepted: my_envs.py:NAME. It defines Nim." in capsys.readouterr().err


@pytest.mark.system
def test_doctor_says_what_works_and_what_to_type(capsys, monkeypatch):
    from gem import doctor

    monkeypatch.setenv("GEM_DATA", "/nonexistent")
    monkeypatch.setattr("gem.registry.FAMILIES", {})  # foreign suites take seconds to import
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line for line in shown.splitlines() if line.startswith("  ")}
    assert {i.partition(":")[0] for i in gem.ids()} <= set(rows)
    assert {"userns", "landlock", "container", "PostgreSQL", "GPU"} <= set(rows)
    assert f"0 of {len(gem.ids('eval'))}" in rows["eval"]
    assert "set GEM_DATA" in rows["eval"]
    assert len(shown.splitlines()) <= 40
    assert doctor.family("multi").result == f"{len(gem.ids('multi')):>3} of {len(gem.ids('multi'))}"


def test_doctor_tells_what_is_absent_from_what_is_broken(capsys, monkeypatch):
    from gem import doctor

    def make(spec):
        if "Wordle" in spec.id:
            raise missing_extra("a game: of words", "wordfreq", "games")
        if "Sudoku" in spec.id:
            raise OSError("the disk is gone")
        return gem.testing.EchoEnv()

    monkeypatch.setattr("gem.registry.make", make)
    found = doctor.family("game")
    assert "game:Sudoku-v0-easy: OSError: the disk is gone; a game: of words needs the word" in found.result
    assert (found.way, found.broken) == (install_command("games"), True)
    monkeypatch.setattr(doctor, "backends", lambda: [])
    assert cli.main(["doctor"]) == 1


def missing_names():
    return {f"Far-v{n}": "its files are not in the package" for n in (1, 2, 4, 5)}


def test_doctor_counts_the_names_of_a_family_that_do_not_start(monkeypatch):
    from gem import doctor

    names = tuple(f"Far-v{n}" for n in range(6))
    family = gem.registry.Family("far", "gem.testing:EchoEnv", names, missing=f"{__name__}:missing_names")
    monkeypatch.setattr("gem.registry.FAMILIES", {"far": family})
    monkeypatch.setattr("gem.registry.specs", lambda prefix: [family.spec(name) for name in names])
    monkeypatch.setattr("gem.registry.make", lambda spec: gem.testing.EchoEnv())
    found = doctor.family("far")
    assert found.result == "  2 of 6   the package cannot play Far-v1, Far-v2, Far-v4 and 1 more here"
    assert (found.way, found.broken) == ("gem-gym play far:Far-v1 (says why)", False)


@pytest.mark.parametrize(("golds", "code"), [(["5", r"\frac{1}{2}"], 0), (["5", "about 3 m", "5+"], 1)])
def test_references_that_nobody_reads_are_listed(golds, code, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"problem": "?", "gold": gold}) + "\n" for gold in golds))
    assert cli.main(["audit", "--data", str(data), "--answer-key", "gold", "--grader", "math"]) == code
    said = capsys.readouterr().out
    assert ("line 2: about 3 m" in said) is bool(code)
    assert f"{2 * code} of {len(golds)} references" in said


def test_the_audit_of_data_stands_alone():
    assert cli.main(["audit", "--data", "x.jsonl", "game:Sudoku-v0-easy"]) != 0


@pytest.mark.system
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "gem", "list", "game"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    last = ran.stderr.splitlines()[-1:]  # a busy machine says first what it waits for
    assert (ran.returncode, last) == (2, ["the output cannot be written: No space left on device."])


@pytest.mark.system
def test_a_closed_pipe_is_told_from_an_answer_that_is_no():
    """Under `set -o pipefail`, 1 would be a failed gate; 141 is what the shell says of SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([sys.executable, "-m", "gem", "list", "game"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert ran.returncode == 141


@pytest.mark.system
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_end_nothing(closed):
    command = f"{shlex.quote(sys.executable)} -m gem list game {closed}"
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    errors = [line for line in ran.stderr.splitlines() if not line.startswith("no news for ")]
    assert (ran.returncode, errors) == (0, [])
    assert ("game:GuessTheNumber-v0" in ran.stdout) == (closed == "2>&-")
