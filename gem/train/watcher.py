"""Watcher: told what a training run does."""

from __future__ import annotations

from gem.evals import EnvResult
from gem.train.config import TrainConfig
from gem.train.run import Evaluation, Metrics


class Watcher:
    """Told what a run does; the base class says nothing, `gem.train.progress` draws it."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def warmed(self, step: int, steps: int, loss: float) -> None:
        """A warm-up step is done."""

    def measured(self, name: str, figures: EnvResult, label: str = "") -> None:
        """A policy was measured: `random`, `before`, `after`, `greedy` or `optimum`.

        `label`: in which of several environments, or against whom; empty where there is one, and no opponent.
        """

    def began(self, stage: str, iteration: int) -> None:
        """A stage of a curriculum begins with the iteration of this number, counted from 1."""

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """An iteration is done and stands in the checkpoint."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated on held-out instances; when a run goes on, those before are not told."""

    def warned(self, text: str) -> None:
        """Something that the user should know."""
