"""The committed figures of a study: a JSON file per environment and variant, with a run for each seed.

A row holds the whole config of its runs, and the results of each. It is written beside the old file and
renamed over it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gem.errors import GemError, StoreError, reason
from gem.evals import EnvResult
from gem.files import read_bytes, replace_file
from gem.statistics import Interval
from gem.train.config import TrainConfig
from gem.train.config.train_config import ELSEWHERE
from gem.train.report.run_folder import Metrics

SCHEMA = 1
"""Version number of the file format."""

POINTS = 60
"""Maximum number of points of a stored curve."""

TASK = ("env", "env_kwargs", "wrappers", "tools", "max_turns", "max_tokens")
"""The settings that define the task; the others are the policy's and the training's."""

CURVE = ("success", "reward", "turns", "unreadable", "entropy", "kl", "step_kl", "grad_norm", "answer_tokens")
"""The metrics that a stored curve has, beside episodes and CPU seconds; older rows have the first three."""

DIGITS = 6
"""Number of significant digits of stored figures."""


@dataclass(frozen=True)
class Bounds:
    """A mean, its 95% interval (None: unbounded) and the number of values; `exact`: it is no estimate."""

    mean: float
    low: float | None
    high: float | None
    n: int
    exact: bool = False


@dataclass(frozen=True)
class Figures:
    """The results of a policy over `episodes` episodes; only those `scored` have a verdict and count.

    `success` is None where the environment does not report success, `turns` is the mean per episode.
    """

    episodes: int
    scored: int
    success: Bounds | None
    reward: Bounds | None
    turns: float | None
    turns_to_success: Bounds | None = None


@dataclass(frozen=True)
class Transferred:
    """The results of a run's policies on another environment: the task's settings, and figures by policy.

    The policies are `random` play, the one `before` RL where it was stored, and the trained one (`after`).
    """

    task: dict[str, Any]
    figures: dict[str, Figures]


@dataclass(frozen=True)
class Run:
    """The record of a run: its times, results, versions and machine; `error`: why it failed, if it did.

    `figures` are those of `random` play, `before` RL, `after` it, `greedy` and the solver (`optimum`); and of
    the `best` held-out weights and `best_greedy`, where these are others. `curve` has the means of the
    metrics of `CURVE` over up to `POINTS` parts of the training, with the episodes and CPU seconds at their
    ends. `machine` says too in which dtype a language model was computed. `transfer` has the results on other
    environments. `no_verdict` training episodes were left out.
    `cpu_s` are those of the process that trains: measuring, warm-up, training. Iterations that an
    interruption lost, and programs that tools start, are not included.
    """

    started: str
    ended: str
    cpu_s: float = 0.0
    wall_s: float = 0.0
    episodes: int = 0
    no_verdict: int = 0
    figures: dict[str, Figures] = field(default_factory=dict)
    transfer: dict[str, Transferred] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str | int] = field(default_factory=dict)
    curve: dict[str, list[float | None]] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Tried:
    """A point of a search: its settings, and for each seed the score, or the error, and the CPU seconds.

    `share` is the largest share of a run's episodes that it was tried with, and the scores are those of it;
    `cpu_s` counts the smaller ones too.
    """

    settings: dict[str, Any]
    scores: list[float | None]
    errors: list[str | None]
    cpu_s: list[float]
    share: float = 1.0

    @property
    def mean(self) -> float:
        """The mean score; minus infinity where a run failed."""
        known = [score for score in self.scores if score is not None]
        return math.fsum(known) / len(known) if len(known) == len(self.scores) else -math.inf


@dataclass(frozen=True)
class Searched:
    """The results of a search: its config, its seeds, its points, and the chosen point (None: all failed).

    `shares` are those of its rounds.
    """

    config: dict[str, Any]
    seeds: list[int]
    points: list[Tried]
    chosen: int | None
    shares: list[float] = field(default_factory=lambda: [1.0])


@dataclass(frozen=True)
class Row:
    """The runs of an environment and a variant, by seed; all have one config."""

    study: str
    environment: str
    variant: str
    config: dict[str, Any]
    runs: dict[str, Run] = field(default_factory=dict)
    search: Searched | None = None
    schema: int = SCHEMA


Record = TypeVar("Record")


def read_row(path: Path) -> Row | None:
    """Return the row in a file; None where there is no file.

    Raises:
        StoreError: for one that cannot be read, or is damaged.
    """
    try:
        text = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {reason(error)}.") from error
    try:
        row = msgspec.json.decode(text, type=Row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path} is damaged: {error}. Restore it from git (git checkout -- FILE), or remove it: runs "
            "whose folders still exist are then recorded again, and the others are run again."
        ) from None
    if row.schema != SCHEMA:
        raise StoreError(f"{path} has schema {row.schema}; this version reads {SCHEMA}.")
    return row


def write(path: Path, value: Row | Run) -> None:
    """Write a row, or a run, atomically: a crash leaves the old file or the new one.

    Raises:
        StoreError: when it cannot be written.
    """
    with replace_file(path, parents=True) as partial:
        partial.write_text(_format_json(asdict(value)) + "\n", encoding="utf-8")


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """Return what a file of a run's folder holds; None where there is no file, or it is damaged."""
    try:
        return msgspec.json.decode(read_bytes(path), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def common(config: TrainConfig) -> dict[str, Any]:
    """Return a config as a row stores it: as JSON values, without the settings that differ between runs."""
    values = json.loads(json.dumps(config.to_json())).items()
    return {name: value for name, value in values if name not in ("seed", *ELSEWHERE)}


def task_of(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that define the task, as JSON values."""
    return {name: value for name, value in common(config).items() if name in TASK}


def absent(stored: Mapping[str, Any]) -> list[str]:
    """Return the settings that are newer than a stored config; they count with their defaults."""
    return [name for name in common(TrainConfig()) if name not in stored]


def find_changes(stored: Mapping[str, Any], config: TrainConfig) -> list[str]:
    """Return the settings in which a stored config differs; missing ones count with their defaults."""
    try:
        was = TrainConfig.from_json({**stored, "seed": config.seed, "out": str(config.out)})
    except (GemError, TypeError) as error:
        return [str(error)]
    return was.differences(config)


def figures_of(result: Mapping[str, Any]) -> Figures:
    """Return the figures that a row stores of an EnvResult, which is given as JSON."""
    env_result = EnvResult.from_json(result)
    return Figures(
        episodes=env_result.episodes,
        scored=env_result.scored,
        success=_bounds(env_result.success),
        reward=_bounds(env_result.reward),
        turns=_round_figure(env_result.turns),
        turns_to_success=_bounds(env_result.turns_to_success),
    )


def _bounds(interval: Interval | None) -> Bounds | None:
    if interval is None or math.isnan(interval.mean):
        return None
    mean = _round_figure(interval.mean)
    assert mean is not None
    return Bounds(mean, _round_figure(interval.low), _round_figure(interval.high), interval.n, interval.exact)


def _round_figure(value: float | None) -> float | None:
    """Return a figure with the digits that are stored; None where there is none."""
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else None


def thin_curve(history: Sequence[Metrics]) -> dict[str, list[float | None]]:
    """Return the curve of a run: means over up to `POINTS` parts of its iterations."""
    count = min(POINTS, len(history))
    edges = [round(i * len(history) / count) for i in range(count + 1)] if count else [0]
    parts = [history[begin:end] for begin, end in itertools.pairwise(edges)]
    curve: dict[str, list[float | None]] = {
        "episodes": [part[-1].episodes for part in parts],
        "cpu_s": [_round_figure(part[-1].cpu_s) for part in parts],
    }
    for name in CURVE:
        curve[name] = [_mean([getattr(metrics, name) for metrics in part]) for part in parts]
    return curve


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return _round_figure(math.fsum(known) / len(known)) if known else None


def _format_json(value: Any, indent: str = "") -> str:
    """Return JSON with a line per entry, and lists of plain values on one."""
    deeper = indent + " "
    if isinstance(value, Mapping) and value:
        lines = [
            f"{deeper}{json.dumps(str(name))}: {_format_json(inner, deeper)}" for name, inner in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        lines = [deeper + _format_json(inner, deeper) for inner in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
