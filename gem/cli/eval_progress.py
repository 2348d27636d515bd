"""Progress of a running evaluation: live lines on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

from gem.agents.pace import describe_requests
from gem.content import printable
from gem.evals.reports import format_interval
from gem.evals.results import Ends
from gem.evals.usage import Prices, Usage, dollars, spent_on, together, tokens_of
from gem.record import Episode
from gem.statistics import rate_interval

PLAIN_EVERY_S = 10.0
"""Seconds between lines when stderr is not a terminal."""


@dataclass
class Line:
    """The progress line of one environment: the episodes that ended, and the results so far."""

    label: str
    agent: str
    total: int
    began: float
    done: int = 0
    scored: int = 0
    ended: float | None = None
    spent: dict[str, Usage] = field(default_factory=dict)
    won: list[float] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    ends: Ends = field(default_factory=Ends)

    def hear(self, episode: Episode) -> None:
        """Add an episode that has ended."""
        self.done += 1
        self.spent = together((self.spent, spent_on((episode,))))
        self.ends.add(episode)
        if episode.scored:
            self.scored += 1
            if episode.success is not None:
                self.won.append(float(episode.success))
                self.groups.append(episode.group)

    def remaining(self, now: float) -> str:
        """Return the estimated time for the remaining episodes; empty if unknown."""
        if self.done >= self.total or not self.done:
            return ""
        seconds = (now - self.began) / self.done * (self.total - self.done)
        return f"{_clock(seconds)} left" if math.isfinite(seconds) else ""

    def cells(self, now: float, prices: Prices | None) -> tuple[str, ...]:
        """Return the line's columns; an empty string where there is nothing to show."""
        seconds = max((self.ended or now) - self.began, 1e-9)
        tokens = tokens_of(self.spent)
        speed = f"{tokens / seconds:,.0f} tok/s" if tokens else ""
        cost = dollars(prices.cost(self.spent)) if prices is not None else ""
        coverage = f"{self.scored}/{self.done} verdicts"
        name = f"{self.label}, {self.agent}" if self.agent else self.label
        reports = self.won and self.ends.report_success()
        success = format_interval(rate_interval(self.won, self.groups)) if reports else "-"
        requests = describe_requests() if self.ended is None and self.done < self.total else ""
        return (
            name,
            f"{self.done}/{self.total}",
            f"success {success}",
            coverage,
            speed,
            cost,
            ", ".join(filter(None, (self.remaining(now), requests))),
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Prints the progress of an evaluation on stderr; prints nothing if `quiet`."""

    def __init__(self, quiet: bool = False, prices: Prices | None = None, stream: Any = None) -> None:
        """Print on `stream`, stderr by default; with `prices`, show the cost."""
        self._stream = sys.stderr if stream is None else stream
        self._prices = prices
        self._quiet = quiet
        self._lines: list[Line] = []
        self._printed_at = perf_counter()
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
        """Stop updating the lines; calling it twice is harmless."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def begin(self, label: str, agent: str, total: int) -> None:
        """Start the line of an environment; that of the one before ends."""
        now = perf_counter()
        if self._lines:
            self._lines[-1].ended = now
        self._lines.append(Line(label, agent, total, now))

    def hear(self, episode: Episode) -> None:
        """Add an episode that has ended, and print a line if one is due."""
        line, now = self._lines[-1], perf_counter()
        line.hear(episode)
        if not self._quiet and self._live is None and now - self._printed_at >= PLAIN_EVERY_S:
            self._printed_at = now
            told_of = ", ".join(filter(None, line.cells(now, self._prices)))
            print(printable(told_of), file=self._stream, flush=True)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for place in range(7):
            grid.add_column(no_wrap=place > 0)  # where it is too narrow, names lose their ends
        now = perf_counter()
        for line in self._lines[-30:]:  # what is above has scrolled away on most terminals
            grid.add_row(
                *(
                    Text(printable(cell), no_wrap=True, overflow="ellipsis")
                    for cell in line.cells(now, self._prices)
                )
            )
        return grid
