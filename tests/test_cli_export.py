from contextlib import suppress
from pathlib import Path

import pytest
from awkward_episodes import awkward

from gem import codec
from gem.agents.random import RandomAgent
from gem.cli import main
from gem.cli.export import FORMATS
from gem.errors import MissingExtra
from gem.plugins import load
from gem.rollout import EpisodeStore, Job, rollout


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "run.jsonl"
    with EpisodeStore(path) as store:
        for episode in awkward():
            store.append(episode)
    return path


def run(capsys, *args):
    code = main([str(arg) for arg in args])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def lines(path):
    with EpisodeStore(path, read_only=True) as store:
        return [codec.encode(episode) for episode in store], store.runs


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("out.jsonl", []),
        ("out.parquet", []),
        ("out.jsonl", ["--format", "atif"]),
        ("folder", ["--format", "atif"]),
        ("out.eval", []),
        ("out.json", ["--format", "inspect"]),
        ("logs", ["--format", "inspect"]),
    ],
)
def test_out_and_in(store, tmp_path, capsys, name, args):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if name.endswith(".eval") or "inspect" in args:
        pytest.importorskip("inspect_ai")
    out, back = tmp_path / name, tmp_path / "back.jsonl"
    code, said, err = run(capsys, "export", store, out, *args)
    assert (code, err) == (0, "")
    assert said.startswith("wrote ")
    assert run(capsys, "import", out, back, *args)[:2] == (
        0,
        f"copied 6 episodes to {back}; 0 were there already\n",
    )
    (before, runs), (after, runs_back) = lines(store), lines(back)
    assert (sorted(after), runs_back) == (sorted(before), runs)
    again = run(capsys, "import", out, back, *args)
    assert again[:2] == (0, f"copied 0 episodes to {back}; 6 were there already\n")


@pytest.mark.parametrize(("text", "change"), [(b'"stop":"', b'"stop":"\x1b'), (b'"schema":2', b'"schema":3')])
def test_episodes_that_cannot_be_read_are_left_out_and_told(store, tmp_path, capsys, text, change):
    data = store.read_bytes().splitlines(keepends=True)
    data[2] = data[2].replace(text, change, 1)
    store.write_bytes(b"".join(data) + b'{"schema":2,"torn')
    code, said, err = run(capsys, "export", store, tmp_path / "out.jsonl")
    assert (code, said) == (0, f"wrote 5 rows to {tmp_path / 'out.jsonl'}\n")
    assert "1 episode was left out; the first:" in err
    assert "1 damaged line was skipped" in err
    assert "\x1b" not in err


def test_damaged_rows_are_left_out_and_told(store, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    run(capsys, "export", store, out)
    out.write_bytes(b"{}\n" + out.read_bytes())
    code, said, err = run(capsys, "import", out, tmp_path / "back.jsonl")
    assert (code, said) == (0, f"copied 6 episodes to {tmp_path / 'back.jsonl'}; 0 were there already\n")
    assert "1 episode was left out; the first:" in err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["export", "run.jsonl", "out.txt"], "give --format"),
        (
            ["export", "run.jsonl", "out.txt", "--format", "xlsx"],
            "accepted: parquet, jsonl, csv, atif",
        ),
        (["export", "run.jsonl", "out", "--format", "atif", "--per", "turn"], "for parquet and jsonl"),
        (["export", "run.jsonl", "run.jsonl"], "already exists"),
        (["export", "none.jsonl", "out.jsonl"], "there is no none.jsonl; accepted: a store"),
        (["import", "none.jsonl", "back.jsonl"], "no such file"),
        (["import", ".", "back.jsonl", "--format", "parquet"], "holds no file that ends with .parquet"),
        (["export", "run.jsonl", "no/out.jsonl"], "cannot be written"),
        (["export", "run.jsonl", "no/out", "--format", "atif"], "cannot be made"),
        (["import", "run.jsonl", "back.jsonl", "--format", "x"], "accepted: parquet"),
        (["import", "run.jsonl", "back.jsonl", "--format", "sft"], "cannot be read back from it"),
        (["export", "run.jsonl", "out.jsonl", "--format", "sft", "--per", "turn"], "for parquet and jsonl"),
        (["export", "run.jsonl", "out.jsonl", "--format", "openenv", "--no-tokens"], "consists of tokens"),
    ],
)
def test_what_cannot_be_done_is_told(store, tmp_path, capsys, monkeypatch, args, told):
    monkeypatch.chdir(tmp_path)
    code, said, err = run(capsys, *args)
    assert (code, said) == (2, "")
    assert told in err
    assert not (tmp_path / "back.jsonl").exists() or not lines(tmp_path / "back.jsonl")[0]


@pytest.mark.parametrize(
    ("format", "name"), [("jsonl", "rows.jsonl"), ("atif", "a.jsonl"), ("openenv", "a.jsonl")]
)
def test_a_folder_of_files_is_imported(store, tmp_path, capsys, monkeypatch, format, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    assert run(capsys, "export", str(store), f"in/{name}", "--format", format)[0] == 0
    one = run(capsys, "import", f"in/{name}", "one.jsonl", "--format", format)
    assert run(capsys, "import", "in", "all.jsonl", "--format", format)[1] == one[1].replace("one", "all")
    assert "copied 0" not in one[1]


def test_data_sets_to_train_on(store, tmp_path, capsys):
    code, said, err = run(capsys, "export", store, tmp_path / "sft.jsonl", "--format", "sft")
    rows = (tmp_path / "sft.jsonl").read_text().splitlines()
    assert (code, said, err) == (0, f"wrote {len(rows)} rows to {tmp_path / 'sft.jsonl'}\n", "")
    assert len(rows) >= sum(episode.scored for episode in awkward())
    code, said, err = run(capsys, "export", store, tmp_path / "pairs.jsonl", "--format", "preferences")
    assert (code, said) == (1, "")  # no task was played twice
    assert "nothing was written: preferences needs two episodes of one task" in err
    assert not (tmp_path / "pairs.jsonl").exists()


def test_what_a_resumed_run_played_again_is_trained_on_once(tmp_path, capsys):
    jobs = [Job("game:GuessTheNumber-v0-easy", seed) for seed in range(3)]
    with EpisodeStore(tmp_path / "run.jsonl") as store:
        for again in (jobs, jobs[1:]):
            rollout(again, RandomAgent(), store=store)
        assert len(store) == 5
    run(capsys, "export", tmp_path / "run.jsonl", tmp_path / "sft.jsonl", "--format", "sft")
    assert len((tmp_path / "sft.jsonl").read_text().splitlines()) == 3
    run(capsys, "export", tmp_path / "run.jsonl", tmp_path / "all.jsonl")
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 5


def test_traces(tmp_path, capsys):
    with EpisodeStore(tmp_path / "run.jsonl") as store:
        store.append(awkward()[0])
        store.append(rollout([Job("game:GuessTheNumber-v0-easy", 0)], RandomAgent())[0])
    out = tmp_path / "traces.jsonl"
    code, said, err = run(capsys, "export", tmp_path / "run.jsonl", out, "--format", "openenv")
    assert (code, said) == (0, f"wrote 1 trace to {out}\n")
    assert "1 episode was left out; the first:" in err
    back = tmp_path / "back.jsonl"
    code, said, _ = run(capsys, "import", out, back, "--format", "openenv")
    assert (code, said) == (0, f"copied 1 episodes to {back}; 0 were there already\n")
    assert lines(back)[0] == lines(tmp_path / "run.jsonl")[0][:1]


def test_tokens_can_be_left_out(store, tmp_path, capsys):
    assert run(capsys, "export", store, tmp_path / "out.jsonl", "--no-tokens")[0] == 0
    run(capsys, "import", tmp_path / "out.jsonl", tmp_path / "back.jsonl")
    assert lines(tmp_path / "back.jsonl")[0] == [codec.encode(each, tokens=False) for each in awkward()]


def test_the_folder_of_a_run_is_exported(store, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    store.rename(tmp_path / "run" / "episodes.jsonl")
    code, out, _ = run(capsys, "export", tmp_path / "run", tmp_path / "out.jsonl")
    assert (code, out) == (0, f"wrote {len(awkward())} rows to {tmp_path / 'out.jsonl'}\n")


def test_help_and_guide_name_every_format(capsys):
    guide = (Path(__file__).parents[1] / "docs/guides/exporting.md").read_text()
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    words = set(capsys.readouterr().out.replace(",", " ").replace(".", " ").split())
    for name, format in FORMATS.items():
        assert name in words
        assert f"\n| `{name}` |" in guide
        if format.read:
            with suppress(MissingExtra):
                load(format.read)
