import itertools
import math
from dataclasses import fields, replace

import pytest

from gem.errors import StoreError
from gem.train.baselines import rows
from gem.train.baselines.rows import Row, Searched, Tried
from gem.train.config import TrainConfig
from gem.train.report.run_folder import Metrics

from .conftest import a_run


def row(**others):
    config = rows.common(TrainConfig(env_kwargs={"a": ["[ b  ]", "\n"]}))
    return Row("study", "env", "variant", config, {"1": a_run(), "2": a_run(error='a "b"\n[ c ]')}, **others)


def test_a_row_comes_back_as_it_was(tmp_path):
    searched = Searched({"lr": 1.0}, [7], [Tried({"lr": 1.0}, [None], ["e"], [0.0])], None)
    for each in (row(), row(search=searched)):
        rows.write(tmp_path / "row.json", each)
        assert rows.read_row(tmp_path / "row.json") == each


def test_a_row_has_a_line_per_figure_and_a_curve_on_one(tmp_path):
    rows.write(tmp_path / "row.json", row())
    text = (tmp_path / "row.json").read_text()
    assert '    "success": [0.1, 0.2, 0.3],\n' in text
    assert len(text) < 8000


def test_what_is_not_there_is_no_row(tmp_path):
    assert rows.read_row(tmp_path / "row.json") is None


@pytest.mark.parametrize("kept", [0, 1, 40, -3])
def test_a_damaged_row_is_named_with_the_way_out(tmp_path, kept):
    path = tmp_path / "row.json"
    rows.write(path, row())
    path.write_text(path.read_text()[:kept])
    with pytest.raises(StoreError, match=r"row.json is damaged: .*git checkout"):
        rows.read_row(path)


@pytest.mark.parametrize("was", ['"mean": 0.5', '"schema": 1', '"cpu_s": 10.0'])
def test_a_row_with_a_wrong_figure_is_refused(tmp_path, was):
    path = tmp_path / "row.json"
    rows.write(path, row())
    path.write_text(path.read_text().replace(was, was.split(":")[0] + ': "much"'))
    with pytest.raises(StoreError, match="damaged"):
        rows.read_row(path)


def test_another_form_is_refused(tmp_path):
    rows.write(tmp_path / "row.json", row(schema=99))
    with pytest.raises(StoreError, match="schema 99"):
        rows.read_row(tmp_path / "row.json")


def test_a_row_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "row.json"
    rows.write(path, row())
    before = path.read_text()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Free disk space"):
        rows.write(path, row(schema=2))
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["row.json"]


def test_a_config_changes_by_its_settings_and_not_by_seed_or_folder(tmp_path):
    config = TrainConfig()
    stored = rows.common(config)
    assert rows.find_changes(stored, replace(config, seed=5, out=tmp_path)) == []
    assert rows.find_changes(stored, replace(config, lr=0.5)) == ["lr"]


def test_a_setting_that_came_later_has_its_default_in_older_rows():
    stored = rows.common(TrainConfig())
    del stored["temperature"]
    assert rows.find_changes(stored, TrainConfig()) == []
    assert rows.find_changes(stored, TrainConfig(temperature=0.5)) == ["temperature"]


def test_a_setting_that_is_gone_is_a_change():
    assert "no_such" in rows.find_changes({**rows.common(TrainConfig()), "no_such": 1}, TrainConfig())[0]


def line(iteration, **figures):
    values = {f.name: 0.5 for f in fields(Metrics)}
    return Metrics(**{**values, "iteration": iteration, "episodes": 10 * iteration, **figures})


@pytest.mark.parametrize("length", [0, 1, 59, 60, 61, 119, 1000])
def test_a_thinned_curve_keeps_every_iteration_once(length):
    history = [line(i + 1, success=float(i), cpu_s=float(i)) for i in range(length)]
    curve = rows.thin_curve(history)
    assert len(curve["episodes"]) == min(60, length)
    assert {len(values) for values in curve.values()} == {min(60, length)}
    ends = [0, *(int(episodes) // 10 for episodes in curve["episodes"])]
    assert ends[-1] == length
    sizes = [b - a for a, b in itertools.pairwise(ends)]
    total = sum(size * mean for size, mean in zip(sizes, curve["success"], strict=True))
    assert total == pytest.approx(sum(range(length)), rel=1e-4)
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_a_figure_that_was_not_taken_is_null_and_enters_no_mean():
    history = [line(i + 1, success=math.nan if i % 2 else 1.0, reward=math.nan) for i in range(120)]
    curve = rows.thin_curve(history)
    assert set(curve["success"]) == {1.0}
    assert set(curve["reward"]) == {None}


def test_a_curve_has_what_explains_why_a_run_did_not_learn():
    curve = rows.thin_curve([line(1, unreadable=0.25, entropy=0.5, kl=math.nan, grad_norm=3.0)])
    assert (curve["unreadable"], curve["entropy"], curve["kl"]) == ([0.25], [0.5], [None])
    assert (curve["grad_norm"], curve["answer_tokens"]) == ([3.0], [0.5])
