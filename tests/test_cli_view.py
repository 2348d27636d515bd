import re
import subprocess
import sys

import pytest
from records import episode, turn

from gem.agents.random import RandomAgent
from gem.cli import main
from gem.record import RunInfo
from gem.rollout import EpisodeStore, Job, rollout
from gem.specs import TaskRef

GUESS = "game:GuessTheNumber-v0-easy"


def need_viewer():
    for package in ("starlette", "uvicorn", "jinja2"):
        pytest.importorskip(package, reason="needs the viewer: pip install 'gem-gym[viewer]'")


@pytest.fixture
def folder(tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        rollout([Job(GUESS, seed, key=f"job{seed}") for seed in range(3)], RandomAgent(), store=store)
    return tmp_path


def run(capsys, *args):
    code = main(list(map(str, args)))
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_replay_says_that_the_transcript_is_the_same(folder, capsys):
    with EpisodeStore(folder / "episodes.jsonl", read_only=True) as store:
        hashes = [each.transcript_hash() for each in store]
    code, out, _ = run(capsys, "replay", folder, "0", "-1")
    assert code == 0
    assert out.startswith("0: the same transcript, ")
    assert hashes[0] in out
    assert hashes[2] in out
    assert hashes[1] not in out
    code, out, _ = run(capsys, "replay", folder / "episodes.jsonl", "all")
    assert (code, out.count("the same transcript")) == (0, 3)


def test_replay_tells_the_first_difference_and_fails(folder, capsys):
    text = re.sub(r',"crc32":"\w+"}$', "}", (folder / "episodes.jsonl").read_text(), flags=re.MULTILINE)
    (folder / "other.jsonl").write_text(text.replace("between 1 and 10", "between 1 and \\u001b[2J20"))
    code, out, _ = run(capsys, "replay", folder / "other.jsonl", "1")
    assert code == 1
    assert "1: differs at turn 1, observation:" in out
    assert "between 1 and \\x1b[2J20" in out
    assert "between 1 and 10" in out
    assert "\x1b" not in out


def test_replay_makes_nothing_that_the_record_names_code_for(tmp_path, capsys):
    planted = tmp_path / "planted"
    task = TaskRef("os:system", {"command": f"touch {planted}"}, seed=1, entry_point="os:system")
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        made = episode(turn(), run=RunInfo("run"), job="a")
        made.task = task
        store.append(made)
    code, out, _ = run(capsys, "replay", tmp_path / "e.jsonl", "0")
    assert code == 1
    assert "is no registered environment" in out
    assert not planted.exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["replay", "{folder}"], "no episode was named"),
        (["replay", "{folder}", "7"], "there is no episode 7; "),
        (["replay", "{folder}", "run-jo"], "holds no episode 'run-jo'"),
        (
            ["show", "{folder}/absent", "0"],
            "/absent; accepted: a store (episodes.jsonl), or the folder of a run",
        ),
        (["tail", "{folder}", "--lines", "-1"], "lines is -1; accepted: 0 or more"),
        (["view", "{folder}", "--episode", "0"], "name the file by --export"),
        (["view", "{folder}/absent"], "holds no episodes; accepted: a store"),
        (
            ["view", "{folder}", "--export", "{folder}/x.html", "--limit", "0"],
            "limit is 0; accepted: 1 or more",
        ),
        (["view", "{folder}", "--export", "{folder}/no/x.html"], "cannot be written"),
        (["view", "{folder}", "--export", "{folder}/x.html", "--port", "-1"], "Give one of them."),
        (["view"], "no run was named"),
    ],
)
def test_what_makes_no_sense_says_so(folder, capsys, args, said):
    if args[0] == "view":
        need_viewer()
    code, _, err = run(capsys, *(each.format(folder=folder) for each in args))
    assert code == 2
    assert said in err


def test_several_stores_below_a_folder_are_named(tmp_path, capsys):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        with EpisodeStore(tmp_path / name / "episodes.jsonl") as store:
            store.append(episode(turn(), run=RunInfo("run"), job="a"))
    code, _, err = run(capsys, "show", tmp_path, "0")
    assert code == 2
    assert f"holds 2 stores; name one of them: {tmp_path / 'one'}, {tmp_path / 'other'}." in err


def test_show_prints_an_episode(folder, capsys):
    code, out, _ = run(capsys, "show", folder, "1")
    assert code == 0
    assert "I have a secret whole number" in out
    assert "agent> \\boxed{" in out


def test_tail_ends_after_the_last_one_where_it_is_told_to(folder, capsys):
    code, out, _ = run(capsys, "tail", folder, "--lines", "2", "--once")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2"]


@pytest.mark.system
def test_tail_shows_what_is_added_meanwhile(folder):
    command = [sys.executable, "-m", "gem", "tail", str(folder), "--lines", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().split()[0] == "2"
        with EpisodeStore(folder / "episodes.jsonl") as store:
            store.append(episode(turn(action="new \x1b[2J"), run=RunInfo("run"), job="more"))
        line = process.stdout.readline()
        process.terminate()
    assert line.split()[0] == "3"
    assert "new \\x1b[2J" in line


@pytest.mark.system
def test_view_prints_its_address_and_serves_it(folder):
    need_viewer()
    httpx = pytest.importorskip("httpx")
    command = [sys.executable, "-m", "gem", "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "1 run, 3 episodes\n"
            address = process.stdout.readline().strip()
            assert httpx.get(address, trust_env=False).status_code == 200
            assert httpx.get(address.rsplit("/", 2)[0] + "/", trust_env=False).status_code == 403
        finally:
            process.terminate()


def test_a_replay_of_nothing_is_no_success(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    code, _, err = run(capsys, "replay", tmp_path / "empty.jsonl", "all")
    assert code == 2
    assert "holds no episode" in err
