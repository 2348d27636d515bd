"""Latency: the seconds of an agent's answers, and how often it was asked again for them."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

from gem.record import Episode


@dataclass
class Latency:
    """The seconds of an agent's answers, with their retries and the waits between them, and the retries.

    An answer that never came is in an episode without verdict, and not here.
    """

    seconds: array[float] = field(default_factory=lambda: array("d"))
    retries: int = 0

    def count(self, episode: Episode, seat: str | None = None) -> None:
        """Add the answers of an episode; with `seat`, those of this seat alone."""
        for turn in episode.turns:
            if seat is None or turn.seat == seat:
                self.seconds.append(turn.timing.get("policy_s", 0.0))
                again = (turn.extra or {}).get("retries", 0)
                self.retries += again if type(again) is int else 0

    def percentile(self, percent: int) -> float | None:
        """Return the least of the seconds that as many percent of the answers took at most; None for none."""
        if not self.seconds:
            return None
        return sorted(self.seconds)[max(0, math.ceil(len(self.seconds) * percent / 100) - 1)]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "answers": len(self.seconds),
            "p50_s": self.percentile(50),
            "p95_s": self.percentile(95),
            "retries": self.retries,
        }

    def format_figures(self) -> tuple[str, ...]:
        """Return the number of answers, the percentiles and the retries, for the columns of LATENCY."""
        return (
            str(len(self.seconds)),
            *(f"{self.percentile(percent) or 0.0:.2f} s" for percent in (50, 95)),
            str(self.retries),
        )


LATENCY = ("answers", "p50", "p95", "retries")
"""The names of the columns."""
