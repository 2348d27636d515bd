"""The output of a run: a live line, a curve and a final table in the terminal, and the curve as a picture."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from gem.evals import EnvResult
from gem.evals.picture import escape_formula
from gem.statistics import Interval, moving_average
from gem.train.config import TrainConfig
from gem.train.report.run_folder import HELD_OUT, Evaluation, Metrics, RunFolder
from gem.train.report.selection import best
from gem.train.report.watcher import Watcher

SMOOTH = 8
"""Iterations that the live figures average."""

MISSING = "-"
"""Shown for a figure that cannot be had: the environment reports no success, or has no solver."""
REFERENCES = ("random", "optimum")
"""The rows that a table always has."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
ROWS = ("random", "untrained", "before", "before_greedy", "after", "greedy", "best", "best_greedy", "optimum")
TITLES = {
    "random": "random play",
    "untrained": "before cloning",
    "before": "before any RL",
    "before_greedy": "before, greedy",
    "after": "trained, sampled",
    "greedy": "trained, greedy",
    "best": "best, sampled",
    "best_greedy": "best, greedy",
    "optimum": "solver",
}


@dataclass
class Terminal(Watcher):
    """A watcher that shows a run: one live line in a terminal, or a line now and then in a pipe.

    `apart`: the figures of each of several environments, or opponents, by its label.
    """

    console: Console
    recent: deque[Metrics] = field(default_factory=lambda: deque(maxlen=SMOOTH))
    figures: dict[str, EnvResult] = field(default_factory=dict)
    apart: dict[str, dict[str, EnvResult]] = field(default_factory=dict)
    warnings: Counter[str] = field(default_factory=Counter)
    held_out: bool = False
    bar: Progress | None = None
    task: TaskID | None = None

    def begun(self, folder: RunFolder, config: TrainConfig, history: Sequence[Metrics]) -> None:
        """Say how many episodes are played, where that is not what was asked for."""
        played = config.iterations * config.batch
        if played != config.episodes:
            whole = f"{config.iterations:,} whole iterations of {config.batch:,}"
            self.console.print(f"{config.episodes:,} episodes are rounded up to {played:,}, {whole}")

    def stage(self, name: str) -> None:
        """See Watcher.stage."""
        self.close()
        self.console.print(f"[bold]{name}[/bold]")

    def measured(self, name: str, figures: EnvResult, label: str = "") -> None:
        """See Watcher.measured."""
        (self.apart.setdefault(label, {}) if label else self.figures)[name] = figures
        means = (
            f"{title} {_mean(read(figures), form)}" for title, (read, form) in columns([figures]).items()
        )
        self.console.print(
            f"  {label + ': ' if label else ''}{TITLES[name]}: {', '.join(means)}"
            + (f"; {figures.unscored} of {figures.episodes} have no verdict" if figures.unscored else ""),
            highlight=False,
        )

    def warmed(self, step: int, steps: int, loss: float) -> None:
        """See Watcher.warmed."""
        self._advance("warm-up", step + 1, steps, f"loss {loss:.3f}", every=max(1, steps // 4))

    def cloned(self, step: int, held_out_loss: float) -> None:
        """See Watcher.cloned."""
        self.console.print(
            f"  loss on held-out demonstrations after step {step}: {held_out_loss:.3f}", highlight=False
        )

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """See Watcher.iterated."""
        self.recent.append(metrics)
        mean = {name: fmean(getattr(m, name) for m in self.recent) for name in ("success", "reward", "turns")}
        seconds = sum(m.sample_s + m.update_s for m in self.recent)
        speed = sum(m.tokens_sampled + m.tokens_trained for m in self.recent) / seconds
        success = MISSING if math.isnan(mean["success"]) else f"{mean['success']:.1%}"
        text = (  # with the bar and the clock it fits a terminal of 80 columns
            f"success {success} return {mean['reward']:.3f} turns {mean['turns']:.2f} {_short(speed)} tok/s"
        )
        steps = config.iterations
        self._advance(f"{metrics.episodes:,} ep", metrics.iteration, steps, text, max(1, steps // 20))

    def advanced(self, stage: str, iteration: int) -> None:
        """See Watcher.advanced."""
        self.console.print(f"[bold]stage {stage}[/bold] from iteration {iteration}", highlight=False)

    def evaluated(self, evaluation: Evaluation) -> None:
        """See Watcher.evaluated; the kind of held-out instances is printed once."""
        if not self.held_out:
            for name, part in (evaluation.parts or {"": evaluation}).items():
                words = HELD_OUT[part.held_out].format(n=part.instances)
                of = f" of {name}" * bool(name)
                self.console.print(f"  held out{of}: {words}", highlight=False, soft_wrap=True)
        self.held_out = True
        self.console.print(
            f"  after {evaluation.episodes:,} episodes: {format_evaluation(evaluation)}",
            highlight=False,
            soft_wrap=True,
        )

    def warned(self, text: str) -> None:
        """See Watcher.warned; the same warning is printed at most three times."""
        kind = re.sub("[0-9.]+", "", text)
        self.warnings[kind] += 1
        if self.warnings[kind] <= 3:
            self.console.print(f"[yellow]{text}[/yellow]", highlight=False)

    def close(self) -> None:
        """Stop the live line, which stays on the screen."""
        if self.bar is not None:
            self.bar.stop()
        self.bar = self.task = None

    def _advance(self, label: str, done: int, total: int, text: str, every: int) -> None:
        if not self.console.is_terminal:
            if done % every == 0 or done == total:
                self.console.print(f"  {done}/{total}  {label}  {text}", highlight=False, soft_wrap=True)
            return
        if self.bar is None:
            columns = (
                TextColumn("  {task.description}"),
                BarColumn(bar_width=8),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
            )
            self.bar = Progress(*columns, console=self.console)
            self.bar.start()
            self.task = self.bar.add_task(label, total=total, text=text)
        assert self.task is not None
        self.bar.update(self.task, completed=done, description=label, text=text)


def format_evaluation(evaluation: Evaluation) -> str:
    """Return an evaluation as text."""
    (title, (read, form)), *_ = columns([evaluation.result]).items()
    score = read(evaluation.result)
    text = f"held-out {title} {_mean(score, form)} ({_bounds(score, form)})"
    parts = [f"{name} {_mean(read(part.result), form)}" for name, part in evaluation.parts.items()]
    return f"{text}: {', '.join(parts)}" if parts else text


def _short(number: float) -> str:
    return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number:.0f}"


def columns(figures: Iterable[EnvResult]) -> dict[str, tuple[Callable[[EnvResult], Interval | None], str]]:
    """Return the figures to show for a task, by name: how to read each from a result, and its format.

    Success where the environment reports it, else the return. Turns where an episode has several. For one
    seat of a game the return too.
    """
    known = list(figures)
    if all(each.success is None for each in known):
        return {"return": (lambda of: of.reward, "{:.3f}")}
    readers: dict[str, tuple[Callable[[EnvResult], Interval | None], str]] = {
        "success": (lambda of: of.success, "{:.1%}")
    }
    if any(each.seats for each in known):
        readers["return"] = (lambda of: of.reward, "{:.3f}")
    if any(each.turns is not None and each.turns > 1 and each.turns_to_success for each in known):
        readers["turns to success"] = (lambda of: of.turns_to_success, "{:.2f}")
    return readers


def cells(figures: Mapping[str, EnvResult]) -> list[list[str]]:
    """Return the final table as text: the headings, then a row for each policy."""
    readers = columns(figures.values())
    rows = [["policy", *(heading for name in readers for heading in (name, "95% interval"))]]
    for name in ROWS:
        if name in figures or name in REFERENCES:
            row = [TITLES[name]]
            for read, form in readers.values():
                value = read(figures[name]) if name in figures else None
                row += [_mean(value, form), _bounds(value, form)]
            rows.append(row)
    return rows


def table(figures: dict[str, EnvResult], title: str | None = None) -> Table:
    """Return the final table: a row for each policy, with the figures that the task has."""
    headings, *rows = cells(figures)
    grid = Table(*headings, title=title and escape(title), title_justify="left")
    for row in rows:
        grid.add_row(*row)
    return grid


def _mean(interval: Interval | None, form: str) -> str:
    return MISSING if interval is None else form.format(interval.mean)


def about_best(evaluations: Sequence[Evaluation], episodes: int) -> str:
    """Return how the best weights were chosen, as text; empty where there was no choice.

    `episodes`: those of the whole run.
    """
    chosen = best(evaluations)
    if chosen is None:
        return ""
    score = format_evaluation(chosen)
    if chosen.episodes == episodes:
        return f"The last weights are the best on held-out instances too: {score}."
    kind = "instances" if chosen.held_out == "unseen" else "seeds"
    return (
        f"The best weights are those of iteration {chosen.iteration}: {score}. They were chosen on other "
        f"{kind} than the table measures them on, so the choice does not bias the table."
    )


def _bounds(interval: Interval | None, form: str) -> str:
    """Return the bounds as text; where all values of a sample are equal the bounds are too, but not exact."""
    if interval is None:
        return MISSING
    if interval.exact:
        return "exact"
    return interval.write_bounds(form.format)


def sketch(values: Sequence[float], width: int = 72, height: int = 8) -> str:
    """Return a curve of values in [0, 1] as block characters, `height` lines of about `width`.

    Neighbouring values are averaged where there are more of them than columns.
    """
    columns = _averages(values, width)
    lines = []
    for level in range(height - 1, -1, -1):
        filled = [min(8, max(0, round((value * height - level) * 8))) for value in columns]
        label = {height - 1: "100%", 0: "  0%"}.get(level, "")
        lines.append(f"{label:>5} {''.join(_BLOCKS[eighths] for eighths in filled)}")
    return "\n".join(lines)


def _averages(values: Sequence[float], width: int) -> list[float]:
    known = [value for value in values if value == value]
    if len(known) <= width:
        return known
    edges = [round(i * len(known) / width) for i in range(width + 1)]
    return [sum(known[a:b]) / (b - a) for a, b in pairwise(edges)]


def draw(
    history: Sequence[Metrics],
    figures: dict[str, EnvResult],
    config: TrainConfig,
    path: Path,
    evaluations: Sequence[Evaluation] = (),
) -> None:
    """Write the learning curve as a picture: success and turns over episodes, with the references.

    Where the environment does not report success, the return takes its place. Held-out evaluations are points
    with their intervals.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2)
    episodes = [metrics.episodes for metrics in history]
    goal = "reward" if all(math.isnan(metrics.success) for metrics in history) else "success"
    title = "success" if goal == "success" else "return"
    for axes, name, label in ((left, goal, title), (right, "turns", "turns per episode")):
        raw = [getattr(metrics, name) for metrics in history]
        axes.plot(episodes, raw, color="#9ecae1", linewidth=0.8, label="each iteration")
        axes.plot(
            episodes, moving_average(raw, 2 * SMOOTH), color="#08519c", linewidth=1.8, label="moving average"
        )
        axes.set_xlabel("episodes")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
    for name, style in (("random", ":"), ("before", "-."), ("optimum", "--")):
        level: Interval | None = getattr(figures[name], goal) if name in figures else None
        if level is not None:
            left.axhline(level.mean, color="#555555", linestyle=style, linewidth=1, label=TITLES[name])
    points = [(each.episodes, getattr(each.result, goal)) for each in evaluations]
    if known := [(at, score) for at, score in points if score is not None]:
        left.errorbar(
            [at for at, _ in known],
            [score.mean for _, score in known],
            yerr=[
                [score.mean - score.low for _, score in known],
                [score.high - score.mean for _, score in known],
            ],
            fmt="o-",
            color="#d94801",
            markersize=3,
            linewidth=1,
            elinewidth=0.8,
            label="held out, 95% interval",
        )
    if goal == "success":
        left.set_ylim(0, 1.03)
    left.legend(fontsize=7, loc="lower right")
    figure.suptitle(
        f"{escape_formula(config.title)}: {config.algorithm}, gamma {config.gamma:g}, seed {config.seed}",
        fontsize=10,
    )
    figure.savefig(path)
