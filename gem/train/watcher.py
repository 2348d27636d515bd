"""Watcher: told what a training run does; and several of them that are told together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gem.errors import text_of_error
from gem.evals import EnvResult
from gem.train.config import TrainConfig
from gem.train.run import Evaluation, Metrics, RunFolder


class Watcher:
    """Told what a run does; the base class says nothing.

    `gem.train.progress` draws it in the terminal, `gem.train.loggers` writes it down for other programs. One
    of your own is a subclass: `--log my_module:MyWatcher`, or ``train(config, watcher=MyWatcher())``.
    """

    def begun(self, folder: RunFolder, config: TrainConfig, history: Sequence[Metrics]) -> None:
        """The run begins; or it goes on behind `history`, the iterations that its checkpoint holds."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def warmed(self, step: int, steps: int, loss: float) -> None:
        """A warm-up step is done."""

    def cloned(self, step: int, held_out_loss: float) -> None:
        """The loss on demonstrations that are not cloned was measured, behind a warm-up step."""

    def measured(self, name: str, figures: EnvResult, label: str = "") -> None:
        """A policy was measured: see `gem.train.progress.TITLES`.

        `label`: in which of several environments, or against whom; empty where there is one, and no opponent.
        """

    def began(self, stage: str, iteration: int) -> None:
        """A stage of a curriculum begins with the iteration of this number, counted from 1."""

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """An iteration is done; a run that is interrupted before the next checkpoint does it again."""

    def saved(self, iteration: int) -> None:
        """The checkpoint and the run's files hold all up to this iteration: it will not be done again."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """The policy was evaluated on held-out instances; when a run goes on, those before are not told."""

    def warned(self, text: str) -> None:
        """Something that the user should know."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """The run came to its end, and its summary is written."""

    def close(self) -> None:
        """Nothing more will be told: the run ended, or was interrupted."""


class Watchers(Watcher):
    """Tells a watcher, and others beside it whose errors never stop the run.

    What `first` raises is raised. One of the `others` that raises is closed and told nothing more, and
    `first` is warned of it, once.
    """

    def __init__(self, first: Watcher, others: Mapping[str, Watcher]) -> None:
        """Tell `first`, and the `others`, by their names."""
        self.first = first
        self.others = dict(others)

    def _tell(self, hook: str, *args: Any, **named: Any) -> None:
        getattr(self.first, hook)(*args, **named)
        for name, other in list(self.others.items()):
            try:
                getattr(other, hook)(*args, **named)
            except Exception as error:  # a full disk, a package that is half installed: anything
                del self.others[name]
                with suppress(Exception):
                    other.close()
                self.first.warned(
                    f"--log {name} failed and is left out from here on, training goes on: "
                    f"{text_of_error(error)}"
                )


def _telling(hook: str) -> Callable[..., None]:
    def tell(self: Watchers, *args: Any, **named: Any) -> None:
        self._tell(hook, *args, **named)

    return tell


for _hook in [name for name in vars(Watcher) if not name.startswith("_")]:
    setattr(Watchers, _hook, _telling(_hook))  # all of them: one that is added above is told too
