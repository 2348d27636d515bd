"""Curricula: environments one after the other, the next one when the policy does well enough in this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gem.errors import BadArgument
from gem.statistics import rate_interval
from gem.train.mixture import EnvPart


@dataclass(frozen=True)
class Stage(EnvPart):
    """One stage of a curriculum, a table of ``[[curriculum]]``.

    As EnvPart, and `until`: the success above which the next stage begins; None: the run's `advance_at`.
    `weight`: how much of what is kept of earlier stages is of this one, once it is over.
    """

    until: float | None = None

    def __post_init__(self) -> None:
        """Refuse a success that there is none of."""
        super().__post_init__()
        number = isinstance(self.until, int | float) and not isinstance(self.until, bool)
        if self.until is not None and (not number or not 0 <= self.until < 1):
            raise BadArgument(
                f"until of {self.id} is {self.until!r}; accepted: a rate from 0 up to, without, 1."
            )

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return what a word says: ``ID``, ``ID=UNTIL``, or a JSON object."""
        return cls._parsed(word, "until")


class Curriculum:
    """Which stage a run is at.

    The next stage begins when the lower bound of success, at 95%, of the present stage's episodes of the last
    `over` iterations is above what is wanted: a batch that was lucky is not enough. Episodes of one task are
    one cluster. It is looked at after each iteration, so that in a long stage luck has many chances: the
    bound is a rule against noise, not a test. Stages never go back.
    """

    def __init__(self, stages: Sequence[Stage], until: float, over: int, keep: float) -> None:
        """Begin with the first of `stages`; earlier ones keep `keep` of the episodes, together."""
        self.stages, self.over, self.keep = stages, over, keep
        self.until = [until if stage.until is None else stage.until for stage in stages]
        self.stage = 0
        self.recent: list[list[tuple[str, bool]]] = []

    @property
    def weights(self) -> dict[str, float]:
        """The share of each stage now, by name; a stage that has not begun has 0."""
        past = self.stages[: self.stage]
        total = sum(stage.weight for stage in past)
        found = {stage.name: 0.0 for stage in self.stages}
        found |= {stage.name: self.keep * stage.weight / total for stage in past}
        found[self.stages[self.stage].name] = 1 - self.keep if past else 1.0
        return found

    @property
    def low(self) -> float:
        """The lower bound of success in the iterations that count; 0 without any."""
        told = [each for iteration in self.recent for each in iteration]
        if not told:
            return 0.0
        return rate_interval([float(won) for _, won in told], [task for task, _ in told]).low

    def take_in(self, played: Sequence[tuple[str, bool]]) -> bool:
        """Take in an iteration's episodes of the present stage, each by task and success.

        Returns:
            Whether another stage begins.
        """
        if played:
            self.recent = [*self.recent, list(played)][-self.over :]
        last = self.stage == len(self.stages) - 1
        if last or len(self.recent) < self.over or self.low <= self.until[self.stage]:
            return False
        self.stage += 1
        self.recent = []
        return True

    def state(self) -> dict[str, Any]:
        """Return what load() takes."""
        return {"stage": self.stage, "recent": self.recent}

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what state() told."""
        self.stage = state["stage"]
        self.recent = [[(task, won) for task, won in iteration] for iteration in state["recent"]]
