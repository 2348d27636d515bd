"""Values of the turns of stored episodes, in a file beside the store: ``<name>.values.jsonl``.

`gem-gym value --keep` and the viewer write it. A line is a JSON object: an episode's id, who played on,
how often from each place, and for each turn the value before it, after it, and its advantage, each as mean,
low and high of the 95% interval, or null. The last line of an episode counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from gem.record import Episode
from gem.rollout.forks import TurnValue, find_deciding_turn
from gem.statistics import Interval
from gem.viewer.json_files import JsonLines, append_line

FIGURES = ("before", "after", "advantage")


class Values(NamedTuple):
    """The values of an episode's turns, if `agent` played on `samples` times from each place."""

    agent: str
    samples: int
    turns: tuple[TurnValue, ...]

    @property
    def deciding(self) -> TurnValue | None:
        """The turn that changed the value most, if one surely changed it."""
        return find_deciding_turn(self.turns)


class ValuesFile:
    """The file of values of a store."""

    def __init__(self, store: Path) -> None:
        """Set the file's path; the first values create the file."""
        self.path = store.with_name(store.name + ".values.jsonl")
        self._lock = Lock()
        self._lines = JsonLines(self.path)

    def of(self, episode: Episode) -> Values | None:
        """Return the values of an episode's turns; None if there are none, or none that can be read."""
        with self._lock:
            lines = [line for line in self._lines.read() if line.get("episode") == episode.id]
        values = _read_values(lines[-1]) if lines else None
        return values if values and len(values.turns) == len(episode.turns) else None

    def set(self, episode: str, agent: str, samples: int, turns: Sequence[TurnValue]) -> None:
        """Write the values of an episode's turns.

        Raises:
            StoreError: when it cannot be written.
        """
        rows = [
            {**{name: _to_json(getattr(turn, name)) for name in FIGURES}, "lost": turn.lost} for turn in turns
        ]
        append_line(self.path, {"episode": episode, "agent": agent, "samples": samples, "turns": rows})


def _to_json(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.mean, interval.low, interval.high]


def _read_values(line: Mapping[str, Any]) -> Values | None:
    try:
        agent, samples = line["agent"], line["samples"]
        if not isinstance(agent, str) or type(samples) is not int or samples < 1:
            return None
        turns = tuple(
            TurnValue(number, "", before, after, advantage, int(row["lost"]))
            for number, row in enumerate(line["turns"])
            for before, after, advantage in [[_from_json(row[name], samples) for name in FIGURES]]
        )
    except (KeyError, TypeError, ValueError, OverflowError):  # of another hand
        return None
    return Values(agent, samples, turns)


def _from_json(figures: Sequence[float] | None, samples: int) -> Interval | None:
    if figures is None:
        return None
    mean, low, high = map(float, figures)
    if not (math.isfinite(mean) and low <= high):
        raise ValueError("no mean with an interval")
    return Interval(mean, low, high, samples, samples)
