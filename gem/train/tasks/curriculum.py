"""Curricula: environments in sequence, where the next starts when the policy does well enough in this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem.statistics import rate_interval
from gem.train.config.env_part import Stage


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
        shares = {stage.name: 0.0 for stage in self.stages}
        shares |= {stage.name: self.keep * stage.weight / total for stage in past}
        shares[self.stages[self.stage].name] = 1 - self.keep if past else 1.0
        return shares

    @property
    def low(self) -> float:
        """The lower bound of success in the last `over` iterations; 0 without any."""
        outcomes = [each for iteration in self.recent for each in iteration]
        if not outcomes:
            return 0.0
        return rate_interval([float(won) for _, won in outcomes], [task for task, _ in outcomes]).low

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
