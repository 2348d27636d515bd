import json
import math
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("torch")

from records import episode, paid

from gem.errors import SchemaMismatch, StoreError
from gem.evals import summarise
from gem.train.config import TrainConfig
from gem.train.report.run_folder import Metrics, RunFolder


def line(iteration, **figures):
    values = {f.name: 0.5 for f in fields(Metrics)}
    return Metrics(**{**values, "iteration": iteration, "episodes": 10 * iteration, **figures})


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(TrainConfig(gamma=0.7))
    return folder


def test_a_run_begins_with_its_config(folder):
    assert folder.read_config() == TrainConfig(gamma=0.7)
    assert folder.history() == []


def test_a_finished_iteration_is_not_overwritten(folder):
    folder.checkpoint.write_bytes(b"something")
    with pytest.raises(StoreError, match=r"holds a run already; go on with it \(--resume\)"):
        folder.begin(TrainConfig())
    assert folder.read_config().gamma == 0.7


def test_a_folder_stays_where_it_was_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(Path("run"))
    monkeypatch.chdir(tmp_path.parent)
    folder.begin(TrainConfig())
    folder.append(line(1))
    assert folder.history() == RunFolder(tmp_path / "run").history() == [line(1)]


def test_metrics_come_back(folder):
    written = [line(1), line(2, success=0.25)]
    for each in written:
        folder.append(each)
    assert folder.history() == written


def test_what_there_is_none_of_is_null_in_the_file(folder):
    folder.append(line(1, loss=math.nan))
    assert json.loads(folder.metrics.read_text())["loss"] is None
    assert "NaN" not in folder.metrics.read_text()
    (found,) = folder.history()
    assert math.isnan(found.loss)


@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_torn_last_line_is_left_out_and_closed_off(folder, kept):
    folder.append(line(1))
    whole = folder.metrics.read_text()
    folder.append(line(2))
    folder.metrics.write_text(folder.metrics.read_text()[: len(whole) + kept])
    assert [m.iteration for m in folder.history()] == [1]
    folder.rewind(1)
    folder.append(line(2))
    assert [m.iteration for m in folder.history()] == [1, 2]


@pytest.mark.parametrize("torn", [b"[1, 2]", b"7", b'{"iteration": 2}', b"\xff\xfe", b"null"])
def test_a_line_that_is_no_line_ends_the_history(folder, torn):
    folder.append(line(1))
    with folder.metrics.open("ab") as file:
        file.write(torn)
    assert [m.iteration for m in folder.history()] == [1]


def test_rewinding_drops_what_the_checkpoint_does_not_hold(folder):
    for number in range(1, 5):
        folder.append(line(number, loss=math.nan))
    folder.rewind(2)
    assert [m.iteration for m in folder.history()] == [1, 2]
    folder.rewind(2)
    assert [m.iteration for m in folder.history()] == [1, 2]
    folder.rewind(0)
    assert folder.metrics.read_text() == ""


@pytest.mark.parametrize("act", [RunFolder.check_free, RunFolder.clear])
def test_an_evaluations_episodes_are_left_alone(folder, act):
    folder.config.unlink()
    folder.episodes.write_text("an evaluation's")
    with pytest.raises(StoreError, match="holds episodes of no training run"):
        act(folder)
    assert folder.episodes.read_text() == "an evaluation's"


def test_clearing_removes_the_run_and_nothing_else(folder):
    folder.append(line(1))
    folder.write(folder.summary, {"a": 1})
    mine = folder.path / "notes.txt"
    mine.write_text("mine")
    folder.clear()
    assert list(folder.path.iterdir()) == [mine]


def test_a_folder_has_one_trainer_at_a_time(folder):
    rival = RunFolder(folder.path)
    with folder.lock():
        with pytest.raises(StoreError, match="another trainer is using"), rival.lock():
            pass
        with pytest.raises(StoreError, match="another trainer is using"):
            rival.clear()
    assert folder.config.exists()
    with rival.lock():
        pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    run = RunFolder(tmp_path / "file" / "run")
    with pytest.raises(StoreError, match=r"cannot be written: .*choose another --out"), run.lock():
        pass


def test_a_folder_without_run(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(StoreError, match="holds no run"):
        folder.read_config()
    with pytest.raises(StoreError, match="cannot be read"):
        folder.history()


@pytest.mark.parametrize(
    ("text", "error"), [("{", StoreError), ("7", SchemaMismatch), ('{"x": 1}', SchemaMismatch)]
)
def test_a_broken_config(folder, text, error):
    folder.config.write_text(text)
    with pytest.raises(error):
        folder.read_config()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written.*choose another --out"):
        RunFolder(tmp_path / "file" / "run").begin(TrainConfig())


def test_writing_fails_clearly_and_leaves_the_old_file(folder):
    folder.write(folder.summary, {"a": 1})
    blocked = folder.summary.with_name("summary.json.partial")
    blocked.mkdir()
    with pytest.raises(StoreError, match=r"summary\.json cannot be written"):
        folder.write(folder.summary, {"a": 2})
    assert json.loads(folder.summary.read_text()) == {"a": 1}
    folder.metrics.unlink()
    folder.metrics.mkdir()
    with pytest.raises(StoreError, match=r"metrics\.jsonl cannot be written"):
        folder.append(line(1))


def test_figures_that_cannot_be_read_are_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.read_figures() == {}
    won = summarise("test:X", [episode(*paid(1.0))])
    known = {"after": won.to_json(), "before": [], "held_out": {"seats": 1}}
    values = {**known, "cpu_s": 3.0, "environments": {"test:X": known, "test:Y": {"after": None}, "odd": 1}}
    folder.write(folder.summary, values)
    found = folder.read_figures()
    assert {label: [*results] for label, results in found.items()} == {"": ["after"], "test:X": ["after"]}
    assert found["test:X"]["after"].success == won.success
    for damaged in ("[1]", '{"after": {', "7"):
        folder.summary.write_text(damaged)
        assert folder.read_figures() == {}
