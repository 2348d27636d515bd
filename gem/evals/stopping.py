"""Stop an evaluation early, as soon as its rate of success is known precisely enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gem.errors import check_argument, check_least
from gem.evals.results import Ends
from gem.record import Episode
from gem.statistics import ConfidenceSequence, Interval


@dataclass
class Stopping:
    """A rule that decides when to play no more tasks, with the rate of success so far.

    Its interval is that of a `ConfidenceSequence` over tasks, which is valid although it is checked after
    every task. Tasks are added in the requested order, after all samples of the task and all earlier tasks
    have ended, because early ends may be the easy cases. A task's value is the mean of its samples with a
    verdict; a task without any is left out. It is never enough while the added episodes do not show that the
    environment reports success (`reports_success`).

    `width`: stop when the interval is at most this wide. `threshold`: stop when the interval is on one side
    of it. If both are given, one is enough. `samples`: the samples per task, and `seat`: the seat whose
    success it is, as in evaluate().
    """

    samples: int = 1
    width: float | None = None
    threshold: float | None = None
    level: float = 0.95
    seat: str | None = None
    enough: bool = field(default=False, init=False)
    sequence: ConfidenceSequence = field(init=False, repr=False)
    _waiting: dict[str, list[Episode]] = field(default_factory=dict, init=False, repr=False)
    _groups: list[str] = field(default_factory=list, init=False, repr=False)
    _ends: Ends = field(default_factory=Ends, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse settings that would stop never, or at once.

        Raises:
            BadArgument: for neither width nor threshold, or values that are not accepted.
        """
        check_least("samples", self.samples)
        for name, value in (("width", self.width), ("threshold", self.threshold)):
            check_argument(name, value, value is None or 0 < value < 1, "between 0 and 1, such as 0.1")
        self.sequence = ConfidenceSequence(level=self.level)
        self.sequence.stop_when(width=self.width, threshold=self.threshold)  # raises if neither is given

    @property
    def interval(self) -> Interval | None:
        """The rate of success over the tasks added so far; None before the first, or without success."""
        return self.sequence.interval if self.sequence.count and self._ends.report_success() else None

    def beside(
        self, admit: Callable[[int], bool] | None, on_episode: Callable[[Episode], None] | None
    ) -> tuple[Callable[[int], bool], Callable[[Episode], None]]:
        """Return `admit` and `on_episode` for a Runner, which also call the functions passed here."""

        def both(in_flight: int) -> bool:
            return not self.enough and (admit is None or admit(in_flight))

        def hear(episode: Episode) -> None:
            self.hear(episode)
            if on_episode is not None:
                on_episode(episode)

        return both, hear

    def expect(self, groups: Iterable[str]) -> None:
        """Set the groups of the tasks, in the order in which tasks are added; evaluate() does it."""
        self._groups = [*groups][::-1]

    def hear(self, episode: Episode) -> None:
        """Add an ended episode of one of the expected groups."""
        self._waiting.setdefault(episode.group, []).append(episode)
        while self._groups and len(self._waiting.get(self._groups[-1], ())) >= self.samples:
            ended = self._waiting.pop(self._groups.pop())
            for each in ended:
                self._ends.add(each, self.seat)
            known = [each.succeeded(self.seat) for each in ended if each.scored]
            successes = [float(each) for each in known if each is not None]
            if successes:
                self.sequence.add(math.fsum(successes) / len(successes))
            if self.sequence.count:
                enough = self.enough or self.sequence.stop_when(width=self.width, threshold=self.threshold)
                self.enough = enough and self._ends.report_success()
