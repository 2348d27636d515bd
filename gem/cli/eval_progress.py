"""How an evaluation goes, while it does: live lines on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

from gem.evals.usage import spent_on, tokens_of
from gem.record import Episode
from gem.statistics import rate_interval

PLAIN_EVERY_S = 30.0
"""Seconds between lines where nobody looks at a terminal."""


@dataclass
class Line:
    """One environment under way: what has ended, and what it came to so far."""

    label: str
    agent: str
    total: int
    began: float
    done: int = 0
    scored: int = 0
    tokens: int = 0
    ended: float | None = None

    def __post_init__(self) -> None:
        self.won: list[float] = []
        self.groups: list[str] = []

    def hear(self, episode: Episode) -> None:
        """Take in an episode."""
        self.done += 1
        self.tokens += tokens_of(spent_on((episode,)))
        if episode.scored:
            self.scored += 1
            if episode.success is not None:
                self.won.append(float(episode.success))
                self.groups.append(episode.group)

    @property
    def success(self) -> str:
        """The rate of success so far and its interval; a dash where nobody says what success is."""
        if not self.won:
            return "-"
        mean, low, high = rate_interval(self.won, self.groups)[:3]
        return f"{mean:.1%} ({low:.1%} to {high:.1%})"

    def left(self, now: float) -> str:
        """The time that the rest will take."""
        if self.done >= self.total or not self.done:
            return ""
        seconds = (now - self.began) / self.done * (self.total - self.done)
        return f"{_clock(seconds)} left" if math.isfinite(seconds) else ""

    def cells(self, now: float) -> tuple[str, ...]:
        """Return what is told of it, in columns."""
        seconds = max((self.ended or now) - self.began, 1e-9)
        speed = f"{self.tokens / seconds:,.0f} tok/s" if self.tokens else ""
        coverage = f"{self.scored}/{self.done} verdicts"
        name = f"{self.label}, {self.agent}" if self.agent else self.label
        return name, f"{self.done}/{self.total}", self.success, coverage, speed, self.left(now)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Tells on stderr how an evaluation goes; nothing where it is `quiet`."""

    def __init__(self, quiet: bool = False, stream: Any = None) -> None:
        """Tell on `stream`, stderr by default."""
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._lines: list[Line] = []
        self._told = perf_counter()
        self._live: Any = None

    def __enter__(self) -> Self:
        """Begin."""
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(console=console, refresh_per_second=4, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""
        self.close()

    def close(self) -> None:
        """Leave the lines as they stand; calling it twice is harmless."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def begin(self, label: str, agent: str, total: int) -> None:
        """An environment is begun."""
        self._lines.append(Line(label, agent, total, perf_counter()))

    def hear(self, episode: Episode) -> None:
        """An episode has ended."""
        line, now = self._lines[-1], perf_counter()
        line.hear(episode)
        if not self._quiet and self._live is None and now - self._told >= PLAIN_EVERY_S:
            self._told = now
            print(", ".join(filter(None, line.cells(now))), file=self._stream, flush=True)

    def end(self) -> None:
        """The environment is done, or given up."""
        if self._lines:
            self._lines[-1].ended = perf_counter()

    def _table(self) -> Any:
        from rich.table import Table

        from gem.content import printable

        grid = Table.grid(padding=(0, 2))
        now = perf_counter()
        for line in self._lines[-30:]:  # what is above has scrolled away on most terminals
            grid.add_row(*map(printable, line.cells(now)))
        return grid
