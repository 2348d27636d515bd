"""Ending an evaluation as soon as its success is known well enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from gem.errors import BadArgument
from gem.record import Episode
from gem.statistics import ConfidenceSequence, Interval


@dataclass
class Stopping:
    """Says when no more tasks need be played, and what is known of the rate of success by then.

    Its interval is that of a `ConfidenceSequence` over tasks, which holds although it is looked at after
    every task. Tasks enter in the order in which they were asked for, a task once all of its samples and all
    tasks before it have ended: what ends early may be what is easy. A task's value is the mean of its samples
    with a verdict; without any it is left out.

    `width`: enough where the interval is as narrow. `threshold`: enough where it is on one side. Either will
    do. `samples`: of each task, as evaluate() plays them.
    """

    samples: int = 1
    width: float | None = None
    threshold: float | None = None
    level: float = 0.95
    enough: bool = field(default=False, init=False)
    sequence: ConfidenceSequence = field(init=False, repr=False)
    _waiting: dict[int, list[Episode]] = field(default_factory=dict, init=False, repr=False)
    _next: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what would never end, or at once.

        Raises:
            BadArgument: for neither width nor threshold, or values that are not accepted.
        """
        if self.samples < 1:
            raise BadArgument(f"samples is {self.samples}; accepted: 1 or more.")
        for name, value in (("width", self.width), ("threshold", self.threshold)):
            if value is not None and not 0 < value < 1:
                raise BadArgument(f"{name} is {value}; accepted: between 0 and 1, such as 0.1.")
        self.sequence = ConfidenceSequence(level=self.level)
        self.sequence.stop_when(width=self.width, threshold=self.threshold)  # which refuses neither

    @property
    def interval(self) -> Interval | None:
        """The rate of success over the tasks that have entered; None before the first."""
        return self.sequence.interval if self.sequence.count else None

    def beside(
        self, admit: Callable[[int], bool] | None, on_episode: Callable[[Episode], None] | None
    ) -> tuple[Callable[[int], bool], Callable[[Episode], None]]:
        """Return what a runner asks and tells, where somebody else is asked and told too."""

        def both(in_flight: int) -> bool:
            return not self.enough and (admit is None or admit(in_flight))

        def hear(episode: Episode) -> None:
            self.hear(episode)
            if on_episode is not None:
                on_episode(episode)

        return both, hear

    def hear(self, episode: Episode) -> None:
        """Take in an episode that has ended; its group is the number of its task, as evaluate() counts."""
        self._waiting.setdefault(int(episode.group), []).append(episode)
        while len(self._waiting.get(self._next, ())) >= self.samples:
            ended = self._waiting.pop(self._next)
            self._next += 1
            told = [float(each.success) for each in ended if each.success is not None]
            if told:
                self.sequence.add(math.fsum(told) / len(told))
                self.enough = self.enough or self.sequence.stop_when(
                    width=self.width, threshold=self.threshold
                )
