"""The logger `--log tensorboard`: TensorBoard's event files, in the folder ``tensorboard`` of the run.

They are written without TensorBoard, which is needed only to view them (the extra ``log``)::

    tensorboard --logdir runs

An event file is a sequence of records (length, its checksum, data, its checksum), each the protocol buffer
``Event``. Sources: tensorflow/core/lib/io/record_writer.h, and of TensorBoard compat/proto/event.proto,
summary.proto, tensor.proto and plugins/hparams/plugin_data.proto. Tests read the files with TensorBoard's own
reader.

A moment of the run ends with the record that holds `DONE`. When a run is resumed, records after the last of
these are removed and written again.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gem.train.config import TrainConfig
from gem.train.report.loggers import (
    Log,
    Moment,
    flatten_intervals,
    group_metrics,
    measured_figures,
    settings_of,
)

FOLDER = "tensorboard"
FILE = "events.out.tfevents.gem"
"""TensorBoard reads the files whose names hold ``tfevents``."""
DONE = "train/episodes"
"""The tag of the last record of a moment."""
BY_EPISODES = "by_episodes"
"""Group of the figures whose step is the number of episodes; the step of the others is the iteration."""
BEFORE = {"random", "optimum", "before", "before_greedy"}
"""Figures that are measured before training."""
STRING, FLOAT = 7, 1  # of DataType
SUCCESS, TENSOR = 1, 2  # of hparams' Status, of DataClass


class TensorBoard(Log):
    """A log of scalars by iteration and by episodes, settings, and transcripts."""

    def open(self) -> int:
        """See Log.open."""
        self.path = self.folder.path / FOLDER / FILE
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written, end = _progress(self.path)
        self._file = self.path.open("ab", buffering=0)
        self._file.truncate(end)
        return self.folder.first_iteration + written

    def write(self, moment: Moment) -> None:
        """See Log.write."""
        now = time.time()
        records = []
        by_episodes = flatten_intervals("heldout", moment.heldout)
        by_iteration = dict(by_episodes)
        if moment.metrics is None:
            records += [_event(now, version="brain.Event:2"), _event(now, 0, *self._settings(now))]
            by_iteration |= measured_figures(self.figures)
        else:
            figures = group_metrics(moment.metrics)
            by_iteration |= figures
            by_episodes |= {name: value for name, value in figures.items() if name.startswith("train/")}
        if moment.played:
            texts = [
                _text(f"watched/seed {entry.job.rpartition('-')[2]}", text) for entry, text in moment.played
            ]
            records.append(_event(now, moment.iteration, *texts))
        if by_episodes:
            scalars = [_scalar(f"{BY_EPISODES}/{name}", value) for name, value in by_episodes.items()]
            records.append(_event(now, moment.episodes, *scalars))
        scalars = [_scalar(name, value) for name, value in by_iteration.items()]
        records.append(_event(now, moment.iteration, *scalars, _scalar(DONE, moment.episodes)))
        self._append(records)

    def end(self, summary: Mapping[str, Any]) -> None:
        """See Log.end."""
        now = time.time()
        last = -(-summary["episodes"] // self.config.batch)
        after = {
            name: figures for name, figures in self.figures.items() if name.rpartition("/")[2] not in BEFORE
        }
        ended = _hparams("session_end_info", 4, _number(1, SUCCESS) + _double(2, now))
        scalars = [_scalar(name, value) for name, value in measured_figures(after).items()]
        self._append([_event(now, last, *scalars, ended)])

    def close(self) -> None:
        """See Watcher.close."""
        if hasattr(self, "_file"):
            self._file.close()

    def _append(self, records: list[bytes]) -> None:
        data = b"".join(map(_record, records))
        if self._file.write(data) != len(data):
            raise OSError(f"only a part was written to {self.path}; is the disk full?")

    def _settings(self, now: float) -> list[bytes]:
        """Return the settings for the page of hyperparameters, and all of them as text."""
        return [
            _hparams_of(self.config, now),
            _text("settings", json.dumps(settings_of(self.config), indent=2)),
        ]


def _progress(path: Path) -> tuple[int, int]:
    """Return how many complete moments a file holds, and where the last of them ends."""
    written = end = 0
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, 0
    mark = _bytes(1, DONE.encode())
    for at, event in _records(data):
        if mark in event:
            written, end = written + 1, at
    return written, end


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records, each with the place where it ends."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length + 4
        event = data[at + 12 : end - 4]
        if end > len(data) or data[at:end] != _record(event):
            return
        yield end, event
        at = end


# -- records and protocol buffers


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of record_writer.h."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _table() -> list[int]:
    """Return the table of CRC-32C (Castagnoli), reflected."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def _varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(now: float, step: int = 0, *values: bytes, version: str = "") -> bytes:
    """Return an Event: a summary of values, or the version that a file begins with."""
    head = _double(1, now) + _number(2, step)
    if version:
        return head + _bytes(3, version.encode())
    return head + _bytes(5, b"".join(_bytes(1, value) for value in values))


def _scalar(tag: str, value: float) -> bytes:
    try:
        single = struct.pack("<f", value)
    except OverflowError:  # beyond all numbers of four bytes
        single = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _bytes(1, tag.encode()) + _varint(2 << 3 | 5) + single


def _text(tag: str, text: str) -> bytes:
    """Return text that is shown as it stands: TensorBoard reads Markdown, where indented lines are code."""
    lines = "".join(f"    {line}\n" for line in text.split("\n"))
    shape = _bytes(2, _bytes(2, _number(1, 1)))
    tensor = _number(1, STRING) + shape + _bytes(8, lines.encode("utf-8", "backslashreplace"))
    plugin = _bytes(1, _bytes(1, b"text")) + _number(4, TENSOR)
    return _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, plugin)


def _hparams_of(config: TrainConfig, now: float) -> bytes:
    """Return the settings as hyperparameters; what is no number and no text is JSON."""
    session = b""
    for name, value in settings_of(config).items():
        if isinstance(value, bool):
            field = _number(4, value)
        elif isinstance(value, int | float):
            field = _double(2, value)
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            field = _bytes(3, text.encode("utf-8", "backslashreplace"))
        session += _bytes(1, _bytes(1, name.encode()) + _bytes(2, field))
    return _hparams("session_start_info", 3, session + _double(5, now))


def _hparams(name: str, field: int, data: bytes) -> bytes:
    content = _bytes(field, data)  # of HParamsPluginData, whose version is 0
    plugin = _bytes(1, _bytes(1, b"hparams") + _bytes(2, content)) + _number(4, TENSOR)
    empty = _number(1, FLOAT) + _bytes(2, b"") + _varint(5 << 3 | 5) + struct.pack("<f", 0.0)
    return _bytes(1, f"_hparams_/{name}".encode()) + _bytes(8, empty) + _bytes(9, plugin)
