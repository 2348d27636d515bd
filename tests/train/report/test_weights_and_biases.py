"""Weights & Biases, really run, offline; what it wrote is read back from its own file."""

import io
import json
import os
import struct
import subprocess
import sys

import pytest
from waiting import until

pytest.importorskip("torch")
pytest.importorskip("wandb", reason="Weights & Biases is not installed (gem-gym[log])")

TINY = ("--width", 16, "--layers", 1, "--heads", 2, "--batch", 16, "--episodes", 64, "--eval-episodes", 8)
TINY += ("--warmup-steps", 2, "--watch", 2)
BLOCK, HEAD = 32768, 7
"""Of the LevelDB log format, in which W&B writes: records in blocks, each with checksum, length and kind."""


def started(folder, *more, **variables):
    words = [sys.executable, "-m", "gem", "train", "--out", folder / "run", *more]
    left = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    env = {**left, "HOME": str(folder), "COLUMNS": "200", **variables}
    given = {"env": env, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)


def run_in(folder, *more, **variables):
    process = started(folder, *more, **variables)
    process.stdout, process.stderr = map(io.StringIO, process.communicate())
    return process


def read(file):
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, piece = file.read_bytes(), HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        piece += data[at + HEAD : at + HEAD + size]
        at += HEAD + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(piece)
            piece = b""


def offline(folder):
    """The records of all files that a run wrote, in order, by kind."""
    found = {}
    for file in sorted((folder / "run/wandb").glob("offline-run-*/run-*.wandb")):
        for record in read(file):
            found.setdefault(record.WhichOneof("record_type"), []).append(record)
    return found


def history(records):
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in each.history.item}
        for each in records["history"]
    ]


@pytest.mark.slow
def test_a_run_is_written_offline_once_and_goes_on_under_its_id(tmp_path):
    began = run_in(tmp_path, *TINY, "--log", "wandb", "--save-every", 2)
    assert began.returncode == 0, began.stderr.read()
    assert "wandb" not in (began.stdout.read() + began.stderr.read()).lower()
    resumed = run_in(tmp_path, "--resume")
    assert resumed.returncode == 0, resumed.stderr.read()
    records = offline(tmp_path)
    ids = {each.run.run_id for each in records["run"]}
    assert ids == {json.loads((tmp_path / "run/wandb.json").read_text())["id"]}
    assert len(records["run"]) >= 2
    rows = history(records)
    assert [row["_step"] for row in rows] == [0, 1, 2, 3, 4, 5]
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["train/success"] for row in rows[1:5]] == [each["success"] for each in metrics]
    config = {each.key: json.loads(each.value_json) for each in records["run"][0].run.config.update}
    assert config["batch"] == 16
    assert "out" not in config
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    told = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for each in records["summary"]
        for item in each.summary.update
    }
    assert told["after/success/mean"] == summary["after"]["success"]["mean"]
    (table,) = (tmp_path / "run/wandb").glob("offline-run-*/files/media/table/transcripts_*.json")
    rows = json.loads(table.read_text())["data"]
    assert [row[0] for row in rows] == [0, 0, 2, 2, 4, 4]
    assert all("secret whole number" in row[-1] for row in rows)
    assert len(list((tmp_path / "run/wandb").glob("offline-run-*/files/media/images/curve_*.png"))) == 1


@pytest.mark.slow
def test_what_a_killed_session_lost_is_logged_again(tmp_path):
    process = started(tmp_path, *TINY, "--episodes", 640, "--log", "wandb")
    metrics = tmp_path / "run/metrics.jsonl"
    until(lambda: process.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") >= 5))
    process.kill()
    process.communicate()
    assert json.loads((tmp_path / "run/wandb.json").read_text())["session"]
    assert run_in(tmp_path, "--resume").returncode == 0
    assert [row["_step"] for row in history(offline(tmp_path))] == list(range(42))


def test_online_without_a_key_is_refused_and_asks_nobody(tmp_path):
    refused = run_in(tmp_path, *TINY, "--log", "wandb", WANDB_MODE="online")
    assert refused.returncode == 2
    assert "there is no API key for Weights & Biases; run `wandb login`" in refused.stderr.read()
    assert not (tmp_path / "run").exists()
