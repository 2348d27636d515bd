"""Watchers: callbacks on the events of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gem.errors import describe_place, text_of_error
from gem.evals import EnvResult
from gem.plugins import call_foreign
from gem.train.config import TrainConfig
from gem.train.report.run_folder import Evaluation, Metrics, RunFolder
from gem.waiting import report_news


class Watcher:
    """The callbacks of a training run; in this base class they do nothing.

    `gem.train.report.progress` shows a run in the terminal, `gem.train.report.loggers` writes it for other
    programs. Your own watcher is a subclass: `--log my_module:MyWatcher`, or
    ``train(config, watcher=MyWatcher())``.
    """

    def begun(self, folder: RunFolder, config: TrainConfig, history: Sequence[Metrics]) -> None:
        """Called when a run begins, or resumes after `history`, the iterations that its checkpoint holds."""

    def stage(self, name: str) -> None:
        """Called when a stage of the run begins."""

    def warmed(self, step: int, steps: int, loss: float) -> None:
        """Called after each warm-up step."""

    def cloned(self, step: int, held_out_loss: float) -> None:
        """Called when the loss on held-out demonstrations was measured, after a warm-up step."""

    def measured(self, name: str, figures: EnvResult, label: str = "") -> None:
        """Called when a policy was measured; for its `name` see `gem.train.report.progress.TITLES`.

        `label`: in which of several environments, or against which opponent; empty where there is one
        environment and no opponent.
        """

    def advanced(self, stage: str, iteration: int) -> None:
        """Called when a stage of a curriculum begins, with its first iteration, counted from 1."""

    def iterated(self, metrics: Metrics, config: TrainConfig) -> None:
        """Called after each iteration; a run that is interrupted before the next checkpoint repeats it."""

    def saved(self, iteration: int) -> None:
        """Called when the checkpoint and the run's files hold this iteration, which is then not repeated."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """Called after an evaluation on held-out instances; a resumed run does not repeat earlier calls."""

    def warned(self, text: str) -> None:
        """Called with a warning for the user."""

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Called when the run has ended and its summary is written."""

    def close(self) -> None:
        """Called last, when the run has ended or was interrupted."""


class Watchers(Watcher):
    """A watcher that calls several others; an error of a logger never stops the run.

    What `first` raises is raised, and what a callback raises, with its name. One of the `others`, which are
    loggers, that raises is closed and not called again, and `first` gets one warning about it.
    """

    def __init__(
        self, first: Watcher, others: Mapping[str, Watcher], callbacks: Mapping[str, Watcher] | None = None
    ) -> None:
        """Call `first`, the `callbacks`, and the `others`, by their names."""
        self.first = first
        self.others = dict(others)
        self.callbacks = dict(callbacks or {})

    def _tell(self, hook: str, *args: Any, **named: Any) -> None:
        report_news()
        getattr(self.first, hook)(*args, **named)
        for name, callback in self.callbacks.items():
            call_foreign(f"--callback {name}: {hook}", partial(getattr(callback, hook), *args, **named))
        for name, other in list(self.others.items()):
            try:
                getattr(other, hook)(*args, **named)
            except Exception as error:  # a full disk, a package that is half installed: anything
                del self.others[name]
                with suppress(Exception):
                    other.close()
                self.first.warned(
                    f"--log {name} failed and is left out from here on; training continues: "
                    f"{text_of_error(error)}{describe_place(error)}"
                )


def _telling(hook: str) -> Callable[..., None]:
    def tell(self: Watchers, *args: Any, **named: Any) -> None:
        self._tell(hook, *args, **named)

    return tell


for _hook in [name for name in vars(Watcher) if not name.startswith("_")]:
    setattr(Watchers, _hook, _telling(_hook))  # all of them: one that is added above is called too
