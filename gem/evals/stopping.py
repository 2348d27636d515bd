"""Stopping early: an environment is played until the interval of its success is narrow enough."""

from __future__ import annotations

from dataclasses import replace

from gem.errors import BadArgument
from gem.evals.evaluator import EnvResult
from gem.record import Episode
from gem.statistics import ConfidenceSequence


class Stopper:
    """Admits episodes until the interval of success is as narrow as `width`.

    The interval is one that holds however often one looks (`gem.statistics.ConfidenceSequence`): that of a
    fixed number of tasks would be too narrow for a number that the outcomes decide. Its values are tasks, in
    the order in which they were drawn, each the mean of its `samples`; a task without verdict is left out.
    """

    def __init__(self, width: float, samples: int = 1) -> None:
        """Begin with nothing.

        Raises:
            BadArgument: for a width that no interval of a rate has.
        """
        if not 0 < width < 1:
            raise BadArgument(f"stop_at_width is {width}; accepted: between 0 and 1, such as 0.1.")
        self.width, self.samples = width, samples
        self.enough = False
        """Whether it is as narrow now."""
        self._sequence = ConfidenceSequence()
        self._heard: dict[int, list[bool | None]] = {}  # of tasks that are not taken in, by number
        self._next = 0

    def hear(self, episode: Episode) -> None:
        """Take in an episode as it ends."""
        self._heard.setdefault(int(episode.group), []).append(episode.success)
        while len(self._heard.get(self._next, ())) == self.samples:
            known = [bool(success) for success in self._heard.pop(self._next) if success is not None]
            self._next += 1
            if known:
                self._sequence.add(sum(known) / len(known))
                self.enough = self.enough or self._sequence.stop_when(width=self.width)

    def admit(self, in_flight: int) -> bool:
        """Tell whether another episode may begin."""
        return not self.enough

    def figures(self, result: EnvResult) -> EnvResult:
        """Return figures with the interval of all moments; what was not begun any more was not asked for.

        The interval is of the tasks that have ended without a gap between them.
        """
        if self._sequence.count == 0:
            return result
        if self.enough:
            result = replace(result, episodes=result.played, unplayed=0)
        return replace(result, success=self._sequence.interval)
