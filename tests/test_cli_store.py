import json
import re
import subprocess
import sys

import jsonschema
import pytest

from gem.cli import main
from gem.record import Episode, Failure, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import EpisodeStore
from gem.specs import TaskRef

RUN = RunInfo("run", "OpenAIAgent", "a-model", {"temperature": 0.7})


def episode(job, stop=StopReason.SOLVED, spec="game:X", **changes):
    turn = Turn("agent", "say \x1b[2Jfive", "fi\x07ve", reward=0.5)
    turn.hold((1, 2), (3,))
    changes = {"verdict": Verdict.SCORED, **changes}
    ends = {"agent": SeatEnd(stop, terminated=True, observation="bye")}
    return Episode(TaskRef(spec, {"n": 3}, seed=7), RUN, job, turns=[turn], stop=stop, ends=ends, **changes)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "episodes.jsonl"
    broken = {"verdict": Verdict.NONE, "error": Failure("env", "ValueError", "it \x1b[31mbroke")}
    with EpisodeStore(path) as store:
        store.append(episode("won"))
        store.append(episode("lost", StopReason.FAILED, spec="game:\x1b[1mY[red]"))
        store.append(episode("broken", StopReason.ERROR, **broken))
    return path


def run(capsys, *args):
    code = main(["store", *map(str, args)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_the_folder_of_a_run_stands_for_its_store(path, capsys):
    for words in (("ls",), ("cat", "0")):
        of_file, of_folder = (run(capsys, words[0], each, *words[1:]) for each in (path, path.parent))
        assert of_folder == of_file
        assert of_file[0] == 0


def test_ls_has_no_number_of_tokens_where_the_store_has_none(tmp_path, capsys):
    with EpisodeStore(tmp_path / "episodes.jsonl", tokens=False) as store:
        store.append(episode("won"))
    assert run(capsys, "ls", tmp_path)[1].splitlines()[1].split()[-1] == "-"


def test_ls_lists_one_episode_a_line(path, capsys):
    code, out, err = run(capsys, "ls", path)
    head, *rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert head == ["id", "env", "stop", "return", "turns", "tokens"]
    assert rows == [
        ["0", "run-won-0-0", "game:X", "solved", "0.500", "1", "1"],
        ["1", "run-lost-0-0", "game:\\x1b[1mY[red]", "failed", "0.500", "1", "1"],
        ["2", "run-broken-0-0", "game:X", "error", "-", "1", "1"],
    ]


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        (["--success"], [0]),
        (["--failed"], [1]),
        (["--no-verdict"], [2]),
        (["--spec", "game:X"], [0, 2]),
        (["--spec", "game:X", "--limit", "1"], [0]),
    ],
)
def test_ls_filters(path, capsys, flags, numbers):
    code, out, _ = run(capsys, "ls", path, "--json", *flags)
    assert (code, [json.loads(line)["number"] for line in out.splitlines()]) == (0, numbers)


def test_ls_of_nothing_is_no(path, capsys):
    assert run(capsys, "ls", path, "--spec", "game:X", "--failed")[0] == 1


def test_ls_fits_a_terminal_of_80_columns(path):
    with EpisodeStore(path) as store:
        store.append(
            episode("a-very-long-name-of-a-job-" * 3, StopReason.TURN_BUDGET, "game:Guess" + "x" * 70)
        )
    code = "import sys, gem.cli; sys.stdout.isatty = lambda: True; sys.exit(gem.cli.main(sys.argv[1:]))"
    shown = subprocess.run(
        [sys.executable, "-c", code, "store", "ls", path],
        capture_output=True,
        check=True,
        env={"COLUMNS": "80", "PYTHONPATH": ".", "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
    ).stdout
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, shown)) <= 80
    assert len(shown) == 6
    assert shown[-1].split()[0] == "3"
    assert shown[-1].split()[-4:] == ["turn_budget", "0.500", "1", "1"]
    assert "game:\\x1b[1mY[r" in shown[3]


def test_cat_shows_a_transcript_whose_text_cannot_steer_the_terminal(path, capsys):
    for name in ("0", "-3", "run-won-0-0"):
        code, out, _ = run(capsys, "cat", path, name)
        assert code == 0
        assert out == (
            "id: run-won-0-0\nenv: game:X, seed 7\nkeywords: n=3\n"
            "agent: OpenAIAgent, a-model, temperature=0.7\n\n"
            "say \\x1b[2Jfive\n\nagent> fi\\x07ve\n\nreward 0.5\n\nbye\n\nsolved after 1 turn, return 0.5\n"
        )
    _, out, _ = run(capsys, "cat", path, "2")
    assert out.endswith("No verdict after 1 turn: ValueError in env: it \\x1b[31mbroke\n")


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"exit_code": 3, "signal": None, "ended": "", "wall_s": 1.25}, "program: exit code 3 after 1.2 s\n"),
        (
            {"exit_code": 0, "signal": 11, "ended": "time", "wall_s": None},
            "program: signal 11, ended (time)\n",
        ),
        ({"exit_code": 0, "stderr": 7}, "program: exit code 0\n"),
        (
            {"exit_code": 1, "stdout": "x\n", "stderr": "\x1b[2J\n" * 50 + "OSError: no\n"},
            "stdout:\nx\nstderr:\n",
        ),
    ],
)
def test_cat_shows_how_a_program_ended(about, told, tmp_path, capsys):
    path = tmp_path / "episodes.jsonl"
    with EpisodeStore(path) as store:
        played = episode("j", StopReason.FAILED)
        played.ends["agent"].info["program"] = about
        store.append(played)
    _, out, _ = run(capsys, "cat", path, "0")
    assert told in out
    assert "\x1b" not in out
    assert out.count("[2J") <= 21
    assert ("OSError: no" in out) is ("stdout" in about)


def test_cat_shows_the_line_as_it_is_stored(path, capsys):
    _, out, _ = run(capsys, "cat", path, "run-won-0-0", "--json")
    assert out.encode() == path.read_bytes().splitlines(keepends=True)[1]


def test_merge_says_what_it_did(path, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    assert run(capsys, "merge", out, path) == (0, f"copied 3 episodes to {out}; 0 were there already\n", "")
    with path.open("ab") as file:
        file.write(b'{"schema":2,"job":1}\n')
    code, said, warned = run(capsys, "merge", out, path)
    assert (code, said) == (0, f"copied 0 episodes to {out}; 3 were there already\n")
    assert warned == "left out 1 line: damaged, torn, or of another version of gem\n"
    folder = tmp_path / "run"
    folder.mkdir()
    path.rename(folder / "episodes.jsonl")
    assert run(capsys, "merge", out, folder)[1] == said


def test_the_schema_is_one_that_stored_lines_fit(path, capsys):
    code, out, _ = run(capsys, "schema")
    validator = jsonschema.Draft202012Validator(json.loads(out))
    lines = path.read_bytes().splitlines()
    assert (code, len(lines)) == (0, 4)
    for line in lines:
        validator.validate(json.loads(line))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["ls", "absent.jsonl"], "there is no absent.jsonl; accepted: a store"),
        (
            ["ls", "empty"],
            "empty holds no episodes; accepted: a store (episodes.jsonl), or the folder of a run",
        ),
        (["ls", "{path}", "--limit", "0"], "limit is 0"),
        (["ls", "{path}", "--success", "--failed"], "exclude one another"),
        (["ls", "{path}", "--spec", "game:x"], "holds no episode of 'game:x'. Did you mean 'game:X'?"),
        (["cat", "{path}", "run-wom-0-0"], "holds no episode 'run-wom-0-0'. Did you mean 'run-won-0-0'"),
        (["cat", "{path}", "3"], "there is no episode 3; {path} holds 3"),
        (["cat", "diary.txt", "0"], "does not begin an episode"),
        (["merge", "{path}", "{path}"], "is the output store"),
        (["merge", "out.jsonl"], "nothing to merge"),
    ],
)
def test_what_is_wrong_is_said(path, tmp_path, capsys, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "diary.txt").write_text("Dear diary,\n")
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, *(arg.format(path=path) for arg in args))
    assert code == 2
    assert message.format(path=path) in err
    assert "Traceback" not in err


def test_a_stored_line_cannot_steer_the_terminal_either(path, capsys, monkeypatch):
    with EpisodeStore(path) as store:
        line = re.sub(rb',"crc32":".*"}$', b"}", store.line(0))
    path.write_bytes(line.replace(b'"observation":"', '"observation":"\x9b2J\u202e'.encode(), 1) + b"\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = run(capsys, "cat", path, "0", "--json")
    assert out.strip().isprintable()
    assert json.loads(out) == json.loads(path.read_bytes())
