import json
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gem.errors import SchemaMismatch, StoreError
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.learner import check_shape, load_weights, weights
from gem.train.learn.policy import make_policy
from gem.train.learn.training import load_policy, train
from gem.train.report.run_folder import RunFolder

STATE = {"iteration": 3, "model": {"w": torch.arange(6.0).view(2, 3)}, "figures": {"random": [0.5, None]}}


def same(found):
    return (
        found["iteration"] == STATE["iteration"]
        and found["figures"] == STATE["figures"]
        and torch.equal(found["model"]["w"], STATE["model"]["w"])
    )


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "new" / "checkpoint.pt"
    checkpoint.save(path, {"iteration": 1})
    checkpoint.save(path, STATE)
    assert same(checkpoint.load(path))
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint.pt"]


def test_no_checkpoint(tmp_path):
    with pytest.raises(
        StoreError, match=r"no checkpoint at .*a run writes one .* the same command without --resume"
    ):
        checkpoint.load(tmp_path / "checkpoint.pt")


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoint.load(tmp_path)


def test_a_torn_file_is_refused_wherever_it_tore(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE)
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 97), 1, 2, 3, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match="cannot be read"):
            checkpoint.load(path)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_no_checkpoint(tmp_path, kind):
    path = tmp_path / "checkpoint.pt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="it is a pipe or a device"):
        checkpoint.load(path)


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("write", [torch.save, lambda state, path: path.write_bytes(pickle.dumps(state))])
@pytest.mark.parametrize("mmap", [False, True])
def test_nothing_that_a_checkpoint_names_is_run(tmp_path, monkeypatch, write, mmap):
    monkeypatch.chdir(tmp_path)
    write({"schema": checkpoint.SCHEMA, "model": Hostile()}, tmp_path / "checkpoint.pt")
    with pytest.raises(StoreError) as refused:
        checkpoint.load(tmp_path / "checkpoint.pt", mmap=mmap)
    assert not (tmp_path / "ran").exists()
    assert "weights_only" not in str(refused.value)


@pytest.mark.parametrize("schema", [torch.ones(2), "x" * 9999, True, 2])
def test_a_schema_of_another_kind_is_refused_in_a_line(tmp_path, schema):
    torch.save({"schema": schema}, tmp_path / "checkpoint.pt")
    with pytest.raises(SchemaMismatch) as refused:
        checkpoint.load(tmp_path / "checkpoint.pt")
    assert len(str(refused.value)) < 500 + len(str(tmp_path))


@pytest.mark.parametrize("content", [b"weights", b"\x80\x04.", b"\x80\x04]\x94.", b"PK\x03\x04"])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises((StoreError, SchemaMismatch)):
        checkpoint.load(path)


class Malice:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_checkpoint_is_executed(tmp_path, capsys):
    path = tmp_path / "checkpoint.pt"
    torch.save({"schema": checkpoint.SCHEMA, "model": Malice()}, path)
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoint.load(path)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(("stored", "told"), [({"schema": 99}, "99"), ({}, "None"), ([1], "None")])
def test_another_schema_is_refused(tmp_path, stored, told):
    path = tmp_path / "checkpoint.pt"
    torch.save(stored, path)
    with pytest.raises(SchemaMismatch, match=f"has schema {told}, this version reads {checkpoint.SCHEMA}"):
        checkpoint.load(path)


@pytest.mark.system
def test_a_full_disk_leaves_the_old_checkpoint_and_no_rubbish(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE)
    program = f"""
import pathlib, resource, signal, torch
from gem.errors import StoreError
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, {resource.RLIM_INFINITY}))
try:
    checkpoint.save(pathlib.Path({str(path)!r}), {{"model": torch.zeros(100_000)}})
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert "The previous one is kept; free disk space or choose another --out" in done.stdout
    assert same(checkpoint.load(path))
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        checkpoint.save(tmp_path / "file" / "checkpoint.pt", STATE)


def test_a_crash_while_writing_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, STATE)

    def killed(state, file):
        file.write(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(path, {"iteration": 4})
    assert same(checkpoint.load(path))
    checkpoint.save(path, {"iteration": 4})
    assert checkpoint.load(path)["iteration"] == 4
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    steps, sync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: steps.append(os.fstat(fd).st_size) or sync(fd))
    monkeypatch.setattr(Path, "replace", lambda self, to: steps.append("replace") or replace(self, to))
    path = tmp_path / "run" / "checkpoint.pt"
    checkpoint.save(path, {"iteration": 3})
    assert steps == [path.stat().st_size, "replace"]
    assert checkpoint.load(path)["iteration"] == 3


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ({}, SchemaMismatch),
        ({"vocab_hash": "v"}, SchemaMismatch),
        ({"vocab_hash": "v", "model": 3}, StoreError),
        ({"vocab_hash": "v", "model": {"weight": "text"}}, StoreError),
        ({"vocab_hash": "v", "model": {"weight": torch.ones(3)}}, SchemaMismatch),
    ],
)
def test_weights_that_are_none_are_refused_in_a_sentence(state, error):
    policy = SimpleNamespace(model=torch.nn.Linear(2, 2), renderer=SimpleNamespace(vocab_hash="v"))
    with pytest.raises(error, match=r"checkpoint at-this-place|at-this-place holds"):
        load_weights(policy, state, "at-this-place")


def write_run(out):
    config = TrainConfig(width=32, layers=2, heads=2, out=out)
    state = weights(make_policy(config))
    (out / "config.json").write_text(json.dumps(config.to_json()))
    checkpoint.save(out / "checkpoint.pt", state)
    return config, state


def start_from(out):
    train(TrainConfig(start_from=str(out), out=out / "next"))


@pytest.mark.parametrize(
    ("name", "value"), [("layers", 10**9), ("width", 8 * 10**9), ("layers", 3), ("width", 64)]
)
@pytest.mark.parametrize(
    "use", [load_policy, lambda out: train(RunFolder(out).read_config(), resume=True), start_from]
)
def test_a_run_whose_config_asks_for_another_model_than_it_has_is_refused(tmp_path, name, value, use):
    write_run(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), name: value}))
    with pytest.raises(SchemaMismatch, match=rf"{name} is \d+ there, and {value} in the run's config"):
        use(tmp_path)


def test_weights_whose_numbers_are_not_in_the_file_are_refused(tmp_path):
    """A view of one number may have any shape."""
    config, state = write_run(tmp_path)
    state["model"]["embed"] = torch.zeros(1).expand(10**7, config.width)
    with pytest.raises(StoreError, match="its model share their numbers"):
        check_shape(config, state, "it")
