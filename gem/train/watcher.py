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

    def cloned(self, step: int, held_out_loss: float) -> None:
        """The loss on demonstrations that are not cloned was measured, behind a warm-up step."""

    def measured(self, name: str, figures: EnvResult) -> None:
        """A policy was measured: see `gem.train.progress.TITLES`."""

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """An iteration is done and stands in the checkpoint."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated on held-out instances; when a run goes on, those before are not told."""

    def warned(self, text: str) -> None:
        """Something that the user should know."""
