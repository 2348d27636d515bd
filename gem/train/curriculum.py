"""Curricula: environments in sequence, where the next starts when the policy does well enough in this one."""

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

    It has the fields of EnvPart, and `until`: the success rate above which the next stage starts; None: the
    run's `advance_at`. `weight`: once this stage is over, its share among the earlier stages that are still
    played.
    """

    until: float | None = None

    def __post_init__(self) -> None:
        """Check that `until` is a success rate below 1."""
        super().__post_init__()
        number = isinstance(self.until, int | float) and not isinstance(self.until, bool)
        if self.until is not None and (not number or not 0 <= self.until < 1):
            raise BadArgument(
                f"until of {self.id} is {self.until!r}; accepted: a rate of 0 or more and below 1."
            )

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the stage that a word describes: ``ID``, ``ID=UNTIL``, or a JSON object."""
        return cls._parsed(word, "until")


class Curriculum:
    """The present stage of a run, and the rule that starts the next one.

    The next stage starts when the lower bound of the 95% interval of success is above the threshold of the
    present stage. The interval is over the present stage's episodes of the last `over` iterations, so one
    lucky batch is not enough. Episodes of one task are one cluster. The rule is applied after each iteration,
    so a long stage has many chances to pass by luck: it guards against noise and is not a test. Stages never
    go back.
    """

    def __init__(self, stages: Sequence[Stage], until: float, over: int, keep: float) -> None:
        """Start with the first of `stages`; earlier stages together get a share `keep` of the episodes."""
        self.stages, self.over, self.keep = stages, over, keep
        self.until = [until if stage.until is None else stage.until for stage in stages]
        self.stage = 0
        self.recent: list[list[tuple[str, bool]]] = []

    @property
    def weights(self) -> dict[str, float]:
        """The present share of each stage, by name; 0 for a stage that has not started."""
        past = self.stages[: self.stage]
        total = sum(stage.weight for stage in past)
        found = {stage.name: 0.0 for stage in self.stages}
        found |= {stage.name: self.keep * stage.weight / total for stage in past}
        found[self.stages[self.stage].name] = 1 - self.keep if past else 1.0
        return found

    @property
    def low(self) -> float:
        """The lower bound of success in the last `over` iterations; 0 without any."""
        told = [each for iteration in self.recent for each in iteration]
        if not told:
            return 0.0
        return rate_interval([float(won) for _, won in told], [task for task, _ in told]).low

    def take_in(self, played: Sequence[tuple[str, bool]]) -> bool:
        """Add an iteration's episodes of the present stage, each as its task and success.

        Returns:
            Whether the next stage starts.
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
        """Return the state that load() restores."""
        return {"stage": self.stage, "recent": self.recent}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state that state() returned."""
        self.stage = state["stage"]
        self.recent = [[(task, won) for task, won in iteration] for iteration in state["recent"]]
