"""The folder of a run: config, metrics, checkpoint, summary. Whoever reads a run reads these files.

::

    config.json       what was asked for
    metrics.jsonl     a line per iteration
    checkpoint.pt     the newest finished iteration
    summary.json      the final figures
    curve.png         the learning curve
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gem.errors import StoreError
from gem.train.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Metrics:
    """One iteration. Times are seconds; `loss` and the three after it are NaN where nothing was learnt."""

    iteration: int
    episodes: int
    success: float
    reward: float
    turns: float
    unreadable: float
    no_verdict: int
    loss: float
    entropy: float
    clipped: float
    kl: float
    lr: float
    tokens_sampled: int
    tokens_trained: int
    sample_s: float
    update_s: float
    save_s: float
    cpu_s: float


class RunFolder:
    """Reads and writes a run's files."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.pt"
        self.summary = path / "summary.json"
        self.curve = path / "curve.png"

    def begin(self, config: TrainConfig) -> None:
        """Make the folder for a new run.

        Raises:
            StoreError: when a run stands there already, or the folder cannot be written.
        """
        if self.checkpoint.exists():
            raise StoreError(
                f"{self.path} holds a run already; go on with it (--resume), choose another --out, or "
                "replace it (--overwrite)."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.metrics.write_text("")
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error}; choose another --out.") from error
        self.write(self.config, config.to_json())

    def clear(self) -> None:
        """Remove the files of a run that stands here, and nothing else."""
        for file in (self.config, self.metrics, self.checkpoint, self.summary, self.curve):
            file.unlink(missing_ok=True)

    def read_config(self) -> TrainConfig:
        """Return the config of the run that stands here.

        Raises:
            StoreError: when there is none.
        """
        try:
            return TrainConfig.from_json(json.loads(self.config.read_text()))
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path} holds no run to resume: {error}") from error

    def write(self, file: Path, values: Mapping[str, Any]) -> None:
        """Write a JSON file so that a crash leaves the old one or the new one."""
        partial = file.with_name(file.name + ".partial")
        try:
            partial.write_text(json.dumps(values, indent=2) + "\n")
            partial.replace(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error}") from error

    def append(self, metrics: Metrics) -> None:
        """Add an iteration's line."""
        try:
            with self.metrics.open("a") as file:
                file.write(json.dumps(asdict(metrics)) + "\n")
        except OSError as error:
            raise StoreError(f"{self.metrics} cannot be written: {error}") from error

    def history(self) -> list[Metrics]:
        """Return the iterations that the metrics hold; a torn last line is left out."""
        found: list[Metrics] = []
        for line in self.metrics.read_text().splitlines():
            try:
                found.append(Metrics(**json.loads(line)))
            except (ValueError, TypeError):
                break
        return found

    def rewind(self, iteration: int) -> None:
        """Drop the lines of iterations that the checkpoint does not hold; they are played again."""
        kept = [metrics for metrics in self.history() if metrics.iteration <= iteration]
        partial = self.metrics.with_name(self.metrics.name + ".partial")
        partial.write_text("".join(json.dumps(asdict(metrics)) + "\n" for metrics in kept))
        partial.replace(self.metrics)
