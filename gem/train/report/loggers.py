"""Loggers of a run, by name (see `gem.naming`), and their base class Log, which writes each iteration once.

A run that is interrupted resumes from its checkpoint and repeats the iterations after it. So a Log writes an
iteration only when a checkpoint holds it. On resuming it writes what is missing: no step is written twice,
and none is left out. A log that is added when a run is resumed gets all iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from gem.content import printable, text_of
from gem.errors import BadArgument, GemError, check_argument
from gem.evals import EnvResult
from gem.naming import load_named
from gem.record import Episode
from gem.rollout import EpisodeStore
from gem.rollout.index import Entry
from gem.statistics import Interval
from gem.train.config import TrainConfig
from gem.train.config.train_config import ELSEWHERE
from gem.train.report.run_folder import Evaluation, Metrics, RunFolder
from gem.train.report.watcher import Watcher

ENTRY_POINTS = {
    "tensorboard": "gem.train.report.tensorboard:TensorBoard",
    "wandb": "gem.train.report.weights_and_biases:WeightsAndBiases",
}
"""The built-in loggers, by name."""
TRANSCRIPTS = 4
"""Maximum number of episodes per checkpoint that are logged as text."""
LONGEST = 20_000
"""Maximum number of characters of a transcript."""


def make_loggers(names: Sequence[str]) -> dict[str, Watcher]:
    """Return the loggers with these names.

    Raises:
        BadArgument: for an unknown name, or a class that is not a Watcher.
        MissingExtra: for one whose package is not installed.
    """
    loggers: dict[str, Watcher] = {}
    for name in names:
        made = load_named(ENTRY_POINTS.get(name, name), "logger")
        if not (isinstance(made, type) and issubclass(made, Watcher)):
            raise BadArgument(f"log is {name!r}, {made!r:.80}; accepted: a subclass of gem.train.Watcher.")
        try:
            loggers[name] = made()
        except TypeError as error:
            raise BadArgument(f"log is {name!r}; its class must take no arguments: {error}") from error
    return loggers


@dataclass(slots=True)
class Moment:
    """The data of a run at an iteration that a checkpoint holds; iteration 0 is before RL.

    `metrics`: None at 0. `heldout`: figures on held-out instances then, by name. `played`: the episodes of
    the watched seeds, each as its entry in the store's index and its text.
    """

    iteration: int
    episodes: int
    metrics: Metrics | None
    heldout: dict[str, Interval] = field(default_factory=dict)
    played: list[tuple[Entry, str]] = field(default_factory=list)


class Log(Watcher):
    """The base class of logs that write each iteration once.

    To add one, write a subclass: `open` returns how much is written already, `write` takes a moment, `end`
    takes the summary.
    """

    folder: RunFolder
    config: TrainConfig

    def open(self) -> int:
        """Open the log of `self.folder`; return the number of moments it holds, from iteration 0 on."""
        raise NotImplementedError

    def write(self, moment: Moment) -> None:
        """Write a moment, and record that it is written."""
        raise NotImplementedError

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write the summary; a run that is resumed after its end calls this again."""

    # -- what the run says

    def begun(self, folder: RunFolder, config: TrainConfig, history: Sequence[Metrics]) -> None:
        """See Watcher.begun; a later phase of a run has a log of its own, from its first iteration on."""
        self.folder, self.config = folder, config
        self.figures: dict[str, EnvResult] = {}
        self._metrics = {metrics.iteration: metrics for metrics in history}
        moments = self.open()
        check_argument(
            "open()", moments, isinstance(moments, int), "the number of moments that the log holds"
        )
        self._written = max(moments, folder.first_iteration)

    def measured(self, name: str, figures: EnvResult, label: str = "") -> None:
        """See Watcher.measured; `label` names one of several environments or opponents."""
        self.figures[f"{label}/{name}" if label else name] = figures

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """See Watcher.iterated."""
        self._metrics[metrics.iteration] = metrics

    def saved(self, iteration: int) -> None:
        """See Watcher.saved."""
        heldout = {each.iteration: heldout_of(each) for each in self.folder.evaluated()}
        for number in range(self._written, iteration + 1):
            metrics = self._metrics.pop(number, None)
            episodes = metrics.episodes if metrics else number * self.config.batch
            played = transcripts(self.folder.watched, number)
            self.write(Moment(number, episodes, metrics, heldout.get(number, {}), played))
            self._written = number + 1

    def finished(self, summary: Mapping[str, Any]) -> None:
        """See Watcher.finished."""
        self.end(summary)


def figures_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among the values, by name; those of a nested mapping as ``outer/inner``."""
    figures: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            figures |= {f"{name}/{inner}": figure for inner, figure in figures_of(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            figures[name] = float(value)
    return figures


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return the settings of a run as plain values, without those in `ELSEWHERE`."""
    return {name: value for name, value in config.to_json().items() if name not in ELSEWHERE}


GROUPS = {
    **dict.fromkeys(("success", "reward", "turns", "unreadable", "no_verdict"), "train"),
    **dict.fromkeys(("environments", "opponents"), "train"),
    **dict.fromkeys(("reward_std", "flat_groups", "answer_tokens", "episode_tokens", "selected"), "train"),
    **dict.fromkeys(("tokens_sampled", "tokens_trained", "sample_s", "update_s", "save_s", "cpu_s"), "cost"),
}
"""The groups of figures in logs; all other figures are in the group ``steps``."""


def group_metrics(metrics: Metrics) -> dict[str, float]:
    """Return an iteration's figures, as ``group/name``; figures that were not measured are left out."""
    figures = figures_of(asdict(metrics))
    return {
        f"{GROUPS.get(name.partition('/')[0], 'steps')}/{name}": figure
        for name, figure in figures.items()
        if name not in ("iteration", "episodes")
    }


def intervals_of(figures: EnvResult) -> dict[str, Interval]:
    """Return the intervals of a measurement that are logged, by name."""
    names = ("success", "reward", "turns_to_success")
    return {name: value for name in names if (value := getattr(figures, name)) is not None}


def heldout_of(evaluation: Evaluation) -> dict[str, Interval]:
    """Return the intervals of a held-out evaluation; those of one environment of several: ``name/figure``."""
    intervals = intervals_of(evaluation.result)
    for name, part in evaluation.parts.items():
        intervals |= {f"{name}/{figure}": interval for figure, interval in intervals_of(part.result).items()}
    return intervals


def flatten_intervals(group: str, intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Return means and their bounds as ``group/name``; a bound that is infinite is left out."""
    figures: dict[str, float] = {}
    for name, interval in intervals.items():
        bounds = {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        figures |= figures_of({group: bounds})
    return figures


def measured_figures(figures: Mapping[str, EnvResult]) -> dict[str, float]:
    """Return measurements as figures, ``figures/after/success`` and the like."""
    measured: dict[str, float] = {}
    for who, result in figures.items():
        measured |= flatten_intervals(f"figures/{who}", intervals_of(result))
    return measured


def transcripts(store: Path, iteration: int) -> list[tuple[Entry, str]]:
    """Return the watched seeds' episodes at an iteration, at most `TRANSCRIPTS`, each with its text."""
    if not store.is_file():
        return []
    with EpisodeStore(store, read_only=True) as episodes:
        entries, _ = episodes.page(job_prefix=f"{iteration}-", count=100)
        last = {entry.job: entry for entry in entries if entry.id}  # the last attempt counts
        texts = []
        for entry in islice(last.values(), TRANSCRIPTS):
            with suppress(GemError):  # a damaged line
                texts.append((entry, transcript(episodes[entry.number])))
        return texts


def transcript(episode: Episode) -> str:
    """Return an episode's messages, actions and rewards as text without control characters."""
    lines = [f"{episode.spec}, seed {episode.seed}"]
    for turn in episode.turns:
        lines += ["", f"[environment] {text_of(turn.observation)}", "", f"[{turn.seat}] {turn.action}"]
        lines += [f"[reward] {turn.reward:g}"] if turn.reward else []
    for end in episode.ends.values():
        lines += ["", f"[environment] {text_of(end.observation)}"]
    outcome = "no verdict" if not episode.scored else f"return {episode.reward():g}"
    text = printable("\n".join([*lines, "", f"[end] {episode.stop}, {outcome}"]))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... {len(text) - LONGEST:,} more characters"
